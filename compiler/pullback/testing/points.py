"""The points at which the rule of a call is checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from pullback.testing.slopes import Draw
from pullback.testing.subjects import scale_of

NEAR = 2.0**-5
"""So far from an example, relative to its largest element, are the points near it."""

LARGE = (60.0, 120.0)
"""Spans numbers at which `exp` of 32 bits overflows."""


@dataclass(frozen=True)
class Point:
    """Operands of a call.

    Attributes:
      operands: their values.
      label: what they are.
      is_special: it is one of those at which functions bend, or leave their range.
    """

    operands: list[Any]
    label: str
    is_special: bool = False


def points(
    examples: Sequence[list[Any]], label: str, moved: Sequence[int], draw: Draw, special: bool
) -> Iterator[Point]:
    """Yield points: the examples, random ones near them and elsewhere, and special ones.

    Args:
      examples: values of all operands.
      label: what the examples are.
      moved: the operands that differ between points; the others are those of an example.
      draw: random numbers.
      special: also points far from the examples, at which an iteration need not end.
    """

    def at(operands: list[Any], change: Any) -> list[Any]:
        return [_like(x, change(x)) if i in moved else x for i, x in enumerate(operands)]

    def near(x: Any) -> Any:
        step = NEAR * scale_of(x) * np.asarray(draw.numbers(x, signed=True))
        return (np.asarray(x) + step).astype(x.dtype)

    for example in examples:
        yield Point(example, label)
        yield Point(at(example, near), "near it")
    if not special:
        return
    example = examples[0]
    yield Point(at(example, draw.point), "random in ({:g}, {:g})".format(*draw.bounds))
    yield Point(at(example, lambda x: np.zeros(x.shape, x.dtype)), "zeros", True)
    yield Point(at(example, lambda x: np.full(x.shape, 0.5, x.dtype)), "ties", True)
    yield Point(at(example, lambda x: -draw.numbers(x)), "negative", True)
    yield Point(at(example, lambda x: draw.numbers(x, *LARGE, signed=True)), "large", True)


def _like(example: Any, value: Any) -> Any:
    """Let a value lie on the devices of an example that lies on a mesh."""
    sharding = getattr(example, "sharding", None)
    return jax.device_put(value, sharding) if isinstance(sharding, NamedSharding) else value
