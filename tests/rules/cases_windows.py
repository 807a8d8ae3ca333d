"""Records of reduce_window and select_and_scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.rules.record import Case, distinct, floats, real

Sizes = tuple[int, ...]


def pooled(f: Callable[..., Any], init: float, dims: Sizes, **options: Any) -> Callable[..., Any]:
    strides = options.pop("strides", (1,) * len(dims))
    padding = options.pop("padding", "VALID")

    def pool(x: Any) -> Any:
        start = np.asarray(init, x.dtype)
        return lax.reduce_window(x, start, f, dims, strides, padding, **options)

    return pool


POOLS = [
    ("overlap", {"dims": (2, 2)}),
    ("same", {"dims": (2, 3), "padding": "SAME"}),
    ("strides", {"dims": (2, 2), "strides": (2, 1)}),
    ("uneven", {"dims": (3, 2), "strides": (2, 3), "padding": ((1, 2), (0, 1))}),
    ("crop", {"dims": (1, 2), "padding": ((0, 0), (-1, 0))}),
    ("base_dilation", {"dims": (2, 3), "base_dilation": (2, 3), "padding": ((0, 1), (1, 1))}),
    ("window_dilation", {"dims": (2, 2), "window_dilation": (2, 3), "padding": ((1, 0), (0, 0))}),
    ("whole", {"dims": (4, 5)}),
]

BODIES = [
    ("add", lax.add, 0.0, real),
    ("maximum", lax.max, -np.inf, distinct),
    ("minimum", lax.min, np.inf, distinct),
    ("multiply", lax.mul, 1.0, real),
]


def pool_case(body: Any, pool: Any) -> Case:
    (word, f, init, number), (label, options) = body, pool
    function = pooled(f, init, **options)
    reference = None
    if word == "multiply":  # JAX cannot transpose it
        reference = lambda x: unrolled(x, **options)  # noqa: E731
    # JAX does not transpose maxima with window dilation, and fails for negative padding.
    unknown = word in ("maximum", "minimum") and label in ("crop", "window_dilation")
    return Case(
        "stablehlo.reduce_window",
        function,
        [number(4, 5)],
        f"{word}_{label}",
        reference=reference,
        against_jax=not unknown,
    )


def unrolled(
    x: Any,
    dims: Sizes,
    strides: Sizes = (1, 1),
    padding: Any = ((0, 0), (0, 0)),
    base_dilation: Sizes = (1, 1),
    window_dilation: Sizes = (1, 1),
) -> Any:
    """Products over windows, as products of slices."""
    if padding == "SAME":
        padding = tuple(((w - 1) // 2, w - 1 - (w - 1) // 2) for w in dims)
    config = [(lo, hi, d - 1) for (lo, hi), d in zip(padding, base_dilation, strict=True)]
    x = lax.pad(x, 1.0, config)
    spans = [(w - 1) * d for w, d in zip(dims, window_dilation, strict=True)]
    total = 1.0
    for i in range(dims[0]):
        for j in range(dims[1]):
            start = (i * window_dilation[0], j * window_dilation[1])
            stop = [s + n - span for s, n, span in zip(start, x.shape, spans, strict=True)]
            total = total * lax.slice(x, start, stop, strides)
    return total


def smooth_max(x: Any) -> Any:
    return pooled(jnp.logaddexp, -np.inf, (3,))(x)


SUM_FROM = """
func.func public @main(%x: tensor<4xf64>, %init: tensor<f64>) -> tensor<3xf64> {
  %0 = "stablehlo.reduce_window"(%x, %init) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %1 = stablehlo.BODY %a, %b : tensor<f64>
    stablehlo.return %1 : tensor<f64>
  }) {window_dimensions = array<i64: 2>} : (tensor<4xf64>, tensor<f64>) -> tensor<3xf64>
  return %0 : tensor<3xf64>
}
"""

PAIRS = """
func.func public @main(%x: tensor<5xf64>, %y: tensor<5xf64>) -> (tensor<4xf64>, tensor<4xf64>) {
  %low = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0:2 = "stablehlo.reduce_window"(%x, %y, %low, %zero) ({
  ^bb0(%a: tensor<f64>, %i: tensor<f64>, %b: tensor<f64>, %j: tensor<f64>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
    %2 = stablehlo.select %1, %a, %b : tensor<i1>, tensor<f64>
    %3 = stablehlo.select %1, %i, %j : tensor<i1>, tensor<f64>
    stablehlo.return %2, %3 : tensor<f64>, tensor<f64>
  }) {window_dimensions = array<i64: 2>}
    : (tensor<5xf64>, tensor<5xf64>, tensor<f64>, tensor<f64>) -> (tensor<4xf64>, tensor<4xf64>)
  return %0#0, %0#1 : tensor<4xf64>, tensor<4xf64>
}
"""

STEPS = """
func.func public @main(%x: tensor<3x4xf64>, %y: tensor<3x4xf64>)
    -> (tensor<2x2xf64>, tensor<2x2xf64>) {
  %one = stablehlo.constant dense<1.0> : tensor<f64>
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0:2 = "stablehlo.reduce_window"(%x, %y, %one, %zero) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
    %1 = stablehlo.multiply %a, %c : tensor<f64>
    %2 = stablehlo.multiply %b, %c : tensor<f64>
    %3 = stablehlo.add %2, %d : tensor<f64>
    stablehlo.return %1, %3 : tensor<f64>, tensor<f64>
  }) {window_dimensions = array<i64: 2, 3>} : (tensor<3x4xf64>, tensor<3x4xf64>, tensor<f64>,
    tensor<f64>) -> (tensor<2x2xf64>, tensor<2x2xf64>)
  return %0#0, %0#1 : tensor<2x2xf64>, tensor<2x2xf64>
}
"""


def steps(x: Any, y: Any) -> tuple[Any, Any]:
    """Of the maps h -> x h + y in each window, one after the other, row by row."""
    factor, total = jnp.ones((2, 2)), jnp.zeros((2, 2))
    for i in range(2):
        for j in range(3):
            a, b = x[i : i + 2, j : j + 2], y[i : i + 2, j : j + 2]
            factor, total = factor * a, total * a + b
    return factor, total


def pairs(x: Any, y: Any) -> tuple[Any, Any]:
    left = x[:-1] >= x[1:]
    return jnp.where(left, x[:-1], x[1:]), jnp.where(left, y[:-1], y[1:])


REDUCE_WINDOWS = [
    *(pool_case(body, pool) for body in BODIES for pool in POOLS),
    Case("stablehlo.reduce_window", lambda x: lax.cumsum(x, 0), [real(4, 2)], "cumsum"),
    Case("stablehlo.reduce_window", lambda x: lax.cumsum(x, 0, reverse=True), [real(3)], "back"),
    Case("stablehlo.reduce_window", lax.cumprod, [floats([0.5, 0.0, 2.0, 0.0])], "cumprod"),
    Case("stablehlo.reduce_window", lax.cummax, [distinct(6)], "cummax"),
    Case("stablehlo.reduce_window", lax.cumlogsumexp, [real(5)], "cumlogsumexp"),
    Case(
        "stablehlo.reduce_window",
        smooth_max,
        [real(6)],
        "logaddexp",
        reference=lambda x: jnp.logaddexp(jnp.logaddexp(x[:-2], x[1:-1]), x[2:]),
    ),
    Case("stablehlo.reduce_window", pooled(lax.add, 0.0, (2, 2)), [real(1, 3)], "no_window"),
    Case("stablehlo.reduce_window", pooled(lax.max, -np.inf, (2, 2)), [real(1, 3)], "no_maximum"),
    Case(
        "stablehlo.reduce_window",
        pooled(lax.mul, 1.0, (2, 2)),
        [real(1, 3)],
        "no_product",
        against_jax=False,
    ),
    Case(
        "stablehlo.reduce_window", pooled(lax.mul, 1.0, (7,)), [real(9)], "seven", against_jax=False
    ),
    Case(
        "stablehlo.reduce_window",
        pooled(lax.max, -np.inf, (2,)),
        [floats([1.0, 1.0, 0.0, 0.0])],
        "ties",
        numeric=False,
    ),
    Case(
        "stablehlo.reduce_window",
        SUM_FROM.replace("BODY", "add"),
        [real(4), real()],
        "sum_from",
        reference=lambda x, init: x[:-1] + x[1:] + init,
    ),
    Case(
        "stablehlo.reduce_window",
        SUM_FROM.replace("BODY", "maximum"),
        [distinct(4), floats(0.1)],
        "maximum_from",
        reference=lambda x, init: jnp.maximum(jnp.maximum(x[:-1], x[1:]), init),
    ),
    Case(
        "stablehlo.reduce_window",
        SUM_FROM.replace("BODY", "maximum")
        .replace(", %init: tensor<f64>", "")
        .replace("{\n  %0", "{\n  %init = stablehlo.constant dense<0.1> : tensor<f64>\n  %0"),
        [floats([0.3, -1.0, -0.5, 0.7])],
        "maximum_from_a_constant",
        reference=lambda x: jnp.maximum(jnp.maximum(x[:-1], x[1:]), 0.1),
    ),
    Case(
        "stablehlo.reduce_window",
        PAIRS,
        [distinct(5), real(5)],
        "pairs",
        reference=pairs,
        dtypes=(),
    ),
    Case("stablehlo.reduce_window", STEPS, [real(3, 4), real(3, 4)], "steps", reference=steps),
    Case(  # where a select_and_scatter ends the process
        "stablehlo.reduce_window",
        pooled(lax.max, -np.inf, ()),
        [real()],
        "maximum_of_a_scalar",
        reference=lambda x: x,
    ),
]

SELECT_AND_SCATTER = """
func.func public @main(%x: tensor<4x5xf64>, %source: tensor<2x2xf64>, %init: tensor<f64>)
    -> tensor<4x5xf64> {
  %0 = "stablehlo.select_and_scatter"(%x, %source, %init) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %1 = stablehlo.compare COMPARE, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %1 = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %1 : tensor<f64>
  }) {window_dimensions = array<i64: 3, 3>, window_strides = array<i64: 1, 2>}
    : (tensor<4x5xf64>, tensor<2x2xf64>, tensor<f64>) -> tensor<4x5xf64>
  return %0 : tensor<4x5xf64>
}
"""


def scattered(sign: float, last: bool = False) -> Callable[..., Any]:
    """The transpose of a maximum over windows of sign x, which is linear in `source`.

    Of equals it is the first that counts, or the last.
    """

    def select_and_scatter(x: Any, source: Any, init: Any) -> Any:
        found = jnp.full(x.shape, init)
        for i in range(2):
            for j in range(2):
                window = sign * x[i : i + 3, 2 * j : 2 * j + 3]
                place = 8 - jnp.argmax(window[::-1, ::-1]) if last else jnp.argmax(window)
                row, column = jnp.divmod(place, 3)
                found = found.at[i + row, 2 * j + column].add(source[i, j])
        return found

    return select_and_scatter


CASES = [
    *REDUCE_WINDOWS,
    *(
        Case(
            "stablehlo.select_and_scatter",
            SELECT_AND_SCATTER.replace("COMPARE", direction),
            [distinct(4, 5), real(2, 2), real()],
            label,
            reference=scattered(sign),
        )
        for direction, label, sign in (("GE", "maximum", 1.0), ("LE", "minimum", -1.0))
    ),
    *(
        Case(
            "stablehlo.select_and_scatter",
            SELECT_AND_SCATTER.replace("COMPARE", direction),
            [floats(np.ones((4, 5))), real(2, 2), real()],
            f"equals_{direction}",
            reference=scattered(1.0, last=direction == "GT"),
            numeric=False,
        )
        for direction in ("GE", "GT")
    ),
    *(
        Case(
            "stablehlo.select_and_scatter",
            SELECT_AND_SCATTER.replace("COMPARE", direction),
            [floats(np.full((4, 5), worst)), real(2, 2), real()],
            f"worst_{direction}",
            reference=scattered(1.0, last=True),
            numeric=False,
        )
        for direction, worst in (("GT", -np.inf), ("LT", np.inf))
    ),
    Case(
        "stablehlo.select_and_scatter",
        SELECT_AND_SCATTER.replace("COMPARE, %a, %b", "LE, %b, %a").replace(
            "add %a, %b", "add %b, %a"
        ),
        [distinct(4, 5), real(2, 2), real()],
        "either_order",
        reference=scattered(1.0),
    ),
]
