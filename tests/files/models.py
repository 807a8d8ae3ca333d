"""Programs that the tests of saved files share."""

from __future__ import annotations

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

import pullback as pb


@jax.custom_vjp
def doubled_sine(x):
    """A sine whose gradient is twice the true one, so that a lost rule shows."""
    return jnp.sin(x)


doubled_sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * jnp.cos(x) * ct,))


@jax.custom_jvp
def clipped(x):
    return jnp.where(x > 0, x, 0.0)


clipped.defjvp(lambda x, dx: (clipped(*x), dx[0] * 3))


def loss(params, x, *, scale):
    hidden = doubled_sine(x * params["w"]) + clipped(params["b"])
    return {"loss": scale * jnp.sum(hidden * jax.lax.erf(x)), "count": jnp.int32(x.size)}


def arguments():
    params = {"w": jnp.linspace(0.5, 1.5, 4), "b": jnp.linspace(-1.0, 1.0, 4)}
    return (params, jnp.linspace(-1.0, 2.0, 4)), {"scale": jnp.float32(0.5)}


def program():
    args, kwargs = arguments()
    return pb.trace(loss)(*args, **kwargs)


def weights(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(count).astype(np.float32)


def of_export(function, *args, platforms=None):
    """The program that is read from what `jax.export` writes of a function."""
    return pb.load(jax.export.export(jax.jit(function), platforms=platforms)(*args).serialize())
