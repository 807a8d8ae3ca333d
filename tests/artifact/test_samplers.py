"""Samples of gamma distributions in what `jax.export` writes have JAX's derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback import artifact
from tests.artifact.models import of_export

random = jax.random
X = np.array([0.7, 1.5, 4.0], np.float32)
SAMPLERS: dict[str, Callable[[Any, Any], Any]] = {
    "gamma": random.gamma,
    "loggamma": random.loggamma,
    "beta": lambda key, a: random.beta(key, a, a + 1),
    "dirichlet": random.dirichlet,
    "per item": lambda key, a: jax.vmap(random.gamma)(random.split(key, 3), a),
}


def weighed(sampler: Any, implementation: str) -> Callable[[Any], Any]:
    def f(a):
        sample = sampler(random.key(3, impl=implementation), a)
        return jnp.sum(jnp.sin(sample) * jnp.arange(1.0, 1.0 + sample.size).reshape(sample.shape))

    return f


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "implementation"),
    [*((name, "threefry2x32") for name in SAMPLERS), ("gamma", "rbg"), ("per item", "unsafe_rbg")],
)
def test_derivatives(name: str, implementation: str) -> None:
    f = weighed(SAMPLERS[name], implementation)
    program = of_export(f, X)
    np.testing.assert_allclose(program(X), f(X), rtol=1e-5)
    np.testing.assert_allclose(program.grad()(X), jax.grad(f)(X), rtol=2e-4, atol=2e-5)


def test_files_of_files() -> None:
    """In forward mode, and of second order."""
    f = weighed(random.gamma, "threefry2x32")
    program = pb.load(artifact.serialize(of_export(f, X)))
    t = np.cos(X)
    found, expected = pb.jvp(program, (X,), (t,)), jax.jvp(f, (X,), (t,))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    ours, theirs = (jax.jvp(jax.grad(g), (X,), (t,))[1] for g in (program, f))
    np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


@pytest.mark.usefixtures("float64")
def test_double_precision() -> None:
    f = weighed(random.gamma, "threefry2x32")
    x = X.astype("float64")
    np.testing.assert_allclose(of_export(f, x).grad()(x), jax.grad(f)(x), rtol=1e-10)


def test_what_is_lowered_but_not_exported() -> None:
    f = weighed(random.gamma, "threefry2x32")
    program = pb.load(jax.jit(f).lower(X).as_text().encode())
    np.testing.assert_allclose(program.grad()(X), jax.grad(f)(X), rtol=2e-4)


def test_another_function_of_that_name_stays_what_it_is() -> None:
    @jax.jit
    def _gamma(key, a):
        return a * jnp.sin(a) * key[0].astype("float32")

    def f(a):
        return jnp.sum(_gamma(jnp.array([2, 3], "uint32"), a))

    program = of_export(f, X)
    assert "@_gamma(" in program.asm()
    np.testing.assert_allclose(program.grad()(X), jax.grad(f)(X), rtol=1e-6)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_exports_for_other_platforms(platform: str) -> None:
    f = weighed(random.gamma, "threefry2x32")
    program = of_export(f, X, platforms=[platform])
    assert '"pullback.custom_jvp_call"' in program.asm()
    assert program.grad().platforms == (platform,)
