"""Modules back to JAX: every op that has a function there, and what is mapped with them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback import _jax
from pullback.frontend import raising
from pullback.passes.manager import run_pipeline
from pullback_runtime import _module, call_module, make_handle
from tests.rules import harness
from tests.rules.record import Case

ITEMS = 3
FIRST: dict[str, Case] = {}
for each in harness.all_cases():
    if each.rewrite is None:
        FIRST.setdefault(each.op.strip(), each)

WITHOUT_FUNCTION = {
    *(op for op in FIRST if op.startswith("chlo.broadcast_")),
    "chlo.scan",
    "chlo.top_k",
    "stablehlo.async_done",
    "stablehlo.async_start",
    "stablehlo.batch_norm_grad",
    "stablehlo.batch_norm_inference",
    "stablehlo.batch_norm_training",
    "stablehlo.broadcast",
    "stablehlo.dot",
    "stablehlo.dynamic_broadcast_in_dim",
    "stablehlo.dynamic_gather",
    "stablehlo.dynamic_pad",
    "stablehlo.dynamic_reshape",
    "stablehlo.get_tuple_element",
    "stablehlo.real_dynamic_slice",
    "stablehlo.select_and_scatter",
    "stablehlo.set_dimension_size",
    "stablehlo.sort",
    "stablehlo.torch_index_select",
    "stablehlo.tuple",
}
"""Ops that do not come back: programs with them are mapped in another way."""


def derived(case: Case) -> Any:
    """The module of a record with the op and its transpose."""
    module = harness.lower(case, harness.sample(case, np.random.default_rng(0)))
    run_pipeline(module, "builtin.module(vjp{entry=main})")
    return module


def item(case: Case, types: Any, seed: int) -> list[np.ndarray]:
    """Arguments and cotangents of these types."""
    rng = np.random.default_rng(seed)
    given = harness.sample(case, rng)
    cts = [harness.direction(np.zeros(t.shape, t.dtype), rng) for t in types[len(given) :]]
    return [np.asarray(v, t.dtype) for v, t in zip([*given, *cts], types, strict=True)]


@pytest.mark.parametrize("op", sorted(FIRST))
def test_an_op_comes_back_and_is_mapped(op: str) -> None:
    with jax.enable_x64(True):
        case = FIRST[op]
        module = derived(case)
        types, _ = _module.signature(_module.find_entry(module, "main"), "main")
        items = [item(case, types, seed) for seed in range(ITEMS)]
        raised = raising.raised(module, None)
        axes = [0 if harness.inexact(v) else None for v in items[0]]
        stacked = [
            np.stack([each[i] for each in items]) if axis == 0 else items[0][i]
            for i, axis in enumerate(axes)
        ]
        compiled = functools.partial(jax.jit, compiler_options=harness.FAST_COMPILATION)
        try:
            found = compiled(jax.vmap(raised, axes))(*stacked)
        except raising.NotRaisable:
            assert op in WITHOUT_FUNCTION
            return
        assert op not in WITHOUT_FUNCTION
        module_call = compiled(functools.partial(call_module, make_handle(str(module))))
        for row, each in enumerate(items):
            for ours, expected in zip(found, module_call(*each), strict=True):
                assert ours.dtype == expected.dtype
                np.testing.assert_allclose(ours[row], expected, rtol=1e-9, atol=1e-9)


def test_what_the_items_share_is_computed_once() -> None:
    def f(x):
        return jnp.tanh(x) * jnp.sum(x)

    x, basis = jnp.arange(3.0), jnp.eye(3)
    jvp = lambda library: lambda t: library.jvp(f, (x,), (t,))  # noqa: E731
    ours, theirs = (jax.vmap(jvp(m), out_axes=(None, -1))(basis) for m in (pb, jax))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    shared = jax.make_jaxpr(jax.vmap(jvp(pb), out_axes=(None, -1)))(basis)
    assert "while" not in str(shared)


MAPS = {
    "vjp": lambda library, f, x, vs: jax.vmap(library.vjp(f, x)[1])(vs)[0],
    "linearize": lambda library, f, x, vs: jax.vmap(library.linearize(f, x)[1])(vs),
    "jvp": lambda library, f, x, vs: jax.vmap(lambda v: library.jvp(f, (x,), (v,))[1])(vs),
}


def layers(x):
    step = jax.checkpoint(lambda c, w: (jnp.tanh(c * w), jnp.sum(c)))
    c, sums = jax.lax.scan(step, x, jnp.linspace(0.5, 1.5, 4))
    return jax.lax.cond(sums[0] > 0, jnp.sin, jnp.cos, c) + jnp.cumsum(x) * x[jnp.array([2, 0, 2])]


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_pairs_are_no_loops_over_items(name: str) -> None:
    x, vs = jnp.array([0.3, -0.7, 1.1]), jnp.arange(12.0).reshape(4, 3)
    mapped = functools.partial(MAPS[name], pb, layers)
    np.testing.assert_allclose(mapped(x, vs), MAPS[name](jax, layers, x, vs), rtol=1e-5)
    (result,) = jax.jit(mapped).trace(x, vs).jaxpr.jaxpr.outvars
    assert result.aval.shape == (4, 3)
    expected = jax.jacrev(lambda x: MAPS[name](jax, layers, x, vs))(x)
    np.testing.assert_allclose(jax.jacrev(lambda x: mapped(x, vs))(x), expected, rtol=1e-4)


@pytest.mark.parametrize("name", MAPS)
def test_rules_stay_with_what_is_mapped(name: str) -> None:
    """A rule that is false on purpose, at second order."""

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), f(3.0 * x)), lambda r, ct: (ct * r,))
    x, vs = jnp.array([0.3, -0.7]), jnp.ones((1, 2))
    found = jax.grad(lambda x: jnp.sum(MAPS[name](pb, f, x, vs)))(x)
    expected = jax.grad(lambda x: jnp.sum(MAPS["vjp"](jax, f, x, vs)))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@jax.custom_jvp
def with_jvp(x, n):
    return jnp.exp(x) * n, n + 1


@with_jvp.defjvp
def _(primals, tangents):
    (x, n), (dx, _) = primals, tangents
    return with_jvp(x, n), (3.0 * dx * with_jvp(x, n)[0], np.zeros((), jax.dtypes.float0))


@jax.custom_vjp
def with_vjp(x, n):
    return jnp.exp(x) * n, n + 1


with_vjp.defvjp(
    lambda x, n: (with_vjp(x, n), (x, n)),
    lambda r, cts: (3.0 * cts[0] * with_vjp(*r)[0], None),
)


@pytest.mark.parametrize("f", [with_jvp, with_vjp], ids=["custom_jvp", "custom_vjp"])
def test_loaded_programs_are_mapped_with_their_rules(f: Any) -> None:
    x, n, vs = jnp.array([0.3, -0.7]), jnp.int32(2), jnp.eye(2)
    program = pb.load(pb.artifact.serialize(pb.trace(f)(x, n)))
    expected = 6.0 * jnp.diag(jnp.exp(x))
    apart = jax.vmap(lambda x: program(x, n)[0])(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(apart[1], 2.0 * jnp.exp(2 * x), rtol=1e-6)
    by_rows = jax.vmap(jax.grad(lambda x, v: jnp.vdot(program(x, n)[0], v)), (None, 0))
    np.testing.assert_allclose(by_rows(x, vs), expected, rtol=1e-6)
    outside = jax.jacrev(lambda xs: jax.vmap(lambda x: program(x, n)[0])(xs))(jnp.stack([x, x]))
    np.testing.assert_allclose(outside[1, :, 1], expected, rtol=1e-6)
    curvature = jax.jacrev(jax.grad(lambda x: program(x, n)[0].sum()))(x)
    np.testing.assert_allclose(curvature, 3.0 * expected, rtol=1e-6)


WITHOUT_WORDS_IN_JAX = {
    "total order": """func.func @main(%x: tensor<f32>) -> tensor<i1> {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.compare LT, %x, %0, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      return %1 : tensor<i1>
    }""",
    "stablehlo.add of these types": """func.func @main(%x: tensor<f32>) -> tensor<i1> {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.compare LT, %x, %0 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.add %1, %1 : tensor<i1>
      return %2 : tensor<i1>
    }""",
}


@pytest.mark.parametrize("words", WITHOUT_WORDS_IN_JAX)
def test_what_jax_cannot_say_is_mapped_all_the_same(words: str) -> None:
    text = WITHOUT_WORDS_IN_JAX[words]
    module = _jax.ir.Module.parse(text, _jax.context())
    with pytest.raises(raising.NotRaisable, match=words):
        raising.raised(module, None)(np.float32(1))
    handle = make_handle(text)
    xs = jnp.array([-0.0, 0.0, -1.0])
    (found,) = jax.vmap(functools.partial(call_module, handle))(xs)
    assert found.tolist() == [bool(call_module(handle, x)[0]) for x in xs]
