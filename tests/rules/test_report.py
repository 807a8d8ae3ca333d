"""docs/rules.md agrees with the rule table, and every rule has a record and a lit file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullback.rules import registry, report
from tests.rules import harness

ROOT = Path(__file__).resolve().parents[2]


def test_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == report.report(), "run `make docs`"


@pytest.mark.parametrize(
    ("row", "op"),
    [
        ("| `stablehlo.sine` | yes | yes | elementwise |", "stablehlo.sine"),
        ("| `stablehlo.floor` | zero | zero | piecewise constant |", "stablehlo.floor"),
        ("| `stablehlo.bitcast_convert` | error | error |  |", "stablehlo.bitcast_convert"),
    ],
)
def test_rows(row: str, op: str) -> None:
    lines = [line for line in report.report().splitlines() if f"`{op}`" in line]
    assert lines == [row]


# Tested where their passes are: tests/passes.
CONTROL = {"func.call", "stablehlo.composite", "stablehlo.while", "stablehlo.if", "stablehlo.case"}
# An annotation, and an old name of all_reduce that XLA no longer imports.
LIT_ONLY = {"sdy.sharding_constraint", "stablehlo.cross-replica-sum"}


def test_every_rule_has_a_test() -> None:
    """A record, or for what needs several devices a program of its own, names the op."""
    registry.load_all()
    files = Path(__file__).parent.glob("*.py")
    text = "\n".join(path.read_text() for path in files if path.name != Path(__file__).name)
    found = {case.op.strip() for case in harness.all_cases()} | CONTROL | LIT_ONLY
    assert [op for op in registry.RULES if op not in found and op not in text] == []


def test_every_rule_has_a_lit_file() -> None:
    registry.load_all()
    files = (ROOT / "lit_tests" / "rules").glob("*/*.mlir")
    shown = {f"{path.parent.name}.{path.stem}" for path in files}
    names = {op.replace("-", "_") for op in registry.RULES}
    assert names - shown - CONTROL == set()
