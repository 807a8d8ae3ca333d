"""Run the pages that use other libraries, and time asdex on a file: `make interpreters`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import asdex
import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from tests.docs.blocks import run_blocks

VARIABLES = 3000
MOST = 1.2
"""How much longer a Hessian of the file may take than that of the function."""


def shortest(run: Callable[[], Any], times: int = 20) -> float:
    """Return the seconds of the fastest of some runs."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        jax.block_until_ready(run())
        found.append(time.perf_counter() - start)
    return min(found)


def time_chain() -> bool:
    """Time the Hessian of a chain, of the function and of a file in turn; return True if slower."""
    energy = __import__("model").energy
    x = jnp.linspace(0.0, 1.0, VARIABLES)
    pb.trace(energy)(x).save("chain.mlirbc")
    loaded = pb.load("chain.mlirbc").as_jax()
    hessians = [jax.jit(asdex.hessian(f, x)) for f in (energy, loaded)]
    dense = [hessian(x).todense() for hessian in hessians]
    np.testing.assert_allclose(dense[0], dense[1], rtol=1e-5, atol=1e-6)
    times = [[shortest(lambda h=h: h(x)) for h in hessians] for _ in range(5)]
    ours, theirs = min(each[1] for each in times), min(each[0] for each in times)
    print(
        f"the Hessian of {VARIABLES} variables by asdex: {1e3 * theirs:.3f} ms of the function, "
        f"{1e3 * ours:.3f} ms of the file, {ours / theirs:.2f} times"
    )
    return ours > MOST * theirs


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, "")
        wrong = run_blocks("as_jax.md", languages="py(?:thon)?") + run_blocks("forces.md")
        slow = time_chain()
        os.chdir("/")
    return int(bool(wrong or slow))


if __name__ == "__main__":
    sys.exit(main())
