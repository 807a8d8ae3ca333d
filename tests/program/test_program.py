"""A Program: what it prints, how it is called, compiled, transformed, and what it refuses."""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import itertools
import os
import pickle
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import pullback as pb
import pullback_runtime
from pullback import _jax, artifact
from pullback._jax import ir
from pullback.errors import ArgumentMismatchError
from pullback.passes.entry_edits import ReorderOperands, SelectResults
from tests.work import layers_of


def energy(params, x, scale=2.0):
    return {"out": scale * jnp.sum(jnp.tanh(x @ params["w"]) ** 2)}


PARAMS = {"w": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)}
X = jnp.linspace(0.0, 1.0, 6).reshape(2, 3)


def test_it_shows_its_types_and_its_module():
    program = pb.trace(energy)(PARAMS, X)
    assert repr(program) == ("Program((params['w']: float32[3,4], x: float32[2,3]) -> (float32[]))")
    assert str(program) == program.asm()
    assert "module @energy" in str(program)
    assert "loc(" not in str(program)
    assert "test_program.py" in program.asm(debug_info=True)


def test_its_attributes_are_those_that_users_need():
    names = """
        arg_paths as_jax asm compile constants entries environment flatten for_platform grad
        handle in_avals in_tree interface jet jvp laplacian linearize module out_avals out_tree
        pattern platforms rules run_passes save sparse_hessian sparse_jacobian split_vjp stage_rules
        to_exported transpose unflatten value_and_grad variants vjp vmap with_module
    """
    program = pb.trace(energy)(PARAMS, X)
    assert [name for name in dir(program) if not name.startswith("_")] == names.split()


def test_a_program_of_the_runtime_shows_its_arguments(tmp_path):
    path = tmp_path / "energy.mlirbc"
    pb.trace(energy)(PARAMS, X).save(path)
    assert repr(pullback_runtime.load(path)) == "LoadedProgram(params['w'], x)"
    pb.trace(lambda xs: xs)([1.0] * 20).save(path)
    assert repr(pullback_runtime.load(path)).endswith("xs[7], … 20 arguments)")
    module = b"module { func.func @main() { return } }"
    assert repr(pullback_runtime.load(module)) == "LoadedProgram()"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_it_cannot_be_pickled_and_says_what_to_do(copied):
    program = pb.trace(energy)(PARAMS, X)
    with pytest.raises(pb.PullbackError, match="cannot be pickled, nor copied in depth") as caught:
        copied({"program": program})
    assert "pullback.artifact.serialize(program)" in caught.value.do
    assert pb.load(artifact.serialize(program))(PARAMS, X).keys() == {"out"}
    assert repr(copy.copy(program)) == repr(program)


def test_it_takes_the_arguments_of_the_function():
    program = pb.trace(energy)(PARAMS, X, scale=3.0)
    expected = energy(PARAMS, X, scale=3.0)["out"]
    np.testing.assert_allclose(program(PARAMS, X, scale=3.0)["out"], expected, rtol=1e-6)
    compiled = program.compile(backend="cpu")
    np.testing.assert_allclose(compiled(PARAMS, X, scale=3.0)["out"], expected, rtol=1e-6)


def test_numbers_of_python_give_way_to_other_types_as_under_jit():
    program = pb.trace(lambda x: x * 2)(1.0)
    half = jnp.ones(2, jnp.bfloat16)
    assert (program(1.0) * half).dtype == (program.compile()(1.0) * half).dtype == half.dtype
    assert (program.vmap(axis_size=1)(jnp.ravel(1.0)) * half).dtype == half.dtype


def test_other_containers_are_refused_by_name():
    program = pb.trace(energy)(PARAMS, X)
    with pytest.raises(pb.PullbackError, match="do not have the structure") as caught:
        program(X, X)
    assert caught.value.where == "leaves expected: params['w'], x"


def test_a_missing_cotangent_and_a_name_for_a_position_are_refused_by_name():
    program = pb.trace(lambda x, y: x * y)(X, X)
    with pytest.raises(pb.PullbackError, match="takes 3 positional arguments, and got 2") as caught:
        program.vjp()(X, X)
    assert "cotangent of result" in caught.value.where
    with pytest.raises(pb.ArgumentMismatchError, match="argnums='y' is not a position"):
        program.vjp(wrt="y")


