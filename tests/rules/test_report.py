"""docs/rules.md agrees with the rule table."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullback.tools import rule_table

ROOT = Path(__file__).resolve().parents[2]


def test_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == rule_table.report(), "run `make docs`"


@pytest.mark.parametrize(
    ("row", "op"),
    [
        ("| `stablehlo.sine` | yes | yes | yes | elementwise |", "stablehlo.sine"),
        ("| `stablehlo.floor` | zero | zero | yes | piecewise constant |", "stablehlo.floor"),
        (
            "| `stablehlo.bitcast_convert` | error | error | yes | reads bits, not numbers; zero "
            "of the sign and exponent alone |",
            "stablehlo.bitcast_convert",
        ),
    ],
)
def test_rows(row: str, op: str) -> None:
    lines = [line for line in rule_table.report().splitlines() if f"`{op}`" in line]
    assert lines == [row]
