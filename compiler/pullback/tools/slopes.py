"""Compute central differences of a function, and how far a derivative may be from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

STEP = {2: 1 / 16, 4: 1 / 128, 8: 2.0**-17}
"""The step by the size of a real number: about the cube root of epsilon. A power of two, so that
the points of few bits are exact."""

ULPS = 4.0
"""By so many units in the last place is a value of the function wrong."""

FINER = 16
"""By so much is the step smaller where the function may bend too often to tell its slope."""

SIGNS = 3
"""So many directions with random signs: in a sum along one, an element that is wrong stands out."""

SMALL = 1e-2
"""What is smaller than this part of the largest element is compared with that part."""

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Slope:
    """The slope of real numbers along a direction, with bounds on its errors.

    Attributes:
      value: central differences.
      spread: twice the largest difference of a piece's slope from it: the function may bend there.
      noise: how far rounding of the function may move it.
    """

    value: np.ndarray
    spread: np.ndarray
    noise: np.ndarray

    def difference(self, found: np.ndarray, scale: Any, tolerance: float) -> float:
        """Return the largest relative difference, or a found number that is not finite.

        If it could be within the tolerance, given spread and noise, only the sure part counts.
        """
        if not np.all(np.isfinite(found)):
            return float(found[~np.isfinite(found)][0])
        apart = np.abs(found - self.value)
        size = np.maximum(np.maximum(np.abs(found), np.abs(self.value)), SMALL * scale)
        size = np.maximum(size, np.finfo(np.float64).tiny)
        sure = np.maximum(apart - self.spread - self.noise, 0.0) / size
        open_to_doubt = (apart > tolerance * size) & (sure <= tolerance)
        return float(np.where(open_to_doubt, sure, apart / size).max(initial=0.0))

    def corrected(self, finer: Slope) -> Slope:
        """Return the finer slope where it differs by more than its noise; else this one."""
        is_other = np.abs(finer.value - self.value) > finer.noise
        pairs = (
            (finer.value, self.value),
            (finer.spread, self.spread),
            (finer.noise, self.noise),
        )
        return Slope(*(np.where(is_other, *pair) for pair in pairs))

    def sum_of_bends(self, tolerance: float) -> float:
        """Return the spread of the elements that bend sharply, which a sum of all may hide."""
        sharp = self.spread > tolerance * np.abs(self.value) + self.noise
        return float(np.sum(self.spread, where=sharp))


@dataclass(frozen=True)
class Line:
    """Values of a function at points of a line: one float64 array per result and point.

    Attributes:
      tangents: the direction.
      step: the unit of the points.
      values: by the point.
      epsilon: of the type that the function computes with.
    """

    tangents: list[Any]
    step: float
    values: dict[float, Arrays]
    epsilon: float

    def only(self, where: Arrays) -> Line:
        """Return the line with zeros outside of the masks."""
        values = {
            at: [np.where(*each, 0.0) for each in zip(where, found, strict=True)]
            for at, found in self.values.items()
        }
        return replace(self, values=values)

    def slopes(self) -> list[Slope]:
        """Return the slope of each result, element by element."""
        sides = zip(*(self.values[at] for at in POINTS), strict=True)
        return [self._slope(side, np.full(side[2].shape, self._noise(side[2]))) for side in sides]

    def slope_along(self, cts: Arrays, tolerance: float) -> tuple[Slope, float]:
        """Return the slope of the inner product with cotangents, and the size of its summands."""
        sums = [inner(cts, self.values[at]) for at in POINTS]
        parts = [
            Slope(ct * slope.value, np.abs(ct) * slope.spread, np.abs(ct) * slope.noise)
            for ct, slope in zip(cts, self.slopes(), strict=True)
        ]
        whole = self._slope(sums, np.sqrt(sum(np.sum(part.noise**2) for part in parts)))
        bends = sum(part.sum_of_bends(tolerance) for part in parts)
        scale = sum(float(np.sum(np.abs(part.value))) for part in parts)
        return replace(whole, spread=np.maximum(whole.spread, bends)), scale

    def _slope(self, values: Sequence[np.ndarray], noise: np.ndarray) -> Slope:
        value = (values[-1] - values[0]) / (2 * self.step)
        pieces = [
            np.abs((after - before) / (self.step / 2) - value)
            for before, after in itertools.pairwise(values)
        ]
        return Slope(value, 2 * np.maximum.reduce(pieces), noise)

    def _noise(self, values: np.ndarray) -> float:
        return ULPS * self.epsilon * float(np.abs(values).max(initial=0.0)) / self.step


POINTS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def reals(values: Sequence[Any]) -> Arrays:
    """Return float64 arrays; real and imaginary part of complex numbers are the last dimension."""
    found = []
    for value in values:
        array = np.asarray(value)
        is_complex = jnp.issubdtype(array.dtype, jnp.complexfloating)
        wide = array.astype(np.complex128 if is_complex else np.float64)
        found.append(np.stack([wide.real, wide.imag], -1) if is_complex else wide)
    return found


def paired(cts: Sequence[Any]) -> Arrays:
    """Return cotangents as `reals` do, so that `inner` is the real part of JAX's pairing."""
    halves = zip(reals(cts), cts, strict=True)
    return [
        array * np.array([1.0, -1.0]) if jnp.issubdtype(ct.dtype, jnp.complexfloating) else array
        for array, ct in halves
    ]


