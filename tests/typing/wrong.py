"""Mistakes of a user, of which mypy tells each: its line ends in the kind of error."""

import jax
import jax.numpy as jnp

import pullback as pb


def loss(weights: jax.Array, inputs: jax.Array) -> jax.Array:
    return jnp.sum(jnp.tanh(inputs @ weights))


pb.trace(loss)(jnp.ones(3), jnp.ones((2, 3))).gradient()  # union-attr
pb.load("loss.mlirbc").derive()  # union-attr
pb.grad(loss)(jnp.ones(3))  # call-arg
pb.value_and_grad(loss)(jnp.ones(3), weight=jnp.ones(3))  # call-arg
pb.grad(loss, wrt=0)  # call-arg
