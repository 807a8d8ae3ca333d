"""A measurement beside a peer's, and the command that each benchmark is."""

from __future__ import annotations

import dataclasses
import gc
import json as json_format
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import jax

Wanted = Callable[[str], bool]
"""Tells by its name whether a row is asked for."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A measurement beside a peer's.

    Attributes:
      name: what is measured.
      ours: samples, or one number that does not vary.
      theirs: as many of the peer's, taken in turn with ours.
      unit: of the samples.
      family: the rows whose geometric mean is of interest, "" for a row by itself.
      peer: what is measured beside ours.
      aim: the ratio, ours over the peer's, that is aimed at; None if there is no such number.
    """

    name: str
    ours: Sequence[float]
    theirs: Sequence[float]
    unit: str = "ms"
    family: str = ""
    peer: str = "JAX"
    aim: float | None = None

    def summary(self) -> dict[str, Any]:
        """Return medians, and the median and quartiles of the ratios, sample by sample."""
        ratios = sorted(a / b for a, b in zip(self.ours, self.theirs, strict=True))
        low, middle, high = (
            statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        )
        return {
            "name": self.name,
            "family": self.family,
            "peer": self.peer,
            "unit": self.unit,
            "ours": round(statistics.median(self.ours), 4),
            "theirs": round(statistics.median(self.theirs), 4),
            "ratio": round(middle, 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "aim": self.aim,
        }


def benchmark(rows: Callable[[int, Wanted], Iterator[Row]], runs: int) -> click.Command:
    """Return a command that prints rows and geometric means, or writes them to a file.

    Args:
      rows: gives the wanted rows, each of so many runs.
      runs: how many by default.
    """
    module = sys.modules[rows.__module__]

    @click.command(help=(module.__doc__ or "").splitlines()[0])
    @click.option("--runs", default=runs, show_default=True, help="samples of each row")
    @click.option("--only", default="", help="rows whose name contains this")
    @click.option("--json", type=click.Path(path_type=Path), help="write the rows to this file")
    def main(runs: int, only: str, json: Path | None) -> None:
        found = []
        print(f"{'':52} {'ours':>10} {'peer':>10} {'':4} {'ours/peer':>10}  quartiles")
        for row in rows(runs, lambda name: only in name):
            found.append(row.summary())
            print(line(found[-1]), flush=True)
        for family, mean in means(found).items():
            print(f"{'geometric mean, ' + family:79} {mean:10.2f}")
        if json:
            json.write_text(json_format.dumps(found, indent=1) + "\n")

    return main


def line(row: dict[str, Any]) -> str:
    """Return a row as text."""
    numbers = f"{row['ours']:10.4g} {row['theirs']:10.4g} {row['unit']:4} {row['ratio']:10.2f}"
    aim = "" if row["aim"] is None else f", aim {row['aim']}"
    return f"{row['name']:52} {numbers}  {row['low']:.2f} to {row['high']:.2f}{aim}"


def means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the geometric mean of the ratios of each family of two rows or more."""
    families: dict[str, list[float]] = {}
    for row in rows:
        families.setdefault(row["family"], []).append(row["ratio"])
    return {
        family: statistics.geometric_mean(ratios)
        for family, ratios in families.items()
        if family and len(ratios) > 1
    }


def in_turn(
    ours: Callable[[], Any], theirs: Callable[[], Any], runs: int, scale: float = 1e3
) -> tuple[list[float], list[float]]:
    """Return the times of two functions, in milliseconds by default; the first run is not counted.

    Each of them begins every other run.
    """
    mine, others = in_rotation((ours, theirs), runs, scale)
    return mine, others


def in_rotation(
    functions: Sequence[Callable[[], Any]], runs: int, scale: float = 1e3
) -> list[list[float]]:
    """Return the times of some functions, as `in_turn` does; each begins as many runs."""
    count = len(functions)
    times: list[list[float]] = [[] for _ in functions]
    for i in range(runs + 1):
        for side in range(count):
            chosen = (i + 1 + side) % count
            start = time.perf_counter()
            functions[chosen]()
            times[chosen].append((time.perf_counter() - start) * scale)
    return [each[1:] for each in times]


def anew_in_turn(
    ours: Callable[[], Any], theirs: Callable[[], Any], runs: int, cold: bool
) -> tuple[list[float], list[float]]:
    """Return milliseconds of what the two make, which is made anew for each run.

    Args:
      cold: clear JAX's caches before each run.
    """
    times: tuple[list[float], list[float]] = [], []
    for i in range(runs + 1):
        for side in (0, 1) if i % 2 else (1, 0):
            timed = (ours, theirs)[side]()
            if cold:
                jax.clear_caches()
            gc.collect()
            start = time.perf_counter()
            timed()
            times[side].append((time.perf_counter() - start) * 1e3)
    return times[0][1:], times[1][1:]
