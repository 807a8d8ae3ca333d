"""Python in a process of its own: how many devices JAX has is settled when it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_python(*arguments: str, devices: int = 1) -> str:
    """What `python ARGUMENTS…` prints on so many devices of the CPU; it must end well."""
    path = os.pathsep.join(map(str, (ROOT / "compiler", ROOT / "runtime", ROOT)))
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    found = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout
