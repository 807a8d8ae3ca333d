"""The tool for GradBench: hello, det, gmm, ba, ode, lstm and saddle, differentiated by pullback.

    python tool.py [--library jax] [--multithreaded]

Speaks GradBench's protocol, JSON messages over standard input and output. With `--library jax` the
same functions are differentiated by JAX, to compare times.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp, multigammaln

jax.config.update("jax_enable_x64", True)

AD: Any = jax
"""The library that differentiates: pullback or jax."""

Arrays = dict[str, Any]


class Eval:
    """A function of an eval.

    Attributes:
      read: makes of the message's input the arguments, arrays and static ones.
      make: makes of the static arguments the function to time, to be compiled by XLA.
      write: makes of the function's results what the eval expects.
    """

    def __init__(
        self,
        read: Callable[[Arrays], tuple[tuple[Any, ...], tuple[Any, ...]]],
        make: Callable[..., Callable[..., Any]],
        write: Callable[..., Any],
    ) -> None:
        self.read, self.make, self.write = read, make, write

    def __call__(self, data: Any) -> dict[str, Any]:
        arrays, static = self.read(data)
        function = jax.jit(self.make(*static))
        least_runs = data["min_runs"] if isinstance(data, dict) else 1
        least_seconds = data["min_seconds"] if isinstance(data, dict) else 0
        timings, elapsed = [], 0.0
        while len(timings) < least_runs or elapsed < least_seconds:
            start = time.perf_counter_ns()
            results = jax.block_until_ready(function(*arrays))
            spent = time.perf_counter_ns() - start
            timings.append({"name": "evaluate", "nanoseconds": spent})
            elapsed += spent / 1e9
        return {"success": True, "output": self.write(data, results), "timings": timings}


def _list(_: Any, array: Any) -> Any:
    return np.asarray(array).tolist()


# ------------------------------------------------------------------------------- hello


def square(x: Any) -> Any:
    return x * x


def _number(x: float) -> Any:
    return (jnp.float64(x),), ()


HELLO = {
    "square": Eval(_number, lambda: square, _list),
    "double": Eval(_number, lambda: AD.grad(square), _list),
}

# --------------------------------------------------------------------------------- det


@functools.cache
def _minors(size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for each number m of last rows, the columns of each minor, and its sub-minors.

    A minor is a set of m columns; without its j-th column it is a minor of one row less.
    """
    found, before = [], {0: 0}
    for m in range(1, size + 1):
        sets = [s for s in range(1 << size) if s.bit_count() == m]
        columns = [[c for c in range(size) if s >> c & 1] for s in sets]
        smaller = [[before[s & ~(1 << c)] for c in row] for s, row in zip(sets, columns)]
        found.append((np.array(columns), np.array(smaller)))
        before = {s: i for i, s in enumerate(sets)}
    return found


def determinant(size: int) -> Callable[[Any], Any]:
    """Return the determinant by expansion along the first row, with each minor computed once."""

    def det(matrix: Any) -> Any:
        of_minors = jnp.ones(1)
        for m, (columns, smaller) in enumerate(_minors(size), 1):
            signs = jnp.where(jnp.arange(m) % 2 == 0, 1.0, -1.0)
            row = matrix[size - m]
            of_minors = (signs * row[columns] * of_minors[smaller]).sum(axis=1)
        return of_minors[0]

    return det


def _matrix(data: Arrays) -> Any:
    size = data["ell"]
    return (jnp.array(data["A"]).reshape(size, size),), (size,)


def _flat(_: Any, array: Any) -> Any:
    return np.asarray(array).ravel().tolist()


DET = {
    "primal": Eval(_matrix, determinant, _list),
    "gradient": Eval(_matrix, lambda size: AD.grad(determinant(size)), _flat),
}

# --------------------------------------------------------------------------------- gmm

INDEPENDENT = ("alpha", "mu", "q", "l")


