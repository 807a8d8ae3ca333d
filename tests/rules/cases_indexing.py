"""Records of gathers and scatters: all dimension numbers, and indices outside of the operand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.rules.record import Arg, Case, distinct, ints, real, tensor

ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
SINGLE = lax.GatherDimensionNumbers((), (0,), (0,))
CORNERS = lax.GatherDimensionNumbers((1, 2), (), (0, 1))
ADD_ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
ADD_CORNERS = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))

OUTSIDE = ints([[0], [3], [3], [7], [-2]])
REPEATED = ints([[0], [3], [3], [1], [4]])
UNIQUE = ints([[0], [3], [1], [2], [4]])
UNIQUE_OUTSIDE = ints([[0], [3], [1], [7], [-2]])
PLACES = ints([[0, 0], [3, 1], [-5, 2], [1, 9]])


def rows(mode: str, sorted: bool = False) -> Callable[..., Any]:
    def gather(x: Any, i: Any) -> Any:
        return lax.gather(x, i, ROWS, (1, 4), mode=mode, fill_value=0, indices_are_sorted=sorted)

    return gather


def scatter(f: Callable[..., Any], dims: Any = ADD_ROWS, **options: Any) -> Callable[..., Any]:
    return lambda x, i, u: f(x, i, u, dims, **{"mode": "fill", **options})


def element(x: Any, i: Any) -> Any:
    dims = lax.GatherDimensionNumbers((), (0,), (0,))
    return lax.gather(x, i, dims, (1,), mode="clip")


def applying(body: str, unique: bool) -> str:
    """A scatter of rows with a body of its own, which may use a constant from outside."""
    return f"""
