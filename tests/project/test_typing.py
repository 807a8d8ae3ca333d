"""What the types of the public API tell a user: `make release-check` asks the installed wheels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import release

ROOT = Path(__file__).parents[2]


def test_a_right_program_is_accepted_and_mistakes_are_found(tmp_path):
    """In a process of its own: mypy raises the recursion limit of the one that it runs in."""
    options = ["--strict", f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, str(release.TYPED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr
    assert "right.py" not in done.stdout
    assert release.mistakes(done.stdout) == release.marked()
