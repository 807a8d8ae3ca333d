"""The example that ships a gradient runs, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "ship_a_gradient.py"


def test_ship_a_gradient():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    printed = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    for line in ("gradient", "forward through custom_vjp", "Hessian-vector product"):
        assert f"\n{line}" in printed
