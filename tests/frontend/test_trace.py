"""`pb.trace`: what goes in, what Program holds, and what it computes."""

from __future__ import annotations

import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.dtypes import primal_tangent_dtype
from jax.extend.core import Primitive
from jax.interpreters import mlir

import pullback as pb
from tests.rounding import FUNCTION, close

Point = collections.namedtuple("Point", "x y")


def test_arrays_scalars_and_structs() -> None:
    program = pb.trace(lambda x, s, n: x * s + n)(
        jax.ShapeDtypeStruct((3,), jnp.float32), 2.0, np.int32(4)
    )
    assert repr(program) == ("Program((x: float32[3], s: float32[], n: int32[]) -> (float32[3]))")
    assert [aval.weak_type for aval in program.in_avals] == [False, True, False]
    np.testing.assert_allclose(program(jnp.ones(3), 2.0, np.int32(4)), 6 * np.ones(3))


def test_pytrees_keep_their_structure_and_paths() -> None:
    def f(params, *, point):
        return {"sum": params["w"] + point.x, "both": [point, params]}

    arguments = {"w": jnp.arange(2.0)}, Point(jnp.ones(2), (jnp.zeros(1),))
    program = pb.trace(f)(arguments[0], point=arguments[1])
    assert program.arg_paths == ("params['w']", "point.x", "point.y[0]")
    found = program(arguments[0], point=arguments[1])
    wanted = f(arguments[0], point=arguments[1])
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(np.testing.assert_allclose, found, wanted)


def test_static_arguments_are_baked_in() -> None:
    def f(n, x, *, mode):
        return x**n if mode == "power" else x * n

    traced = pb.trace(f, static_argnums=0, static_argnames="mode")
    assert traced(3, 2.0, mode="power")(2.0) == 8.0
    assert traced(3, 2.0, mode="times")(2.0) == 6.0
    assert traced(3, 2.0, mode="power").arg_paths == ("x",)


def test_large_closed_over_arrays_are_hidden_arguments() -> None:
    large, small = jnp.arange(65.0), jnp.arange(64.0)
    program = pb.trace(lambda x: x + large.sum() + small.sum())(1.0)
    assert len(program.constants) == 1
    assert program.constants[0].shape == (65,)
    assert "@main(%arg0: tensor<65xf32>, %arg1: tensor<f32>)" in str(program)
    assert 'dense<"0x' not in str(program).replace("tensor<64xf32>", "")
    np.testing.assert_allclose(program(1.0), 1.0 + 64 * 65 / 2 + 63 * 64 / 2)


def test_random_keys_go_in_and_out() -> None:
    def f(key):
        return jax.random.normal(key, (3,)), jax.random.split(key)[1]

    key = jax.random.key(3)
    (sample, following), (wanted, wanted_key) = pb.trace(f)(key)(key), f(key)
    close(sample, wanted, ops=FUNCTION + 4)
    assert following.dtype == wanted_key.dtype
    assert (jax.random.key_data(following) == jax.random.key_data(wanted_key)).all()


def test_an_array_without_elements_and_no_results() -> None:
    program = pb.trace(lambda x: (x, None))(jnp.zeros((0, 3)))
    found, nothing = program(jnp.zeros((0, 3)))
    assert found.shape == (0, 3)
    assert nothing is None


@pytest.mark.parametrize("platform", ["cpu", "cuda", "rocm", "tpu"])
def test_lowering_needs_no_hardware(platform: str) -> None:
    traced = pb.trace(lambda x: jax.nn.relu(jnp.linalg.cholesky(x)), platforms=platform)
    program = traced(jnp.eye(3))
    assert list(program.rules) == ["cholesky", "relu"]
    assert ("lapack_spotrf_ffi" in str(program)) == (platform == "cpu")
    program.stage_rules().module.operation.verify()


@pytest.mark.parametrize("platforms", [("gpu",), ("cpuu",)])
def test_other_platforms_are_refused(platforms: tuple[str, ...]) -> None:
    with pytest.raises(pb.PullbackError, match="cannot lower for the platforms '" + platforms[0]):
        pb.trace(jnp.sin, platforms=platforms)


