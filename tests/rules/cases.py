"""Records of elementwise ops, shapes, reductions and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.rules.record import Case, cplx, distinct, floats, ints, real


def each(f: Callable[..., Any]) -> Callable[..., Any]:
    """f on every argument: several shapes in one program."""
    return lambda *xs: [f(x) for x in xs]


def pairs(f: Callable[..., Any]) -> Callable[..., Any]:
    """f on the arguments two by two."""
    return lambda *xs: [f(x, y) for x, y in zip(xs[::2], xs[1::2], strict=True)]


def unary(op: str, f: Callable[..., Any], low: float = -2.0, high: float = 2.0) -> Case:
    shapes = [(2, 3), (), (0, 2)]
    return Case(f"stablehlo.{op}", each(f), [real(*s, low=low, high=high) for s in shapes])


def unary_complex(op: str, f: Callable[..., Any], low: float = -1.0, high: float = 1.0) -> Case:
    args = [cplx(2, 3, low=low, high=high), cplx(low=low, high=high)]
    return Case(f"stablehlo.{op}", each(f), args, "complex")


def binary(op: str, f: Callable[..., Any], low: float = -2.0, high: float = 2.0) -> Case:
    shapes = [(2, 3), (2, 3), (), (), (0,), (0,)]
    return Case(f"stablehlo.{op}", pairs(f), [real(*s, low=low, high=high) for s in shapes])


def binary_complex(op: str, f: Callable[..., Any], low: float = 0.5, high: float = 2.0) -> Case:
    return Case(f"stablehlo.{op}", f, [cplx(3, low=low, high=high)] * 2, "complex")


def edges(op: str, f: Callable[..., Any], *values: Any, second: bool = True) -> Case:
    """Points where the derivative is a matter of convention: JAX's."""
    args = [floats(v) for v in values]
    return Case(f"stablehlo.{op}", f, args, "edges", numeric=False, second=second)


ABS = """func.func public @main(%x: tensor<3xcomplex<f64>>) -> tensor<3xf64> {
  %0 = stablehlo.abs %x : (tensor<3xcomplex<f64>>) -> tensor<3xf64>
  return %0 : tensor<3xf64> }"""

