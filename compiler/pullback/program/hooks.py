"""What programs call of the layers that stand on them, imported when it is first called."""

from __future__ import annotations

import importlib
from typing import Any


def files() -> Any:
    """Return the module with `save`, `to_exported` and `of_module`."""
    return importlib.import_module("pullback.files")


def as_jax() -> Any:
    """Return the module with `as_jax`."""
    return importlib.import_module("pullback.as_jax.function")


def nans() -> Any:
    """Return the module with `search`, for the op that makes a NaN."""
    return importlib.import_module("pullback.nans.search")


def sparse() -> Any:
    """Return the module with `jacobian_of` and `hessian_of`."""
    return importlib.import_module("pullback.api.sparse")
