"""The functions of a module by name, and the removal of those that nobody can reach."""

from __future__ import annotations

from pullback import _jax
from pullback._jax import ir

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


def erase_unreachable(module: ir.Module) -> None:
    """Erases private functions that no public one refers to, by calls or by attributes.

    MLIR's `symbol-dce` also follows the references inside `composite_attributes`.
    """
    manager = _jax.PassManager.parse("builtin.module(symbol-dce)", context=module.context)
    manager.enable_verifier(False)
    manager.run(module.operation)
