"""Save under one Python and JAX, load under the other, both ways.

    python -m tests.files.portability PYTHON_A PYTHON_B

Each is an interpreter in which pullback can be imported, or finds it on PYTHONPATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT, ROOT / "compiler", ROOT / "runtime")


def run(python: str, module: str, command: str, folder: str) -> None:
    """Runs a command of a corpus under an interpreter; ends this process when it fails."""
    path = os.pathsep.join(map(str, (*SOURCES, os.environ.get("PYTHONPATH", ""))))
    subprocess.run(
        [os.path.abspath(python), "-m", f"tests.files.{module}", command, folder],
        env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
        cwd=ROOT,
        check=True,
    )


def main(first: str, second: str) -> None:
    for writer, reader in ((first, second), (second, first)):
        print(f"written by {writer}, read by {reader}", flush=True)
        for module in ("corpus", "sharded"):
            with tempfile.TemporaryDirectory() as folder:
                run(writer, module, "write", folder)
                run(reader, module, "check", folder)
    print("both ways: same results and same gradients")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