func.func public @main(%x: tensor<5x4xf64>, %i: tensor<5x1xi32>, %u: tensor<5x4xf64>)
    -> tensor<5x4xf64> {{
  %c = stablehlo.constant dense<3.0> : tensor<f64>
  %0 = "stablehlo.scatter"(%x, %i, %u) ({{
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    {body}
    stablehlo.return %r : tensor<f64>
  }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
      unique_indices = {str(unique).lower()}}}
    : (tensor<5x4xf64>, tensor<5x1xi32>, tensor<5x4xf64>) -> tensor<5x4xf64>
  return %0 : tensor<5x4xf64>
}}
"""


# The body, the same on arrays, and whether it may meet an element twice.
APPLIED = {
    "difference": ("%r = stablehlo.subtract %b, %a : tensor<f64>", lambda a, b: b - a, False),
    "outside_factor": ("%r = stablehlo.multiply %a, %c : tensor<f64>", lambda a, b: 3 * a, False),
    "sine": (
        """%s = stablehlo.sine %a : tensor<f64>
           %r = stablehlo.multiply %s, %b : tensor<f64>""",
        lambda a, b: jnp.sin(a) * b,
        False,
    ),
    "outside_update": ("%r = stablehlo.multiply %c, %b : tensor<f64>", lambda a, b: 3 * b, True),
    "constant": (
        "%r = stablehlo.constant dense<3.0> : tensor<f64>",
        lambda a, b: jnp.full_like(b, 3),
        True,
    ),
}


def applied(name: str, indices: np.ndarray, unique: bool) -> Case:
    body, f, _ = APPLIED[name]

    def reference(x: Any, i: Any, u: Any) -> Any:
        rows = jnp.where(i[:, 0] < 0, 5, i[:, 0])  # -2 is no place either
        return x.at[rows].set(f(x.at[rows].get(mode="clip"), u), mode="drop")

    args = [real(5, 4), indices, real(5, 4)]
    return Case("stablehlo.scatter", applying(body, unique), args, f"apply_{name}", reference)


SCATTERED_PAIR = """
func.func public @main(%x: tensor<5xf64>, %y: tensor<5xf64>, %i: tensor<2x1xi32>,
    %u: tensor<2xf64>, %v: tensor<2xf64>) -> (tensor<5xf64>, tensor<5xf64>) {
  %0:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
    %p = stablehlo.multiply %a, %d : tensor<f64>
    %q = stablehlo.add %b, %c : tensor<f64>
    stablehlo.return %p, %q : tensor<f64>, tensor<f64>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}
    : (tensor<5xf64>, tensor<5xf64>, tensor<2x1xi32>, tensor<2xf64>, tensor<2xf64>)
    -> (tensor<5xf64>, tensor<5xf64>)
  return %0#0, %0#1 : tensor<5xf64>, tensor<5xf64>
}
"""


def scattered_pair(x: Any, y: Any, i: Any, u: Any, v: Any) -> Any:
    return x.at[i[:, 0]].multiply(v, unique_indices=True), y.at[i[:, 0]].add(u)


GATHERS = [
    Case("stablehlo.gather", rows("clip"), [real(5, 4), OUTSIDE], "clip"),
    Case("stablehlo.gather", rows("fill"), [real(5, 4), OUTSIDE], "fill"),
    Case("stablehlo.gather", rows("promise_in_bounds"), [real(5, 4), REPEATED], "in_bounds"),
    Case("stablehlo.gather", rows("clip", True), [real(5, 4), ints([[0], [2], [9]])], "sorted"),
    Case(
        "stablehlo.gather",
        lambda x, i: lax.gather(
            x, i, lax.GatherDimensionNumbers((0,), (0,), (0,)), (1, 4), mode="clip"
        ),
        [real(5, 4), ints([9])],
        "one_row",
    ),
    Case(
        "stablehlo.gather",
        lambda x: rows("clip")(x, np.array([[4], [4], [0]])),
        [real(5, 4)],
        "constant_indices",
    ),
    Case(
        "stablehlo.gather",
        lambda x, i: lax.gather(x, i, CORNERS, (2, 3), mode="clip"),
        [real(5, 4), PLACES],
        "windows",
    ),
    Case(
        "stablehlo.gather",
        jax.vmap(element),
        [real(3, 4), ints([[[0], [3]], [[1], [1]], [[2], [8]]])],
        "batching",
    ),
    Case("stablehlo.gather", element, [real(4), ints([2])], "scalar"),
    Case(  # of several updates at indices without components, XLA applies the last one
        "stablehlo.gather",
        lambda x, i: lax.gather(
            x, i, lax.GatherDimensionNumbers((), (0,), ()), (1,), mode="promise_in_bounds"
        ),
        [real(2), ints(np.zeros((3, 0)))],
        "no_components",
        reference=lambda x, i: jnp.stack([x[0]] * 3),
    ),
]

SCATTERS = [
    Case("stablehlo.scatter", scatter(lax.scatter_add), [real(5, 4), OUTSIDE, real(5, 4)], "add"),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter_add, mode="clip"),
        [real(5, 4), OUTSIDE, real(5, 4)],
        "add_clip",
    ),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter_add, ADD_CORNERS),
        [real(5, 4), PLACES, real(4, 2, 3)],
        "add_windows_partly_outside",
    ),
    Case(
        "stablehlo.scatter",
        jax.vmap(lambda x, i, u: x.at[i].add(u)),
        [real(3, 4), ints([[0, 3], [1, 1], [2, 3]]), real(3, 2)],
        "add_batching",
    ),
    Case(
        "stablehlo.scatter", scatter(lax.scatter_sub), [real(5, 4), OUTSIDE, real(5, 4)], "subtract"
    ),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter_mul, unique_indices=True),
        [real(5, 4), UNIQUE_OUTSIDE, real(5, 4)],
        "multiply",
    ),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter_max),
        [distinct(5, 4), REPEATED, distinct(5, 4, low=-2.1)],
        "maximum",
    ),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter_min),
        [distinct(5, 4), REPEATED, distinct(5, 4, low=-2.1)],
        "minimum",
    ),
    # JAX gives NaN here: its rule reads the rows outside with fill values.
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter_max),
        [distinct(5, 4), OUTSIDE, distinct(5, 4, low=-2.1)],
        "maximum_outside",
        against_jax=False,
    ),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter_min),
        [np.ones((5, 4)), REPEATED, np.ones((5, 4))],
        "minimum_ties",
        numeric=False,
    ),
    Case("stablehlo.scatter", scatter(lax.scatter), [real(5, 4), OUTSIDE, real(5, 4)], "replace"),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter, unique_indices=True, indices_are_sorted=True),
        [real(5, 4), UNIQUE, real(5, 4)],
        "replace_unique",
    ),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter, unique_indices=True),
        [real(5, 4), UNIQUE_OUTSIDE, real(5, 4)],
        "replace_unique_outside",
    ),
    Case(
        "stablehlo.scatter",
        scatter(lax.scatter, ADD_CORNERS),
        [real(5, 4), PLACES, real(4, 2, 3)],
        "replace_windows",
    ),
    *(applied(name, UNIQUE_OUTSIDE, unique=True) for name in APPLIED),
    *(
        replace(applied(name, OUTSIDE, unique=False), label=f"apply_{name}_again")
        for name, (_, _, twice) in APPLIED.items()
        if twice
    ),
    Case(
        "stablehlo.scatter",
        SCATTERED_PAIR,
        [real(5), real(5), ints([[3], [0]]), real(2), real(2)],
        "apply_to_two_operands",
        reference=scattered_pair,
    ),
]

DYNAMIC_GATHER = """
func.func public @main(%x: tensor<5x4xf64>, %i: tensor<3x1xi32>) -> tensor<3x4xf64> {
  %sizes = stablehlo.constant dense<[1, 4]> : tensor<2xi32>
  %0 = "stablehlo.dynamic_gather"(%x, %i, %sizes) {
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false}
    : (tensor<5x4xf64>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x4xf64>
  return %0 : tensor<3x4xf64>
}
"""


def index_select(x: Arg, indices: Any, dim: int, batch_dims: int = 0, label: str = "") -> Case:
    """Places along `dim`, as jnp.take finds them; XLA reads 64-bit indices as unsigned ones."""
    result = (*x.shape[:dim], *indices.shape[batch_dims:], *x.shape[dim + 1 :])
    types = tensor(x.shape), tensor(indices.shape, f"i{8 * indices.itemsize}")
    attributes = f"<{{dim = {dim} : i64, batch_dims = {batch_dims} : i64}}>"
    text = f"""
func.func public @main(%x: {types[0]}, %i: {types[1]}) -> {tensor(result)} {{
  %0 = "stablehlo.torch_index_select"(%x, %i) {attributes}
    : ({types[0]}, {types[1]}) -> {tensor(result)}
  return %0 : {tensor(result)}
}}
"""

    def reference(x: Any, i: Any) -> Any:
        if x.shape[dim] == 0:  # jnp.take refuses
            return jnp.zeros(result)
        if i.dtype == np.int64:
            i = np.where(i < 0, x.shape[dim] - 1, i)
        take = functools.partial(jnp.take, axis=dim - batch_dims, mode="clip")
        for _ in range(batch_dims):
            take = jax.vmap(take)
        return take(x, i)

    return Case("stablehlo.torch_index_select", text, [x, indices], label, reference)


INDEX_SELECTS = [
    index_select(real(5), ints([0, 3, 3, 7, -2]), 0, label="vector"),
    index_select(real(5), ints([0, 3, 3, 7, -2], np.int64), 0, label="64-bit"),
    index_select(real(2, 3, 4), ints([[2, 0], [1, 9], [1, -1]]), 1, label="middle"),
    index_select(real(2, 3), ints(1), 1, label="scalar"),
    index_select(real(2, 3, 4), ints([[2, 5, 0], [-3, 1, 1]]), 1, 1, "batch"),
    index_select(real(2, 3, 4, 2), ints([[3, 3], [-1, 0]], np.int64), 2, 1, "batch-before-others"),
    index_select(real(2, 3), ints([2, 1]), 1, 1, "batch-of-scalars"),
    index_select(real(4, 2), ints(np.zeros((0, 3))), 0, label="no-indices"),
    index_select(real(0, 2), ints([0, 1]), 0, label="empty-dim"),
    index_select(real(3, 0), ints([0, 1]), 0, label="empty"),
]

FOUR_BITS = """
func.func public @main(%x: tensor<5xf64>) -> tensor<3xf64> {
  %i = stablehlo.constant dense<[[0], [3], [-2]]> : tensor<3x1xi4>
  %0 = "stablehlo.gather"(%x, %i) <{
    dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
      index_vector_dim = 1>, slice_sizes = array<i64: 1>}>
    : (tensor<5xf64>, tensor<3x1xi4>) -> tensor<3xf64>
  return %0 : tensor<3xf64>
}
"""

INTO_NOTHING = """
func.func public @main(%x: tensor<0x3x2xf64>, %i: tensor<2x2xTYPE>, %u: tensor<2x2xf64>)
    -> tensor<0x3x2xf64> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %c = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %c : tensor<f64>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}
    : (tensor<0x3x2xf64>, tensor<2x2xTYPE>, tensor<2x2xf64>) -> tensor<0x3x2xf64>
  return %0 : tensor<0x3x2xf64>
}
"""

CASES = [
    *GATHERS,
    Case(
        "stablehlo.gather",
        FOUR_BITS,
        [real(5)],
        "four_bits",
        reference=lambda x: x[np.array([0, 3, 0])],
    ),
    *SCATTERS,
    *(
        Case(  # no window fits, and an index without a sign is not compared to -1
            "stablehlo.scatter",
            INTO_NOTHING.replace("TYPE", type),
            [real(0, 3, 2), ints([[0, 1], [2, 0]], dtype), real(2, 2)],
            f"into_nothing_{type}",
            dtypes=(),
        )
        for type, dtype in (("i32", np.int32), ("ui32", np.uint32))
    ),
    *INDEX_SELECTS,
    *(
        Case(  # XLA writes elsewhere, where the type of indices does not hold the bound
            f"stablehlo.{op}",
            function,
            [real(300), ints([[127], [60], [5], [127]], np.int8)],
            "narrow",
            reference=lambda x, i: x[i[:, 0].astype(int)],
            dtypes=(),
        )
        for op, function in (
            ("gather", lambda x, i: lax.gather(x, i, SINGLE, (1,), mode="promise_in_bounds")),
            (
                "dynamic_slice",
                lambda x, i: jnp.concatenate([lax.dynamic_slice(x, k, (1,)) for k in i]),
            ),
        )
    ),
    Case(
        "stablehlo.dynamic_gather",
        DYNAMIC_GATHER,
        [real(5, 4), ints([[0], [7], [0]])],
        reference=rows("clip"),
    ),
]
