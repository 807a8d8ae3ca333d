"""The server that runs `pullback` and `pullback-opt` for lit tests and for `pullback reduce`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pullback_cli import preloaded

TARGET = """
import os, signal, time

def twice(x):
    return 2 * x

def crash(x):
    os.kill(os.getpid(), signal.SIGSEGV)

def hang(x):
    open("hangs", "w").write(str(os.getpid()))
    time.sleep(600)

example_args = (1.0,)
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Runs a command of the shell beside `target.py`, with the commands of a server."""
    folder = tmp_path_factory.mktemp("preloaded")
    (folder / "target.py").write_text(TARGET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for a Python of its own
        patch.delenv("JAX_ENABLE_X64", raising=False)
        with preloaded.serving() as environment:

            def run(command: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    command, shell=True, cwd=folder, env=environment, capture_output=True, text=True
                )

            run.folder = folder
            yield run
    assert not Path(environment["PATH"].split(os.pathsep)[0]).exists()


def test_commands_have_their_streams_and_exit_codes(shell):
    result = shell("pullback dump target.py:twice | pullback-opt --cse - | grep -c multiply")
    assert (result.stdout, result.stderr, result.returncode) == ("1\n", "", 0)
    result = shell("pullback-opt no-such-file")
    assert result.returncode == 1
    assert "no-such-file" in result.stderr


def test_a_crash_is_that_of_the_command(shell):
    result = shell("pullback dump target.py:crash; echo $?")
    assert result.stdout == "139\n"


def test_a_command_ends_with_what_called_it(shell):
    shell("pullback dump target.py:hang & until test -s hangs; do sleep 0.1; done; kill $!")
    process = int((shell.folder / "hangs").read_text())
    until = time.monotonic() + 30
    while runs(process) and time.monotonic() < until:
        time.sleep(0.1)
    assert not runs(process)


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_variable_that_is_read_at_import_has_its_effect(shell):
    assert "tensor<f32>" in shell("pullback dump target.py:twice").stdout
    result = shell("JAX_ENABLE_X64=1 pullback dump target.py:twice")
    assert "tensor<f64>" in result.stdout
    assert result.returncode == 0