def test_positions_have_two_names():
    program = pb.trace(lambda x, y: jnp.sum(x * y))(X, 2 * X)
    methods = "jvp", "vjp", "linearize", "split_vjp", "transpose", "grad", "value_and_grad"
    for name in methods:
        method = getattr(program, name)
        one, other = map(str, (method(argnums=1), method(wrt=1)))
        assert one == other == str(method(1))
        with pytest.raises(pb.ArgumentMismatchError, match="argnums=1 and wrt=1 name the same"):
            method(1, wrt=1)
    (n,) = jax.export.symbolic_shape("n")
    symbolic = pb.trace(lambda x, y: x * y)(*[jax.ShapeDtypeStruct((n,), "float32")] * 2)
    np.testing.assert_array_equal(symbolic.vjp(wrt=1)(X[0], X[0], X[0])[1], X[0] * X[0])


def test_transformations_and_passes_leave_a_program_as_it_is():
    program = pb.trace(jax.nn.softplus)(1.0)
    module, before = program.module, str(program)
    assert "pullback.custom_jvp_call" in before
    derived, lowered = program.grad(), program.run_passes("to-stablehlo")
    staged = program.stage_rules()
    assert program.module is module
    assert str(program) == before
    assert "@logaddexp.jvp" not in before
    assert "@logaddexp.jvp" in str(staged)
    np.testing.assert_allclose(derived(1.0), jax.nn.sigmoid(1.0), rtol=1e-6)
    assert "pullback." not in str(lowered)
    for each in (program, lowered):
        np.testing.assert_allclose(each(1.0), jax.nn.softplus(1.0), rtol=1e-6)


def test_a_value_that_is_computed_twice_has_one_cotangent():
    def loss(x):
        return jnp.sum(jnp.exp(x - x.mean()) * jnp.sin(x - x.mean()))

    program = pb.trace(loss)(X)
    assert str(program.grad()).count("stablehlo.reduce(") == 2  # the mean and its cotangent
    assert str(program.split_vjp().linear).count("stablehlo.reduce(") == 1
    np.testing.assert_allclose(program.grad()(X), jax.grad(loss)(X), rtol=1e-5, atol=1e-6)


def test_a_program_that_was_called_is_another_after_a_pipeline():
    @jax.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda primals, tangents: (square(*primals), 100 * tangents[0]))
    program = pb.trace(lambda x: square(x))(2.0)
    assert jax.grad(program)(2.0) == program.grad()(2.0) == 100
    lowered = program.run_passes("lower-custom-derivatives")
    assert jax.grad(lowered)(2.0) == lowered.grad()(2.0) == 4
    assert jax.grad(program)(2.0) == program.grad()(2.0) == 100


def spelt(*args, **kwargs):
    return args, kwargs


SPELLINGS = {
    "jvp": [
        [spelt(), spelt(None), spelt((0, 1)), spelt(wrt=[0, -1]), spelt(has_aux=False)],
        [spelt(0), spelt((0,)), spelt(wrt=0)],
        [spelt((1, 0))],
        [spelt(through="function")],
    ],
    "vjp": [
        [spelt(), spelt((0, 1))],
        [spelt(0), spelt(wrt=np.int64(0))],
        [spelt((0,)), spelt([0])],
    ],
    "split_vjp": [[spelt(), spelt(wrt=(0, 1))], [spelt(1), spelt(-1)], [spelt((1,))]],
    "linearize": [[spelt(), spelt((0, 1), False, "rules")], [spelt(1), spelt(wrt=(1,))]],
    "transpose": [[spelt(0), spelt(wrt=-2)], [spelt((0,))], [spelt(1)]],
    "grad": [
        [spelt(), spelt(0), spelt(wrt=0), spelt(-2, False), spelt(holomorphic=False)],
        [spelt((0,)), spelt([0]), spelt(wrt=(0,))],
        [spelt((0, 1)), spelt(None)],
        [spelt((1, 0))],
        [spelt(allow_int=True)],
    ],
    "value_and_grad": [[spelt(), spelt(argnums=0)], [spelt(wrt=1), spelt(1)]],
    "vmap": [
        [spelt(axis_size=2), spelt((0, 0), -1, axis_size=np.int64(2)), spelt([0, 0], axis_size=2)],
        [spelt((0, None), axis_size=2)],
        [spelt(axis_size=3)],
        [spelt(), spelt((0, 0))],
    ],
}


