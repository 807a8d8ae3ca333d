"""Run time and temporary memory of gradients, beside `jax.jit(jax.grad(f))`.

    python benchmarks/run.py [--runs 20] [--only lstm]

Both are compiled by XLA for the default backend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import programs
from rows import Row, Wanted, benchmark, in_turn

import pullback as pb

Function = Callable[..., Any]
array = programs.array


def attention(length: int = 128, width: int = 256, heads: int = 8) -> tuple[Function, Any]:
    def loss(params, x):
        def split(w):
            return (x @ w).reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

        q, k, v = (split(params[n]) for n in "qkv")
        weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / (width / heads) ** 0.5)
        return jnp.mean((weights @ v).transpose(0, 2, 1, 3).reshape(x.shape) ** 2)

    params = {n: array(width, width) * 0.05 for n in "qkv"}
    return loss, (params, array(4, length, width))


def convolutions(channels: int = 16) -> tuple[Function, Any]:
    def loss(kernels, x):
        for kernel in kernels:
            x = jax.nn.softplus(jax.lax.conv(x, kernel, (1, 1), "SAME"))
        return jnp.mean(x**2)

    kernels = [array(channels, 3 if i == 0 else channels, 3, 3) * 0.1 for i in range(3)]
    return loss, (kernels, array(16, 3, 32, 32))


def n_body(bodies: int = 1024) -> tuple[Function, Any]:
    def energy(x):
        offsets = x[:, None] - x[None]
        return -0.5 * jnp.sum(jax.lax.rsqrt(jnp.sum(offsets**2, -1) + 0.01))

    return energy, (array(bodies, 3),)


def black_scholes(options: int = 100_000) -> tuple[Function, Any]:
    def price(spot, strike):
        d1 = (jnp.log(spot / strike) + 0.045) / 0.3
        cdf = jax.scipy.stats.norm.cdf
        return jnp.sum(spot * cdf(d1) - strike * 0.99 * cdf(d1 - 0.3))

    return price, (np.exp(0.1 * array(options)), np.exp(0.1 * array(options)[::-1]))


def logsumexp(rows: int = 2048, columns: int = 1024) -> tuple[Function, Any]:
    return lambda x: jnp.sum(jax.nn.logsumexp(x, axis=1)), (array(rows, columns),)


def stencil(steps: int = 30, width: int = 256) -> tuple[Function, Any]:
    def loss(u, diffusivity):
        def step(_, u):
            neighbours = sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1))
            return u + 0.1 * diffusivity * (neighbours - 4 * u) + 0.01 * u * (1 - u**2)

        return jnp.mean(jax.lax.fori_loop(0, steps, step, u) ** 2)

    return loss, (array(width, width), np.ones((width, width), np.float32))


def checkpointed(steps: int = 20, width: int = 128) -> tuple[Function, Any]:
    """A policy that says what is kept of the iterations of a scan."""

    def loss(w, xs):
        @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
        def scanned(h, xs):
            return jax.lax.scan(lambda h, x: (jnp.sin(jnp.tanh(h @ w + x)), None), h, xs)[0]

        return jnp.sum(jnp.tanh(scanned(xs[0], xs) @ w))

    return loss, (array(width, width) * 0.1, array(steps, width, width))


CASES: dict[str, Callable[[], tuple[Function, Any]]] = {
    "mlp 20x64": programs.mlp,
    "transformer, 4 layers": lambda: programs.transformer(4, width=128),
    "attention": attention,
    "conv net, softplus": convolutions,
    "conv net, max pool": programs.convnet,
    "n-body": n_body,
    "black-scholes": black_scholes,
    "logsumexp": logsumexp,
    "rnn 256, 50 steps": lambda: programs.rnn(50, 256),
    "lstm 128, 100 steps": lambda: programs.lstm(100, 128),
    "lstm 32, 500 steps": lambda: programs.lstm(500, 32),
    "stencil 256, 30 steps": stencil,
    "levenberg-marquardt": programs.levenberg_marquardt,
    "scan, products saved": checkpointed,
}


def temporaries(ours: Any, theirs: Any) -> tuple[float, float]:
    """Kilobytes of the temporaries of two compiled functions, and one more: some have none."""
    theirs_in_bytes = theirs.memory_analysis().temp_size_in_bytes
    return ours.memory().temporaries / 1e3 + 1, theirs_in_bytes / 1e3 + 1


def checked(ours: Any, theirs: Any) -> None:
    """Fail where two gradients are not the same."""
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-3, atol=2e-3 * float(abs(other).max()))


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for name, make in CASES.items():
        if not wanted(name):
            continue
        f, args = make()
        args = jax.device_put(args)
        ours = pb.trace(f)(*args).grad().compile()
        theirs = jax.jit(jax.grad(f)).lower(*args).compile()
        checked(ours(*args), theirs(*args))
        times = in_turn(
            lambda: jax.block_until_ready(ours(*args)),  # noqa: B023
            lambda: jax.block_until_ready(theirs(*args)),  # noqa: B023
            runs,
        )
        yield Row(name, *times, family="run time")
        mine, other = temporaries(ours, theirs)
        yield Row(f"{name}: temporaries", [mine], [other], "kB")


if __name__ == "__main__":
    benchmark(rows, runs=20)()
