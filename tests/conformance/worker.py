"""Compares a share of the corpus in a process of its own, writing a line per case as it goes.

A line that begins a case is written before it runs, so that a crash can be told from an end.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, TextIO

import jax

from tests.conformance.comparison import FAILS, Verdict, compare, describe
from tests.conformance.harnesses import Case, all_cases
from tests.conformance.through_jax import WAYS

CLEAR_EVERY = 100
"""Compiled modules stay in memory until then."""


def run(case: Case, way: str = "") -> dict[str, Verdict]:
    """The verdicts of a case; an unexpected error is one, of every stage."""
    try:
        return compare(case, *WAYS[way])
    except Exception as error:
        return dict.fromkeys(WAYS[way][1], Verdict(FAILS, describe(error)))


def work(names: list[str], log: TextIO, way: str) -> None:
    """Compares these cases in turn."""
    for number, name in enumerate(names):
        _write(log, {"begin": name})
        _write(log, {"case": name, "verdicts": run(all_cases()[name], way)})
        if number % CLEAR_EVERY == CLEAR_EVERY - 1:
            jax.clear_caches()


def _write(log: TextIO, record: dict[str, Any]) -> None:
    log.write(json.dumps(record) + "\n")
    log.flush()


def main() -> None:
    """Reads names of cases from standard input and appends to the file that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--through", choices=WAYS, default="")
    options = parser.parse_args()
    with options.log.open("a") as log:
        work(sys.stdin.read().split(), log, options.through)


if __name__ == "__main__":
    main()
