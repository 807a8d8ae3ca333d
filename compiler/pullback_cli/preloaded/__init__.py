"""Run `pullback-opt` and `pullback` without importing JAX for each command.

A server imports it once and forks for each command. In the `lit.cfg.py` of lit tests:

    from pullback_cli import preloaded

    config.substitutions += preloaded.tools(config.environment)

Elsewhere, a command that runs in the environment of `preloaded.serving()` finds them on its path.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

MODULE = ("-P", "-m", "pullback_cli")
TOOLS = {"pullback-opt": (*MODULE, "opt"), "pullback": MODULE}
"""Arguments of Python, by the name of a command."""
LONGEST_PATH = 100
"""Bytes of the path of a socket: systems allow 104 or 108."""
_SERVER = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); \
from pullback_cli.preloaded import server; server.main(int(sys.argv[2]))"
"""Import what this process would, whatever the environment of tests says."""


def tools(environment: Mapping[str, str], fresh: bool = False) -> list[tuple[str, str]]:
    """Return lit's substitutions for the commands; start the server, which ends with this process.

    Args:
      environment: in which tests run, `config.environment`. A command that sets another value of a
        variable which is read when JAX is imported runs in a Python of its own.
      fresh: start a Python for each command.
    """
    python = [sys.executable]
    if not fresh and (place := _place()):
        python = _client(place)
        _start(place, environment)  # holds the other end of its stdin until this process is over
    # Where it is a command, not part of a path or a flag; `pullback` also is part of the other.
    return [
        (rf"(?<![\w./%-]){name}(?![\w./-])", shlex.join([*python, *arguments]))
        for name, arguments in TOOLS.items()
    ]


@contextlib.contextmanager
def serving() -> Iterator[Mapping[str, str]]:
    """Give an environment in which a server runs the commands of this Python, for the body.

    It is that of this process, with a folder of these commands first in its path. The server
    imports JAX at the first of them.
    """
    place = _place()
    if place is None:
        yield os.environ
        return
    for name, arguments in TOOLS.items():
        script = place.with_name(name)
        script.write_text(f'#!/bin/sh\nexec {shlex.join([*_client(place), *arguments])} "$@"\n')
        script.chmod(0o700)
    path = os.pathsep.join([str(place.parent), os.environ.get("PATH", os.defpath)])
    server, until_closed = _start(place, os.environ)
    try:
        yield {**os.environ, "PATH": path}
    finally:
        os.close(until_closed)
        server.wait()


def _place() -> Path | None:
    """Make a folder; return the path of a socket in it, None where no socket can have a name."""
    place = Path(tempfile.mkdtemp(prefix="pullback-commands-")) / "socket"
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(place)) > LONGEST_PATH:
        place.parent.rmdir()
        return None
    return place


def _client(place: Path) -> list[str]:
    """Return a command that stands for Python."""
    return [sys.executable, "-S", "-E", str(Path(__file__).parent / "client.py"), str(place)]


def _start(place: Path, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server; return it, and the file descriptor that ends it when it is closed."""
    stdin, until_closed = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(128)
        server = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVER, json.dumps(sys.path), str(listener.fileno())],
            stdin=stdin,
            pass_fds=[listener.fileno()],
            # A process that forks may have one thread only; NumPy's libraries start more.
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # what ends a command at the terminal ends its client
        )
    os.close(stdin)
    return server, until_closed
