"""Several ops by one call: JAX's own extension of the bindings clones the body of a function."""

from __future__ import annotations

from jax._src.lib import jax_mlir_ext as _ext

inlined = _ext.inlined_func_call
"""`(function, operands, location) -> results`: the ops of a function, at the insertion point that
is current in MLIR's sense, where a location must be current too."""
