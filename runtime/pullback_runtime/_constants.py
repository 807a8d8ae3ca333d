"""Large constants of a module as hidden leading arguments of `@main`, outside MLIR and XLA.

A constant inside a module is copied by each step that touches the module: contexts keep it for
ever, XLA folds and embeds it. As an argument it is one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback_runtime._jax import ir

SMALLEST_BYTES = 1 << 14

# Bytes per element. The bindings cannot read bfloat16 and complex data, and JAX makes 64-bit
# arrays 32-bit by default: constants of these types stay in the module.
HOISTED_TYPES = {
    "f32": 4,
    "f16": 2,
    "i1": 1,
    "i8": 1,
    "ui8": 1,
    "i16": 2,
    "ui16": 2,
    "i32": 4,
    "ui32": 4,
}


def hoist(module: ir.Module, entry: str = "main") -> tuple[np.ndarray, ...]:
    """Turns the large constants in the entry's body into its leading arguments, in place."""
    symbols = ir.SymbolTable(module.operation)
    if entry not in symbols or not len(symbols[entry].regions[0].blocks):
        return ()
    function = symbols[entry]
    block = function.regions[0].blocks[0]
    found = [(op, array) for op in block.operations if (array := _large_array(op)) is not None]
    if not found:
        return ()
    with ir.Location.unknown(module.context):
        old = list(block.arguments)
        for op, _ in found:
            argument = block.add_argument(op.operation.results[0].type, op.location)
            op.operation.results[0].replace_all_uses_with(argument)
            op.erase()
        _move_to_the_end(block, old)
        _update_type(function, block, leading=len(found))
    return tuple(array for _, array in found)


def _large_array(op: Any) -> np.ndarray | None:
    """A copy of the constant's data; None where it is small or the bindings cannot read it."""
    if op.operation.name != "stablehlo.constant":
        return None
    kind = op.operation.results[0].type
    if str(kind.element_type) not in HOISTED_TYPES:
        return None
    value = op.operation.attributes["value"]
    if value.is_splat or len(value) * HOISTED_TYPES[str(kind.element_type)] < SMALLEST_BYTES:
        return None
    return np.array(value)


def _move_to_the_end(block: ir.Block, arguments: Sequence[ir.Value]) -> None:
    """A block takes new arguments at its end only, so the old ones are made anew behind them."""
    for argument in arguments:
        argument.replace_all_uses_with(block.add_argument(argument.type, argument.location))
    for _ in arguments:
        block.erase_argument(0)


def _update_type(function: Any, block: ir.Block, leading: int) -> None:
    inputs = [argument.type for argument in block.arguments]
    attributes = function.attributes
    kind = ir.FunctionType.get(inputs, function.type.results)
    attributes["function_type"] = ir.TypeAttr.get(kind)
    if "arg_attrs" in attributes:
        kept = list(attributes["arg_attrs"])
        attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get()] * leading + kept)
