"""A user's program, which mypy accepts in strict mode beside the installed wheels."""

from typing import Any

import jax
import jax.numpy as jnp

import pullback as pb
import pullback_runtime
from pullback.dialect.build import cos, mul
from pullback.rules.registry import elementwise

elementwise("acme.sine", lambda op, t: mul(t, cos(op.x)))


def loss(weights: jax.Array, inputs: jax.Array) -> jax.Array:
    return jnp.sum(jnp.tanh(inputs @ weights))


def of_program(program: pb.Program) -> Any:
    return program.grad()(jnp.ones(3), jnp.ones((2, 3)))


gradient = pb.grad(loss)
gradient(jnp.ones(3), inputs=jnp.ones((2, 3)))
value, gradients = pb.value_and_grad(loss, argnums=(0, 1))(jnp.ones(3), jnp.ones((2, 3)))

program = pb.trace(loss)(jnp.ones(3), jnp.ones((2, 3)))
program.save("loss.mlirbc")
of_program(pb.load("loss.mlirbc").vmap(axis_size=4))
print(pb.testing.check_rules(program, jnp.ones(3), jnp.ones((2, 3)), order=1))
print(pullback_runtime.load("loss.mlirbc", engine="pjrt").describe())
