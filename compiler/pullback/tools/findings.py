"""Share between checks of rules: their findings, and the random inputs they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback._jax.tangent_types import is_inexact
from pullback.frontend.rules.kept_call import KeptCall
from pullback.tools import slopes

INPUTS = (0.1, 0.9)


@dataclass(frozen=True)
class Finding:
    """The outcome of checking one rule in one mode; `problem` is None if it agrees.

    An empty mode says that there was nothing to compare, so that the rule may be right or wrong.
    """

    name: str
    mode: str
    where: str
    difference: float
    problem: str | None = None

    @staticmethod
    def unknown(rule: KeptCall, problem: str, label: str = "") -> Finding:
        """Return the finding that there was nothing to compare."""
        return Finding(rule.key + label, "", rule.where, float("nan"), problem)

    def __str__(self) -> str:
        if not self.mode:
            return f"skip {self.name}: {self.problem}"
        verdict = self.problem or f"largest relative difference {self.difference:.2g}"
        return f"{'FAIL' if self.problem else 'ok  '} {self.name} {self.mode}: {verdict}"


@dataclass(frozen=True)
class Inputs:
    """Random inputs: floats (and both parts of complex numbers) between two numbers; coin flips.

    Integers are one: any other might be out of range as an index or a length.
    """

    generator: np.random.Generator
    low: float = INPUTS[0]
    high: float = INPUTS[1]

    def __str__(self) -> str:
        return f"({self.low:g}, {self.high:g})"

    def of_type(self, aval: Any) -> Any:
        """Return a random value of a type."""
        if jnp.issubdtype(aval.dtype, jnp.bool_):
            return jnp.asarray(self.generator.integers(0, 2, aval.shape), aval.dtype)
        if not is_inexact(aval):
            return jnp.ones(aval.shape, aval.dtype)
        return self._floats(aval, self.low, self.high, 256)

    def direction(self, value: Any) -> Any:
        """Return a tangent or cotangent of a value, of a size that `low`, `high` do not set."""
        return self._floats(value, *INPUTS, 16)

    def _floats(self, like: Any, low: float, high: float, parts: int) -> Any:
        """Return random numbers; with 16 bits, multiples of 1/parts, so that steps are exact.

        Of others no two are equal, and none is likely to be at a kink of the function.
        """
        is_narrow = slopes.precision([like.dtype]).bits <= 16

        def draw() -> Any:
            numbers = self.generator.uniform(low, high, like.shape)
            return np.round(numbers * parts) / parts if is_narrow else numbers

        is_complex = jnp.issubdtype(like.dtype, jnp.complexfloating)
        return jnp.asarray(draw() + 1j * draw() if is_complex else draw(), like.dtype)


def largest(differences: list[float]) -> float:
    """Return the largest difference, or one that is not finite."""
    return next((each for each in differences if not np.isfinite(each)), max([0.0, *differences]))


def apart(found: np.ndarray, wanted: np.ndarray, digits: float) -> float:
    """Return the largest difference relative to the largest number; 0 if it is up to `digits`."""
    difference = np.abs(found - wanted).max(initial=0.0)
    if difference <= digits:
        return 0.0
    return float(difference / max(np.abs(wanted).max(initial=0.0), digits))


def alike(constants: Sequence[Any], aval: Any) -> list[Any]:
    """Return the constants of this type: a rule that closes over one has its values in it.

    For one that the target computes, any value will do: the rule has that as an argument.
    """
    return [each for each in constants if (each.shape, each.dtype) == (aval.shape, aval.dtype)]


def inexact(values: Any) -> list[Any]:
    return [value for value in jax.tree.leaves(values) if is_inexact(value)]
