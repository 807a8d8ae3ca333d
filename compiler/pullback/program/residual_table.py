"""Tables of what reverse mode stores between its two sweeps, and of what it recomputes."""

from __future__ import annotations

import collections
import dataclasses
import html
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.filesize import decimal

from pullback.ir import notebook

WIDTH = 200


@dataclass(frozen=True)
class Residual:
    """A value that is stored for the backward sweep.

    Attributes:
      type: its dtype and shape, such as `float32[5,4,8]`.
      bytes: its size; None if a dimension is dynamic.
      op: the op that made it, such as `tanh`, or the function of a call with a rule.
      line: the user's line of that op.
      loops: the loops that stack it, from outside: how often they run, and their lines.
      free: why it costs nothing more, as for an argument; empty otherwise.
      kept: the line of the checkpoint whose policy keeps it; empty otherwise.
      on_host: whether it is in the memory of the host in between.
    """

    type: str
    bytes: int | None
    op: str
    line: str
    loops: tuple[str, ...] = ()
    free: str = ""
    kept: str = ""
    on_host: bool = False

    @property
    def why(self) -> str:
        """Say what the value is, beside the op that made it."""
        stacked = [f"loop {loop}" for loop in self.loops]
        kept = [f"kept by checkpoint {self.kept}"] * bool(self.kept)
        on_host = ["on the host"] * self.on_host
        return "; ".join([*[self.free] * bool(self.free), *stacked, *kept, *on_host])


@dataclass(frozen=True)
class Recomputed:
    """Equal ops of one line that the backward sweep recomputes.

    Attributes:
      op: its name.
      line: the user's line.
      runs: how often one runs; a loop of unknown trip count counts once.
      elements: how many numbers they compute, in all runs.
    """

    op: str
    line: str
    runs: int
    elements: int


@dataclass(frozen=True)
class ResidualTable:
    """What reverse mode stores and recomputes; `str` is a table, sorted by bytes of a line.

    Attributes:
      stored: the residuals.
      recomputed: what is recomputed from them.
    """

    stored: tuple[Residual, ...]
    recomputed: tuple[Recomputed, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all residuals that are not arguments or results of the function."""
        return sum(each.bytes or 0 for each in self.stored if not each.free)

    def by_line(self) -> dict[str, int]:
        """Return the bytes stored for each of the user's lines, the largest first."""
        found: dict[str, int] = collections.defaultdict(int)
        for each in self.stored:
            if not each.free:
                found[each.line] += each.bytes or 0
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def to_json(self) -> str:
        """Return the table as JSON: `bytes`, `stored` and `recomputed`."""
        return json.dumps({"bytes": self.bytes, **dataclasses.asdict(self)}, indent=2)

    def __str__(self) -> str:
        return "".join(_table(*each) for each in self._tables()).rstrip()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the same tables, that of what is stored open."""
        return notebook.page(
            *(
                notebook.fold(html.escape(title), notebook.table(columns, rows), is_open=i == 0)
                for i, (title, columns, rows) in enumerate(self._tables())
            )
        )

    def _tables(self) -> Iterator[tuple[str, Sequence[str], list[tuple[str, ...]]]]:
        """Yield the title, the columns and the rows of each table."""
        places = {line: i for i, line in enumerate(self.by_line())}
        rows = sorted(self.stored, key=lambda r: (r.free, places.get(r.line), -(r.bytes or 0)))
        yield (
            f"stored for the backward sweep: {decimal(self.bytes)}",
            ("bytes", "type", "op", "line", ""),
            [(_size(r), r.type, r.op, r.line, r.why) for r in rows],
        )
        again = sorted(self.recomputed, key=lambda r: -r.elements)
        if again:
            yield (
                "computed again",
                ("elements", "runs", "op", "line"),
                [(f"{r.elements:,}", str(r.runs), r.op, r.line) for r in again],
            )


def _size(residual: Residual) -> str:
    if residual.free:
        return "-"
    return "?" if residual.bytes is None else decimal(residual.bytes)


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    from rich.console import Console  # slow to import, and most programs print no table
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left", title_style="", box=None)
    table.columns[0].justify = "right"
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=WIDTH, color_system=None, highlight=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