@pytest.mark.parametrize("method", SPELLINGS)
def test_a_program_derives_once_for_equal_options(method):
    program = pb.trace(lambda x, y: jnp.sum(x * y))(X, X)
    derived = [
        [getattr(program, method)(*args, **kwargs) for args, kwargs in spellings]
        for spellings in SPELLINGS[method]
    ]
    for same in derived:
        assert all(each is same[0] for each in same)
    assert len({id(same[0]) for same in derived}) == len(derived)


def test_what_a_program_derives_is_compiled_once(caplog):
    program = pb.trace(lambda x: jnp.sum(jnp.sin(x)))(X)
    with jax.log_compiles():
        for _ in range(3):
            program.grad()(X), program.grad(wrt=0)(X), program.value_and_grad()(X)
    compiled = [each for each in caplog.messages if "Finished XLA compilation" in each]
    assert len(compiled) == 2


def test_functions_of_a_program_take_what_it_derives():
    program = pb.trace(lambda x: jnp.sum(jnp.sin(x)))(X)
    uses = {
        "grad": lambda: pb.grad(program)(X),
        "vjp": lambda: pb.vjp(program, X)[1](1.0)[0],
        "jacrev": lambda: pb.jacrev(program)(X),
        "jvp": lambda: pb.jvp(program, (X,), (X,))[1],
    }

    def check(use, expected):
        np.testing.assert_allclose(use(), expected, rtol=1e-6)

    def differentiates(*call):
        ran = {file.name for file in layers_of(lambda: check(*call)).files}
        return not ran.isdisjoint({"vjp.py", "jvp.py", "linearize.py"})

    assert differentiates(lambda: program.grad()(X), jnp.cos(X))
    program.split_vjp(), program.vjp(0), program.jvp()
    for name, use in uses.items():
        expected = jnp.sum(X * jnp.cos(X)) if name == "jvp" else jnp.cos(X)
        assert not differentiates(use, expected)


def test_programs_of_each_size_are_made_once():
    (n,) = jax.export.symbolic_shape("n")
    symbolic = pb.trace(lambda x: jnp.sum(jnp.sin(x)))(jax.ShapeDtypeStruct((n,), "float32"))
    assert symbolic.grad() is symbolic.grad(wrt=0)
    assert symbolic.with_sizes(n=3) is symbolic.with_shapes(X[0])
    assert symbolic.grad().with_sizes(n=3) is symbolic.with_sizes(n=3).grad()
    program = symbolic.with_sizes(n=3)
    assert program.vmap().with_sizes(batch=2) is program.vmap(axis_size=2)


def test_threads_that_ask_at_once_get_the_same():
    program, together = pb.trace(jnp.sin)(1.0), threading.Barrier(4)

    def make():
        together.wait(60)
        return object()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: program._once("key", make), range(4)))
    assert len({id(each) for each in made}) == 1
    assert program._once("key", make) is made[0]


def test_a_copy_of_a_program_derives_for_itself():
    program = pb.trace(jnp.sin)(1.0)
    derived = program.grad()
    other = copy.copy(program).grad()
    assert other is not derived
    assert str(other) == str(derived)


def test_a_map_of_cotangents_leaves_the_halves_of_a_split_as_they_are():
    """It takes arguments away from the residuals of the forward one."""
    program = pb.trace(lambda x, y: jnp.sum(jnp.sin(x) * y))(X, X)
    before = [str(half) for half in program.split_vjp()]
    forward, linear = program.split_vjp()
    pb.vjp(program, X, X)[1](1.0)
    assert [str(half) for half in program.split_vjp()] == before
    of_x, _ = linear(forward(X, X)[1], 1.0)
    np.testing.assert_allclose(of_x, X * jnp.cos(X), rtol=1e-6)


