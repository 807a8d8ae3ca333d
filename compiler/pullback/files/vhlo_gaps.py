"""What VHLO cannot hold: CHLO ops, symbols of rules, marks on functions; taken and put back.

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
from pullback.rules.chlo_scan import expand_scans
from pullback_runtime import _mhlo
from pullback_runtime._erasure import erasing
from pullback_runtime._jax import operations_named, operations_where, run_passes

CHLO = "chlo."
CUSTOM_CALL = "stablehlo.custom_call"
TARGET = "call_target_name"
CHECKPOINTS = "checkpoints"
FUNCTION_HINTS = {remat.CHECKPOINT, "no_inline"}
EXPAND = "func.func(chlo-legalize-to-stablehlo)"
Attributes = dict[str, ir.Attribute]
_OF_CALLS = {TARGET, "mhlo.attributes", "mhlo.version", "api_version"}


def wrap_chlo(module: ir.Module, *, expand: bool = True) -> None:
    """Replaces CHLO ops by composites of the same name, in place.

    Args:
      expand: what they decompose to is their expansion. It has no portable form where dimensions
        are symbols; then it is a custom call of that name, in what only `restore` reads.
    """
    expand_scans(module)
    outliner = _Outliner(module, expand)
    for op in operations_where(module, _can_be_wrapped):
        outliner.wrap(op)
    run_passes(module, f"builtin.module({EXPAND})")


def restore(module: ir.Module, *, erase: bool = True) -> None:
    """Puts back, in place, what a portable artifact cannot hold: CHLO ops and symbols of rules.

    Args:
      erase: what is unreachable then; not where private functions are entries as well.
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
    """A composite, and the op and attributes that its name stands for."""
    given = op.attributes.get("composite_attributes", ())
    return op, name, {named.name: named.attr for named in given}


def _of_mhlo(call: ir.Operation) -> tuple[ir.Operation, str, Attributes] | None:
    """The same of what XLA writes for an op of MHLO that StableHLO has not, as in PyTorch/XLA."""
    target = target_of(call) or ""
    name = _mhlo.counterpart(target, call.context) if target.startswith(_mhlo.MHLO) else None
    if name is None or "mhlo.backend_config" in call.attributes:
        return None
    given = {key: value for key, value in call.attributes.items() if key not in _OF_CALLS}
    given.update((each.name, each.attr) for each in call.attributes.get("mhlo.attributes", ()))
    return call, name, given


def _restored(op: ir.Operation, name: str, attributes: Attributes) -> bool:
    """Replaces what stands for an op by this op; whether it does.

    What has such a name and says more, or something else, than the op can stays what it is: the
    decomposition of a composite tells what it computes.
    """
    if not op.context.is_registered_operation(name) or len(op.regions):
        return False
    return _mhlo.replace(op, name, attributes)


def take_checkpoints(module: ir.Module) -> list[str]:
    """The functions of `jax.checkpoint`, without the mark that says so: VHLO has no room for it.

    Nor has it for `no_inline`, which changes no number.
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
    """Marks functions again."""
    symbols = ir.SymbolTable(module.operation)
    with module.context:
        for name in names:
            symbols[name].attributes[remat.CHECKPOINT] = ir.UnitAttr.get()


class _Outliner:
    """Moves ops to functions of their own; equal ops share one."""

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
    """CHLO ops; but those with attributes of CHLO's own are expanded for good, as scans are."""
    if not op.name.startswith(CHLO) or len(op.regions):
        return False
    return not any("#chlo" in str(attribute) for _, attribute in op.attributes.items())
