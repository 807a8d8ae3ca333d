"""See what a call does without a change to it: functions and lines that run, traces of JAX.

Counts do not depend on the machine. Nothing is imported of the compiler, which tests of the runtime
do without.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


_FOLDERS = _folder("pullback"), _folder("pullback_runtime")
_OURS = tuple(f"{folder}{os.sep}" for folder in _FOLDERS)


class Layers(NamedTuple):
    """What ran: the functions, each by its file and name, how often, and how deep in calls."""

    functions: frozenset[tuple[Path, str]]
    calls: int
    depth: int

    @property
    def files(self) -> set[Path]:
        return {file for file, _ in self.functions}


def layers_of(function: Callable[[], Any]) -> Layers:
    """Runs a function and counts the Python functions of ours that it calls."""
    functions, calls, depth, deepest = set(), 0, 0, 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal calls, depth, deepest
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            return
        if event == "call":
            functions.add((_path(code.co_filename), code.co_qualname))
            calls, depth = calls + 1, depth + 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return Layers(frozenset(functions), calls, deepest)


@functools.cache
def _path(name: str) -> Path:
    """The path of a file of ours, which begins with the package's name."""
    (folder,) = (each for each in _FOLDERS if name.startswith(f"{each}{os.sep}"))
    return Path(name).relative_to(folder.parent)


def lines_run(function: Callable[[], Any]) -> int:
    """Call a function and return how many lines of our packages ran, in this thread."""
    count = 0

    def line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(_OURS) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@contextlib.contextmanager
def traces() -> Iterator[list[str]]:
    """Yield a list that has the name of each function that JAX traces while the block runs."""
    names: list[str] = []

    def note(event: str, _: float, *, fun_name: str = "", **options: Any) -> None:
        if event == "/jax/core/compile/jaxpr_trace_duration":
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
