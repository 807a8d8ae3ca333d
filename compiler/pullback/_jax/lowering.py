"""Lowering: from a jaxpr to a function in a module of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jax._src import effects as _effects
from jax._src.interpreters import mlir as _mlir

from pullback._jax import func, ir, jaxprs, named_axes, stablehlo


def lower_into(
    module: ir.Module,
    name: str,
    closed: Any,
    *,
    platforms: Sequence[str],
    keepalives: list[Any],
    host_callbacks: list[Any],
    entry: bool = False,
) -> str:
    """Lowers a closed jaxpr to a function of `module` and returns the function's symbol."""
    module_context = _mlir.ModuleContext(
        context=module.context,
        module=module,
        platforms=tuple(platforms),
        backend=None,
        axis_context=named_axes.axis_context(closed),
        keepalives=keepalives,
        channel_iterator=_channels(),
        host_callbacks=host_callbacks,
        lowering_parameters=_mlir.LoweringParameters(hoist_constants_as_args=False),
    )
    ordered = list(_effects.ordered_effects.filter_in(closed.effects))
    types = {"in_avals": closed.in_avals}
    if not jaxprs.CLOSED_AND_OPEN_DIFFER:
        types["out_avals"] = closed.out_avals
    with module.context, ir.Location.unknown(module.context):
        function = _mlir.lower_jaxpr_to_fun(
            module_context, name, closed, ordered, num_const_args=0, main_function=entry, **types
        )
        if entry and ordered:
            _make_tokens_inside(function, len(ordered))
    return function.sym_name.value


def _make_tokens_inside(function: Any, count: int) -> None:
    """The order of effects as a matter of the function's own: no token crosses its border."""
    block = function.entry_block
    for _ in range(count):
        with ir.InsertionPoint.at_block_begin(block):
            token = stablehlo.create_token()
        block.arguments[0].replace_all_uses_with(token)
        block.erase_argument(0)
    (returned,) = (op for op in block.operations if op.operation.name == "func.return")
    values = list(returned.operands)[count:]
    with ir.InsertionPoint(returned):
        func.ReturnOp(values)
    returned.operation.erase()
    kinds = [argument.type for argument in block.arguments], [value.type for value in values]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            kept = list(ir.ArrayAttr(function.attributes[name]))[count:]
            function.attributes[name] = ir.ArrayAttr.get(kept)


def _channels() -> Iterator[int]:
    return iter(range(_mlir.COLLECTIVE_CHANNEL_ID + 1, 2**16))