ELEMENTWISE = [
    binary("add", lax.add),
    binary_complex("add", lax.add),
    binary("subtract", lax.sub),
    binary("multiply", lax.mul),
    binary_complex("multiply", lax.mul),
    Case("stablehlo.multiply", lambda x: lax.mul(x, x), [real(2, 3)], "square"),
    Case("stablehlo.multiply", lambda x: lax.mul(x, x), [cplx(3)], "complex-square"),
    binary("divide", lax.div, 0.5, 2.0),
    binary_complex("divide", lax.div),
    Case(
        "stablehlo.divide",
        lambda x, y, s: [x / y[:, None] + x / s, y[None] / x.T, (x / 2 + 2 / y[:, None]) / s],
        [real(2, 3, low=0.5), real(2, low=0.5), real(low=0.5)],
        "repeated-divisor",
    ),
    Case(
        "stablehlo.divide",
        lambda x, y: lax.cond(
            x[0, 0] > 0, lambda z: x / z, lambda z: z * x, lax.broadcast_in_dim(y, (2, 3), (0,))
        ),
        [real(2, 3, low=0.5), real(2, low=0.5)],
        "divisor-repeated-outside",
    ),
    Case(  # nothing is divided by these zeros
        "stablehlo.divide",
        lambda x, y: x / y,
        [floats(np.ones((0, 2))), floats([0.0, 2.0])],
        "divisor-repeated-never",
        numeric=False,
    ),
    Case("stablehlo.remainder", lax.rem, [floats([5.3, -5.3, 7.1]), floats([2.0, 1.5, -2.2])]),
    Case(  # x / y is rounded to 10 and -20, and JAX takes the whole part of that
        "stablehlo.remainder",
        lax.rem,
        [floats([1.0, -2.0, 7.0]), floats([0.1, 0.1, -2.0])],
        "rounded-quotient",
        reference=lambda x, y: x - y * np.array([9.0, -19.0, -3.0]),
        numeric=False,
    ),
    unary("negate", lax.neg),
    unary("exponential", lax.exp),
    unary_complex("exponential", lax.exp),
    unary("exponential_minus_one", lax.expm1),
    unary("log", lax.log, 0.5, 3.0),
    unary_complex("log", lax.log, 0.5, 2.0),
    unary("log_plus_one", lax.log1p, -0.5, 2.0),
    unary("sqrt", lax.sqrt, 0.5, 3.0),
    unary_complex("sqrt", lax.sqrt, 0.5, 2.0),
    unary("rsqrt", lax.rsqrt, 0.5, 3.0),
    unary_complex("rsqrt", lax.rsqrt, 0.5, 2.0),
    unary("cbrt", lax.cbrt, 0.5, 3.0),
    unary("sine", lax.sin),
    unary("cosine", lax.cos),
    unary("tan", lax.tan, -1.0, 1.0),
    unary("tanh", lax.tanh),
    unary_complex("tanh", lax.tanh),
    binary("atan2", lax.atan2),
    binary("power", lax.pow, 0.5, 2.0),
    binary_complex("power", lax.pow),
    edges("power", lax.pow, [0.0, 0.0, 0.0, 2.0, -2.0], [1.0, 2.0, 3.0, 0.0, 3.0], second=False),
    Case(
        "stablehlo.power",
        lambda x: lax.pow(x, np.array([0, 1, 2, 3, -1, 0], np.int32)),
        [floats([0.0, 0.0, 0.0, -1.5, 2.0, 3.0])],
        "integer-exponent",
        numeric=False,
        second=False,  # JAX has NaN for the second derivative of x^1 at 0
    ),
    Case(
        "stablehlo.maximum",
        lambda x, y, a, b: (lax.max(x, y), lax.max(a, b)),
        [distinct(2, 3), distinct(2, 3, low=-1.9, high=2.1), real(), real(0)][:2]
        + [floats(1.0), floats(2.0)],
    ),
    edges("maximum", lax.max, [1.0, 2.0, -0.0, 3.0], [1.0, 3.0, 0.0, np.nan]),
    Case("stablehlo.minimum", lax.min, [distinct(2, 3), distinct(2, 3, low=-1.9, high=2.1)]),
    edges("minimum", lax.min, [1.0, 2.0, -0.0, 3.0], [1.0, 3.0, 0.0, np.nan]),
    Case(
        "stablehlo.select",
        lambda x, y: lax.select(np.array([True, False, True]), x, y),
        [real(3), real(3)],
    ),
    Case("stablehlo.select", lambda x, y: lax.select(x > y, x * y, y), [real(4), real(4)], "data"),
    Case(
        "stablehlo.clamp",
        lax.clamp,
        [floats([-1.0, 0.5, -1.0]), floats([0.2, 0.1, 3.0]), floats([1.0, 1.5, 1.0])],
    ),
    Case(
        "stablehlo.clamp",
        """func.func public @main(%low: tensor<f64>, %x: tensor<4xf64>, %high: tensor<f64>)
             -> tensor<4xf64> {
           %0 = stablehlo.clamp %low, %x, %high
             : (tensor<f64>, tensor<4xf64>, tensor<f64>) -> tensor<4xf64>
           return %0 : tensor<4xf64> }""",
        [floats(-1.0), floats([-2.0, -0.5, 0.5, 2.0]), floats(1.0)],
        "scalar-bounds",
        reference=lambda low, x, high: lax.clamp(jnp.full(4, low), x, jnp.full(4, high)),
    ),
    Case(
        "stablehlo.clamp",
        lax.clamp,
        [floats([1.0, 1.0, 1.0]), floats([0.2, 0.6, 1.5]), floats([0.5, 0.5, 0.5])],
        "low-above-high",
        reference=lambda low, x, high: jnp.minimum(jnp.maximum(low, x), high),
    ),
    edges("clamp", lax.clamp, [0.0, 0.0, 0.0], [0.0, 1.0, 0.5], [1.0, 1.0, 0.0]),
    unary("abs", lax.abs),
    Case("stablehlo.abs", ABS, [cplx(3)], "complex", reference=lax.abs),
    edges("abs", lax.abs, [0.0, -0.0]),
    Case(
        "stablehlo.abs",
        ABS,
        [np.zeros(3, np.complex128)],
        "complex-zero",
        reference=lax.abs,
        numeric=False,
        second=False,
    ),
    Case(
        "stablehlo.sign",
        """func.func public @main(%x: tensor<3xcomplex<f64>>) -> tensor<3xcomplex<f64>> {
           %0 = stablehlo.sign %x : tensor<3xcomplex<f64>>
           return %0 : tensor<3xcomplex<f64>> }""",
        [cplx(3)],
        "complex",
        against_jax=False,  # zero before JAX 0.12
    ),
    unary_complex("real", lax.real),
    unary_complex("imag", lax.imag),
    Case("stablehlo.complex", lax.complex, [real(2, 3), real(2, 3)], dtypes=("float32",)),
    Case(
        "stablehlo.convert",
        lambda x, y: (x.astype(jnp.float32) * 3, y.astype(jnp.complex128) * 2j, x.astype(int)),
        [floats([0.5, 1.5]), real(2)],
        numeric=False,
    ),
    Case(
        "stablehlo.convert",
        lambda x: lax.mul(x.astype(jnp.complex128), 1 + 2j),
        [real(2)],
        "to-complex",
    ),
    Case(
        "stablehlo.convert",
        """func.func public @main(%x: tensor<2xcomplex<f64>>) -> tensor<2xf64> {
           %0 = stablehlo.convert %x : (tensor<2xcomplex<f64>>) -> tensor<2xf64>
           return %0 : tensor<2xf64> }""",
        [cplx(2)],
        "from-complex",
        reference=lax.real,
    ),
    Case(
        "stablehlo.reduce_precision",
        lambda x: lax.reduce_precision(x, 11, 52),
        [real(3)],
    ),
    Case(
        "stablehlo.reduce_precision",
        lambda x: lax.reduce_precision(x * x, 8, 7),
        [real(3)],
        "rounding",
        numeric=False,
    ),
    Case(
        "stablehlo.logistic",
        """func.func public @main(%x: tensor<5xf64>) -> tensor<5xf64> {
           %0 = stablehlo.logistic %x : tensor<5xf64>
           return %0 : tensor<5xf64> }""",
        [floats([-3.0, -0.5, 0.0, 1.0, 2.0])],
        reference=lax.logistic,
    ),
    *(
        Case(f"stablehlo.{op}", lambda x, f=f: f(x) * x, [floats([0.3, 1.7, -2.4])])
        for op, f in {
            "floor": lax.floor,
            "ceil": lax.ceil,
            "sign": lax.sign,
            "round_nearest_afz": lax.round,
            "round_nearest_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        }.items()
    ),
]

SHAPES = [
    Case(
        "stablehlo.broadcast_in_dim",
        lambda x, y, z: (
            lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)),
            lax.broadcast_in_dim(y, (2, 3), ()),
            lax.broadcast_in_dim(z, (0, 1, 5), (1, 2)),
        ),
        [real(2, 3), real(), real(1, 5)],
    ),
    Case(
        "stablehlo.broadcast_in_dim",
        """func.func public @main(%x: tensor<1x3x2xf64>) -> tensor<2x4x5x3xf64> {
           %0 = stablehlo.broadcast_in_dim %x, dims = [2, 3, 0]
             : (tensor<1x3x2xf64>) -> tensor<2x4x5x3xf64>
           return %0 : tensor<2x4x5x3xf64> }""",
        [real(1, 3, 2)],
        "permuted",
        reference=lambda x: jnp.broadcast_to(x.transpose(2, 0, 1)[:, None], (2, 4, 5, 3)),
    ),
    Case(
        "stablehlo.broadcast_in_dim",
        lambda x, y, z: (
            lax.broadcast_in_dim(x, (1, 3, 1), (1,)),
            lax.broadcast_in_dim(y, (2, 4, 1, 3), (0, 3)),
            lax.broadcast_in_dim(z, (1,), ()),
        ),
        [real(3), real(1, 3), real()],
        "of-size-1",
    ),
    Case(
        "stablehlo.broadcast_in_dim",
        """func.func public @main(%x: tensor<3x2xf64>) -> tensor<2x1x3xf64> {
           %0 = stablehlo.broadcast_in_dim %x, dims = [2, 0]
             : (tensor<3x2xf64>) -> tensor<2x1x3xf64>
           return %0 : tensor<2x1x3xf64> }""",
        [real(3, 2)],
        "of-size-1-permuted",
        reference=lambda x: x.T[:, None],
    ),
    Case(
        "stablehlo.broadcast_in_dim",
        lambda x, y: (
            lax.broadcast_in_dim(x, (3, 3), (0,)) * jnp.sin(lax.broadcast_in_dim(y, (3, 3), (1,)))
        ),
        [real(3), real(3)],
        "to-rows-and-columns",
    ),
    Case(
        "stablehlo.broadcast",
        """func.func public @main(%x: tensor<3xf64>) -> tensor<2x4x3xf64> {
           %0 = "stablehlo.broadcast"(%x) <{broadcast_sizes = array<i64: 2, 4>}>
             : (tensor<3xf64>) -> tensor<2x4x3xf64>
           return %0 : tensor<2x4x3xf64> }""",
        [real(3)],
        reference=lambda x: jnp.broadcast_to(x, (2, 4, 3)),
    ),
    Case(
        "stablehlo.reshape",
        lambda x, y, z: (x.reshape(3, 2), y.reshape(1, 1), z.reshape(0, 3)),
        [real(2, 3), real(), real(0, 2)],
    ),
    Case(
        "stablehlo.transpose",
        lambda x, y: (x.transpose(2, 0, 1), y.T),
        [real(2, 3, 4), real(0, 2)],
    ),
    Case("stablehlo.reverse", lambda x: lax.rev(x, (0, 2)), [real(2, 3, 2)]),
    Case(
        "stablehlo.slice",
        lambda x, y: (
            lax.slice(x, (1, 0), (3, 5), (1, 2)) * lax.slice(x, (0, 1), (2, 6), (1, 2)),
            lax.slice(y, (2,), (2,)),
        ),
        [real(4, 6), real(3)],
    ),
    Case(
        "stablehlo.slice",
        lambda x: sum(x[i : i + 2] ** 2 for i in range(4)) * x[4:6],
        [real(6)],
        "overlapping",
    ),
    Case(
        "stablehlo.pad",
        lambda x, v, y: (
            lax.pad(x, v, ((1, 2, 0), (-1, 1, 2))) * 2,
            lax.pad(x, v, ((-1, -1, 1), (2, -3, 0))),
            lax.pad(y, v, ((1, 1, 3),)),
        ),
        [real(3, 4), real(), real(0)],
    ),
    Case(
        "stablehlo.concatenate",
        lambda x, y, z: lax.concatenate([x, y, z, x], 1),
        [real(2, 3), real(2, 0), real(2, 1)],
    ),
    Case(
        "stablehlo.dynamic_slice",
        lambda x, i, j: [
            lax.dynamic_slice(x, (k, np.int32(1)), (2, 2)) * x[:2, :2] for k in (i, j)
        ],
        [real(4, 3), ints(1), ints(9)],
    ),
    Case(
        "stablehlo.dynamic_update_slice",
        lambda x, u, i, j: [lax.dynamic_update_slice(x * x, u, (k, np.int32(1))) for k in (i, j)],
        [real(4, 3), real(2, 2), ints(1), ints(-7)],
    ),
]

