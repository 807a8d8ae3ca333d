"""`pullback reduce`: the smallest module for which a command still fails."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pullback.passes.manager import verify_module
from pullback.tools.module_io import parse_module

LOOP = """
  %w:2 = stablehlo.while(%p = %v100, %i = %n) : tensor<4x8xf32>, tensor<i32> cond {
    %c = stablehlo.constant dense<3> : tensor<i32>
    %q = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %q : tensor<i1>
  } do {
    %f = func.call @helper(%p) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %o = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %o : tensor<i32>
    stablehlo.return %f, %j : tensor<4x8xf32>, tensor<i32>
  }"""
HELPER = """
func.func private @helper(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.sine %x : tensor<4x8xf32>
  %1 = stablehlo.custom_call @planted(%0) {k = 1 : i32} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.cosine %1 : tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}
"""
CHAIN = """
func.func @main(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<2.0> : tensor<4xf32>
  %0 = stablehlo.slice %y [2:6] : (tensor<8xf32>) -> tensor<4xf32>
  %1 = stablehlo.multiply %0, %c : tensor<4xf32>
  %2 = stablehlo.cosine %1 : tensor<4xf32>
  %3 = stablehlo.sine %x : tensor<4xf32>
  %4 = stablehlo.add %3, %2 : tensor<4xf32>
  %5 = stablehlo.custom_call @planted(%4) : (tensor<4xf32>) -> tensor<4xf32>
  return %5 : tensor<4xf32>
}
"""


def planted() -> str:
    """A module of 200 ops; one of them, in a function that a loop calls, makes commands fail."""
    choose = random.Random(0).choice
    values, lines = ["%a", "%b"], []
    for i in range(190):
        x, y = choose(values[-8:]), choose(values[-8:])
        op = choose(["add", "multiply", "subtract"])
        lines.append(f"  %v{i} = stablehlo.{op} {x}, {y} : tensor<4x8xf32>")
        values.append(f"%v{i}")
        if i == 100:
            lines.append(LOOP)
            values.append("%w#0")
    types = "tensor<4x8xf32>, tensor<4x8xf32>"
    head = "func.func @main(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %n: tensor<i32>)"
    end = f"  return {values[-1]}, {values[-2]} : {types}\n}}"
    return "\n".join([f"{head} -> ({types}) {{", *lines, end]) + HELPER


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "planted.mlir"
    path.write_text(planted())
    return path


def test_one_op_in_two_hundred_is_found(pullback_command, file):
    result = pullback_command("reduce", file, "--test", "! grep -q planted")
    assert result.exit_code == 0
    call = "stablehlo.custom_call @planted(%arg0) : (tensor<1x1xf32>) -> tensor<1x1xf32>"
    assert call in result.stdout
    assert result.stdout.count(" = ") == 1
    assert "199 ops became 1, by" in result.stderr
    assert "nothing more can be taken away" in result.stderr


def test_each_module_that_is_tried_is_valid_and_the_same_each_time(pullback_command, file):
    """The entry must stay here, and the loop, but not the call in it."""
    kept = "cat {} >> all; echo // ----- >> all; ! (grep -q planted {} && grep -q while {})"
    kept = kept.replace("all", str(file.parent / "all"))
    runs = []
    for _ in range(2):
        result = pullback_command("reduce", file, "--test", kept)
        assert result.exit_code == 0
        assert "199 ops became 3, by" in result.stderr
        assert "stablehlo.while" in result.stdout
        runs.append((result.stdout, (file.parent / "all").read_text()))
        (file.parent / "all").unlink()
    assert runs[0] == runs[1]
    tried = runs[0][1].split("// -----\n")[:-1]
    assert len(tried) > 5
    for text in tried:
        verify_module(parse_module(text))


def test_a_command_of_ours_and_what_it_says(pullback_command, file, tmp_path):
    """Without the path as a hole, it comes last; the result goes to a file."""
    script = tmp_path / "test.sh"
    script.write_text('grep -q cosine "$1" && echo "no cosine here" && exit 1; exit 1')
    out = tmp_path / "small.mlir"
    options = "--test", f"sh {script}", "--matching", "no cosine", "-o", out
    assert pullback_command("reduce", file, *options).exit_code == 0
    assert out.read_text().count(" = ") == 1
    assert "stablehlo.cosine" in out.read_text()


def test_an_op_is_replaced_by_any_operand_an_argument_or_zero(pullback_command, tmp_path):
    """The test wants the cosine in what the call depends on; no first operand leads there."""
    path = tmp_path / "chain.mlir"
    path.write_text(CHAIN)
    wanted = "pullback-opt --cse {} > {}.out; ! (grep -q cosine {}.out && grep -q planted {}.out)"
    result = pullback_command("reduce", path, "--test", wanted)
    assert "7 ops became 2, by" in result.stderr
    assert [line.split()[2] for line in result.stdout.splitlines() if " = " in line] == [
        "stablehlo.cosine",
        "stablehlo.custom_call",
    ]


def test_commands_of_ours_run_in_one_server(pullback_command, file, tmp_path):
    """They are found on the path of scripts, too, until the smallest module is printed."""
    script = tmp_path / "test.sh"
    script.write_text(f'command -v pullback >> {tmp_path}/found\npullback opt --vjp "$1"')
    options = "--test", f"sh {script}", "--matching", "custom_call` @planted"
    result = pullback_command("reduce", file, *options)
    assert "199 ops became 1, by" in result.stderr
    found, *others = (tmp_path / "found").read_text().splitlines()
    assert len(others) > 5
    assert set(others) == {found}
    assert Path(found).parent.name.startswith("pullback-commands-")
    assert not Path(found).parent.exists()


def test_the_smallest_module_when_the_time_is_over(pullback_command, file):
    slow = "sleep 0.3; ! grep -q planted"
    result = pullback_command("reduce", file, "--test", slow, "--time-limit", 1)
    assert result.exit_code == 0
    assert "planted" in result.stdout
    assert "stopped after 1 s: more time may find a smaller one" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--test", "true"], "the command does not fail for `planted.mlir`: its exit code is 0"),
        (["--test", "no-such-command"], "the shell cannot run the command: "),
        (["--test", "echo good; false", "--matching", "bad"], "but does not print 'bad'"),
        (["--test", "sleep 9; false", "--time-limit", "0.2"], "has not ended for `planted.mlir`"),
        ([], "Missing option '--test'"),
    ],
)
def test_bad_input(pullback_command, file, monkeypatch, options, words):
    monkeypatch.chdir(file.parent)
    result = pullback_command("reduce", "planted.mlir", *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_a_module_that_is_not_valid(pullback_command, tmp_path):
    path = tmp_path / "wrong.mlir"
    path.write_text("func.func @main() { return %x : tensor<f32> }")
    result = pullback_command("reduce", path, "--test", "false")
    assert result.exit_code == 2
    assert "the module is not valid, as each that is tried has to be: " in result.stderr
    assert f"{path}:1:28: error: use of undeclared SSA value" in result.stderr
