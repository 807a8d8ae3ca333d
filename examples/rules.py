"""One pass of online learning that uses all three kinds of derivative rules, inside a scan.

Each step sees one example, predicts, and corrects the read-out weights by the delta rule. The loss
of the whole pass can be differentiated in turn: in the initial weights, the features, the learning
rate. What JAX would get wrong or throw away without rules is here: a stable loss (`custom_jvp`), an
identity that clips cotangents (`custom_vjp`), and a linear map with its own transpose
(`linear_call`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import linear_call

from pullback.testing import intended


@jax.custom_jvp
def logistic_loss(margin):
    """log(1 + exp(-margin)), whose derivative stays finite where exp overflows."""
    return jnp.log1p(jnp.exp(-margin))


@logistic_loss.defjvp
def logistic_loss_jvp(primals, tangents):
    (margin,), (dmargin,) = primals, tangents
    return logistic_loss(margin), -jax.nn.sigmoid(-margin) * dmargin


@jax.custom_vjp
def clip_cotangent(bound, x):
    """The identity in x; what flows back through it is clipped to [-bound, bound]."""
    del bound
    return x


def clip_cotangent_fwd(bound, x):
    return x, bound


def clip_cotangent_bwd(bound, ct):
    return jnp.zeros_like(bound), jnp.clip(ct, -bound, bound)


clip_cotangent.defvjp(clip_cotangent_fwd, intended(clip_cotangent_bwd))


def precondition(scale, step):
    """step / scale: linear in `step`, and its own transpose.

    `scale` depends on the features, so a gradient in the features needs the derivative of a linear
    call in its residuals: `jax.grad` stops there with an assertion, and `pullback.grad` does not.
    """

    def divide(scale, step):
        return step / scale

    return linear_call(divide, divide, scale, step)


def features(weights, x):
    """One hidden layer; `relu` and `softplus` carry rules of their own in JAX."""
    hidden = jax.nn.relu(x @ weights["first"])
    return jax.nn.softplus(hidden @ weights["second"])


def train_step(readout, weights, inputs, labels, rate):
    """The mean loss of one pass over the examples, each seen before the weights learn from it.

    Shapes: readout: f32[k]; weights: {first: f32[d, h], second: f32[h, k]}; inputs: f32[n, d];
    labels: f32[n], each -1 or 1; rate: f32[]. Result: f32[].
    """

    def correct(readout, example):
        x, label = example
        phi = clip_cotangent(1.0, features(weights, x))
        margin = label * (phi @ readout)
        slope = -label * jax.nn.sigmoid(-margin)
        step = precondition(1.0 + phi**2, slope * phi)
        return readout - rate * step, logistic_loss(margin)

    _, losses = jax.lax.scan(correct, readout, (inputs, labels))
    return jnp.mean(losses)


def make_example(seed: int = 0, n: int = 16, d: int = 8, h: int = 12, k: int = 4):
    """Arguments of `train_step`: examples labelled by a hidden linear rule."""
    draw = np.random.default_rng(seed).standard_normal
    weights = {
        "first": draw((d, h), np.float32) / d**0.5,
        "second": draw((h, k), np.float32) / h**0.5,
    }
    inputs = draw((n, d), np.float32)
    labels = np.sign(inputs @ draw(d, np.float32))
    return np.zeros(k, np.float32), weights, inputs, labels, np.float32(0.1)


example_args = make_example()
