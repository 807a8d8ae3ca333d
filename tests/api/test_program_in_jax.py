"""Transformations of pullback inside those of JAX, and the other way round."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import pullback as pb
import pullback_runtime as runtime
from pullback.program import derivation
from pullback.program.handles import program_of
from pullback_runtime import _jax
from tests.api.checks import assert_agrees
from tests.work import layers_of

XS = np.arange(3, dtype=np.float32) + 0.5
LARGE = np.linspace(0, 1, 100, dtype=np.float32)
KEYS = jax.random.split(jax.random.key(1), 100)


@jax.custom_jvp
def sevenfold(x):
    """Its rule is false on purpose: a derivative through its code gives other numbers."""
    return x * x


@sevenfold.defjvp
def _(primals, tangents):
    return sevenfold(primals[0]), 7.0 * primals[0] * tangents[0]


def wave(x, y):
    return sevenfold(x) * jnp.sin(y) * x


def draws(keys):
    return jax.vmap(jax.random.normal)(keys)


def without_jit(function, *args):
    with jax.disable_jit():
        return function(*args)


COMPOSITIONS = {
    "jit of grad": lambda p: jax.jit(p.grad(wave))(1.3, 0.7),
    "grad of jit": lambda p: p.grad(jax.jit(wave))(1.3, 0.7),
    "grad of own jit": lambda p: p.grad(p.jit(wave))(1.3, 0.7),
    "JAX's grad of own jit": lambda p: jax.grad(p.jit(wave))(1.3, 0.7),
    "JAX's grad of grad": lambda p: jax.grad(p.grad(wave))(1.3, 0.7),
    "JAX's grad twice of grad": lambda p: jax.grad(jax.grad(p.grad(wave)))(1.3, 0.7),
    "grad of JAX's grad": lambda p: p.grad(jax.grad(wave))(1.3, 0.7),
    "JAX's jvp of grad": lambda p: jax.jvp(p.grad(wave), (1.3, 0.7), (1.0, -1.0)),
    "jvp of grad": lambda p: p.jvp(p.grad(wave), (1.3, 0.7), (1.0, -1.0)),
    "grad of jvp": lambda p: p.grad(lambda x: p.jvp(wave, (x, x), (1.0, x))[1])(1.3),
    "grad of vjp": lambda p: p.grad(lambda x: p.vjp(wave, x, x)[1](x)[0])(1.3),
    "grad with jit off": lambda p: without_jit(p.grad(jax.jit(wave)), 1.3, 0.7),
    "JAX's grad of grad with jit off": lambda p: without_jit(jax.grad(p.grad(wave)), 1.3, 0.7),
    "vmap of grad": lambda p: jax.vmap(p.grad(wave, (0, 1)), (0, None))(XS, 0.7),
    "vmap twice": lambda p: jax.vmap(jax.vmap(p.grad(wave), (0, None)), (None, 0))(XS, XS),
    "vmap, another axis": lambda p: jax.vmap(jax.vmap(p.grad(wave), (0, 0)), (1, None))(
        np.outer(XS, XS), XS
    ),
    "vmap of grad of grad": lambda p: jax.vmap(p.grad(p.grad(wave)), (0, None))(XS, 0.7),
    "vmap of JAX's grad of grad": lambda p: jax.vmap(jax.grad(p.grad(wave)), (None, 0))(0.7, XS),
    "vmap of a pull": lambda p: jax.vmap(lambda x: p.vjp(wave, x, 0.7)[1](1.0))(XS),
    "grad of vmap": lambda p: p.grad(lambda x: p.vmap(wave, (0, None))(x, 0.7).sum())(XS),
    "grad of vmap of grad": lambda p: p.grad(
        lambda x: jax.vmap(p.grad(wave), (0, None))(x, 0.7).sum()
    )(XS),
    "closure": lambda p: p.grad(lambda x: p.grad(lambda y: wave(x, y) * x)(0.7) * x)(1.3),
    "closure in JAX": lambda p: jax.grad(lambda x: p.grad(lambda y: wave(x, y))(0.7) * x)(1.3),
    "closure in jit": lambda p: jax.jit(lambda x: p.grad(lambda y: wave(x, y))(0.7))(1.3),
    "closed-over array": lambda p: p.grad(lambda x: (x * LARGE * LARGE).sum())(1.3),
    "in a scan": lambda p: p.grad(
        lambda x: jax.lax.scan(lambda c, _: (p.grad(wave)(c, x), None), x, None, length=2)[0]
    )(0.3),
    "random key": lambda p: jax.vmap(p.grad(lambda x, k: x * jax.random.normal(k)))(
        XS, jax.random.split(jax.random.key(1), 3)
    ),
    "closed-over random keys": lambda p: p.grad(lambda x: jnp.sin(x * draws(KEYS)).sum())(0.7),
    "random key of a vmap around": lambda p: jax.vmap(
        lambda k: p.grad(lambda x: x * jax.random.normal(k))(0.7)
    )(KEYS),
    "random key of a scan around": lambda p: jax.lax.scan(
        lambda c, k: (p.vjp(lambda x: jnp.sin(x * jax.random.normal(k)), c)[1](c)[0], None),
        0.7,
        KEYS[:3],
    ),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions(name):
    composition = COMPOSITIONS[name]
    assert_agrees(composition(pb), composition(jax), 2e-5)


def test_what_jax_is_given_passes_its_checks():
    def solve(matvec, b):
        return jnp.linalg.solve(pb.jacrev(matvec)(b), b)

    def loss(a):
        return jax.lax.custom_linear_solve(lambda v: a * v, XS, solve, symmetric=True).sum()

    with jax.enable_checks(True):
        assert_agrees(pb.grad(loss)(0.7), np.float32(-XS.sum() / 0.7**2))


def test_programs_are_functions_of_jax():
    program = pb.trace(wave)(1.3, 0.7)
    assert_agrees(program(1.3, 0.7), wave(np.float32(1.3), np.float32(0.7)))
    expected = jax.grad(jax.grad(wave))(np.float32(1.3), np.float32(0.7))
    for second in (
        program.grad().grad(),
        jax.grad(program.grad()),
        pb.grad(pb.grad(program)),
        jax.grad(jax.grad(program)),
        pb.grad(jax.grad(program)),
    ):
        assert_agrees(second(np.float32(1.3), np.float32(0.7)), expected)
    batch = pb.vmap(program.grad(), (0, None))(XS, np.float32(0.7))
    assert_agrees(batch, jax.vmap(jax.grad(wave), (0, None))(XS, np.float32(0.7)))


def test_half_of_a_split_is_batched():
    program = pb.trace(wave)(1.3, 0.7)
    backward = program.split_vjp().linear
    residuals = program.split_vjp().forward(1.3, 0.7)[1]
    ours = jax.vmap(lambda ct: backward(residuals, ct))(XS)
    pull = jax.vjp(wave, np.float32(1.3), np.float32(0.7))[1]
    assert_agrees(ours, jax.vmap(pull)(XS))


WRAPPERS = {
    "functools.wraps": lambda f: functools.wraps(f)(lambda x: 3.0 * f(x)),
    "jit": lambda f: jax.jit(functools.wraps(f)(lambda x: 3.0 * f(x))),
    "vmap": lambda f: lambda x: pb.vjp(jax.vmap(f), x[None])[0][0],
}


@pytest.mark.parametrize("wrapped", WRAPPERS.values(), ids=WRAPPERS)
def test_who_wraps_a_derivative_is_another_function(wrapped):
    """`functools.wraps` copies attributes, so it copies what we know of a function made here."""
    f = lambda x: jnp.sin(x) * x  # noqa: E731
    ours, theirs = (library.grad(wrapped(library.grad(f))) for library in (pb, jax))
    np.testing.assert_allclose(ours(1.0), theirs(1.0), rtol=1e-6)


def test_jit_with_static_arguments():
    def power(x, n, *, mode):
        return x**n if mode == "up" else x

    ours = pb.jit(power, static_argnums=1, static_argnames="mode")
    assert ours(3.0, 2, mode="up") == 9.0
    assert ours(3.0, 2, mode="down") == 3.0
    assert jax.grad(ours)(3.0, 2, mode="up") == 6.0
    assert pb.grad(ours)(3.0, 2, mode="up") == 6.0
    decorated = pb.jit(static_argnums=1, static_argnames="mode")(power)
    assert pb.grad(decorated)(3.0, 2, mode="up") == 6.0


@pytest.mark.parametrize("transform", [pb.jit, pb.grad, pb.hessian])
def test_what_is_no_function_is_refused_at_once(transform):
    with pytest.raises(TypeError, match="expected a function, got 3"):
        transform(3)


def test_a_rule_of_another_program_keeps_its_meaning():
    inner = pb.trace(sevenfold)(1.0)
    outer = pb.trace(lambda x: inner(x) * sevenfold(x))(1.5)
    assert_agrees(outer.grad()(np.float32(1.5)), np.float32(2 * 7 * 1.5**3))


def test_a_saved_program_keeps_its_rules_in_the_runtime_too(tmp_path):
    pb.trace(wave)(1.3, 0.7).save(tmp_path / "wave.mlirbc")
    arguments = np.float32(1.3), np.float32(0.7)
    for loaded in (pb.load(tmp_path / "wave.mlirbc"), runtime.load(tmp_path / "wave.mlirbc")):
        for order in (1, 2):
            ours, theirs = loaded, wave
            for _ in range(order):
                ours, theirs = jax.grad(ours), jax.grad(theirs)
            assert_agrees(ours(*arguments), theirs(*arguments))


@pytest.mark.parametrize("function", [jax.nn.softplus, lambda x: sevenfold(x) * jax.nn.softplus(x)])
def test_rules_beside_what_looks_like_an_expansion_stay_in_the_runtime(function, tmp_path):
    """What JAX expands was put back, and the rules erased, which only strings named as yet."""
    pb.trace(function)(1.3).save(tmp_path / "program.mlirbc")
    ours, theirs = runtime.load(tmp_path / "program.mlirbc"), function
    for _ in range(2):
        ours, theirs = jax.grad(ours), jax.grad(theirs)
        assert_agrees(ours(np.float32(1.3)), theirs(np.float32(1.3)))


def test_symbolic_programs_are_pushed_like_others():
    xs = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    program = pb.trace(lambda x: pb.jvp(jnp.sin, (x,), (x,))[1])(xs)
    assert_agrees(program(XS), XS * np.cos(XS))


@pytest.mark.parametrize("mapped", [pb.jit(jnp.sin), pb.grad(jnp.sin)])
def test_a_batch_of_so_many_items_as_a_symbol_says_is_refused(mapped):
    xs = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    for make in (pb.trace(jax.vmap(mapped)), jax.export.export(jax.jit(jax.vmap(mapped)))):
        with pytest.raises(pb.PullbackError, match="a batch of n items, which is no number"):
            make(xs)
    together = pb.grad(lambda x: jax.vmap(jnp.sin)(x).sum())
    assert_agrees(pb.trace(together)(xs)(XS), np.cos(XS))


def test_a_batch_sees_the_passes_that_a_program_went_through():
    program = pb.trace(sevenfold)(1.0).run_passes("lower-custom-derivatives")
    np.testing.assert_allclose(jax.vmap(pb.grad(program))(XS), 2 * XS, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(pb.grad(sevenfold))(XS), 7 * XS, rtol=1e-6)


SEVERAL_ENTRIES = """
func.func public @FIRST(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func public @square(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.multiply %x, %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func public @twice(%x: tensor<f32>) -> tensor<f32> {
  %0 = func.call @FIRST(%x) : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.add %0, %0 : tensor<f32>
  return %1 : tensor<f32>
}
"""


@pytest.mark.parametrize("first", ["main", "other"])
@pytest.mark.parametrize(
    ("entry", "function"), [("square", lambda x: x * x), ("twice", lambda x: 2 * jnp.sin(x))]
)
def test_transformations_of_a_module_are_those_of_its_entry(first, entry, function):
    """They were of @main, whatever was called."""
    handle = runtime.make_handle(SEVERAL_ENTRIES.replace("FIRST", first), entry=entry)

    def call(x):
        return runtime.call_module(handle, x)[0]

    for ours, theirs in (
        (call(2.0), function(2.0)),
        (jax.grad(call)(2.0), jax.grad(function)(2.0)),
        (pb.grad(call)(2.0), jax.grad(function)(2.0)),
        (jax.vmap(call)(XS), jax.vmap(function)(XS)),
        (pb.trace(call)(2.0)(2.0), function(2.0)),
    ):
        assert_agrees(ours, theirs)


def test_a_saved_module_with_large_constants_is_one_of_jax():
    """They became arguments, which nobody gave."""
    table = jnp.sin(jnp.arange(1 << 20, dtype=jnp.float32)).reshape(2, -1)

    def function(x):
        return jnp.sum(jnp.sin(x) * table)

    saved = pb.artifact.serialize(pb.trace(function)(table))
    handle = runtime.make_handle(saved)

    def call(x):
        return runtime.call_module(handle, x)[0]

    assert_agrees(jax.grad(call)(table), jax.grad(function)(table))
    many = jnp.stack([table, 2 * table])
    assert_agrees(jax.vmap(call)(many) / 1e3, jax.vmap(function)(many) / 1e3)


def times(number):
    """A function that Python multiplies by a number."""

    def call(x):
        kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda v: number * np.asarray(v), kind, jnp.floor(x))

    return call


@jax.custom_vjp
def calls_back_in_its_rule(x):
    return jnp.sin(x)


calls_back_in_its_rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * times(5)(x),))


@jax.checkpoint
def calls_back_again(x):
    return jnp.sin(x) * times(3)(x) * jnp.cos(x)


def by_jvp(p, f, primals, tangents):
    return p.jvp(f, primals, tangents)[1]


def by_map(p, f, primals, tangents):
    return p.linearize(f, *primals)[1](*tangents)


@pytest.mark.parametrize("p", [jax, pb])
@pytest.mark.parametrize("push", [by_jvp, by_map])
def test_tangents_that_jax_knows_stand_beside_linear_ones(p, push):
    """The rule of a `custom_jvp` gets an array of zeros, which was taken for a constant term."""
    program = pb.trace(wave)(1.3, 0.7)

    @jax.custom_jvp
    def twice(x, y):
        return program(x, y)

    @twice.defjvp
    def _(primals, tangents):
        return program(*primals), 2 * push(p, program, primals, tangents)

    for argnums in (0, 1, (0, 1)):
        slopes = jax.grad(wave, argnums)(1.3, 0.7)
        assert_agrees(jax.grad(twice, argnums)(1.3, 0.7), jax.tree.map(lambda s: 2 * s, slopes))
    of_each = jax.grad(lambda xs, y: jnp.sum(jax.vmap(twice, (0, None))(xs, y)))
    assert_agrees(of_each(XS, 0.7), 2 * jax.vmap(jax.grad(wave), (0, None))(XS, 0.7))
    of_both = jax.grad(lambda xs, y: jnp.sum(jax.vmap(twice, (0, None))(xs, y)), 1)
    assert_agrees(of_both(XS, 0.7), 2 * jax.vmap(jax.grad(wave, 1), (0, None))(XS, 0.7).sum())


def test_cotangents_that_jax_knows_stand_beside_linear_ones():
    """The map of cotangents gets an array of zeros for a result that is not used."""
    program = pb.trace(lambda x: (jnp.sin(x), jax.lax.stop_gradient(x)))(XS)
    _, pull = jax.vjp(lambda x: program(x)[1], XS)
    assert not jax.linear_transpose(pull, XS)((XS,))[0].any()
    program = pb.trace(lambda x: (jnp.sin(x), jnp.cos(x) * x))(XS)
    _, pull = jax.vjp(lambda x: program(x)[0], XS)
    assert_agrees(jax.linear_transpose(pull, XS)((XS,)), (jnp.cos(XS) * XS,))
    linear = pb.jit(lambda t: (2 * t, jnp.sin(XS) * t))
    pull = jax.linear_transpose(lambda t: linear(t)[1], XS)
    zeros = jax.linear_transpose(linear, XS)
    assert_agrees(jax.linear_transpose(pull, XS)((XS,)), (jnp.sin(XS) * XS,))
    (again,) = jax.linear_transpose(lambda ct: zeros((jnp.zeros_like(ct), ct)), XS)((XS,))
    assert_agrees(again, jnp.sin(XS) * XS)


def damped(x, y):
    """The value and the tangent of a loop are carried together."""
    end = jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) * y, x)
    return end * y, {"slope": jnp.cos(x)}


def by_one_jvp(p):
    """A function whose rule returns both results of one jvp."""
    function = jax.custom_jvp(lambda x, y: damped(x, y))
    function.defjvp(lambda primals, tangents: p.jvp(damped, primals, tangents))

    def loss(x, y):
        out, more = function(x, y)
        return jnp.sum(out**2 * more["slope"])

    return loss


def each_step(loss):
    def step(c, y):
        return loss(c, y) * c, c

    return lambda x, y: jnp.sum(jax.lax.scan(step, x, y)[1])


EVALUATED_IN_PARTS = {
    "grad": jax.grad,
    "of one": lambda loss: jax.grad(loss, 1),
    "jit": lambda loss: jax.jit(jax.grad(jax.jit(loss), (0, 1))),
    "linearize": lambda loss: lambda x, y: jax.linearize(loss, x, y)[1](y, x),
    "hessian": jax.hessian,
    "batch": lambda loss: jax.vmap(jax.grad(loss)),
    "scan": lambda loss: jax.grad(each_step(loss)),
    "computed again": lambda loss: jax.grad(jax.checkpoint(loss)),
    "saved": lambda loss: jax.grad(
        jax.checkpoint(loss, policy=jax.checkpoint_policies.everything_saveable), 1
    ),
    "computed again in steps": lambda loss: jax.grad(each_step(jax.checkpoint(loss))),
}


@pytest.mark.parametrize("name", EVALUATED_IN_PARTS)
def test_a_rule_of_jax_s_returns_both_results_of_one_jvp(name):
    """JAX knew none of the results of a call with tangents, so it could not linearize the rule."""
    derive = EVALUATED_IN_PARTS[name]
    assert_agrees(derive(by_one_jvp(pb))(XS, 1 + XS), derive(by_one_jvp(jax))(XS, 1 + XS))


def test_what_jax_knows_of_a_call_is_computed_apart_from_the_rest():
    """The value is ready when the derivative is asked for, and does not take the tangents."""
    linear = jax.make_jaxpr(lambda x: jax.linearize(by_one_jvp(pb), x, x)[0])(XS)
    calls = [eqn for eqn in linear.eqns if "jvp" in str(eqn.params.get("name"))]
    assert [len(call.invars) for call in calls] == [2]


def test_the_map_of_tangents_is_not_made_where_jax_transposes_it():
    """Its transpose is there; whether a result of it is known needs no look at it either."""

    def is_linearized(derive):
        return "linearize.py" in {file.name for file in layers_of(derive).files}

    assert not is_linearized(
        lambda: assert_agrees(jax.grad(pb.jit(wave))(1.3, 0.7), jax.grad(wave)(1.3, 0.7))
    )
    assert is_linearized(lambda: jax.linearize(pb.jit(wave), 1.3, 0.7)[1](1.0, 0.0))


@jax.custom_jvp
def pair(x, tangent):
    return jnp.sin(x), jnp.cos(x) * tangent


pair.defjvp(lambda primals, tangents: jax.jvp(lambda x, t: (x, x * t), primals, tangents))

WHOLE = {
    "rule": pair,
    "loop": lambda x, t: jax.lax.fori_loop(0, 2, lambda _, c: pair(*c), (x, t)),
    "barrier": lambda x, t: jax.lax.optimization_barrier(pair.fun(x, t)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_jax_knows_may_come_from_a_call_that_takes_the_rest_too(name):
    """Such a call stays whole: the process died of the operand that was taken from it."""
    both = pb.jit(WHOLE[name])
    function = jax.custom_jvp(lambda x: both(x, x)[0])
    function.defjvp(lambda primals, tangents: tuple(both(*primals, *tangents)))
    value, slope = both(XS, jnp.ones_like(XS))
    assert_agrees(jax.value_and_grad(lambda x: function(x).sum())(XS), (value.sum(), slope))


def test_a_call_whose_operands_are_known_is_not_taken_apart():
    def value(x, y):
        return jax.linearize(pb.jit(wave), x, y)[0]

    assert_agrees(value(1.3, 0.7), wave(1.3, 0.7))
    assert str(jax.make_jaxpr(value)(1.3, 0.7)).count("call_module[") == 1


def test_a_constant_beside_a_tangent_varies_over_a_mesh_as_that_does():
    """It would not, were it the result of a call that takes nothing."""
    beside = pb.jit(lambda t: (jnp.ones(3), 2 * t))
    doubled = jax.custom_jvp(jnp.sin)
    doubled.defjvp(lambda primals, tangents: (jnp.sin(*primals), beside(*tangents)[1]))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    mapped = jax.shard_map(doubled, mesh=mesh, in_specs=spec, out_specs=spec)
    with jax.enable_checks(True):
        assert_agrees(jax.grad(lambda x: mapped(x).sum())(XS), 2 * np.ones(3))


def test_what_a_result_depends_on_may_differ_by_the_platform():
    """What JAX knows here would be wrong there."""

    def function(x, t):
        chosen = jax.lax.platform_dependent(x, t, cpu=lambda x, t: x, cuda=lambda x, t: t)
        return chosen, 2 * t

    program = pb.trace(function)(XS, XS)
    known, late = derivation.known_part(program_of(program.handle), (1,))
    assert late == (False, True)
    with pytest.raises(pb.PullbackError, match="for known that is not on cuda"):
        known.handle.elsewhere("cuda")


def test_an_effect_is_not_had_twice_for_what_jax_knows():
    """A program that prints is one call, of which JAX knows no result."""
    program = pb.trace(lambda x: (jax.debug.print("{}", x), jnp.sin(x))[1])(1.0).jvp()
    function = jax.custom_jvp(lambda x: jnp.sin(x))
    function.defjvp(lambda primals, tangents: program(*primals, *tangents))
    with pytest.raises(ValueError, match="failed to produce known values"):
        jax.grad(function)(1.0)


@pytest.mark.parametrize("function", [calls_back_in_its_rule, calls_back_again])
def test_linear_maps_that_call_back_call_what_they_should(function):
    """The map of tangents had the numbers of callbacks, and not the callbacks."""
    x, slope = 1.2, pb.linearize(function, jnp.float32(1.2))[1](1.0)
    beside = jax.jit(lambda x: 0 * times(100)(x) + jax.jvp(pb.jit(function), (x,), (1.0,))[1])
    assert_agrees(beside(x), slope)
    assert_agrees(jax.jacfwd(pb.jit(function))(x), slope)
    assert_agrees(jax.grad(pb.jit(function))(x), slope)


def test_programs_with_pure_callbacks_are_pure():
    def function(x):
        return jnp.sin(x) * times(3)(x)

    slope = jax.grad(function)(1.2)
    for program in (pb.jit(function), pb.trace(function)(1.2)):
        assert_agrees(jax.grad(jax.checkpoint(program))(1.2), slope)
    printing = pb.jit(lambda x: jax.debug.print("{}", x))
    assert jax.make_jaxpr(printing)(1.0).effects
    assert not jax.make_jaxpr(program)(1.0).effects


def test_programs_that_print_may_run_again_in_a_checkpoint_of_jax_s():
    """JAX refused them as programs that write; one that writes, or may, it refuses still."""
    seen = []

    def printing(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x)
        return jnp.sin(jnp.sin(x))

    def writing(x):
        io_callback(lambda x: seen.append(float(x)), None, x)
        return printing(x)

    @jax.custom_vjp
    def writes_forward(x):
        return printing(x)

    writes_forward.defvjp(lambda x: (writing(x), x), lambda x, ct: (ct * x,))
    outer = pb.jit(lambda x: pb.jit(writing)(x))
    for program in (pb.jit(printing), pb.trace(printing)(1.2), pb.jit(pb.jit(printing))):
        seen.clear()
        slope = jax.jit(jax.grad(jax.checkpoint(program)))(1.2)
        jax.effects_barrier()
        assert_agrees(slope, jax.grad(printing)(1.2))
        assert seen
    for program in (pb.jit(writing), outer, pb.jit(writes_forward)):
        with pytest.raises(NotImplementedError, match="Effects not supported"):
            jax.grad(jax.checkpoint(program))(1.2)


def test_a_module_that_calls_back_keeps_its_callbacks_in_its_derivative():
    """Their numbers were those of callbacks of others, or of none, which ended the process."""

    def function(x):
        return jnp.sin(x) * times(3)(x)

    lowered = jax.jit(function).lower(XS)
    callbacks, keepalives = _jax.callbacks_of(lowered)
    handle = runtime.make_handle(
        lowered.compiler_ir(), host_callbacks=callbacks, keepalives=keepalives
    )

    def total(x):
        return jnp.sum(runtime.call_module(handle, x)[0])

    expected = jnp.cos(XS) * 3 * jnp.floor(XS)
    assert_agrees(jax.jit(lambda x: times(100)(x) * 0 + jax.grad(total)(x))(XS), expected)
    assert_agrees(
        pb.jit(lambda x: times(100)(x) * 0 + total(x))(XS), times(100)(XS) * 0 + total(XS)
    )


def test_a_module_without_its_rules_is_batched_and_called_in_another():
    program = pb.load(pb.trace(jnp.logaddexp)(1.0, 2.0).asm().encode())
    assert_agrees(program.vmap(axis_size=3)(XS, XS), jnp.logaddexp(XS, XS))
    inside = pb.trace(lambda x: program(x, 2.0))(1.0)
    assert_agrees(inside(1.0), jnp.logaddexp(1.0, 2.0))
    for derivative in (program.vmap(axis_size=3).jvp, inside.grad):
        with pytest.raises(pb.MissingRuleError, match="no jvp rule"):
            derivative()
