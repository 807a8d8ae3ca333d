"""Run `pullback-opt` and `pullback` in lit tests without importing JAX for each command.

A server imports it once and forks for each command. In `lit.cfg.py`:

    from pullback_cli import preloaded

    config.substitutions += preloaded.tools(config.environment)
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

TOOLS = {"pullback-opt": "opt", "pullback": "main"}
"""Commands of `pullback_cli`, by the name that a test calls."""
LONGEST_PATH = 100
"""Bytes of the path of a socket: systems allow 104 or 108."""
_SERVER = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); \
from pullback_cli.preloaded import server; server.main(int(sys.argv[2]))"
"""Import what this process would, whatever the environment of tests says."""


def tools(environment: Mapping[str, str], fresh: bool = False) -> list[tuple[str, str]]:
    """Return lit's substitutions for the commands; start the server, which ends with this process.

    Args:
      environment: in which tests run, `config.environment`; what is in it when JAX is imported
        holds for all commands. A RUN line that sets such a variable is an error.
      fresh: start a Python for each command instead.
    """
    commands = _fresh() if fresh else _start(dict(environment)) or _fresh()
    # Where it is a command, not part of a path or a flag; `pullback` also is part of the other.
    return [(rf"(?<![\w./%-]){name}(?![\w./-])", command) for name, command in commands.items()]


def _fresh() -> dict[str, str]:
    command = shlex.join([sys.executable, "-m", "pullback_cli"])
    return {"pullback-opt": f"{command} opt", "pullback": command}


def _start(environment: dict[str, str]) -> dict[str, str] | None:
    """Start a server; return how to call the commands, None where no socket can have a name."""
    place = str(Path(tempfile.mkdtemp(prefix="pullback-lit-")) / "socket")
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(place)) > LONGEST_PATH:
        os.rmdir(os.path.dirname(place))
        return None
    until_closed, _ = os.pipe()  # this process holds the other end until it is over
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(128)
        subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVER, json.dumps(sys.path), str(listener.fileno())],
            stdin=until_closed,
            pass_fds=[listener.fileno()],
            # A process that forks may have one thread only; NumPy's libraries start more.
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
        )
    client = [sys.executable, "-S", "-E", str(Path(__file__).parent / "client.py"), place]
    return {name: shlex.join([*client, name]) for name in TOOLS}
