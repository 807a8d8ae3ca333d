"""Gradients within a memory budget, beside checkpoints that are written by hand in JAX.

    python benchmarks/budget.py [--runs 11] [--only "scan of 1,000"]

By hand, each is in blocks of about the square root of its steps or layers, each a `jax.checkpoint`.
The budget of ours is what XLA allocates for that. Without a loop, the XLA for CPUs of jaxlib 0.10
merges the two runs of a checkpoint, and allocates for all layers. The rows are those temporaries,
the operations in the two gradients (by-hand checkpoints derived in the IR, too), and the run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from rows import Row, Wanted, benchmark, in_turn

import pullback as pb
from pullback.ir import costs

Step = Callable[[Any, Any], Any]
Loss = Callable[..., Any]
Scan = Callable[[Step, Any, Any], Any]


def plain(step: Step, state: Any, xs: Any) -> Any:
    """Scan steps over rows; return the last state."""
    return lax.scan(lambda state, x: (step(state, x), None), state, xs)[0]


def in_blocks(length: int) -> Scan:
    """Return a scan of so many steps at a time, each block a checkpoint."""

    def scan(step: Step, state: Any, xs: Any) -> Any:
        rows = jax.tree.map(lambda a: a.reshape(-1, length, *a.shape[1:]), xs)
        return plain(jax.checkpoint(lambda state, x: plain(step, state, x)), state, rows)

    return scan


def unrolled(step: Step, state: Any, xs: Any) -> Any:
    """Do the same without a loop."""
    for i in range(len(xs)):
        state = step(state, xs[i])
    return state


def unrolled_in_blocks(step: Step, state: Any, xs: Any) -> Any:
    """Do the same with a checkpoint for each block."""
    length = int(len(xs) ** 0.5)
    for i in range(0, len(xs), length):
        state = jax.checkpoint(lambda state, xs: unrolled(step, state, xs))(
            state, xs[i : i + length]
        )
    return state


def randoms(*shapes: tuple[int, ...]) -> list[Any]:
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(k, s) * 0.1 for k, s in zip(keys, shapes, strict=True)]


def recurrence(scan: Scan) -> Loss:
    def step(w):
        return lambda x, u: jnp.sin(x @ w) * jnp.cos(x + u) + jnp.tanh(x)

    return lambda w, x, us: jnp.sum(scan(step(w), x, us))


def gru(scan: Scan) -> Loss:
    def loss(w, u, h, xs):
        def step(h, x):
            z, r = (jax.nn.sigmoid(x @ w[i] + h @ u[i]) for i in (0, 1))
            return (1 - z) * jnp.tanh(x @ w[2] + (r * h) @ u[2]) + z * h

        return jnp.sum(scan(step, h, xs) ** 2)

    return loss


def runge_kutta(scan: Scan) -> Loss:
    def loss(w, y, times):
        def slope(y, t):
            return jnp.tanh(y @ w) * jnp.cos(t)

        def step(y, t, h=0.01):
            a = slope(y, t)
            b = slope(y + h / 2 * a, t + h / 2)
            c = slope(y + h / 2 * b, t + h / 2)
            return y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c, t + h))

        return jnp.sum(scan(step, y, times) ** 2)

    return loss


def diffusion(scan: Scan) -> Loss:
    def loss(a, u, times):
        def step(u, _):
            near = sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1))
            return u + 0.1 * jnp.exp(a) * (near - 4 * u) + 0.01 * u * (1 - u * u)

        return jnp.sum(scan(step, u, times) ** 2)

    return loss


def nested(scan: Scan) -> Loss:
    def loss(w, x, us):
        def outer(x, u):
            return plain(lambda x, _: jnp.tanh(x @ w + u) + 0.1 * jnp.sin(x), x, jnp.zeros(25))

        return jnp.sum(scan(outer, x, us))

    return loss


def mlp(scan: Scan) -> Loss:
    return lambda ws, x: jnp.sum(scan(lambda x, w: jnp.sin(x @ w) + x, x, ws) ** 2)


def transformer(scan: Scan) -> Loss:
    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def layer(x, w):
        q, k, v, a, b = jnp.split(w, (64, 128, 192, 448), -1)
        h = norm(x)
        weights = jax.nn.softmax(jnp.einsum("btd,bsd->bts", h @ q, h @ k) / 8)
        x = x + weights @ (h @ v)
        return x + jax.nn.gelu(norm(x) @ a) @ b.T

    return lambda ws, x: jnp.mean(scan(layer, x, ws) ** 2)


def convolutions(scan: Scan) -> Loss:
    def layer(x, w):
        dims = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dims)
        return x + jax.nn.softplus(y)

    return lambda ws, x: jnp.mean(scan(layer, x, ws) ** 2)


_WEIGHTS = (64, 64)
PROGRAMS: dict[str, tuple[Callable[[Scan], Loss], Scan, Scan, list[Any]]] = {
    "scan of 1,000 steps": (
        recurrence,
        plain,
        in_blocks(25),
        randoms(_WEIGHTS, _WEIGHTS, (1000, 64)),
    ),
    "GRU of 256 steps": (
        gru,
        plain,
        in_blocks(16),
        randoms((3, 64, 64), (3, 64, 64), (32, 64), (256, 32, 64)),
    ),
    "Runge-Kutta, 400 steps": (
        runge_kutta,
        plain,
        in_blocks(20),
        randoms(_WEIGHTS, (16, 64), (400,)),
    ),
    "diffusion, 256 steps": (
        diffusion,
        plain,
        in_blocks(16),
        randoms((128, 128), (128, 128), (256,)),
    ),
    "scan of 40 in a scan of 25": (
        nested,
        plain,
        in_blocks(1),
        randoms(_WEIGHTS, _WEIGHTS, (40, 64)),
    ),
    "MLP of 32 layers": (mlp, unrolled, unrolled_in_blocks, randoms((32, 64, 64), (512, 64))),
    "transformer, 12 layers in a scan": (
        transformer,
        plain,
        in_blocks(1),
        randoms((12, 64, 704), (8, 64, 64)),
    ),
    "conv net of 12 layers": (
        convolutions,
        unrolled,
        unrolled_in_blocks,
        randoms((12, 3, 3, 16, 16), (4, 32, 32, 16)),
    ),
}
"""Gives a loss by the way it scans; how ours scans, and JAX by hand; arguments."""  # fmt: skip

LARGER = {"transformer, 12 layers in a scan": 1.3}
"""Budgets, relative to what is allocated by hand, of programs that have no schedule for as little.

