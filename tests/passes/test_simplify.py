"""The pass `simplify`: derivatives are those of the module as it was."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.passes.as_run import as_run
from tests.rounding import FUNCTION, close

POINTS = [-np.inf, -1e4, -100.0, -20.0, -1.0, -0.0, 0.0, 1.5, 3.0, 100.0, 1e4, np.inf, np.nan]


@pytest.mark.parametrize(
    ("f", "dtype"),
    [
        (jax.nn.softplus, np.float64),
        (jax.nn.softplus, np.float16),
        (jax.nn.log_sigmoid, np.float32),
        (lambda x: jnp.logaddexp(1.5, x), np.float32),
    ],
    ids=["softplus, f64", "softplus, f16", "log_sigmoid", "either side"],
)
def test_softplus_computes_one_exponential(f, dtype):
    with jax.enable_x64(dtype == np.float64):
        x = jnp.array(POINTS, dtype)
        program = pb.trace(f)(x).vjp()
        counts = [
            str(as_run(program.module, simplify)).count("stablehlo.exponential")
            for simplify in (False, True)
        ]
        assert counts == [2, 1]
        value, slope = program.compile()(x, jnp.ones_like(x))
        given = program.compile(simplify=False)(x, jnp.ones_like(x))
    close(value, given[0], ops=2 * FUNCTION + 2)
    # JAX's rule rounds the difference of x and softplus(x), by which the error grows.
    np.testing.assert_allclose(slope[0], given[1][0], rtol=40 * np.finfo(dtype).eps, atol=1e-7)


@pytest.mark.parametrize(
    ("shape", "window", "strides"),
    [
        ((2, 8, 6, 3), (1, 2, 2, 1), (1, 2, 2, 1)),
        ((7, 9), (3, 2), (3, 4)),
        ((9, 8), (3, 3), (2, 1)),
    ],
    ids=["apart", "rest", "overlapping"],
)
def test_max_pooling_picks_as_select_and_scatter_does(shape, window, strides):
    def pool(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, "VALID")

    random = np.random.default_rng(0)
    x = random.integers(-2, 3, shape).astype(np.float32)  # with many ties
    x[random.random(shape) < 0.2] = np.nan
    ct = random.integers(-9, 10, jax.eval_shape(pool, x).shape).astype(np.float32)
    derived = pb.trace(pool)(x).vjp()
    assert "select_and_scatter" in str(as_run(derived.module, simplify=False))
    assert "select_and_scatter" not in str(as_run(derived.module))
    (found,) = derived.compile()(x, ct)[1:]
    (given,) = derived.compile(simplify=False)(x, ct)[1:]
    np.testing.assert_array_equal(*map(jax.tree.leaves, (found, given)))


def test_rules_are_still_there_for_the_next_derivative():
    program = pb.trace(lambda x: jnp.sum(jax.nn.softplus(x) ** 2))(jnp.ones(3))
    given = jax.jacfwd(jax.grad(lambda x: jnp.sum(jax.nn.softplus(x) ** 2)))(jnp.ones(3))
    np.testing.assert_allclose(jax.jacfwd(program.grad())(jnp.ones(3)), given, rtol=1e-5)
