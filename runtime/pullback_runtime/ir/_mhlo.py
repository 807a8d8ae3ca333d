"""Read ops of MHLO, XLA's own dialect, as those of StableHLO and CHLO that they stand for.

XLA writes StableHLO, and MHLO where StableHLO has no such op: TensorFlow's modules have `mhlo.erf`
among ops of StableHLO. jaxlib has the dialect, and no pass that leads from it. torch-mlir leaves
some constants in the dialect `arith`: these are read in the same way.
"""

from __future__ import annotations

import functools
import re

from pullback_runtime._jax import ir
from pullback_runtime.ir._erasure import erase, erasing

MHLO = "mhlo."
OTHER_NAMES = {"topk": "chlo.top_k"}
"""Ops whose counterpart has another name."""

CONSTANT = "arith.constant"
"""An op of another dialect, which is read as `stablehlo.constant` if its result is a tensor."""

COPY = "mhlo.copy"
"""An op that is replaced by its operand: it only tells XLA to copy in memory."""

DEFAULTS = {
    "backend_config": '""',
    "custom_call_schedule": "#mhlo<custom_call_schedule NONE>",
    "has_side_effect": "false",
    "largest": "true",
}
"""Default values of attributes, with which the counterpart may lack them."""

_SPELT_OTHERWISE = re.compile(r"#mhlo\.(rng_algorithm|rng_distribution)<(\w+)>")
_IN_BYTES = re.compile(rb'\0(mhlo|arith)\0|arith\.constant|mhlo\.[\w.]+"?(\(|\s+(?!=))')
"""The name of a dialect in bytecode, and of an op in text: `mhlo.erf %x`, or `"mhlo.erf"(%x)`.

Attributes with names such as `mhlo.num_partitions` are in each module that JAX lowers.
"""


def may_be_in(content: bytes) -> bool:
    """Return False for the text or bytecode of a module that surely has no op to replace."""
    return _IN_BYTES.search(content) is not None


def counterpart(name: str, context: ir.Context) -> str | None:
    """Return the op of StableHLO or CHLO that does what an op of MHLO does, if there is one."""
    short = name.removeprefix(MHLO)
    names = (
        [OTHER_NAMES[short]] if short in OTHER_NAMES else [f"stablehlo.{short}", f"chlo.{short}"]
    )
    if not context.is_registered_operation(name):
        return None
    return next(filter(context.is_registered_operation, names), None)


def read(module: ir.Module) -> None:
    """Replace each op of MHLO that has a counterpart, and each tensor of `arith`, in place.

    An op that its counterpart cannot express, such as `topk` for the smallest elements, stays as it
    is, because XLA runs it.
    """
    with erasing():
        for op in _found_in(module):
            if op.name == COPY and op.operands[0].type == op.results[0].type:
                op.results[0].replace_all_uses_with(op.operands[0])
                erase(op)
                continue
            if op.name == CONSTANT:
                replace(op, "stablehlo.constant", {"value": op.attributes["value"]})
                continue
            name = counterpart(op.name, module.context)
            ends_another = op.name == "mhlo.return" and op.parent.name.startswith(MHLO)
            if name is not None and not ends_another:
                replace(op, name, dict(op.attributes.items()))


def _found_in(module: ir.Module) -> list[ir.Operation]:
    """Return the ops to replace in the order of the text, each before those in its regions."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name.startswith(MHLO) or op.name == CONSTANT:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def replace(op: ir.Operation, name: str, attributes: dict[str, ir.Attribute]) -> bool:
    """Replace an op by one of this name, moving its regions, if that can have the attributes.

    Returns False, and leaves the op in place, if it cannot.
    """
    with op.context, op.location, ir.InsertionPoint(op):
        try:
            given = {key: _attribute(op, name, value) for key, value in attributes.items()}
        except ir.MLIRError:  # what its dialect cannot spell
            return False
        new = ir.Operation.create(
            name,
            results=[_in_stablehlo(result.type) for result in op.results],
            operands=list(op.operands),
            attributes=given,
            regions=len(op.regions),
        )
    if not _is_whole(new):
        erase(new)
        return False
    for old, region in zip(op.regions, new.regions, strict=True):
        for block in list(old.blocks):
            block.append_to(region)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    erase(op)
    return True


def _is_whole(op: ir.Operation) -> bool:
    """Return True if a new op is valid, after other attributes with default values are dropped.

    It is not valid if an attribute remains that is neither its own nor a dialect's. An op with
    regions, or that ends one, is verified only with its module.
    """
    own = _own(op.opview.__class__)
    for key in [key for key in op.attributes if "." not in key and key not in own]:
        if str(op.attributes[key]) != DEFAULTS.get(key):
            return False
        del op.attributes[key]
    try:
        return bool(len(op.regions)) or op.name == "stablehlo.return" or op.verify()
    except ir.MLIRError:
        return False


@functools.cache
def _own(view: type) -> set[str]:
    """Return the attributes of an op class: its settable properties, unlike operands or results."""
    members = vars(view).items()
    return {name for name, x in members if isinstance(x, property) and x.fset is not None}


def _in_stablehlo(kind: ir.Type) -> ir.Type:
    return ir.Type.parse("!stablehlo.token") if str(kind) == "!mhlo.token" else kind


def _attribute(op: ir.Operation, name: str, value: ir.Attribute) -> ir.Attribute:
    """Convert an attribute of MHLO to one for op `name`, with arrays in place of dense tensors."""
    if isinstance(value, ir.DenseElementsAttr):
        return _array(value) if op.name.startswith(MHLO) and op.name != "mhlo.constant" else value
    if isinstance(value, ir.ArrayAttr):
        return ir.ArrayAttr.get([_attribute(op, name, each) for each in value])
    if isinstance(value, ir.StringAttr) or "#mhlo" not in (text := str(value)):
        return value
    text = _SPELT_OTHERWISE.sub(r"#mhlo<\1 \2>", text)
    return ir.Attribute.parse(text.replace("#mhlo", f"#{name.partition('.')[0]}"))


def _array(value: ir.DenseElementsAttr) -> ir.Attribute:
    kind = ir.RankedTensorType(value.type)
    if kind.rank == 1 and str(kind.element_type) == "i1":
        return ir.DenseBoolArrayAttr.get(list(map(bool, value)))
    if kind.rank == 1 and str(kind.element_type) == "i64":
        return ir.DenseI64ArrayAttr.get(list(map(int, value)))
    return value
