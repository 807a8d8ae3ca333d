"""Bytes that XLA counts in compiled derivatives, moved and of temporaries, beside JAX's.

    python benchmarks/costs.py [--only norm]

The counts are the same each time and on a busy machine, so that a rule whose derivative XLA does
not fuse is seen at once. XLA counts the body of a loop once, and products in it where it does not
call a library. A kilobyte is added to all temporaries: some functions have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
from jax import lax
from jax.scipy import special, stats
from rows import Row, Wanted, benchmark

import pullback as pb

Function = Callable[..., Any]

X = np.random.default_rng(0).uniform(0.1, 1.0, (256, 256)).astype(np.float32)
V, W = X[0], X[1]
SQUARE = 3 * np.eye(64, dtype=np.float32)


def normal(x, axis=-1):
    return (x - x.mean(axis, keepdims=True)) / jnp.sqrt(x.var(axis, keepdims=True) + 1e-5)


def distances(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def attention(x):
    q, k, v = (x @ x[:, i : i + 64] for i in (0, 64, 128))
    return jax.nn.softmax(jnp.where(jnp.tri(256) > 0, q @ k.T / 8, -1e9)) @ v


def heads(x):
    h = x.reshape(256, 4, 64)
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(jnp.einsum("qhd,khd->hqk", h, h) / 8), h)


def gaussian_process(x):
    covariance = jnp.exp(-0.5 * distances(x[:64, :3], x[:64, :3])) + 0.1 * np.eye(64)
    factor = jnp.linalg.cholesky(covariance)
    solved = jax.scipy.linalg.cho_solve((factor, True), W[:64])
    return W[:64] @ solved + 2 * jnp.log(jnp.diag(factor)).sum()


def recurrent(x):
    def step(h, row):
        z, r = jax.nn.sigmoid(h @ x + row), jax.nn.sigmoid(h @ x.T + row)
        h = (1 - z) * h + z * jnp.tanh((r * h) @ x + row)
        return h, h

    return lax.scan(step, V, x[:32])[1]


def bodies(x):
    def step(state, _):
        q, p = state
        offsets = q[None] - q[:, None]
        p = p + 0.01 * (offsets * ((distances(q, q) + 0.01) ** -1.5)[..., None]).sum(1)
        return (q + 0.01 * p, p), None

    q = x[:64, :3]
    return lax.scan(step, (q, jnp.zeros_like(q)), None, length=10)[0][0]


def diffusion(x):
    def step(u, _):
        p = jnp.pad(u, 1, mode="edge")
        around = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
        return u + 0.1 * (around - 4 * u) * u, None

    return lax.scan(step, x, None, length=10)[0]


def convolution(x):
    kernel = W[:144].reshape(3, 3, 4, 4)
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x.reshape(16, 64, 16, 4), kernel, (1, 1), "SAME", None, None, layout
    )


def pool(combine, start):
    window = (1, 2, 2, 1)
    return lambda x: lax.reduce_window(
        x.reshape(16, 64, 16, 4), start, combine, window, window, "VALID"
    )


CASES: dict[str, Function] = {
    "norm": lambda x: jnp.linalg.norm(x, axis=1),
    "normalized": lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True) * W,
    "layer norm": lambda x: normal(x) ** 3 * W,
    "batch norm": lambda x: normal(x, 0) ** 2 * W,
    "standardized": lambda x: (x - x.mean()) / x.std(),
    "min-max scaled": lambda x: ((x - x.min()) / (x.max() - x.min())) ** 2,
    "variance": lambda x: jnp.var(x, axis=1),
    "correlations": lambda x: jnp.corrcoef(x[:32]),
    "distances": lambda x: jnp.sqrt(distances(x[:64, :16], x[:64, :16]) + 1e-3),
    "cosines": lambda x: normal(x @ x.T) / jnp.linalg.norm(x, axis=1),
    "softmax": lambda x: jax.nn.softmax(x) ** 2,
    "log softmax": lambda x: jax.nn.log_softmax(x) * W,
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=1),
    "mixture": lambda x: jax.nn.logsumexp(-0.5 * distances(x, x[:32] * V) + W[:32], axis=1),
    "cross entropy": lambda x: -W * jnp.log(x) - (1 - W) * jnp.log1p(-x * 0.9),
    **{f: getattr(jax.nn, f) for f in ("gelu", "silu", "mish", "elu", "softplus", "squareplus")},
    **{f: getattr(jnp, f) for f in ("sinc", "cumsum", "cumprod", "sort", "tanh")},
    **{f: getattr(special, f) for f in ("erf", "gammaln", "digamma", "i0e", "entr")},
    "hypot": lambda x: jnp.hypot(x, W),
    "arctan2": lambda x: jnp.arctan2(x, x.T),
    "powers": lambda x: x**2.5 + x**W,
    "logit": lambda x: special.logit(x * 0.9),
    "ndtri": lambda x: special.ndtri(x * 0.9),
    "betainc": lambda x: special.betainc(2.0, 3.0, x),
    "densities": lambda x: stats.norm.logpdf(x, W, V) + stats.gamma.logpdf(x, W + 1),
    "student": lambda x: stats.t.logpdf(x, 3.0),
    "where": lambda x: jnp.where(x > 0.5, jnp.sqrt(x), x**2),
    "clip": lambda x: jnp.clip(x, 0.2, 0.8) ** 2,
    "maximum": lambda x: jnp.max(x, axis=1),
    "median": lambda x: jnp.median(x, axis=1),
    "top k": lambda x: lax.top_k(x, 5)[0],
    "gather": lambda x: x[jnp.arange(0, 256, 3)] ** 2,
    "scatter": lambda x: jnp.zeros((17, 256)).at[jnp.arange(256) % 17].add(x) ** 2,
    "update": lambda x: x.at[::3].set(x[::3] ** 2) * W,
    "segments": lambda x: jax.ops.segment_max(x, jnp.arange(256) % 17, 17) ** 2,
    "interpolation": lambda x: jnp.interp(x, np.linspace(0, 1, 50), np.linspace(0, 2, 50) ** 2),
    "reflected": lambda x: jnp.pad(x, 3, mode="reflect") ** 2,
    "layers": lambda x: jnp.tanh(jnp.tanh(x @ x) @ x),
    "outer": lambda x: jnp.outer(x[0], x[1]) ** 2,
    "inverse": lambda x: jnp.linalg.inv(x[:64, :64] + SQUARE),
    "determinant": lambda x: jnp.linalg.slogdet(x[:64, :64] + SQUARE)[1],
    "eigenvectors": lambda x: jnp.linalg.eigh(x[:32, :32] + x[:32, :32].T)[1] ** 2,
    "least squares": lambda x: jnp.linalg.lstsq(x[:64, :8], x[:64, 9])[0],
    "spectrum": lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2,
    "convolution": lambda x: jax.nn.relu(convolution(x)),
    "max pool": lambda x: pool(lax.max, -jnp.inf)(x) ** 2,
    "mean pool": lambda x: pool(lax.add, 0.0)(x) ** 2,
    "gaussian process": gaussian_process,
    "attention": attention,
    "heads": heads,
    "recurrent": recurrent,
    "bodies": bodies,
    "diffusion": diffusion,
    "associative scan": lambda x: lax.associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, 2 * x)
    )[1],
}


def of_squares(f: Function) -> Function:
    return lambda x: jnp.sum(f(x) ** 2)


MODES: dict[str, Callable[[Any, Function], Function]] = {
    "grad": lambda ad, f: ad.grad(lambda x: jnp.sum(f(x))),
    "jvp": lambda ad, f: lambda x: ad.jvp(f, (x,), (x * V,))[1],
    "hvp": lambda ad, f: lambda x: ad.jvp(ad.grad(of_squares(f)), (x,), (x * V,))[1],
    "grad of grad": lambda ad, f: ad.grad(of_squares(ad.grad(of_squares(f)))),
}


def counted(function: Function) -> tuple[float, float]:
    """Kilobytes that the compiled function moves, and those of its temporaries."""
    compiled = jax.jit(function).lower(X).compile()
    moved = compiled.cost_analysis()["bytes accessed"]
    return moved / 1e3, compiled.memory_analysis().temp_size_in_bytes / 1e3


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for mode, derive in MODES.items():
        for case, f in CASES.items():
            if wanted(name := f"{case}: {mode}"):
                (moved, temps), (moved_by_jax, temps_of_jax) = (
                    counted(derive(ad, f)) for ad in (pb, jax)
                )
                yield Row(name, [moved], [moved_by_jax], "kB", mode)
                yield Row(f"{name}: temporaries", [temps + 1], [temps_of_jax + 1], "kB")


if __name__ == "__main__":
    benchmark(rows, runs=1)()
