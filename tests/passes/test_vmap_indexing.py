"""Batches whose items read, write and sort at places of their own: the same as under `jax.vmap`.

The records of tests/rules have the same integers for each item; here, they differ.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pullback import _jax
from pullback._jax import ir
from pullback.errors import MissingRuleError
from pullback.passes.manager import run_stages
from pullback.passes.vmap import VMap
from pullback_runtime import call_module, make_handle
from tests.rules import harness
from tests.rules.record import Case

ITEMS = 3
VECTORISED = {
    *(
        f"stablehlo.{name}"
        for name in (
            "broadcast broadcast_in_dim concatenate dynamic_broadcast_in_dim dynamic_gather "
            "dynamic_pad dynamic_reshape dynamic_slice dynamic_update_slice gather "
            "get_tuple_element map optimization_barrier pad real_dynamic_slice reshape reverse "
            "scatter slice sort torch_index_select transpose tuple"
        ).split()
    ),
    "chlo.top_k",
}
CASES = [case for case in harness.all_cases() if case.op in VECTORISED and case.rewrite is None]


def floats(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.normal(size=shape)


def complexes(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.normal(size=shape) + 1j * rng.normal(size=shape)


def places(*shape: int, dtype: Any = np.int32) -> Callable[[np.random.Generator], np.ndarray]:
    """Indices inside and outside of arrays of sizes about 5."""
    low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -3
    return lambda rng: rng.integers(low, 9, shape).astype(dtype)


def different(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Indices of which no two are the same, nor inside of 5 all of them."""
    return lambda rng: (rng.permutation(9)[: np.prod(shape)].reshape(shape) - 2).astype(np.int32)


ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
CORNERS = lax.GatherDimensionNumbers((0, 2), (), (1, 0))
OF_BATCHES = lax.GatherDimensionNumbers((0,), (1,), (1,), (0,), (1,))
ADD_ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
ADD_CORNERS = lax.ScatterDimensionNumbers((0, 2), (), (1, 0))
ADD_BATCHES = lax.ScatterDimensionNumbers((0,), (1,), (1,), (0,), (1,))


def gather(dims: Any, sizes: tuple[int, ...], mode: str = "clip", **options: Any) -> Any:
    return lambda x, i: lax.gather(x, i, dims, sizes, mode=mode, fill_value=-7, **options)


def scatter(f: Any, dims: Any, mode: str = "fill", **options: Any) -> Any:
    return lambda x, i, u: f(x, i, u, dims, mode=mode, **options)


def slice_at(x: Any, *starts: Any) -> Any:
    return lax.dynamic_slice(x, starts, (2, 3))


def update_at(x: Any, u: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, u, starts)


def gather_sorted(x: Any, i: Any) -> Any:
    return gather(ROWS, (1, 4), indices_are_sorted=True)(x, jnp.sort(i, axis=0))


