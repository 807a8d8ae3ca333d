"""Rules are staged once, lazily, under stable names, and linked into any module."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

import pullback as pb
from pullback import artifact
from pullback._jax import ir
from pullback.ir import locations
from pullback.ir.masks import Asked
from pullback.ir.modules import clone
from pullback.ir.symbols import Symbols


@jax.custom_jvp
def wave(x):
    return jnp.sin(x)


wave.defjvp(lambda p, t: (wave(*p), 3 * jnp.cos(p[0]) * t[0]))


def test_a_rule_used_a_hundred_times_is_traced_once() -> None:
    def f(x):
        for _ in range(100):
            x = wave(x)
        return x

    program = pb.trace(f)(1.0)
    assert program.rules.traces == 0
    assert str(program).count('rule = "wave"') == 100
    assert str(program).count("func.func private @wave(") == 1
    program = program.stage_rules()
    assert program.rules.traces == 1
    assert str(program).count("func.func private @wave.jvp(") == 1


def test_linking_into_a_second_module_reuses_the_trace() -> None:
    program = pb.trace(wave)(1.0)
    other = clone(program.module)
    assert program.rules.stage(Symbols(program.module), "wave", "jvp", Asked("1")) == "wave.jvp"
    assert program.rules.stage(Symbols(other), "wave", "jvp", Asked("1")) == "wave.jvp"
    assert program.rules.traces == 1
    other.operation.verify()
    assert "@wave.jvp" in str(other)


def test_different_rules_of_one_name_get_names_of_their_own() -> None:
    def make(factor):
        f = jax.custom_jvp(lambda x: x)
        f.defjvp(lambda p, t: (p[0], factor * t[0]))
        return f

    program = pb.trace(lambda x: make(2.0)(x) + make(3.0)(x) + make(2.0)(x))(1.0)
    assert list(program.rules) == ["lambda", "lambda_1"]


def batched_linear_call(r: jax.Array, x: jax.Array) -> jax.Array:
    """JAX cannot batch a linear_call."""
    return jax.vmap(lambda r, x: pb.linear_call(jnp.multiply, jnp.multiply, r, x))(r, x)


@jax.custom_jvp
def bad_jvp(x: jax.Array) -> jax.Array:
    return x * x


@jax.custom_vjp
def bad_vjp(x: jax.Array) -> jax.Array:
    return x * x


def bad_transpose(x: jax.Array) -> jax.Array:
    return pb.linear_call(jnp.multiply, batched_linear_call, jnp.ones_like(x), x)


bad_jvp.defjvp(lambda x, t: (bad_jvp(*x), batched_linear_call(*x, *t)))
bad_vjp.defvjp(lambda x: (x * x, x), lambda x, ct: (batched_linear_call(x, ct),))


@pytest.mark.parametrize("function", [bad_jvp, bad_vjp, bad_transpose], ids=lambda f: f.__name__)
def test_what_jax_cannot_do_in_a_users_rule_is_said(function) -> None:
    """It was a rule that is missing, with the remedy to write one; a save left it out."""
    program = pb.trace(lambda x: jnp.sum(function(x)))(jnp.ones(3))
    with pytest.raises(NotImplementedError, match="Batching rule for 'linear_call'") as caught:
        program.grad()
    note = "called at tests/frontend/rules/test_rule_table.py:"
    assert any(note in each for each in caught.value.__notes__)
    words = "raises: NotImplementedError: Batching rule for(.*\n)*.*, in batched_linear_call"
    with pytest.raises(pb.MissingRuleError, match=words) as caught:
        artifact.serialize(program)
    assert "tests/frontend/rules/test_rule_table.py:" in caught.value.where


class TwoCotangents:
    """Rules that are methods, of which the backward one gives a cotangent too many."""

    def fwd(self, x):
        return x * x, None

    def bwd(self, _, ct):
        return ct, ct


def with_two_cotangents(factor, x):
    return factor * x * x


def jvp_without_tangent(factor, primals, tangents):
    return with_two_cotangents(factor, *primals)


def first_line(function) -> str:
    line = inspect.unwrap(function).__code__.co_firstlineno
    return f"tests/frontend/rules/test_rule_table.py:{line}"


@pytest.mark.parametrize("inside", [lambda f: f, jax.jit, jax.checkpoint])
def test_a_mistake_that_jax_finds_in_a_rule_names_the_lines_where_the_rule_begins(inside) -> None:
    """JAX's words name no line, and none of the user's is running any more."""
    backward = jax.custom_vjp(functools.partial(with_two_cotangents, 1.0))
    backward.defvjp(TwoCotangents().fwd, TwoCotangents().bwd)
    forward = jax.custom_jvp(with_two_cotangents, nondiff_argnums=(0,))
    forward.defjvp(jvp_without_tangent)
    lines = " and ".join(map(first_line, (TwoCotangents.fwd, TwoCotangents.bwd)))
    for function, expected in (
        (lambda x: backward(x), lines),
        (lambda x: forward(2.0, x), first_line(jvp_without_tangent)),
    ):
        program = pb.trace(inside(function))(1.0)
        with pytest.raises((TypeError, ValueError)) as caught:
            program.grad()
        assert any(
            each.endswith(f"; its rule begins at {expected}") for each in caught.value.__notes__
        )


def test_a_rule_that_jax_lacks_is_missing_in_its_words() -> None:
    program = pb.trace(jnp.linalg.eig)(jnp.ones((2, 2)))
    with pytest.raises(pb.MissingRuleError, match="JAX has no jvp rule for `eig`") as e:
        program.jvp()
    assert (
        "with respect to operand 0: NotImplementedError: Derivatives of non-symmetric"
        in e.value.message
    )


def test_a_rule_that_jax_lacks_names_the_users_line() -> None:
    program = pb.trace(lambda a, x: jax.scipy.special.betainc(a, a, x))(1.5, 0.5)
    with pytest.raises(pb.MissingRuleError, match="no transpose rule for `regularized") as caught:
        program.rules.stage(
            Symbols(program.module), "regularized_incomplete_beta", "transpose", Asked("111")
        )
    assert "test_rule_table.py:" in caught.value.where


def test_a_wrong_mask_is_a_mistake_of_the_caller() -> None:
    program = pb.trace(wave)(1.0)
    with pytest.raises(ValueError, match="mask '11' for wave, of 1 operands"):
        program.rules.stage(Symbols(program.module), "wave", "jvp", Asked("11"))


PROGRAM = """
import jax, jax.numpy as jnp, pullback as pb
def f(x):
    y = jax.lax.scan(lambda c, _: (jax.nn.softplus(c) + jnp.cumsum(c), None), x, None, 3)[0]
    return jax.nn.relu(jnp.linalg.cholesky(jnp.outer(y, y) + jnp.eye(3)))
