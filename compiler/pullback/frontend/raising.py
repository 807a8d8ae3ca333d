"""From a module back to JAX: each op as the function of `jax.lax` that lowers to it.

What a derived program computes can then be traced by JAX again, which knows how to map it:
`jax.vmap` of the raised function leaves what does not depend on the mapped operands as it is.
Calls with rules are made again as the equations that they came from, or with the functions that
are their rules in the module: the rules stay with them.

An op that has no entry here, or says something that `jax.lax` cannot say, is a NotRaisable.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback.dialect import build, ops
from pullback.dialect.indexing import Dimensions
from pullback.frontend.staging import converted
from pullback.passes.differentiation import blocks, terminator
from pullback.passes.inline_calls import CHECKPOINT
from pullback.passes.symbols import called, functions
from pullback.rules.bodies import body_name
from pullback.rules.convolution import read_window
from pullback.rules.indexing import combination
from pullback.rules.reading import BOUND
from pullback.rules.windows import Window
from pullback_runtime import _module


class NotRaisable(Exception):
    """An op that `jax.lax` has no function for."""


def raised(module: ir.Module, rules: Any, entry: str = "main") -> Callable[..., list[Any]]:
    """The entry as a function of arrays that JAX can trace: operands to a list of results.

    Raises: NotRaisable, when it is traced.
    """
    return _Raising(module, rules).function(entry)


class _Raising:
    def __init__(self, module: ir.Module, rules: Any) -> None:
        self.functions = functions(module)
        self.rules = rules
        self._made: dict[str, Callable[..., list[Any]]] = {}

    def function(self, name: str) -> Callable[..., list[Any]]:
        (block,) = blocks(self.functions[name].operation)
        return functools.partial(self.run, block, {})

    def called(self, name: str) -> Callable[..., list[Any]]:
        """A function that is called: traced once, however often."""
        if name not in self._made:
            run = self.function(name)

            def function(*operands: Any) -> list[Any]:
                return run(*operands)

            function.__name__ = name
            recomputed = CHECKPOINT in self.functions[name].attributes
            self._made[name] = _recomputing(function) if recomputed else jax.jit(function)
        return self._made[name]

    def run(self, block: Any, outer: Mapping[Any, Any], *arguments: Any) -> list[Any]:
        """The values that a block ends with; those of `outer` are known in it."""
        known = {**outer, **dict(zip(block.arguments, arguments, strict=True))}
        for view in block.operations:
            operation = view.operation
            if operation.name in _TERMINATORS:
                break
            try:
                found = self._results(operation, known)
            except TypeError as error:
                raise NotRaisable(f"{operation.name} of these types") from error
            known.update(zip(operation.results, found, strict=True))
        return [known[v] for v in terminator(block).operands]

    def _results(self, operation: Any, known: Mapping[Any, Any]) -> Sequence[Any]:
        operands = [known[v] for v in operation.operands]
        structured = _STRUCTURED.get(operation.name)
        if structured is not None:
            regions = [functools.partial(self.run, block, known) for block in blocks(operation)]
            return structured(self, operation, operands, regions)
        function = _FUNCTIONS.get(operation.name)
        if function is None:
            raise NotRaisable(operation.name)
        _check_accuracy(operation)
        found = function(operation, *operands)
        return found if isinstance(found, (list, tuple)) else [found]


_recomputing = functools.partial(
    jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(_jax.SAVED)
)
_TERMINATORS = ("func.return", "stablehlo.return")


def _check_accuracy(operation: Any) -> None:
    accuracy = operation.attributes.get("result_accuracy")
    if accuracy is not None and "DEFAULT" not in str(accuracy):
        raise NotRaisable(f"{operation.name} with {accuracy}")


def _type(operation: Any) -> jax.ShapeDtypeStruct:
    """The type of the one result."""
    return _module.type_of(operation.result)


def _integer(operation: Any, name: str) -> int:
    return int(ir.IntegerAttr(operation.attributes[name]).value)


# ----------------------------------------------------------------------------- one to one


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    """An op that says nothing beyond its operands."""
    return lambda operation, *operands: function(*operands)


_ELEMENTWISE = {
    "abs": lax.abs,
    "add": lax.add,
    "and": lax.bitwise_and,
    "atan2": lax.atan2,
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "clamp": lax.clamp,
    "complex": lax.complex,
    "cosine": lax.cos,
    "count_leading_zeros": lax.clz,
    "divide": lax.div,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "floor": lax.floor,
    "imag": lax.imag,
    "is_finite": lax.is_finite,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "logistic": lax.logistic,
    "maximum": lax.max,
    "minimum": lax.min,
    "multiply": lax.mul,
    "negate": lax.neg,
    "not": lax.bitwise_not,
    "or": lax.bitwise_or,
    "popcnt": lax.population_count,
    "power": lax.pow,
    "real": lax.real,
    "remainder": lax.rem,
    "round_nearest_afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_nearest_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "rsqrt": lax.rsqrt,
    "select": lambda predicate, x, y: lax.select_n(predicate, y, x),
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
    "sign": lax.sign,
    "sine": lax.sin,
    "sqrt": lax.sqrt,
    "subtract": lax.sub,
    "tan": lax.tan,
    "tanh": lax.tanh,
    "xor": lax.bitwise_xor,
}

_OF_CHLO = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "bessel_i1e": lax.bessel_i1e,
    "conj": lax.conj,
    "cosh": lax.cosh,
    "digamma": lax.digamma,
    "erf": lax.erf,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "lgamma": lax.lgamma,
    "next_after": lax.nextafter,
    "polygamma": lax.polygamma,
    "sinh": lax.sinh,
    "square": lax.square,
    "tan": lax.tan,
    "zeta": lax.zeta,
}

_COMPARISONS = {
    "EQ": lax.eq,
    "NE": lax.ne,
    "LT": lax.lt,
    "LE": lax.le,
    "GT": lax.gt,
    "GE": lax.ge,
}


def _compare(operation: Any, x: Any, y: Any) -> Any:
    kind = operation.attributes.get("compare_type")
    if kind is not None and build.enumerator(kind) == "TOTALORDER":
        raise NotRaisable("a comparison in total order")
    return _COMPARISONS[build.enumerator(operation.attributes["comparison_direction"])](x, y)


def _convert(operation: Any, x: Any) -> Any:
    return converted(x, _type(operation).dtype)


def _bitcast_convert(operation: Any, x: Any) -> Any:
    return lax.bitcast_convert_type(x, _type(operation).dtype)


def _reduce_precision(operation: Any, x: Any) -> Any:
    bits = _integer(operation, "exponent_bits"), _integer(operation, "mantissa_bits")
    return lax.reduce_precision(x, *bits)


# ------------------------------------------------------------------------------- constants


def _constant(operation: Any) -> Any:
    """A scalar is one of NumPy's: JAX tells a neutral element by its value."""
    type = _type(operation)
    try:
        if type.dtype.kind == "c":
            return _splat(type, _complex(str(operation)))
        dense = ir.DenseElementsAttr(operation.attributes["value"])
        if dense.is_splat:
            return _splat(type, dense.get_splat_value().value)
        return np.asarray(dense).astype(type.dtype).reshape(type.shape)
    except (TypeError, ValueError, AttributeError):
        raise NotRaisable(f"a constant {operation.result.type}") from None


