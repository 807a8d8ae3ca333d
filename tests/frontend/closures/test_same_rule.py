"""When two objects that a rule closes over are the same."""

from __future__ import annotations

import cmath
import copy
import dataclasses
import functools
import math
from decimal import Decimal
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import linear_util
from jax.interpreters import partial_eval

import pullback as pb
from pullback import artifact
from pullback.frontend.closures.same_rule import Identities
from tests.work import lines_run


class Layer:
    """Without equality: two of one width are two."""

    def __init__(self, width: int) -> None:
        self.width = width


class Marker:
    """Holds nothing."""


def signature(*values: Any, by_contents: bool = True) -> Any:
    identities = Identities()
    identities.begin(by_contents=by_contents)
    return identities.rules(None, values)


def test_by_contents() -> None:
    assert signature(Layer(3)) == signature(Layer(3))
    assert signature(Layer(3)) != signature(Layer(4))
    one, other = Layer(3), Layer(3)
    assert signature((one, other), one) != signature((one, other), other)
    assert signature({"a": [1, one]}) == signature({"a": [1, other]})


def test_by_address() -> None:
    one, other = Layer(3), Layer(3)
    assert signature(one, by_contents=False) == signature(one, by_contents=False)
    assert signature(one, by_contents=False) != signature(other, by_contents=False)
    marks = [Marker(), Marker(), object(), object()]
    assert len({signature(mark) for mark in marks}) == len(marks)


def test_names_of_results_make_no_other_rule() -> None:
    """JAX notes them for its messages when a function has been traced, each time anew."""

    def noted(name: str, *results: str) -> Any:
        return linear_util.DebugInfo("custom_vjp fun", name, ("x",), lambda: results)

    assert signature(noted("f", "result[0]")) == signature(noted("f", "result"))
    assert signature(noted("f", "result")) != signature(noted("g", "result"))


def test_variables_of_a_jaxpr_are_not_their_types() -> None:
    equations = [
        jax.make_jaxpr(lambda x, y: x - y)(1.0, 2.0).eqns[0],
        jax.make_jaxpr(lambda x, y: (x - y) * 2)(1.0, 2.0).eqns[0],
        jax.make_jaxpr(lambda x: x - x)(1.0).eqns[0],
    ]
    same, also, other = map(signature, equations)
    assert same == also
    assert same != other


SCALES: dict[Any, float] = {}


def scaled(layer: Layer) -> Any:
    """The identity, whose cotangent is scaled by what a table says of the layer."""
    f = jax.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct * SCALES[layer],))
    return f


@dataclasses.dataclass(frozen=True)
class Named:
    name: str
    scale: Any = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    value: float


class Label(str):
    """Equal to any other of the same text."""

    def __init__(self, _: str) -> None:
        self.scale = 1.0


def label(scale: float) -> Label:
    found = Label("one")
    found.scale = scale
    return found


class Hidden(str):
    """Does not say what it is."""

    def __str__(self) -> str:
        return "***"


class Sealed(list[float]):
    """Does not say what it holds."""

    def __iter__(self) -> Any:
        return iter(())


def test_what_an_object_is_counts_and_not_what_it_says() -> None:
    assert signature(Hidden("a")) == signature(Hidden("a")) != signature(Hidden("b"))
    assert signature(Sealed([1.0])) == signature(Sealed([1.0])) != signature(Sealed([2.0]))


def test_calls_under_other_settings_are_other_calls() -> None:
    """Random numbers are drawn in two ways, by a setting that JAX keeps with each equation."""

    @jax.custom_jvp
    def noisy(x: Any, key: Any) -> Any:
        return x * jax.random.normal(key, x.shape)

    @noisy.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return noisy(*primals), tangents[0] * jax.random.normal(primals[1], (3,))

    def both(x: Any) -> Any:
        key = jax.random.key(0)
        with jax.threefry_partitionable(True):
            first = noisy(x, key)
        with jax.threefry_partitionable(False):
            return first + 2.0 * noisy(x, key)

    x = jnp.arange(3.0)
    np.testing.assert_allclose(pb.jit(both)(x), both(x), rtol=1e-6)
    found, expected = (d(lambda x: jnp.sum(both(x)))(x) for d in (pb.grad, jax.grad))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


