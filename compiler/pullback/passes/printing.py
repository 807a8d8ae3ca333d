"""Print modules under the printing flags of mlir-opt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pullback._jax import ir
from pullback.errors import PipelineError


@dataclass(frozen=True)
class Printing:
    """Say how to print a module: the flags of mlir-opt, whose names follow each.

    Attributes:
      elide_larger_than: `--mlir-elide-elementsattrs-if-larger`
      debuginfo: `--mlir-print-debuginfo`
      generic: `--mlir-print-op-generic`
      nameloc_as_prefix: `--mlir-use-nameloc-as-prefix`
      value_users: `--mlir-print-value-users`
    """

    elide_larger_than: int | None = None
    debuginfo: bool = False
    generic: bool = False
    nameloc_as_prefix: bool = False
    value_users: bool = False


PLAIN = Printing()


def print_module(module: ir.Module, how: Printing = PLAIN) -> str:
    """Return the text of a module."""
    text: str = module.operation.get_asm(
        large_elements_limit=how.elide_larger_than,
        enable_debug_info=how.debuginfo,
        pretty_debug_info=False,
        print_generic_op_form=how.generic,
        use_name_loc_as_prefix=how.nameloc_as_prefix,
    )
    return _with_users(module, text) if how.value_users else text


_RESULTS = re.compile(r"\s*(%[\w$.-]+(?::\d+)?(?:, %[\w$.-]+(?::\d+)?)*) = ")
_BRIEF_REDUCE = " applies "
"""Stands in the text of a stablehlo.reduce whose region is one op, which has no line then."""


def _with_users(module: ir.Module, text: str) -> str:
    """Add a comment to the line of each op with results: the users of these, as mlir-opt does."""
    lines = text.split("\n")
    numbers = iter([number for number, line in enumerate(lines) if _RESULTS.match(line)])
    at: list[tuple[int, ir.Operation]] = []
    names: dict[ir.Value, str] = {}

    def visit(op: ir.Operation) -> None:
        brief = False
        if len(op.results):
            at.append((next(numbers, -1), op))
            line = lines[at[-1][0]]
            names.update(zip(op.results, _names(line), strict=False))
            brief = _BRIEF_REDUCE in line and op.name == "stablehlo.reduce"
        if not brief:
            for each in _inside(op):
                visit(each)

    visit(module.operation)
    if next(numbers, None) is not None or any(number < 0 for number, _ in at):
        raise PipelineError(
            "--mlir-print-value-users cannot tell which line is which op",
            do="print the generic form: --mlir-print-op-generic",
        )
    for number, op in at:
        lines[number] += f"  // {_users(op, names)}"
    return "\n".join(lines)


def _inside(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            yield from (each.operation for each in block.operations)


def _names(line: str) -> list[str]:
    """Return the names of the results on a line: `%0:2` are `%0#0` and `%0#1`."""
    match = _RESULTS.match(line)
    assert match is not None
    names: list[str] = []
    for group in match[1].split(", "):
        name, colon, count = group.partition(":")
        names += [f"{name}#{index}" for index in range(int(count))] if colon else [name]
    return names


def _users(op: ir.Operation, names: dict[ir.Value, str]) -> str:
    """Return the users of each result: by the names of their results, else by that of the op."""
    users = [
        list(dict.fromkeys(use.owner.operation for use in reversed(list(result.uses))))
        for result in op.results
    ]
    texts = [
        ", ".join(", ".join(names[r] for r in each.results) or each.name for each in found)
        for found in users
    ]
    if len(texts) > 1:
        return "users: " + ", ".join(f"({text or 'unused'})" for text in texts)
    if not users[0]:
        return "unused"
    return f"{'users' if len(users[0]) > 1 else 'user'}: {texts[0]}"
