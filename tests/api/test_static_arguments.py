"""Python values that a function depends on: numbers that steer it, and static parts of trees."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentMismatchError
from tests.api.checks import assert_agrees

NO_TANGENT = np.zeros((), jax.dtypes.float0)


def power(x, n):
    for _ in range(n):
        x = x * jnp.sin(x)
    return x


def with_aux(x, n):
    return power(x, n), {"twice": 2 * x}


CALLS = {
    "grad": lambda lib, f, x, n: lib.grad(f)(x, n),
    "integers": lambda lib, f, x, n: lib.grad(f, (0, 1), allow_int=True)(x, n),
    "value_and_grad": lambda lib, f, x, n: lib.value_and_grad(f, (0, -1), allow_int=True)(x, n),
    "vjp": lambda lib, f, x, n: lib.vjp(f, x, n)[1](1.0),
    "jvp": lambda lib, f, x, n: lib.jvp(f, (x, n), (1.0, NO_TANGENT)),
    "linearize": lambda lib, f, x, n: lib.linearize(f, x, n)[1](1.0, NO_TANGENT),
    "jacfwd": lambda lib, f, x, n: lib.jacfwd(f)(x, n),
    "jacrev": lambda lib, f, x, n: lib.jacrev(f, (0, 1), allow_int=True)(x, n),
    "second order": lambda lib, f, x, n: lib.grad(lib.grad(f))(x, n),
    "hessian": lambda lib, f, x, n: lib.hessian(f)(x, n),
    "in jit": lambda lib, f, x, n: jax.jit(lambda x: lib.vjp(f, x, n)[1](1.0)[0])(x),
    "batched": lambda lib, f, x, n: jax.vmap(lambda x: lib.vjp(f, x, n)[1](1.0)[0])(x[None]),
    "jvp of grad": lambda lib, f, x, n: lib.jvp(lambda x: lib.grad(f)(x, n), (x,), (1.0,)),
}


@pytest.mark.parametrize("n", [2, np.int32(2), np.uint8(3)], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_integers_that_steer_python_code(name, n):
    x = jnp.float32(1.5)
    for _ in range(2):
        found, expected = (CALLS[name](lib, power, x, n) for lib in (pb, jax))
        assert_agrees(found, expected)


def test_auxiliary_data_beside_integers_that_steer_python_code():
    arguments = (1.5, 2), (1.0, NO_TANGENT)
    (out, pull, aux), expected = (
        lib.vjp(with_aux, *arguments[0], has_aux=True) for lib in (pb, jax)
    )
    assert_agrees((out, pull(1.0), aux), (expected[0], expected[1](1.0), expected[2]))
    found, expected = (lib.jvp(with_aux, *arguments, has_aux=True) for lib in (pb, jax))
    assert_agrees(found, expected)


STEERED = {
    "a bool": (lambda x, b: x * x if b else 3 * x, (2.0, True)),
    "a bool of NumPy": (lambda x, b: x * x if b else 3 * x, (2.0, np.bool_(False))),
    "a slice": (lambda x, n: jnp.sum(x[:n] ** 2), (np.arange(4.0), 2)),
    "an index": (lambda x, b: jnp.sum(x[b] ** 2), (np.arange(4.0), True)),
    "a shape": (lambda x, n: jnp.sum(jnp.ones(n) * x), (2.0, 3)),
    "a key": (lambda x, n: {1: x, 2: x * x}[n], (2.0, 2)),
    "a method": (lambda x, n: x ** n.bit_length(), (2.0, 4)),
    "in a tree": (lambda c: c["x"] ** 3 if c["on"] else c["x"], ({"x": 2.0, "on": True},)),
    "in two": (lambda x, c: x ** c["n"] if c["on"] else x, (2.0, {"n": 3, "on": True})),
}


@pytest.mark.parametrize("name", STEERED)
def test_whatever_needs_an_integer_has_it(name):
    function, arguments = STEERED[name]
    found, expected = (
        (lib.grad(function, allow_int=True)(*arguments), *lib.vjp(function, *arguments)[1](1.0))
        for lib in (pb, jax)
    )
    assert_agrees(found, expected)


def test_a_large_integer_is_no_array():
    assert pb.grad(lambda x, n: x * (n % 7))(3.0, 2**40) == 2.0


def test_a_float_of_numpy_that_python_needs():
    slope = pb.grad(lambda x, rate: x * x if rate > 0.5 else x)
    assert [slope(3.0, np.float32(rate)) for rate in (0.4, 0.6)] == [1.0, 6.0]


@pytest.mark.parametrize("call", [lambda f: pb.vjp(f, 1.0, 2.0), lambda f: pb.grad(f)(1.0)])
def test_what_is_differentiated_is_traced(call):
    with pytest.raises(jax.errors.TracerBoolConversionError):
        call(lambda *args: args[-1] * 2 if args[-1] > 0 else args[0])


def test_an_error_of_the_function_is_raised():
    def fails(x, n):
        raise ValueError(f"no {n}")

    for call in (lambda: pb.vjp(fails, 1.0, 2), lambda: pb.grad(fails)(1.0, 2)):
        with pytest.raises(ValueError, match="no 2"):
            call()


def test_a_number_that_steers_is_traced_once_for_each_value():
    traced = []

    def counted(x, n):
        traced.append(n)
        return power(x, n)

    for n in (2, 2, 3, 2):
        pb.vjp(counted, 1.5, n)
        pb.linearize(counted, 1.5, n)
    assert [type(n) for n in traced].count(int) == 4


@pytest.mark.parametrize(
    "static", ["sin", jnp.sin, np.dtype("float32")], ids=("string", "function", "type")
)
def test_a_number_beside_what_cannot_be_traced_is_traced_once(static):
    traced = []

    def counted(x, static, step):
        traced.append((static, step))
        return x**2 * step

    slope = pb.grad(counted)
    for step in range(3):
        assert slope(3.0, static, step) == 6.0 * step
    ((found, step),) = (each for each in traced if isinstance(each[1], jax.core.Tracer))
    assert found is static
    assert jnp.shape(step) == ()


def test_a_number_that_steers_beside_a_string():
    def function(x, kind, n, rate):
        return power(x, n) if kind == "power" else x * rate if rate > 0.5 else x

    for _ in range(2):
        for arguments in (("power", 2, 0.0), ("power", 3, 0.0), ("rate", 2, 0.4), ("rate", 2, 0.6)):
            found, expected = (lib.grad(function)(1.5, *arguments) for lib in (pb, jax))
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_string_in_what_is_differentiated_is_an_error_of_jax():
    for call in (lambda: pb.grad(lambda x: x["x"])({"x": 1.0, "kind": "a"}),) * 2:
        with pytest.raises(TypeError, match="str"):
            call()


def test_a_function_with_a_fixed_argument_is_forgotten():
    def function(x, n):
        return power(x, n)

    alive = weakref.ref(function)
    pb.grad(function)(1.5, 2)
    pb.vjp(function, 1.5, 2)
    del function
    gc.collect()
    assert alive() is None


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["part", "other"]
)
@dataclasses.dataclass
class Tree:
    """A tree with static parts."""

    x: Any
    part: Any = None
    other: Any = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Equal to others of the same rate."""

    rate: float
    hidden: float = dataclasses.field(default=0.0, compare=False)