EQUAL_AND_NOT_THE_SAME = {
    "a field that is not compared": (Named("a", 2.0), Named("a", 3.0), lambda v: v.scale),
    "zeros in an object": (Scale(0.0), Scale(-0.0), lambda v: math.copysign(1.0, v.value)),
    "zeros of NumPy": (np.float32(0), np.float32(-0.0), lambda v: math.copysign(1.0, v)),
    "zeros of complex numbers": (-1 + 0j, complex(-1, -0.0), lambda v: cmath.log(v).imag),
    "decimal zeros": (Decimal("0"), Decimal("-0"), lambda v: 2.0 - 4.0 * v.is_signed()),
    "text with an attribute": (label(2.0), label(3.0), lambda v: v.scale),
}


def slope(get: Any, value: Any) -> Any:
    """The identity, whose tangent is scaled by what a function finds in the value."""
    f = jax.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: (primals[0], get(value) * tangents[0]))
    return f


@pytest.mark.parametrize("case", EQUAL_AND_NOT_THE_SAME)
def test_rules_over_equal_objects_that_differ_are_two(case: str) -> None:
    one, other, get = EQUAL_AND_NOT_THE_SAME[case]
    assert one == other
    found = pb.grad(lambda x: slope(get, one)(x) + 10 * slope(get, other)(x))(1.0)
    np.testing.assert_allclose(found, get(one) + 10 * get(other), rtol=1e-6)
    assert signature(one) == signature(copy.copy(one))


def test_objects_of_equal_contents_may_have_rules_of_their_own() -> None:
    first, second = Layer(3), Layer(3)
    SCALES.update({first: 2.0, second: 5.0})
    found = pb.grad(lambda x: jnp.sum(scaled(first)(x) + scaled(second)(x)))(jnp.ones(2))
    np.testing.assert_allclose(found, [7.0, 7.0])


def with_slope(model: Any) -> Any:
    """2 x, whose derivative is what the model says; its rule closes over the model only."""
    f = jax.custom_jvp(lambda x: 2.0 * x)
    f.defjvp(lambda x, dx: (2.0 * x[0], model.slope() * dx[0]))
    return f


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def of_model(x: Any, model: Any) -> Any:
    return 2.0 * x


of_model.defvjp(lambda x, model: (2.0 * x, None), lambda model, _, ct: (model.slope() * ct,))


class Held:
    """Beside another class: what an instance has, and equality does not see."""

    held: float

    def slope(self) -> float:
        return self.held


def subclass(base: type) -> Any:
    kind: Any = type("Kind", (Held, base), {})

    def make(held: float) -> Any:
        made = kind(print) if base is functools.partial else kind()
        made.held = held
        return made

    return make


def tuple_of_a_class_with(held: float) -> Any:
    class Model(NamedTuple):
        width: float

        def slope(self) -> float:
            return held

    return Model(3.0)


def function_with(held: float) -> Any:
    def function() -> None: ...

    function.slope = lambda: held  # type: ignore[attr-defined]
    return function


@dataclasses.dataclass(frozen=True)
class Sloped:
    name: str
    slope: Any = dataclasses.field(compare=False)


class Slotted(float):
    __slots__ = ("__held",)

    def __new__(cls, held: float) -> Slotted:
        made = super().__new__(cls, 3.0)
        made.__held = held
        return made

    def slope(self) -> float:
        return self.__held


MODELS: dict[str, Any] = {
    "class of a tuple": tuple_of_a_class_with,
    "attribute of a function": function_with,
    "what equality leaves out": lambda held: Sloped("one", lambda: held),
    "slot": Slotted,
    **{each.__name__: subclass(each) for each in (int, float, str, list, dict, functools.partial)},
}


@pytest.mark.parametrize("kind", MODELS)
def test_objects_that_are_equal_may_hold_more(kind: str) -> None:
    first, second = MODELS[kind](2.0), MODELS[kind](5.0)
    assert pb.grad(lambda x: with_slope(first)(x) + 10.0 * with_slope(second)(x))(1.0) == 52.0
    assert pb.grad(lambda x: of_model(x, first) + 10.0 * of_model(x, second))(1.0) == 52.0
    assert signature(first) == signature(MODELS[kind](2.0)) or kind == "class of a tuple"


def test_a_variable_that_is_not_assigned_yet_is_not_none() -> None:
    def counted(is_assigned: bool) -> Any:
        def jvp(primals: Any, tangents: Any) -> Any:
            try:
                model  # noqa: B018
            except NameError:
                return 2.0 * primals[0], 5.0 * tangents[0]
            return 2.0 * primals[0], 2.0 * tangents[0]

        f = jax.custom_jvp(lambda x: 2.0 * x)
        f.defjvp(jvp)
        if is_assigned:
            model = None
        return f

    assert pb.grad(lambda x: counted(True)(x) + 10.0 * counted(False)(x))(1.0) == 52.0


