"""Count the functions and files of ours that the first gradient of a function runs through.

    python -m tests.layers

It prints the whole count, and that of each package. The process is warm: another gradient was taken
before, so modules are imported and what is made once is made.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

import pullback as pb
import pullback_runtime

PACKAGES = [Path(package.__file__).parent for package in (pb, pullback_runtime)]


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
        file = _file_of_ours(frame.f_code.co_filename)
        if file is None:
            return
        if event == "call":
            functions.add((file, frame.f_code.co_qualname))
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


def _file_of_ours(name: str) -> Path | None:
    """The path of a file in one of the packages, which begins with the package's name."""
    packages = (each for each in PACKAGES if name.startswith(f"{each}{os.sep}"))
    return next((Path(name).relative_to(each.parent) for each in packages), None)


def loss(x: Any, w: Any) -> Any:
    """The small function: a product, a sine and a sum."""
    return jnp.sum(jnp.sin(x * w))


def first_gradient() -> Layers:
    x, w = jnp.arange(3.0), jnp.ones(3)
    pb.grad(jnp.sum)(x)
    return layers_of(lambda: pb.grad(loss)(x, w))


def main() -> None:
    found = first_gradient()
    print(
        f"the first pb.grad: {len(found.functions)} functions in {len(found.files)} files, "
        f"{found.calls} calls, {found.depth} deep"
    )
    functions = Counter(file.parent for file, _ in found.functions)
    files = Counter(file.parent for file in found.files)
    for package, count in functions.most_common():
        print(f"{count:6} functions in {files[package]:2} files  {package}")


if __name__ == "__main__":
    main()
