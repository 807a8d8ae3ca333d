"""Run commands in processes that have imported JAX: to import it takes longer than their work.

`preloaded` starts a server, which forks for each command that `client.py` sends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Mapping

import pullback_cli
from pullback_cli.preloaded import MODULE

READ_AT_IMPORT = ("JAX", "XLA", "PYTHON", "PULLBACK", "LD_")
"""Begin the variables that are read before a command is: those of commands must be ours."""
PRELOADED = ("check", "compile", "derive", "dump", "info", "opt", "report", "run")
"""Modules of `pullback.tools`."""


def serve(listener: socket.socket) -> None:
    """Fork for each command, until what started this, which holds our stdin, closes it or ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are forked
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        preload()
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                answer(connection)
                os._exit(0)


def preload() -> None:
    """Import what commands would, all rules of ours with it."""
    for name in PRELOADED:
        importlib.import_module(f"pullback.tools.{name}")
    for family in importlib.import_module("pullback.autodiff.registry").FAMILIES:
        importlib.import_module(f"pullback.rules.{family}")


def answer(connection: socket.socket) -> None:
    """Run one command in a process of its own, and send its exit code; end it with its client.

    Nothing is sent where a variable that it sets would have no effect here.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    with connection.makefile("rb") as rest:
        python, folder, environment = json.loads(content + rest.read())
    differ = dict(environment.items() ^ os.environ.items())
    if any(name.startswith(READ_AT_IMPORT) for name in differ):
        return
    ended, runs = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(ended)
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os._exit(run(python[len(MODULE) :], folder, environment))
    os.close(runs)
    closed = select.poll()
    for each in (connection.fileno(), ended):
        closed.register(each, 0)
    if connection.fileno() in dict(closed.poll()):
        os.kill(worker, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    with contextlib.suppress(OSError):
        connection.send(str(code).encode())


def run(arguments: list[str], folder: str, environment: Mapping[str, str]) -> int:
    """Run a command; return its exit code."""
    code = 1
    try:
        os.environ.update(environment)
        os.chdir(folder)
        pullback_cli.main(arguments, prog_name="pullback")
    except SystemExit as end:  # how click ends
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    for written in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError):
            written.flush()
    return code


def main(number: int) -> None:
    """Serve the listening socket that is open as this file descriptor."""
    with socket.socket(fileno=number) as listener:
        try:
            serve(listener)
        finally:
            shutil.rmtree(os.path.dirname(listener.getsockname()))
