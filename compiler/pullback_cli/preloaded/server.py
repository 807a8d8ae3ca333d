"""Run commands in processes that have imported JAX: to import it takes longer than their work.

`preloaded.tools` starts one server, which forks for each command that `client.py` sends.
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

import pullback_cli
from pullback_cli.preloaded import TOOLS

READ_AT_IMPORT = ("JAX", "XLA", "PYTHON", "PULLBACK")
"""Begin the variables that are read before a command is: those of commands must be ours."""
PRELOADED = ("check", "derive", "dump", "info", "opt", "report")
"""Modules of `pullback.tools`."""


def serve(listener: socket.socket) -> None:
    """Fork for each command, until lit, which holds the other end of our stdin, has ended."""
    for name in PRELOADED:
        importlib.import_module(f"pullback.tools.{name}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are forked
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                os._exit(answer(connection))


def answer(connection: socket.socket) -> int:
    """Run one command with the streams that come with it, and send its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with connection.makefile("rb") as rest:
        (tool, *arguments), folder, environment = json.loads(content + rest.read())
    status = 1
    try:
        check(tool, environment)
        os.environ.update(environment)
        os.chdir(folder)
        getattr(pullback_cli, TOOLS[tool])(arguments, prog_name=tool)
    except SystemExit as end:  # how click ends
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    for written in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError):
            written.flush()
    connection.send(bytes([status]))
    return status


def check(tool: str, environment: dict[str, str]) -> None:
    """Raise ValueError for a variable that a command sets, and that would have no effect."""
    differ = dict(environment.items() ^ os.environ.items())
    if names := sorted(name for name in differ if name.startswith(READ_AT_IMPORT)):
        instead = "%python -m pullback_cli" + " opt" * (tool == "pullback-opt")
        raise ValueError(f"write `{instead}` where {names} are to have effect")


def main(number: int) -> None:
    """Serve the listening socket that is open as this file descriptor."""
    with socket.socket(fileno=number) as listener:
        try:
            serve(listener)
        finally:
            shutil.rmtree(os.path.dirname(listener.getsockname()))
