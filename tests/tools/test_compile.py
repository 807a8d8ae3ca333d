"""`pullback compile`: machine code of a saved program in a file."""

from __future__ import annotations

import warnings
from pathlib import Path

import pullback_runtime
from tests.files import corpus

RECURRENT = Path(__file__).parents[1] / "files" / "golden" / "format-1" / "recurrent.mlirbc"


def test_what_it_writes_runs(pullback_command, tmp_path):
    path = tmp_path / "model.exe"
    result = pullback_command("compile", RECURRENT, "--backend", "cpu", "-o", path)
    assert result.exit_code == 0, result.output
    assert "4.2 kB the program" in result.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = pullback_runtime.load_executable(path)
    found = program.flat(*corpus.stored(RECURRENT, "argument"))
    corpus.agree(found, corpus.stored(RECURRENT, "result"))


def test_what_it_cannot_read_is_an_error(pullback_command, tmp_path):
    refused = pullback_command("compile", tmp_path / "nowhere", "-o", tmp_path / "model.exe")
    assert refused.exit_code == 2
    assert "cannot read" in refused.stderr
    (tmp_path / "text.mlir").write_text("module {}")
    refused = pullback_command("compile", tmp_path / "text.mlir", "-o", tmp_path / "model.exe")
    assert refused.exit_code == 2
    assert "this is no program that pullback saved" in refused.stderr
    assert "text.mlir" in refused.stderr
    info = pullback_command("info", _compiled(pullback_command, tmp_path))
    assert info.exit_code == 2
    assert "this is machine code" in info.stderr


def _compiled(pullback_command, folder: Path) -> Path:
    pullback_command("compile", RECURRENT, "-o", folder / "model.exe")
    return folder / "model.exe"