@pytest.mark.parametrize("zeros", [(0j, complex(0.0, -0.0)), (np.float32(0.0), np.float32(-0.0))])
def test_zeros_are_told_apart_by_their_signs(zeros: Any) -> None:
    assert len(set(map(signature, zeros))) == 2
    assert signature(zeros[0]) == signature(zeros[0] * 1)


def test_one_text_may_be_run_with_other_globals() -> None:
    text = """
@jax.custom_jvp
def f(x):
    return x * 1.0
f.defjvp(lambda primals, tangents: (f(*primals), SCALE * tangents[0]))
"""
    code = compile(text, "a template", "exec")
    functions = []
    for scale in (2.0, 5.0):
        names: dict[str, Any] = {"jax": jax, "SCALE": scale}
        exec(code, names)
        functions.append(names["f"])
    first, second = functions
    assert pb.grad(lambda x: first(x) + 10.0 * second(x))(1.0) == 52.0


def test_tracers_of_a_trace_that_has_ended_are_their_types() -> None:
    """JAX 0.12 leaves them in jaxprs; one that a rule used would be an error."""
    kept = []

    def function(x: Any, y: Any, z: Any) -> Any:
        kept.append((x, y, z))
        assert signature(x) != signature(y)
        return x

    jax.make_jaxpr(function)(1.0, 2.0, jnp.ones(2))
    x, y, z = kept[0]
    assert signature(x) == signature(y)
    assert signature(x) != signature(z)


def without_dead_code(function: Any, used: tuple[bool, ...], x: Any) -> list[Any]:
    """What JAX evaluates after it removed dead code: functions with new objects as rules."""
    closed = jax.make_jaxpr(function)(x)
    lean, _ = partial_eval.dce_jaxpr(closed.jaxpr, list(used), True)
    return jax.core.eval_jaxpr(lean, closed.consts, x)


def leaned(function: Any) -> Any:
    """A call of the function that JAX made lean of what stood beside it."""
    return lambda x: without_dead_code(lambda x: (function(x), jnp.exp(x)), (True, False), x)[0]


def self_referring_jvp() -> Any:
    @jax.custom_jvp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    again = leaned(sine)
    sine.defjvp(lambda x, dx: (again(*x), again(x[0] + jnp.pi / 2) * dx[0]))
    return sine


def self_referring_vjp() -> Any:
    @jax.custom_vjp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    again = leaned(sine)
    sine.defvjp(lambda x: (again(x), x), lambda x, ct: (again(x + jnp.pi / 2) * ct,))
    return sine


@pytest.mark.parametrize("make", [self_referring_jvp, self_referring_vjp])
def test_removing_dead_code_makes_no_other_rule(make: Any) -> None:
    sine = make()
    program = pb.trace(lambda x: sine(x))(0.5)
    third = pb.load(artifact.serialize(program)).grad().grad().grad()
    assert program.rules.traces <= 2
    np.testing.assert_allclose(third(0.5), -jnp.cos(0.5), rtol=1e-6)


def test_removing_results_makes_another_rule() -> None:
    @jax.custom_jvp
    def twice(x: Any) -> Any:
        return x, x

    twice.defjvp(lambda x, dx: (twice(*x), (2 * dx[0], 3 * dx[0])))

    @jax.custom_jvp
    def outer(x: Any) -> Any:
        return x

    def jvp(primals: Any, tangents: Any) -> Any:
        first = without_dead_code(twice, (True, False), primals[0])[0]
        second = without_dead_code(twice, (False, True), primals[0])[0]
        return outer(*primals), (first + 10 * second) * tangents[0]

    outer.defjvp(jvp)
    loaded = pb.load(artifact.serialize(pb.trace(lambda x: outer(x))(0.5)))
    np.testing.assert_allclose(loaded.grad().grad()(0.5), 2 + 10 * 3)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def scaled_sine_jvp(x: Any, scale: float) -> Any:
    return scale * jnp.sin(x)