@dataclasses.dataclass
class Unhashable:
    rate: float


def factor(part: Any) -> float:
    """A number that tells equal parts apart."""
    if isinstance(part, tuple):
        return factor(part[0])
    if isinstance(part, Settings):
        return factor(part.rate) + part.hidden
    if isinstance(part, Unhashable):
        return factor(part.rate)
    return {bool: 5.0, int: 3.0}.get(type(part), 2.0) * math.copysign(1.0, part)


def of_tree(tree):
    return jnp.sum(tree.x) * factor(tree.part)


def squared(tree):
    return of_tree(dataclasses.replace(tree, x=tree.x**2 / 2))


ONES = np.ones(2, np.float32)
OF_TREES = {
    "grad": lambda t: pb.grad(of_tree)(t).x,
    "second order": lambda t: pb.grad(lambda t: jnp.sum(pb.grad(squared)(t).x))(t).x,
    "grad of grad": lambda t: pb.grad(pb.grad(lambda n, t: of_tree(t) * n**2))(1.0, t=t) * ONES / 4,
    "value_and_grad": lambda t: pb.value_and_grad(of_tree)(t)[1].x,
    "keyword": lambda t: pb.grad(lambda x, t: of_tree(t) * x)(1.0, t=t) * ONES / 2,
    "vjp": lambda t: pb.vjp(of_tree, t)[1](1.0)[0].x,
    "jvp": lambda t: pb.jvp(of_tree, (t,), (t,))[1] * ONES / 2,
    "linearize": lambda t: pb.linearize(of_tree, t)[1](t) * ONES / 2,
    "linear_transpose": lambda t: pb.linear_transpose(of_tree, t)(1.0)[0].x,
    "jacfwd": lambda t: pb.jacfwd(of_tree)(t).x,
    "jacrev": lambda t: pb.jacrev(of_tree)(t).x,
    "trace": lambda t: pb.trace(of_tree)(t).grad()(t).x,
}
EQUAL = {
    "zeros": (0.0, -0.0, 0.0),
    "numbers": (1, True, 1.0, np.float32(1)),
    "nested": ((0.0,), (-0.0,)),
    "settings": (Settings(0.0), Settings(-0.0), Settings(0.0, hidden=7.0)),
    "no hash": (Unhashable(1), Unhashable(True), Unhashable(1.0)),
}


@pytest.mark.parametrize("equal", EQUAL)
@pytest.mark.parametrize("name", OF_TREES)
def test_equal_static_parts_that_are_not_the_same(name, equal):
    parts = EQUAL[equal]
    assert all(Tree(0, part) == Tree(0, parts[0]) for part in parts)
    for part in (*parts, *parts):
        np.testing.assert_allclose(OF_TREES[name](Tree(ONES, part)), factor(part) * ONES)


