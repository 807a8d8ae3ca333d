"""Records of shapes that are easy to forget: arrays without elements, and without dimensions.

For ops whose other records have no such shapes; test_completeness.py says which op needs which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.rules.record import Arg, Case, cplx, ints, real, tensor

SHAPES = ((), (0, 2))
LABEL = "edge-shapes"


def each(
    op: str,
    f: Callable[..., Any],
    *,
    count: int = 1,
    low: float = -2.0,
    high: float = 2.0,
    **options: Any,
) -> Case:
    """A function of `count` arguments of one shape, on each of the shapes."""
    args = [real(*shape, low=low, high=high) for shape in SHAPES for _ in range(count)]

    def function(*xs: Any) -> list[Any]:
        return [f(*xs[i : i + count]) for i in range(0, len(xs), count)]

    return Case(op, function, args, LABEL, **options)


def text(
    op: str,
    args: Sequence[Any],
    lines: str,
    results: Sequence[tuple[int, ...]],
    reference: Callable[..., Any],
    **options: Any,
) -> Case:
    """A module written by hand: `lines` make %r0, %r1… of %x0, %x1…"""
    elements = ["i32" if isinstance(a, np.ndarray) else _element(a) for a in args]
    types = [tensor(a.shape, e) for a, e in zip(args, elements, strict=True)]
    signature = ", ".join(f"%x{i}: {type}" for i, type in enumerate(types))
    outs = ", ".join(tensor(shape, elements[0]) for shape in results)
    names = ", ".join(f"%r{i}" for i in range(len(results)))
    body = f"""func.func public @main({signature}) -> ({outs}) {{
  {lines}
  return {names} : {outs}
}}"""
    return Case(op, body, args, LABEL, reference, **options)


def _element(arg: Arg) -> str:
    return "complex<f64>" if arg.complex else "f64"


def elementwise(op: str, f: Callable[..., Any], args: Sequence[Arg]) -> Case:
    """An op that JAX does not lower to by itself, on each argument."""
    lines = []
    for i, arg in enumerate(args):
        type = tensor(arg.shape, _element(arg))
        suffix = f" -> {type}" if op.startswith("chlo.") else ""
        lines.append(f"%r{i} = {op} %x{i} : {type}{suffix}")
    shapes = [arg.shape for arg in args]
    return text(op, args, "\n  ".join(lines), shapes, lambda *xs: [f(x) for x in xs])


def reals(low: float = -2.0, high: float = 2.0) -> list[Arg]:
    return [real(*shape, low=low, high=high) for shape in SHAPES]


def complexes() -> list[Arg]:
    return [cplx(*shape) for shape in SHAPES]


def zeta(q: Any) -> Any:
    return lax.zeta(jnp.full_like(q, 2.5), q)


def next_after(x: Any, y: Any) -> Any:
    return lax.nextafter(x * x, y)


ELEMENTWISE = [
    elementwise("chlo.asin", lax.asin, reals(-0.8, 0.8)),
    elementwise("chlo.bessel_i1e", lax.bessel_i1e, reals(0.5, 2.0)),
    elementwise("chlo.conj", jnp.conj, complexes()),
    elementwise("chlo.lgamma", lax.lgamma, reals(0.5, 3.0)),
    elementwise("chlo.tan", lax.tan, reals(-1.0, 1.0)),
    elementwise("stablehlo.logistic", lax.logistic, reals()),
    replace(elementwise("stablehlo.sign", lax.sign, complexes()), against_jax=False),
    each("chlo.polygamma", lambda x: lax.polygamma(jnp.ones_like(x), x), low=0.5, high=3.0),
    each(
        "chlo.zeta",
        lambda q: lax.zeta(jnp.full_like(q, 2.5), q),
        low=0.5,
        high=3.0,
        against_jax=False,
    ),
    each(
        "chlo.next_after",
        lambda x, y: lax.nextafter(x * x, y),
        count=2,
        against_jax=False,
        dtypes=("float32",),
    ),
    each("stablehlo.clamp", lambda low, x: lax.clamp(low - 3.0, x, low + 3.0), count=2),
    each("stablehlo.complex", lax.complex, count=2, dtypes=("float32",)),
    each("stablehlo.convert", lambda x: x.astype(jnp.complex128)),
    each("stablehlo.maximum", lax.max, count=2),
    each("stablehlo.minimum", lax.min, count=2),
    each("stablehlo.optimization_barrier", lambda x: lax.optimization_barrier(x * x)),
    each("stablehlo.reduce_precision", lambda x: lax.reduce_precision(x * x, 8, 7), numeric=False),
    each("stablehlo.remainder", lambda x, y: lax.rem(x, y), count=2, low=1.1, high=1.9),
    each("stablehlo.reverse", lambda x: lax.rev(x, tuple(range(x.ndim)))),
    each("stablehlo.select", lambda x, y: lax.select(x > y, x * y, y), count=2),
    Case("stablehlo.imag", lambda x, y: (lax.imag(x), lax.imag(y)), complexes(), LABEL),
    Case("stablehlo.real", lambda x, y: (lax.real(x), lax.real(y)), complexes(), LABEL),
]

MAP = """%r{i} = "stablehlo.map"(%x{i}) <{{dimensions = array<i64: {dimensions}>}}> ({{
  ^bb0(%a: tensor<f64>):
    %b = stablehlo.sine %a : tensor<f64>
    stablehlo.return %b : tensor<f64>
  }}) : ({type}) -> {type}"""
TUPLES = """%t = stablehlo.tuple %x0, %x1 : tuple<tensor<f64>, tensor<0x2xf64>>
  %a = stablehlo.get_tuple_element %t[0] : (tuple<tensor<f64>, tensor<0x2xf64>>) -> tensor<f64>
  %b = stablehlo.get_tuple_element %t[1] : (tuple<tensor<f64>, tensor<0x2xf64>>) -> tensor<0x2xf64>
  %r0 = stablehlo.sine %a : tensor<f64>
  %r1 = stablehlo.sine %b : tensor<0x2xf64>"""

STRUCTURE = [
    text(
        "stablehlo.map",
        reals(),
        MAP.format(i=0, dimensions="", type="tensor<f64>").replace("array<i64: >", "array<i64>")
        + "\n  "
        + MAP.format(i=1, dimensions="0, 1", type="tensor<0x2xf64>"),
        SHAPES,
        lambda x, y: (jnp.sin(x), jnp.sin(y)),
    ),
    *(
        text(f"stablehlo.{op}", reals(), TUPLES, SHAPES, lambda x, y: (jnp.sin(x), jnp.sin(y)))
        for op in ("tuple", "get_tuple_element")
    ),
]

MOVES = [
    text(
        "stablehlo.broadcast",
        reals(),
        """%r0 = "stablehlo.broadcast"(%x0) <{broadcast_sizes = array<i64: 3>}>
    : (tensor<f64>) -> tensor<3xf64>
  %r1 = "stablehlo.broadcast"(%x1) <{broadcast_sizes = array<i64: 3>}>
    : (tensor<0x2xf64>) -> tensor<3x0x2xf64>""",
        ((3,), (3, 0, 2)),
        lambda x, y: (jnp.full(3, x), jnp.zeros((3, 0, 2)) * y),
    ),
    Case(
        "stablehlo.broadcast_in_dim",
        lambda x: lax.broadcast_in_dim(x, (3, 0), (1,)),
        [real(0)],
        LABEL,
    ),
    each("stablehlo.slice", lambda x: lax.slice(x, (0,) * x.ndim, x.shape)),
    Case(
        "stablehlo.dynamic_slice",
        lambda x: lax.dynamic_slice(x, (0, 0), (0, 1)),
        [real(0, 2)],
        LABEL,
    ),
    Case(
        "stablehlo.dynamic_update_slice",
        lambda x, u: lax.dynamic_update_slice(x * x, u, (0, 0)),
        [real(0, 2), real(0, 1)],
        LABEL,
    ),
    text(
        "stablehlo.transpose",
        [real()],
        "%r0 = stablehlo.transpose %x0, dims = [] : (tensor<f64>) -> tensor<f64>",
        ((),),
        lambda x: x,
    ),
    text(
        "stablehlo.dynamic_reshape",
        reals(),
        """%one = stablehlo.constant dense<1> : tensor<1xi32>
  %r0 = stablehlo.dynamic_reshape %x0, %one : (tensor<f64>, tensor<1xi32>) -> tensor<1xf64>
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %r1 = stablehlo.dynamic_reshape %x1, %none : (tensor<0x2xf64>, tensor<1xi32>) -> tensor<0xf64>""",
        ((1,), (0,)),
        lambda x, y: (x.reshape(1), y.reshape(0)),
    ),
    text(
        "stablehlo.dynamic_broadcast_in_dim",
        reals(),
        """%sizes = stablehlo.constant dense<[3, 0, 2]> : tensor<3xi32>
  %three = stablehlo.constant dense<3> : tensor<1xi32>
  %r0 = stablehlo.dynamic_broadcast_in_dim %x0, %three, dims = []
    : (tensor<f64>, tensor<1xi32>) -> tensor<3xf64>
  %r1 = stablehlo.dynamic_broadcast_in_dim %x1, %sizes, dims = [1, 2]
    : (tensor<0x2xf64>, tensor<3xi32>) -> tensor<3x0x2xf64>""",
        ((3,), (3, 0, 2)),
        lambda x, y: (jnp.full(3, x), jnp.zeros((3, 0, 2)) * y),
    ),
    text(
        "stablehlo.dynamic_pad",
        [real(0), real()],
        """%one = stablehlo.constant dense<1> : tensor<1xi32>
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %r0 = stablehlo.dynamic_pad %x0, %x1, %one, %one, %none
    : (tensor<0xf64>, tensor<f64>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<2xf64>""",
        ((2,),),
        lambda x, value: lax.pad(x, value, ((1, 1, 0),)),
    ),
    text(
        "stablehlo.real_dynamic_slice",
        [real(0, 2), real()],
        """%start = stablehlo.constant dense<[0, 1]> : tensor<2xi32>
  %limit = stablehlo.constant dense<[0, 2]> : tensor<2xi32>
  %strides = stablehlo.constant dense<1> : tensor<2xi32>
  %r0 = stablehlo.real_dynamic_slice %x0, %start, %limit, %strides
    : (tensor<0x2xf64>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<0x1xf64>
  %none = stablehlo.constant dense<> : tensor<0xi32>
  %r1 = stablehlo.real_dynamic_slice %x1, %none, %none, %none
    : (tensor<f64>, tensor<0xi32>, tensor<0xi32>, tensor<0xi32>) -> tensor<f64>""",
        ((0, 1), ()),
        lambda x, y: (x[:, 1:], y),
    ),
]

GATHER = """%r0 = "stablehlo.gather"(%x0, %x1) <{slice_sizes = array<i64: 1, 0>,
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>}>
    : (tensor<3x0xf64>, tensor<2x1xi32>) -> tensor<2x0xf64>"""
ONE_FROM_NOWHERE = lax.GatherDimensionNumbers((), (), ())

INDEXING = [
    Case(
        "stablehlo.gather",
        lambda x, i: lax.gather(x, i, ONE_FROM_NOWHERE, (), mode="clip"),
        [real(), ints(np.zeros(0))],  # XLA adds several updates of a scalar wrongly
        "rank-0",
    ),
    Case(
        "stablehlo.scatter",
        lambda x, i, u: lax.scatter_add(x * x, i, u, lax.ScatterDimensionNumbers((), (), ())),
        [real(), ints(np.zeros(0)), real()],
        "rank-0",
    ),
    text(
        "stablehlo.gather",
        [real(3, 0), ints([[0], [5]])],
        GATHER,
        ((2, 0),),
        lambda x, i: x[:2],
    ),
    text(
        "stablehlo.dynamic_gather",
        [real(3, 0), ints([[0], [5]])],
        "%sizes = stablehlo.constant dense<[1, 0]> : tensor<2xi32>\n  "
        + GATHER.replace("<{slice_sizes = array<i64: 1, 0>,", "<{")
        .replace("stablehlo.gather", "stablehlo.dynamic_gather", 1)
        .replace("(%x0, %x1)", "(%x0, %x1, %sizes)")
        .replace("tensor<2x1xi32>)", "tensor<2x1xi32>, tensor<2xi32>)"),
        ((2, 0),),
        lambda x, i: x[:2],
    ),
    Case(
        "stablehlo.scatter",
        lambda x, i, u: lax.scatter_add(x, i, u, lax.ScatterDimensionNumbers((1,), (0,), (0,))),
        [real(3, 2), ints(np.zeros((0, 1))), real(0, 2)],
        LABEL,
    ),
]

OTHERS = [
    text(
        "stablehlo.dot",
        [real(2, 0), real(0, 3)],
        "%r0 = stablehlo.dot %x0, %x1 : (tensor<2x0xf64>, tensor<0x3xf64>) -> tensor<2x3xf64>",
        ((2, 3),),
        lambda x, y: x @ y,
    ),
    text(
        "stablehlo.triangular_solve",
        [real(2, 2, low=1.0), real(2, 0)],
        """%r0 = "stablehlo.triangular_solve"(%x0, %x1) {left_side = true, lower = true,
    unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}
    : (tensor<2x2xf64>, tensor<2x0xf64>) -> tensor<2x0xf64>""",
        ((2, 0),),
        lambda a, b: a @ b,
        dtypes=("float32",),
    ),
    Case(
        "stablehlo.reduce_window",
        lambda x: lax.reduce_window(x, np.zeros((), x.dtype), lax.add, (2, 1), (1, 1), "VALID"),
        [real(3, 0)],
        LABEL,
    ),
    Case("chlo.top_k", lambda x: lax.top_k(x, 2), [real(0, 3)], LABEL),
    text(
        "stablehlo.select_and_scatter",
        [real(0, 4), real(0, 2), real()],
        """%r0 = "stablehlo.select_and_scatter"(%x0, %x1, %x2) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %c = stablehlo.compare GE, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %c = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %c : tensor<f64>
  }) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}
    : (tensor<0x4xf64>, tensor<0x2xf64>, tensor<f64>) -> tensor<0x4xf64>""",
        ((0, 4),),
        lambda x, source, init: x * init,
    ),
]

CASES = [*ELEMENTWISE, *STRUCTURE, *MOVES, *INDEXING, *OTHERS]
