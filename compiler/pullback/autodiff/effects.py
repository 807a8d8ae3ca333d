"""Erase side effects from derived functions.

A linear map leaves out effects that depend on its input, as in JAX: there is no such value to show
to the host. A loop that reverse mode rematerializes leaves out all of them: they have happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pullback._jax.ordering import ORDERED
from pullback.autodiff.state import Differentiation
from pullback.errors import NotLinearError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.dependence import dependents
from pullback.ir.inline import inline_call
from pullback.ir.locations import user_line
from pullback.ir.purity import acts, is_used, target_of
from pullback.ir.regions import BRANCHES, blocks, operations, terminator
from pullback.ir.symbols import CALL, CALLS, called
from pullback_runtime.ir._erasure import erase


def erase_effects(diff: Differentiation, block: Any, given: Sequence[Value]) -> None:
    """Erase side-effecting ops that depend on `given` and whose results are unused.

    Raises:
      NotLinearError: the results of one are used.
    """
    if diff.found_in(block.owner.operation, acts) is None:
        return
    while calls := [op for op in _acting(diff, block, given) if _has_steps(diff, op)]:
        for operation in calls:  # of what it does, a part may depend on other values
            inline_call(operation, diff.block(str(called(operation))).owner.operation)
    for operation in reversed(list(_acting(diff, block, given))):
        if any(map(is_used, operation.results)):
            name = target_of(diff.found_in(operation, acts)) or operation.name
            raise NotLinearError(
                f"cannot transpose: `{name}` has an effect that depends on the input, and a result",
                where=user_line(operation.location),
                do="leave out the effect, or let it depend on other values",
            )
        erase(operation)


def _has_steps(diff: Differentiation, operation: Any) -> bool:
    """Return True if an op calls a function that is not just one marked ordered effect."""
    name = called(operation) if operation.name == CALL else None
    return name is not None and ORDERED not in diff.function(name).attributes


def without_effects(diff: Differentiation, name: str) -> str:
    """Return the name of a copy of @name without side effects; @name itself if it has none.

    Results of ops with an effect must be unused: see `Differentiation.check_runs_again`.
    """

    def shows(block: Any) -> bool:
        return diff.found_in(block.owner.operation, acts) is not None

    return diff.changed(name, "silent", shows, partial(_silence, diff))


def _silence(diff: Differentiation, block: Any) -> None:
    for operation in reversed(operations(block)):
        if diff.found_in(operation, acts) is None:
            continue
        callee = called(operation)
        if (acts(operation) or callee is not None) and not any(map(is_used, operation.results)):
            erase(operation)
        elif callee is not None:
            operation.attributes[CALLS[operation.name]] = build.symbol(
                without_effects(diff, callee)
            )
        else:
            for nested in blocks(operation):
                _silence(diff, nested)


def _acting(diff: Differentiation, block: Any, given: Sequence[Value]) -> Iterator[Any]:
    """Yield the ops in a block, at any depth, with an effect that depends on these values."""
    found = dependents(given, block, diff.functions)

    def visit(block: Any, decided: bool) -> Iterator[Any]:
        for operation in operations(block):
            uses = decided or any(v in found for v in operation.operands)
            if acts(operation) or called(operation) is not None:
                if uses and diff.found_in(operation, acts) is not None:
                    yield operation
                continue
            nested = blocks(operation)
            if operation.name in BRANCHES:
                inside = decided or operation.operands[0] in found
            elif operation.name == "stablehlo.while":
                inside = decided or terminator(nested[0]).operands[0] in found
            else:
                inside = decided
            for each in nested:
                yield from visit(each, inside)

    return visit(block, False)
