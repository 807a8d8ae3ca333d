"""Patterns of ops, matched from a value to what it is made of."""

from __future__ import annotations

from typing import Any

from pullback.ir.build import Value, enumerator, is_result_of, one_number
from pullback.ir.regions import operands_of

Pattern = Any
"""Describes what a value may be.

A string is a variable: the same value wherever it stands, and any value for `"_"`. A number is a
constant of that number. `(op, *patterns)` is the result of an op with these operands; `op` is a
name in StableHLO, as in `"add"`, with the direction of a comparison, as in `"compare EQ"`.
`("as", variable, pattern)` is a variable that matches a pattern.
"""


def match(v: Value, pattern: Pattern, found: dict[str, Value]) -> bool:
    """Return True if a value matches with the variables in `found`; add the others to it."""
    if isinstance(pattern, str):
        return pattern == "_" or found.setdefault(pattern, v) == v
    if isinstance(pattern, int | float):
        return one_number(v) == pattern
    head, *operands = pattern
    if head == "as":
        return match(v, operands[0], found) and match(v, operands[1], found)
    name, _, direction = head.partition(" ")
    if not is_result_of(v, f"stablehlo.{name}"):
        return False
    op = v.owner.operation
    if direction and enumerator(op.attributes["comparison_direction"]) != direction:
        return False
    return all(match(each, p, found) for each, p in zip(operands_of(op), operands, strict=True))
