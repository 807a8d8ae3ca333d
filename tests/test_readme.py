"""README.md keeps its promises: its Python runs, its commands succeed, its links lead somewhere."""

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

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def shell_commands() -> list[str]:
    """One command each; a line that ends in a backslash goes on."""
    joined = "".join(blocks("sh")).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip()]


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


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    printed = "print(" in code
    assert ("pullback.custom_jvp_call" in capsys.readouterr().out) == printed


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


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_to_files(link):
    assert (ROOT / link).is_file()


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"`?make (\w+)", README)
    assert {"demo", "test"} <= set(targets)
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


def test_there_is_something_to_run():
    assert blocks("python")
    assert len(shell_commands()) >= 5
