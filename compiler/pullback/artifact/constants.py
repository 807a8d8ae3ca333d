"""Large constants: hidden arguments of a traced program, data of the module in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import _jax
from pullback._jax import ir


def embed(module: ir.Module, values: Sequence[Any]) -> None:
    """Turns the leading arguments of `@main` into constants, in place.

    `@main` hands them on to the functions that use them, so each is stored once.
    """
    if not values:
        return
    function = ir.SymbolTable(module.operation)["main"]
    block = function.regions[0].blocks[0]
    with module.context, ir.Location.unknown(module.context), ir.InsertionPoint.at_block_begin(block):
        for argument, value in zip(list(block.arguments), values, strict=False):
            argument.replace_all_uses_with(_constant(value, argument.type))
    _drop_arguments(function, block, len(values))


def _constant(value: Any, kind: ir.Type) -> ir.Value:
    array = np.asarray(_jax.physical(value))
    constant = _jax.constant(array)
    assert constant.type == kind, (constant.type, kind)
    return constant


def _drop_arguments(function: Any, block: ir.Block, count: int) -> None:
    for _ in range(count):
        block.erase_argument(0)
    kind = function.type
    with module_context(function):
        new = ir.FunctionType.get(kind.inputs[count:], kind.results)
        function.attributes["function_type"] = ir.TypeAttr.get(new)
        if "arg_attrs" in function.attributes:
            kept = list(function.attributes["arg_attrs"])[count:]
            function.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)


def module_context(function: Any) -> ir.Context:
    """The context of an op, to be entered."""
    return function.operation.context
