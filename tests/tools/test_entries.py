"""Files of several programs on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pullback
from tests.tools.test_info import facts


@pytest.fixture
def path(tmp_path, model, pullback_command) -> Path:
    """A function and its gradient, saved."""
    path = tmp_path / "model.mlirbc"
    derive = ("derive", f"{model}:scalar", "--grad", "--entry-name", "slope", "-o", path)
    assert pullback_command(*derive).exit_code == 0
    return path


def test_derive_adds_entries_to_those_of_the_file(path, pullback_command, tmp_path):
    options = ("--entry", "slope", "--jvp", "--wrt", "0", "--entry-name", "second")
    result = pullback_command("derive", path, *options, "-o", path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert tuple(pullback.load(path).entries) == ("main", "slope", "second")
    x, y = np.array([1.0, 2.0], np.float32), np.float32(0.5)
    assert pullback.load(path)(x, y) == 4.5
    np.testing.assert_allclose(pullback.load(path, entry="slope")(x, y), [1.5, 6.0])
    second = pullback.load(path, entry="second")
    np.testing.assert_allclose(second(x, y, np.ones_like(x))[1], [3.0, 6.0])
    alone = tmp_path / "alone.mlirbc"
    assert pullback_command("derive", path, "--entry", "slope", "--vjp", "-o", alone).exit_code == 0
    assert tuple(pullback.load(alone).entries) == ("main",)


def test_info_lists_the_entries_with_their_signatures(path, pullback_command):
    found = facts(pullback_command("info", path).stdout)
    assert found["entry"] == [
        "main (x: float32[2], y: float32[]) -> (float32[])",
        "slope (x: float32[2], y: float32[]) -> (float32[2])",
    ]
    assert found["result"] == ["result: float32[]"]
    found = facts(pullback_command("info", path, "--entry", "slope").stdout)
    assert len(found["entry"]) == 2
    assert found["result"] == ["result: float32[2]"]
    assert "entry" not in facts(pullback_command("info", _one(path)).stdout)


def _one(path: Path) -> Path:
    pullback.load(path).save(path.parent / "one.mlirbc")
    return path.parent / "one.mlirbc"


@pytest.mark.parametrize("option", ["--entry", "--entry-name"])
def test_run_and_dump_choose_an_entry(path, pullback_command, option):
    printed = pullback_command("run", path, option, "slope", "--random", "0", "--compare")
    assert printed.stdout.startswith("result 0: f32[2]"), printed.stderr
    dumped = pullback_command("dump", path, option, "slope").stdout
    assert "@main(%arg0: tensor<2xf32>, %arg1: tensor<f32>) -> tensor<2xf32>" in dumped
    assert dumped.count("func.func public") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "FILE", "--entry", "stress"], "the file has no entry `stress`"),
        (["info", "FILE", "--entry", "stress"], "its entries: main, slope"),
        (["dump", "FILE", "--entry", "stress"], "do:    name one of these"),
        (
            ["derive", "FILE", "--grad", "--entry-name", "second"],
            "--entry-name says nothing without",
        ),
        (
            ["derive", "FILE", "--grad", "--entry-name", "slope", "-o", "out.mlirbc"],
            "has an entry `slope` already\n  where: its entries: main, slope",
        ),
        (
            ["derive", "FILE", "--grad", "--entry-name", "a-b", "-o", "out.mlirbc"],
            "`a-b` cannot be the name of an entry: it is no identifier",
        ),
        (
            ["derive", "FILE", "--grad", "--entry-name", "order", "-o", "out.mlirbc"],
            "no entry can have the name `order`: it is an option of save_all",
        ),
        (
            ["derive", "FILE", "--grad", "--entry-name", "cube", "-o", "out.mlirbc"],
            "a function of the module has it",
        ),
    ],
)
def test_refused(path, pullback_command, arguments, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = pullback_command(*(str(path) if each == "FILE" else each for each in arguments))
    assert result.exit_code == 2
    assert words in result.stderr
    assert not Path("out.mlirbc").exists()


def test_symbolic_dimensions_are_refused(pullback_command, model, tmp_path):
    options = ("--args", "f32[b],f32[]", "--grad", "--entry-name", "slope")
    result = pullback_command("derive", f"{model}:scalar", *options, "-o", tmp_path / "f.mlirbc")
    assert result.exit_code == 2
    assert (
        "the entry `main` has symbolic dimensions: it can be saved by itself only" in result.stderr
    )