print(pb.trace(f)(jnp.ones(3)).stage_rules())
"""


def test_two_processes_print_the_same_bytes() -> None:
    texts = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert b"@logaddexp.jvp" in texts[0]
    assert texts[0] == texts[1]


MANUAL = """
import jax, jax.numpy as jnp, pullback as pb
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
f = lambda x: jax.lax.psum(jax.nn.softplus(x), "i")
program = pb.trace(jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P()))(jnp.arange(8.0))
staged = program.stage_rules()
print(staged)
staged.module.operation.verify()
"""


def test_rules_inside_shard_map_are_staged_under_its_axes() -> None:
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XLA_FLAGS": flags}
    found = subprocess.run(
        [sys.executable, "-c", MANUAL], capture_output=True, check=True, text=True, env=environment
    ).stdout
    assert "sdy.manual_computation" in found
    assert "@logaddexp.jvp" in found
    assert "psum_invariant" not in found, "its own rule counts equal values once"
    assert "rule = " not in found.replace("sharding_rule = ", "")


@jax.custom_jvp
def projected(x):
    return x @ x


projected.defjvp(lambda x, t: (projected(*x), x[0] @ t[0] + t[0] @ x[0]))


def test_rules_are_traced_under_the_settings_of_the_program() -> None:
    """Wherever it is differentiated: they would compute in other types, or less precisely."""
    x = np.eye(3, dtype=np.float32)
    with jax.default_matmul_precision("highest"):
        program = pb.trace(lambda x: projected(x).sum())(x)
    text = str(program.grad())
    assert text.count("HIGHEST, HIGHEST") == text.count("stablehlo.dot_general") == 2
    program = pb.trace(lambda x: projected(x).sum())(x)
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" not in str(program.grad())


def test_a_program_of_64_bits_is_differentiated_where_jax_has_32() -> None:
    def f(x):
        return jnp.sum(jax.nn.softplus(x) * jnp.linalg.norm(x) + jax.scipy.special.erf(x))

    x = np.linspace(0.2, 1.0, 3)
    with jax.enable_x64(True):
        program, expected = pb.trace(f)(x), jax.grad(f)(x)
    gradient = program.grad()
    with jax.enable_x64(True):
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-12)
    single = pb.trace(f)(x.astype("float32"))
    with jax.enable_x64(True):
        assert "f64" not in str(single.grad())


def primitive_with_a_rule():
    """A sine whose rule notes each of its traces."""
    primitive, traces = Primitive("noting"), []

    def rule(t, x, **parameters):
        traces.append(parameters)
        return t * jnp.cos(x)

    primitive.def_abstract_eval(lambda x, **parameters: x)
    lowering = mlir.lower_fun(lambda x, **parameters: jnp.sin(x), multiple_results=False)
    mlir.register_lowering(primitive, lowering)
    ad.defjvp(primitive, rule)
    return primitive.bind, traces


def test_rules_of_primitives_are_traced_once_for_all_programs() -> None:
    noting, traces = primitive_with_a_rule()
    for scale in (2.0, 3.0):
        program = pb.trace(lambda x, scale=scale: jnp.sum(noting(scale * x)))(jnp.ones(3))
        expected = scale * np.cos([scale] * 3)
        np.testing.assert_allclose(program.grad()(jnp.ones(3)), expected, rtol=1e-6)
    assert len(traces) == 1
    jax.clear_caches()
    pb.trace(lambda x: jnp.sum(noting(x)))(jnp.ones(3)).grad()
    assert len(traces) == 2


def test_other_types_parameters_and_settings_have_rules_of_their_own() -> None:
    noting, traces = primitive_with_a_rule()

    def gradient(x, **parameters):
        return pb.trace(lambda x: jnp.sum(noting(x, **parameters)))(x).grad()(x)

    x = np.array([2.0, 3.0], np.float32)
    for count in (1, 1, 2):
        np.testing.assert_allclose(gradient(x, reverse=count == 2), np.cos(x), rtol=1e-6)
        assert len(traces) == count
    assert [each["reverse"] for each in traces] == [False, True]
    gradient(np.ones(3, np.float32), reverse=False)
    assert len(traces) == 3
    with jax.default_matmul_precision("highest"):
        gradient(x, reverse=False)
    assert len(traces) == 4


def test_what_is_said_of_a_call_is_said_of_its_rule_alone() -> None:
    noting, traces = primitive_with_a_rule()

    def marked(x):
        with set_xla_metadata(mark="here"):
            return jnp.sum(noting(x))

    x = np.ones(3)
    for f in (lambda x: jnp.sum(noting(x)), marked, lambda x: jnp.sum(noting(x))):
        text = str(pb.trace(f)(x).grad().module)
        assert ('mark = "here"' in text) == (f is marked)
    assert len(traces) == 2


def test_a_rule_of_another_program_is_at_this_ones_line() -> None:
    def one(x):
        return jax.lax.linalg.cholesky(x)

    def other(x):
        return jax.lax.linalg.cholesky(x)

    for function in (one, other):
        program = pb.trace(function)(jnp.eye(3)).stage_rules()
        name = function.__qualname__.replace("<locals>.", "")
        assert {program.rules[key].where.partition(", in ")[2] for key in program.rules} == {name}
        places = set()

        def note(operation, places=places):
            places.add(locations.user_line_of(operation))
            return ir.WalkResult.ADVANCE

        program.module.operation.walk(note)
        functions = {place.partition(", in ")[2] for place in places if place is not None}
        assert name in functions
        assert functions <= {name, test_a_rule_of_another_program_is_at_this_ones_line.__name__}


def test_a_rule_that_a_library_replaces_is_traced_anew() -> None:
    primitive = Primitive("replaced")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, lambda context, x: [x])
    for slope in (2.0, 3.0):
        ad.defjvp(primitive, lambda t, x, slope=slope: slope * t)
        assert pb.trace(lambda x: primitive.bind(x))(1.0).grad()(1.0) == slope