def log_posterior(d: int, m: int) -> Callable[..., Any]:
    """Return the log posterior of a Gaussian mixture in d dimensions, with a Wishart prior."""
    columns, rows = np.triu_indices(d, 1)  # below the diagonal, column by column

    def posterior(independent: Arrays, x: Any, gamma: Any) -> Any:
        alpha, mu, q, below = (independent[name] for name in INDEPENDENT)
        count, components = len(x), len(alpha)
        factor = jnp.zeros((components, d, d)).at[:, rows, columns].set(below)
        factor = factor + jax.vmap(jnp.diag)(jnp.exp(q))
        distances = jnp.einsum("kij,nkj->nki", factor, x[:, None] - mu)
        inner = alpha + q.sum(axis=1) - 0.5 * (distances**2).sum(axis=2)
        likelihood = (
            logsumexp(inner, axis=1).sum()
            - count * logsumexp(alpha)
            - count * d * 0.5 * math.log(2 * math.pi)
        )
        freedom = d + m + 1
        constant = freedom * d * jnp.log(gamma / math.sqrt(2)) - multigammaln(0.5 * freedom, d)
        return likelihood + (
            components * constant - 0.5 * gamma**2 * (factor**2).sum() + m * q.sum()
        )

    return posterior


def _mixture(data: Arrays) -> Any:
    independent = {name: jnp.array(data[name]) for name in INDEPENDENT}
    return (independent, jnp.array(data["x"]), jnp.float64(data["gamma"])), (data["d"], data["m"])


GMM = {
    "objective": Eval(_mixture, log_posterior, _list),
    "jacobian": Eval(
        _mixture,
        lambda d, m: AD.grad(log_posterior(d, m)),
        lambda _, found: {name: np.asarray(found[name]).tolist() for name in INDEPENDENT},
    ),
}

# ---------------------------------------------------------------------------------- ba

CAMERA, POINT = 11, 3


def rotated(vector: Any, point: Any) -> Any:
    """Rotate a point by a Rodrigues vector, also by none."""
    squared = vector @ vector
    is_none = squared == 0
    angle = jnp.sqrt(jnp.where(is_none, 1.0, squared))
    axis = vector / angle
    turned = (
        point * jnp.cos(angle)
        + jnp.cross(axis, point) * jnp.sin(angle)
        + axis * ((axis @ point) * (1 - jnp.cos(angle)))
    )
    return jnp.where(is_none, point + jnp.cross(vector, point), turned)


def reprojection_error(camera: Any, point: Any, weight: Any, feature: Any) -> Any:
    seen = rotated(camera[:3], point - camera[3:6])
    flat = seen[:2] / seen[2]
    squared = flat @ flat
    distorted = flat * (1 + camera[9] * squared + camera[10] * squared**2)
    return weight * (distorted * camera[6] + camera[7:9] - feature)


def weight_error(weight: Any) -> Any:
    return 1 - weight**2


def _bundle(data: Arrays) -> Any:
    count = data["p"]
    repeated = (
        jnp.tile(jnp.array(data[name]), (count, 1) if name != "w" else count)
        for name in ("cam", "x", "w", "feat")
    )
    return tuple(repeated), ()


def errors() -> Callable[..., Any]:
    def of_all(cameras: Any, points: Any, weights: Any, features: Any) -> Any:
        reprojected = jax.vmap(reprojection_error)(cameras, points, weights, features)
        return reprojected, weight_error(weights)

    return of_all


def error_blocks() -> Callable[..., Any]:
    """Return a function that computes the blocks of the Jacobian that are not zero, as rows."""

    def of_one(camera: Any, point: Any, weight: Any, feature: Any) -> Any:
        wrt = AD.jacrev(reprojection_error, argnums=(0, 1, 2))(camera, point, weight, feature)
        return jnp.concatenate([wrt[0], wrt[1], wrt[2][:, None]], axis=1)

    def of_all(cameras: Any, points: Any, weights: Any, features: Any) -> Any:
        blocks = jax.vmap(of_one)(cameras, points, weights, features)
        return blocks, jax.vmap(AD.grad(weight_error))(weights)

    return of_all


