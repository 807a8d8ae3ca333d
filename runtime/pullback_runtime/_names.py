"""Import what needs JAX when it is asked for, so that `import pullback_runtime` does not."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from pullback_runtime._engines import is_installed
from pullback_runtime._errors import EngineNotFoundError

PACKAGE = "pullback_runtime"


def with_jax(name: str) -> Any:
    """Return a public name of the package that needs JAX.

    Raises: AttributeError for any other name; EngineNotFoundError where JAX is not installed.
    """
    if name.startswith("_") or name not in sys.modules[PACKAGE].__all__:
        raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
    if not is_installed("jax"):
        raise EngineNotFoundError(
            f"{PACKAGE}.{name} needs JAX, which is not installed",
            do='pip install "pullback-runtime[jax]"',
        )
    found = getattr(importlib.import_module(f"{PACKAGE}._with_jax"), name)
    setattr(sys.modules[PACKAGE], name, found)
    return found