STRUCTURE = [
    Case(
        "stablehlo.optimization_barrier",
        lambda x, n, y: lax.optimization_barrier((x * x, n, y)),
        [real(3), ints([1, 2]), real()],
    ),
    Case(
        "stablehlo.map",
        """func.func public @main(%x: tensor<2x3xf64>, %y: tensor<2x3xf64>) -> tensor<2x3xf64> {
           %0 = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
             ^bb0(%a: tensor<f64>, %b: tensor<f64>):
               %two = stablehlo.constant dense<2.0> : tensor<f64>
               %s = stablehlo.sine %a : tensor<f64>
               %p = stablehlo.multiply %s, %b : tensor<f64>
               %q = stablehlo.power %b, %two : tensor<f64>
               %r = stablehlo.add %p, %q : tensor<f64>
               stablehlo.return %r : tensor<f64>
           }) : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x3xf64>
           return %0 : tensor<2x3xf64> }""",
        [real(2, 3), real(2, 3, low=0.5)],
        reference=lambda x, y: jnp.sin(x) * y + y**2.0,
    ),
    Case(
        "stablehlo.map",
        """func.func public @main(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
           %0 = "stablehlo.map"(%x) <{dimensions = array<i64: 0, 1>}> ({
             ^bb0(%a: tensor<f64>):
               %two = chlo.constant dense<2.0> : tensor<f64>
               %t = stablehlo.transpose %a, dims = [] : (tensor<f64>) -> tensor<f64>
               %v = stablehlo.reshape %t : (tensor<f64>) -> tensor<1xf64>
               %w = stablehlo.slice %v [0:1] : (tensor<1xf64>) -> tensor<1xf64>
               %three = stablehlo.constant dense<3.0> : tensor<1xf64>
               %p = stablehlo.power %w, %three : tensor<1xf64>
               %q = stablehlo.reshape %p : (tensor<1xf64>) -> tensor<f64>
               %r = stablehlo.multiply %q, %two : tensor<f64>
               stablehlo.return %r : tensor<f64>
           }) : (tensor<2x3xf64>) -> tensor<2x3xf64>
           return %0 : tensor<2x3xf64> }""",
        [real(2, 3, low=0.5)],
        "one_element",
        reference=lambda x: 2 * x**3,
    ),
]


