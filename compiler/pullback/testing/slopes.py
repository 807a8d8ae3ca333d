"""Compute slopes of a function along a line by central differences, each with an error bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

FIRST_STEP = 2.0**-4
RATIO = 4.0
"""The largest step relative to the point, and by how much each next one is smaller."""

STEPS = {2: 2, 4: 5, 8: 9}
"""Counts steps, by the bytes of a real number: the last is where rounding is as large."""

COLUMNS = 3
"""To this order are steps extrapolated."""

ULPS = 4.0
"""By so many units in the last place is a value of the function wrong."""

SAFETY = 2.0
"""Times the difference of extrapolations: the error that is believed."""

GRAINS = (1.0, 1.7, 2.9)
"""Steps to about the neighbours of a point, in its precision: no two of them alias alike."""

LEAST = 2.0**-34
"""The least of these steps, relative to the point: in 64 bits, rounding is 1e-5 of a slope."""

BOUNDS = (0.1, 0.9)
"""Random numbers are between these, unless others are asked for."""

Arrays = list[np.ndarray]
Run = Callable[[float], list[Any]]
"""Returns the results at a distance along a line."""


@dataclass(frozen=True)
class Slope:
    """The slopes of one result, element by element.

    Attributes:
      value: of both sides.
      error: how far the true one may be from it; infinite where there is none.
      low, high: the slopes of the two sides, the smaller one first.
      bends: these differ: the function has a kink.
      unsteady: how far the slopes over larger steps are apart.
      grain: how far slopes to neighbours of the point are apart from it; infinite where they are
        others altogether, so that the function is not resolved.
    """

    value: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    bends: np.ndarray
    unsteady: np.ndarray
    grain: np.ndarray


def along(run: Run, epsilon: float, size: int, scale: float, precision: float = 0.0) -> list[Slope]:
    """Return the slope of each result along a line, by Ridders' method.

    Args:
      run: returns the results at a distance.
      epsilon: of the type that the function computes with.
      size: bytes of a real number of that type.
      scale: of the point: the largest step is `FIRST_STEP` of it.
      precision: of the type of the point, where the function computes in 64 bits.
    """
    steps = [scale * FIRST_STEP / RATIO**j for j in range(STEPS[size])]
    center = reals(run(0.0))
    right = [reals(run(step)) for step in steps]
    left = [reals(run(-step)) for step in steps]
    slopes = []
    with np.errstate(all="ignore"):
        for k, middle in enumerate(center):
            sides = [each[k] for each in left], middle, [each[k] for each in right]
            slopes.append(_slope(*sides, steps, epsilon))
        if precision:
            near = [scale * max(precision, LEAST) * each for each in GRAINS]
            after, before = ([reals(run(sign * step)) for step in near] for sign in (1, -1))
            for k, middle in enumerate(center):
                sides = [each[k] for each in before], middle, [each[k] for each in after]
                grain = _grain(slopes[k], *sides, near, epsilon)
                slopes[k] = replace(slopes[k], grain=grain)
    return slopes


def _grain(
    slope: Slope,
    left: Arrays,
    middle: np.ndarray,
    right: Arrays,
    steps: list[float],
    epsilon: float,
) -> np.ndarray:
    """Return how far slopes to the neighbours of a point are apart from those of its sides."""
    step = np.reshape(steps, (-1, *[1] * middle.ndim))
    after, before = (np.stack(right) - middle) / step, (middle - np.stack(left)) / step
    sides = np.concatenate([after, before])
    outside = np.fmax(sides - slope.high, slope.low - sides).max(0)
    moved = np.where(slope.bends, 0.0, np.abs(after[0] - before[0]))
    grain = np.fmax(outside, moved) - SAFETY * _rounding(middle, epsilon) / steps[0]
    return np.where(grain > 0, grain, 0.0)


def _slope(
    left: Arrays, middle: np.ndarray, right: Arrays, steps: list[float], epsilon: float
) -> Slope:
    noise = [_rounding(middle, epsilon) / step for step in steps]
    both = [(b - a) / (2 * step) for a, b, step in zip(left, right, steps, strict=True)]
    after = [(b - middle) / step for b, step in zip(right, steps, strict=True)]
    before = [(middle - a) / step for a, step in zip(left, steps, strict=True)]
    value, error = _extrapolated(both, noise, RATIO**2, RATIO**2)
    (low, below), (high, above) = (_extrapolated(x, noise, RATIO, RATIO) for x in (before, after))
    apart = np.abs(high - low) - 3 * (below + above)
    bends = apart > 1e-3 * np.fmax(np.abs(low), np.abs(high))
    ends = low - below, low + below, high - above, high + above
    coarse = np.stack(both[:6])
    unsteady = SAFETY * (coarse.max(0) - coarse.min(0))
    return Slope(
        value,
        error,
        np.fmin(ends[0], ends[2]),
        np.fmax(ends[1], ends[3]),
        bends,
        unsteady,
        np.zeros_like(value),
    )


def _rounding(values: np.ndarray, epsilon: float) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return ULPS * epsilon * float(finite.max(initial=0.0))


def _extrapolated(
    rough: Arrays, noise: list[float], first: float, factor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each element the extrapolation that agrees best with those it is made of.

    Its error is no less than how far those over smaller steps are from it: steps of a function
    can agree by accident.
    """
    table, power = [np.stack(rough)], first  # by column, then by step
    for k in range(min(COLUMNS, len(rough) - 1)):
        table.append((power * table[k][1:] - table[k][:-1]) / (power - 1))
        power *= factor
    rounding = np.reshape(noise, (-1, *[1] * rough[0].ndim))
    values, errors = np.full((2, len(table), *table[0].shape), np.inf)
    for k in range(1, len(table)):
        parts = [np.abs(table[k] - each) for each in (table[k - 1][1:], table[k - 1][:-1])]
        values[k, k:], errors[k, k:] = table[k], SAFETY * np.maximum(*parts) + rounding[k:]
    errors = np.where(np.isfinite(errors), errors, np.inf)
    chosen = errors.reshape(-1, *rough[0].shape).argmin(0)[None]
    best, least = (
        np.take_along_axis(each.reshape(-1, *rough[0].shape), chosen, 0)[0]
        for each in (values, errors)
    )
    last = np.stack(
        [table[min(j, len(table) - 1)][max(0, j - len(table) + 1)] for j in range(len(rough))]
    )
    is_finer = np.reshape(np.arange(len(rough)), rounding.shape) > chosen % len(rough)
    further = np.where(is_finer, np.abs(last - best) - 3 * rounding, 0.0).max(0)
    return np.where(np.isfinite(least), best, np.nan), np.fmax(least, further)