def _errors(data: Arrays, found: Any) -> Any:
    reprojected, of_weights = map(np.asarray, found)
    return {
        "reproj_error": {"elements": reprojected[0].tolist(), "repeated": len(reprojected)},
        "w_err": {"element": float(of_weights[0]), "repeated": len(of_weights)},
    }


def _sparse(data: Arrays, found: Any) -> Any:
    """Return the first 30 entries and the last one of the Jacobian in rows."""
    blocks, of_weights = map(np.asarray, found)
    count, width = len(blocks), blocks.shape[2]
    cameras, points = data["n"], data["m"]
    observed = np.arange(count)
    places = np.concatenate(
        [
            CAMERA * (observed % cameras)[:, None] + np.arange(CAMERA),
            CAMERA * cameras + POINT * (observed % points)[:, None] + np.arange(POINT),
            (CAMERA * cameras + POINT * points + observed)[:, None],
        ],
        axis=1,
    )
    columns = np.concatenate([np.repeat(places, 2, axis=0).ravel(), places[:, -1]])
    values = np.concatenate([blocks.ravel(), of_weights])
    widths = np.concatenate([[0], np.full(2 * count, width), np.ones(count, int)])
    named = {"rows": np.cumsum(widths), "cols": columns, "vals": values}
    return {name: [*each[:30].tolist(), each[-1].item()] for name, each in named.items()}


BA = {
    "objective": Eval(_bundle, errors, _errors),
    "jacobian": Eval(_bundle, error_blocks, _sparse),
}

# --------------------------------------------------------------------------------- ode


def runge_kutta(steps: int) -> Callable[[Any], Any]:
    """Return the solution at 2 of y_i' = x_i y_(i-1), where y_0' = x_0, by steps of order 4."""

    def solve(x: Any) -> Any:
        h = 2.0 / steps

        def slope(y: Any) -> Any:
            return x * jnp.concatenate([jnp.ones(1), y[:-1]])

        def step(y: Any, _: None) -> Any:
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return lax.scan(step, jnp.zeros_like(x), length=steps)[0]

    return solve


def _vector(data: Arrays) -> Any:
    return (jnp.array(data["x"]),), (data["s"],)


ODE = {
    "primal": Eval(_vector, runge_kutta, _list),
    "gradient": Eval(_vector, lambda steps: AD.grad(lambda x: runge_kutta(steps)(x)[-1]), _list),
}

# -------------------------------------------------------------------------------- lstm


def lstm_loss() -> Callable[..., Any]:
    def loss(main: Any, extra: Any, state: Any, sequence: Any) -> Any:
        layers = main.reshape(-1, 2, 4, sequence.shape[1])  # layer, weight or bias, gate
        states = state.reshape(len(layers), 2, -1)  # layer, hidden or cell

        def layer(x: Any, given: Any) -> Any:
            (weight, bias), (hidden, cell) = given
            gates = jnp.stack([x, hidden, x, hidden]) * weight + bias
            forget, ingate, outgate = jax.nn.sigmoid(gates[:3])
            cell = cell * forget + ingate * jnp.tanh(gates[3])
            hidden = outgate * jnp.tanh(cell)
            return hidden, jnp.stack([hidden, cell])

        def step(states: Any, pair: Any) -> Any:
            x, gold = pair
            x, states = lax.scan(layer, x * extra[0], (layers, states))
            predicted = x * extra[1] + extra[2]
            return states, gold @ (predicted - jnp.log(2 + jnp.exp(predicted).sum()))

        _, totals = lax.scan(step, states, (sequence[:-1], sequence[1:]))
        return -totals.sum() / sequence[1:].size

    return loss