PROGRAMS: dict[str, tuple[Any, list[Any]]] = {
    "dynamic_slice": (slice_at, [floats(4, 5), places(), places()]),
    "dynamic_slice-unsigned": (
        slice_at,
        [complexes(4, 5), places(dtype=np.uint8), places(dtype=np.uint8)],
    ),
    "dynamic_slice-empty": (
        lambda x, i: lax.dynamic_slice(x, (i, i), (0, 3)),
        [floats(4, 5), places()],
    ),
    "dynamic_update_slice": (update_at, [floats(4, 5), floats(2, 3), places(), places()]),
    "dynamic_update_slice-integers": (
        update_at,
        [places(4, 5), places(4, 1), places(dtype=np.int64), places(dtype=np.int64)],
    ),
    "dynamic_update_slice-empty": (update_at, [floats(4), floats(0), places()]),
    "dynamic_update_slice-scalar": (update_at, [floats(), floats()]),
    "pad": (
        lambda x, v: lax.pad(x, v, ((1, -1, 2), (-1, 2, 0))),
        [complexes(3, 4), complexes()],
    ),
    "pad-scalar": (lambda x, v: lax.pad(x * x, v, ()), [floats(), floats()]),
    "concatenate": (lambda x, y: lax.concatenate([x, y, x], 1), [floats(2, 3), floats(2, 0)]),
    "sort": (
        lambda k, v: lax.sort((k, v), dimension=0, num_keys=1),
        [floats(4, 2), places(4, 2)],
    ),
    "sort-last": (lambda k, v: lax.sort((k, v), num_keys=2), [places(2, 4), floats(2, 4)]),
    "top_k": (lambda x: lax.top_k(x, 2), [floats(3, 4)]),
    "gather-sorted": (gather_sorted, [floats(5, 4), places(4, 1)]),
    "gather-corners": (gather(CORNERS, (2, 3)), [floats(4, 5), places(3, 2)]),
    "gather-batches": (gather(OF_BATCHES, (1, 1, 2)), [floats(4, 5, 2), places(3, 4, 1)]),
    "gather-one": (
        gather(lax.GatherDimensionNumbers((), (0,), (0,)), (1,)),
        [floats(5), places(1)],
    ),
    "scatter-corners": (
        scatter(lax.scatter_add, ADD_CORNERS),
        [floats(4, 5), places(3, 2), floats(2, 3, 3)],
    ),
    "scatter-batches": (
        scatter(lax.scatter_max, ADD_BATCHES),
        [floats(4, 5, 2), places(3, 4, 1), floats(2, 3, 4)],
    ),
    "scatter-unique": (
        scatter(lax.scatter_mul, ADD_ROWS, unique_indices=True),
        [complexes(5, 4), different(3, 1), complexes(3, 4)],
    ),
    "scatter-apply": (
        lambda x, i: lax.scatter_apply(
            x, i, jnp.sin, ADD_ROWS, update_shape=(3, 4), mode="fill", unique_indices=True
        ),
        [floats(5, 4), different(3, 1)],
    ),
    **{
        f"gather-{mode}": (gather(ROWS, (1, 4), mode), [floats(5, 4), places(3, 1)])
        for mode in ("clip", "fill")
    },
    **{
        f"scatter-{mode}": (
            scatter(lax.scatter, ADD_ROWS, mode),
            [floats(5, 4), different(3, 1) if mode == "fill" else places(1, 1), floats(n, 4)],
        )
        for mode, n in (("clip", 1), ("fill", 3))
    },
    "gather-in_bounds": (
        lambda x, i: gather(ROWS, (1, 4), "promise_in_bounds")(x, abs(i) % 5),
        [floats(5, 4), places(3, 1)],
    ),
    "scatter-in_bounds": (
        lambda x, i, u: lax.scatter_add(x, abs(i) % 5, u, ADD_ROWS, mode="promise_in_bounds"),
        [floats(5, 4), places(3, 1), floats(3, 4)],
    ),
}
SUBSETS = [
    pytest.param(name, batched, id=f"{name}-{''.join(map(str, map(int, batched)))}")
    for name, (_, args) in PROGRAMS.items()
    for batched in itertools.product((True, False), repeat=len(args))
    if any(batched)
]


def module_of(f: Any, args: list[np.ndarray]) -> Any:
    text = jax.jit(f, keep_unused=True).lower(*args).as_text()
    return ir.Module.parse(text, _jax.context())


def mapped(module: Any, axes: Any, size: int = ITEMS) -> Any:
    run_stages(module, (VMap(size, in_axes=tuple(axes)),))
    assert module.operation.verify()
    assert "stablehlo.while" not in str(module)
    return module


def run(module: Any, args: list[np.ndarray]) -> Any:
    call = functools.partial(call_module, make_handle(str(module)))
    return jax.jit(call)(*args)