def reduction(f: Callable[..., Any], axes: tuple[int, ...]) -> Callable[..., Any]:
    return lambda *xs: [f(x, axes) for x in xs]


def composed_maps(a: Any, b: Any) -> Any:
    """Of affine maps, the one after the other: this does not commute."""
    return a[0] * b[1] + b[0], a[1] * b[1]


def composed_one_by_one(shifts: Any, scales: Any) -> Any:
    whole = 0.0, 1.0
    for each in zip(shifts, scales, strict=True):
        whole = composed_maps(whole, each)
    return whole


def general_reduce(body: Callable[..., Any], init: float, axes: tuple[int, ...] = (0,)) -> Any:
    return lambda x: lax.reduce(x, np.float64(init).astype(x.dtype), body, axes)


def logaddexp(x: Any, y: Any) -> Any:
    return jnp.log(jnp.exp(x) + jnp.exp(y))


TUPLES = """func.func public @main(%x: tensor<2xf64>, %n: tensor<i32>, %y: tensor<3xf64>)
    -> (tensor<2xf64>, tensor<3xf64>, tensor<i32>) {
  %t = stablehlo.tuple %x, %n : tuple<tensor<2xf64>, tensor<i32>>
  %u = stablehlo.tuple %y, %t
    : tuple<tensor<3xf64>, tuple<tensor<2xf64>, tensor<i32>>>
  %v = stablehlo.get_tuple_element %u[1]
    : (tuple<tensor<3xf64>, tuple<tensor<2xf64>, tensor<i32>>>) -> tuple<tensor<2xf64>, tensor<i32>>
  %a = stablehlo.get_tuple_element %v[0] : (tuple<tensor<2xf64>, tensor<i32>>) -> tensor<2xf64>
  %b = stablehlo.get_tuple_element %u[0]
    : (tuple<tensor<3xf64>, tuple<tensor<2xf64>, tensor<i32>>>) -> tensor<3xf64>
  %c = stablehlo.get_tuple_element %t[1] : (tuple<tensor<2xf64>, tensor<i32>>) -> tensor<i32>
  %d = stablehlo.multiply %a, %x : tensor<2xf64>
  %e = stablehlo.sine %b : tensor<3xf64>
  return %d, %e, %c : tensor<2xf64>, tensor<3xf64>, tensor<i32> }"""
