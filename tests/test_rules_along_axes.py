"""Rules with collectives along an axis that a `vmap` in the function maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback import artifact

AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda f, x: f(x),
    "jit": lambda f, x: jax.jit(f)(x),
    "scan": lambda f, x: jax.lax.scan(lambda c, s: (f(c * s), None), x, jnp.array([0.5, 2.0]))[0],
    "cond": lambda f, x: jax.lax.cond(x.sum() < 9, f, lambda x: x, x),
    "checkpoint": lambda f, x: jax.checkpoint(f)(x),
}


def of_unit_length(x):
    return x / jnp.sqrt(jax.lax.psum(x**2, "items"))


def centred(x):
    return x**2 - jax.lax.pmean(x**2, "items")


def with_rules() -> tuple[Any, Any]:
    first, second = jax.custom_jvp(of_unit_length), jax.custom_vjp(centred)

    @first.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        y, length = first(x), jnp.sqrt(jax.lax.psum(x**2, "items"))
        return y, (t - y * jax.lax.psum(y * t, "items")) / length

    second.defvjp(
        lambda x: (second(x), x - 0.0 * jax.lax.pmean(x, "items")),
        lambda x, ct: (2 * x * (ct - jax.lax.pmean(ct, "items")),),
    )
    return first, second


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("which", [0, 1])
def test_rules_that_name_the_axis_of_a_vmap_inside(which: int, around: str) -> None:
    """JAX traces such a rule while the vmap goes on; here, that is over."""
    x, t = jnp.array([0.3, -0.2, 0.7]), jnp.array([1.0, 0.5, -0.5])

    def over_items(f):
        return lambda x: jnp.sum(
            jax.vmap(lambda v: AROUND[around](f, v), axis_name="items")(x) ** 3
        )

    f, plain = over_items(with_rules()[which]), over_items((of_unit_length, centred)[which])
    program = pb.trace(f)(x)
    assert program.rules
    for derived in (program, pb.load(artifact.serialize(program)), jax.jit(f)):
        np.testing.assert_allclose(pb.grad(derived)(x), jax.grad(plain)(x), rtol=1e-12)
        found, expected = pb.jvp(derived, (x,), (t,)), jax.jvp(plain, (x,), (t,))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pb.hessian(f)(x), jax.hessian(plain)(x), rtol=1e-11, atol=1e-13)