def test_equal_keys_that_are_not_the_same():
    def keyed(tree):
        return sum(jnp.sum(x) * factor(key) for key, x in tree.items())

    for key in (1, True, 1.0, 1):
        (found,) = pb.grad(keyed)({key: ONES}).values()
        np.testing.assert_array_equal(found, factor(key) * ONES)


def test_static_arguments_of_a_trace_that_are_not_the_same():
    traced = pb.trace(lambda x, zero: x * math.copysign(1.0, zero), static_argnums=1)
    assert [traced(2.0, zero)(2.0) for zero in (0.0, -0.0)] == [2.0, -2.0]


@pytest.mark.parametrize(
    "make", [lambda: 3, lambda: (1.5, "a"), lambda: Settings(2.0), lambda: Unhashable(2.0)]
)
def test_a_function_of_a_tree_is_traced_once_for_the_same_static_part(make):
    traced = []

    def counted(tree):
        traced.append(tree)
        return of_tree(tree)

    slope = pb.grad(counted)
    for _ in range(3):
        slope(Tree(ONES, make()))
    assert len(traced) == 1


def test_a_number_that_steers_beside_a_static_part():
    def function(tree, n):
        return power(of_tree(tree), n)

    for part in (0.0, -0.0):
        for n in (1, 2):
            found, expected = (lib.grad(function)(Tree(ONES, part), n) for lib in (pb, jax))
            np.testing.assert_allclose(found.x, expected.x, rtol=1e-6)


def with_array(tree):
    return jnp.sum(tree.x * tree.part)


@pytest.fixture
def fresh_tree():
    """A class whose trees JAX compares with no others, which it does across functions."""
    jax.clear_caches()

    @functools.partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["part"])
    @dataclasses.dataclass
    class Fresh:
        x: Any
        part: Any

    return Fresh


OF_ARRAYS = {
    "grad": lambda f, t: pb.grad(f)(t),
    "vjp": lambda f, t: pb.vjp(f, t),
    "jvp": lambda f, t: pb.jvp(f, (t,), (t,)),
    "linearize": lambda f, t: pb.linearize(f, t),
    "jacrev": lambda f, t: pb.jacrev(f)(t),
    "trace": lambda f, t: pb.trace(f)(t)(t),
}


@pytest.mark.parametrize("make", [np.array, jnp.array], ids=["NumPy", "JAX"])
@pytest.mark.parametrize("name", OF_ARRAYS)
def test_an_array_as_a_static_part_is_named_where_it_is_compared(name, make, fresh_tree):
    call, part = OF_ARRAYS[name], make([1.0, 2.0])
    for scale in (1, 2):  # as long as it is the same
        call(with_array, fresh_tree(scale * ONES, part))
    with pytest.raises(ArgumentMismatchError) as caught:
        call(with_array, fresh_tree(ONES, make([3.0, 4.0])))
    assert "a static part of the arguments holds an array" in caught.value.message
    assert caught.value.where == "args[0].part, of a Fresh"
    assert "make it a data field" in caught.value.do


@pytest.mark.parametrize("number", range(2))
def test_a_static_part_is_named_by_its_path(number, fresh_tree):
    def call(*parts):
        first, second = (fresh_tree(ONES, part) for part in parts)
        return slope(1.0, {"a": [first]}, more=second)

    slope = pb.grad(lambda x, trees, *, more: x * with_array(trees["a"][0]) * with_array(more))
    parts = [2.0, 2.0]
    parts[number] = np.ones(2)
    call(*parts)
    parts[number] = np.ones(2)
    path = [r"args\[1\]\['a'\]\[0\]", r"kwargs\['more'\]"][number]
    with pytest.raises(ArgumentMismatchError, match=rf"where: {path}\.part, of a Fresh"):
        call(*parts)


def test_a_program_names_an_array_as_a_static_part(fresh_tree):
    part = np.ones(2)
    program = pb.trace(with_array)(fresh_tree(ONES, part))
    assert program(fresh_tree(ONES, part)) == 2.0
    with pytest.raises(ArgumentMismatchError, match=r"where: args\[0\].part, of a Fresh"):
        program(fresh_tree(ONES, np.ones(2)))


def test_functions_are_traced_where_jit_is_disabled():
    @jax.custom_vjp
    def false(x):
        return jnp.sin(x)

    false.defvjp(lambda x: (false(x), x), lambda x, ct: (7 * x * ct,))

    def function(x, n):
        return jax.lax.scan(lambda c, _: (false(c) * x, None), x, None, n)[0]

    with jax.disable_jit():
        for name in ("grad", "vjp", "second order", "jacrev"):
            found, expected = (CALLS[name](lib, function, 1.5, 2) for lib in (pb, jax))
            assert_agrees(found, expected)


def test_a_branch_where_jit_is_disabled_says_that_the_function_is_traced():
    def branches(x):
        return x * x if x > 0 else -x

    with jax.disable_jit():
        assert pb.jit(branches)(3.0) == 9.0
        for call in (lambda: pb.grad(branches)(3.0), lambda: pb.vjp(branches, 3.0)):
            with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
                call()
            assert "under jax.disable_jit() as well" in "".join(caught.value.__notes__)
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        pb.grad(branches)(3.0)
    assert "disable_jit" not in "".join(caught.value.__notes__)
