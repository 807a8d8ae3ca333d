"""README.md and the page of commands keep their promises: Python runs, and commands succeed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pullback_cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def shell_commands() -> list[str]:
    """One command each; a line that ends in a backslash goes on."""
    pages = README, (ROOT / "docs" / "command_line.md").read_text()
    joined = "".join(block for page in pages for block in blocks("sh", page)).replace("\\\n", " ")
    return [line.partition("  #")[0] for line in joined.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """A shell in which `pullback` is this checkout's, run by this Python."""
    folder = tmp_path_factory.mktemp("bin")
    for name, command in (("pullback", "main"), ("pullback-opt", "opt")):
        script = folder / name
        main = f"from pullback_cli import {command}; {command}()"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{main}" "$@"\n')
        script.chmod(0o755)
    paths = {"PYTHONPATH": f"{ROOT / 'compiler'}:{ROOT / 'runtime'}"}
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"} | paths


def test_python_prints_what_is_behind_its_lines(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*  # (.*)$", code, re.M)
    example = (ROOT / "examples" / "norm.py").read_text()
    of_picture = example[example.index("@jax") : example.index("\n\n\ndef energy")]
    assert of_picture.replace("\n\n\n", "\n\n") in code


@pytest.mark.parametrize("command", [each for each in shell_commands() if "|" not in each])
def test_command_succeeds(command, monkeypatch):
    """In this process, which has JAX and knows the examples."""
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    done = CliRunner().invoke(main, arguments)
    assert (program, done.exit_code) == ("pullback", 0), done.output
    assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("command", [each for each in shell_commands() if "|" in each])
def test_pipe_succeeds(command, environment):
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"`?make ([\w-]+)", README)
    assert {"demo", "test"} <= set(targets)
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


def test_the_demo_is_one_screen(monkeypatch):
    """It has the kept rule, the derivative by it, and two numbers that agree."""
    monkeypatch.chdir(ROOT)
    commands = subprocess.run(
        ["make", "--dry-run", "demo"], capture_output=True, text=True, check=True
    ).stdout
    lines = re.findall(r"pullback (?:dump|derive|run) .*", commands)
    shown = "".join(CliRunner().invoke(main, line.split()[1:]).stdout for line in lines)
    assert len(shown.splitlines()) <= 52
    assert "func.func private @norm.jvp" in shown
    assert "func.func public @main(%arg0: tensor<3xf32>) -> tensor<3xf32>" in shown
    assert "difference  0" in shown
