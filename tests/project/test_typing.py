"""What the types of the public API tell a user: `make release-check` asks the installed wheels."""

from __future__ import annotations

from pathlib import Path

from mypy import api

from tests import release

ROOT = Path(__file__).parents[2]


def test_a_right_program_is_accepted_and_mistakes_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    options = ["--strict", f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={tmp_path}"]
    printed, broken, _ = api.run([*options, str(release.TYPED)])
    assert not broken
    assert "right.py" not in printed
    assert release.mistakes(printed) == release.marked()