@pytest.mark.parametrize("pipeline", ["vjp", "vmap{size=2}", "stablehlo-legalize-to-vhlo"])
def test_passes_that_change_the_type_of_the_entry_are_refused(pipeline):
    program = pb.trace(jnp.sin)(1.0)
    with pytest.raises(pb.PullbackError, match="changes the type of @main") as caught:
        program.run_passes(pipeline)
    assert "before: (tensor<f32>) -> tensor<f32>" in caught.value.message
    assert ".vjp()" in caught.value.do
    np.testing.assert_allclose(program(1.0), np.sin(1.0), rtol=1e-6)


def test_a_program_is_what_it_was_where_a_pipeline_fails():
    program = pb.trace(jax.nn.softplus, platforms=("cpu", "cuda"))(1.0)
    before = [str(program.for_platform(name)) for name in program.platforms]
    with pytest.raises(pb.PullbackError, match="changes the type"):
        program.run_passes("to-stablehlo,vjp")
    assert [str(program.for_platform(name)) for name in program.platforms] == before
    np.testing.assert_allclose(program.grad()(1.0), jax.nn.sigmoid(1.0), rtol=1e-6)


def test_a_pipeline_runs_on_what_was_traced_for_each_platform():
    program = pb.trace(jax.nn.softplus, platforms=("cpu", "cuda"))(1.0)
    lowered = program.run_passes("to-stablehlo")
    assert lowered.platforms == program.platforms
    for name in program.platforms:
        assert "pullback." not in str(lowered.for_platform(name))
        assert "pullback." in str(program.for_platform(name))


def test_a_pipeline_is_text():
    with pytest.raises(pb.PullbackError, match="and this is a list") as caught:
        pb.trace(jnp.sin)(1.0).run_passes(["cse"])
    assert "run_pipeline" in caught.value.do


def test_ir_is_printed_between_passes_in_a_process_that_did_nothing_before():
    """MLIR ends a process that prints while its context has threads."""
    code = "import pullback as pb; pb.trace(abs)(1.0).run_passes('cse', print_after_all=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "IR Dump After CSE" in done.stderr


class Model:
    """As a module of equinox: what it computes with are its fields, so it has no hash."""

    __hash__ = None

    def __init__(self, w):
        self.w = w

    def __call__(self, x, y=1.0):
        return jnp.sum(jnp.sin(self.w * x) * y)


def test_a_callable_without_a_hash():
    model, x = Model(X), jnp.cos(X)
    assert "x: float32[2,3]" in repr(pb.trace(model)(x))
    for name in ("grad", "value_and_grad", "jacfwd", "jacrev", "hessian", "jit"):
        found, expected = getattr(pb, name)(model)(x), getattr(jax, name)(model.__call__)(x)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), found, expected)
    np.testing.assert_allclose(pb.vjp(model, x)[1](1.0)[0], jax.grad(model.__call__)(x), rtol=1e-5)
    np.testing.assert_allclose(
        pb.linearize(model, x)[1](x), pb.jvp(model, (x,), (x,))[1], rtol=1e-5
    )
    np.testing.assert_allclose(pb.vmap(model)(x), jax.vmap(model.__call__)(x), rtol=1e-5)
    model.w = 2 * X
    np.testing.assert_allclose(pb.grad(model)(x), jax.grad(model.__call__)(x), rtol=1e-5)


def test_each_transformation_agrees_with_jax():
    program = pb.trace(jnp.sinc)(0.3)
    slope = jax.grad(jnp.sinc)(0.3)
    np.testing.assert_allclose(program.jvp()(0.3, 2.0)[1], 2 * slope, rtol=1e-5)
    np.testing.assert_allclose(program.vjp(0)(0.3, 2.0)[1], 2 * slope, rtol=1e-5)
    forward, linear = program.linearize(0)
    np.testing.assert_allclose(linear(forward(0.3)[1], 2.0), 2 * slope, rtol=1e-5)


def test_ordered_effects_happen_in_order():
    seen: list[float] = []

    def count(x):
        def body(i, carry):
            io_callback(lambda value: seen.append(float(value)), None, carry, ordered=True)
            return carry + 1

        return jax.lax.fori_loop(0, 3, body, x)

    program = pb.trace(count)(1.0)
    assert program(1.0) == 4.0
    jax.effects_barrier()
    assert seen == [1.0, 2.0, 3.0]
    assert "pullback.not_portable" in str(program)
    assert "io_callback at" in str(program)