NETWORK = ("main_params", "extra_params", "state", "sequence")
LSTM = {
    "objective": Eval(
        lambda data: (tuple(jnp.array(data[name]) for name in NETWORK), ()), lstm_loss, _list
    ),
    "jacobian": Eval(
        lambda data: (tuple(jnp.array(data[name]) for name in NETWORK), ()),
        lambda: AD.grad(lstm_loss(), argnums=(0, 1)),
        lambda _, found: [x for each in found for x in np.asarray(each).ravel().tolist()],
    ),
}

# ------------------------------------------------------------------------------ saddle

Function = Callable[[Any], Any]


def forward(f: Function) -> Function:
    return AD.jacfwd(f)


def reverse(f: Function) -> Function:
    return AD.grad(f)


def argmin(gradient: Callable[[Function], Function], f: Function, start: Any) -> Any:
    """Return where f is least, by gradient descent that adapts its steps.

    A step that descends is taken; ten in turn double the size of steps, and one that does not
    descend halves it. It ends where the gradient or a step is at most 1e-5 long.
    """
    slope = gradient(f)

    def step(carry: Any) -> Any:
        x, value, grad, size, descents, _ = carry
        is_flat = jnp.sqrt(grad @ grad) <= 1e-5
        doubles = descents == 10
        moved = x - size * grad
        difference = x - moved
        is_short = jnp.sqrt(difference @ difference) <= 1e-5
        at_moved = f(moved)
        descends = at_moved < value
        stays = is_flat | doubles | is_short | ~descends
        stopped = is_flat | (~doubles & is_short)
        factor = jnp.where(doubles, 2.0, jnp.where(descends | stopped, 1.0, 0.5))
        return (
            jnp.where(stays, x, moved),
            jnp.where(stays, value, at_moved),
            jnp.where(stays, grad, slope(moved)),
            size * jnp.where(is_flat, 1.0, factor),
            jnp.where(stays, 0, descents + 1),
            ~stopped,
        )

    carry = (start, f(start), slope(start), 1e-5, 0, True)
    return lax.while_loop(lambda carry: carry[5], step, carry)[0]


def saddle_point(outer: Any, inner: Any) -> Callable[[Any], Any]:
    def f(x: Any, y: Any) -> Any:
        return x @ x - y @ y

    def points(start: Any) -> Any:
        def largest(x: Any) -> Any:
            return f(x, argmin(inner, lambda y: -f(x, y), start))

        x = argmin(outer, largest, start)
        return jnp.concatenate([x, argmin(outer, lambda y: -f(x, y), start)])

    return points


MODES = {"f": forward, "r": reverse}
SADDLE = {
    outer + inner: Eval(
        lambda data, modes=(MODES[outer], MODES[inner]): ((jnp.array(data["start"]),), modes),
        saddle_point,
        _list,
    )
    for outer in MODES
    for inner in MODES
}

MODULES: dict[str, dict[str, Eval]] = {
    "hello": HELLO,
    "det": DET,
    "gmm": GMM,
    "ba": BA,
    "ode": ODE,
    "lstm": LSTM,
    "saddle": SADDLE,
}


def respond(message: dict[str, Any], tool: str) -> dict[str, Any]:
    """Return the response to a message, without its id."""
    if message["kind"] == "start":
        return {"tool": tool}
    if message["kind"] == "define":
        return {"success": message["module"] in MODULES}
    if message["kind"] != "evaluate":
        return {}
    try:
        return MODULES[message["module"]][message["function"]](message["input"])
    except Exception as error:
        return {"success": False, "error": "".join(traceback.format_exception(error))}


def main() -> None:
    global AD
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--library", choices=("pullback", "jax"), default="pullback")
    parser.add_argument("--multithreaded", action="store_true")
    args = parser.parse_args()
    if args.library == "pullback":
        import pullback

        AD = pullback
    if not args.multithreaded and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for line in sys.stdin:
        message = json.loads(line)
        print(json.dumps({"id": message["id"], **respond(message, args.library)}), flush=True)


if __name__ == "__main__":
    main()
