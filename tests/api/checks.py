"""What the tests of the API share: comparison with JAX, leaf by leaf."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TOLERANCE = {"bfloat16": 3e-2, "float16": 5e-3, "float32": 2e-5, "complex64": 2e-5}


def assert_agrees(found: Any, expected: Any, tolerance: float | None = None) -> None:
    """The same tree, and the same shapes, dtypes and numbers in its leaves."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        ours, theirs = (x if _is_float0(x) else np.asarray(jnp.asarray(x)) for x in (ours, theirs))
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if _is_float0(theirs):
            continue
        rtol = tolerance or TOLERANCE.get(theirs.dtype.name, 1e-9)
        kind = np.complex128 if np.iscomplexobj(theirs) else np.float64
        np.testing.assert_allclose(ours.astype(kind), theirs.astype(kind), rtol=rtol, atol=rtol)


def _is_float0(value: Any) -> bool:
    return getattr(value, "dtype", None) == jax.dtypes.float0