STRUCTURE += [
    Case(
        f"stablehlo.{op}",
        TUPLES,
        [real(2), ints(3), real(3)],
        reference=lambda x, n, y: (x * x, jnp.sin(y), n),
    )
    for op in ("tuple", "get_tuple_element")
]
STRUCTURE += [
    Case(
        "stablehlo.tuple",
        TUPLES.replace("%x: tensor<2xf64>, ", "").replace(
            "%t =", "%x = stablehlo.constant dense<0.5> : tensor<2xf64>\n  %t ="
        ),
        [ints(3), real(3)],
        "part_at_rest",
        reference=lambda n, y: (jnp.full(2, 0.25), jnp.sin(y), n),
    )
]

TAKEN_INSIDE = """func.func public @main(%x: tensor<2xf64>, %n: tensor<i32>) -> tensor<2xf64> {
  %s = stablehlo.sine %x : tensor<2xf64>
  %t = stablehlo.tuple %s, %n : tuple<tensor<2xf64>, tensor<i32>>
  %u = stablehlo.tuple %t, %x : tuple<tuple<tensor<2xf64>, tensor<i32>>, tensor<2xf64>>
  %p = stablehlo.constant dense<true> : tensor<i1>
  %r = "stablehlo.if"(%p) ({
    %b = "stablehlo.if"(%p) ({
      %v = stablehlo.get_tuple_element %u[0]
        : (tuple<tuple<tensor<2xf64>, tensor<i32>>, tensor<2xf64>>)
        -> tuple<tensor<2xf64>, tensor<i32>>
      %e = stablehlo.get_tuple_element %v[0] : (tuple<tensor<2xf64>, tensor<i32>>) -> tensor<2xf64>
      stablehlo.return %e : tensor<2xf64>
    }, {
      stablehlo.return %x : tensor<2xf64>
    }) : (tensor<i1>) -> tensor<2xf64>
    %a = stablehlo.get_tuple_element %u[1]
      : (tuple<tuple<tensor<2xf64>, tensor<i32>>, tensor<2xf64>>) -> tensor<2xf64>
    %d = stablehlo.multiply %b, %a : tensor<2xf64>
    stablehlo.return %d : tensor<2xf64>
  }, {
    stablehlo.return %x : tensor<2xf64>
  }) : (tensor<i1>) -> tensor<2xf64>
  return %r : tensor<2xf64> }"""
