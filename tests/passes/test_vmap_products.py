"""The pass `vmap` on ops whose batch is another product, window or call: against each item.

The records of tests/rules, which test_vmap.py runs, have few layouts of each of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pullback import _jax
from pullback._jax import ir
from pullback.passes.manager import run_pipeline, run_stages
from pullback.passes.vmap import VMap
from pullback_runtime import call_module, make_handle
from tests.rules import cases_einsum, harness
from tests.rules.record import Case

SIZE = 3
Axes = Sequence[int | None]
Shape = tuple[int, ...]

pytestmark = pytest.mark.usefixtures("float64")


# ------------------------------------------------------------------------------- the harness


def each_alone(count: int) -> list[Axes]:
    """All arguments batched, and each by itself."""
    alone = [[0 if i == j else None for i in range(count)] for j in range(count)]
    return [[0] * count, *(alone if count > 1 else [])]


def batched(text: str, axes: Axes, size: int = SIZE) -> ir.Module:
    """A module, for a batch."""
    module = ir.Module.parse(text, _jax.context())
    run_stages(module, (VMap(size, in_axes=tuple(axes)),))
    assert module.operation.verify()
    return module


def compiled(function: Callable[..., Any]) -> Any:
    return jax.jit(function)


def entry(text: str) -> Any:
    return compiled(functools.partial(call_module, make_handle(text)))


def call(text: str, args: Sequence[Any]) -> Any:
    return entry(text)(*args)


def stacked(items: Sequence[np.ndarray], axes: Axes) -> list[np.ndarray]:
    """Other items beside each that is batched."""
    return [x if a is None else np.stack([x, 2 * x, -x]) for x, a in zip(items, axes, strict=True)]


def item(stacks: Sequence[np.ndarray], axes: Axes, i: int) -> list[np.ndarray]:
    return [x if a is None else x[i] for x, a in zip(stacks, axes, strict=True)]


def check(function: Callable[..., Any], items: Sequence[np.ndarray], axes: Axes) -> str:
    """The batch of a function gives what it gives for each item; the text of the batch."""
    stacks = stacked(items, axes)
    text = str(batched(jax.jit(function).lower(*items).as_text(), axes))
    found = call(text, stacks)
    jitted = compiled(function)
    rows = [jax.tree.leaves(jitted(*item(stacks, axes, i))) for i in range(SIZE)]
    for ours, expected in zip(found, map(np.stack, zip(*rows, strict=True)), strict=True):
        assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(np.asarray(ours), expected, rtol=1e-9, atol=1e-9)
    return text


def random(dtype: Any, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return (4 * rng.normal(size=shape)).astype(dtype)


# --------------------------------------------------------------------------------- products

PRODUCTS: dict[str, tuple[Shape, Shape, Any]] = {
    # shapes; contracted and batch dimensions of each
    "vectors": ((3,), (3,), (((0,), (0,)), ((), ()))),
    "matrix_vector": ((2, 3), (3,), (((1,), (0,)), ((), ()))),
    "vector_matrix": ((3,), (3, 2), (((0,), (0,)), ((), ()))),
    "matrices": ((2, 3), (4, 3), (((1,), (1,)), ((), ()))),
    "outer": ((2,), (3,), (((), ()), ((), ()))),
    "scalars": ((), (), (((), ()), ((), ()))),
    "batches": ((5, 2, 3), (3, 5, 4), (((2,), (0,)), ((0,), (1,)))),
    "batches_of_vectors": ((3, 5), (5, 3), (((0,), (1,)), ((1,), (0,)))),
    "rows_of_batches": ((2, 5), (5,), (((), ()), ((1,), (0,)))),
    "two_of_each": ((5, 2, 3, 4), (4, 2, 5, 3), (((3, 2), (0, 3)), ((1, 0), (1, 2)))),
    "empty": ((2, 0), (0, 4), (((1,), (0,)), ((), ()))),
}
TRANSPOSES = {  # of a batch of one side only
    "matrices": (0, 1), "outer": (0, 1), "batches": (1, 1), "batches_of_vectors": (1, 1),
    "rows_of_batches": (1, 1), "two_of_each": (1, 1), "empty": (0, 1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int32])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, dtype: Any) -> None:
    """Neither loops nor repeats a side that all items share."""
    left, right, numbers = PRODUCTS[name]
    precision = lax.Precision.HIGHEST, lax.Precision.DEFAULT
    wider = np.float64 if dtype == np.int32 else None
    product = functools.partial(
        lax.dot_general,
        dimension_numbers=numbers,
        precision=precision,
        preferred_element_type=wider,
    )
    transposes = 0, *TRANSPOSES.get(name, (0, 0))
    for axes, count in zip(each_alone(2), transposes, strict=True):
        text = check(product, [random(dtype, *left), random(dtype, *right)], axes)
        assert "while" not in text
        assert "broadcast_in_dim" not in text
        assert text.count("stablehlo.transpose") == count


def test_each_side_keeps_its_precision() -> None:
    """The sides change places for a batch of vectors."""
    precision = lax.Precision.HIGHEST, lax.Precision.DEFAULT
    product = functools.partial(jnp.dot, precision=precision)
    for axes, expected in (
        ([0, None], "precision = [HIGHEST, DEFAULT]"),
        ([None, 0], "precision = [DEFAULT, HIGHEST]"),
    ):
        assert expected in check(product, [random(float, 2, 3), random(float, 3)], axes)


# ------------------------------------------------------------------------------ convolutions

IMAGES = ("NCHW", "OIHW", "NCHW")
CONVOLUTIONS: dict[str, tuple[Shape, Shape, dict[str, Any]]] = {
    "plain": ((2, 3, 5, 4), (4, 3, 2, 3), {}),
    "layouts": ((5, 2, 4, 3), (3, 4, 2, 2), {"dimension_numbers": ("HNWC", "IOWH", "CHNW")}),
    "strides": ((1, 2, 6, 5), (2, 2, 2, 2), {"window_strides": (2, 3), "padding": "SAME"}),
    "padding": ((1, 2, 4, 4), (2, 2, 3, 2), {"padding": ((2, 0), (-1, 1))}),
    "dilations": ((1, 2, 4, 5), (2, 2, 2, 2), {"lhs_dilation": (2, 1), "rhs_dilation": (1, 2)}),
    "feature_groups": ((2, 6, 3, 3), (4, 3, 2, 2), {"feature_group_count": 2}),
    "depthwise": (
        (2, 3, 3, 4),
        (2, 2, 1, 8),
        {"feature_group_count": 4, "dimension_numbers": ("NHWC", "HWIO", "NHWC")},
    ),
    "batch_groups": ((4, 3, 3, 3), (6, 3, 2, 2), {"batch_group_count": 2}),
    "batch_groups_inside": (
        (3, 3, 6, 3),
        (3, 2, 2, 6),
        {"batch_group_count": 3, "dimension_numbers": ("HWNC", "IHWO", "HCWN")},
    ),
    "no_dimensions": ((2, 3), (4, 3), {"dimension_numbers": ("NC", "OI", "NC")}),
    "nothing": ((0, 3, 5, 4), (4, 3, 2, 3), {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    """A batch of inputs, of kernels, and of both."""
    lhs, rhs, given = CONVOLUTIONS[name]
    settings = {
        "window_strides": (1,) * (len(lhs) - 2),
        "padding": [(0, 0)] * (len(lhs) - 2),
        "dimension_numbers": IMAGES,
        **given,
    }
    convolution = functools.partial(lax.conv_general_dilated, **settings)
    for axes in each_alone(2):
        text = check(convolution, [random(float, *lhs), random(float, *rhs)], axes)
        assert "while" not in text


REVERSED = """func.func public @main(%x: tensor<1x6x2xf64>, %w: tensor<3x2x2xf64>)
    -> tensor<1x4x2xf64> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x6x2xf64>, tensor<3x2x2xf64>) -> tensor<1x4x2xf64>
  return %0 : tensor<1x4x2xf64>
}"""


def test_a_reversed_window_stays_reversed() -> None:
    x, w = random(float, SIZE, 1, 6, 2), random(float, SIZE, 3, 2, 2)
    expected = np.stack([call(REVERSED, each)[0] for each in zip(x, w, strict=True)])
    text = str(batched(REVERSED, [0, 0]))
    assert "while" not in text
    np.testing.assert_allclose(call(text, [x, w])[0], expected, rtol=1e-9)


# ------------------------------------------------------------------------------- other sums


@pytest.mark.parametrize("case", cases_einsum.CASES, ids=lambda case: case.name)
def test_einsum(case: Case) -> None:
    """A label for the batch; its size stays apart from sizes of 1."""
    args = harness.sample(case, np.random.default_rng(0))
    text = str(harness.lower(case, args))
    assert case.rewrite is not None
    one = entry(case.rewrite(text))
    for axes in each_alone(len(args)):
        stacks = stacked(args, axes)
        found = call(case.rewrite(str(batched(text, axes))), stacks)[0]
        rows = [one(*item(stacks, axes, i))[0] for i in range(SIZE)]
        np.testing.assert_allclose(found, np.stack(rows), rtol=1e-9, atol=1e-9)


RAGGED: dict[str, tuple[Shape, Shape, Shape, Any, list[int], list[int]]] = {
    # shapes; contracted and batch dimensions; the ragged one; that of groups
    "rows": ((7, 3), (2, 3, 4), (2,), (((1,), (1,)), ((), ())), [0], [0]),
    "rows_of_batches": ((6, 7, 3), (2, 6, 3, 4), (2,), (((2,), (2,)), ((0,), (1,))), [1], [0]),
    "sizes": ((6, 7, 3), (2, 3, 4), (6, 2), (((2,), (1,)), ((), ())), [1], [0]),
    "contracted": ((6, 7, 3), (6, 7, 4), (6, 2), (((1,), (1,)), ((0,), (0,))), [1], []),
}
PRIMAL = re.compile(r'"chlo.ragged_dot"\(.*\) <\{.*\}> : .* -> (.*)')


@pytest.mark.parametrize("name", RAGGED)
def test_ragged_products(name: str) -> None:
    """By their tangents: XLA's CPU backend lacks the op itself."""
    x_shape, y_shape, sizes, numbers, ragged, group = RAGGED[name]
    dims = lax.RaggedDotDimensionNumbers(numbers, ragged, group)
    x, y = random(float, *x_shape), random(float, *y_shape)
    n = np.full(sizes, 2, np.int32)
    dot = functools.partial(lax.ragged_dot_general, ragged_dot_dimension_numbers=dims)
    module = ragged_module(x, y, n, jax.eval_shape(dot, x, y, n).shape, dims)
    for axes in each_alone(3):
        xs, ys, ns = stacks = [
            v if a is None else np.stack([v, v + 1, v // 2])
            for v, a in zip((x, y, n), axes, strict=True)
        ]
        batch = batched(module, axes)
        assert "while" not in str(batch)
        run_pipeline(batch, "builtin.module(jvp)")
        text = PRIMAL.sub(r"stablehlo.constant dense<0.> : \1", str(batch))
        found = call(text, [xs, ys, ns, xs, ys])[1]
        rows = [2 * dot(*item(stacks, axes, i)) for i in range(SIZE)]
        np.testing.assert_allclose(found, np.stack(rows), rtol=1e-9, atol=1e-9)


def ragged_module(x: Any, y: Any, n: Any, out: Shape, dims: Any) -> str:
    """The op by itself."""
    types = [tensor_type(v.shape, v.dtype) for v in (x, y, n)]
    result = tensor_type(out, x.dtype)
    (contract, batch) = dims.dot_dimension_numbers
    numbers = {
        "lhs_batching_dimensions": batch[0],
        "rhs_batching_dimensions": batch[1],
        "lhs_contracting_dimensions": contract[0],
        "rhs_contracting_dimensions": contract[1],
        "lhs_ragged_dimensions": dims.lhs_ragged_dimensions,
        "rhs_group_dimensions": dims.rhs_group_dimensions,
    }
    literal = ", ".join(f"{key} = {list(value)}" for key, value in numbers.items())
    return f"""func.func public @main(%x: {types[0]}, %y: {types[1]}, %n: {types[2]}) -> {result} {{
  %0 = "chlo.ragged_dot"(%x, %y, %n) <{{
    precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>],
    ragged_dot_dimension_numbers = #chlo.ragged_dot<{literal}>
  }}> : ({", ".join(types)}) -> {result}
  return %0 : {result} }}"""


def tensor_type(shape: Shape, dtype: Any) -> str:
    element = {"float64": "f64", "int32": "i32"}[np.dtype(dtype).name]
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


# --------------------------------------------------------------------------- linear algebra

FACTORIZATIONS: dict[str, tuple[Callable[..., Any], list[Shape]]] = {
    "cholesky": (lax.linalg.cholesky, [(3, 3)]),
    "eig": (lax.linalg.eig, [(3, 3)]),
    "eigh": (lax.linalg.eigh, [(3, 3)]),
    "hessenberg": (lax.linalg.hessenberg, [(4, 4)]),
    "householder_product": (lax.linalg.householder_product, [(4, 3), (2,)]),
    "lu": (lax.linalg.lu, [(4, 3)]),
    "lu_of_batches": (lax.linalg.lu, [(2, 3, 3)]),
    "qr": (functools.partial(lax.linalg.qr, full_matrices=False), [(2, 4)]),
    "qr_with_pivots": (functools.partial(lax.linalg.qr, pivoting=True), [(4, 3)]),
    "schur": (lax.linalg.schur, [(3, 3)]),
    "svd": (lax.linalg.svd, [(4, 2)]),
    "svd_by_qr": (
        functools.partial(lax.linalg.svd, algorithm=lax.linalg.SvdAlgorithm.QR),
        [(2, 3)],
    ),
    "tridiagonal": (functools.partial(lax.linalg.tridiagonal, lower=True), [(3, 3)]),
    "tridiagonal_solve": (lax.linalg.tridiagonal_solve, [(4,), (4,), (4,), (4, 2)]),
}


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_factorizations(name: str, dtype: Any) -> None:
    """One call of LAPACK for all items, also where some of them have no factor."""
    function, shapes = FACTORIZATIONS[name]
    args = [random(dtype, *shape) for shape in shapes]
    if name in ("cholesky", "eigh", "tridiagonal"):
        args = [args[0] @ args[0].conj().T]
    for axes in each_alone(len(args)):
        assert calls_outside_of_loops(check(function, args, axes))


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("op", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_solves_with_one_matrix_for_all(op: str, left: bool, shape: Shape) -> None:
    """What is solved for all items together: no item has a copy of the matrix."""
    solve = functools.partial(
        lax.linalg.triangular_solve,
        left_side=left,
        lower=True,
        transpose_a=op != "NO_TRANSPOSE",
        conjugate_a=op == "ADJOINT",
    )
    a = random(complex, *shape)
    b = random(complex, *shape[:-2], *((3, 2) if left else (2, 3)))
    for axes in each_alone(2):
        text = check(solve, [a, b], axes)
        assert calls_outside_of_loops(text)
        assert ("broadcast_in_dim" in text) == (axes == [0, None])


def calls_outside_of_loops(text: str) -> bool:
    """Whether there are calls of LAPACK, and none of them in a loop."""
    calls = []

    def visit(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            calls.append(operation.parent.name)
        return ir.WalkResult.ADVANCE

    ir.Module.parse(text, _jax.context()).operation.walk(visit)
    return bool(calls) and "stablehlo.while" not in calls


def test_a_batch_of_none() -> None:
    """Where XLA has no op over nothing, or there are no groups."""
    x, w = random(float, 2, 3, 5, 5), random(float, 4, 3, 2, 2)
    convolution = functools.partial(lax.conv, window_strides=(1, 1), padding="SAME")
    for function, args in ((convolution, [x, w]), (jnp.matmul, [x, x]), (jnp.linalg.svd, [x])):
        text = jax.jit(function).lower(*args).as_text()
        for axes in each_alone(len(args)):
            stacks = [v if a is None else v[None][:0] for v, a in zip(args, axes, strict=True)]
            found = call(str(batched(text, axes, size=0)), stacks)
            expected = jax.tree.leaves(jax.eval_shape(function, *args))
            assert [v.shape for v in found] == [(0, *v.shape) for v in expected]


def test_an_unknown_call_runs_for_each_item() -> None:
    text = """func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.custom_call @mystery(%x) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }"""
    assert not calls_outside_of_loops(str(batched(text, [0])))
