"""How long `import pullback` takes, next to `import jax` alone; the aim is at most 1.25x.

    python benchmarks/import_time.py [--repeats 15]

Each import runs in a fresh interpreter, the two in turn; medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

LIMIT = 1.25
TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(module: str) -> float:
    """The time of one import in an interpreter of its own."""
    command = [sys.executable, "-c", TIMED.format(module)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main() -> None:
    """Prints both medians and their ratio; exits with 1 above the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    seconds("pullback"), seconds("jax")  # fill the file cache and the bytecode cache
    pairs = [(seconds("jax"), seconds("pullback")) for _ in range(repeats)]
    jax, pullback = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = pullback / jax
    print(f"import jax       {jax * 1e3:7.1f} ms")
    print(f"import pullback  {pullback * 1e3:7.1f} ms")
    print(f"ratio            {ratio:7.3f}   (aim: at most {LIMIT})")
    sys.exit(ratio > LIMIT)


if __name__ == "__main__":
    main()
