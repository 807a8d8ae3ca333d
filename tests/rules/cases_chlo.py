"""Records of CHLO ops."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.rules.record import Case, cplx, distinct, floats, ints, real, tensor


def unary(op: str, f: Callable[..., Any], low: float = -2.0, high: float = 2.0) -> Case:
    """Three shapes in one program."""
    args = [real(*shape, low=low, high=high) for shape in [(2, 3), (), (0, 2)]]
    return Case(f"chlo.{op}", lambda *xs: [f(x) for x in xs], args)


def unary_complex(op: str, f: Callable[..., Any]) -> Case:
    return Case(f"chlo.{op}", f, [cplx(3, low=0.2, high=0.8)], "complex")


def text_of(op: str, operands: str = "%x", types: str = "tensor<4xf64>") -> str:
    return f"""func.func public @main(%x: tensor<4xf64>) -> tensor<4xf64> {{
      %0 = chlo.{op} {operands} : {types} -> tensor<4xf64>
      return %0 : tensor<4xf64> }}"""


RAGGED = """func.func public @main(%x: tensor<7x3xf64>, %y: tensor<2x3x4xf64>, %n: tensor<2xi32>)
    -> tensor<7x4xf64> {
  %0 = "chlo.ragged_dot"(%x, %y, %n) <{
    precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>],
    ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [],
      rhs_batching_dimensions = [], lhs_contracting_dimensions = [1],
      rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0],
      rhs_group_dimensions = [0]>
  }> : (tensor<7x3xf64>, tensor<2x3x4xf64>, tensor<2xi32>) -> tensor<7x4xf64>
  return %0 : tensor<7x4xf64> }"""


def without_ragged_dot(text: str) -> str:
    """Calls of JAX's own expansion of the product, in the place of an op XLA's CPU lacks."""
    args = [np.zeros((7, 3)), np.zeros((2, 3, 4)), np.zeros(2, np.int32)]
    dense = jax.jit(lax.ragged_dot).lower(*args).as_text().replace("@main", "@dense")
    functions = dense[dense.index("func.func") : dense.rindex("}")].replace("public", "private")
    calls = re.sub(r'"chlo.ragged_dot"(\(.*?\)) <\{.*\}> :', r"call @dense\1 :", text)
    return calls[: calls.rindex("}")] + functions + "}"


def scan(
    label: str,
    args: Sequence[Any],
    dimension: int,
    result: tuple[int, ...],
    body: str,
    reference: Callable[..., Any],
    options: str = "",
) -> Case:
    """Slices of %x (and %n), and a carry %c: body from %a (and %m) and %b to %out and %next."""
    x, *more, c = args
    small = tensor([n for d, n in enumerate(x.shape) if d != dimension])
    types = [tensor(x.shape), *(tensor(n.shape, "i32") for n in more)]
    carry, out = tensor(c.shape), tensor(result)
    names = ["%x", "%n"][: len(types)]
    slices = [f"%a: {small}", "%m: tensor<i32>"][: len(types)]
    signature = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    piece = tensor([n for d, n in enumerate(result) if d != dimension])
    text = f"""
