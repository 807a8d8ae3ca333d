"""A module is a citizen of JAX: jit, grad, jvp, vmap, control flow, shard_map."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback_runtime as runtime
from pullback_runtime import call_module, set_rules

X = np.array([0.5, 1.0, 2.0], np.float32)
SIN3 = np.sin(np.sin(np.sin(X)))


@pytest.fixture
def sine(handle_of):
    return handle_of(jnp.sin, X)


@pytest.fixture
def rules(handle_of):
    """Rules for sine and its derivative, as a compiler would make them from the IR."""
    both = handle_of(lambda x, t: (jnp.sin(x), jnp.cos(x) * t), X, X)
    wave = handle_of(lambda x: (jnp.sin(x), jnp.cos(x)), X)
    push = handle_of(lambda x, t, slope: slope * t + 0 * x, X, X, X)
    scale = handle_of(jnp.multiply, X, X)
    asked = []

    def jvp(handle, perturbed):
        asked.append(("jvp", handle, perturbed))
        return both

    def partial_evaluation(handle, unknown):
        if (handle, unknown) != (both, (1,)):  # a loop asks what of `wave` no iteration changes
            return None
        return runtime.Halves(wave, push, (0,), (False, True), (1,), (None,))

    def transpose(handle, linear, given):
        asked.append(("transpose", handle, linear))
        assert given == (0,)
        return runtime.Transposed(scale, linear, given, known=(2,))

    def batching(handle, in_axes, axis_size, mesh_axis):
        assert mesh_axis is None
        asked.append(("batching", handle, in_axes, axis_size))
        return handle_of(jnp.sin, np.stack([X] * axis_size, in_axes[0])), in_axes

    set_rules(
        jvp=jvp, transpose=transpose, batching=batching, partial_evaluation=partial_evaluation
    )
    asked.append(push)
    return asked


def call(handle):
    return lambda *args: call_module(handle, *args)[0]


def test_eager_and_jitted_calls(sine):
    assert isinstance(call_module(sine, X), list)
    np.testing.assert_allclose(call(sine)(X), np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(call(sine))(X), np.sin(X), rtol=1e-6)


def test_calls_with_jit_off(sine):
    with jax.disable_jit():
        np.testing.assert_allclose(call(sine)(X), np.sin(X), rtol=1e-6)
        np.testing.assert_allclose(jax.jit(call(sine))(X), np.sin(X), rtol=1e-6)


def test_the_search_for_nan_blames_the_module(handle_of):
    logarithm = handle_of(jnp.log, X)
    with jax.debug_nans(True):
        np.testing.assert_allclose(call(logarithm)(X), np.log(X), rtol=1e-6)
        for called in (call(logarithm), jax.jit(call(logarithm))):
            with pytest.raises(FloatingPointError, match=r"\(nan\) .* in a compiled module"):
                called(-X)


def test_a_module_is_merged_once_however_often_it_is_called(sine):
    def program(x):
        x = jax.lax.fori_loop(0, 3, lambda _, value: call(sine)(value), x)
        x = jax.lax.cond(x[0] > 0, call(sine), lambda value: value, x)
        return call(sine)(call(sine)(x))

    text = jax.jit(program).lower(X).as_text()
    assert text.count("stablehlo.sine") == 1
    assert len(re.findall(r"func.func private @pullback_main\w*\(", text)) == 1


def test_names_that_clash_are_renamed(handle_of):
    def first(x):
        return jax.jit(lambda inner: inner * 2, inline=False)(x)

    def second(x):
        return jax.jit(lambda inner: inner + 1, inline=False)(x)

    handles = handle_of(first, X), handle_of(second, X)
    np.testing.assert_allclose(
        jax.jit(lambda x: call(handles[1])(call(handles[0])(x)))(X), X * 2 + 1
    )


def test_a_recursive_name_in_the_module_still_means_itself():
    text = """
    func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = func.call @pullback_main(%x) : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    func.func private @pullback_main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.add %x, %x : tensor<f32>
      return %0 : tensor<f32>
    }
    """
    handle = runtime.make_handle(text)
    assert float(call(handle)(np.float32(3))) == 6.0


def test_handles_of_the_same_module_are_equal(handle_of):
    assert handle_of(jnp.sin, X) == handle_of(jnp.sin, X)
    assert hash(handle_of(jnp.sin, X)) == hash(handle_of(jnp.sin, X))
    assert handle_of(jnp.sin, X) != handle_of(jnp.cos, X)


def test_arguments_are_checked_while_tracing(sine):
    with pytest.raises(runtime.ArgumentError, match=r"expected float32\[3\], got float32\[2\]"):
        jax.jit(call(sine)).lower(X[:2])


def test_forward_mode(sine, rules):
    primal, tangent = jax.jvp(call(sine), (X,), (2 * np.ones_like(X),))
    np.testing.assert_allclose(primal, np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(tangent, 2 * np.cos(X), rtol=1e-6)
    assert rules[1] == ("jvp", sine, (0,))


def test_reverse_mode(sine, rules):
    gradient = jax.jit(jax.grad(lambda x: call(sine)(x).sum()))(X)
    np.testing.assert_allclose(gradient, np.cos(X), rtol=1e-6)
    assert ("transpose", rules[0], (1,)) in rules


def test_reverse_mode_through_a_scan(sine, rules):
    def program(x):
        return jax.lax.scan(lambda c, _: (call(sine)(c), None), x, None, length=3)[0].sum()

    def reference(x):
        return jnp.sin(jnp.sin(jnp.sin(x))).sum()

    np.testing.assert_allclose(jax.grad(program)(X), jax.grad(reference)(X), rtol=1e-6)


def test_batching(sine, rules):
    batched = jax.vmap(call(sine), in_axes=1, out_axes=1)(np.stack([X, X], 1))
    np.testing.assert_allclose(batched, np.stack([np.sin(X), np.sin(X)], 1), rtol=1e-6)
    assert rules[1] == ("batching", sine, (1,), 2)


def test_integers_have_no_tangents(handle_of):
    scaled = handle_of(lambda x, n: (x * n, n + 1), X, 2)
    asked = []

    def jvp(handle, perturbed):
        asked.append(perturbed)
        return handle_of(lambda x, n, dx: (x * n, n + 1, dx * n), X, 2, X)

    set_rules(jvp=jvp)
    _, tangents = jax.jvp(lambda x: call_module(scaled, x, 3), (X,), (X,))
    np.testing.assert_allclose(tangents[0], 3 * X)
    assert tangents[1].dtype == jax.dtypes.float0
    assert asked == [(0,)]


@pytest.mark.parametrize(
    ("verb", "name", "transform"),
    [
        ("differentiate", "jvp", lambda f: jax.grad(lambda x: f(x).sum())(X)),
        ("batch", "batching", lambda f: jax.vmap(f)(np.stack([X, X]))),
        ("transpose", "transpose", lambda f: jax.linear_transpose(f, X)(X)),
    ],
)
def test_without_rules_the_error_says_who_has_them(sine, verb, name, transform):
    with pytest.raises(runtime.MissingTransformError) as caught:
        transform(call(sine))
    assert str(caught.value).startswith(
        f"cannot {verb} a compiled module: no {name} rule is registered\n"
        "  where: in a call of @main (1 arguments)\n"
        "  do:    `import pullback` registers the rules; without the compiler, call a module "
        "that was transformed before it came here"
    )


def test_a_lazy_handle_makes_its_module_when_it_is_lowered(sine, module_of):
    made = []

    def make():
        made.append(1)
        return module_of(jnp.sin, X)

    handle = runtime.lazy_handle("sine", make, sine.in_avals, sine.out_avals)
    jax.make_jaxpr(call(handle))(X)
    assert made == []
    np.testing.assert_allclose(call(handle)(X), np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda x: call(handle)(x) + 1)(X), np.sin(X) + 1, rtol=1e-6)
    assert made == [1]


ON_A_MESH = """
import jax, jax.numpy as jnp, numpy as np, pullback_runtime as runtime
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
split = NamedSharding(mesh, P("x"))
x = jax.device_put(np.arange(8, dtype=np.float32), split)
def call(function, *args):
    handle = runtime.make_handle(jax.jit(function).lower(*args).compiler_ir())
    return lambda *given: runtime.call_module(handle, *given)[0]

y = jax.jit(call(lambda v: v * 2 + v.sum(), x))(x)
print(*y.sharding.spec, np.asarray(y).tolist())

program = call(lambda v, w: v.sum() + w + v, x[:2], np.float32(1))
mapped = jax.shard_map(program, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
print(np.asarray(jax.jit(mapped)(x, np.float32(1))).tolist())

total = jax.shard_map(lambda v: jax.lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
pinned = call(lambda v: jax.lax.with_sharding_constraint(v + 1, split), x)
program = jax.jit(lambda v: call(total, x)(pinned(pinned(v))))
print(program.lower(x).as_text().count("sdy.mesh @"), np.asarray(program(x)).tolist())
"""


def test_on_a_mesh(in_process):
    """Sharded arguments stay so; `shard_map` hands on shards; a module may have a mesh itself."""
    printed = in_process(ON_A_MESH, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert printed.splitlines() == [
        "x [28.0, 30.0, 32.0, 34.0, 36.0, 38.0, 40.0, 42.0]",
        "[2.0, 3.0, 8.0, 9.0, 14.0, 15.0, 20.0, 21.0]",
        "1 [20.0, 24.0]",
    ]
