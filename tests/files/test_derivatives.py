"""Loaded programs are differentiated: rules honoured, both modes, any order, after reloading."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact
from tests.files import models


def reload(program):
    return pb.load(artifact.serialize(program))


def cube_sum(x):
    return jnp.sum(models.doubled_sine(x) * x**3)


X = jnp.linspace(0.2, 1.0, 4)


def test_reverse_mode_honours_the_rule():
    loaded = reload(pb.trace(cube_sum)(X))
    assert jnp.allclose(loaded.grad()(X), jax.grad(cube_sum)(X))
    true = jax.grad(lambda x: jnp.sum(jnp.sin(x) * x**3))(X)
    assert not jnp.allclose(loaded.grad()(X), true), "the rule is not the true derivative"


def test_forward_mode_goes_through_a_custom_vjp():
    loaded = reload(pb.trace(cube_sum)(X))
    direction = jnp.array([1.0, -1.0, 2.0, 0.5])
    _, tangent = loaded.jvp()(X, direction)
    assert jnp.allclose(tangent, jnp.vdot(jax.grad(cube_sum)(X), direction))


def test_orders_without_end_and_a_save_between_any_two():
    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvp(lambda x, dx: (sine(*x), dx[0] * jnp.cos(x[0])))
    program, expected = pb.trace(sine)(0.7), sine
    for order in range(1, 4):
        program = reload(program).grad()
        expected = jax.grad(expected)
        assert jnp.allclose(program(0.7), expected(0.7)), order
    assert jnp.allclose(reload(program)(0.7), -jnp.cos(0.7))


def test_a_loaded_program_is_a_citizen_of_jax():
    loaded = reload(pb.trace(cube_sum)(X))
    assert jnp.allclose(jax.jit(loaded)(X), cube_sum(X))
    assert jnp.allclose(jax.grad(loaded)(X), jax.grad(cube_sum)(X))


def test_hessian_vector_product_over_a_dictionary_of_parameters():
    def loss(params, x):
        return jnp.sum(jnp.tanh(params["w"] @ x + params["b"]) ** 2)

    params = {"w": jnp.linspace(-1.0, 1.0, 8).reshape(2, 4), "b": jnp.ones(2)}
    direction = jax.tree.map(jnp.ones_like, params)
    loaded = reload(pb.trace(loss)(params, X))
    gradient = jax.grad(loss)
    _, expected = jax.jvp(lambda p: gradient(p, X), (params,), (direction,))
    _, found = loaded.grad().jvp(wrt=0)(params, X, direction)
    for name in params:
        assert jnp.allclose(found[name], expected[name], atol=1e-5), name


def test_a_rule_for_one_operand_is_in_the_file_where_another_has_none():
    """JAX has no derivative of `igamma` by its first argument but one, and all by the second."""

    def function(x):
        return jnp.sum(jax.scipy.special.gammainc(2.0, x))

    second = reload(pb.trace(function)(X)).grad().jvp()(X, X)[1]
    assert jnp.allclose(second, jax.jvp(jax.grad(function), (X,), (X,))[1], rtol=1e-4)


def scaled_by(w, fwd):
    @jax.custom_vjp
    def scaled(x):
        return jnp.sin(x) * w

    scaled.defvjp(fwd, lambda x, ct: (2 * jnp.cos(x) * ct,))
    return scaled


def test_a_rule_has_no_cotangents_of_what_its_function_closes_over():
    """JAX refuses to differentiate by it; a file must not answer zero."""

    def function(w, x):
        return jnp.sum(scaled_by(w, lambda x: (jnp.sin(x), x))(x))

    loaded = reload(pb.trace(function)(X, X))
    assert jnp.allclose(loaded.grad(1)(X, X), 2 * jnp.cos(X))
    assert jnp.allclose(loaded.jvp(wrt=1)(X, X, X)[1], jnp.vdot(2 * jnp.cos(X), X))
    for derive in (loaded.grad, loaded.jvp, loaded.linearize):
        with pytest.raises(pb.MissingRuleError, match="closes over a value that is diff") as caught:
            derive(0)
        assert "pass the value as an argument" in caught.value.do


def test_a_rule_that_uses_a_value_around_its_function():
    def function(w, x):
        return jnp.sum(scaled_by(w, lambda x: (jnp.sin(x) * w, x * w))(x))

    loaded = reload(pb.trace(function)(X, X))
    assert jnp.allclose(loaded.grad(1)(2 + X, X), 2 * jnp.cos(X * (2 + X)))
    with pytest.raises(pb.MissingRuleError, match="closes over a value that is differentiated"):
        loaded.grad(0)


def test_a_constant_that_a_function_with_a_rule_closes_over():
    weights = models.weights(100)[:4]
    scaled = scaled_by(weights, lambda x: (jnp.sin(x) * weights, x))
    loaded = reload(pb.trace(lambda x: jnp.sum(scaled(x)))(X))
    assert jnp.allclose(loaded.grad()(X), 2 * jnp.cos(X))
    assert jnp.allclose(reload(loaded.grad()).jvp()(X, X)[1], -2 * jnp.sin(X) * X)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_large_constant_of_a_rule_and_a_plain_one_of_the_module(dtype):
    large = (1 + models.weights(1 << 13)).astype(dtype)
    plain = jnp.asarray(large[:20])

    @jax.custom_vjp
    def scaled(x):
        return x * large

    scaled.defvjp(lambda x: (scaled(x), None), lambda _, ct: (2 * ct * large,))

    def function(x):
        return jnp.sum(jnp.real(scaled(x))) + jnp.sum(jnp.real(plain * x[:20]))

    x = jnp.ones(large.shape, dtype)
    loaded = reload(pb.trace(function)(x))
    assert jnp.allclose(loaded.grad()(x), jax.grad(function)(x))
    assert jnp.allclose(reload(loaded).grad()(x), jax.grad(function)(x))


def test_a_rule_that_derives_a_program_of_its_own():
    """While a file is written, such a program is traced and derived as at any other time."""

    def cube(x):
        return jnp.sum(models.doubled_sine(x) * x**3)

    @jax.custom_vjp
    def function(x):
        return cube(x)

    function.defvjp(lambda x: (cube(x), x), lambda x, ct: (3 * ct * pb.grad(cube)(x),))
    loaded = reload(pb.trace(lambda x: function(x))(X))
    assert jnp.allclose(loaded.grad()(X), 3 * jax.grad(cube)(X))
    assert jnp.allclose(reload(loaded.grad())(X), 3 * jax.grad(cube)(X))
    assert jnp.allclose(pb.grad(cube)(X), jax.grad(cube)(X))
    second = 3 * jax.jvp(jax.grad(cube), (X,), (X,))[1]
    assert jnp.allclose(loaded.grad().jvp()(X, X)[1], second, rtol=1e-4)


def test_checkpoints_come_back():
    """VHLO has no mark on functions: without it, reverse mode would keep what it should not."""

    def layers(x):
        for _ in range(2):
            x = jax.checkpoint(lambda x: jnp.sin(models.doubled_sine(x)))(x)
        return jnp.sum(x)

    program = pb.trace(layers)(X)
    marks = str(program).count("{pullback.checkpoint}")
    for loaded in (reload(program), reload(reload(program))):
        assert str(loaded).count("{pullback.checkpoint}") == marks > 0
        assert jnp.allclose(loaded.grad()(X), jax.grad(layers)(X))
        assert "optimization_barrier" in str(loaded.grad())


def test_a_module_without_rules_names_what_is_missing():
    text = """module { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @mystery(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32> } }"""
    with pytest.raises(pb.MissingRuleError, match="custom_call"):
        pb.load(text.encode(), allow_custom_calls=["mystery"]).vjp()


def nth(n):
    """A function whose every derivative is another one."""

    @jax.custom_jvp
    def function(x):
        return jnp.cumsum(jnp.sin(x + n))

    def rule(primals, tangents):
        return function(*primals), jnp.cumsum(2 * nth(n + 1)(*primals) * tangents[0])

    function.defjvp(rule)
    return function


def square_of_waves(x):
    return jnp.sum(nth(0)(x) ** 2)


@pytest.mark.parametrize(
    ("limit", "many", "order"), [("OPS", 10_000, 9), ("OPS", 0, 3), ("RULES", 6, 5)]
)
def test_rules_that_never_end_are_there_for_some_orders(limit, many, order, monkeypatch):
    monkeypatch.setattr(f"pullback.frontend.rules.stage_all.MANY_{limit}", many)
    content = artifact.serialize(pb.trace(square_of_waves)(X))
    assert pullback_runtime.files._container.read_layout(content).metadata["order"] == order
    loaded = pb.load(content)
    for _ in range(order):
        loaded = total(loaded).grad()
    with pytest.raises(pb.MissingRuleError, match="no jvp rule for `") as caught:
        total(loaded).grad()
    assert "(`pullback info` tells)" in caught.value.do


def test_rules_up_to_an_order():
    """Of a function whose every derivative is another one, a file has as many as it is told."""
    program, expected = pb.trace(square_of_waves)(X), square_of_waves
    sizes = []
    for order in (1, 2, 3):
        content = artifact.serialize(program, order=order)
        sizes.append(len(content))
        loaded, expected = pb.load(content), jax.grad(lambda x, f=expected: jnp.sum(f(x)))
        for _ in range(order):
            loaded = total(loaded).grad()
        assert jnp.allclose(loaded(X), expected(X), rtol=1e-4), order
        with pytest.raises(pb.MissingRuleError, match="no jvp rule for `") as caught:
            total(loaded).grad()
        assert "save with a higher order=" in caught.value.do
    assert sizes == sorted(set(sizes))
    with pytest.raises(pb.ArtifactError, match="cannot save for derivatives up to order 0"):
        artifact.serialize(program, order=0)
    with pytest.raises(pb.ArtifactError, match="cannot save for derivatives up to order 'all'"):
        artifact.serialize(program, order="all")


def total(program):
    return pb.trace(lambda x: jnp.sum(program(x)))(X)


def of_decompositions(x):
    """Its derivatives are by linear solves, and the transposes of these solve again."""
    a = 4 * jnp.eye(x.size) + jnp.outer(x, x**2)
    return jnp.sum(jnp.linalg.cholesky(a + a.T) ** 3) + jnp.linalg.slogdet(a)[1]


@pytest.mark.parametrize("order", [1, 2])
def test_any_derivative_up_to_an_order(order):
    """Also in reverse, by transposes of what rules call."""
    loaded = pb.load(artifact.serialize(pb.trace(of_decompositions)(X), order=order))
    both = [pb.grad, jax.grad], [pb.jacfwd, jax.jacfwd]
    for modes in itertools.product(both, repeat=order):
        ours, theirs = loaded, of_decompositions
        for n, (our_mode, their_mode) in enumerate(modes):
            ours, theirs = our_mode(_summed(ours, n)), their_mode(_summed(theirs, n))
        assert jnp.allclose(ours(X), jax.jit(theirs)(X), rtol=1e-4), modes


@pytest.mark.parametrize("order", [1, 2, None])
def test_a_solve_for_what_does_not_move(order):
    """Its rule solves for what does, by the same call, and that is transposed."""

    def function(x):
        c = jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(x.size))
        return jnp.sum(jax.scipy.linalg.solve_triangular(c, jnp.eye(x.size), lower=True) ** 2)

    loaded = pb.load(artifact.serialize(pb.trace(function)(X), order=order))
    assert jnp.allclose(loaded.grad()(X), jax.grad(function)(X), rtol=1e-4)


def _summed(f, order):
    return (lambda x: jnp.sum(f(x))) if order else f


def sums_up_to(x):
    """A cumulative sum by a primitive that is kept."""
    differences = jnp.eye(x.size) - jnp.eye(x.size, k=-1)
    return jax.scipy.linalg.solve_triangular(differences, x, lower=True)


def test_of_reverse_rules_up_to_an_order():
    @jax.custom_vjp
    def function(x):
        return cube_sum(x)

    function.defvjp(
        lambda x: (cube_sum(x), x),
        lambda x, ct: (sums_up_to(ct * jnp.cos(models.doubled_sine(x))),),
    )
    loaded = pb.load(artifact.serialize(pb.trace(lambda x: function(x))(X), order=1))
    gradient = jnp.cumsum(jnp.cos(jnp.sin(X)))
    assert jnp.allclose(loaded.grad()(X), gradient)
    assert jnp.allclose(loaded.jvp()(X, X)[1], jnp.vdot(gradient, X))
    with pytest.raises(pb.MissingRuleError, match="no vjp rule for `doubled_sine"):
        loaded.grad().jvp()


SEVERAL_ENTRIES = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @main.bwd(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.multiply %0, %x : tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @main.bwd(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @main_twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @main(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""


def test_a_module_of_others_may_have_more_entries(tmp_path):
    """One that calls `@main`, and one that is called as our functions are."""
    path = tmp_path / "several.mlir"
    path.write_text(SEVERAL_ENTRIES)
    loaded = pb.load(path)
    _, expected = jax.jvp(lambda x: jnp.sin(x) * x, (X,), (X,))
    assert jnp.allclose(loaded.jvp()(X, X)[1], expected)
    assert jnp.allclose(loaded.vjp()(X, X)[1][0], expected)
    forward, backward = loaded.split_vjp()
    assert jnp.allclose(backward(forward(X)[1], X)[0], expected)
