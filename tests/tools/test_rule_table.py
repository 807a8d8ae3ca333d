"""The page of rules says what the rule table has."""

from __future__ import annotations

import pytest

from pullback.tools import rule_table


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
