"""The functions of a module by name, who refers to them, and the removal of those out of reach."""

from __future__ import annotations

import itertools

from pullback import _jax
from pullback._jax import ir
from pullback_runtime._jax import operations_named

FUNC = "func.func"
CALL = "func.call"

CALLS = {CALL: "callee", "stablehlo.composite": "decomposition"}
"""Ops that compute what a function does, and the attribute that names it."""


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """Name to `func.func`, in the order of the module."""
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: op
        for op in (opview.operation for opview in module.body.operations)
        if op.name == FUNC
    }


def is_public(function: ir.Operation) -> bool:
    """Whether code outside the module may call this function."""
    attributes = function.attributes
    if "sym_visibility" not in attributes:
        return True
    return ir.StringAttr(attributes["sym_visibility"]).value == "public"


def is_declaration(function: ir.Operation) -> bool:
    """Whether the function has no body."""
    return len(function.regions[0].blocks) == 0


def callee(call: ir.Operation) -> str:
    """Name of the function that a `func.call` calls."""
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def called(operation: ir.Operation) -> str | None:
    """Name of the function that the results of an op come from, if it is a call."""
    attribute = CALLS.get(operation.name)
    return attribute and ir.FlatSymbolRefAttr(operation.attributes[attribute]).value


def leave_copy(module: ir.Module, entry: str) -> None:
    """Leaves what calls or names `entry` a private copy, for a pass changes the entry in place.

    The function of a rule may call what it is the rule of. An entry that calls itself gets none:
    the pass says that there is no recursion.
    """
    known = functions(module)
    if len(known) == 1:
        return
    calls = (op for f in known.values() for kind in CALLS for op in operations_named(f, kind))
    if entry not in known or not any(entry in _named(op) for op in calls):
        return
    if _calls_itself(known, entry):
        return
    numbered = (f"{entry}.primal_{i}" for i in itertools.count())
    name = next(n for n in itertools.chain([f"{entry}.primal"], numbered) if n not in known)
    copy = known[entry].clone(ir.InsertionPoint(module.body))
    with module.context:
        copy.attributes["sym_name"] = ir.StringAttr.get(name)
        copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
        ir.SymbolTable.replace_all_symbol_uses(entry, name, module.operation)


def _named(operation: ir.Operation) -> list[str | None]:
    """The functions that a call names: the one that it calls, and those of rules."""
    name = "composite_attributes"
    attributes = ir.DictAttr(operation.attributes[name]) if name in operation.attributes else ()
    values = (attribute.attr for attribute in attributes)
    symbols = (value for value in values if isinstance(value, ir.FlatSymbolRefAttr))
    return [called(operation), *(symbol.value for symbol in symbols)]


def _calls_itself(known: dict[str, ir.Operation], entry: str) -> bool:
    seen, pending = set[str | None](), [known[entry]]
    while pending:
        function = pending.pop()
        names = {called(op) for kind in CALLS for op in operations_named(function, kind)}
        pending += [known[name] for name in names - seen if name in known]
        seen |= names
    return entry in seen


def erase_unreachable(module: ir.Module) -> None:
    """Erases private functions that no public one refers to, by calls or by attributes.

    MLIR's `symbol-dce` also follows the references inside `composite_attributes`.
    """
    manager = _jax.PassManager.parse("builtin.module(symbol-dce)", context=module.context)
    manager.enable_verifier(False)
    manager.run(module.operation)
