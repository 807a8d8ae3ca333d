"""Measure how deep a module is nested: loops, branches and calls, one inside of another."""

from __future__ import annotations

import graphlib
from dataclasses import dataclass, field
from typing import Any

from pullback_runtime import _jax
from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir

MOST = 100
"""XLA ends the process, by a stack overflow, at about 160 calls or 220 loops or branches."""

_CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
_WITH_REGIONS = (
    "builtin.module",
    "chlo.scan",
    "func.func",
    "sdy.manual_computation",
    "stablehlo.all_reduce",
    "stablehlo.async_start",
    "stablehlo.case",
    "stablehlo.if",
    "stablehlo.map",
    "stablehlo.reduce",
    "stablehlo.reduce_scatter",
    "stablehlo.reduce_window",
    "stablehlo.scatter",
    "stablehlo.select_and_scatter",
    "stablehlo.sort",
    "stablehlo.while",
)


@dataclass
class _Nested:
    """The nesting inside one function.

    Attributes:
      depth: of the operation `deepest`, which has regions; 0 for none.
      calls: the largest depth of a call, by the name of the function called.
    """

    depth: int = 0
    deepest: Any = None
    calls: dict[str, int] = field(default_factory=dict)


def nesting(module: Any) -> tuple[int, Any]:
    """Return the depth to which operations with regions and calls nest, and the innermost one.

    The search does not recurse. A call in a cycle of calls counts as one of an empty function.
    """
    functions: dict[str, _Nested] = {}
    todo = [(op.operation, 0, _Nested()) for op in module.body.operations]
    while todo:
        operation, depth, function = todo.pop()
        name = operation.name
        if name == "func.func":
            depth, function = 0, _Nested(deepest=operation)
            functions[ir.StringAttr(operation.attributes["sym_name"]).value] = function
        elif len(operation.regions):
            depth += 1
            if depth > function.depth:
                function.depth, function.deepest = depth, operation
        elif name in _CALLS:
            callee = ir.FlatSymbolRefAttr(operation.attributes[_CALLS[name]]).value
            function.calls[callee] = max(depth + 1, function.calls.get(callee, 0))
        blocks = (block for region in operation.regions for block in region.blocks)
        todo += [(op.operation, depth, function) for block in blocks for op in block.operations]
    return _through_calls(functions)


def _through_calls(functions: dict[str, _Nested]) -> tuple[int, Any]:
    found: dict[str, tuple[int, Any]] = {}
    try:
        order = graphlib.TopologicalSorter({n: f.calls for n, f in functions.items()})
        names = list(order.static_order())  # what is called comes first
    except graphlib.CycleError:
        names = list(functions)
    for name in names:
        function = functions.get(name, _Nested())
        below = [(d + found[n][0], found[n][1]) for n, d in function.calls.items() if n in found]
        found[name] = max([(function.depth, function.deepest), *below], key=lambda each: each[0])
    return max(found.values(), key=lambda each: each[0], default=(0, None))


def refuse_deep(module: Any) -> None:
    """Raise ModuleError if a module is nested so deep that XLA would end the process."""
    if len(_jax.operations_named(module, *_WITH_REGIONS)) <= MOST:  # most are, in no time
        return
    depth, operation = nesting(module)
    if depth > MOST:
        raise ModuleError(
            f"the module is nested {depth} deep: loops, branches and calls inside of each other; "
            f"up to {MOST} are supported",
            where=_jax.place(operation),
            do="write it as a loop: stablehlo.while",
        )
