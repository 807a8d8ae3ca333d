"""Measure work in a way that does not depend on the machine: lines that run, traces of JAX."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax

import pullback
import pullback_runtime

_OURS = tuple(f"{Path(p.__file__).parent}{os.sep}" for p in (pullback, pullback_runtime))


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