def reals(values: Sequence[Any]) -> Arrays:
    """Return float64 arrays; real and imaginary part of complex numbers are the last dimension."""
    found = []
    for value in values:
        array = np.asarray(value)
        is_complex = jnp.issubdtype(array.dtype, jnp.complexfloating)
        array = array.astype(np.complex128 if is_complex else np.float64)
        found.append(np.stack([array.real, array.imag], -1) if is_complex else array)
    return found


def paired(cts: Sequence[Any]) -> Arrays:
    """Return cotangents as `reals` do, so that `inner` is the real part of JAX's pairing."""
    halves = zip(reals(cts), cts, strict=True)
    return [
        array * np.array([1.0, -1.0]) if jnp.issubdtype(ct.dtype, jnp.complexfloating) else array
        for array, ct in halves
    ]


def inner(left: Arrays, right: Arrays) -> float:
    """Return the sum of all products of corresponding elements."""
    return float(sum(np.sum(a * b) for a, b in zip(left, right, strict=True)))


class Draw:
    """Random numbers for tangents, cotangents and points.

    Args:
      seed: of the generator.
      bounds: of the numbers of points.
    """

    def __init__(self, seed: int = 0, bounds: tuple[float, float] = BOUNDS) -> None:
        self.generator = np.random.default_rng(seed)
        self.bounds = bounds

    def point(self, like: Any) -> Any:
        """Return floats of this type between the bounds."""
        return self.numbers(like, *self.bounds)

    def numbers(
        self, like: Any, low: float = BOUNDS[0], high: float = BOUNDS[1], signed: bool = False
    ) -> Any:
        """Return floats of this type; of 16 bits, multiples of 1/16, so that steps are exact."""

        def draw() -> Any:
            found = self.generator.uniform(low, high, like.shape)
            if signed:
                found = found * self.generator.choice([-1.0, 1.0], like.shape)
            return np.round(found * 16) / 16 if jnp.finfo(like.dtype).bits <= 16 else found

        is_complex = jnp.issubdtype(like.dtype, jnp.complexfloating)
        return np.asarray(draw() + 1j * draw() if is_complex else draw()).astype(like.dtype)

    def directions(self, like: Any, few: bool = False) -> Iterator[Any]:
        """Yield tangents: with random signs, of all elements, of the first and the last alone.

        A mistake in one element must not be lost in the sum of all.
        """
        yield self.numbers(like, signed=True)
        if not few:
            yield self.numbers(like)
        for element in sorted({0, 0 if few else like.size - 1}) if like.size > 1 else ():
            mask = np.arange(like.size).reshape(like.shape) == element
            yield np.where(mask, self.numbers(like), 0).astype(like.dtype)
