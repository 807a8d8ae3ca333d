"""What one test record of an op is: a function that holds the op, and inputs to try it on.

    Case("stablehlo.sine", jax.lax.sin, [real(2, 3)])
    Case("stablehlo.map", MLIR_TEXT_WITH_A_MAIN, [real(4)], reference=lambda x: jnp.sin(x))

The tests in test_rules.py are written once and run on every record of `cases.py` and of the files
`cases_*.py` beside it, each of which defines a list `CASES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Arg:
    """A random argument: elements between `low` and `high`, of a real or complex type."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    complex: bool = False
    apart: bool = False  # all elements differ by at least (high - low) / (2 size)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        if self.complex:
            return self._real(rng) + 1j * self._real(rng)
        return self._real(rng)

    def _real(self, rng: np.random.Generator) -> np.ndarray:
        if not self.apart:
            return np.asarray(rng.uniform(self.low, self.high, self.shape))
        size = math.prod(self.shape)
        steps = (rng.permutation(size) + rng.uniform(0.25, 0.75, size)) / max(size, 1)
        return np.asarray(self.low + (self.high - self.low) * steps).reshape(self.shape)


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Arg:
    """Random float64."""
    return Arg(shape, low, high)


def cplx(*shape: int, low: float = -2.0, high: float = 2.0) -> Arg:
    """Random complex128; `low` and `high` bound both parts."""
    return Arg(shape, low, high, complex=True)


def distinct(*shape: int, low: float = -2.0, high: float = 2.0) -> Arg:
    """Random float64 without ties: for max, sort and the like."""
    return Arg(shape, low, high, apart=True)


def ints(values: Any, dtype: Any = np.int32) -> np.ndarray:
    """An integer argument."""
    return np.asarray(values, dtype)


def floats(values: Any) -> np.ndarray:
    """A float64 argument with exactly these values: edge cases."""
    return np.asarray(values, np.float64)


def tensor(shape: Sequence[int], element: str = "f64") -> str:
    """A tensor type, for modules written as text."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


@dataclass(frozen=True)
class Case:
    """One op under test.

    Attributes:
      op: the full name; the lowered function must contain it.
      function: a JAX function that lowers to the op without our keep step, or the text of an MLIR
        module with a public `@main`.
      args: one entry per argument: an Arg, or an array with given values.
      label: tells apart the records of one op.
      reference: the JAX function to compare with; `function` itself if that is one.
      against_jax: False where JAX has no derivative, or one that we mean to differ from.
      numeric: False at points where finite differences mean nothing (ties, kinks, poles).
      second: False leaves out second order.
      tolerance: relative, of comparisons with JAX.
      dtypes: further element types in which the derived IR must verify.
      rewrite: applied to the text of the derived module, where XLA's CPU backend lacks the op.
    """

    op: str
    function: Callable[..., Any] | str
    args: Sequence[Arg | np.ndarray]
    label: str = ""
    reference: Callable[..., Any] | None = None
    against_jax: bool = True
    numeric: bool = True
    second: bool = True
    tolerance: float = 1e-9
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    rewrite: Callable[[str], str] | None = None

    @property
    def name(self) -> str:
        return f"{self.op}-{self.label}" if self.label else self.op

    @property
    def jax_function(self) -> Callable[..., Any] | None:
        """What JAX is asked to differentiate, if anything."""
        if not self.against_jax:
            return None
        return self.reference or (None if isinstance(self.function, str) else self.function)
