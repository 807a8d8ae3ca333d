"""Drive the tool by GradBench's protocol, check its outputs, and compare its times with JAX's.

    python packaging/gradbench/drive.py [--seconds 0.2] [EVAL...]

The inputs are small ones of each eval. Values are those of a NumPy formula, derivatives those of a
complex step of it, up to GradBench's tolerance.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TOOL = Path(__file__).with_name("tool.py")
TOLERANCE = 1e-4
CHECKED = 25
"""How many elements of a gradient are compared with a complex step."""

RNG = np.random.default_rng(31337)
Message = dict[str, Any]


class Tool:
    """A process of the tool, which answers messages one by one."""

    def __init__(self, library: str) -> None:
        command = [sys.executable, str(TOOL), "--library", library]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._id = 0

    def send(self, kind: str, **fields: Any) -> Message:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps({"id": self._id, "kind": kind, **fields}), file=stdin, flush=True)
        response: Message = json.loads(stdout.readline())
        assert response["id"] == self._id, (response["id"], self._id)
        self._id += 1
        return response

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


def close_to(found: Any, expected: Any) -> bool:
    """Compare as GradBench does: the difference over the sum of the magnitudes, or over 1."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    scale = np.maximum(np.abs(found) + np.abs(expected), 1)
    is_close = np.abs(found - expected) <= TOLERANCE * scale
    return found.shape == expected.shape and bool(is_close.all())


