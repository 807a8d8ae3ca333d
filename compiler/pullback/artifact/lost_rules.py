"""JAX's rules that are lost in modules which JAX lowered by itself, put back."""

from __future__ import annotations

from pullback._jax import ir
from pullback.artifact import expansions, functions, linear_algebra


def put_back(module: ir.Module, platform: str) -> None:
    """Puts calls with rules in the place of what JAX has expanded, in place."""
    functions.put_back(module, platform)
    expansions.put_back(module)
    linear_algebra.put_back(module)
