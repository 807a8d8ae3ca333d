"""The bound for numbers of programs that XLA compiled apart."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from tests.rounding import close


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "complex64"])
def test_an_error_above_the_bound_is_noticed(dtype: Any) -> None:
    x, error = jnp.array([1.0, -3.0], dtype), float(jnp.finfo(dtype).eps)
    close(x * (1 + 4 * error), x, ops=4)
    for found in (x * (1 + 8 * error), -x, x.astype(bool), x[:1], x.at[0].set(jnp.nan)):
        with pytest.raises(AssertionError):
            close(found, x, ops=4)
    with pytest.raises(AssertionError):
        close(jnp.array([3, 4]), jnp.array([3, 5]), ops=1000)
