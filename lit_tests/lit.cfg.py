"""lit configuration: `lit lit_tests` runs with the tools of the same interpreter.

With `--param fresh=1`, each command runs in an interpreter of its own (`pullback_cli.preloaded`).
"""

# ruff: noqa: F821 -- lit runs this file with `config` and `lit_config` in its globals.

import os
import shlex
import sys
from pathlib import Path

import lit.formats

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "compiler"))

from pullback_cli import preloaded  # noqa: E402

config.name = "pullback"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir", ".py"]
config.excludes = ["lit.cfg.py", "Inputs"]
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
config.substitutions += preloaded.tools(config.environment, fresh="fresh" in lit_config.params)
config.substitutions += [
    ("%python", shlex.quote(sys.executable)),
    ("%root", shlex.quote(str(ROOT))),
]
