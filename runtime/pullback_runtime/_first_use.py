"""Import public names of a package when they are first used, so that importing it is fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection
from typing import Any

from pullback_runtime._errors import EngineNotFoundError
from pullback_runtime._install import requirement
from pullback_runtime.engine._engines import is_installed


def importing(
    package: str,
    module: str,
    also: Collection[str] = (),
    check: Callable[[str], None] = lambda name: None,
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose public names a module has.

    Args:
      also: names that are not in the package's `__all__`.
      check: raises where the name cannot be imported here.
    """

    def attribute(name: str) -> Any:
        here = sys.modules[package]
        if name.startswith("_") or name not in (*here.__all__, *also):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        check(name)
        found = getattr(importlib.import_module(module), name)
        setattr(here, name, found)
        return found

    return attribute


def listing(package: str) -> Callable[[], list[str]]:
    """Return the `__dir__` of a package, with the names that are imported when first used."""
    return lambda: sorted({*vars(sys.modules[package]), *sys.modules[package].__all__})


def _check_jax(name: str) -> None:
    if not is_installed("jax"):
        raise EngineNotFoundError(
            f"pullback_runtime.{name} needs JAX, which is not installed",
            do=f"pip install {requirement('pullback-runtime', 'jax')}",
        )


with_jax = importing("pullback_runtime", "pullback_runtime._with_jax", check=_check_jax)
names = listing("pullback_runtime")
