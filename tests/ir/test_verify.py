"""The page, the verifier and the lit files name the same constraints."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LABEL = re.compile(r"(?:custom_jvp_call|custom_vjp_call|linear_call|composite)_c\d+")


def documented() -> set[str]:
    page = (ROOT / "docs" / "dialect.md").read_text()
    return set(re.findall(rf"^- \(({LABEL.pattern})\)", page, re.MULTILINE))


def covered_by_lit() -> set[str]:
    files = (ROOT / "lit_tests" / "dialect").glob("*/invalid.mlir")
    return {
        label
        for file in files
        for label in re.findall(rf"expected-error @\+1 \{{\{{({LABEL.pattern}):", file.read_text())
    }


def test_every_documented_constraint_has_a_lit_case_and_the_other_way_round() -> None:
    assert len(documented()) == 28
    assert documented() == covered_by_lit()


def test_constraints_of_an_op_are_numbered_without_gaps() -> None:
    by_op: dict[str, list[int]] = {}
    for label in documented():
        op, number = label.rsplit("_c", 1)
        by_op.setdefault(op, []).append(int(number))
    for numbers in by_op.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
