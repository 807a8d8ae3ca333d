"""The report on a NaN: where it was made, of what, and how it came to a result."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir import notebook

INDENT = 12
MOST_STEPS = 8


@dataclass(frozen=True)
class NanOperand:
    """An operand of the op that made the NaN.

    Attributes:
      value: the whole array.
      element: an element that the NaN depends on, and its index; None if all of them count.
      source: where an infinity in it comes from, if it has one.
    """

    value: np.ndarray[Any, Any]
    element: tuple[int, ...] | None = None
    source: str | None = None

    def __str__(self) -> str:
        text = _spelt(self.value)
        if self.element is not None and self.value.ndim:
            text += f", at {list(self.element)}: {_number(self.value[self.element])}"
        return text + (f"\n  infinite by {self.source}" if self.source else "")


@dataclass(frozen=True)
class NanPlace:
    """An op of a program, in the user's terms.

    Attributes:
      op: its name, such as `stablehlo.log`.
      primitive: JAX's primitive that it was lowered or derived from: in a derivative, that of the
        primal op.
      line: the user's line, such as `model.py:12, in loss`.
      is_near: the op is in a function of JAX's own, which this line calls or whose result it uses.
      around: the calls, iterations and branches that it is in, the outermost first.
    """

    op: str
    primitive: str | None
    line: str | None
    is_near: bool = False
    around: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.op}, of `{self.primitive}`" if self.primitive else self.op
        return f"{text} {'near' if self.is_near else 'at'} {self.line}" if self.line else text


@dataclass(frozen=True)
class NanReport:
    """Where a NaN was made that reaches a result of a program; `str` of it is for people.

    Attributes:
      what: "NaN", or "inf or NaN".
      origin: the op that makes it of operands without one; or, if an argument of the program has
        it already, which one.
      rule: the derivative rule that the op's line is in, such as "`bwd`, a rule of `f`".
      operands: what the op computes with.
      value: the result of the op, or the argument.
      element: the index of the first such element in it that reaches a result.
      count: the number of such elements in it that reach a result.
      through: the ops that it passed on its way to a result.
      result: the name of the result, and the index of an element of it.
      mixer: an op on the way that may not propagate this NaN, but another one: it counts as if each
        element of its result depended on all elements of its operands.
    """

    what: str
    origin: NanPlace | str
    rule: str | None
    operands: tuple[NanOperand, ...]
    value: np.ndarray[Any, Any]
    element: tuple[int, ...]
    count: int
    through: tuple[str, ...]
    result: str
    mixer: str | None = None

    def __str__(self) -> str:
        return "\n".join([self._title, *(_row(*each) for each in self._rows())])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show in IPython what `str` returns."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the same rows as a table."""
        rows = notebook.table(("", ""), list(self._rows()))
        return notebook.page(notebook.fold(html.escape(self._title), rows, is_open=True))

    @property
    def _title(self) -> str:
        is_made = isinstance(self.origin, NanPlace)
        return f"{self.what} {'made by' if is_made else 'in'} {self.origin}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each row."""
        around = self.origin.around if isinstance(self.origin, NanPlace) else ()
        rows = [
            ("rule", self.rule),
            *(("in", each) for each in reversed(around)),
            *((f"operand {i}", str(each)) for i, each in enumerate(self.operands)),
            ("value", self._value()),
            *(("through", each) for each in _shortened(self.through)),
            ("reaches", self.result),
            ("unless", self.mixer and f"{self.mixer} takes it from another element"),
        ]
        return ((name, text) for name, text in rows if text)

    def _value(self) -> str:
        size = self.value.size
        where = f", at {list(self.element)}" if self.value.ndim else ""
        return f"{_spelt(self.value)}{where}" + (f" ({self.count} of {size})" if size > 1 else "")


def _row(name: str, text: str) -> str:
    first, *rest = text.splitlines()
    lines = [f"  {f'{name}:':{INDENT}}{first}", *(" " * (INDENT + 2) + line for line in rest)]
    return "\n".join(lines)


def _shortened(steps: tuple[str, ...]) -> list[str]:
    if len(steps) <= MOST_STEPS:
        return list(steps)
    half = MOST_STEPS // 2
    return [*steps[:half], f"… {len(steps) - 2 * half} more", *steps[-half:]]


def _spelt(x: np.ndarray[Any, Any]) -> str:
    """Return the type of an array, and its elements if they are few."""
    shape = ",".join(map(str, x.shape))
    text = f"{x.dtype}[{shape}]"
    return f"{text} {_number(x)}" if x.size <= 8 else text


def _number(x: Any) -> str:
    x = np.asarray(x)
    if x.dtype.kind == "V" or x.dtype.name in ("bfloat16", "float16"):
        x = x.astype(np.float32)
    return " ".join(np.array2string(x, precision=6).split())
