"""Find the pattern of a linear map that a program computes, by sparsity analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pullback._jax import prng_keys, tracing
from pullback.autodiff.sparsity import NOTHING, Fact, Facts, Sparsity
from pullback.ir.index_sets import distinct
from pullback.ir.symbols import functions
from pullback.program.argument_leaves import Slot
from pullback.program.record import Record


class Entries(NamedTuple):
    """Say where a matrix may have non-zeros: row by row, each once."""

    rows: np.ndarray
    cols: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> Entries:
        """Return the entries, sorted, without duplicates."""
        keys = distinct(rows.astype(np.int64) * max(shape[1], 1) + cols)
        found = keys // max(shape[1], 1), keys % max(shape[1], 1)
        return cls(*(part.astype(np.int32) for part in found))


def entries(program: Any, inputs: Sequence[Slot], results: Sequence[Slot]) -> Entries:
    """Return which element of some results depends on which of some arguments, on any platform.

    Args:
      program: what forward or reverse mode derived, by whose rules the results are linear in the
        inputs. It may be one of several platforms.
      inputs: leaves of its arguments, the columns; one after the other.
      results: leaves of its result, the rows.
    """
    lowered = program.run_passes("lower-custom-derivatives")
    found = [
        _of_platform(lowered.for_platform(name), inputs, results) for name in lowered.platforms
    ]
    shape = sum(slot.size for slot in results), sum(slot.size for slot in inputs)
    rows, cols = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Entries.of(rows, cols, shape)


def _of_platform(
    program: Record, inputs: Sequence[Slot], results: Sequence[Slot]
) -> tuple[np.ndarray, np.ndarray]:
    table = functions(program.module)
    analysis = Sparsity(table, sum(slot.size for slot in inputs))
    facts = _facts(program)
    first = 1  # the number of the set of the first element alone
    for slot in inputs:
        facts[slot.position] = Fact(np.arange(first, first + slot.size).reshape(slot.shape))
        first += slot.size
    found = analysis.block(table["main"].regions[0].blocks[0], facts, {})
    parts = [
        np.zeros(slot.size, np.int64) if fact.ids is None else fact.ids.ravel()
        for slot in results
        for fact in [found[slot.position]]
    ]
    cols, rows = analysis.sets.members(np.concatenate([np.zeros(0, np.int64), *parts]))
    return rows, cols


def _facts(program: Record) -> Facts:
    """Return what is known of the operands of `@main`: the arrays that the function closed over."""
    known = [
        NOTHING
        if array is None or tracing.is_tracer(array) or not array.is_fully_addressable
        else Fact(None, np.asarray(prng_keys.physical(array)))
        for array in program.constants
    ]
    return [*known, *[NOTHING] * len(program.in_avals)]
