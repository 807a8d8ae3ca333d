"""Inline a function by one native call, from JAX's own extension of the MLIR bindings."""

from __future__ import annotations

from jax._src.lib import jax_mlir_ext as _ext

inlined = _ext.inlined_func_call
"""`(function, operands, location) -> results`: clone the body of a function to MLIR's current
insertion point. A location must be current, too."""
