"""What is traced, derived and compiled goes when nobody has it any more."""

import gc
import itertools
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import _jax
from pullback._jax import ir
from pullback.api import static_arguments
from pullback.artifact import serialize
from pullback.files.container import _Diagnostics
from pullback.program import record
from pullback.program.program import Program
from pullback_runtime import ModuleHandle, _jax as runtime_jax
from pullback_runtime.files._load import LoadedProgram
from pullback_runtime.ir import _contexts

X = jnp.linspace(0.1, 1.0, 3)


@jax.custom_vjp
def rule(x):
    return jnp.sin(x)


rule.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda cosine, ct: (cosine * ct,))


def new():
    """A function that is traced for the first time."""
    return lambda x: jnp.sum(rule(x) * jnp.tanh(x))


def new_program():
    return pb.trace(new())(X)


def vjp():
    _, pull = pb.vjp(new(), X)
    pull(1.0)


def linearize():
    _, push = pb.linearize(new(), X)
    push(X)


CONTENT = serialize(new_program())
NUMBERS = itertools.count(2.0)


def new_file():
    function, number = new(), next(NUMBERS)
    return serialize(pb.trace(lambda x: number * function(x))(X))


USES = {
    "call": lambda: new_program()(X),
    "compile": lambda: new_program().compile()(X),
    "derive and call": lambda: new_program().grad()(X),
    "export": lambda: new_program().to_exported(),
    "save": lambda: serialize(new_program()),
    "a program in another": lambda: pb.trace(lambda x: new_program()(x))(X),
    "pb.grad of pb.grad": lambda: pb.grad(lambda x: jnp.sum(pb.grad(new())(x)))(X),
    "pb.grad": lambda: pb.grad(new())(X),
    "pb.grad of a program": lambda: pb.grad(new_program())(X),
    "jax.grad of a program": lambda: jax.grad(new_program())(X),
    "jax.vmap of a program": lambda: jax.vmap(new_program())(X[None]),
    "jax.jit of a program": lambda: jax.jit(new_program())(X),
    "jax.grad of pb.jit": lambda: jax.grad(pb.jit(new()))(X),
    "jax.jit of pb.grad": lambda: jax.jit(pb.grad(new()))(X),
    "pb.vmap of pb.grad": lambda: pb.vmap(pb.grad(new()))(X[None]),
    "pb.jvp": lambda: pb.jvp(new(), (X,), (X,)),
    "pb.vjp": vjp,
    "pb.linearize": linearize,
    "pb.linear_transpose": lambda: pb.linear_transpose(lambda x: 2 * x, X)(X),
    "pb.hessian": lambda: pb.hessian(new())(X),
    "static argument": lambda: pb.grad(lambda x, name: new()(x) * len(name))(X, "name"),
    "load": lambda: pb.load(CONTENT).grad()(X),
    "load in the runtime": lambda: pullback_runtime.load(CONTENT)(X),
    "jax.grad in the runtime": lambda: jax.grad(pullback_runtime.load(new_file()))(X),
    "compile in the runtime": lambda: pullback_runtime.load(CONTENT).executable(X),
}
KINDS = Program, ModuleHandle, LoadedProgram, _Diagnostics


@pytest.fixture(autouse=True, scope="module")
def nothing_older():
    """What other tests have left is not looked through again and again: that takes seconds."""
    collect()
    gc.freeze()
    yield
    gc.unfreeze()


def collect() -> None:
    for _ in range(2):  # what JAX has compiled is let go by the first
        gc.collect()


def alive() -> int:
    collect()
    return sum(isinstance(each, KINDS) for each in gc.get_objects())


@pytest.mark.parametrize("use", USES)
def test_programs_die(use):
    for _ in range(2):  # which fills caches of a size that does not grow
        USES[use]()
    before = alive()
    for _ in range(3):
        USES[use]()
    assert alive() <= before


class Holding:
    """An object with the program of a function whose rules are methods."""

    def __init__(self):
        self.program = pb.trace(self.loss)(X)
        self.gradient = self.program.grad()

    def loss(self, x):
        wave = jax.custom_vjp(jnp.sin)
        wave.defvjp(self.forward, self.backward)
        return jnp.sum(wave(x))

    def forward(self, x):
        return jnp.sin(x), x

    def backward(self, x, ct):
        return (ct * jnp.cos(x),)


def test_what_holds_the_program_of_its_own_rules_dies():
    """A dictionary by weak references keeps what its values lead to, also a key of its own."""
    dead = weakref.ref(Holding())
    collect()
    assert dead() is None


def test_what_a_program_derives_lives_as_long_as_the_program():
    program = new_program()
    program.grad()(X), pb.grad(program)(X), jax.grad(program)(X), program.vmap()(X[None])
    derived = [
        weakref.ref(each)
        for each in (program.grad(), *program.split_vjp(), program.vmap(axis_size=2))
    ]
    collect()
    assert None not in [each() for each in derived]
    del program
    collect()
    assert [each() for each in derived] == [None] * 4