def with_a_rule(function, rule):
    f = jax.custom_jvp(function)
    f.defjvp(lambda primals, tangents: (function(*primals), rule(tangents[0])))
    return f


SEEN: list[tuple[str, float]] = []


def see(tag, x):
    jax.debug.callback(lambda x: SEEN.append((tag, round(float(x), 3))), x, ordered=True)


def seen(tag, function=jnp.sin):
    def f(x):
        see(tag, x)
        return function(x)

    return f


def seen_on_host(x):
    SEEN.append(("host", float(x)))
    return np.float32(3)


def in_order(grad, function):
    """What a derivative gives, and the effects in their order; compiled, as JAX orders them."""
    SEEN.clear()
    found = jax.block_until_ready(jax.jit(grad(function))(jnp.float32(0.7)))
    jax.effects_barrier()
    return found, list(SEEN)


with_both_rules = jax.custom_vjp(seen("primal"))
with_both_rules.defvjp(
    lambda x: (seen("forward")(x), x), lambda x, ct: (seen("backward")(ct) * jnp.cos(x),)
)
inside = jax.checkpoint(seen("inside", lambda x: jnp.sin(jnp.sin(x))))


@jax.jit
def in_a_call(x):
    return seen("call")(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: seen("after", jnp.square)(inside(x)),
        lambda x: inside(x) * jax.checkpoint(seen("beside"))(x),
        lambda x: seen("after", jnp.square)(with_both_rules(with_both_rules(x))),
        lambda x: seen("after")(with_a_rule(seen("f"), lambda t: 2 * t)(x)),
        lambda x: with_a_rule(jnp.sin, lambda t: seen("rule")(1.0) * t)(x) ** 2,
        lambda x: jax.lax.scan(lambda c, _: (with_both_rules(c), None), x, None, length=3)[0],
        lambda x: jax.lax.scan(lambda c, _: (inside(c), None), x, None, length=3)[0],
        lambda x: jax.lax.cond(x > 0.5, inside, seen("other"), in_a_call(in_a_call(x))),
        lambda x: x * io_callback(seen_on_host, jnp.float32(0), jnp.floor(x), ordered=True),
    ],
    ids=["checkpoint", "two", "vjp", "jvp", "rule", "scan", "scan of it", "cond", "result"],
)
def test_effects_have_jax_s_order_wherever_they_are(function):
    """In a checkpoint, a rule or a function with rules they were refused."""
    for of in (lambda m: m.grad, lambda m: lambda f: lambda x: m.jvp(m.grad(f), (x,), (x,))):
        found, order = in_order(of(pb), function)
        expected, expected_order = in_order(of(jax), function)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert order == expected_order
        assert order


def loop(step):
    """Without a bound: reverse mode runs iterations again."""
    return lambda x: jax.lax.while_loop(
        lambda c: c[0] < x, lambda c: (c[0] + 1, step(c[1])), (0.0, x)
    )[1]


NUMBERS = itertools.count()


def drawn(x):
    return jnp.sin(x * jax.lax.rng_uniform(jnp.float32(0), jnp.float32(1), ()))


def counted(x):
    return jnp.sin(x * io_callback(lambda: np.float32(next(NUMBERS)), jnp.float32(0)))


@jax.custom_vjp
def counted_forward(x):
    return jnp.sin(x)


counted_forward.defvjp(lambda x: (counted(x), counted(x)), lambda r, ct: (r * ct,))


@pytest.mark.parametrize(
    ("around", "step"),
    [
        (loop, drawn),
        (loop, counted),
        (loop, counted_forward),
        (jax.checkpoint, drawn),
        (jax.checkpoint, counted),
    ],
)
def test_what_another_run_does_not_give_again_is_an_error_with_its_line(around, step):
    """It was drawn anew in reverse mode: the derivative was that of another value."""
    with pytest.raises(pb.MissingRuleError, match="runs it again") as caught:
        pb.grad(around(step))(jnp.float32(1.0))
    assert "test_program.py" in str(caught.value.where)