def line(
    function: Callable[..., list[Any]],
    args: list[Any],
    tangents: list[Any],
    precision: Any,
    finer: bool = False,
) -> Line:
    """Evaluate the function around the arguments in a direction.

    Args:
      function: returns the results that have slopes.
      args: of the function.
      tangents: the direction of each.
      precision: the narrowest type that the function computes with.
      finer: whether the points lie closer, unless that type has 16 bits.
    """
    step = STEP[precision.bits // 8] / (FINER if finer and precision.bits > 16 else 1)

    def at(place: float) -> list[Any]:
        pairs = zip(args, tangents, strict=True)
        return function(*((arg + place * step * t).astype(arg.dtype) for arg, t in pairs))

    values = {place: reals(at(place)) for place in POINTS}
    return Line(tangents, step, values, float(precision.eps))


def where_finite(lines: Sequence[Line]) -> Arrays:
    """Return masks of where results (both parts) are finite in all points of all lines."""
    found = None
    for values in (each for line in lines for each in line.values.values()):
        finite = [np.isfinite(value) for value in values]
        found = finite if found is None else [a & b for a, b in zip(found, finite, strict=True)]
    return found or []


def precision(types: Iterable[Any]) -> Any:
    """Return the `finfo` of the narrowest of the types; of a complex one, that of its parts."""
    return min((jnp.finfo(dtype) for dtype in types), key=lambda info: (info.bits, -info.eps))


def directions(
    draw: Callable[[Any], Any], generator: np.random.Generator, values: Sequence[Any]
) -> Iterator[list[Any]]:
    """Yield (co)tangents of values: of all, of each alone, and of their first and last elements.

    A mistake in one of many must not be lost in the sum of all.
    """
    yield [draw(value) for value in values]
    for _ in range(SIGNS):
        yield [_signed(draw(value), generator) for value in values]
    for index, value in enumerate(values):
        alone = [jnp.zeros_like(each) for each in values]
        if len(values) > 1:
            yield _replaced(alone, index, _signed(draw(value), generator))
        for element in sorted({0, value.size - 1}) if value.size > 1 else ():
            mask = np.arange(value.size).reshape(value.shape) == element
            yield _replaced(alone, index, jnp.where(mask, draw(value), 0).astype(value.dtype))


def _signed(value: Any, generator: np.random.Generator) -> Any:
    signs = generator.choice([-1, 1], np.shape(value))
    return (value * jnp.asarray(signs, value.dtype)).astype(value.dtype)


def _replaced(values: list[Any], index: int, value: Any) -> list[Any]:
    return [*values[:index], value, *values[index + 1 :]]


def inner(left: Arrays, right: Arrays) -> np.ndarray:
    """Return the sum of all products of corresponding elements."""
    return np.asarray(sum(np.sum(a * b) for a, b in zip(left, right, strict=True)))