def test_a_program_keeps_what_was_asked_for_last(monkeypatch):
    monkeypatch.setattr(record, "MOST", 2)
    program = new_program()
    batches = [weakref.ref(program.vmap(axis_size=size)) for size in range(4)]
    collect()
    assert [each() is None for each in batches] == [True, True, False, False]


def bytes_alive() -> int:
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: pb.grad(f),
        lambda f: pb.trace(f)(X),
        lambda f: jax.grad(pb.trace(f)(X)),
        lambda f: pb.trace(f)(X).compile(),
    ],
    ids=["grad", "program", "grad of a program", "executable"],
)
def test_large_constants_die(transform):
    def use():
        weights = jnp.ones(100_000)
        transform(lambda x: jnp.sum(x) * jnp.sum(weights))(X)

    use()
    before = bytes_alive()
    use()
    assert bytes_alive() <= before


def closing_over(values):
    """A function with a rule that closes over an array."""

    @jax.custom_vjp
    def wave(x):
        return jnp.sin(x)

    wave.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * jnp.cos(x) * jnp.sum(values),))
    return lambda x: jnp.sum(wave(x))


@pytest.mark.parametrize(
    "derive",
    [
        lambda f: pb.grad(f)(X),
        lambda f: pb.trace(f)(X).grad().compile()(X),
        lambda f: pb.vmap(pb.grad(f))(X[None])[0],
        lambda f: pb.trace(f)(X).vmap(axis_size=1).vjp()(X[None], jnp.ones(1))[1][0][0],
        lambda f: pb.load(serialize(pb.trace(f)(X))).grad()(X),
        lambda f: pb.trace(lambda x: pb.grad(f)(x))(X)(X),
    ],
    ids=["grad", "executable", "vmap", "batch", "load", "traced again"],
)
def test_what_rules_close_over_dies(derive, monkeypatch):
    """MLIR keeps each constant as long as the context is there that has seen it."""
    monkeypatch.setattr(_contexts, "MOST", 1 << 15)
    contexts = []
    for number in range(4):
        values = np.full(1 << 14, 2.0**-14, np.float32)
        values[0] *= 1 + number
        assert jnp.allclose(derive(closing_over(values)), np.sum(values) * jnp.cos(X))
        contexts.append([weakref.ref(shared()) for shared in (_jax.shared, runtime_jax.context)])
    collect()
    of_compiler, of_runtime = (context() for context in contexts[1])
    assert of_compiler is None
    has_seen_none = runtime_jax.context._kept < values.nbytes
    assert of_runtime is None or (of_runtime is runtime_jax.context() and has_seen_none)


def test_contexts_of_files_die(monkeypatch):
    """Each file is made in a context of its own, and types of that one are cached for a while."""
    monkeypatch.setattr(_contexts, "MOST", 2 * _jax.OF_ITS_OWN)
    counts = []
    for _ in range(2):
        for _ in range(9):
            serialize(new_program())
        gc.collect()
        counts.append(ir.Context._get_live_count())
    assert counts[1] < counts[0] + 9


def test_programs_of_several_contexts_meet(monkeypatch):
    """Each has one of its own here, as programs have that live long."""
    monkeypatch.setattr(_contexts, "MOST", -1)
    function = closing_over(np.full(100, 0.02))
    program = pb.trace(function)(X)
    derived, batch = program.grad(), program.vmap(axis_size=1)
    loaded = pb.load(serialize(derived.run_passes("cse")))
    outer = pb.trace(lambda x: derived(x) * program(x) + loaded(x) * batch(x[None])[0])(X)
    assert outer.module.context is not program.module.context
    value, pull = jax.vjp(lambda x: 2 * jax.grad(function)(x) * function(x), X)
    found, cotangents = outer.vjp()(X, X)
    assert jnp.allclose(found, value)
    assert jnp.allclose(cotangents[0], pull(X)[0])


def test_programs_of_static_arguments_make_room_for_others(monkeypatch):
    monkeypatch.setattr(static_arguments, "MOST", 2)
    derivative = pb.grad(lambda x, name: jnp.sum(rule(x)) * len(name))
    for name in ("a", "ab"):
        derivative(X, name)
    before = alive()
    for name in ("abc", "abcd", "a"):
        assert jnp.allclose(derivative(X, name), len(name) * jnp.cos(X))
    assert alive() <= before


def test_clear_cache_forgets_the_executables_of_programs():
    program = new_program()
    compiled = program.compile()
    assert program.compile() is compiled
    pullback_runtime.clear_cache()
    assert program.compile() is not compiled
