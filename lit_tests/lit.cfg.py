"""lit configuration: `python -m lit lit_tests` runs with the tools of the same interpreter."""

# ruff: noqa: F821 -- lit runs this file with `config` in its globals.

import os
import shlex
import sys
from pathlib import Path

import lit.formats

ROOT = Path(__file__).resolve().parent.parent
PYTHON = shlex.quote(sys.executable)


def tool(name, module):
    """A substitution for a tool's name where it is a command, not part of a path or a flag."""
    return rf"(?<![\w./%-]){name}(?![\w./-])", f"{PYTHON} -m {module}"


config.name = "pullback"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir", ".py"]
config.excludes = ["lit.cfg.py", "Inputs"]
config.test_source_root = str(ROOT / "lit_tests")
config.test_exec_root = str(ROOT / "build" / "lit_tests")
config.substitutions += [
    tool("pullback-opt", "pullback.tools.opt"),
    tool("pullback", "pullback.tools.cli"),
    ("%python", PYTHON),
    ("%root", shlex.quote(str(ROOT))),
]
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
