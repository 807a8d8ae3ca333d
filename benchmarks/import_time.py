"""Time of `import pullback`, beside `import jax` alone.

    python benchmarks/import_time.py [--runs 15]

Each import runs in a fresh interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from rows import Row, Wanted, benchmark

LIMIT = 1.25
TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def milliseconds(module: str) -> float:
    """The time of one import in an interpreter of its own."""
    command = [sys.executable, "-c", TIMED.format(module)]
    compiled = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # bytecode is kept, as by default
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=compiled)
    return 1e3 * float(done.stdout)


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    if not wanted("import pullback"):
        return
    modules = "pullback", "jax"
    pairs = [[milliseconds(module) for module in modules] for _ in range(runs + 1)]
    ours, theirs = zip(*pairs[1:], strict=True)  # the first fills the file cache
    yield Row("import pullback", ours, theirs, peer="import jax", aim=LIMIT)


if __name__ == "__main__":
    benchmark(rows, runs=15)()