def complex_steps(f: Callable[[Any], Any], x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the derivatives of f with respect to these elements of x."""
    found = []
    for i in at:
        moved = x.astype(complex)
        moved[i] += 1e-30j
        found.append(np.imag(f(moved)) / 1e-30)
    return np.array(found)


def is_gradient(f: Callable[[Any], Any], x: np.ndarray, found: Any) -> bool:
    at = RNG.permutation(x.size)[:CHECKED]
    found = np.asarray(found, float)
    return found.shape == x.shape and close_to(found[at], complex_steps(f, x, at))


# --------------------------------------------------------------- the evals, with references

Case = tuple[str, str, Any, Callable[[Any], bool]]


def hello() -> Iterator[Case]:
    yield "square", "", 3.5, lambda out: close_to(out, 12.25)
    yield "double", "", 3.5, lambda out: close_to(out, 7.0)


def det() -> Iterator[Case]:
    for size in (5, 8, 11):
        matrix = RNG.random((size, size))
        data = {"A": matrix.ravel().tolist(), "ell": size}
        exact = np.linalg.det(matrix)
        gradient = (exact * np.linalg.inv(matrix).T).ravel()
        yield "primal", f"{size}", data, lambda out, exact=exact: close_to(out, exact)
        yield "gradient", f"{size}", data, lambda out, exact=gradient: close_to(out, exact)


INDEPENDENT = ("alpha", "mu", "q", "l")


def naive_posterior(flat: np.ndarray, data: Message) -> Any:
    d, k, m, gamma = (data[name] for name in ("d", "k", "m", "gamma"))
    parts = np.split(flat, np.cumsum([k, k * d, k * d]))
    alpha, mu, q, below = parts[0], *(each.reshape(k, -1) for each in parts[1:])
    total = 0.0
    factors = []
    for i in range(k):
        factor = np.diag(np.exp(q[i]))
        factor[np.triu_indices(d, 1)[::-1]] = below[i]
        factors.append(factor)
        freedom = d + m + 1
        gammas = sum(math.lgamma(0.5 * (freedom - j)) for j in range(d))
        gammas += d * (d - 1) / 4 * math.log(math.pi)
        total = total + freedom * d * math.log(gamma / math.sqrt(2)) - gammas
        total = total - 0.5 * gamma**2 * (factor**2).sum() + m * q[i].sum()
    weights = np.exp(alpha) / np.exp(alpha).sum()
    for x in data["x"]:
        density = 0.0
        for i in range(k):
            z = factors[i] @ (np.array(x) - mu[i])
            scale = np.exp(q[i].sum()) / (2 * math.pi) ** (d / 2)
            density = density + weights[i] * scale * np.exp(-0.5 * (z**2).sum())
        total = total + np.log(density)
    return total


def gmm() -> Iterator[Case]:
    for d, k, n in ((2, 5, 100), (5, 3, 50)):
        data: Message = {
            "d": d, "k": k, "n": n, "m": 0, "gamma": 1.0,
            "x": RNG.normal(size=(n, d)).tolist(),
            "alpha": RNG.normal(size=k).tolist(),
            "mu": RNG.uniform(size=(k, d)).tolist(),
            "q": (0.1 * RNG.normal(size=(k, d))).tolist(),
            "l": RNG.normal(size=(k, d * (d - 1) // 2)).tolist(),
        }  # fmt: skip
        flat = np.concatenate([np.ravel(data[name]) for name in INDEPENDENT])
        value = naive_posterior(flat, data)
        yield "objective", f"{d}_{k}_{n}", data, lambda out, value=value: close_to(out, value)

        def check(out: Any, flat: Any = flat, data: Any = data) -> bool:
            found = np.concatenate([np.ravel(out[name]) for name in INDEPENDENT])
            return is_gradient(lambda each: naive_posterior(each, data), flat, found)

        yield "jacobian", f"{d}_{k}_{n}", data, check


def naive_error(flat: np.ndarray, feature: np.ndarray) -> Any:
    camera, point, weight = flat[:11], flat[11:14], flat[14]
    rotation, moved = camera[:3], point - camera[3:6]
    angle = np.sqrt((rotation**2).sum())
    axis = rotation / angle
    seen = moved * np.cos(angle) + np.cross(axis, moved) * np.sin(angle)
    seen = seen + axis * (axis @ moved) * (1 - np.cos(angle))
    flat_ = seen[:2] / seen[2]
    squared = (flat_**2).sum()
    distorted = flat_ * (1 + camera[9] * squared + camera[10] * squared**2)
    return weight * (distorted * camera[6] + camera[7:9] - feature)


def ba() -> Iterator[Case]:
    n, m, p = 21, 113, 364
    flat, feature = RNG.normal(size=15), RNG.normal(size=2)
    data = {
        "n": n, "m": m, "p": p, "cam": flat[:11].tolist(), "x": flat[11:14].tolist(),
        "w": float(flat[14]), "feat": feature.tolist(),
    }  # fmt: skip
    errors, of_weight = naive_error(flat, feature), 1 - flat[14] ** 2
    yield (
        "objective",
        "ba",
        data,
        lambda out: (
            out["reproj_error"]["repeated"] == out["w_err"]["repeated"] == p
            and close_to(out["reproj_error"]["elements"], errors)
            and close_to(out["w_err"]["element"], of_weight)
        ),
    )
    jacobian = complex_steps(lambda x: naive_error(x, feature), flat, np.arange(15)).T
    columns = [*range(11), *(11 * n + i for i in range(3)), 11 * n + 3 * m]
    yield (
        "jacobian",
        "ba",
        data,
        lambda out: (
            out["rows"] == [15 * i for i in range(30)] + [31 * p]
            and out["cols"] == columns * 2 + [11 * n + 3 * m + p - 1]
            and close_to(out["vals"], [*jacobian.ravel(), -2 * flat[14]])
        ),
    )


def naive_ode(x: np.ndarray, steps: int) -> Any:
    y, h = np.zeros_like(x), 2.0 / steps

    def slope(y: Any) -> Any:
        return np.concatenate([x[:1], x[1:] * y[:-1]])

    for _ in range(steps):
        k1 = slope(y)
        k2 = slope(y + h * k1 / 2)
        k3 = slope(y + h * k2 / 2)
        k4 = slope(y + h * k3)
        y = y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
    return y


def ode() -> Iterator[Case]:
    for n, steps in ((10, 100), (1000, 10)):
        x = RNG.random(n)
        data, name = {"x": x.tolist(), "s": steps}, f"n={n},s={steps}"
        value = naive_ode(x, steps)
        yield "primal", name, data, lambda out, value=value: close_to(out, value)
        yield (
            "gradient",
            name,
            data,
            lambda out, x=x, steps=steps: is_gradient(
                lambda each: naive_ode(each, steps)[-1], x, out
            ),
        )


def naive_lstm(flat: np.ndarray, shape: tuple[int, int], state: Any, sequence: Any) -> Any:
    layers, bits = shape
    main = flat[: 2 * layers * 4 * bits].reshape(2 * layers, 4 * bits)
    extra = flat[2 * layers * 4 * bits :].reshape(3, bits)
    state, total = state.astype(flat.dtype), 0.0

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    for now, gold in zip(sequence[:-1], sequence[1:]):
        x = now * extra[0]
        for i in range(0, 2 * layers, 2):
            gates = np.concatenate([x, state[i], x, state[i]]) * main[i] + main[i + 1]
            forget, ingate, outgate, change = np.split(gates, 4)
            cell = state[i + 1] * sigmoid(forget) + sigmoid(ingate) * np.tanh(change)
            state[i], state[i + 1] = sigmoid(outgate) * np.tanh(cell), cell
            x = state[i]
        predicted = x * extra[1] + extra[2]
        total = total + (gold * (predicted - np.log(2 + np.exp(predicted).sum()))).sum()
    return -total / sequence[1:].size


def lstm() -> Iterator[Case]:
    for layers, length in ((2, 64), (4, 256)):
        bits = 8
        state = RNG.random((2 * layers, bits))
        sequence = RNG.integers(0, 2, (length, bits)).astype(float)
        main, extra = RNG.random((2 * layers, 4 * bits)), RNG.random((3, bits))
        arrays = {"main_params": main, "extra_params": extra, "state": state, "sequence": sequence}
        data = {name: each.tolist() for name, each in arrays.items()}
        flat = np.concatenate([main.ravel(), extra.ravel()])

        def f(x: Any, layers: int = layers, state: Any = state, sequence: Any = sequence) -> Any:
            return naive_lstm(x, (layers, 8), state, sequence)

        name, value = f"l={layers},c={length}", f(flat)
        yield "objective", name, data, lambda out, value=value: close_to(out, value)
        yield "jacobian", name, data, lambda out, f=f, x=flat: is_gradient(f, x, out)


def saddle() -> Iterator[Case]:
    expected = [8.246324826140356e-06] * 4
    for modes in ("rr", "ff", "fr", "rf"):
        yield modes, "", {"start": [1.0, 1.0]}, lambda out: close_to(out, expected)


EVALS = {each.__name__: each for each in (hello, det, gmm, ba, ode, lstm, saddle)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("evals", nargs="*", metavar="EVAL", help=", ".join(EVALS))
    parser.add_argument("--seconds", type=float, default=0.2, help="of each function, at least")
    args = parser.parse_args()
    tools = {library: Tool(library) for library in ("pullback", "jax")}
    for library, tool in tools.items():
        assert tool.send("start")["tool"] == library
        assert not tool.send("define", module="unknown")["success"]
    failed = False
    print(f"{'eval':28} {'output':>8} {'ms':>10} {'JAX, ms':>10} {'ratio':>6}")
    for name in args.evals or EVALS:
        for tool in tools.values():
            assert tool.send("define", module=name)["success"]
        for function, description, data, check in EVALS[name]():
            if isinstance(data, dict):
                data = {**data, "min_runs": 3, "min_seconds": args.seconds}
            message = {"module": name, "function": function, "input": data}
            label = f"{name} {function} {description}"
            times = {}
            for library, tool in tools.items():
                response = tool.send("evaluate", **message)
                if not response["success"]:
                    if library == "pullback":
                        failed = True
                        print(response["error"])
                    continue
                valid = check(response["output"])
                tool.send("analysis", of=0, valid=valid)
                if library == "pullback":
                    is_valid = valid
                    failed |= not valid
                spent = [each["nanoseconds"] / 1e6 for each in response["timings"]]
                times[library] = statistics.median(spent)
            ours, theirs = times.get("pullback"), times.get("jax")
            shown = [f"{each:10.4f}" if each else f"{'none':>10}" for each in (ours, theirs)]
            ratio = f"{ours / theirs:6.2f}" if ours and theirs else ""
            verdict = "right" if ours and is_valid else "WRONG"
            print(f"{label:28} {verdict:>8} {' '.join(shown)} {ratio}")
    for tool in tools.values():
        tool.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
