"""Records of factorizations, solves, transforms and sorts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.rules.record import Arg, Case, cplx, distinct, floats, ints, real

TRANSPOSES = {"NO_TRANSPOSE": "", "TRANSPOSE": "T", "ADJOINT": "H"}


def solve_text(left: bool, lower: bool, unit: bool, transpose: str, element: str, b: str) -> str:
    flags = f"left_side = {left}, lower = {lower}, unit_diagonal = {unit}".lower()
    return f"""
func.func public @main(%a: tensor<3x3x{element}>, %b: tensor<{b}x{element}>)
    -> tensor<{b}x{element}> {{
  %0 = "stablehlo.triangular_solve"(%a, %b) {{{flags},
    transpose_a = #stablehlo<transpose {transpose}>}}
    : (tensor<3x3x{element}>, tensor<{b}x{element}>) -> tensor<{b}x{element}>
  return %0 : tensor<{b}x{element}>
}}
"""


def solved(left: bool, lower: bool, unit: bool, transpose: str) -> Callable[..., Any]:
    def solve(a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(
            a,
            b,
            left_side=left,
            lower=lower,
            unit_diagonal=unit,
            transpose_a=transpose != "NO_TRANSPOSE",
            conjugate_a=transpose == "ADJOINT",
        )

    return solve


def solve_case(left: bool, lower: bool, unit: bool, transpose: str, complex: bool) -> Case:
    element = "complex<f64>" if complex else "f64"
    b = (3, 2) if left else (2, 3)
    number: Callable[..., Arg] = cplx if complex else real
    words = ["left" if left else "right", "lower" if lower else "upper", transpose.lower()]
    words += ["unit"] * unit + ["complex"] * complex
    text = solve_text(left, lower, unit, transpose, element, "x".join(map(str, b)))
    return Case(
        "stablehlo.triangular_solve",
        text,
        [number(3, 3, low=1.0, high=2.0), number(*b)],
        "_".join(words),
        reference=solved(left, lower, unit, transpose),
        tolerance=1e-8,
        dtypes=("float32",),
    )


SOLVES = [
    solve_case(left, lower, unit, transpose, complex)
    for i, (left, lower, transpose, complex) in enumerate(
        itertools.product((True, False), (True, False), TRANSPOSES, (True, False))
    )
    for unit in (i % 3 == 1,)
]


CHOLESKY = """
func.func public @main(%a: KIND) -> KIND {
  %t = stablehlo.transpose %a, dims = [ORDER] : (KIND) -> KIND
  CONJUGATE
  %s = stablehlo.add %a, %h : KIND
  %r = stablehlo.iota dim = ROW : tensor<SHAPExi32>
  %c = stablehlo.iota dim = COLUMN : tensor<SHAPExi32>
  %eq = stablehlo.compare EQ, %r, %c : (tensor<SHAPExi32>, tensor<SHAPExi32>) -> tensor<SHAPExi1>
  %zero = stablehlo.constant dense<0.0> : REAL
  %many = stablehlo.constant dense<20.0> : REAL
  %d = stablehlo.select %eq, %many, %zero : tensor<SHAPExi1>, REAL
  %diagonal = stablehlo.convert %d : (REAL) -> KIND
  %m = stablehlo.add %s, %diagonal : KIND
  %l = "stablehlo.cholesky"(%m) {lower = LOWER} : (KIND) -> KIND
  %in = stablehlo.compare INSIDE, %r, %c
    : (tensor<SHAPExi32>, tensor<SHAPExi32>) -> tensor<SHAPExi1>
  %none = stablehlo.subtract %a, %a : KIND
  %0 = stablehlo.select %in, %l, %none : tensor<SHAPExi1>, KIND
  return %0 : KIND
}
"""

CONJUGATE = """%re = stablehlo.real %t : (KIND) -> REAL
  %im = stablehlo.imag %t : (KIND) -> REAL
  %minus = stablehlo.negate %im : REAL
  %h = stablehlo.complex %re, %minus : KIND"""


def cholesky_text(lower: bool, element: str, shape: tuple[int, ...]) -> str:
    """The factor of a + aᴴ + 20: a matrix that is Hermitian for every a."""
    rank, size = len(shape), "x".join(map(str, shape))
    complex = element.startswith("complex")
    words = {
        "CONJUGATE": CONJUGATE,
        "KIND": f"tensor<{size}x{element}>",
        "REAL": f"tensor<{size}xf64>",
        "ORDER": ", ".join(map(str, [*range(rank - 2), rank - 1, rank - 2])),
        "ROW": str(rank - 2),
        "COLUMN": str(rank - 1),
        "SHAPE": size,
        "LOWER": str(lower).lower(),
        "INSIDE": "GE" if lower else "LE",
    }
    text = CHOLESKY
    if not complex:
        text = text.replace("%t = ", "%h = ").replace("  CONJUGATE\n", "")
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def factor(lower: bool) -> Callable[..., Any]:
    def cholesky(a: Any) -> Any:
        m = a + jnp.conj(jnp.swapaxes(a, -1, -2)) + 20 * jnp.eye(a.shape[-1])
        found = lax.linalg.cholesky(m, symmetrize_input=False)
        return found if lower else jnp.conj(jnp.swapaxes(found, -1, -2))

    return cholesky


def cholesky_case(lower: bool, complex: bool, *shape: int) -> Case:
    number: Callable[..., Arg] = cplx if complex else real
    words = ["lower" if lower else "upper", *["complex"] * complex, *map(str, shape)]
    return Case(
        "stablehlo.cholesky",
        cholesky_text(lower, "complex<f64>" if complex else "f64", shape),
        [number(*shape)],
        "_".join(words),
        reference=factor(lower),
        dtypes=("float32",),
    )


CHOLESKYS = [
    cholesky_case(True, False, 3, 3),
    cholesky_case(False, False, 3, 3),
    cholesky_case(True, True, 2, 2, 2),
    cholesky_case(False, True, 3, 3),
    cholesky_case(True, False, 2, 0, 0),
    cholesky_case(True, False, 1, 1),
]


def transform(kind: str, *lengths: int) -> Callable[..., Any]:
    return lambda x: lax.fft(x, kind, lengths)


FFTS = [
    Case("stablehlo.fft", transform(kind, *lengths), [number(*shape)], label, dtypes=("float32",))
    for kind, lengths, number, shape, label in [
        ("FFT", (5,), cplx, (2, 5), "forward"),
        ("FFT", (2, 3), cplx, (2, 3), "forward_two_axes"),
        ("IFFT", (4,), cplx, (4,), "inverse"),
        ("RFFT", (5,), real, (2, 5), "real_odd"),
        ("RFFT", (6,), real, (6,), "real_even"),
        ("RFFT", (3, 4), real, (3, 4), "real_two_axes"),
        ("RFFT", (1,), real, (3, 1), "real_one"),
        ("IRFFT", (5,), cplx, (2, 3), "inverse_real_odd"),
        ("IRFFT", (6,), cplx, (4,), "inverse_real_even"),
        ("IRFFT", (3, 4), cplx, (3, 3), "inverse_real_two_axes"),
        ("FFT", (4,), cplx, (0, 4), "empty"),
    ]
]

SORT_BY_DEFAULT = """
func.func public @main(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %1 = stablehlo.compare LT, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<2x3xf64>) -> tensor<2x3xf64>
  return %0 : tensor<2x3xf64>
}
"""

SORTS = [
    Case("stablehlo.sort", lambda x: jnp.sort(x, axis=0), [distinct(5, 3)], "one"),
    Case("stablehlo.sort", lambda x: lax.sort(x), [distinct(1)], "single"),
    Case("stablehlo.sort", lambda x: lax.sort(x, dimension=0), [distinct(0, 3)], "empty"),
    Case(
        "stablehlo.sort",
        lambda k, x, i: lax.sort((k, x, i), dimension=1, num_keys=1),
        [distinct(2, 4), real(2, 4), ints([[3, 1, 2, 0], [0, 1, 2, 3]])],
        "payloads",
    ),
    Case(
        "stablehlo.sort",
        lambda i, x: lax.sort((i, x), num_keys=1),
        [ints([3, 1, 2, 1]), real(4)],
        "integer_keys",
    ),
    Case("stablehlo.sort", SORT_BY_DEFAULT, [distinct(2, 3)], "no_attributes", reference=jnp.sort),
    Case(
        "stablehlo.sort",
        lambda x: lax.sort(x),
        [floats([1.0, 1.0, 0.0, 1.0])],
        "ties",
        numeric=False,
    ),
    Case("chlo.top_k", lambda x: lax.top_k(x, 2), [distinct(3, 5)]),
    Case("chlo.top_k", lambda x: lax.top_k(x, 3)[0] ** 2, [distinct(3)], "whole"),
]

CASES = [*SOLVES, *CHOLESKYS, *FFTS, *SORTS]
