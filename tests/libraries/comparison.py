"""Derivatives of a program, in memory and from a file, next to JAX's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from tests.libraries.catalogue import LibraryProgram

EQUAL, AS_JAX, DIFFERENT, REFUSED = "equal", "as JAX refused", "DIFFERENT", "REFUSED"
STEP = 1e-5
"""Of finite differences, which take JAX's place where JAX refuses."""
COARSE = 1e-4
"""How far they may be off, at least."""


@dataclass(frozen=True)
class Line:
    """How one check ended; `detail` is an error's first line, or how far numbers are apart."""

    check: str
    status: str
    detail: str = ""

    @property
    def good(self) -> bool:
        """Whether nobody has to look at it."""
        return self.status in (EQUAL, AS_JAX)


def compare(program: LibraryProgram) -> Iterator[Line]:
    """The checks of a program: its rules, the gradient, tangents, and tangents of the gradient.

    Derivatives are those of the program, of what JAX reads of it, and of its file.
    """
    f, args = program.make()
    traced = _attempt(pb.trace(f), *args)
    if isinstance(traced, Exception):
        yield Line("trace", REFUSED, _first_line(traced))
        return
    yield _rules(traced, args)
    point = _Point(f, args, jax.tree.map(_direction, args), program.tolerance)
    expected = {check: point.at(of_jax) for check, of_jax in _jax(f).items()}
    yield from point.lines("memory", _ours(traced), expected)
    refused = AS_JAX if all(isinstance(e, Exception) for e in expected.values()) else REFUSED
    function = _attempt(traced.as_jax)
    if isinstance(function, Exception):
        yield Line("as_jax", refused, _first_line(function))
    else:
        first = {check: expected[check] for check in ("tangent", "gradient")}
        yield from point.lines("as_jax", _jax(function), first)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.mlirbc")
        error = _attempt(lambda: traced.save(file, order=program.order))
        if isinstance(error, Exception):
            yield Line("file: save", refused, _first_line(error))
            return
        loaded = pb.load(file, allow_custom_calls=program.custom_calls)
    if program.order == 1:
        del expected["second"]
    yield from point.lines("file", _ours(loaded), expected)


def _rules(program: Any, args: Any) -> Line:
    """Whether the rules of the library are what they say, by `pullback.testing`."""
    report = _attempt(lambda: pb.testing.check_rules(program, *args, raises=False))
    if isinstance(report, Exception):
        return Line("rules", REFUSED, _first_line(report))
    faults = "; ".join(" ".join(map(str.strip, str(each).splitlines())) for each in report.failed)
    return Line("rules", DIFFERENT if faults else EQUAL, f"{report.summary} {faults}".rstrip())


Derivatives = dict[str, Callable[..., Any]]
"""What each check computes, of arguments and of a tangent for each."""


def _jax(f: Callable[..., Any]) -> Derivatives:
    return {
        "tangent": jax.jit(lambda *given: jax.jvp(f, *_halves(given))),
        "gradient": jax.jit(lambda *given: jax.grad(f, _all(given))(*_halves(given)[0])),
        "second": jax.jit(lambda *given: jax.jvp(jax.grad(f, _all(given)), *_halves(given))),
    }


def _ours(program: Any) -> Derivatives:
    return {
        "tangent": lambda *given: program.jvp()(*given),
        "gradient": lambda *given: program.grad(_all(given))(*_halves(given)[0]),
        "second": lambda *given: program.grad(_all(given)).jvp()(*given),
    }


@dataclass(frozen=True)
class _Point:
    """A function, and where and along what it is differentiated."""

    f: Callable[..., Any]
    args: tuple[Any, ...]
    moved: tuple[Any, ...]
    tolerance: float

    def at(self, derivative: Callable[..., Any]) -> Any:
        """What it gives here, or the error."""
        return _attempt(derivative, *self.args, *self.moved)

    def lines(self, where: str, ours: Derivatives, expected: dict[str, Any]) -> Iterator[Line]:
        """Our derivatives beside what JAX found, or said."""
        for check, theirs in expected.items():
            name, found = f"{where}: {check}", self.at(ours[check])
            if isinstance(found, Exception):
                status = AS_JAX if isinstance(theirs, Exception) else REFUSED
                yield Line(name, status, _first_line(found))
            elif isinstance(theirs, Exception):
                found, theirs = self._differences(check, found, ours["gradient"])
                coarse = max(COARSE, 100 * self.tolerance)
                yield _judged(f"{name}, by differences", found, theirs, coarse)
            else:
                yield _judged(name, found, theirs, self.tolerance)

    def _differences(self, check: str, found: Any, gradient: Callable[..., Any]) -> tuple[Any, Any]:
        """What was found, and what differences say: of gradients, once these are known."""
        if check == "second":
            return found, self._change(lambda *args: gradient(*args, *self.moved))
        value, change = self._change(jax.jit(self.f))
        if check == "tangent":
            return found, (value, change)
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(self.moved), strict=True)
        return sum(jnp.vdot(ct, v) for ct, v in pairs), change

    def _change(self, f: Callable[..., Any]) -> tuple[Any, Any]:
        after, value, before = (
            f(*jax.tree.map(lambda x, v: x + step * v, self.args, self.moved))  # noqa: B023
            for step in (STEP, 0.0, -STEP)
        )
        return value, jax.tree.map(lambda x, y: (x - y) / (2 * STEP), after, before)


def _judged(name: str, found: Any, expected: Any, tolerance: float) -> Line:
    if jax.tree.structure(found) != jax.tree.structure(expected):
        return Line(name, DIFFERENT, "the structure is another one")
    far = _distance(found, expected)
    return Line(name, EQUAL if far <= tolerance else DIFFERENT, f"{far:.1e}")


def _distance(found: Any, expected: Any) -> float:
    """The largest distance of two leaves in their norm; NaN where only one has NaN."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max((_apart(*map(np.asarray, pair)) for pair in pairs), default=0.0)


def _apart(found: np.ndarray, expected: np.ndarray) -> float:
    if found.dtype == jax.dtypes.float0 or np.array_equal(found, expected, equal_nan=True):
        return 0.0
    return float(np.linalg.norm(found - expected) / max(1.0, float(np.linalg.norm(expected))))


def _direction(x: Any) -> Any:
    """A tangent for an array, the same each time."""
    numbers = np.random.default_rng(np.size(x)).standard_normal(np.shape(x))
    return jnp.asarray(numbers, jnp.asarray(x).dtype)


def _halves(given: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    count = len(given) // 2
    return given[:count], given[count:]


def _all(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(range(len(given) // 2))


def _attempt(make: Callable[..., Any], *args: Any) -> Any:
    """What is made, or the error."""
    try:
        return jax.block_until_ready(make(*args))
    except Exception as error:  # of any kind: libraries raise their own
        return error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
