"""Run the pages that use other libraries, and time asdex on a file: `make interpreters`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asdex
import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb

DOCS = Path(__file__).parents[1] / "docs"
VARIABLES = 3000
MOST = 1.2
"""How much longer a Hessian of the file may take than that of the function."""


def run_page(name: str) -> int:
    """Run the blocks of a page; return how many print something else than the page shows.

    The first block of docs/as_jax.md is the file that the others import; of docs/forces.md, blocks
    without other libraries are tests already.
    """
    page = (DOCS / name).read_text()
    output = r"(?:\n\n```(?:text|output)\n(.*?)```)?"
    language = "py(?:thon)?" if name == "as_jax.md" else "py"
    shown = re.findall(rf"```{language}\n([^`]*)```{output}", page, re.S)
    if name == "as_jax.md":
        Path("model.py").write_text(shown.pop(0)[0])
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "pb": pb}
    wrong = 0
    for code, text in shown:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, "a page of docs", "exec"), names)
        if out.getvalue() != text:
            print(f"{code}\nprints\n{out.getvalue()}\ninstead of\n{text}")
            wrong += 1
    print(f"{len(shown) - wrong} of {len(shown)} blocks of {name} print what it shows")
    return wrong


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
        wrong = run_page("as_jax.md") + run_page("forces.md")
        slow = time_chain()
        os.chdir("/")
    return int(bool(wrong or slow))


if __name__ == "__main__":
    sys.exit(main())
