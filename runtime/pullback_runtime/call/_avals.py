"""Types of arguments and results in JSON, and back; typed PRNG keys included."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError

FLOAT0 = jax.dtypes.float0
KEY_IMPLEMENTATIONS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}


def describe(aval: Any) -> list[Any]:
    """Return a type as JSON: `["float32", [8, 128]]`; a typed key is `["key<fry>", []]`.

    Raises: ArtifactError for keys that `restore` does not know.
    """
    name = _name(aval.dtype)
    if is_key(aval) and name[4:-1] not in KEY_IMPLEMENTATIONS:
        raise ArtifactError(
            f"random keys of type {name} cannot be saved: their implementation is none of JAX's",
            do=f"pass keys of one of {', '.join(KEY_IMPLEMENTATIONS.values())}, or the words of a "
            "key (jax.random.key_data), and make a key of them inside",
        )
    return [name, list(aval.shape)]


@functools.cache
def _name(dtype: Any) -> str:
    """Return the name of a dtype, memoized because NumPy builds the string on each access."""
    return str(dtype.name)


def restore(described: Any) -> jax.ShapeDtypeStruct:
    """Return the type that `describe` wrote; raise ArtifactError when it is damaged."""
    try:
        name, shape = described
        return jax.ShapeDtypeStruct(tuple(int(size) for size in shape), dtype_named(name))
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"the file's argument types are damaged: {described!r}", do=SAVE_AGAIN
        ) from error


def dtype_named(name: str) -> Any:
    """Return the dtype of this name, including typed keys and float0 (integers' tangents)."""
    if name == FLOAT0.name:
        return FLOAT0
    if name.startswith("key<"):
        implementation = KEY_IMPLEMENTATIONS[name[4:-1]]
        return jax.eval_shape(lambda: jax.random.key(0, impl=implementation)).dtype
    return jnp.dtype(name)


def is_key(aval: Any) -> bool:
    """Return True if values of this type are typed PRNG keys."""
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key)


def physical(value: Any) -> Any:
    """Return the key data of a typed PRNG key, as a module takes it; other values unchanged."""
    if hasattr(value, "dtype") and is_key(value):
        return jax.random.key_data(value)
    return value


def logical(value: Any, aval: Any) -> Any:
    """Wrap key data as a typed PRNG key if `aval` is one: the inverse of `physical`."""
    if is_key(aval):
        return jax.random.wrap_key_data(value, impl=KEY_IMPLEMENTATIONS[aval.dtype.name[4:-1]])
    return value