def written(x):
    io_callback(lambda x: SEEN.append(("written", float(x))), None, x)
    return jnp.sin(x)


def unused(x):
    io_callback(lambda x: SEEN.append(("unused", float(x))) or x, jnp.float32(0), x)
    return jnp.sin(x)


@pytest.mark.parametrize(
    "step",
    [
        seen("in order"),
        written,
        unused,
        with_both_rules,
        in_a_call,
        lambda c: jax.lax.cond(c > 0.6, seen("yes"), seen("no", lambda c: 0.9 * c), c),
        lambda c: jax.lax.while_loop(lambda d: d > 0.8 * c, seen("inner"), c),
    ],
    ids=["in order", "written", "unused", "rules", "call", "cond", "loop in loop"],
)
def test_an_effect_of_a_loop_without_a_bound_happens_once(step):
    """It happened again in each iteration that reverse mode ran again; in order, it was refused."""

    def function(x):
        return jax.lax.while_loop(lambda c: c > 0.5, step, x)

    def unrolled(x):
        while x > 0.5:
            x = step(x)
        return x

    x = jnp.float32(0.7)
    second = lambda m: m.grad(lambda x: m.grad(function)(x) ** 2)  # noqa: E731
    for of in (lambda m: m.grad(function), second):
        SEEN.clear()
        jax.block_until_ready(of(pb)(x))
        jax.effects_barrier()
        order = list(SEEN)
        forward = [each for each in order if each[0] != "backward"]
        SEEN.clear()
        unrolled(x)
        jax.effects_barrier()
        ahead = [("forward" if tag == "primal" else tag, each) for tag, each in SEEN]
        assert forward == ahead
        assert len(order) - len(forward) == (len(ahead) if step is with_both_rules else 0)


def test_a_condition_has_effects_in_order():
    def goes_on(c):
        see("goes on", c)
        return c > 0.5

    def function(x):
        return seen("after")(jax.lax.while_loop(goes_on, seen("step"), seen("before")(x)))

    value, order = in_order(lambda f: f, function)
    derivative = in_order(pb.grad, function)
    assert derivative[1] == order
    found = in_order(pb.value_and_grad, function)[0][0]
    np.testing.assert_allclose(found, value, rtol=1e-6)


ON_FOUR_DEVICES = """
import jax, jax.numpy as jnp, numpy as np, pullback as pb
from jax.sharding import AxisType, PartitionSpec as P

mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))

@jax.custom_jvp
def wave(x):
    return jnp.sin(x)

wave.defjvp(lambda p, t: (wave(*p), 3 * jnp.cos(p[0]) * t[0]))

def block(x):
    return jax.lax.psum(wave(x), "i")

f = jax.shard_map(block, mesh=mesh, in_specs=P("i"), out_specs=P())
x = jnp.arange(8.0)
program = pb.trace(f)(x)
for call in (program, jax.jit(program), program.compile()):
    np.testing.assert_allclose(call(x), f(x), rtol=1e-6)
total = lambda x: f(x).sum()
np.testing.assert_allclose(pb.grad(total)(x), 3 * np.cos(x), rtol=1e-5)

# A backward rule that is not linear sees the whole cotangent of what is equal on all devices.
@jax.custom_vjp
def clipped(w):
    return w * 1.0

clipped.defvjp(lambda w: (clipped(w), None), lambda _, ct: (jnp.clip(ct, -1.0, 1.0),))

for check in (True, False):
    g = jax.shard_map(
        lambda w, x: jax.lax.psum((clipped(w) * x).sum(), "i"),
        mesh=mesh, in_specs=(P(), P("i")), out_specs=P(), check_vma=check,
    )
    w = jnp.ones(2)
    np.testing.assert_allclose(pb.grad(g)(w, x), jax.jit(jax.grad(g))(w, x), rtol=1e-5)
print("agreed")
"""


@pytest.mark.slow
def test_a_program_over_a_mesh_runs_on_its_devices():
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", ON_FOUR_DEVICES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "agreed\n", done.stderr


