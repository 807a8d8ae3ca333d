"""The programs that benchmarks differentiate: networks, loops, custom rules, JAX's own rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.experimental.ode
import jax.numpy as jnp
import jax.scipy
import numpy as np

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """`make` gives a fresh function and its arguments; gradients are with respect to the first."""

    name: str
    make: Callable[[], tuple[Function, tuple[Any, ...]]]
    straight: bool = False
    orders: tuple[int, ...] = (1, 2)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def mlp(layers: int = 20, width: int = 64) -> tuple[Function, tuple[Any, ...]]:
    def loss(params, x):
        for w, b in params:
            x = jnp.tanh(x @ w + b)
        return jnp.sum(x**2)

    return loss, ([(array(width, width), array(width)) for _ in range(layers)], array(8, width))


def chain(length: int = 1000) -> tuple[Function, tuple[Any, ...]]:
    def loss(x):
        y = x
        for i in range(length // 2):
            y = jnp.sin(y) if i % 2 else y * x
            y = y + x if i % 3 else jnp.cos(y)
        return jnp.sum(y)

    return loss, (array(16),)


def transformer(
    layers: int, jitted: bool = False, width: int = 64, heads: int = 4
) -> tuple[Function, tuple[Any, ...]]:
    def norm(x):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(jnp.mean((x - mean) ** 2, -1, keepdims=True) + 1e-5)

    def layer(x, p):
        h = norm(x)
        q, k, v = (
            (h @ p[n]).reshape(x.shape[0], heads, -1).transpose(1, 0, 2) for n in ("q", "k", "v")
        )
        attention = jax.nn.softmax(q @ k.transpose(0, 2, 1) / math.sqrt(width / heads))
        x = x + (attention @ v).transpose(1, 0, 2).reshape(x.shape) @ p["o"]
        return x + jnp.tanh(norm(x) @ p["up"]) @ p["down"]

    step = jax.jit(layer) if jitted else layer

    def loss(params, x):
        for p in params:
            x = step(x, p)
        return jnp.mean(x**2)

    shapes = dict.fromkeys("qkvo", (width, width)) | {
        "up": (width, 4 * width),
        "down": (4 * width, width),
    }
    params = [{n: 0.1 * array(*s) for n, s in shapes.items()} for _ in range(layers)]
    return loss, (params, array(16, width))


def rnn(steps: int = 50, width: int = 32) -> tuple[Function, tuple[Any, ...]]:
    def loss(params, xs):
        w, u, b = params

        def step(h, x):
            h = jnp.tanh(h @ w + x @ u + b)
            return h, h

        _, hs = jax.lax.scan(step, jnp.zeros((8, width)), xs)
        return jnp.sum(hs**2)

    return loss, ((array(width, width), array(width, width), array(width)), array(steps, 8, width))


def lstm(steps: int = 50, width: int = 32) -> tuple[Function, tuple[Any, ...]]:
    def loss(params, xs):
        w, u, b = params

        def step(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(h @ w + x @ u + b, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((8, width))
        _, hs = jax.lax.scan(step, (zero, zero), xs)
        return jnp.sum(hs**2)

    params = (array(width, 4 * width), array(width, 4 * width), array(4 * width))
    return loss, (params, array(steps, 8, width))


def gru(steps: int = 50, width: int = 32) -> tuple[Function, tuple[Any, ...]]:
    def loss(params, xs):
        w, u, b = params

        def step(h, x):
            of_h, of_x = jnp.split(h @ w, 3, axis=-1), jnp.split(x @ u + b, 3, axis=-1)
            reset, update = (jax.nn.sigmoid(of_h[i] + of_x[i]) for i in range(2))
            new = jnp.tanh(reset * of_h[2] + of_x[2])
            h = (1 - update) * h + update * new
            return h, h

        _, hs = jax.lax.scan(step, jnp.zeros((8, width)), xs)
        return jnp.sum(hs**2)

    params = (array(width, 3 * width), array(width, 3 * width), array(3 * width))
    return loss, (params, array(steps, 8, width))


def convnet(blocks: int = 4, width: int = 16) -> tuple[Function, tuple[Any, ...]]:
    def conv(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def loss(params, x):
        for first, second, scale in params:
            for w in (first, second):
                x = conv(x, w)
                x = (x - x.mean((0, 1, 2))) * scale / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
                x = jax.nn.relu(x)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return -jnp.mean(jax.nn.log_softmax(x.mean((1, 2)))[:, 0])

    widths = [3] + [width * 2**i for i in range(blocks)]
    params = [
        (array(3, 3, n, m), array(3, 3, m, m), array(m))
        for n, m in zip(widths, widths[1:], strict=False)
    ]
    return loss, (params, array(2, 32, 32, 3))


def waves(steps: int = 8, size: int = 32) -> tuple[Function, tuple[Any, ...]]:
    """The nonlinear Schroedinger equation by split steps, in the plane of complex numbers."""

    def loss(potential, psi, k):
        for _ in range(steps):
            psi = jnp.fft.ifft2(jnp.exp(-0.05j * k**2) * jnp.fft.fft2(psi))
            psi = psi * jnp.exp(-0.1j * (potential + jnp.abs(psi) ** 2))
        return jnp.mean(jnp.abs(psi - 1) ** 2)

    return loss, (array(size, size), array(size, size) + 0j, array(size, size))


def one_line() -> tuple[Function, tuple[Any, ...]]:
    return (lambda x: jnp.sum(jnp.sin(x) * x)), (array(16),)


def rules(uses: int = 200, kinds: int = 10) -> tuple[Function, tuple[Any, ...]]:
    """`uses` calls of `kinds` custom rules, half custom_jvp, half custom_vjp."""

    def make(i: int) -> Function:
        if i % 2:
            f = jax.custom_jvp(lambda x: jnp.sin(x) * (i + 1))
            f.defjvp(lambda p, t: (f(*p), t[0] * jnp.cos(p[0]) * (i + 1)))
            return f
        g = jax.custom_vjp(lambda x: jnp.cos(x) * (i + 1))
        g.defvjp(lambda x: (g(x), x), lambda x, ct: (-ct * jnp.sin(x) * (i + 1),))
        return g

    functions = [make(i) for i in range(kinds)]

    def loss(x):
        for i in range(uses):
            x = functions[i % kinds](x)
        return jnp.sum(x)

    return loss, (array(16),)


def levenberg_marquardt(points: int = 256, peaks: int = 4, steps: int = 20) -> tuple[Function, Any]:
    """A fit of a sum of peaks by damped Gauss-Newton steps; the gradient is that by the data."""

    def curve(fit, t):
        height, width, place = fit.reshape(3, peaks, 1)
        return jnp.sum(height * jnp.exp(-((width * (t - place)) ** 2)), axis=0)

    t = np.linspace(0.0, 1.0, points, dtype=np.float32)
    places = np.linspace(0.2, 0.8, peaks, dtype=np.float32)
    start = np.concatenate([np.ones(peaks), np.full(peaks, 15.0), places]).astype(np.float32)
    true = np.float32(start * (1 + 0.1 * np.sin(np.arange(3 * peaks))))

    def loss(data):
        def error(fit):
            return curve(fit, t) - data

        def step(state, _):
            fit, damping = state
            residual, slope = error(fit), jax.jacfwd(error)(fit)
            normal = slope.T @ slope
            damped = normal + damping * jnp.diag(jnp.diag(normal) + 1e-3)
            trial = fit - jnp.linalg.solve(damped, slope.T @ residual)
            better = jnp.sum(error(trial) ** 2) < jnp.sum(residual**2)
            damping = jnp.where(better, damping / 3, damping * 2)
            return (jnp.where(better, trial, fit), damping), None

        (fit, _), _ = jax.lax.scan(step, (start, jnp.float32(0.1)), None, length=steps)
        return jnp.sum(fit**2)

    return loss, (np.asarray(curve(jnp.asarray(true), t)) + 0.01 * array(points),)


def different_rules(count: int) -> tuple[Function, tuple[Any, ...]]:
    """One call of each of `count` custom_vjp functions."""

    def make(i: int) -> Function:
        f = jax.custom_vjp(lambda x: jnp.cos(x) * (i + 1))
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (-ct * jnp.sin(x) * (i + 1),))
        return f

    functions = [make(i) for i in range(count)]

    def loss(x):
        for f in functions:
            x = f(x)
        return jnp.sum(x)

    return loss, (array(16),)


CASES = [
    Case("mlp, 20 layers", mlp, True),
    Case("chain, 1000 ops", chain, True),
    Case("transformer, 4 layers", lambda: transformer(4), True),
    Case("transformer, 4 jitted layers", lambda: transformer(4, jitted=True)),
    Case("transformer, 24 jitted layers", lambda: transformer(24, jitted=True)),
    Case("rnn scan", rnn),
    Case("lstm scan", lstm),
    Case("convnet, 8 layers", convnet),
    Case("waves, 8 steps of FFTs", waves),
    Case("200 uses of 10 rules", rules),
]

MANY_RULES = [
    Case(f"{count} rules, used once", lambda count=count: different_rules(count), orders=(1,))
    for count in (200, 800)
]


def solves(a, b):
    s = a @ a.T + jnp.eye(a.shape[0])
    y = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(s), b, lower=True)
    return jnp.sum(y**2) + jnp.linalg.slogdet(s)[1] + jnp.sum(jnp.linalg.solve(s, b))


def likelihood_of_a_gaussian_process(scale, x, y):
    k = jnp.exp(-(((x[:, None] - x) / scale) ** 2)) + jnp.eye(len(x))
    c, lower = jax.scipy.linalg.cho_factor(k)
    inner = y @ jax.scipy.linalg.cho_solve((c, lower), y)
    return -inner / 2 - jnp.sum(jnp.log(jnp.diag(c)))


def spectra(a):
    singular = jnp.linalg.svd(a, full_matrices=False)[1]
    return jnp.sum(jnp.linalg.eigh(a @ a.T)[0] ** 3) + jnp.sum(singular) + jnp.linalg.qr(a)[1][0, 0]


def special_functions(x):
    special = jax.scipy.special
    normal = special.erf(x) + special.erfc(x) + jax.scipy.stats.norm.logcdf(x)
    return jnp.sum(normal + special.gammaln(jnp.abs(x) + 1) + special.betainc(1.5, 2.0, x**2))


def cumulative(x):
    return jnp.sum(jnp.cumprod(x) + jnp.cumsum(x) + jax.lax.cummax(x) + jnp.sort(x))


def ode(y):
    times = jnp.linspace(0.0, 1.0, 4)
    return jnp.sum(jax.experimental.ode.odeint(lambda y, t: jnp.sin(y) * t, y, times))


def conjugate_gradients(a, b):
    s = a @ a.T + jnp.eye(a.shape[0])
    return jnp.sum(jax.scipy.sparse.linalg.cg(lambda v: s @ v, b)[0])


def samples(shape):
    return jnp.sum(jax.random.gamma(jax.random.key(0), shape**2 + 1))


def _fresh(f: Function, *shapes: tuple[int, ...]) -> Callable[[], tuple[Function, Any]]:
    """JAX keeps traces by function: each run is of another one."""
    args = tuple(0.5 * array(*shape) for shape in shapes)
    return lambda: (lambda *args: f(*args), args)


KEPT = [
    Case("solves", _fresh(solves, (6, 6), (6,))),
    Case("gaussian process", _fresh(likelihood_of_a_gaussian_process, (), (8,), (8,))),
    Case("eigh, svd, qr", _fresh(spectra, (4, 4))),
    Case("special functions", _fresh(special_functions, (4,))),
    Case("cumulative", _fresh(cumulative, (9,))),
    Case("ode", _fresh(ode, (3,)), orders=(1,)),
    Case("conjugate gradients", _fresh(conjugate_gradients, (5, 5), (5,))),
    Case("gamma samples", _fresh(samples, (4,)), orders=(1,)),
]

FIRST = [
    Case("one line", one_line),
    Case("gru scan", gru),
    *(case for case in CASES if case.name in ("mlp, 20 layers", "transformer, 4 layers")),
    *(case for case in KEPT if case.name in ("gaussian process", "special functions", "ode")),
]
