"""The verifier of the derivative ops; docs/dialect.md numbers the constraints alike."""

from __future__ import annotations

from pullback._jax import ir


def verify(module: ir.Module) -> None:
    """Checks every derivative op."""