def sampled(args: list[Any], shape: tuple[int, ...], batched: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(0)

    def batch(draw: Any) -> np.ndarray:
        items = [draw(rng) for _ in np.ndindex(*shape)]
        return np.stack(items).reshape(*shape, *np.shape(items[0]))

    return [batch(draw) if flag else np.asarray(draw(rng)) for draw, flag in zip(args, batched)]


def check(found: Any, expected: Any) -> None:
    for ours, theirs in zip(found, jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(("name", "batched"), SUBSETS)
def test_each_item_has_its_own_places(name: str, batched: tuple[bool, ...]) -> None:
    f, draws = PROGRAMS[name]
    axes = [0 if flag else None for flag in batched]
    with jax.enable_x64(True):
        args = sampled(draws, (ITEMS,), batched)
        one = [v[0] if flag else v for v, flag in zip(args, batched)]
        check(run(mapped(module_of(f, one), axes), args), jax.vmap(f, axes)(*args))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_batch_of_batches(name: str) -> None:
    f, draws = PROGRAMS[name]
    with jax.enable_x64(True):
        args = sampled(draws, (2, ITEMS), [True] * len(draws))
        module = mapped(module_of(f, [v[0, 0] for v in args]), [0])
        check(run(mapped(module, [0], 2), args), jax.vmap(jax.vmap(f))(*args))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_loop_runs_over_the_items(case: Case) -> None:
    with jax.enable_x64(True):
        args = harness.sample(case, np.random.default_rng(0))
        mapped(harness.lower(case, args), [0])
        for i in range(len(args)):
            mapped(harness.lower(case, args), [0 if i == j else None for j in range(len(args))])


SQUARE = """
func.func public @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %y = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %y : tensor<2x2xf32>
}
"""
SIZES = """
func.func public @main(%x: tensor<2x5xf32>) -> (tensor<2x5xf32>, tensor<i32>) {
  %n = stablehlo.get_dimension_size %x, dim = 1 : (tensor<2x5xf32>) -> tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %y = stablehlo.set_dimension_size %x, %five, dim = 1
    : (tensor<2x5xf32>, tensor<i32>) -> tensor<2x5xf32>
  return %y, %n : tensor<2x5xf32>, tensor<i32>
}
"""
PLACEMENT = """
func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = stablehlo.custom_call @annotate_device_placement(%x) {has_side_effect = true,
    mhlo.frontend_attributes = {_xla_buffer_placement = "device"}}
    : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
"""


@pytest.mark.parametrize(
    ("text", "shape", "results"),
    [
        pytest.param(SQUARE, (2, 2), lambda x: (x.swapaxes(1, 2),), id="square"),
        pytest.param(SIZES, (2, 5), lambda x: (x, np.full(ITEMS, 5, np.int32)), id="sizes"),
        pytest.param(PLACEMENT, (2,), lambda x: (x,), id="placement"),
    ],
)
def test_what_jax_does_not_write(text: str, shape: Any, results: Any) -> None:
    x = np.random.default_rng(0).normal(size=(ITEMS, *shape)).astype(np.float32)
    check(run(mapped(ir.Module.parse(text, _jax.context()), [0]), [x]), results(x))


def test_a_size_for_each_item_is_refused() -> None:
    text = """
func.func public @main(%x: tensor<5xf32>, %n: tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<5>> {
  %y = stablehlo.set_dimension_size %x, %n, dim = 0
    : (tensor<5xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<5>>
  return %y : tensor<?xf32, #stablehlo.bounds<5>>
}
"""
    with pytest.raises(MissingRuleError, match="dynamic shape"):
        mapped(ir.Module.parse(text, _jax.context()), [0])


def test_indices_of_a_batch_are_not_promised_to_be_sorted() -> None:
    """No backend that we run on uses the promise, so the text has to show it."""
    f = gather(ROWS, (1, 3), indices_are_sorted=True)
    text = jax.jit(f).lower(np.ones((5, 3)), np.array([[0], [2]])).as_text()
    assert "indices_are_sorted = true" in text
    shared, own = (
        str(mapped(ir.Module.parse(text, _jax.context()), axes)) for axes in ([0, None], [0, 0])
    )
    assert "indices_are_sorted = true" in shared
    assert "indices_are_sorted = true" not in own
