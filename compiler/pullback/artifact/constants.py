"""Large constants: hidden arguments of a traced program, data of the module in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import _jax
from pullback._jax import ir
from pullback_runtime import _jax as runtime_jax


def embed(module: ir.Module, values: Sequence[Any]) -> None:
    """Turns the leading arguments of `@main` into constants, in place.

    `@main` hands them on to the functions that use them, so each is stored once.
    """
    if not values:
        return
    function = ir.SymbolTable(module.operation)["main"]
    block = function.regions[0].blocks[0]
    with ir.Location.unknown(module.context), ir.InsertionPoint.at_block_begin(block):
        for argument, value in zip(list(block.arguments), values, strict=False):
            constant = runtime_jax.mlir.ir_constant(np.asarray(_jax.physical(value)))
            argument.replace_all_uses_with(constant)
        drop_arguments(function, len(values))


def drop_arguments(function: Any, count: int) -> None:
    """Removes the leading arguments, which nothing uses, from a function's type and body."""
    block = function.regions[0].blocks[0]
    for _ in range(count):
        block.erase_argument(0)
    attributes, kind = function.attributes, function.type
    new = ir.FunctionType.get(kind.inputs[count:], kind.results)
    attributes["function_type"] = ir.TypeAttr.get(new)
    if "arg_attrs" in attributes:
        attributes["arg_attrs"] = ir.ArrayAttr.get(list(attributes["arg_attrs"])[count:])
