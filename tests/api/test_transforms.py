"""`grad` and `value_and_grad`, of functions and of programs, against JAX."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import math
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback.errors import ArgumentMismatchError, DerivativeTypeError
from tests.api.checks import assert_agrees


def wave(x):
    return jnp.sin(x) * x


def loss(params, x, scale=1.0):
    return jnp.sum(jnp.sin(params["w"]) * x * scale) + params["b"] * x[0]


PARAMS = {"w": np.arange(3, dtype=np.float32) / 2, "b": np.float32(0.3)}
X = np.array([0.5, -1.0, 2.0], np.float32)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_any_order(order):
    ours = theirs = wave
    for _ in range(order):
        ours, theirs = pb.grad(ours), jax.grad(theirs)
    assert_agrees(ours(1.3), theirs(1.3))


@pytest.mark.parametrize("argnums", [0, 1, -1, (0, 1), (1, 0), [1], np.int64(1), (np.int8(0),)])
@pytest.mark.parametrize("name", ["grad", "value_and_grad"])
def test_argnums_and_trees(name, argnums):
    ours = getattr(pb, name)(loss, argnums)
    theirs = getattr(jax, name)(loss, argnums)
    assert_agrees(ours(PARAMS, X), theirs(PARAMS, X))
    assert_agrees(ours(PARAMS, X, scale=2.0), theirs(PARAMS, X, scale=2.0))


@pytest.mark.parametrize("name", ["grad", "value_and_grad"])
def test_auxiliary_data(name):
    def with_aux(params, x):
        return loss(params, x), {"norm": jnp.sum(x * x), "half": x / 2}

    ours, theirs = (
        getattr(pb, name)(with_aux, has_aux=True),
        getattr(jax, name)(with_aux, has_aux=True),
    )
    assert_agrees(ours(PARAMS, X), theirs(PARAMS, X))


Both = collections.namedtuple("Both", "value rest")


@pytest.mark.parametrize("pair", [lambda *items: list(items), Both])
@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacfwd", "jacrev"])
def test_auxiliary_data_in_any_pair(name, pair):
    """As JAX, which gives a tuple back: a list had been refused, a named tuple had come back."""

    def with_aux(params, x):
        return pair(loss(params, x), {"half": x / 2})

    ours, theirs = (getattr(each, name)(with_aux, has_aux=True)(PARAMS, X) for each in (pb, jax))
    assert_agrees(ours, theirs)
    (value, pull, aux), expected = (
        each.vjp(with_aux, PARAMS, X, has_aux=True) for each in (pb, jax)
    )
    assert_agrees((value, pull(1.0), aux), (expected[0], expected[1](1.0), expected[2]))
    with pytest.raises(DerivativeTypeError, match="must return a pair"):
        getattr(pb, name)(lambda x: [x, x, x], has_aux=True)(1.0)


@pytest.mark.parametrize("name", ["grad", "value_and_grad"])
@pytest.mark.parametrize("has_aux", [False, True])
def test_of_a_program(name, has_aux):
    def function(params, x):
        return (loss(params, x), x) if has_aux else loss(params, x)

    program = pb.trace(function)(PARAMS, X)
    expected = getattr(jax, name)(function, (0, 1), has_aux)(PARAMS, X)
    assert_agrees(getattr(pb, name)(program, (0, 1), has_aux)(PARAMS, X), expected)
    assert_agrees(getattr(program, name)((0, 1), has_aux)(PARAMS, X), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_dtypes(dtype):
    x = jnp.asarray([0.5, 1.0, 1.5], dtype)

    def function(x):
        return jnp.sum(jnp.real(x * x * jnp.conj(x)))

    assert_agrees(pb.grad(function)(x), jax.grad(function)(x))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("function", [jnp.max, jnp.min, jnp.sum, jax.nn.relu])
def test_small_dtypes(function, dtype):
    """Some of which have no infinity, where a maximum starts."""
    x = jnp.array([-1.0, 4.0, 2.0]).astype(dtype)
    value, pull = pb.vjp(function, x)
    (found,) = pull(jnp.ones_like(value))
    (expected,) = jax.vjp(function, x)[1](jnp.ones_like(value))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_what_a_dtype_has_no_number_for_is_nan():
    x = jnp.ones((), "float8_e8m0fnu")  # it has no negative ones
    assert jnp.isnan(pb.jvp(jax.lax.rsqrt, (x,), (x,))[1].astype("float32"))


def test_float64():
    with jax.enable_x64(True):
        assert_agrees(pb.grad(pb.grad(wave))(1.3), jax.grad(jax.grad(wave))(1.3))
        assert pb.grad(wave)(np.float64(1.3)).dtype == np.float64
    assert pb.grad(wave)(1.3).dtype == np.float32


def test_holomorphic():
    z = 1.2 + 0.4j
    expected = jax.grad(wave, holomorphic=True)(z)
    assert_agrees(pb.grad(wave, holomorphic=True)(z), expected)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 2)])
def test_shapes(shape):
    x = np.full(shape, 0.7, np.float32)

    def function(x):
        return jnp.sum(jnp.sin(x) * x)

    assert_agrees(pb.grad(function)(x), jax.grad(function)(x))


def test_integers_have_float0_gradients_when_allowed():
    arguments = 1.5, {"n": np.arange(3), "x": X}

    def function(x, tree):
        return x * jnp.sum(tree["n"] * tree["x"])

    for name in ("grad", "value_and_grad"):
        ours = getattr(pb, name)(function, (0, 1), allow_int=True)(*arguments)
        assert_agrees(ours, getattr(jax, name)(function, (0, 1), allow_int=True)(*arguments))


def test_a_python_number_gives_way_to_the_dtype_of_an_array():
    half = jnp.ones(2, "bfloat16")
    assert (pb.grad(wave)(1.3) * half).dtype == (jax.grad(wave)(1.3) * half).dtype == half.dtype


def test_arguments_that_are_not_arrays():
    def function(x, mode, repeat=2):
        x = jnp.sin(x) if mode == "sin" else x
        for _ in range(repeat):
            x = x * x
        return x

    for arguments in [((1.2, "sin"), {}), ((1.2, None), {"repeat": 3})]:
        args, kwargs = arguments
        assert_agrees(pb.grad(function)(*args, **kwargs), jax.grad(function)(*args, **kwargs))
    second = pb.grad(pb.grad(function))(1.2, "sin")
    assert_agrees(second, jax.grad(jax.grad(function))(1.2, "sin"))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scaled_sine(scale, x):
    return scale * jnp.sin(x)


scaled_sine.defvjp(
    lambda scale, x: (scaled_sine(scale, x), x),
    lambda scale, x, ct: (2 * scale * jnp.cos(x) * ct,),  # false on purpose
)


@pytest.mark.parametrize("transformed", ["grad", "jacfwd", "jacrev"])
def test_a_float_that_python_needs_becomes_part_of_the_function(transformed):
    def damped(mode, rate, x):
        return jnp.exp(-rate * x) if mode == "on" and rate > 0.5 else x**2

    ours, theirs = getattr(pb, transformed), getattr(jax, transformed)
    for rate in (0.1, 1.0):
        assert_agrees(ours(damped, 2)("on", rate, 1.2), theirs(damped, 2)("on", rate, 1.2))
    if transformed != "jacfwd":
        assert_agrees(ours(scaled_sine, 1)(2.0, 3.0), theirs(scaled_sine, 1)(2.0, 3.0))
    with pytest.raises(jax.errors.ConcretizationTypeError):
        ours(damped, 1)("on", 1.0, 1.2)


class Settings:
    """Told by its identity alone, while its contents change."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return self.rate * x

    def run(self, x):
        return self(x)