def _splat(type: jax.ShapeDtypeStruct, value: Any) -> Any:
    scalar = np.asarray(value, type.dtype)
    return lax.broadcast(scalar, type.shape) if type.shape else scalar


_SPLAT_OF_PAIRS = re.compile(r"dense<\(([^(),]+),([^(),]+)\)>")


def _complex(text: str) -> complex:
    found = _SPLAT_OF_PAIRS.search(text)
    if found is None or "0x" in text:
        raise NotRaisable("a complex constant")
    return complex(*map(float, found.groups()))


def _iota(operation: Any) -> Any:
    type = _type(operation)
    return lax.broadcasted_iota(type.dtype, type.shape, _integer(operation, "iota_dimension"))


# ---------------------------------------------------------------------------------- shapes


def _broadcast_in_dim(operation: Any, x: Any) -> Any:
    dims = build.integers(operation.attributes["broadcast_dimensions"])
    return lax.broadcast_in_dim(x, _type(operation).shape, dims)


def _reshape(operation: Any, x: Any) -> Any:
    return lax.reshape(x, _type(operation).shape)


def _transpose(operation: Any, x: Any) -> Any:
    return lax.transpose(x, build.integers(operation.attributes["permutation"]))


def _slice(operation: Any, x: Any) -> Any:
    names = "start_indices", "limit_indices", "strides"
    return lax.slice(x, *(build.integers(operation.attributes[name]) for name in names))


