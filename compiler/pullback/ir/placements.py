"""Values in the memory of the host: the custom call by which XLA moves a value there and back.

JAX lowers `jax.device_put(x, jax.memory.Space.Host)` to the same, for every platform but the CPU.
"""

from __future__ import annotations

from typing import Any

from pullback._jax import ir, remat
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.dataflow import NO, YES, Known, Query, Sources
from pullback.ir.purity import PLACEMENT, target_of
from pullback.ir.regions import BRANCHES, WHILE, blocks, operands_of, terminator
from pullback_runtime.ir._module import MEMORY_KIND

DEVICE, HOST = "device", "pinned_host"
"""Kinds of memory, as JAX names them."""

_CALL = "stablehlo.custom_call"
_OPTIONS = "composite_attributes"  # a file leaves them out where there are none
_FRONTEND, _BUFFER = "mhlo.frontend_attributes", "_xla_buffer_placement"


def placed(v: Value, memory: str) -> Value:
    """Emit the placement of a value in a kind of memory, and return the value there."""
    attributes = {
        "call_target_name": build.string(PLACEMENT),
        "has_side_effect": ir.BoolAttr.get(True),
        _FRONTEND: ir.DictAttr.get({_BUFFER: build.string(memory)}),
    }
    return build.emit1(_CALL, v.type, [v], attributes)


def is_placement(operation: Any) -> bool:
    """Return True if an op moves a value to a memory."""
    return target_of(operation) == PLACEMENT


def is_placed(v: Value) -> bool:
    """Return True if a value is the result of a placement."""
    return not isinstance(v, ir.BlockArgument) and is_placement(v.owner.operation)


def memory_of(mark: Any) -> str | None:
    """Return the memory that a `checkpoint.saved` moves its value to; None if it stays."""
    attributes = mark.attributes
    named = ir.DictAttr(attributes[_OPTIONS]) if _OPTIONS in attributes else {}
    return ir.StringAttr(named[remat.MEMORY]).value if remat.MEMORY in named else None


_KEPT_IN_PLACE = frozenset(
    f"stablehlo.{name}" for name in "broadcast_in_dim composite dynamic_slice reshape slice".split()
)
"""Ops whose result is where their first operand is; of composites, the marks."""


class _OnHost(Query):
    """Ask whether a value was moved to the host, or is a stack of such values."""

    def sources(self, v: Value, known: Known) -> Sources:
        if isinstance(v, ir.BlockArgument):
            return NO
        operation = v.owner.operation
        if is_placed(v):
            named = ir.DictAttr(operation.attributes[_FRONTEND])
            return YES if ir.StringAttr(named[_BUFFER]).value == HOST else NO
        if operation.name in _KEPT_IN_PLACE:
            return [operation.operands[0]], False
        if operation.name == "stablehlo.dynamic_update_slice":
            return [operation.operands[1]], False
        if operation.name == WHILE:  # a stack starts as zeros
            return [terminator(blocks(operation)[1]).operands[v.result_number]], False
        if operation.name in BRANCHES:
            return [terminator(b).operands[v.result_number] for b in blocks(operation)], True
        return super().sources(v, known)


def note_results(function: Any, functions: dict[str, Any]) -> None:
    """Note which results of an entry are on the host, as XLA requires."""
    results = operands_of(terminator(blocks(function)[0]))
    query, known = _OnHost(functions), Known()
    found = [query.holds(v, known) for v in results]
    if any(found):
        note = {MEMORY_KIND: build.string(HOST)}
        attributes = [ir.DictAttr.get(note if there else {}) for there in found]
        function.attributes["res_attrs"] = ir.ArrayAttr.get(attributes)
