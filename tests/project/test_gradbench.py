"""The tool for GradBench, by its protocol."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DRIVE = Path(__file__).parents[2] / "packaging/gradbench/drive.py"


@pytest.mark.slow
def test_the_tool_answers_with_right_values_and_derivatives():
    command = [sys.executable, str(DRIVE), "--seconds", "0", "hello", "det", "ode", "saddle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert len(lines) == 16
    assert all("right" in line for line in lines)