@dataclasses.dataclass(frozen=True)
class Line:
    """A function that is equal to others which compute something else."""

    name: str
    slope: float = dataclasses.field(compare=False)

    def __call__(self, x):
        return self.slope * x


@pytest.mark.parametrize("transformed", ["grad", "jacfwd", "jacrev"])
def test_equal_arguments_that_differ_have_derivatives_of_their_own(transformed):
    def signed(x, rate):
        return x * math.copysign(1.0, rate)

    def by_name(x, line):
        return line.slope * x

    ours = getattr(pb, transformed)
    slope = ours(signed)
    assert [slope(1.0, 0.0), slope(1.0, -0.0), slope(1.0, 0.0)] == [1.0, -1.0, 1.0]
    slope = ours(by_name)
    assert [slope(1.0, Line("a", 2.0)), slope(1.0, Line("a", 3.0))] == [2.0, 3.0]


def test_an_argument_that_changes_is_read_in_each_call():
    settings, slope = Settings(2.0), pb.grad(lambda x, settings: settings.rate * x)
    assert slope(1.0, settings) == 2.0
    settings.rate = 5.0
    assert slope(1.0, settings) == 5.0


HOLDERS = [
    lambda settings: settings,
    lambda settings: settings.run,
    lambda settings: functools.partial(Settings.run, settings),
    lambda settings: lambda x: settings.rate * x,
]


