"""Which results lie along the same axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.frontend.rules.result_layouts import same_layouts

X = np.ones((3, 3), np.float32)


def product(x: Any) -> Any:
    return jax.lax.dot_general(x, x, (((1,), (0,)), ((), ())))


def transposed(x: Any) -> Any:
    """Return the transpose of the product: an operation with the same operands."""
    return jax.lax.dot_general(x, x, (((0,), (1,)), ((), ())))


def of_jaxprs(function: Callable[..., Any], rule: Callable[..., Any]) -> list[bool]:
    return same_layouts(jax.make_jaxpr(function)(X), jax.make_jaxpr(rule)(X), 0)


@pytest.mark.parametrize(
    ("function", "rule", "same"),
    [
        (product, product, True),
        (product, lambda x: jnp.sin(product(x)) * 2, True),
        (product, jax.jit(product), True),
        (product, transposed, False),
        (lambda x: x.T, lambda x: x, False),
        (lambda x: jnp.cumsum(x, 0), lambda x: jnp.cumsum(x, 1), False),
        (lambda x: jnp.sum(x, 0), lambda x: jnp.max(x, 0), False),
    ],
)
def test_results_of_the_same_operations_lie_along_the_same_axes(
    function: Callable[..., Any], rule: Callable[..., Any], same: bool
) -> None:
    np.testing.assert_array_equal(transposed(np.triu(X)), product(np.triu(X)).T)
    assert of_jaxprs(function, rule) == [same]
