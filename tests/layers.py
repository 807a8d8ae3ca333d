"""Count the functions and files of ours that the first gradient of a function runs through.

    python -m tests.layers

It prints the whole count, and that of each package. The process is warm: another gradient was taken
before, so modules are imported and what is made once is made.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax.numpy as jnp

import pullback as pb
from tests.work import Layers, layers_of


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
