"""`pullback` itself: its help, its version, and how it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import pullback
import pullback_runtime
from pullback.frontend import trace
from pullback.testing import check
from pullback.tools import dump, module_io

EXAMPLES = Path(__file__).parents[2] / "examples"
LIT_TESTS = EXAMPLES.parent / "lit_tests"


def test_help_lists_the_commands(pullback_command):
    result = pullback_command("--help")
    assert result.exit_code == 0
    for command in ("derive", "dump", "info", "opt", "run"):
        assert f"\n  {command} " in result.stdout


WITHOUT_JAX = """
import sys
from click.shell_completion import ShellComplete
from pullback_cli import main

def found(*words):
    complete = ShellComplete(main, {}, "pullback", "_PULLBACK_COMPLETE")
    return complete.get_completions(list(words[:-1]), words[-1])

def completed(*words):
    return {item.value for item in found(*words)}

main(["--help"], standalone_mode=False)
assert {"derive", "dump"} == completed("d")
assert "--find-nan" in completed("run", "--f")
assert {"--mlir-timing", "--inline-calls", "--to-stablehlo"} <= completed("opt", "-")
assert completed("opt", "-p", "inl") == {"inline-calls"}
assert {item.type for item in [*found("derive", "mod"), *found("opt", "-o", "mod")]} == {"file"}
imported = {name.partition(".")[0] for name in sys.modules}
assert imported.isdisjoint({"jax", "jaxlib", "numpy", "pullback", "pullback_runtime", "rich"})
"""


def test_help_and_completion_import_nothing_of_jax():
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", WITHOUT_JAX], check=True, env=environment)


def test_what_the_command_line_repeats_is_what_the_package_says():
    """`pullback_cli` imports nothing of the package, so some names stand there, too."""
    commands = {name: sys.modules[f"pullback_cli.{name}"] for name in ("check", "dump")}
    assert set(commands["dump"].STAGES) == set(dump.FILES)
    assert commands["dump"].PLATFORMS == trace.PLATFORMS
    assert commands["check"].TOLERANCE == check.TOLERANCE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_output_that_does_not_fit_is_an_error_in_words(tmp_path):
    module = tmp_path / "module.mlir"
    module.write_text("func.func @main() { return }")
    command = [sys.executable, "-m", "pullback", "dump", str(module)]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 2
    assert "UsageError: cannot write the output: No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_version_is_that_of_both_packages(pullback_command):
    expected = pullback_runtime.__version__
    assert pullback.__version__ == expected
    result = pullback_command("--version")
    assert (result.exit_code, result.stdout) == (
        0,
        f"pullback {expected}, with jax {jax.__version__}\n",
    )


def test_unknown_command(pullback_command):
    result = pullback_command("dmup")
    assert result.exit_code == 2
    assert "No such command 'dmup'" in result.stderr


def test_a_closed_standard_input_is_empty(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert module_io.standard_input() == module_io.read_bytes("-") == b""


@pytest.mark.parametrize(
    ("target", "arguments", "words"),
    [
        ("model.py:f", "f32[2]", "takes (x, y), and 1 arguments were given"),
        ("model.py:named", "f32[2]", "name a function that has scale bound, as functools.partial"),
        ("model.py:f", "f32[2], f32, f32", "and 3 arguments were given: too many positional"),
        ("model.py:f", "f33[2], f32", "no dtype 'f33'"),
        ("model.py:f", "f32[2], f32[3]", "failed under tracing: TypeError: add got incompatible"),
        ("model.py:branches", "f32", "failed under tracing: TracerBoolConversionError"),
        ("model.py:words", "f32", "failed under tracing: TypeError: function words at"),
        (
            "model.py:steps",
            "f32",
            "failed under tracing: TypeError: Expected a function, got a gen",
        ),
        ("model.py:f", "(" * 2000, "too many brackets inside one another"),
        ("model.py:g", None, "no function `g` in `model.py:g`"),
        ("model.py:cub", None, "did you mean `cube`?"),
        ("model.py:not_a_function", None, "is of type int, not a function"),
        ("absent.py:f", None, "no file `absent.py` (in the target `absent.py:f`)"),
        ("absent.module:f", None, "no module `absent.module`"),
        ("model.py", None, "`model.py` is not a target"),
        ("broken.py:f", None, "importing `broken.py` failed: ZeroDivisionError: division by zero"),
        ("syntax.py:f", None, "importing `syntax.py` failed: SyntaxError"),
        ("imports.py:f", None, "importing `imports.py` failed: ModuleNotFoundError: No module"),
        ("bare.py:f", None, "its module defines no `example_args`"),
    ],
)
def test_each_mistake_has_one_message_and_exit_code_2(
    pullback_command, model, monkeypatch, target, arguments, words
):
    monkeypatch.chdir(model.parent)
    Path("broken.py").write_text("1 / 0\n")
    Path("syntax.py").write_text("def f(:\n")
    Path("imports.py").write_text("import a_module_that_is_not_there\n")
    Path("bare.py").write_text("def f(x): return x\n")
    options = [] if arguments is None else ["--args", arguments]
    result = pullback_command("dump", target, *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert result.stderr.startswith("UsageError: ")
    assert "Traceback" not in result.stderr


def test_the_message_names_the_users_line(pullback_command, model):
    result = pullback_command("dump", f"{model}:branches", "--args", "f32")
    line = model.read_text().splitlines().index("    if x > 0:") + 1
    assert f"where: {model}:{line}, in branches" in result.stderr


def test_a_module_is_found_in_the_working_directory(pullback_command, monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    result = pullback_command("dump", "examples.rules:train_step")
    assert result.exit_code == 0
    assert "pullback.linear_call" in result.stdout


def terminal_output(environment: dict[str, str]) -> str:
    """What `pullback dump` writes to a terminal, of a module that has a linear call."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    command = "from pullback_cli import main; main()"
    target = str(LIT_TESTS / "dialect" / "linear_call" / "valid.mlir")
    process = subprocess.Popen(
        [sys.executable, "-c", command, "dump", target],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": ":".join(sys.path)}
        | environment,
    )
    os.close(follower)
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(leader)
    assert process.wait() == 0
    return b"".join(chunks).decode()


@pytest.mark.slow
def test_colour_on_a_terminal_unless_told_otherwise():
    coloured = terminal_output({})
    assert '\x1b[1;33m"pullback.linear_call"\x1b[0m' in coloured
    plain = terminal_output({"NO_COLOR": "1"})
    assert "\x1b[33m" not in plain
    assert "\x1b[1;33m" not in plain