def _pad(operation: Any, x: Any, value: Any) -> Any:
    names = "edge_padding_low", "edge_padding_high", "interior_padding"
    amounts = [build.integers(operation.attributes[name]) for name in names]
    return lax.pad(x, value, list(zip(*amounts, strict=True)))


def _concatenate(operation: Any, *parts: Any) -> Any:
    return lax.concatenate(parts, _integer(operation, "dimension"))


def _reverse(operation: Any, x: Any) -> Any:
    return lax.rev(x, build.integers(operation.attributes["dimensions"]))


def _dynamic_slice(operation: Any, x: Any, *starts: Any) -> Any:
    sizes = build.integers(operation.attributes["slice_sizes"])
    return lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)


def _dynamic_update_slice(operation: Any, x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, update, starts, allow_negative_indices=False)


# -------------------------------------------------------------------------------- indexing


def _indices(indices: Any, dims: Dimensions) -> Any:
    """The components of an index in the last dimension, where JAX wants them."""
    if dims.index_vector == indices.ndim:
        return lax.expand_dims(indices, (indices.ndim,))
    return jnp.moveaxis(indices, dims.index_vector, -1)


def _numbers(kind: Any, dims: Dimensions) -> Any:
    """The dimension numbers as JAX has them: in one order under two sets of names."""
    batching = dims.operand_batching, dims.indices_batching
    return kind(dims.window, dims.collapsed, dims.index_map, *batching)


def _gather(operation: Any, x: Any, indices: Any) -> Any:
    dims = Dimensions.of_gather(operation.attributes["dimension_numbers"])
    return lax.gather(
        x,
        _indices(indices, dims),
        _numbers(lax.GatherDimensionNumbers, dims),
        build.integers(operation.attributes["slice_sizes"]),
        indices_are_sorted=build.flag(operation, "indices_are_sorted"),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,  # as it is: StableHLO clamps
    )


_SCATTERS = {
    "replace": lax.scatter,
    "stablehlo.add": lax.scatter_add,
    "stablehlo.maximum": lax.scatter_max,
    "stablehlo.minimum": lax.scatter_min,
    "stablehlo.multiply": lax.scatter_mul,
    "stablehlo.subtract": lax.scatter_sub,
}


def _scatter(operation: Any, *operands: Any) -> Any:
    scatter = _SCATTERS.get(kind := combination(operation))
    if scatter is None:
        raise NotRaisable(f"a scatter with {kind}")
    x, indices, updates = operands
    dims = Dimensions.of_scatter(operation.attributes["scatter_dimension_numbers"])
    return scatter(
        x,
        _indices(indices, dims),
        updates,
        _numbers(lax.ScatterDimensionNumbers, dims),
        indices_are_sorted=build.flag(operation, "indices_are_sorted"),
        unique_indices=build.flag(operation, "unique_indices"),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,  # as it is: StableHLO leaves windows out
    )


# -------------------------------------------------------------------------------- products


def _precision(operation: Any) -> Any:
    attribute = operation.attributes.get("precision_config")
    if attribute is None:
        return None
    words = [build.enumerator(each) for each in ir.ArrayAttr(attribute)]
    return tuple(lax.Precision[word] for word in words) if len(words) == 2 else None


def _dot_general(operation: Any, x: Any, y: Any) -> Any:
    if "algorithm" in operation.attributes:
        raise NotRaisable("a dot_general with an algorithm")
    d = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    contract = d.lhs_contracting_dimensions, d.rhs_contracting_dimensions
    batch = d.lhs_batching_dimensions, d.rhs_batching_dimensions
    return lax.dot_general(
        x,
        y,
        (contract, batch),
        precision=_precision(operation),
        preferred_element_type=_type(operation).dtype,
    )


