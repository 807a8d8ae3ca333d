"""Fit the reverse mode of a program into a memory budget."""

from __future__ import annotations

import contextlib
import itertools
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.filesize import decimal

from pullback.errors import ArgumentMismatchError, MemoryBudgetError
from pullback.ir.modules import clone
from pullback.passes import manager
from pullback.passes.checkpoint import estimates
from pullback.passes.inline_calls import InlineCalls
from pullback.passes.pipelines import Stage
from pullback.program.record import Record
from pullback.program.residual_table import ResidualTable

Memory = int | str | None
"""A budget in bytes, as a number or a text such as "8MB"; or one of `SCHEDULES`."""

SCHEDULES = ("store", "min-cut", "recompute")


@dataclass(frozen=True)
class Storage:
    """Choose how reverse mode saves memory.

    Attributes:
      store: all that it needs is stored; by default, a minimum cut.
      checkpoint: the option `bytes` of the pass `checkpoint`; None to leave the pass out.
    """

    store: bool = False
    checkpoint: int | None = None


PREPARE: tuple[Stage, ...] = (InlineCalls(), "cse")
"""Runs before the pass `checkpoint`, which changes one function."""

DEFAULT = Storage()
_FIXED = {"store": Storage(store=True), "min-cut": DEFAULT, "recompute": Storage(checkpoint=0)}

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 1 << 10 * i for i, unit in enumerate("kmgt", 1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def read(memory: Memory | Storage) -> int | Storage:
    """Return the bytes of a budget, or the schedule that is named.

    Raises:
      ArgumentMismatchError: it is neither.
    """
    if memory is None:
        return DEFAULT
    if isinstance(memory, Storage):
        return memory
    if isinstance(memory, str) and memory in _FIXED:
        return _FIXED[memory]
    if (size := _size(memory)) > 0:
        return size
    names = ", ".join(f'"{name}"' for name in SCHEDULES)
    raise ArgumentMismatchError(
        f"memory={memory!r} is no number of bytes, and no schedule",
        do=f'give bytes such as 8 << 20, a size such as "8MB" or "8MiB", or one of {names}',
    )


def _size(memory: Any) -> int:
    """Return the bytes that an integer of any library, or a text, says; 0 if it says none."""
    if isinstance(memory, str):
        found = _SIZE.fullmatch(memory.strip())
        return int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else 0
    with contextlib.suppress(TypeError):
        return 0 if isinstance(memory, bool) else operator.index(memory)
    return 0


Derive = Callable[[Storage], Any]
"""Returns the derivative by a schedule."""


def fit(
    program: Record,
    budget: int,
    wrt: tuple[int, ...],
    derive: Derive,
    explain: Callable[[], ResidualTable],
) -> Storage:
    """Return the schedule of least work whose derivative, as XLA compiles it, fits the budget.

    Schedules are tried in the order of their estimated work. The first is the one that is
    estimated to fit; what XLA needs for it corrects the estimate for the next.

    Args:
      wrt: positions of the operands of `@main` that it is differentiated by.
      explain: returns the table of what the derivative stores by default.

    Raises:
      MemoryBudgetError: none fits.
    """
    used = _used(derive(DEFAULT))
    if used <= budget:
        return DEFAULT
    module = clone(program.module)
    manager.run_stages(module, PREPARE, program.rules)
    sizes = estimates(module, program.rules, wrt)
    attempts = _Attempts(sizes, budget, used)
    for i in attempts:
        attempts.note(i, _used(derive(Storage(checkpoint=sizes[i]))))
    if attempts.found is not None:
        return Storage(checkpoint=sizes[attempts.found])
    raise _does_not_fit(budget, min(attempts.used.values()), explain())


def _used(derived: Any) -> int:
    """Return the bytes that XLA needs for a derivative beside arguments and results.

    Of one in two halves, what one half passes to the other counts as well.
    """
    if isinstance(derived, Record):
        return _temporaries(derived)
    return int(derived.residuals().bytes) + max(map(_temporaries, derived))


def _temporaries(program: Any) -> int:
    return int(program.compile().memory().temporaries)


class _Attempts:
    """The search for the first schedule that fits, of estimated bytes that go down.

    Attributes:
      used: bytes that XLA needs for the schedules that were tried.
      found: the first of them that fits.
    """

    def __init__(self, estimates: list[int], budget: int, used: int) -> None:
        self.estimates, self.budget = estimates, budget
        self.used = {0: used}

    @property
    def found(self) -> int | None:
        return min((i for i, used in self.used.items() if used <= self.budget), default=None)

    def note(self, i: int, used: int) -> None:
        self.used[i] = used

    def __iter__(self) -> Iterator[int]:
        """Yield schedules to try."""
        while (i := self._next()) is not None:
            yield i

    def _next(self) -> int | None:
        found = self.found
        end = len(self.estimates) if found is None else found
        below = max(i for i in self.used if i < end)  # does not fit
        open_ = [i for i in range(below + 1, end) if i not in self.used]
        last = found if found is not None else below
        ratio = self.used[last] / max(self.estimates[last], 1)
        likely = [i for i in open_ if self.estimates[i] * ratio <= self.budget]
        if likely:
            return likely[0]
        if found is not None:
            return None
        left = [i for i in range(len(self.estimates)) if i not in self.used]
        return max(left, default=None)


def _does_not_fit(budget: int, least: int, table: ResidualTable) -> MemoryBudgetError:
    lines = itertools.islice(table.by_line().items(), 3)
    stored = "; ".join(f"{decimal(size)} at {line}" for line, size in lines)
    return MemoryBudgetError(
        f"no schedule needs {decimal(budget)} of temporaries or less: the least that was found "
        f"needs {decimal(least)}",
        where=f"by default it stores {stored}" if stored else None,
        do=f"give memory={least} or more, or let these lines store less: smaller batches, or "
        "another float type",
    )
