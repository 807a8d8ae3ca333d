"""`jvp`, `vjp`, `linearize`, `linear_transpose` and Jacobians against JAX."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import pullback as pb
from pullback.errors import ArgumentMismatchError, DerivativeTypeError, NotLinearError
from tests.api.checks import assert_agrees
from tests.rounding import close

FLOAT0 = np.zeros(2, jax.dtypes.float0)
POINT = {"a": np.arange(3, dtype=np.float32) + 0.5, "n": np.arange(2, dtype=np.int32)}
SCALE = np.array([1.0, -2.0, 0.5], np.float32)
DIRECTION = {"a": np.array([1.0, 0.5, -1.0], np.float32), "n": FLOAT0}


def function(tree, y):
    return jnp.sin(tree["a"]) * y, tree["n"]


def wave(x):
    return jnp.sin(x) * x


@pytest.fixture(params=["callable", "program"])
def fun(request):
    return function if request.param == "callable" else pb.trace(function)(POINT, SCALE)


def test_jvp(fun):
    primals, tangents = (POINT, SCALE), (DIRECTION, 2 * SCALE)
    expected = jax.jvp(function, primals, tangents)
    assert_agrees(pb.jvp(fun, primals, tangents), expected)
    without = ({"a": DIRECTION["a"], "n": None}, 2 * SCALE)
    assert_agrees(pb.jvp(fun, primals, without), expected)


def test_vjp_returns_a_map_that_is_a_pytree(fun):
    out, pull = pb.vjp(fun, POINT, SCALE)
    expected, expected_pull = jax.vjp(function, POINT, SCALE)
    cotangents = (np.ones(3, np.float32), FLOAT0)
    assert_agrees(out, expected)
    assert_agrees(pull(cotangents), expected_pull(cotangents))
    assert_agrees(jax.jit(pull)(cotangents), expected_pull(cotangents))
    assert len(jax.tree.leaves(pull)) > 0


def test_linearize(fun):
    out, push = pb.linearize(fun, POINT, SCALE)
    expected, expected_push = jax.linearize(function, POINT, SCALE)
    assert_agrees(out, expected)
    for factor in (1, 3):
        tangents = DIRECTION, factor * SCALE
        assert_agrees(push(*tangents), expected_push(*tangents))


@pytest.mark.parametrize("name", ["vjp", "linearize"])
def test_maps_with_auxiliary_data(name):
    def with_aux(x):
        return wave(x), {"x": x}

    out, ours, aux = getattr(pb, name)(with_aux, SCALE, has_aux=True)
    expected, theirs, expected_aux = getattr(jax, name)(with_aux, SCALE, has_aux=True)
    assert_agrees((out, aux, ours(SCALE)), (expected, expected_aux, theirs(SCALE)))


def test_jvp_with_auxiliary_data():
    ours, theirs = (
        library.jvp(lambda x: (wave(x), x), (1.5,), (2.0,), has_aux=True) for library in (pb, jax)
    )
    assert_agrees(ours, theirs)


def test_a_vjp_does_not_run_the_forward_pass_again():
    program = pb.trace(lambda w, x: jnp.sin(x @ w))(np.eye(3), SCALE)
    forward, backward = program.split_vjp(wrt=1)
    assert str(forward).count("stablehlo.dot_general") == 1
    assert str(backward).count("stablehlo.dot_general") == 1  # that of the cotangent alone


def test_linear_transpose():
    struct = jax.ShapeDtypeStruct((2,), np.float32)

    def linear(x, y):
        return {"d": 0.5 * x - 0.25 * y[::-1]}

    cotangent = {"d": np.array([1.0, 3.0], np.float32)}
    ours, theirs = (library.linear_transpose(linear, struct, struct) for library in (pb, jax))
    assert_agrees(ours(cotangent), theirs(cotangent))
    with pytest.raises(NotLinearError, match=r"cannot transpose(.|\n)*test_maps.py:\d+"):
        pb.linear_transpose(lambda x: x * x, struct)


INTEGERS = np.arange(1, 5, dtype=np.int32)
OF_INTEGERS = {
    "index": lambda i: 3 * i[jnp.array([0, 0, 3])],
    "sum": jnp.sum,
    "cumsum": jnp.cumsum,
    "select": lambda i: jnp.where(np.array([True, False, True, True]), i, -2 * i),
    "scatter": lambda i: jnp.zeros(6, jnp.int32).at[1:5].add(i),
    "several": lambda i: {"a": i.reshape(2, 2).T, "b": [2 * i, i[0]]},
    "jit": jax.jit(lambda i: jnp.concatenate([i, 2 * i])),
    "branch": lambda i: jax.lax.cond(jnp.array(True), lambda i: 2 * i, lambda i: i, i),
    "loop": lambda i: jax.lax.fori_loop(0, 3, lambda _, c: 2 * c, i),
    "rule": lambda i: jax.custom_derivatives.linear_call(
        lambda n, i: n * i, lambda n, ct: 10 * n * ct, jnp.int32(3), i
    ),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_the_transpose_of_a_map_of_integers(name):
    function = OF_INTEGERS[name]
    cotangent = jax.tree.map(lambda x: 1 + jnp.arange(x.size).reshape(x.shape), function(INTEGERS))
    ours, theirs = (lib.linear_transpose(function, INTEGERS) for lib in (pb, jax))
    assert_agrees(ours(cotangent), theirs(cotangent))
    if name == "index":
        assert ours(jnp.arange(3))[0].tolist() == [3, 0, 0, 6]


def test_maps_of_several_integers_and_of_numbers_of_python():
    two, unused = (lambda i, j: i - 2 * j), (lambda i, j: i)
    for function in (two, unused):
        found, expected = (
            lib.linear_transpose(function, INTEGERS, INTEGERS)(INTEGERS) for lib in (pb, jax)
        )
        assert_agrees(found, expected)
    assert pb.linear_transpose(lambda n: 2 * n, 3)(5) == (10,)
    matrix = jnp.arange(4)
    transposed = pb.linear_transpose(lambda i: matrix * i, INTEGERS)
    (found,) = jax.jit(lambda f, ct: f(ct))(transposed, INTEGERS)
    assert found.tolist() == (np.arange(4) * INTEGERS).tolist()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda i: np.ones((2, 4), np.int32) @ i, r"behind `stablehlo.dot_general`\n.*_maps.py:"),
        (lambda i: i + np.ones((4, 4), np.int32) @ i, "behind `stablehlo.dot_general`"),
        (lambda i: (i, i.astype(jnp.int8)), "behind `stablehlo.convert`"),
        (lambda i: 2.0 * i, "behind `stablehlo.convert`"),
        (lambda i: 2 * i + (i > 1), "behind `stablehlo.compare`"),
        (lambda i: i * i, "by JAX's rules: AssertionError"),
        (jnp.sort, "by JAX's rules: "),
        (lambda i: jax.lax.while_loop(lambda c: c[0] < 9, lambda c: 2 * c, i), "behind `stable"),
    ],
)
def test_what_jax_does_not_transpose_of_integers_is_said(function, words):
    with pytest.raises(NotLinearError, match=words) as caught:
        pb.linear_transpose(function, INTEGERS)
    assert "convert its arguments to floats" in caught.value.do


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (pb.trace(lambda n: 2 * n)(3), (3,)),
        (lambda n, x: (2 * n, 2 * x), (3, 1.0)),
        (lambda n: n, (True,)),
    ],
)
def test_programs_of_integers_have_no_transpose_nor_have_bools(function, arguments):
    with pytest.raises(DerivativeTypeError, match=r"transpose requires.*n is ") as caught:
        pb.linear_transpose(function, *arguments)
    assert caught.value.do == "convert it to a float"  # there are no argnums


def test_a_transposed_function_crosses_the_border_of_a_jitted_one():
    matrix = np.arange(6.0, dtype=np.float32).reshape(2, 3)

    @jax.jit
    def made(matrix):
        scaled = 2 * matrix
        return pb.linear_transpose(lambda x: jnp.tanh(scaled) @ x, jnp.ones(3))

    transposed = made(matrix)
    (found,) = jax.jit(lambda f, ct: f(ct))(transposed, np.ones(2, np.float32))
    np.testing.assert_allclose(found, np.tanh(2 * matrix).sum(0), rtol=1e-6)


@pytest.mark.parametrize("again", [jax.linear_transpose, pb.linear_transpose])
def test_the_transpose_of_a_tangent_beside_its_value(again):
    """The value does not depend on the tangent, and nobody has a cotangent for it."""
    x = jnp.array([0.3, 1.2])
    function = lambda x: jnp.sin(x) * x  # noqa: E731
    program = pb.trace(function)(x).jvp()
    expected = jnp.cos(x) * x + jnp.sin(x)
    for push in (lambda t: pb.jvp(function, (x,), (t,))[1], lambda t: program(x, t)[1]):
        np.testing.assert_allclose(again(push, x)(jnp.ones(2))[0], expected, rtol=1e-6)
    beside = pb.jit(lambda t: (jnp.sin(x), 2 * t, 3 * t))
    np.testing.assert_allclose(again(lambda t: beside(t)[1], x)(x)[0], 2 * x)
    both = again(lambda t: beside(t)[1:], x)((x, x))[0]
    close(both, 5 * x, ops=3)
    if again is jax.linear_transpose:  # JAX leaves out what does not depend on the input
        close(again(beside, x)((x, x, x))[0], 5 * x, ops=3)
        return
    with pytest.raises(pb.NotLinearError, match="does not depend on the tangents and is not zero"):
        again(beside, x)((x, x, x))


def fails(call, words):
    with pytest.raises(ArgumentMismatchError, match=words) as caught:
        call()
    assert isinstance(caught.value, (TypeError, ValueError))


def test_tangents_and_cotangents_that_do_not_fit():
    primals = POINT, SCALE
    pull = pb.vjp(function, *primals)[1]
    ones = np.ones(3, np.float32)
    jvp = functools.partial(pb.jvp, function, primals)
    fails(lambda: jvp((DIRECTION, ones[:2])), r"tangent of y must have type.*float32\[2\]")
    fails(lambda: jvp((DIRECTION, POINT["n"])), r"tangent of y must have type.*int32\[2\]")
    fails(lambda: jvp((DIRECTION,)), r"same tree structure(.|\n)*primals\[1\]")
    fails(lambda: pb.jvp(function, POINT, SCALE), "must be tuples or lists")
    product = pb.vjp(lambda x, y: x * y, 3.0, 4.0)[1]
    fails(lambda: product((7.0, 100.0)), r"same tree structure(.|\n)*got: +PyTreeDef\(\(\*, \*\)\)")
    fails(lambda: pull((ones,)), r"same tree structure(.|\n)*result\[1\]")
    fails(lambda: pull((ones[:2], None)), r"cotangent of result\[0\].*float32\[3\].*float32\[2\]")
    fails(lambda: pull(ones, None), "takes one argument, but got 2")


def dictionary(tree):
    return {"u": jnp.sin(tree["a"]) * tree["b"], "v": tree["b"] * tree["b"]}


TREE = {"a": np.arange(4, dtype=np.float32).reshape(2, 2) + 0.5, "b": np.float32(1.5)}


@pytest.mark.parametrize("name", ["jacfwd", "jacrev"])
def test_jacobians(name):
    ours, theirs = getattr(pb, name), getattr(jax, name)
    assert_agrees(ours(dictionary)(TREE), theirs(dictionary)(TREE))
    program = pb.trace(dictionary)(TREE)
    assert_agrees(ours(program)(TREE), theirs(dictionary)(TREE))

    def with_aux(tree, y):
        return dictionary(tree)["u"] * y, y

    options = {"argnums": (0, 1), "has_aux": True}
    assert_agrees(ours(with_aux, **options)(TREE, 2.0), theirs(with_aux, **options)(TREE, 2.0))
    empty = np.zeros((0,), np.float32)
    assert_agrees(ours(wave)(empty), theirs(wave)(empty))
    z = np.array([1 + 2j, 0.5j], np.complex64)
    assert_agrees(ours(wave, holomorphic=True)(z), theirs(wave, holomorphic=True)(z))
    with pytest.raises(DerivativeTypeError, match=f"{name} requires real-valued inputs.*int32"):
        ours(wave)(3)
    with pytest.raises(DerivativeTypeError, match=f"{name} with holomorphic=True requires inputs"):
        ours(wave, holomorphic=True)(3.0)


@pytest.mark.parametrize("name", ["jacfwd", "jacrev"])
def test_a_jacobian_and_its_auxiliary_data_are_of_one_run(name):
    drawn = []

    def draw():
        drawn.append(len(drawn) + 1.0)
        return np.float32(drawn[-1])

    def scaled(x):
        scale = io_callback(draw, jax.ShapeDtypeStruct((), jnp.float32))
        return scale * x, scale

    jacobian, scale = getattr(pb, name)(scaled, has_aux=True)(SCALE)
    assert_agrees(jacobian, scale * np.eye(3, dtype=np.float32))
    assert drawn == [1.0]


def test_hessian():
    def function(tree):
        return jnp.sum(jnp.sin(tree["a"]) * tree["b"])

    assert_agrees(pb.hessian(function)(TREE), jax.hessian(function)(TREE))
    assert_agrees(pb.jacrev(jax.jacfwd(function))(TREE), jax.hessian(function)(TREE))
    assert_agrees(jax.jacfwd(pb.jacrev(function))(TREE), jax.hessian(function)(TREE))


def counted(n, flag, x):
    return {"scaled": x * n, "square": jnp.where(flag, x, 0.0) ** 2}


@pytest.mark.parametrize("name", ["jacfwd", "jacrev", "hessian"])
def test_jacobians_of_what_has_no_pair_or_no_position_or_nothing_at_all(name):
    jacobian = getattr(pb, name)
    with pytest.raises(DerivativeTypeError, match="must return a pair"):
        jacobian(jnp.sin, has_aux=True)(SCALE)
    with pytest.raises(ArgumentMismatchError, match=r"argnums=0\.5 is not a position"):
        jacobian(jnp.sin, argnums=0.5)
    assert jacobian(lambda x: None)(SCALE) is None
    assert jacobian(jnp.sum, argnums=())(SCALE) == ()
    numbers = jacobian(lambda x, y: jnp.sum(x * y**2), argnums=np.int64(1))(SCALE, SCALE)
    assert_agrees(numbers, jacobian(lambda x, y: jnp.sum(x * y**2), argnums=1)(SCALE, SCALE))


@pytest.mark.parametrize("x", [SCALE, jnp.zeros((0,)), {"a": SCALE, "b": 2 * SCALE}])
def test_the_jacobian_of_an_integer_result_is_zeros_of_its_type(x):
    def counted(x):
        total = sum(map(jnp.sum, jax.tree.leaves(x)))
        return total.astype(jnp.int8)

    assert_agrees(pb.jacfwd(counted)(x), jax.jacfwd(counted)(x))
    both = pb.jacfwd(lambda x: (counted(x), jnp.sum(jax.tree.leaves(x)[0])))(x)
    assert_agrees(both[0], jax.jacfwd(counted)(x))  # JAX fails where there are both
    with pytest.raises(DerivativeTypeError, match=r"requires real-valued outputs.*bool"):
        pb.jacfwd(lambda x: counted(x) > 0)(x)


def test_the_jacobian_of_integers_is_zeros_of_their_type():
    arguments = np.arange(2, dtype=np.int8), True, np.float32(3)
    found, wanted = (each.jacrev(counted, (0, 2), allow_int=True)(*arguments) for each in (pb, jax))
    types = [jax.tree.map(jax.typeof, each) for each in (found, wanted)]
    assert types[0] == types[1]
    assert_agrees(found, wanted)
    by_flag = pb.jacrev(counted, 1, allow_int=True)(*arguments)  # where JAX fails
    assert jax.tree.map(jax.typeof, by_flag) == jax.tree.map(
        jax.typeof, {"scaled": np.zeros(2, bool), "square": np.zeros((), bool)}
    )


OF_ANOTHER_KIND = {
    "an integer": (np.float32(2), 1),
    "a bool": (np.float32(2), True),
    "a complex number": (np.float32(2), 1j),
    "a real number": (np.complex64(2), 1.0),
}


@pytest.mark.parametrize("kind", OF_ANOTHER_KIND)
def test_numbers_of_another_kind_are_no_tangents_and_no_cotangents(kind):
    x, given = OF_ANOTHER_KIND[kind]
    takers = {
        "jvp": (lambda m: m.jvp(wave, (x,), (given,)), "tangent of "),
        "vjp": (lambda m: m.vjp(wave, x)[1](given), "cotangent of result"),
        "linearize": (lambda m: m.linearize(wave, x)[1](given), "tangent of "),
        "transpose": (
            lambda m: m.linear_transpose(lambda x: 2 * x, x)(given),
            "cotangent of result",
        ),
    }
    for take, words in takers.values():
        with pytest.raises((TypeError, ValueError)):
            take(jax)
        with pytest.raises(ArgumentMismatchError, match=f"{words}.* must have type .*, but it is"):
            take(pb)


def test_an_integer_has_no_tangent_and_any_cotangent():
    with pytest.raises(ArgumentMismatchError, match="an integer has no tangent") as caught:
        pb.jvp(function, (POINT, SCALE), ({**DIRECTION, "n": POINT["n"]}, SCALE))
    assert caught.value.where == "tangent of primals[0]['n']"
    _, pull = pb.vjp(function, POINT, SCALE)
    _, expected = jax.vjp(function, POINT, SCALE)
    for of_integers in (POINT["n"], np.ones(2, np.float32), FLOAT0):
        assert_agrees(pull((SCALE, of_integers)), expected((SCALE, of_integers)))


@pytest.mark.parametrize("wrong", [(1.0,), {"a": 1.0}, [None], (np.zeros((), jax.dtypes.float0),)])
def test_the_cotangent_of_an_integer_is_no_container(wrong):
    _, pull = pb.vjp(lambda x: (x, 3), 2.0)
    for fits in (None, np.zeros((), jax.dtypes.float0), 0, 1.0):
        assert pull((1.0, fits)) == (1.0,)
    with pytest.raises(ArgumentMismatchError, match=r"must have the same tree structure"):
        pull((1.0, wrong))


@pytest.mark.parametrize("cotangent", [1.0, jnp.float32(1)], ids=["weak", "strong"])
def test_a_cotangent_is_weakly_typed_where_it_is_for_jax(cotangent) -> None:
    found, wanted = (each.vjp(lambda x: jnp.sin(x) * 2, 2.0)[1](cotangent) for each in (pb, jax))
    assert [x.aval for x in found] == [x.aval for x in wanted]