STRUCTURE += [
    Case(
        "stablehlo.get_tuple_element",
        TAKEN_INSIDE,
        [real(2), np.int32(3)],
        "inside_of_regions",
        reference=lambda x, n: x * jnp.sin(x),
    )
]


# XLA's CPU backend starts no slices.
ASYNCHRONOUS = """
func.func public @main(%x: tensor<2xTYPE>) -> tensor<2xTYPE> {
  %sine = stablehlo.sine %x : tensor<2xTYPE>
  %0 = "stablehlo.async_start"(%sine) ({
  ^bb0(%a: tensor<2xTYPE>):
    %sum = "stablehlo.all_reduce"(%a) ({
    ^bb1(%b: tensor<TYPE>, %c: tensor<TYPE>):
      %d = stablehlo.add %b, %c : tensor<TYPE>
      stablehlo.return %d : tensor<TYPE>
    }) {replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<2xTYPE>) -> tensor<2xTYPE>
    stablehlo.return %sum : tensor<2xTYPE>
  }) : (tensor<2xTYPE>) -> !stablehlo.future<tensor<2xTYPE>>
  %1 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<2xTYPE>>) -> tensor<2xTYPE>
  %2 = stablehlo.multiply %1, %1 : tensor<2xTYPE>
  return %2 : tensor<2xTYPE>
}
"""
STRUCTURE += [
    Case(
        f"stablehlo.{op}",
        ASYNCHRONOUS.replace("TYPE", "f64").replace("2x", size),
        [real(*shape)],
        label,
        lambda x: jnp.sin(x) ** 2,
    )
    for op in ("async_start", "async_done")
    for size, shape, label in (("2x", (2,), ""), ("", (), "scalar"))
]