@pytest.mark.parametrize("hold", HOLDERS)
@pytest.mark.parametrize("transformed", ["grad", "jacfwd"])
def test_a_function_that_changes_is_traced_in_each_call(transformed, hold):
    """It is told by what it holds, or not at all."""
    settings, slope = Settings(2.0), getattr(pb, transformed)(lambda x, function: function(x))
    function = hold(settings)
    assert slope(1.0, function) == 2.0
    settings.rate = 5.0
    assert slope(1.0, function) == 5.0


RATE = 1.0


def test_functions_that_find_another_global_variable_are_others(monkeypatch):
    slope = pb.grad(lambda x, function: function(x))
    for rate in (2.0, 5.0):
        monkeypatch.setitem(globals(), "RATE", rate)
        assert slope(1.0, lambda x: RATE * x) == rate


FUNCTIONS = [
    jnp.sin,
    jax.nn.relu,
    functools.partial(jnp.multiply, jnp.ones(())),
    jax.jit(lambda x: 2 * x),
    (lambda w: lambda x: w * x)(jnp.ones(())),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_that_stays_as_it_is_is_traced_once(function):
    applied, calls = count_traces(lambda x, function: function(x))
    slope = pb.grad(applied)
    for x in (1.0, 2.0):
        assert_agrees(slope(x, function), jax.grad(function)(x))
    assert sum(callable(function) for _, function in calls) == 1


@pytest.mark.parametrize("transformed", ["grad", "jacfwd", "jacrev", "jit"])
def test_equal_functions_that_differ_have_derivatives_of_their_own(transformed):
    ours = getattr(pb, transformed)
    one, other = Line("a", 2.0), Line("a", 3.0)
    assert one == other
    assert [ours(one)(1.0), ours(other)(1.0)] == [2.0, 3.0]
    pulled = [pb.vjp(line, 1.0)[1](1.0)[0] for line in (one, other)]
    pushed = [pb.jvp(line, (1.0,), (1.0,))[1] for line in (one, other)]
    assert pulled == pushed == [pb.trace(line)(1.0)(1.0) for line in (one, other)] == [2.0, 3.0]


def test_a_method_outlives_another_of_the_same_object():
    line = Line("a", 2.0)
    first = pb.grad(line.__call__)
    second = pb.grad(line.__call__)
    assert first(1.0) == 2.0
    del first
    gc.collect()
    assert second(jnp.ones((), "float16")) == 2.0


def test_a_float_is_traced_where_only_others_are_needed():
    def counted(mode, rate, x):
        rates.append(rate)
        return rate * x**2 if mode == "on" else x

    rates = []
    for rate in (1.0, 2.0, 3.0):
        assert pb.grad(counted, 2)("on", rate, 2.0) == 4 * rate
    assert not any(isinstance(rate, float) for rate in rates)


def count_traces(function):
    calls = []

    def counted(*args):
        calls.append(args)
        return function(*args)

    return counted, calls


def test_a_number_that_python_needs_is_no_abstract_value_in_the_next_call():
    """To find out again what was found out takes a trace of the function in each call."""
    traced = []

    def power(x, n):
        traced.append(n)
        return jnp.sum(x) if n == 0 else jnp.sum(x**n)

    derivative = pb.grad(power)
    for n in (2, 2, 3, 2):
        assert jnp.allclose(derivative(X, n), jax.grad(power)(X, n))
        traced.pop()  # JAX's
    assert [type(n) for n in traced[1:]] == [int, int]
    assert jnp.allclose(derivative(X[:1], 2), 2 * X[:1])


def test_a_function_is_traced_once_per_type():
    counted, calls = count_traces(wave)
    for _ in range(3):
        pb.grad(counted)(1.0)
    assert len(calls) == 1
    pb.grad(counted)(np.ones((), "float16"))
    assert len(calls) == 2
    for x in (1.0, 2.0):
        pb.grad(pb.grad(counted))(x)
    assert len(calls) == 2  # JAX remembers the jaxpr; only the derivation is new


def test_a_function_with_new_code_is_derived_again():
    """So a notebook does that has loaded a module again; what holds the function stays."""

    def function(x):
        return x * x

    def written_anew(x):
        return 5.0 * x

    assert pb.grad(function)(3.0) == 6.0
    assert pb.vjp(function, 3.0)[1](1.0) == (6.0,)
    function.__code__ = written_anew.__code__
    assert pb.grad(function)(3.0) == 5.0
    assert pb.vjp(function, 3.0)[1](1.0) == (5.0,)


def test_a_function_is_forgotten_when_nobody_holds_it():
    def function(x):
        return x * x

    alive = weakref.ref(function)
    assert pb.grad(function)(3.0) == 6.0
    assert pb.vjp(function, 3.0)[1](1.0) == (6.0,)
    del function
    gc.collect()
    assert alive() is None


def compilations(caplog, run):
    caplog.clear()
    with jax.log_compiles():
        run()
    return len([each for each in caplog.messages if "Finished XLA compilation" in each])


def steps_of_sines(x):
    return jnp.sum(jax.lax.scan(lambda c, _: (jnp.sin(c) * c, None), x, None, length=64)[0])


def test_a_program_is_compiled_once_ahead_and_for_its_calls(caplog):
    x = jnp.ones(100)
    early, late, limited = (
        pb.trace(steps_of_sines)(x).grad(memory=memory) for memory in (None, None, "40kB")
    )

    def in_each_order():
        early.compile()(x)
        early(x)
        late(x)
        late.compile()(x)

    assert compilations(caplog, in_each_order) == 2
    assert early.compile() is early.compile()
    assert compilations(caplog, lambda: (limited(x), limited.compile()(x))) == 0


@pytest.mark.parametrize("transform", [pb.grad, pb.value_and_grad])
def test_what_fits_a_budget_is_compiled_once(caplog, transform):
    x, found = jnp.ones(100), []
    gradient = transform(steps_of_sines, memory="40kB")
    assert compilations(caplog, lambda: found.append(gradient(x))) == 1
    assert compilations(caplog, lambda: gradient(x)) == 0
    like = getattr(jax, transform.__name__)(steps_of_sines)
    assert_agrees(found[0], like(x))
    assert_agrees(jax.jit(jax.vmap(gradient))(x[None]), jax.vmap(like)(x[None]))


@pytest.mark.parametrize("mode", ["vjp", "linearize"])
def test_maps_of_new_functions_of_equal_programs_are_compiled_once(caplog, mode):
    """Of each batch of data, as it is in a loop over batches."""
    found = {}

    def step(scale):
        batch = scale * jnp.arange(99.0)
        value, linear = getattr(pb, mode)(lambda x: jnp.sum(jnp.sin(x) * batch), batch)
        found[scale] = linear(value if mode == "vjp" else batch)

    pullback_runtime.clear_cache()
    assert [
        compilations(caplog, lambda: step(2.0)) >= 2,
        compilations(caplog, lambda: step(0.5)),
    ] == [True, 0]
    for scale, moved in found.items():
        batch = scale * jnp.arange(99.0)
        value, linear = getattr(jax, mode)(lambda x: jnp.sum(jnp.sin(x) * batch), batch)  # noqa: B023
        assert_agrees(moved, linear(value if mode == "vjp" else batch))


def test_equal_programs_on_other_lines_are_compiled_once(caplog):
    first = lambda x: jnp.sum(jnp.cos(x) * x)  # noqa: E731
    second = lambda x: jnp.sum(jnp.cos(x) * x)  # noqa: E731
    pullback_runtime.clear_cache()
    compilations(caplog, lambda: pb.vjp(first, jnp.ones(3))[1](1.0))
    assert compilations(caplog, lambda: pb.vjp(second, jnp.ones(3))[1](1.0)) == 0


def test_equal_programs_of_other_rules_have_other_maps():
    for factor in (3.0, 5.0):
        scaled = jax.custom_vjp(jnp.sin)
        scaled.defvjp(lambda x: (jnp.sin(x), ()), lambda _, ct, factor=factor: (factor * ct,))
        value, pull = pb.vjp(lambda x: scaled(scaled(x)), 0.5)  # noqa: B023
        assert_agrees((value, pull(1.0)), (jnp.sin(jnp.sin(0.5)), (factor**2,)))


def three(x):
    return jnp.stack([x, x, x])


@pytest.mark.parametrize(
    ("function", "arguments", "options", "error", "words"),
    [
        (three, (1.0,), {}, DerivativeTypeError, r"scalar-output functions. .*shape: \(3,\)"),
        (lambda x: (x, x), (1.0,), {}, DerivativeTypeError, r"scalar-output.*float32\[\]"),
        (lambda x: x, (3,), {}, DerivativeTypeError, "requires real- or complex-valued inputs"),
        (lambda x: x * 1j, (1.0,), {}, DerivativeTypeError, "requires real-valued outputs"),
        (lambda x: 3, (1.0,), {}, DerivativeTypeError, "requires real-valued outputs.*int32"),
        (lambda x: x, (1.0,), {"has_aux": True}, DerivativeTypeError, "must return a pair"),
        (wave, (1.0,), {"holomorphic": True}, DerivativeTypeError, "holomorphic=True requires"),
        (wave, (1.0,), {"argnums": 2}, ArgumentMismatchError, "at least 3 positional.*only 1"),
        (wave, (1.0,), {"argnums": (0, 0)}, ArgumentMismatchError, "names an argument twice"),
        (wave, (1.0,), {"argnums": 1.0}, ArgumentMismatchError, "argnums=1.0 is not a position"),
        (wave, (1.0,), {"argnums": None}, ArgumentMismatchError, "argnums=None is not a pos"),
        (wave, (1.0,), {"argnums": "x"}, ArgumentMismatchError, "argnums='x' is not a position"),
    ],
)
def test_what_has_no_gradient(function, arguments, options, error, words):
    with pytest.raises(error, match=words) as caught:
        pb.grad(function, **options)(*arguments)
    assert isinstance(caught.value, TypeError)
    assert "do:" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: pb.grad(wave)(x), r"grad\(wave\)"),
        (lambda x: pb.vjp(wave, x), r"vjp\(wave\)"),
        (lambda x: pb.jacrev(wave)(x), r"jacobian_reverse\(wave\)"),
        (lambda x: pb.grad(functools.partial(wave))(x), r"grad\(partial\)"),
    ],
)
def test_jax_names_the_function_in_its_errors(call, name):
    with pytest.raises(TypeError, match=name):
        call(np.array(["text"]))


