"""lit configuration: `python -m lit lit_tests` runs with the tools of the same interpreter.

With `--param fresh=1`, each `pullback-opt` runs in an interpreter of its own (see `preloaded/`).
"""

# ruff: noqa: F821 -- lit runs this file with `config` and `lit_config` in its globals.

import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import lit.formats

ROOT = Path(__file__).resolve().parent.parent
PRELOADED = ROOT / "lit_tests" / "preloaded"
PYTHON = shlex.quote(sys.executable)
FRESH = f"{PYTHON} -m pullback_cli opt"
LONGEST_PATH = 100  # of a socket; systems allow 104 or 108 bytes


def tool(name, command):
    """A substitution for a tool's name where it is a command, not part of a path or a flag."""
    return rf"(?<![\w./%-]){name}(?![\w./-])", command


def preloaded():
    """Starts a server for `pullback-opt`, which ends with this process; how to call it."""
    place = str(Path(tempfile.mkdtemp(prefix="pullback-lit-")) / "socket")
    if len(os.fsencode(place)) > LONGEST_PATH:
        os.rmdir(os.path.dirname(place))
        return FRESH
    until_closed, _ = os.pipe()  # this process holds the other end until it is over
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(128)
        subprocess.Popen(
            [sys.executable, str(PRELOADED / "server.py"), str(listener.fileno())],
            stdin=until_closed,
            pass_fds=[listener.fileno()],
            env=config.environment,
        )
    return shlex.join([sys.executable, "-S", "-E", str(PRELOADED / "client.py"), place])


config.name = "pullback"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir", ".py"]
config.excludes = ["lit.cfg.py", "Inputs", PRELOADED.name]
config.test_source_root = str(ROOT / "lit_tests")
config.test_exec_root = str(ROOT / "build" / "lit_tests")
config.environment["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
)
config.environment["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT / "compiler"), str(ROOT / "runtime"), os.environ.get("PYTHONPATH", "")]
)
config.environment["PYTHONWARNINGS"] = "error"
config.environment["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS", "cpu")
config.environment["NO_COLOR"] = "1"
if "JAX_COMPILATION_CACHE_DIR" in os.environ:
    config.environment["JAX_COMPILATION_CACHE_DIR"] = os.environ["JAX_COMPILATION_CACHE_DIR"]
# A process that forks may have one thread only; NumPy's libraries start more.
config.environment["OPENBLAS_NUM_THREADS"] = "1"
config.substitutions += [
    tool("pullback-opt", FRESH if "fresh" in lit_config.params else preloaded()),
    tool("pullback", f"{PYTHON} -m pullback_cli"),
    ("%python", PYTHON),
    ("%root", shlex.quote(str(ROOT))),
]
