"""Python in a process of its own: how many devices JAX has is settled when it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_python(*arguments: str, **environment: str) -> str:
    """What `python ARGUMENTS…` prints on the CPU; it must end well."""
    path = os.pathsep.join(map(str, (ROOT / "compiler", ROOT / "runtime", ROOT)))
    found = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout
