"""Write a program as one HTML page that needs no server and no network."""

from __future__ import annotations

import collections
import html
import json
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from pullback._jax.source_info import Frame
from pullback.ir.lexer import coloured_ir, coloured_python
from pullback.ir.locations import describe, is_installed
from pullback.ir.symbols import FUNC
from pullback.tools.view.listing import ListedOp, Listing
from pullback.tools.view.stages import Stages
from pullback_runtime.files._pattern import Pattern

MOST_CELLS = 128
"""Bound the squares along each side of the plot of a pattern."""

TITLES = {
    "program": "program, with its rules",
    "jvp": "forward mode (jvp)",
    "vjp": "reverse mode (vjp)",
    "grad": "gradient (grad)",
    "stablehlo": "lowered to StableHLO",
}


def page(stages: Stages, title: str, spec: str, written: float | None = None) -> str:
    """Return the page as HTML.

    Args:
      stages: of a program.
      title: of the page, such as the target.
      spec: the name of the file or target; stands in the place of `-`, MLIR's name of any text.
      written: when the program was saved, in seconds since 1970: sources that were changed later
        are marked. None for a program that was traced just now.
    """
    data = json.dumps(page_data(stages, title, spec, written), separators=(",", ":"))
    parts = {
        "title": html.escape(title),
        "style": _part("page.css"),
        "script": _part("page.js"),
        "data": data.replace("<", "\\u003c"),  # ends no script early
    }
    text = _part("page.html")
    for name, part in parts.items():  # the data come last: they may hold the marks of the others
        text = text.replace(f"{{{{{name}}}}}", part)
    return text


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def page_data(stages: Stages, title: str, spec: str, written: float | None) -> dict[str, Any]:
    """Return what the page shows, as plain values. Numbers of ops and values go over all stages."""
    pattern = None if stages.pattern is None else _plot(stages.pattern)
    return _Data(stages, spec, written).all() | {
        "title": title,
        "remark": stages.remark,
        "pattern": pattern,
    }


def _plot(pattern: Pattern) -> dict[str, Any]:
    """Return the squares of a pattern's plot that have a non-zero; each is several entries wide."""
    scale = max(1, -(-max(pattern.shape) // MOST_CELLS))
    cells = np.unique(np.stack([pattern.rows, pattern.cols], 1) // scale, axis=0)
    size = [-(-n // scale) for n in pattern.shape]
    return {"text": str(pattern), "scale": scale, "size": size, "cells": cells.tolist()}


class _Data:
    def __init__(self, stages: Stages, spec: str, written: float | None) -> None:
        self.listings = stages.listings
        self.stored = stages.stored
        self.spec = spec
        self.written = written
        counts = [len(each.ops) for each in self.listings]
        self.first_op = dict(zip((x.stage for x in self.listings), accumulate(counts, initial=0)))
        values = accumulate((len(each.values) for each in self.listings), initial=0)
        self.first_value = dict(zip((x.stage for x in self.listings), values))
        self.places: dict[Frame, int] = {}
        self.names: dict[str, int] = {}

    def all(self) -> dict[str, Any]:
        ops = [
            self._op(listing, op, line)
            for listing in self.listings
            for op, line in zip(listing.ops, self._lines_of(listing), strict=True)
        ]
        return {
            "stages": [self._stage(each) for each in self.listings],
            "ops": ops,
            "makers": [
                self.first_op[each.stage] + maker for each in self.listings for maker in each.makers
            ],
            "carriers": [
                self.first_value[each.stage] + v
                for each in self.listings
                for v in sorted(each.carriers)
            ],
            "functions": list(self._functions()),
            "lines": self._lines(),
            "rules": list(self._rules()),
            "stored": self._stored(),
            "places": [list(place) for place in self.places],
            "names": list(self.names),
            "files": list(self._files()),
        }

    def _stage(self, listing: Listing) -> dict[str, Any]:
        owners = [-1] * len(listing.rows)
        for number, op in enumerate(listing.ops):  # inner ops come later, and take their rows
            start, end = op.rows
            if start != end or owners[start] < 0 or listing.ops[owners[start]].rows != op.rows:
                owners[start : end + 1] = [number] * (end + 1 - start)
        return {
            "name": listing.stage,
            "title": TITLES[listing.stage],
            "rows": coloured_ir("\n".join(listing.rows)),
            "owners": [o if o < 0 else o + self.first_op[listing.stage] for o in owners],
            "values": listing.values,
        }

    def _op(self, listing: Listing, op: ListedOp, places: Sequence[Frame]) -> list[Any]:
        first, value = self.first_op[listing.stage], self.first_value[listing.stage]
        functions = listing.functions
        return [
            self.names.setdefault(op.name, len(self.names)),
            first + functions[op.function],
            *op.rows,
            [value + v for v in op.operands],
            [value + v for v in op.results],
            [self.first_op[stage] + o for stage, found in op.origins.items() for o in found],
            [self.places.setdefault(place, len(self.places)) for place in places],
            op.flops,
            op.bytes,
            op.runs,
            -1 if op.callee not in functions else first + functions[op.callee],
        ]

    def _lines_of(self, listing: Listing) -> list[tuple[Frame, ...]]:
        every = listing.lines(self.listings[0])
        return [tuple((self._file(f), line, name) for f, line, name in lines) for lines in every]

    def _file(self, file: str) -> str:
        return self.spec if file == "-" else file

    def _functions(self) -> Iterator[list[Any]]:
        """Yield op, count of ops, flops and bytes of each function, in all of its runs."""
        for listing in self.listings:
            totals = {name: [0, 0, 0] for name in listing.functions}
            for op in listing.ops:
                if op.name != FUNC:
                    _add(totals[op.function], op)
            for name, number in listing.functions.items():
                yield [self.first_op[listing.stage] + number, *totals[name]]

    def _lines(self) -> list[list[Any]]:
        """Return file, line, then ops, flops and bytes for each stage; an op's innermost line."""
        found: dict[tuple[str, int], list[list[int]]] = {}
        for i, listing in enumerate(self.listings):
            for op, places in zip(listing.ops, self._lines_of(listing), strict=True):
                if places and op.name != FUNC:
                    empty = [[0, 0, 0] for _ in self.listings]
                    _add(found.setdefault(places[0][:2], empty)[i], op)
        return [[*place, *found[place]] for place in sorted(found)]

    def _rules(self) -> Iterator[dict[str, Any]]:
        """Yield each function of the program that has rules, with these and its calls."""
        program = self.listings[0]
        functions = program.functions
        found: dict[str, dict[str, Any]] = {}
        for number, op in enumerate(program.ops):
            if op.rules is None or op.callee is None:
                continue
            rule = found.setdefault(
                op.callee, {"name": op.callee, "functions": {}, "lines": [], "calls": []}
            )
            rule["functions"] |= {k: functions[f] for k, f in op.rules.items() if f in functions}
            rule["calls"].append(number)
        for rule in found.values():
            names = {program.ops[function].function for function in rule["functions"].values()}
            rule["lines"] = list(self._definitions(names))
        yield from found.values()

    def _definitions(self, functions: set[str]) -> Iterator[list[Any]]:
        """Yield file and line of the `def` of each Python function that these were traced from.

        It is the outermost one of the user's on the stack that `@main` was not traced in.
        """
        every = self.listings[0].ops
        around = {name for op in every if op.function == "main" for _, _, name in op.places}
        outermost: set[Frame] = set()
        for op in every:
            if op.function in functions:
                own = (f for f in reversed(op.places) if f[2] not in around)
                outermost |= set(islice((f for f in own if not is_installed(f[0])), 1))
        found = filter(None, (_definition(*place) for place in outermost))
        yield from ([self._file(file), line] for file, line in sorted(set(found)))

    def _stored(self) -> dict[str, Any] | None:
        if self.stored is None:
            return None
        known = {describe(*place): list(place[:2]) for place in self.places}
        return {
            "bytes": self.stored.bytes,
            "values": [
                [r.type, r.bytes, r.op, r.line, r.why, known.get(r.line)]
                for r in sorted(self.stored.stored, key=lambda r: (bool(r.free), -(r.bytes or 0)))
            ],
        }

    def _files(self) -> Iterator[dict[str, Any]]:
        """Yield the files of the user's lines: those of installed packages last."""
        uses = collections.Counter(file for file, _, _ in self.places)
        for file in sorted(uses, key=lambda f: (is_installed(f), -uses[f])):
            path = Path(file)
            known = {"path": file, "installed": is_installed(file), "remark": "", "rows": None}
            try:
                known["rows"] = coloured_python(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError):
                known["remark"] = "this file is not here; these are the lines that ops come from"
            else:
                if self.written is not None and path.stat().st_mtime > self.written:
                    known["remark"] = "changed after the program was saved: lines may have moved"
            yield known


def _definition(file: str, line: int, name: str) -> tuple[str, int] | None:
    """Return the place of the `def` of the function that a line is in; None if it is not there."""
    try:
        rows = Path(file).read_text(encoding="utf-8").splitlines()[:line]
    except (OSError, UnicodeDecodeError):
        return None
    begins = re.compile(rf"\s*(async )?def {re.escape(name.rpartition('.')[2])}\b")
    return next(((file, i) for i in range(len(rows), 0, -1) if begins.match(rows[i - 1])), None)


def _add(total: list[int], op: ListedOp) -> None:
    total[0] += 1
    total[1] += op.flops * op.runs
    total[2] += op.bytes * op.runs