The XLA for CPUs of jaxlib 0.12 allocates 7.6 MB for the least schedule, that of 0.10 5.2 MB.
"""


def operations(program: Any) -> float:
    """Return the millions of operations of a program, all iterations counted."""
    lowered = program.run_passes("lower-custom-derivatives")
    return sum(times * costs.flops(op) for op, times in costs.runs(lowered.module)) / 1e6


def runner(compiled: Callable[..., Any], args: list[Any]) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(compiled(*args))


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for name, (loss, scan, by_hand, args) in PROGRAMS.items():
        if not wanted(name):
            continue
        theirs = jax.jit(jax.grad(loss(by_hand))).lower(*args).compile()
        allocated = theirs.memory_analysis().temp_size_in_bytes
        budget = int(allocated * LARGER.get(name, 1))
        gradient = pb.trace(loss(scan))(*args).grad(memory=budget)
        ours = gradient.compile()
        peer = "by hand"
        used = [ours.memory().temporaries / 1e6]
        yield Row(f"{name}: temporaries", used, [allocated / 1e6], "MB", "temporaries", peer, 1.0)
        work = [operations(g) for g in (gradient, pb.trace(loss(by_hand))(*args).grad())]
        yield Row(f"{name}: operations", work[:1], work[1:], "M", "operations", peer, 1.5)
        times = in_turn(runner(ours, args), runner(theirs, args), runs)
        yield Row(f"{name}: run time", *times, "ms", "run time", peer, 1.5)


if __name__ == "__main__":
    benchmark(rows, runs=11)()
