"""Three derivative rules that are lost by export, and what a model's gradient is without them.

    python examples/lost_rules.py

Each function is differentiated three times: by JAX, where its rule is; from the StableHLO that
`jax.jit(f).lower` gives, where it is not; and from a file of pullback.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

import pullback as pb


@jax.custom_jvp
def rounded(x):
    """x rounded to an integer, as a quantized layer does; its slope is that of x."""
    return jnp.round(x)


@rounded.defjvp
def rounded_jvp(primals, tangents):
    return rounded(*primals), tangents[0]


@jax.custom_vjp
def clipped(x):
    """x, whose cotangent is clipped to [-1, 1], so that an outlier does not spoil a step."""
    return x


clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1.0, 1.0),))


@jax.custom_jvp
def length(x):
    """The length of a vector, with slope zero for one of length zero."""
    return jnp.sqrt(x @ x)


@length.defjvp
def length_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    r = length(x)
    return r, x @ dx / (r + (r == 0.0))


def quantized(x):
    return 3.0 * rounded(x)


def loss_of_an_outlier(x):
    return 0.5 * (clipped(x) - 2.0) ** 2


def energy_of_a_pair(x):
    return 2.0 * length(x * jnp.array([1.0, 0.0, 0.0]))


CASES = {
    "straight-through rounding of weights": (quantized, 0.4),
    "gradient clipping, at an outlier": (loss_of_an_outlier, 42.0),
    "distance between two coincident atoms": (energy_of_a_pair, 0.0),
}


def derivatives(f, x):
    """Return df/dx by JAX, of the StableHLO that JAX exports, and of a file of pullback."""
    exported = pb.load(jax.jit(f).lower(x).as_text().encode())
    with tempfile.TemporaryDirectory() as folder:
        pb.trace(f)(x).save(path := Path(folder) / "model.mlirbc")
        kept = pb.load(path)
    return tuple(float(each) for each in (jax.grad(f)(x), exported.grad()(x), kept.grad()(x)))


def main() -> None:
    print("| derivative of | JAX | JAX's export | pullback's file |")
    print("|---|---|---|---|")
    for what, (f, x) in CASES.items():
        here, lost, kept = derivatives(f, x)
        print(f"| {what} | {here:g} | **{lost:g}** | {kept:g} |")


if __name__ == "__main__":
    main()
