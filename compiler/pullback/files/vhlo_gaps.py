"""Encode what VHLO cannot hold, and restore it: CHLO ops, symbols of rules, marks on functions.

Expanding `chlo.erf` for good would trade its derivative rule for that of a polynomial, so a save
wraps the op as `stablehlo.composite "chlo.erf"` around its expansion, as XLA's own export does,
and any StableHLO tool runs it. The functions of `jax.checkpoint` stand in the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pullback import _jax
from pullback._jax import ir, remat
from pullback.ir import ops
from pullback.ir.purity import target_of
from pullback.ir.regions import replace_op
from pullback.ir.symbols import erase_unreachable, symbol
from pullback.rules.derived import expand_op
from pullback_runtime._jax import operations_named, operations_where, run_passes
from pullback_runtime.ir import _mhlo
from pullback_runtime.ir._erasure import erasing

CHLO = "chlo."
CUSTOM_CALL = "stablehlo.custom_call"
TARGET = "call_target_name"
CHECKPOINTS = "checkpoints"
FUNCTION_HINTS = {remat.CHECKPOINT, "no_inline"}
EXPAND = "func.func(chlo-legalize-to-stablehlo)"
Attributes = dict[str, ir.Attribute]
_OF_CALLS = {TARGET, "mhlo.attributes", "mhlo.version", "api_version"}


def wrap_chlo(module: ir.Module, *, expand: bool = True) -> None:
    """Replace CHLO ops with composites of the same name, in place.

    Args:
      expand: decompose the composites to the expansion of the op. That has no portable form if
        dimensions are symbols; without `expand` it is a custom call, which only `restore` reads.
    """
    with _jax.working_in(module):
        for op in operations_named(module, "chlo.scan"):
            expand_op(op)
    outliner = _Outliner(module, expand)
    for op in operations_where(module, _can_be_wrapped):
        outliner.wrap(op)
    run_passes(module, f"builtin.module({EXPAND})")


def restore(module: ir.Module, *, erase: bool = True) -> None:
    """Restore, in place, what a portable artifact cannot hold: CHLO ops and symbols of rules.

    Args:
      erase: erase functions that are unreachable then; not if private functions are entries.
    """
    composites = ops.named_composites(module)
    ops.restore_symbol_refs(op for name, op in composites if name.startswith(ops.PREFIX))
    calls = operations_named(module, CUSTOM_CALL)
    wrapped = [_of_composite(name, op) for name, op in composites if name.startswith(CHLO)]
    wrapped += filter(None, map(_of_mhlo, calls))
    with erasing():
        restored = [_restored(*each) for each in wrapped]
    if any(restored) and erase:
        erase_unreachable(module)


def _of_composite(name: str, op: ir.Operation) -> tuple[ir.Operation, str, Attributes]:
    """Return a composite, and the name and attributes of the op that it stands for."""
    given = op.attributes.get("composite_attributes", ())
    return op, name, {named.name: named.attr for named in given}


def _of_mhlo(call: ir.Operation) -> tuple[ir.Operation, str, Attributes] | None:
    """Return a call that stands for an MHLO op, and the name and attributes of our op for it.

    XLA writes such custom calls for MHLO ops that StableHLO lacks, as in PyTorch/XLA. None for
    other calls.
    """
    target = target_of(call) or ""
    name = _mhlo.counterpart(target, call.context) if target.startswith(_mhlo.MHLO) else None
    if name is None or "mhlo.backend_config" in call.attributes:
        return None
    given = {key: value for key, value in call.attributes.items() if key not in _OF_CALLS}
    given.update((each.name, each.attr) for each in call.attributes.get("mhlo.attributes", ()))
    return call, name, given


def _restored(op: ir.Operation, name: str, attributes: Attributes) -> bool:
    """Replace an op that stands for another with that one; return False if it is left alone.

    It is left alone if it says something that the other cannot: the decomposition of a composite
    tells what it computes.
    """
    if not op.context.is_registered_operation(name) or len(op.regions):
        return False
    return _mhlo.replace(op, name, attributes)


def take_checkpoints(module: ir.Module) -> list[str]:
    """Remove the marks of functions to rematerialize, and return the names of these functions.

    VHLO cannot hold the marks; nor can it hold `no_inline`, which changes no number, and goes too.
    """
    marked = []
    for function in module.body.operations:
        attributes = function.operation.attributes
        if remat.CHECKPOINT in attributes:
            marked.append(symbol(function.operation))
        for name in FUNCTION_HINTS & set(attributes.keys()):
            del attributes[name]
    return marked


def put_checkpoints(module: ir.Module, names: Iterable[str]) -> None:
    """Mark these functions as ones to rematerialize."""
    symbols = ir.SymbolTable(module.operation)
    with module.context:
        for name in names:
            symbols[name].attributes[remat.CHECKPOINT] = ir.UnitAttr.get()


class _Outliner:
    """Outlines ops to functions of their own, shared by equal ops."""

    def __init__(self, module: ir.Module, expand: bool):
        self.module = module
        self.expand = expand
        self.symbols = ir.SymbolTable(module.operation)
        self.functions: dict[Any, str] = {}

    def wrap(self, op: ir.Operation) -> None:
        types = [operand.type for operand in op.operands], [result.type for result in op.results]
        attributes = dict(op.attributes.items())
        key = op.name, str(types), str(attributes)
        if key not in self.functions:
            self.functions[key] = self._outline(op, *types)
        composite = ir.Operation.create(
            ops.COMPOSITE,
            results=types[1],
            operands=list(op.operands),
            attributes={
                "name": ir.StringAttr.get(op.name, op.context),
                "decomposition": ir.FlatSymbolRefAttr.get(self.functions[key], op.context),
                "composite_attributes": ir.DictAttr.get(attributes, op.context),
            },
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        replace_op(op, composite.results)

    def _outline(self, op: ir.Operation, inputs: list[ir.Type], outputs: list[ir.Type]) -> str:
        with op.location, ir.InsertionPoint(self.module.body):
            kind = ir.FunctionType.get(inputs, outputs)
            function = _jax.func.FuncOp(f"{op.name}.impl", kind, visibility="private")
            body = function.add_entry_block()
            with ir.InsertionPoint(body):
                name, attributes = op.name, dict(op.attributes.items())
                if not self.expand:
                    name, attributes = CUSTOM_CALL, {TARGET: ir.StringAttr.get(op.name)}
                copy = ir.Operation.create(
                    name, results=outputs, operands=list(body.arguments), attributes=attributes
                )
                _jax.func.ReturnOp(list(copy.results))
        return self.symbols.insert(function).value


def _can_be_wrapped(op: ir.Operation) -> bool:
    """Return True for CHLO ops without CHLO attributes or regions; others are expanded for good."""
    if not op.name.startswith(CHLO) or len(op.regions):
        return False
    return not any("#chlo" in str(attribute) for _, attribute in op.attributes.items())


SHARDING_HINT = "sdy.sharding_rule"


def drop_sharding_hints(module: ir.Module) -> None:
    """Remove `sdy.sharding_rule`, a partitioner's hint on custom calls, which VHLO cannot hold."""
    for op in operations_where(module, lambda op: SHARDING_HINT in op.attributes):
        del op.attributes[SHARDING_HINT]
