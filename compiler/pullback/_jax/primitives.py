"""Our primitives, which the keep step and functions of ours put into jaxprs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jax._src import core as _core
from jax._src.interpreters import batching as _batching, mlir as _mlir
from jax.extend import core as _extend_core
from jax.interpreters import ad as _ad

from pullback._jax import dimensions, func, ir, stablehlo, tracing
from pullback._jax.derivatives import is_zero


def calling(name: str, lowering: Callable[..., Any]) -> Any:
    """Return a new primitive that calls its parameter `jaxpr`, with this lowering rule."""
    primitive = _extend_core.Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(lambda *args, jaxpr, **_: tracing.equations_to_function(jaxpr)(*args))
    primitive.def_effectful_abstract_eval(lambda *_, jaxpr, **__: (jaxpr.out_avals, jaxpr.effects))
    _mlir.register_lowering(primitive, lowering)
    return primitive


def decomposition(ctx: Any, name: str, jaxpr: Any) -> Any:
    """Lower a jaxpr to a function of the module, to be called or to decompose a composite."""
    function, _, _ = _mlir.lower_called_computation(
        name, jaxpr, ctx.module_context, 0, ctx.avals_in, ctx.avals_out, _mlir.TokenSet()
    )
    if ctx.dim_var_values:
        dimensions.mark(function, ctx.avals_in, ctx.avals_out)
    return function


def flattened(ctx: Any, operands: Any) -> list[Any]:
    """Return the operands of a call: the sizes of symbolic dimensions, then the given operands."""
    values, _ = _mlir.ir_tree_registry.flatten((*ctx.dim_var_values, *operands))
    return values


def composite_of(
    ctx: Any, operands: Any, name: str, function: Any, attributes: dict[str, Any]
) -> Any:
    """Emit a `stablehlo.composite` that decomposes to the function."""
    return stablehlo.CompositeOp(
        function.type.results,
        flattened(ctx, operands),
        name=ir.StringAttr.get(name),
        decomposition=ir.FlatSymbolRefAttr.get(function.sym_name.value),
        composite_attributes=ir.DictAttr.get(attributes),
        version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0),
    ).results


def is_elementwise(primitive: Any) -> bool:
    """Return True if a primitive is elementwise: its result has the axes of its operands."""
    batcher = _batching.fancy_primitive_batchers.get(primitive)
    elementwise = _batching.vectorized_batcher, _batching.broadcast_batcher
    return getattr(batcher, "func", None) in elementwise


COMPOSITES = ("pullback.custom_jvp_call", "pullback.custom_vjp_call", "pullback.linear_call")


def _composite_lowering(
    ctx: Any, *operands: Any, jaxpr: Any, key: str, op: str, notes: tuple[tuple[str, Any], ...]
) -> Any:
    """Emit the `stablehlo.composite` of one rule-carrying call and its decomposition."""
    attributes = {name: _attribute(note) for name, note in (*notes, ("rule", key))}
    return composite_of(ctx, operands, op, decomposition(ctx, key, jaxpr), attributes)


def _attribute(note: int | str) -> Any:
    if isinstance(note, str):
        return ir.StringAttr.get(note)
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), note)


_composites = {op: calling(op, functools.partial(_composite_lowering, op=op)) for op in COMPOSITES}


def as_composite(
    equation: Any, op: str, *, jaxpr: Any, key: str, notes: tuple[tuple[str, int | str], ...]
) -> Any:
    """Replace an equation with a call of one of our composites, at the same source location.

    Args:
      notes: the attributes of the composite, except `rule`.
    """
    params = {"jaxpr": jaxpr, "key": key, "notes": notes}
    return equation.replace(primitive=_composites[op], params=params)


def _module_call_lowering(ctx: Any, *operands: Any, handle: Any, merge: Any, of: Any) -> Any:
    """Emit a call of a function of another module, which is merged into this one with its rules."""
    context = ctx.module_context
    known, key = context.cached_primitive_lowerings, ("pullback.module_call", handle)
    if key not in known:
        known[key], added = merge(context.module)
        for function in added:
            context.symbol_table.insert(function)
    function = context.symbol_table[known[key]]
    symbol = ir.FlatSymbolRefAttr.get(known[key])
    return func.CallOp(function.type.results, symbol, list(operands)).results


_module_call = _extend_core.Primitive("pullback.module_call")
_module_call.multiple_results = True
_module_call.def_effectful_abstract_eval(
    lambda *avals, handle, merge, of: of.abstract_eval(*avals, handle=handle)
)
_mlir.register_lowering(_module_call, _module_call_lowering)


def as_module_call(equation: Any, merge: Callable[[ir.Module], Any]) -> Any:
    """Replace an equation that calls a module with a call of the function that `merge` adds."""
    params = {**equation.params, "merge": merge, "of": equation.primitive}
    return equation.replace(primitive=_module_call, params=params)


MAX_TRIP_COUNT = "pullback.max_trip_count"
"""Attribute of a loop: an upper bound of its trip count."""


def _trip_bound_lowering(ctx: Any, predicate: Any, *, count: int) -> Any:
    """Set the trip count's bound on the enclosing loop, and return its predicate unchanged."""
    owner = ir.InsertionPoint.current.block.owner
    if owner.operation.name == "stablehlo.while":
        i64 = ir.IntegerType.get_signless(64)
        owner.operation.attributes[MAX_TRIP_COUNT] = ir.IntegerAttr.get(i64, count)
    return [predicate]


_trip_bound = _extend_core.Primitive("pullback.trip_bound")
_trip_bound.def_impl(lambda predicate, *, count: predicate)
_trip_bound.def_abstract_eval(lambda predicate, *, count: predicate)
_mlir.register_lowering(_trip_bound, _trip_bound_lowering, cacheable=False)
_batching.primitive_batchers[_trip_bound] = lambda values, axes, *, count: (
    _trip_bound.bind(*values, count=count),
    axes[0],
)


def trip_bound(predicate: Any, count: int) -> Any:
    """Return a loop's predicate, and bound the trip count of the loop by `count`.

    It is called in the condition of a `while` loop.
    """
    return _trip_bound.bind(predicate, count=count)


def collective(
    name: str, batch: Callable[..., Any], outside: Callable[[tuple[Any, ...]], Exception]
) -> Any:
    """Return a new primitive `(x, other, axes) -> x` along named axes.

    It is linear in x and its own transpose. `batch(axis, values, dims, axes)` implements it under
    a vmap of an axis with `name` and `size`; without one, it raises `outside(axes)`.
    """
    primitive = _extend_core.Primitive(name)

    def moved(primals: Any, tangents: Any, axes: Any) -> tuple[Any, Any]:
        tangent = tangents[0]
        still = is_zero(tangent)
        moved = tangent if still else primitive.bind(tangent, primals[1], axes=axes)
        return primitive.bind(*primals, axes=axes), moved

    def nowhere(*_: Any, axes: Any) -> Any:
        raise outside(axes)

    def effects(axes: Any) -> set[Any]:
        return {_core.NamedAxisEffect(axis) for axis in axes}

    primitive.def_effectful_abstract_eval(lambda x, _, axes: (x, effects(axes)))
    primitive.def_impl(nowhere)
    _mlir.register_lowering(primitive, nowhere)
    _batching.fancy_primitive_batchers[primitive] = batch
    _ad.primitive_jvps[primitive] = moved
    _ad.primitive_transposes[primitive] = lambda ct, _, other, axes: [
        ct if is_zero(ct) else primitive.bind(ct, other, axes=axes),
        None,
    ]
    return primitive