REDUCE = "stablehlo.reduce"
REDUCTIONS = [
    Case(
        REDUCE,
        lambda x, y, z: (lax.reduce_sum(x, (0, 2)), lax.reduce_sum(y, (1,)), z.sum()),
        [real(2, 3, 4), real(3, 0), real(2)],
        "add",
    ),
    Case(REDUCE, lambda x: lax.reduce_sum(x, (0,)), [cplx(2, 3)], "add-complex"),
    Case(
        REDUCE,
        """func.func public @main(%x: tensor<2x3xf64>, %init: tensor<f64>) -> tensor<3xf64> {
           %0 = stablehlo.reduce(%x init: %init) applies stablehlo.add across dimensions = [0]
             : (tensor<2x3xf64>, tensor<f64>) -> tensor<3xf64>
           return %0 : tensor<3xf64> }""",
        [real(2, 3), real()],
        "add-init",
        reference=lambda x, init: x.sum(0) + init,
    ),
    Case(
        REDUCE,
        lambda x, y: (lax.reduce_max(x, (1,)), lax.reduce_max(y, (0, 1))),
        [distinct(3, 4), distinct(2, 2)],
        "maximum",
    ),
    Case(REDUCE, lambda x: lax.reduce_min(x, (0,)), [distinct(3, 4)], "minimum"),
    Case(
        REDUCE,
        lambda x: (lax.reduce_max(x, (1,)), lax.reduce_min(x, (1,))),
        [floats([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-0.0, 0.0, -1.0]])],
        "ties",
        numeric=False,
    ),
    Case(
        REDUCE,
        """func.func public @main(%x: tensor<3x2xf64>, %init: tensor<f64>) -> tensor<3xf64> {
           %0 = stablehlo.reduce(%x init: %init) applies stablehlo.maximum across dimensions = [1]
             : (tensor<3x2xf64>, tensor<f64>) -> tensor<3xf64>
           return %0 : tensor<3xf64> }""",
        [floats([[1.0, 2.0], [-3.0, -4.0], [-1.0, 0.5]]), floats(0.25)],
        "maximum-init",
        reference=lambda x, init: jnp.maximum(x.max(1), init),
    ),
    Case(
        REDUCE,
        lambda x, y, z: (lax.reduce_prod(x, (1,)), lax.reduce_prod(y, (0,)), z.prod()),
        [real(2, 5), real(0, 2), real(1)],
        "multiply",
    ),
    Case(
        REDUCE,
        lambda x: lax.reduce_prod(x, (1,)),
        [floats([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]])],
        "multiply-zeros",
    ),
    Case(
        REDUCE,
        """func.func public @main(%x: tensor<4xf64>, %init: tensor<f64>) -> tensor<f64> {
           %0 = stablehlo.reduce(%x init: %init) applies stablehlo.multiply across dimensions = [0]
             : (tensor<4xf64>, tensor<f64>) -> tensor<f64>
           return %0 : tensor<f64> }""",
        [real(4), real()],
        "multiply-init",
        reference=lambda x, init: jnp.prod(x) * init,
    ),
    Case(REDUCE, general_reduce(logaddexp, -np.inf), [real(5, 2)], "logaddexp", numeric=False),
    Case(
        REDUCE,
        lambda x, y: lax.reduce(
            (x, y), (np.float64(0), np.float64(1)), composed_maps, dimensions=(1, 0)
        ),
        [real(2, 3), real(2, 3)],
        "in-index-order",
        reference=lambda x, y: composed_one_by_one(x.ravel(), y.ravel()),
        numeric=False,  # XLA without optimizations takes them in the order that is listed
        dtypes=(),
    ),
    Case(
        REDUCE,
        lambda x, y: lax.reduce(
            (x, y),
            (np.zeros((), x.dtype), np.ones((), y.dtype)),
            lambda a, b: (a[0] * b[1] + b[0], a[1] * b[1]),
            (1,),
        ),
        [real(2, 5), real(2, 5)],
        "not-commutative",
        against_jax=False,
    ),
    Case(
        REDUCE,
        lambda x: lax.reduce(
            (x, lax.iota(np.int32, x.shape[0])),
            (np.array(-np.inf, x.dtype), np.int32(-1)),
            lambda a, b: (
                lax.select(a[0] > b[0], a[0], b[0]),
                lax.select(a[0] > b[0], a[1], b[1]),
            ),
            (0,),
        ),
        [distinct(6)],
        "value-and-index",
        reference=lambda x: jnp.max(x),
    ),
    Case(
        REDUCE,
        lambda x: (jnp.argmax(x, 1), jnp.any(x > 0, 1), x * x),
        [distinct(2, 3)],
        "inactive",
    ),
]


def dot(lhs: str, rhs: str, out: str) -> Callable[..., Any]:
    return lambda x, y: jnp.einsum(f"{lhs},{rhs}->{out}", x, y)


def dot_general(contract: Any, batch: Any = ((), ()), **options: Any) -> Callable[..., Any]:
    return lambda x, y: lax.dot_general(x, y, (contract, batch), **options)


DOT = "stablehlo.dot_general"
PRODUCTS = [
    Case(DOT, dot_general(((1,), (0,))), [real(2, 3), real(3, 4)], "matrices"),
    Case(DOT, dot_general(((0,), (1,))), [real(3, 2), real(4, 3)], "both-transposed"),
    Case(DOT, dot_general(((1,), (0,))), [real(2, 3), real(3)], "matrix-vector"),
    Case(DOT, dot_general(((0,), (0,))), [real(3), real(3)], "vectors"),
    Case(DOT, dot_general(((), ())), [real(), real(2)], "outer"),
    Case(DOT, dot_general(((1,), (0,))), [real(0, 3), real(3, 2)], "empty"),
    Case(DOT, dot_general(((1,), (0,))), [real(2, 0), real(0, 3)], "empty-sum"),
    Case(
        DOT,
        dot_general(((2,), (1,)), ((0,), (0,))),
        [real(2, 3, 4), real(2, 4, 5)],
        "batched",
    ),
    Case(
        DOT,
        dot_general(((3, 1), (0, 2)), ((0, 4), (3, 4))),
        [real(2, 3, 5, 4, 3), real(4, 6, 3, 2, 3)],
        "all-layouts",
    ),
    Case(
        DOT,
        dot_general(((0, 2), (3, 1)), ((3,), (0,))),
        [real(3, 5, 4, 2), real(2, 4, 6, 3)],
        "crossed-contraction",
    ),
    Case(DOT, dot_general(((1,), (0,))), [cplx(2, 3), cplx(3, 2)], "complex"),
    Case(
        DOT,
        dot_general(((1,), (0,)), precision=(lax.Precision.HIGHEST, lax.Precision.DEFAULT)),
        [real(2, 3), real(3, 4)],
        "precision",
    ),
    Case(
        DOT,
        dot_general(((1,), (0,)), preferred_element_type=np.float64),
        [ints(np.ones((2, 3)), np.float32), ints(np.ones((3, 4)), np.float32)],
        "wider-result",
        numeric=False,
    ),
    Case(
        "stablehlo.dot ",
        """func.func public @main(%x: tensor<2x3xf64>, %y: tensor<3x4xf64>, %z: tensor<4xf64>)
             -> tensor<f64> {
           %0 = stablehlo.dot %x, %y : (tensor<2x3xf64>, tensor<3x4xf64>) -> tensor<2x4xf64>
           %1 = stablehlo.dot %0, %z : (tensor<2x4xf64>, tensor<4xf64>) -> tensor<2xf64>
           %2 = stablehlo.dot %1, %1 : (tensor<2xf64>, tensor<2xf64>) -> tensor<f64>
           return %2 : tensor<f64> }""",
        [real(2, 3), real(3, 4), real(4)],
        reference=lambda x, y, z: jnp.sum((x @ y @ z) ** 2),
    ),
]


