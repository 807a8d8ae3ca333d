"""Short StableHLO builders; arithmetic that absorbs absent (zero) tangents.

Every builder emits at `here.ip` with location `here.loc`: the driver sets both, a rule never does.
`None` stands for a zero tangent or cotangent: `add(None, y)` is `y`, `mul(None, y)` is `None`.
Plain Python numbers are accepted where an operand of the other's type is meant: `mul(x, 2.0)`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.errors import MissingRuleError
from pullback.ir.locations import user_line
from pullback.ir.types import (
    Dims as Dims,
    Number as Number,
    Value as Value,
    attr as attr,
    counting as counting,
    element_type as element_type,
    enumerator as enumerator,
    flag as flag,
    hides_inexact as hides_inexact,
    holds as holds,
    i64 as i64,
    i64_rows as i64_rows,
    i64s as i64s,
    inexact as inexact,
    info as info,
    integers as integers,
    integers_or_ones as integers_or_ones,
    number as number,
    paddings as paddings,
    rank as rank,
    real_element as real_element,
    scalar as scalar,
    shape as shape,
    shape_of as shape_of,
    sign_of as sign_of,
    size_in_bytes as size_in_bytes,
    splat as splat,
    string as string,
    symbol as symbol,
    tensor as tensor,
    truth as truth,
    with_element as with_element,
    with_shape as with_shape,
    wrapped as wrapped,
)


class Here(threading.local):
    """The insertion point and location of the next op, and the constants emitted so far."""

    ip: Any = None
    loc: Any = None
    made: dict[Any, Value] | None = None  # constants, which serve again within one emission block


here = Here()


class inserting:
    """Context manager: emit at `ip` with location `loc`, if given; share constants in its body."""

    __slots__ = ("ip", "loc", "saved")

    def __init__(self, ip: Any, loc: Any = None) -> None:
        self.ip = ip
        self.loc = loc

    def __enter__(self) -> None:
        self.saved = here.ip, here.loc, here.made
        here.ip, here.made = self.ip, {}
        if self.loc is not None:
            here.loc = self.loc

    def __exit__(self, *failure: object) -> None:
        here.ip, here.loc, here.made = self.saved


# -------------------------------------------------------------------------------- emission

_create = ir.Operation.create


def emit(
    name: str,
    results: Sequence[Any],
    operands: Sequence[Value],
    attributes: dict[str, Any] | None = None,
    regions: int = 0,
) -> Any:
    """Create one op at the current place and return it."""
    return ir.Operation.create(
        name,
        results=results,
        operands=operands,
        attributes=attributes,
        regions=regions,
        loc=here.loc,
        ip=here.ip,
    )


def emit1(
    name: str, result: Any, operands: Sequence[Value], attributes: dict[str, Any] | None = None
) -> Value:
    """Create an op with one result at the current place and return the result."""
    return _create(name, [result], operands, attributes, None, 0, here.loc, here.ip).result


def _emit_alike(name: str, operands: Sequence[Value]) -> Value:
    """Create an op whose result has the type of its operands, which MLIR infers faster."""
    return _create(name, None, operands, None, None, 0, here.loc, here.ip, True).result


def full(type: Any, value: Number) -> Value:
    """Return a constant with every element `value`, which the emission block shares."""
    made = here.made
    key = type, value or sign_of(value)
    if made is not None and key in made:
        return made[key]
    static(type, "a constant")
    if info(type).kind == "c":
        result = _full_complex(type, complex(value))
    else:
        result = emit1("stablehlo.constant", type, (), {"value": splat(type, value)})
    if made is not None:
        made[key] = result
    return result


REFINE_SHAPES = "refine the shapes first: stablehlo-refine-shapes"
"""What to do about a shape that is dynamic."""


def static(type: Any, what: str) -> Any:
    """Return the type if its shape is static, or raise MissingRuleError, which names `what`."""
    if -1 in info(type).shape:
        raise dynamic_shape(what, str(type))
    return type


def dynamic_shape(what: str, which: str) -> MissingRuleError:
    """Return the error for a derivative that would have to know a dynamic shape."""
    return MissingRuleError(
        f"no derivative that needs {what} of dynamic shape, {which}",
        where=user_line(here.loc),
        do=REFINE_SHAPES,
    )


def _full_complex(type: Any, value: complex) -> Value:
    """Emit a complex constant from its parts, for the bindings cannot hold a complex splat."""
    part = with_element(type, real_element(type))
    return emit1("stablehlo.complex", type, [full(part, value.real), full(part, value.imag)])


def is_result_of(v: Value, *names: str) -> bool:
    """Return True if a value is the result of an op with one of these names."""
    return not isinstance(v, ir.BlockArgument) and v.owner.name in names


def is_constant(v: Value) -> bool:
    """Return True if a value is the result of a constant op."""
    return is_result_of(v, "stablehlo.constant")


def one_number(v: Value) -> int | float | None:
    """Return the number that all elements of a constant, or of a broadcast of one, equal.

    None if `v` is not such a constant, or complex.
    """
    if is_result_of(v, "stablehlo.broadcast_in_dim"):
        v = v.owner.operands[0]
    if not is_constant(v) or info(v.type).kind == "c":  # the bindings cannot read a complex splat
        return None
    value = v.owner.operation.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr) or not value.is_splat:
        return None
    element = value.get_splat_value()
    return element.value if isinstance(element, ir.FloatAttr | ir.IntegerAttr) else None


def zeros(type: Any) -> Value:
    return full(type, 0)


def full_like(v: Value, value: Number) -> Value:
    """Return a constant with the shape of `v`, which may be dynamic."""
    type = v.type
    if -1 not in info(type).shape:
        return full(type, value)
    if info(type).kind == "c":
        part, whole = real(v), complex(value)
        return complex_(full_like(part, whole.real), full_like(part, whole.imag))
    literal = splat(tensor((), info(type).element), value)
    element = ir.DenseElementsAttr(literal).get_splat_value()
    return emit1("chlo.constant_like", type, [v], {"value": element})


def zeros_like(v: Value) -> Value:
    return full_like(v, 0)


def instantiate(v: Value | None, like: Value) -> Value:
    """Return `v`, or zeros shaped like `like` if `v` is None (a symbolic zero)."""
    return zeros_like(like) if v is None else v


# ------------------------------------------------------------------ elementwise arithmetic


def _same_type(x: Any, y: Any) -> tuple[Value, Value]:
    if y.__class__ in _NUMBERS:
        return x, full_like(x, y)
    if x.__class__ in _NUMBERS:
        return full_like(y, x), y
    return x, y


_NUMBERS: frozenset[Any] = frozenset({int, float, complex, bool})


def _emit_pair(name: str, x: Any, y: Any) -> Value:
    if x.__class__ is not y.__class__:  # most often both are results of ops
        x, y = _same_type(x, y)
    return _emit_alike(name, [x, y])


def add(x: Value | None, y: Value | None) -> Value | None:
    if x is None:
        return y
    if y is None:
        return x
    return _emit_pair("stablehlo.add", x, y)


def sub(x: Value | None, y: Value | None) -> Value | None:
    if y is None:
        return x
    if x is None:
        return neg(y)
    return _emit_pair("stablehlo.subtract", x, y)


def _absorbing(name: str) -> Callable[..., Value | None]:
    def build(x: Value | None, y: Value | None) -> Value | None:
        if x is None or y is None:
            return None
        return _emit_pair(name, x, y)

    build.__name__ = build.__qualname__ = name.split(".")[1]
    return build


mul = _absorbing("stablehlo.multiply")
div = _absorbing("stablehlo.divide")
pow = _absorbing("stablehlo.power")
maximum = _absorbing("stablehlo.maximum")
minimum = _absorbing("stablehlo.minimum")
and_ = _absorbing("stablehlo.and")
or_ = _absorbing("stablehlo.or")


def _unary(name: str) -> Callable[[Value | None], Value | None]:
    def build(x: Value | None) -> Value | None:
        return None if x is None else _emit_alike(name, [x])

    build.__name__ = build.__qualname__ = name.split(".")[1]
    return build


neg = _unary("stablehlo.negate")
sin = _unary("stablehlo.sine")
cos = _unary("stablehlo.cosine")
tanh = _unary("stablehlo.tanh")
exp = _unary("stablehlo.exponential")
expm1 = _unary("stablehlo.exponential_minus_one")
log = _unary("stablehlo.log")
log1p = _unary("stablehlo.log_plus_one")
logistic = _unary("stablehlo.logistic")
sqrt = _unary("stablehlo.sqrt")
rsqrt = _unary("stablehlo.rsqrt")
sign = _unary("stablehlo.sign")
round_nearest_even = _unary("stablehlo.round_nearest_even")


def square(x: Value | None) -> Value | None:
    return mul(x, x)


def abs(x: Value) -> Value:
    """Emit the absolute value, which is real for complex operands."""
    return emit1("stablehlo.abs", with_element(x.type, real_element(x.type)), [x])


def real(x: Value | None) -> Value | None:
    if x is None:
        return None
    return emit1("stablehlo.real", with_element(x.type, real_element(x.type)), [x])


def imag(x: Value | None) -> Value | None:
    if x is None:
        return None
    return emit1("stablehlo.imag", with_element(x.type, real_element(x.type)), [x])


def complex_(re: Value | None, im: Value | None) -> Value | None:
    """Emit re + i im; a part that is None is zero."""
    if re is None and im is None:
        return None
    re = zeros_like(im) if re is None else re
    im = zeros_like(re) if im is None else im
    element = ir.ComplexType.get(info(re.type).element)
    return emit1("stablehlo.complex", with_element(re.type, element), [re, im])


def conj(x: Value | None) -> Value | None:
    if x is None or info(x.type).kind != "c":
        return x
    return complex_(real(x), neg(imag(x)))


def convert(x: Value | None, element: Any) -> Value | None:
    """Convert to an element type; emit nothing if `x` has it already."""
    if x is None or info(x.type).element == element:
        return x
    return emit1("stablehlo.convert", with_element(x.type, element), [x])


def converted(x: Value, type: Any) -> Value:
    """Convert a cotangent to the element type of its primal value's type.

    Of a complex cotangent of a real value, that is the real part.
    """
    target = info(type)
    if target.kind == "f" and info(x.type).kind == "c":
        x = real(x)
    return convert(x, target.element)


_COMPARISONS = {"f": "FLOAT", "c": "FLOAT", "i": "SIGNED", "b": "UNSIGNED"}


def compare(direction: str, x: Value, y: Value | Number) -> Value:
    """Emit an elementwise comparison; direction is EQ, NE, LT, LE, GT or GE."""
    x, y = _same_type(x, y)
    t = info(x.type)
    unsigned = str(t.element).startswith("ui")
    kind = "UNSIGNED" if unsigned else _COMPARISONS[t.kind]
    attributes = {
        "comparison_direction": attr(f"#stablehlo<comparison_direction {direction}>"),
        "compare_type": attr(f"#stablehlo<comparison_type {kind}>"),
    }
    return emit1("stablehlo.compare", with_element(x.type, boolean()), [x, y], attributes)


@_jax.of_context
def boolean() -> Any:
    return ir.IntegerType.get_signless(1, _jax.context())


def select(predicate: Value, x: Value | None, y: Value | None) -> Value | None:
    """Emit `predicate ? x : y`; an operand that is None is zero."""
    if x is None and y is None:
        return None
    x = zeros_like(y) if x is None else x
    y = zeros_like(x) if y is None else y
    x, y = _same_type(x, y)
    return emit1("stablehlo.select", x.type, [predicate, x, y])


# ---------------------------------------------------------------------------------- shapes


def reshape(x: Value | None, shape: Sequence[int]) -> Value | None:
    if x is None:
        return x
    type, shape = x.type, tuple(shape)
    if info(type).shape == shape:
        return x
    return emit1("stablehlo.reshape", static(with_shape(type, shape), "a reshape"), [x])


def permute(x: Value | None, permutation: Sequence[int]) -> Value | None:
    """Emit an array transpose (`stablehlo.transpose`)."""
    if x is None:
        return x
    permutation = tuple(permutation)
    result = _permuted(x.type, permutation)
    if result is None:
        return x
    return emit1("stablehlo.transpose", result, [x], {"permutation": i64s(permutation)})


@_jax.cached
def _permuted(type: Any, permutation: Dims) -> Any:
    """Return the type with its dimensions permuted; None if the permutation is the identity."""
    if permutation == tuple(range(len(permutation))):
        return None
    dims = info(type).shape
    return with_shape(type, tuple(dims[p] for p in permutation))


def broadcast_in_dim(
    x: Value | None, shape: Sequence[int], dimensions: Sequence[int]
) -> Value | None:
    shape, dimensions = tuple(shape), tuple(dimensions)
    if x is None or (info(x.type).shape == shape and dimensions == tuple(sorted(dimensions))):
        return x
    attributes = {"broadcast_dimensions": i64s(dimensions)}
    result = static(with_shape(x.type, shape), "a broadcast")
    return emit1("stablehlo.broadcast_in_dim", result, [x], attributes)


def slice_(
    x: Value, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None
) -> Value:
    strides = tuple(strides) if strides is not None else (1,) * len(start)
    dims = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(start, limit, strides, strict=True))
    attributes = {
        "start_indices": i64s(tuple(start)),
        "limit_indices": i64s(tuple(limit)),
        "strides": i64s(strides),
    }
    type = static(x.type, "a slice")
    return emit1("stablehlo.slice", with_shape(type, dims), [x], attributes)


def part(x: Value, dimension: int, start: int, limit: int, stride: int = 1) -> Value:
    """Slice one dimension from `start` to `limit`; the others stay whole."""
    starts, limits, strides = [0] * rank(x), list(shape(x)), [1] * rank(x)
    starts[dimension], limits[dimension], strides[dimension] = start, limit, stride
    return slice_(x, starts, limits, strides)


def pad(
    x: Value,
    value: Value | Number,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
) -> Value:
    """Pad with a scalar; negative edges crop."""
    interior = tuple(interior) if interior is not None else (0,) * len(low)
    dims = tuple(
        lo + d + max(d - 1, 0) * i + hi
        for d, lo, hi, i in zip(shape(x), low, high, interior, strict=True)
    )
    if isinstance(value, (int, float, complex)):
        value = full(tensor((), info(x.type).element), value)
    attributes = {
        "edge_padding_low": i64s(tuple(low)),
        "edge_padding_high": i64s(tuple(high)),
        "interior_padding": i64s(interior),
    }
    type = static(x.type, "a padding")
    return emit1("stablehlo.pad", with_shape(type, dims), [x, value], attributes)


def concatenate(parts: Sequence[Value], dimension: int) -> Value:
    dims = list(shape(parts[0]))
    dims[dimension] = sum(shape(p)[dimension] for p in parts)
    attributes = {"dimension": i64(dimension)}
    return emit1(
        "stablehlo.concatenate", with_shape(parts[0].type, tuple(dims)), list(parts), attributes
    )


def dynamic_slice(x: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value:
    attributes = {"slice_sizes": i64s(tuple(sizes))}
    return emit1(
        "stablehlo.dynamic_slice", with_shape(x.type, tuple(sizes)), [x, *starts], attributes
    )


def dynamic_update_slice(x: Value, update: Value, starts: Sequence[Value]) -> Value:
    bounds = [n - m for n, m in zip(shape(x), shape(update), strict=True)]
    starts = [widened(start, bounds) for start in starts]
    return emit1("stablehlo.dynamic_update_slice", x.type, [x, update, *starts])


def widened(indices: Value, bounds: Sequence[int]) -> Value:
    """Convert indices to a wider type if theirs cannot represent all of these bounds.

    XLA compares indices with bounds in the type of the indices: if that is too narrow, it writes
    elsewhere, or nothing.
    """
    largest = max((0, *bounds))
    if holds(indices.type, largest):
        return indices
    return convert(indices, element_type("i32" if largest < 2**31 else "i64"))


def iota(type: Any, dimension: int) -> Value:
    attributes = {"iota_dimension": i64(dimension)}
    return emit1("stablehlo.iota", static(type, "an iota"), (), attributes)


# ----------------------------------------------------------------------- reductions, products


def reduce_sum(x: Value | None, dimensions: Sequence[int]) -> Value | None:
    """Sum over `dimensions`, which vanish."""
    dimensions = tuple(dimensions)
    if x is None or not dimensions:
        return x
    return reduce(x, 0, dimensions, "stablehlo.add")


def total(x: Value | None) -> Value | None:
    """Sum all elements."""
    return x if x is None else reduce_sum(x, range(rank(x)))


def reduce(x: Value, init: Value | Number, dimensions: Sequence[int], body: str) -> Value:
    """Reduce by a binary op given by name, e.g. 'stablehlo.maximum'."""
    dimensions = tuple(dimensions)
    result, element = _reduced(x.type, dimensions)
    if init.__class__ in _NUMBERS:
        init = full(element, init)
    op = emit("stablehlo.reduce", [result], [x, init], {"dimensions": i64s(dimensions)}, regions=1)
    fill_binary(op.regions[0], body, element)
    return op.result


@_jax.cached
def _reduced(type: Any, dimensions: Dims) -> tuple[Any, Any]:
    """Return the result type of a reduction and the type of one element."""
    t = info(type)
    dims = tuple(d for i, d in enumerate(t.shape) if i not in dimensions)
    return with_shape(type, dims), tensor((), t.element)


def fill_binary(region: Any, body: str, element: Any) -> None:
    """Give the region one block: (a, b) -> body(a, b) on scalars of type `element`."""
    block = region.blocks.append(element, element, arg_locs=[here.loc, here.loc])
    with inserting(ir.InsertionPoint(block)):
        emit("stablehlo.return", (), [emit1(body, element, list(block.arguments))])


def dot_general(
    x: Value | None,
    y: Value | None,
    *,
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    contract: tuple[Sequence[int], Sequence[int]],
    element: Any = None,
    precision: Any = None,
    algorithm: Any = None,
) -> Value | None:
    """Emit x · y; result dimensions are batch, then x's free ones, then y's."""
    if x is None or y is None:
        return None
    dims = product_shape(shape(x), shape(y), batch, contract)
    numbers = (tuple(batch[0]), tuple(batch[1])), (tuple(contract[0]), tuple(contract[1]))
    attributes = {"dot_dimension_numbers": dot_dimensions(*numbers)}
    if precision is not None:
        attributes["precision_config"] = precision
    if algorithm is not None:
        attributes["algorithm"] = algorithm
    result = tensor(dims, element if element is not None else info(x.type).element)
    return emit1("stablehlo.dot_general", result, [x, y], attributes)


def product_shape(
    x: Dims,
    y: Dims,
    batch: tuple[Sequence[int], Sequence[int]],
    contract: tuple[Sequence[int], Sequence[int]],
) -> Dims:
    """Return the shape of the product (`dot_general`) of operands of shapes x and y."""
    free_x = [d for i, d in enumerate(x) if i not in batch[0] and i not in contract[0]]
    free_y = [d for i, d in enumerate(y) if i not in batch[1] and i not in contract[1]]
    return (*(x[i] for i in batch[0]), *free_x, *free_y)


@_jax.of_context
def dot_dimensions(batch: tuple[Dims, Dims], contract: tuple[Dims, Dims]) -> Any:
    """Return the dimension numbers of a dot_general as an attribute, parsed once."""

    def dims(values: Dims) -> str:
        return "[" + ", ".join(map(str, values)) + "]"

    return attr(
        f"#stablehlo.dot<lhs_batching_dimensions = {dims(batch[0])}, "
        f"rhs_batching_dimensions = {dims(batch[1])}, "
        f"lhs_contracting_dimensions = {dims(contract[0])}, "
        f"rhs_contracting_dimensions = {dims(contract[1])}>"
    )


# ------------------------------------------------------------------------------- structure


def call(name: str, operands: Sequence[Value], results: Sequence[Any]) -> Any:
    """Emit `func.call @name` and return the operation."""
    return emit("func.call", list(results), list(operands), {"callee": symbol(name)})


def while_(inits: Sequence[Value]) -> tuple[Any, Any, Any]:
    """Emit an empty stablehlo.while over `inits`; return the op, its cond and its body block."""
    types = [v.type for v in inits]
    op = emit("stablehlo.while", types, list(inits), regions=2)
    locs = [here.loc] * len(types)
    cond = op.regions[0].blocks.append(*types, arg_locs=locs)
    body = op.regions[1].blocks.append(*types, arg_locs=locs)
    return op, cond, body


def return_(values: Sequence[Value]) -> Any:
    """Emit stablehlo.return, which ends a region of a StableHLO op."""
    return emit("stablehlo.return", (), list(values))


def integer(value: int, like: Value) -> Value:
    """Return a rank-0 integer constant of the type of `like`."""
    return full(like.type, value)


def clone(op: Any, operands: Sequence[Value]) -> Any:
    """Emit a copy of `op`, regions included, on other operands of the same types."""
    copy = op.clone(here.ip)
    places = copy.operands
    for i, v in enumerate(operands):
        places[i] = v
    return copy