def _convolution(operation: Any, x: Any, kernel: Any) -> Any:
    w = read_window(operation)
    turned = [d for d, reversed in zip(w.rhs[2:], w.reversal, strict=True) if reversed]
    return lax.conv_general_dilated(
        x,
        lax.rev(kernel, turned) if turned else kernel,
        w.strides,
        w.padding,
        w.lhs_dilation,
        w.rhs_dilation,
        lax.ConvDimensionNumbers(tuple(w.lhs), tuple(w.rhs), tuple(w.out)),
        w.feature_groups,
        w.batch_groups,
        _precision(operation),
        _type(operation).dtype,
    )


def _cholesky(operation: Any, x: Any) -> Any:
    if not build.flag(operation, "lower"):
        raise NotRaisable("an upper cholesky")
    return lax.linalg.cholesky(x, symmetrize_input=False)


def _triangular_solve(operation: Any, a: Any, b: Any) -> Any:
    transposed = build.enumerator(operation.attributes["transpose_a"])
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=build.flag(operation, "left_side"),
        lower=build.flag(operation, "lower"),
        transpose_a=transposed in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=transposed == "ADJOINT",
        unit_diagonal=build.flag(operation, "unit_diagonal"),
    )


def _fft(operation: Any, x: Any) -> Any:
    kind = lax.FftType[build.enumerator(operation.attributes["fft_type"])]
    return lax.fft(x, kind, build.integers(operation.attributes["fft_length"]))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"stablehlo.{name}": _same(function) for name, function in _ELEMENTWISE.items()},
    **{f"chlo.{name}": _same(function) for name, function in _OF_CHLO.items()},
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.compare": _compare,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.convert": _convert,
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.fft": _fft,
    "stablehlo.gather": _gather,
    "stablehlo.iota": _iota,
    "stablehlo.optimization_barrier": lambda operation, *xs: lax.optimization_barrier(list(xs)),
    "stablehlo.pad": _pad,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.scatter": _scatter,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
    "stablehlo.triangular_solve": _triangular_solve,
}


# ------------------------------------------------------------------- regions and functions


_MONOIDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "stablehlo.add": (lax.add, lax.reduce_sum),
    "stablehlo.and": (lax.bitwise_and, lax.reduce_and),
    "stablehlo.maximum": (lax.max, lax.reduce_max),
    "stablehlo.minimum": (lax.min, lax.reduce_min),
    "stablehlo.multiply": (lax.mul, lax.reduce_prod),
    "stablehlo.or": (lax.bitwise_or, lax.reduce_or),
}
"""By the op of a body: the function, and the reduction by it from its neutral element."""


def _monoid(operation: Any) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    return _MONOIDS.get(body_name(operation.regions[0]))


def _alone_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _of_trees(region: Callable[..., list[Any]]) -> Callable[..., Any]:
    """A body as `jax.lax` calls it: with two trees."""
    return lambda *operands: _alone_or_all(region(*jax.tree.leaves(operands)))


def _reduce(raising: _Raising, operation: Any, operands: list[Any], regions: Any) -> Sequence[Any]:
    count = len(operands) // 2
    arrays, inits = operands[:count], operands[count:]
    dims = build.integers(operation.attributes["dimensions"])
    if (monoid := _monoid(operation)) is not None:
        combined, reduced = monoid
        return [combined(inits[0], reduced(arrays[0], dims))]
    found = lax.reduce(_alone_or_all(arrays), _alone_or_all(inits), _of_trees(regions[0]), dims)
    return jax.tree.leaves(found)


def _reduce_window(
    raising: _Raising, operation: Any, operands: list[Any], regions: Any
) -> Sequence[Any]:
    count = len(operands) // 2
    arrays, inits = operands[:count], operands[count:]
    window = Window.of(operation)
    monoid = _monoid(operation)
    found = lax.reduce_window(
        _alone_or_all(arrays),
        _alone_or_all(inits),
        _of_trees(regions[0]) if monoid is None else monoid[0],
        window.dims,
        window.strides,
        list(zip(window.low, window.high, strict=True)),
        window.base_dilation,
        window.dilation,
    )
    return jax.tree.leaves(found)


def _while(raising: _Raising, operation: Any, operands: list[Any], regions: Any) -> Sequence[Any]:
    if BOUND in operation.attributes:
        raise NotRaisable("a loop with a bound")
    cond, body = regions
    return lax.while_loop(lambda c: cond(*c)[0], lambda c: body(*c), operands)


def _if(raising: _Raising, operation: Any, operands: list[Any], regions: Any) -> Sequence[Any]:
    return lax.cond(operands[0], *regions)