def convolution(dimensions: tuple[str, str, str], **options: Any) -> Callable[..., Any]:
    window = {"window_strides": (1,), "padding": ((0, 0),)} | options
    return lambda x, k: lax.conv_general_dilated(x, k, dimension_numbers=dimensions, **window)


CONVOLUTION = "stablehlo.convolution"
NCH = ("NCH", "OIH", "NCH")
CONVOLUTIONS = [
    Case(CONVOLUTION, convolution(NCH), [real(2, 3, 5), real(4, 3, 2)], "plain"),
    Case(
        CONVOLUTION,
        convolution(
            NCH,
            window_strides=(2,),
            padding=((2, 1),),
            lhs_dilation=(3,),
            rhs_dilation=(2,),
        ),
        [real(2, 3, 4), real(2, 3, 3)],
        "strided-dilated-padded",
    ),
    Case(
        CONVOLUTION,
        convolution(NCH, window_strides=(3,), padding=((-1, -1),)),
        [real(1, 2, 9), real(3, 2, 2)],
        "negative-padding-remainder",
    ),
    Case(
        CONVOLUTION,
        convolution(NCH, feature_group_count=2),
        [real(2, 4, 5), real(6, 2, 2)],
        "feature-groups",
    ),
    Case(
        CONVOLUTION,
        convolution(NCH, batch_group_count=2, window_strides=(2,)),
        [real(4, 3, 5), real(6, 3, 2)],
        "batch-groups",
    ),
    Case(
        CONVOLUTION,
        convolution(
            ("HWNC", "OHIW", "CNHW"),
            window_strides=(1, 2),
            padding=((1, 0), (0, 2)),
            rhs_dilation=(2, 1),
            feature_group_count=2,
        ),
        [real(4, 5, 2, 4), real(4, 2, 2, 3)],
        "layouts",
    ),
    Case(
        CONVOLUTION,
        convolution(("NC", "OI", "NC"), window_strides=(), padding=()),
        [real(2, 3), real(4, 3)],
        "no-window",
    ),
    Case(CONVOLUTION, convolution(NCH), [cplx(1, 2, 4), cplx(2, 2, 2)], "complex"),
    Case(CONVOLUTION, convolution(NCH), [real(0, 3, 5), real(4, 3, 2)], "empty"),
    Case(
        CONVOLUTION,
        """func.func public @main(%x: tensor<1x1x5x4xf64>, %k: tensor<2x1x2x3xf64>)
             -> tensor<1x2x4x1xf64> {
           %0 = stablehlo.convolution(%x, %k)
             dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
             window = {stride = [1, 2], reverse = [true, false]}
             {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
             : (tensor<1x1x5x4xf64>, tensor<2x1x2x3xf64>) -> tensor<1x2x4x1xf64>
           return %0 : tensor<1x2x4x1xf64> }""",
        [real(1, 1, 5, 4), real(2, 1, 2, 3)],
        "reversed-window",
        reference=lambda x, k: lax.conv_general_dilated(x, k[:, :, ::-1], (1, 2), ((0, 0), (0, 0))),
    ),
]

CASES = [*ELEMENTWISE, *SHAPES, *STRUCTURE, *REDUCTIONS, *PRODUCTS, *CONVOLUTIONS]
