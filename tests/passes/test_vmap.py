"""The pass `vmap`: a batch of items is what each item is by itself, for every op and its rules."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback import _jax
from pullback._jax import ir, sdy
from pullback.errors import MissingRuleError
from pullback.ir.modules import clone
from pullback.passes.manager import run_pipeline, run_stages
from pullback.passes.vmap import VMap
from pullback_runtime import call_module, make_handle
from pullback_runtime.ir import _module
from tests.rules import harness
from tests.rules.record import Case
from tests.work import lines_run

ITEMS = 3
CASES = [case for case in harness.all_cases() if case.rewrite is None]


def derived(case: Case, pipeline: str) -> Any:
    """The module of a record after some passes."""
    module = harness.lower(case, harness.sample(case, np.random.default_rng(0)))
    run_pipeline(module, f"builtin.module({pipeline})")
    return module


def types_of(module: Any) -> tuple[Any, Any]:
    return _module.signature(_module.find_entry(module, "main"), "main")


def item(case: Case, types: Any, seed: int) -> list[np.ndarray]:
    """Arguments and cotangents of these types."""
    rng = np.random.default_rng(seed)
    given = harness.sample(case, rng)
    cts = [harness.direction(np.zeros(t.shape, t.dtype), rng) for t in types[len(given) :]]
    return [np.asarray(v, t.dtype) for v, t in zip([*given, *cts], types, strict=True)]


def check(case: Case, pipeline: str, alone: bool) -> None:
    """The batch of the derived function is what it gives for each item; compiled at once.

    With `alone`, also where one argument is batched and the others are shared.
    """
    module = derived(case, pipeline)
    types, _ = types_of(module)
    items = [item(case, types, seed) for seed in range(ITEMS)]
    one = make_handle(str(module))
    batches: list[tuple[Any, Any, Any]] = []
    for axes in alternatives(len(types), alone):
        rows = [
            [v if axis == 0 else shared for v, axis, shared in zip(each, axes, items[0])]
            for each in items
        ]
        operands = [
            items[0][i] if axis is None else np.stack([row[i] for row in rows])
            for i, axis in enumerate(axes)
        ]
        batches.append((make_handle(str(batched(module, axes))), operands, rows))

    def run(inputs: Any) -> Any:
        handles = [handle for handle, _, _ in batches]
        return [
            (call_module(handle, *operands), [call_module(one, *row) for row in rows])
            for handle, (operands, rows) in zip(handles, inputs, strict=True)
        ]

    compiled = jax.jit(run)
    for found, expected in compiled([(operands, rows) for _, operands, rows in batches]):
        for ours, each in zip(found, zip(*expected, strict=True), strict=True):
            assert ours.dtype == each[0].dtype
            np.testing.assert_allclose(ours, np.stack(each), rtol=1e-9, atol=1e-9)


def batched(module: Any, axes: list[int | None]) -> Any:
    """The module of a batch; verified."""
    copy = clone(module)
    run_stages(copy, (VMap(ITEMS, in_axes=tuple(axes)),))
    assert copy.operation.verify()
    return copy


def alternatives(count: int, alone: bool) -> list[list[int | None]]:
    """All arguments batched, and each by itself."""
    one = [[0 if i == j else None for i in range(count)] for j in range(count)]
    return [[0] * count, *(one if alone and count > 1 else [])]


OF_BOUNDED_TYPES = "stablehlo.set_dimension_size"
FIRST = {case.op.strip(): case for case in reversed(CASES) if case.op != OF_BOUNDED_TYPES}


def test_values_of_bounded_types_have_no_batch() -> None:
    for case in CASES:
        if case.op == OF_BOUNDED_TYPES:
            module = derived(case, "")
            with pytest.raises(MissingRuleError, match=r"no batching rule for .* of dynamic shape"):
                run_pipeline(module, f"builtin.module(vmap{{size={ITEMS}}})")


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op != OF_BOUNDED_TYPES], ids=lambda case: case.name
)
def test_a_batch_is_what_each_item_is(case: Case) -> None:
    with jax.enable_x64(True):
        check(case, "", alone=case is FIRST[case.op.strip()])


@pytest.mark.parametrize("op", sorted(FIRST))
def test_a_batch_of_derivatives_is_what_each_item_has(op: str) -> None:
    with jax.enable_x64(True):
        check(FIRST[op], "vjp", alone=False)


OF_TWO = """
func.func private @parts(%a: tensor<2xf64>, %b: tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>) {
  %s = stablehlo.sine %a : tensor<2xf64>
  %c = stablehlo.cosine %b : tensor<2xf64>
  return %s, %c : tensor<2xf64>, tensor<2xf64>
}
func.func private @called(%a: tensor<2xf64>, %b: tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>) {
  PARTS
  return %r#0, %r#1 : tensor<2xf64>, tensor<2xf64>
}
func.func public @main(%a: tensor<2xf64>, %b: tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>) {
  BODY
  return %r#0, %r#1 : tensor<2xf64>, tensor<2xf64>
}
"""
PARTS = """%r:2 = stablehlo.composite "acme.parts" %a, %b {decomposition = @parts}
    : (tensor<2xf64>, tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>)"""
AROUND_PARTS = {
    "nothing": PARTS,
    "call": """%r:2 = call @called(%a, %b)
    : (tensor<2xf64>, tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>)""",
    "branch": """%n = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = "stablehlo.case"(%n) ({
      PARTS
      stablehlo.return %r#0, %r#1 : tensor<2xf64>, tensor<2xf64>
    }, {
      stablehlo.return %a, %b : tensor<2xf64>, tensor<2xf64>
    }) : (tensor<i32>) -> (tensor<2xf64>, tensor<2xf64>)""",
}


@pytest.mark.parametrize("around", AROUND_PARTS)
def test_results_of_a_composite_that_all_items_share(around: str) -> None:
    text = OF_TWO.replace("BODY", AROUND_PARTS[around]).replace("PARTS", PARTS)
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, "builtin.module(vmap{size=3 in-axes=0,none out-axes=0,none})")
    assert module.operation.verify()
    a, b = np.arange(6.0).reshape(3, 2), np.array([0.4, -1.0])
    with jax.enable_x64(True):
        found = jax.jit(lambda *xs: call_module(make_handle(str(module)), *xs))(a, b)
    np.testing.assert_allclose(found[0], np.sin(a), rtol=1e-12)
    np.testing.assert_allclose(found[1], np.cos(b), rtol=1e-12)


def test_loops_in_loops_are_looked_into_in_polynomial_time():
    """What a loop in a batch hands on is asked for more than once, and so are the loops in it."""

    def nested(depth, x):
        if not depth:
            return jnp.sin(x)
        return jax.lax.scan(lambda c, _: (nested(depth - 1, c), None), x, None, length=2)[0]

    def work(depth):
        program = pb.trace(lambda x: nested(depth, x))(jnp.ones(2)).vjp(0)
        return lines_run(lambda: program.vmap(0, axis_size=2))

    assert work(6) < 6 * work(3)


def test_what_was_traced_under_a_mesh_of_one_device_has_a_batch():
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    f = lambda x: jnp.sum(x**3) * 2.0  # noqa: E731
    with jax.set_mesh(jax.make_mesh((1,), ("x",))):
        program = pb.trace(f)(x[0])
    assert "sdy.sharding_constraint" in str(program)
    np.testing.assert_allclose(program.vmap(axis_size=3)(x), jax.vmap(f)(x))
    np.testing.assert_allclose(program.grad().vmap(axis_size=3)(x), jax.vmap(jax.grad(f))(x))


@pytest.mark.skipif(
    not hasattr(sdy.TensorShardingAttr, "reduction_op"), reason="jax 0.10 has sums alone"
)
def test_what_devices_leave_undone_stays_what_it_is():
    module = _module.parse(b"""
    sdy.mesh @mesh = <["a"=2, "b"=2]>
    func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = sdy.sharding_constraint %x <@mesh, [{"a"}], unreduced=max{"b"}> : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """)
    run_stages(module, [VMap(8)])
    assert '<@mesh, [{?}, {"a"}], unreduced=max{"b"}> : tensor<8x4xf32>' in str(module)
