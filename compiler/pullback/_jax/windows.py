"""Windows that choose an element each: JAX has primitives for them, and no public functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax._src.lax import windowed_reductions

Padding = Sequence[tuple[int, int]]

_CHOICES = {"GE": lax.ge_p, "LE": lax.le_p}


def select_and_scatter_add(
    source: Any,
    operand: Any,
    choice: str,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Padding,
) -> Any:
    """Add each element of `source` where a window of the operand has its greatest ('GE') element.

    With 'LE', where it has its least.
    """
    return windowed_reductions._select_and_scatter_add(
        source, operand, _CHOICES[choice], sizes, strides, padding
    )