func.func public @main({signature}, %c: {carry}) -> ({out}, {carry}) {{
  %0:2 = chlo.scan({", ".join(names)}) inits(%c) dimension = {dimension} attributes {{{options}}} {{
  ^bb0({", ".join(slices)}, %b: {carry}):
    {body}
    stablehlo.return %out, %next : {piece}, {carry}
  }} : ({", ".join(types)}, {carry}) -> ({out}, {carry})
  return %0#0, %0#1 : {out}, {carry}
}}
"""
    return Case("chlo.scan", text, args, label, reference)


def recurrence(x: Any, c: Any, reverse: bool = False) -> Any:
    """c, x -> c x, c x + sin(x)."""
    c, out = lax.scan(lambda c, x: (c * x + jnp.sin(x), c * x), c, x, reverse=reverse)
    return out, c


RECURRENCE = """%out = stablehlo.multiply %a, %b : TYPE
    %sine = stablehlo.sine %a : TYPE
    %next = stablehlo.add %out, %sine : TYPE"""
CUMSUM = """%out = stablehlo.add %a, %b : tensor<f64>
    %next = stablehlo.add %a, %b : tensor<f64>"""
SELECTED = """%out = stablehlo.multiply %a, %b : tensor<f64>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %p = stablehlo.compare EQ, %m, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %next = stablehlo.select %p, %out, %b : tensor<i1>, tensor<f64>"""


def selected(x: Any, n: Any, c: Any) -> Any:
    c, out = lax.scan(lambda c, xn: (jnp.where(xn[1] == 1, c * xn[0], c), c * xn[0]), c, (x, n))
    return out, c


def cumsum(x: Any, c: Any) -> Any:
    return jnp.cumsum(x) + c, jnp.sum(x) + c


SCANS = [
    scan("cumsum", [real(5), real()], 0, (5,), CUMSUM, cumsum, "is_associative = true"),
    scan("one", [real(1), real()], 0, (1,), CUMSUM, cumsum),
    scan(
        "empty",
        [real(3, 0), real(0)],
        0,
        (3, 0),
        RECURRENCE.replace("TYPE", "tensor<0xf64>"),
        recurrence,
    ),
    scan(
        "recurrence",
        [real(4, 2), real(2)],
        0,
        (4, 2),
        RECURRENCE.replace("TYPE", "tensor<2xf64>"),
        recurrence,
    ),
    scan(
        "reversed-columns",
        [real(2, 4, 3), real(2, 3)],
        1,
        (2, 4, 3),
        RECURRENCE.replace("TYPE", "tensor<2x3xf64>"),
        lambda x, c: (
            (found := recurrence(jnp.moveaxis(x, 1, 0), c, True)) and jnp.moveaxis(found[0], 0, 1),
            found[1],
        ),
        "is_reverse = true, scan_dim_size = 4 : i64",
    ),
    scan("integers", [real(4), ints([1, 0, 1, 1]), real()], 0, (4,), SELECTED, selected),
]

PAIRS = [((3,), (2, 3)), ((), (2, 1)), ((2, 1), (1, 3)), ((0, 2), (2,))]
SINGLE = [((3,),), ((2, 3),), ((),), ((0, 2),)]


def broadcast(
    op: str,
    f: Callable[..., Any],
    first: str = "",
    shapes: Sequence[Sequence[tuple[int, ...]]] = PAIRS,
    result: str = "f64",
    **options: Any,
) -> Case:
    """Operands of several shapes in one program; `first` is a constant in front of them."""
    lines = [f"%first = stablehlo.constant {first}"] * bool(first)
    arguments, outs = [], []
    for i, each in enumerate(shapes):
        given = {f"%x{i}{j}": tensor(shape) for j, shape in enumerate(each)}
        arguments += [f"{name}: {type}" for name, type in given.items()]
        given = ({"%first": first.rpartition(" : ")[2]} if first else {}) | given
        outs.append(tensor(np.broadcast_shapes(*each), result))
        operands, types = ", ".join(given), ", ".join(given.values())
        lines.append(f"%r{i} = chlo.broadcast_{op} {operands} : ({types}) -> {outs[-1]}")
    results = ", ".join(f"%r{i}" for i in range(len(shapes)))
    body = "\n".join([*lines, f"return {results} : {', '.join(outs)}"])
    text = f"func.func public @main({', '.join(arguments)}) -> ({', '.join(outs)}) {{\n{body}\n}}"
    args = [distinct(*s, low=0.6 + j, high=1.4 + j) for each in shapes for j, s in enumerate(each)]

    def reference(*xs: Any) -> list[Any]:
        count = len(shapes[0])
        return [f(*xs[i : i + count]) for i in range(0, len(xs), count)]

    return Case(f"chlo.broadcast_{op}", text, args, reference=reference, **options)


BROADCASTS = [
    broadcast("add", jnp.add),
    broadcast("atan2", jnp.arctan2),
    broadcast(
        "complex", lambda x, y: lax.complex(*jnp.broadcast_arrays(x, y)), result="complex<f64>"
    ),
    broadcast("divide", jnp.divide),
    broadcast("maximum", jnp.maximum),
    broadcast("minimum", jnp.minimum),
    broadcast("multiply", jnp.multiply),
    broadcast("next_after", lambda x, y: jnp.broadcast_arrays(x, y)[0], numeric=False),
    broadcast(
        "polygamma",
        lambda x: lax.polygamma(jnp.full(x.shape, 2.0, x.dtype), x),
        "dense<2.0> : tensor<f64>",
        SINGLE,
        tolerance=1e-7,
    ),
    broadcast("power", jnp.power),
    broadcast("remainder", lambda x, y: lax.rem(*jnp.broadcast_arrays(x, y))),
    broadcast("select", lambda x, y: jnp.where(True, x, y), "dense<true> : tensor<i1>"),
    broadcast("subtract", jnp.subtract),
    broadcast(
        "zeta",
        lambda x: lax.zeta(jnp.full(x.shape, 2.5, x.dtype), x),
        "dense<2.5> : tensor<f64>",
        SINGLE,
        against_jax=False,
    ),
]

CASES = [
    *SCANS,
    *BROADCASTS,
    unary("acos", lax.acos, -0.8, 0.8),
    unary("acosh", lax.acosh, 1.2, 3.0),
    Case("chlo.asin", text_of("asin"), [floats([-0.8, 0.0, 0.3, 0.9])], reference=lax.asin),
    unary_complex("asin", lax.asin),
    unary("asinh", lax.asinh),
    unary_complex("asinh", lax.asinh),
    unary("atan", lax.atan),
    unary_complex("atan", lax.atan),
    unary("atanh", lax.atanh, -0.8, 0.8),
    unary_complex("atanh", lax.atanh),
    Case(
        "chlo.bessel_i1e",
        lax.bessel_i1e,
        [floats([-9.0, -2.0, 0.5, 3.0, 12.0])],
        tolerance=1e-7,  # JAX differentiates its series by another route
    ),
    Case(
        "chlo.bessel_i1e",
        text_of("bessel_i1e"),
        [floats([-9.0, -2.0, 0.5, 3.0])],
        "narrow",
        reference=lax.bessel_i1e,
        tolerance=1e-7,
        dtypes=("float16", "float8_e4m3fn"),
    ),
    Case("chlo.bessel_i1e", lax.bessel_i1e, [floats([0.0])], "zero", numeric=False, second=False),
    Case(
        "chlo.conj",
        """func.func public @main(%x: tensor<3xcomplex<f64>>) -> tensor<3xcomplex<f64>> {
           %0 = chlo.conj %x : tensor<3xcomplex<f64>> -> tensor<3xcomplex<f64>>
           return %0 : tensor<3xcomplex<f64>> }""",
        [cplx(3)],
        reference=jnp.conj,
    ),
    unary("cosh", lax.cosh),
    unary_complex("cosh", lax.cosh),
    unary("digamma", lax.digamma, 0.5, 4.0),
    Case(
        "chlo.digamma",
        text_of("digamma"),
        [floats([-0.4, -7.3, -10.6, -20.4])],
        "negative",
        against_jax=False,  # XLA's polygamma is another number below -9
    ),
    unary("erf", lax.erf),
    unary("erf_inv", lax.erf_inv, -0.8, 0.8),
    unary("erfc", lax.erfc),
    Case(
        "chlo.lgamma",
        text_of("lgamma"),
        [floats([0.5, 1.5, 3.0, -0.5])],
        reference=lax.lgamma,
    ),
    Case(
        "chlo.polygamma",
        lambda x: lax.polygamma(np.array([1.0, 2.0, 1.0]).astype(x.dtype), x),
        [floats([0.7, 1.9, 3.1])],
        tolerance=1e-7,
    ),
    unary("sinh", lax.sinh),
    unary_complex("sinh", lax.sinh),
    unary("square", lax.square),
    unary_complex("square", lax.square),
    Case("chlo.tan", text_of("tan"), [floats([-1.0, 0.0, 0.3, 1.1])], reference=lax.tan),
    Case(
        "chlo.zeta",
        lambda q: lax.zeta(np.array([2.5, 3.0, 4.0]).astype(q.dtype), q),
        [floats([0.7, 1.9, 3.1])],
        against_jax=False,
    ),
    Case(
        "chlo.next_after",
        lambda x, y: lax.nextafter(x * x, y),
        [real(3), real(3)],
        against_jax=False,
        dtypes=("float32",),
    ),
    Case(
        "chlo.ragged_dot",
        RAGGED,
        [real(7, 3), real(2, 3, 4), ints([3, 2])],
        reference=lax.ragged_dot,
        rewrite=without_ragged_dot,
    ),
]
