"""What checks of rules have in common: what they find, and the inputs they try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback._jax.tangent_types import is_inexact
from pullback.frontend.rules.kept_call import Rule
from pullback.tools import slopes

INPUTS = (0.1, 0.9)


@dataclass(frozen=True)
class Finding:
    """What checking one rule in one mode showed; `problem` is None where it agrees.

    With no mode, there was nothing to compare, which says nothing of the rule.
    """

    name: str
    mode: str
    where: str
    difference: float
    problem: str | None = None

    @staticmethod
    def unknown(rule: Rule, problem: str, label: str = "") -> Finding:
        """There was nothing to compare."""
        return Finding(rule.key + label, "", rule.where, float("nan"), problem)

    def __str__(self) -> str:
        if not self.mode:
            return f"skip {self.name}: {self.problem}"
        verdict = self.problem or f"largest relative difference {self.difference:.2g}"
        return f"{'FAIL' if self.problem else 'ok  '} {self.name} {self.mode}: {verdict}"


@dataclass(frozen=True)
class Inputs:
    """Random inputs: floats between two numbers, and both parts of complex ones; coin flips.

    Integers are one: any other may be no index, or no length, of what it is for.
    """

    generator: np.random.Generator
    low: float = INPUTS[0]
    high: float = INPUTS[1]

    def __str__(self) -> str:
        return f"({self.low:g}, {self.high:g})"

    def of_type(self, aval: Any) -> Any:
        """A value of a type."""
        if jnp.issubdtype(aval.dtype, jnp.bool_):
            return jnp.asarray(self.generator.integers(0, 2, aval.shape), aval.dtype)
        if not is_inexact(aval):
            return jnp.ones(aval.shape, aval.dtype)
        return self._floats(aval, self.low, self.high, 256)

    def direction(self, value: Any) -> Any:
        """A tangent or a cotangent of a value, of a size that does not depend on the inputs."""
        return self._floats(value, *INPUTS, 16)

    def _floats(self, like: Any, low: float, high: float, parts: int) -> Any:
        """Numbers; those of 16 bits are multiples of a part, so that they are exact a step apart.

        Of others no two are equal, nor is one where the function is likely to have a kink.
        """
        is_narrow = slopes.precision([like.dtype]).bits <= 16

        def draw() -> Any:
            numbers = self.generator.uniform(low, high, like.shape)
            return np.round(numbers * parts) / parts if is_narrow else numbers

        is_complex = jnp.issubdtype(like.dtype, jnp.complexfloating)
        return jnp.asarray(draw() + 1j * draw() if is_complex else draw(), like.dtype)


def largest(differences: list[float]) -> float:
    """The largest, or one that is no number."""
    return next((each for each in differences if not np.isfinite(each)), max([0.0, *differences]))


def apart(found: np.ndarray, wanted: np.ndarray, digits: float) -> float:
    """The largest difference, relative to the largest number; none up to `digits`."""
    difference = np.abs(found - wanted).max(initial=0.0)
    if difference <= digits:
        return 0.0
    return float(difference / max(np.abs(wanted).max(initial=0.0), digits))


def alike(constants: Sequence[Any], aval: Any) -> list[Any]:
    """The arrays of this type: a rule that closes over one has its values, whatever it is given.

    Any value will do in the place of one that the target computes: the rule has that given.
    """
    return [each for each in constants if (each.shape, each.dtype) == (aval.shape, aval.dtype)]


def inexact(values: Any) -> list[Any]:
    return [value for value in jax.tree.leaves(values) if is_inexact(value)]