def test_an_error_names_the_path_of_the_argument():
    with pytest.raises(DerivativeTypeError, match=r"params\['n'\] is int32"):
        pb.grad(lambda params: params["x"])({"x": 1.0, "n": 2})


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Checked:
    """A class whose constructor looks at its fields, which JAX calls with arrays."""

    weight: jax.Array
    bias: jax.Array

    def __post_init__(self):
        if self.weight.ndim != 2 or self.weight.shape[1:] != self.bias.shape:
            raise ValueError("no weight for this bias")
        if not jnp.issubdtype(self.weight.dtype, jnp.floating) or self.bias.size == 0:
            raise TypeError("no floats")


def test_classes_that_check_their_fields():
    """They had been made of what only stands for an array, and refused."""
    model = Checked(jnp.ones((2, 3)), jnp.arange(3.0))
    x = jnp.ones(2)

    def apply(model, x):
        return jnp.sum(jnp.sin(x @ model.weight + model.bias)), model

    ours, theirs = (each.grad(apply, has_aux=True)(model, x) for each in (pb, jax))
    assert_agrees(ours, theirs)
    assert_agrees(pb.jit(apply)(model, x), apply(model, x))
    (out, pull, _), expected = (each.vjp(apply, model, x, has_aux=True) for each in (pb, jax))
    assert_agrees((out, pull(1.0)), (expected[0], expected[1](1.0)))
    (out, push, _), expected = (each.linearize(apply, model, x, has_aux=True) for each in (pb, jax))
    assert_agrees((out, push(model, x)), (expected[0], expected[1](model, x)))
    point = (model, x), (model, x)
    assert_agrees(pb.jvp(apply, *point, has_aux=True), jax.jvp(apply, *point, has_aux=True))
    loaded = pb.load(pb.artifact.serialize(pb.trace(apply)(model, x)))
    assert_agrees(pb.grad(loaded, has_aux=True)(model, x), theirs)