def test_callbacks_run_in_process_and_are_marked() -> None:
    seen = []

    def f(x):
        jax.debug.callback(lambda v: seen.append(float(v)), x)
        y = jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), x)
        return jax.lax.cond(x > 0, lambda v: jax.debug.print("{}", v), lambda v: None, x), y

    program = pb.trace(f)(jnp.float32(0.5))
    marks = [text.value for text in program.module.operation.attributes["pullback.not_portable"]]
    assert [mark.split(" at ")[0] for mark in marks] == [
        "debug_callback",
        "pure_callback",
        "debug_print",
    ]
    assert all("test_trace.py:" in mark and ", in test_callbacks" in mark for mark in marks)
    _, y = program(jnp.float32(0.5))
    jax.effects_barrier()
    assert seen == [0.5]
    close(y, np.sin(np.float32(0.5)), ops=FUNCTION)


def test_a_value_that_has_escaped_from_its_trace_is_an_error_of_jax() -> None:
    """As a library's cache may hand on. The trace is refused, and no call or save comes later."""
    escaped: list[jax.Array] = []

    def first(x: jax.Array) -> jax.Array:
        escaped.append(2.0 * x)
        return x

    jax.jit(first)(1.0)
    for traced in (pb.trace(lambda x: x * escaped[0]), jax.jit(pb.grad(lambda x: x * escaped[0]))):
        with pytest.raises(jax.errors.UnexpectedTracerError, match=r"test_trace\.py.*first"):
            traced(1.0)

    def outer(y: jax.Array) -> jax.Array:
        jax.jit(first)(y)  # its trace has ended, and that of `outer` has not
        return pb.grad(lambda x: x * escaped[-1])(y)

    with pytest.raises(jax.errors.UnexpectedTracerError):
        jax.jit(outer)(3.0)


def test_the_users_own_errors_come_through() -> None:
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        pb.trace(f)(1.0)


def summed_over_batch(x):
    return jax.lax.psum(x, "batch")


def shuffled(x):
    return jax.lax.pshuffle(x, "batch", [1, 0])


def counted(x, count):
    count[...] += 1
    return x * count[...]


stuck = Primitive("stuck")
stuck.def_abstract_eval(lambda x: x)


def _is_stuck(*_: object) -> None:
    raise AssertionError("no such device")


mlir.register_lowering(stuck, _is_stuck)


def scaled(x):
    return x.astype("int8").astype(SCALED)


SCALED = primal_tangent_dtype(jnp.dtype("int8"), jnp.dtype("bfloat16"))

REFUSED = {
    "tangents": (pb.trace(scaled), "its tangents have another type"),
    "argument's tangents": (
        lambda _: pb.trace(lambda x: x)(jax.ShapeDtypeStruct((2,), SCALED)),
        "its tangents have",
    ),
    "stuck": (pb.trace(lambda x: stuck.bind(x)), "cannot lower the function .* no such device"),
    "vmap": (jax.vmap(pb.grad(summed_over_batch), axis_name="batch"), "along 'batch'"),
    "a permutation": (jax.vmap(pb.grad(shuffled), axis_name="batch"), "along 'batch'"),
    "ref": (lambda x: pb.grad(counted)(x[0], jax.new_ref(0)), "mutable"),
    "unused ref": (lambda x: pb.trace(lambda x, _: x)(x, jax.new_ref(0)), "mutable array"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_module_cannot_hold_is_refused(name: str) -> None:
    function, words = REFUSED[name]
    with pytest.raises(pb.PullbackError, match=words) as caught:
        function(jnp.ones(2))
    whole = name in ("ref", "unused ref", "argument's tangents")
    place = "among its arguments" if whole else "test_trace.py:"
    assert place in (caught.value.where or "")


def test_who_asks_for_a_device_when_it_is_lowered_gets_one() -> None:
    """As under `jax.jit`: this tells of the sharding then; kernels are partitioned for devices."""
    seen: list[Any] = []

    def inspected(x):
        jax.debug.inspect_array_sharding(x, callback=seen.append)
        return jnp.sin(x)

    assert pb.grad(inspected)(0.0) == 1.0
    assert seen
