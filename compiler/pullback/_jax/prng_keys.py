"""Convert between JAX's arrays and what a module has for them: PRNG keys are plain words there."""

from __future__ import annotations

from typing import Any

import jax
from jax._src import core as _core
from jax._src.lax import lax as _lax

from pullback._jax import tracing
from pullback_runtime.call._avals import is_key, physical

__all__ = ["logical", "physical", "physical_type"]


def physical_type(aval: Any) -> jax.ShapeDtypeStruct:
    """Return the type of `physical(x)` for an array x of this type."""
    if is_key(aval):
        words = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
        return jax.ShapeDtypeStruct(words.shape, words.dtype)
    sharding = tracing.sharding_of(aval)
    if sharding is not None:  # as JAX's own types have it, without devices
        sharding = _core.shaped_abstractify(aval).sharding
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)


def logical(value: Any, aval: Any) -> Any:
    """Invert `physical`: wrap words as PRNG keys, and restore weak types."""
    if is_key(aval):
        return jax.random.wrap_key_data(value, impl=aval.dtype._impl)
    return _weaken(value) if getattr(aval, "weak_type", False) else value


def _weaken(value: Any) -> Any:
    """Make the type of an array weak, as that of a Python number: other types take precedence."""
    return _lax._convert_element_type(value, value.dtype, weak_type=True)
