"""Compare numbers of programs that XLA compiled apart, whose bits IEEE does not fix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

FUNCTION = 8
"""An elementary function counts as so many ops: XLA's are polynomials, good to four units."""


def close(found: Any, expected: Any, *, ops: int, dtype: Any = None, scale: float = 0.0) -> None:
    """Check that trees are equal but for the errors of `ops` ops in each of two programs.

    An op rounds to within eps / 2 of its result, or not at all where it is fused; so two programs
    differ by ops * eps at most, relative to the elements. Where elements are differences, `scale`
    is the size of what they are differences of. The ops compute in `dtype`, if not in the type of
    the result; its subnormal numbers are known to eps of the smallest normal one. Integers, and
    what is not finite, are equal.
    """
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if not jnp.issubdtype(theirs.dtype, jnp.inexact):
            np.testing.assert_array_equal(ours, theirs)
            continue
        info = jnp.finfo(dtype or theirs.dtype)
        error, least = ops * float(info.eps), float(info.tiny)
        kind = np.complex128 if jnp.iscomplexobj(theirs) else np.float64
        ours, theirs = (np.asarray(each).astype(kind) for each in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=error, atol=error * (scale + least))