@pytest.mark.parametrize("derive", ["vjp", "split_vjp", "transpose", "grad", "value_and_grad"])
def test_a_position_may_be_a_number_of_numpy(derive):
    program = pb.trace(lambda x: 3.0 * x)(jnp.float32(2.0))
    of_numpy, of_python = (getattr(program, derive)(number) for number in (np.int64(0), 0))
    if derive == "split_vjp":
        of_numpy, of_python = of_numpy.linear, of_python.linear
    assert of_numpy.out_tree == of_python.out_tree


def test_dimensions_of_numpy_are_numbers():
    program = pb.trace(lambda x: x * 2)(jax.ShapeDtypeStruct((np.int64(3),), np.float32))
    assert isinstance(program, pb.Program)
    assert program(np.ones(3, np.float32)).shape == (3,)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
def test_a_python_float_gives_way_in_derivatives_too(dtype):
    """Only calls took one for a narrower float; derivatives, and an error, had failed."""
    x = jnp.asarray(2.0, dtype)
    program = pb.trace(lambda x: x * x)(x)
    for number in (2.0, jnp.asarray(1.0) * 2):
        for found in (
            program(number),
            pb.grad(program)(number),
            pb.vjp(program, number)[1](x / x)[0],
            pb.linearize(program, number)[1](x / x),
        ):
            assert found == 4.0
            assert found.dtype == dtype
    _, pull = pb.vjp(program, x)
    for wrong in (1.0, 1, 1j):
        with pytest.raises(ArgumentMismatchError, match=f"must have type {dtype}"):
            pull(wrong)
    for call in (program, pb.grad(program), jax.jit(program)):
        with pytest.raises((ArgumentMismatchError, pullback_runtime.ArgumentError), match=dtype):
            call(2j)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_a_numpy_array_that_is_written_to_later_is_what_it_was(dtype):
    """A call, a file and a derivative had seen what its owner wrote to a large one."""
    table = np.arange(1 << 14).astype(dtype)
    expected = np.sin(table.astype(np.float32)[77])

    def look_up(i, x):
        return jnp.sin(jnp.take(table, i).astype("float32")) * x

    program, called = (pb.trace(look_up)(jnp.int32(0), 1.0) for _ in range(2))
    assert len(program.constants) == 1
    called(jnp.int32(77), 1.0)
    table[:] = 0
    content = artifact.serialize(program)
    for each in (program, called, program.compile(), pb.load(content)):
        assert each(jnp.int32(77), 1.0) == pytest.approx(expected, rel=1e-6)
    for each in (program, called):
        assert each.grad(1)(jnp.int32(77), 1.0) == pytest.approx(expected, rel=1e-6)
        assert pb.load(artifact.serialize(each))(jnp.int32(77), 1.0) == pytest.approx(expected)


DONATED = """
func.func public @main(
    %x: tensor<4xf32> {mhlo.sharding = "{replicated}"},
    %w: tensor<4xf32> {tf.aliasing_output = 1 : i32}
) -> (tensor<f32> {jax.result_info = "loss"}, tensor<4xf32> {jax.result_info = "aux"}) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %product = stablehlo.multiply %x, %w : tensor<4xf32>
  %loss = stablehlo.reduce(%product init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %loss, %product : tensor<f32>, tensor<4xf32>
}
"""


def test_what_is_said_of_results_follows_them(tmp_path):
    path = tmp_path / "donated.mlir"
    path.write_text(DONATED)
    gradient = pb.load(path).grad(argnums=(0, 1), has_aux=True)
    (line,) = [each for each in str(gradient).splitlines() if "@main" in each]
    assert 'tensor<4xf32>, tensor<4xf32>, tensor<4xf32> {jax.result_info = "aux"})' in line
    assert "tf.aliasing_output = 2" in line
    without = pb.load(path).value_and_grad(has_aux=True)
    assert 'tensor<f32> {jax.result_info = "loss"}' in str(without)


def test_what_is_said_of_arguments_follows_them():
    module = ir.Module.parse(DONATED, _jax.context())
    with module.context, ir.Location.unknown():
        ReorderOperands((1, 0)).run(module, None)
        SelectResults((0,)).run(module, None)
    (line,) = [each for each in str(module).splitlines() if "@main" in each]
    assert "%arg0: tensor<4xf32>, %arg1: tensor<4xf32> {mhlo.sharding" in line
    assert "aliasing" not in line