def _case(raising: _Raising, operation: Any, operands: list[Any], regions: Any) -> Sequence[Any]:
    """StableHLO takes the last branch for an index outside, JAX the nearest one."""
    (index,), last = operands, len(regions) - 1
    inside = lax.bitwise_and(lax.ge(index, np.int32(0)), lax.le(index, np.int32(last)))
    return lax.switch(lax.select(inside, index, np.int32(last)), regions)


def _call(raising: _Raising, operation: Any, operands: list[Any], regions: Any) -> Sequence[Any]:
    """A call, or a composite that is its decomposition."""
    return raising.called(str(called(operation)))(*operands)


def _composite(
    raising: _Raising, operation: Any, operands: list[Any], regions: Any
) -> Sequence[Any]:
    """A call with rules, or another composite, whose meaning is its decomposition."""
    if ops.composite_name(operation) == _jax.SAVED:
        return [checkpoint_name(operands[0], _jax.SAVED)]
    if not str(ops.composite_name(operation)).startswith(ops.PREFIX):
        return _call(raising, operation, operands, regions)
    view = ops.view(operation)
    if view is not None and view.rule_key is not None:
        rule = raising.rules[view.rule_key]
        if rule.checked_axes:
            raise NotRaisable("a call in a checked shard_map")
        return _jax.equations_to_function(rule.call)(*operands)
    call = None if view is None else _BY_RULES.get((view.NAME, *sorted(view.symbols)))
    if call is None or view.refused or view.closed_over:
        raise NotRaisable(f"{ops.composite_name(operation)} with these rules")
    rules = {name: raising.called(symbol) for name, symbol in view.symbols.items()}
    return call(view, raising.called(view.decomposition), operands, **rules)


def _with_jvp(view: Any, primal: Any, operands: list[Any], *, jvp: Any) -> Sequence[Any]:
    """The rule takes tangents of inexact operands, and gives those of inexact results."""
    function, results = jax.custom_jvp(primal), view.results

    def rule(primals: Any, tangents: Any) -> Any:
        found = jvp(*primals, *(tangents[i] for i in ops.inexact_positions(view.operands)))
        moved = iter(found[len(results) :])
        inexact = ops.inexact_positions(results)
        zeros = [np.zeros(v.type.shape, jax.dtypes.float0) for v in results]
        places = enumerate(zeros)
        return found[: len(results)], [next(moved) if i in inexact else z for i, z in places]

    function.defjvp(rule)
    return function(*operands)


def _with_vjp(view: Any, primal: Any, operands: list[Any], *, fwd: Any, bwd: Any) -> Sequence[Any]:
    """The rule takes cotangents of inexact results, and gives those of inexact operands."""
    function, count = jax.custom_vjp(primal), len(view.results)

    def forward(*args: Any) -> Any:
        found = fwd(*args)
        return found[:count], found[count:]

    def backward(residuals: Any, cts: Any) -> Any:
        found = iter(bwd(*residuals, *(cts[i] for i in ops.inexact_positions(view.results))))
        inexact = ops.inexact_positions(view.operands)
        return tuple(next(found) if i in inexact else None for i in range(len(operands)))

    function.defvjp(forward, backward)
    return function(*operands)


def _linear_call(view: Any, primal: Any, operands: list[Any], *, transpose: Any) -> Sequence[Any]:
    count = view.num_residuals
    return jax.custom_derivatives.linear_call(
        lambda residuals, linear: primal(*residuals, *linear),
        lambda residuals, cts: transpose(*residuals, *cts),
        operands[:count],
        operands[count:],
    )


_BY_RULES: dict[tuple[str, ...], Callable[..., Sequence[Any]]] = {
    ("pullback.custom_jvp_call", "jvp"): _with_jvp,
    ("pullback.custom_vjp_call", "bwd", "fwd"): _with_vjp,
    ("pullback.linear_call", "transpose"): _linear_call,
}
"""By the kind of a call and the rules that it has: all of them, or it is not raised."""


_STRUCTURED: dict[str, Callable[..., Sequence[Any]]] = {
    "func.call": _call,
    "stablehlo.case": _case,
    "stablehlo.composite": _composite,
    "stablehlo.if": _if,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.while": _while,
}
