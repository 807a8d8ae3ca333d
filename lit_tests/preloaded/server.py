"""Runs `pullback-opt` in processes that have imported it: to import JAX takes longer than its work.

lit.cfg.py starts one server, which forks for each command that `client.py` sends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback

import pullback.tools.opt
import pullback.tools.report  # noqa: F401
from pullback_cli import opt

READ_AT_IMPORT = ("JAX", "XLA", "PYTHON", "PULLBACK")
"""How variables begin that are read before a command is: those of commands must be ours."""


def serve(listener: socket.socket) -> None:
    """Forks for each command, until lit, which holds the other end of our stdin, has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are forked
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                os._exit(answer(connection))


def answer(connection: socket.socket) -> int:
    """Runs one command with the streams that come with it, and sends its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with connection.makefile("rb") as rest:
        arguments, folder, environment = json.loads(content + rest.read())
    status = 1
    try:
        check(environment)
        os.chdir(folder)
        opt(arguments, prog_name="pullback-opt")
    except SystemExit as end:  # how click ends
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError):
            stream.flush()
    connection.send(bytes([status]))
    return status


def check(environment: dict[str, str]) -> None:
    """Raises ValueError for a variable that a command sets, and that would have no effect."""
    differ = dict(environment.items() ^ os.environ.items())
    if names := sorted(name for name in differ if name.startswith(READ_AT_IMPORT)):
        raise ValueError(f"write `%python -m pullback_cli opt` where {names} are to have effect")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        try:
            serve(listener)
        finally:
            shutil.rmtree(os.path.dirname(listener.getsockname()))