@scaled_sine_jvp.defjvp
def _(scale: float, primals: Any, tangents: Any) -> Any:
    return scaled_sine_jvp(*primals, scale), scale * jnp.cos(primals[0]) * tangents[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def scaled_sine_vjp(x: Any, scale: float) -> Any:
    return scale * jnp.sin(x)


scaled_sine_vjp.defvjp(
    lambda x, scale: (scaled_sine_vjp(x, scale), x),
    lambda scale, x, ct: (ct * scale * jnp.cos(x),),
)


@pytest.mark.parametrize("sine", [scaled_sine_jvp, scaled_sine_vjp], ids=["jvp", "vjp"])
def test_arguments_without_derivatives_tell_rules_apart_by_their_values(sine: Any) -> None:
    """JAX puts each into a new box at each call."""

    def f(x: Any) -> Any:
        return sine(x, 2.0) + sine(sine(x, 3.0), 2.0)

    program = pb.trace(f)(0.5)
    np.testing.assert_allclose(program.grad()(0.5), jax.grad(f)(0.5), rtol=1e-6)
    assert program.rules.traces == len(list(program.rules)) == 2


def test_calls_with_rules_inside_of_a_jaxpr_are_known_by_their_rules() -> None:
    sine = self_referring_jvp()
    other = jax.custom_jvp(sine.fun)
    other.defjvp(lambda x, dx: (other(*x), 5 * dx[0]))
    closed = jax.make_jaxpr(lambda x: (sine(x), jnp.exp(x)))(0.5)
    lean, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True, False], True)
    assert signature(lean) == signature(jax.make_jaxpr(lambda x: (sine(x),))(0.5))
    assert signature(lean) != signature(jax.make_jaxpr(lambda x: (other(x),))(0.5))


def mapped_by_jvp() -> Any:
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (jnp.sin(p[0]), jnp.cumsum(t[0])))
    return f


def mapped_by_vjp() -> Any:
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), None), lambda _, ct: (jnp.cumsum(ct),))
    return f


@pytest.mark.parametrize("make", [mapped_by_jvp, mapped_by_vjp], ids=["jvp", "vjp"])
def test_a_jitted_function_mapped_over_another_axis_has_another_rule(make: Any) -> None:
    """JAX wraps its rule once more, and what is mapped stands on the wrapping."""
    f = jax.jit(make())

    def both(x: Any, w: Any) -> Any:
        return jnp.sum(w * jax.vmap(f, 0, 0)(x)) + jnp.sum(w * w * jax.vmap(f, 1, 1)(x))

    x = jnp.linspace(0.0, 1.0, 9).reshape(3, 3)
    w = jnp.arange(9.0).reshape(3, 3)
    assert jnp.allclose(pb.grad(both)(x, w), jax.grad(both)(x, w))
    assert len(pb.trace(both)(x, w).rules._rules) == 2


def holding_twice(held: Any) -> Any:
    """A function with a rule; both hold another."""

    @jax.custom_jvp
    def function(x: Any) -> Any:
        return held(x)

    function.defjvp(lambda primals, tangents: jax.jvp(held, primals, tangents))
    return function


def test_a_function_that_is_held_twice_is_looked_into_once() -> None:
    """Each holds the next by two ways: so many levels have 2**25 ways to the last."""

    def held(levels: int) -> Any:
        function: Any = jnp.sin
        for _ in range(levels):
            function = holding_twice(function)
        return function

    def work(levels: int) -> int:
        function = held(levels)
        return lines_run(lambda: signature(function, by_contents=False))

    assert work(10) < 3 * work(5)
    function = held(25)
    one, other = (signature(function, by_contents=False) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != signature(holding_twice(function), by_contents=False)


def test_a_function_is_known_by_its_place_where_it_holds_one_around_it() -> None:
    """What a function in a circle is, depends on where the circle is entered."""

    def circle(first: Any, second: Any) -> tuple[Any, Any]:
        def one(x: Any) -> Any:
            return first, other(x)

        def other(x: Any) -> Any:
            return second, one(x)

        return one, other

    assert signature(*circle(1, 2)) == signature(*circle(1, 2))
    assert signature(*circle(1, 2)) != signature(*circle(2, 1))
    assert signature(*circle(1, 2), circle(1, 2)) != signature(*circle(1, 2), circle(1, 3))


@pytest.mark.parametrize("by_contents", [False, True])
def test_a_function_that_holds_one_around_it_is_another_one_elsewhere(by_contents: bool) -> None:
    """It goes back to that one there, too, and not to the one which it is in."""

    def calling(function: Any) -> Any:
        return lambda x: function(x)

    def pair(goes_to_the_first: bool) -> tuple[Any, Any]:
        def make(constant: int) -> tuple[Any, Any]:
            inner: Any = None

            def outer(x: Any) -> Any:
                return constant, inner(x)

            def hold(function: Any) -> None:
                nonlocal inner
                inner = function

            return outer, hold

        (first, hold_in_first), (second, hold_in_second) = make(1), make(2)
        back = calling(first)
        hold_in_first(back)
        hold_in_second(back if goes_to_the_first else calling(second))
        return first, second

    assert signature(*pair(True), by_contents=by_contents) == signature(
        *pair(True), by_contents=by_contents
    )
    assert signature(*pair(True), by_contents=by_contents) != signature(
        *pair(False), by_contents=by_contents
    )
