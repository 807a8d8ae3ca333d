"""What must be linear and is not: an error that says where, and what to do."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import linear_call

import pullback as pb
import pullback_runtime
from pullback import _jax
from pullback._jax import ir
from pullback.errors import NotDifferentiableError, NotLinearError
from pullback.passes.manager import run_pipeline

X = jnp.array([0.3, 0.7])


def with_rule(tangent):
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), tangent(*p, *t)))
    return f


def many_cosines(x):
    for _ in range(30):  # too many ops to be inlined
        x = jnp.cos(x)
    return x


def cosines_times(x, t):
    return many_cosines(x) * t


@jax.custom_vjp
def pair(x, y):
    return jnp.sin(x), 3 * y


pair.defvjp(lambda x, y: (pair(x, y), x), lambda x, cts: (cts[0] * jnp.cos(x), 3 * cts[1]))


@jax.jit
def long(x):
    for _ in range(30):  # too many ops to be inlined
        x = x * X + x
    return x


KEEPS_ZERO = {
    "while": lambda x: lax.while_loop(
        lambda s: s[0] < jnp.sum(X), lambda s: (s[0] + 1, 2 * s[1]), (0.0, x)
    )[1],
    "scan": lambda x: lax.scan(lambda c, _: (c * X, None), x, length=3)[0],
    "two carries": lambda x: lax.fori_loop(0, 3, lambda i, c: (c[1] * 2, c[0]), (x, x))[0],
    "cond": lambda x: lax.cond(X[0] > 0, lambda x: 2 * x, lambda x: x * X, x),
    "call": long,
    "composite": jnp.cumsum,
    "checkpoint": jax.checkpoint(lambda x: 2 * x),
    "barrier": lambda x: lax.optimization_barrier((X, x))[1],
    "solve": lambda x: lax.linalg.triangular_solve(jnp.eye(2) + X, x[:, None], left_side=True)[0],
    "fft": lambda x: jnp.real(jnp.fft.fft(x)),
}


@pytest.mark.parametrize("name", KEEPS_ZERO)
def test_a_term_that_is_zero_is_linear(name):
    """Behind loops, branches and calls too."""
    f = with_rule(lambda x, t: jnp.cos(x) * t + KEEPS_ZERO[name](jnp.zeros(2)))
    assert jnp.allclose(pb.vjp(f, X)[1](X)[0], jnp.cos(X) * X)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", KEEPS_ZERO)
def test_such_terms_are_linear_as_other_platforms_have_them(name, platform):
    """A GPU has cumulative sums as scans."""
    f = with_rule(lambda x, t: jnp.cos(x) * t + KEEPS_ZERO[name](jnp.zeros(2)))
    program = pb.trace(f, platforms=platform)(X).for_platform(platform).vjp()
    if "custom_call" not in str(program):
        assert jnp.allclose(program(X, X)[1][0], jnp.cos(X) * X)


def filled(start, element, count=2):
    """A loop that reverse mode takes for one that only stacks."""

    def body(state):
        i, buffer = state
        new = element(i)[None]
        return i + 1, lax.dynamic_update_slice(buffer, new, (i,), allow_negative_indices=False)

    return lax.while_loop(lambda state: state[0] < count, body, (jnp.int32(0), start))[1]


HANDED_ON = {
    "a branch with zeros": lambda x, t: lax.cond(x[0] > 1, jnp.zeros_like, lambda t: 3 * t, t),
    "a branch with NaN": lambda x, t: lax.cond(x[0] > 1, lambda t: t * jnp.nan, lambda t: 3 * t, t),
    "a loop that overwrites a constant": lambda x, t: lax.fori_loop(
        0, 2, lambda i, c: (c[0], 3 * c[0]), (t, x)
    )[1],
    "a loop that fills all of a constant": lambda x, t: filled(x, lambda i: 3 * t[i]),
    "another result": lambda x, t: lax.fori_loop(
        0, 2, lambda i, c: (c[1] * 0 + 3 * t, c[1]), (t, x)
    )[0],
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_a_constant_that_no_result_has_is_no_term(name):
    f = with_rule(HANDED_ON[name])
    assert jnp.allclose(pb.vjp(f, X)[1](X)[0], 3 * X)


def test_a_loop_may_hand_on_a_zero_beside_what_is_linear():
    """The body alone does not say that it is zero: the carry starts so, and the other is linear."""

    def tangent(x, t):
        def body(state):
            i, one, other = state
            return i + 1, other * 2, jnp.where(i > 5, one, other)

        found = lax.while_loop(lambda s: s[0] < jnp.sum(x) + 1, body, (0.0, jnp.zeros(2), t))
        zeros = lax.while_loop(lambda s: s[0] < jnp.sum(x), body, (0.0, *[jnp.zeros(2)] * 2))
        linear = lax.while_loop(
            lambda s: s[0] < jnp.sum(x) + 1,
            lambda s: (s[0] + 1, 2 * s[1] + s[2] + zeros[1], s[3], s[2] * x),
            (0.0, t, zeros[2], jnp.zeros(2)),
        )
        return found[1] + linear[1]

    assert jnp.allclose(pb.vjp(with_rule(tangent), X)[1](X)[0], 6 * X)


@pytest.mark.parametrize("name", KEEPS_ZERO)
def test_a_cotangent_that_is_zero_may_go_through_anything(name):
    """The rule gives 3 * 0 for its second operand."""
    _, push = pb.linearize(lambda x: pair(x, KEEPS_ZERO[name](jnp.sin(x)))[0] * x, X)
    assert jnp.allclose(push(X), (jnp.sin(X) + jnp.cos(X) * X) * X)


RULES = {
    "a product of tangents": (lambda x, t: t * t, "is not linear in its operands"),
    "a sum with a constant": (lambda x, t: t + 1.0, "adds a term to it"),
    "a select with a constant": (lambda x, t: lax.select(x > 0, t, x), "adds a term to it"),
    "no tangent in it": (lambda x, t: jnp.cos(x), "does not depend on the tangents"),
    "a function that is not linear": (lambda x, t: jnp.sin(t), "is not linear in its operands"),
    "a loop from zero": (
        lambda x, t: t + lax.fori_loop(0, 3, lambda i, c: c + x, 0 * x),
        "adds a term to it",
    ),
    "a loop that hands on to a zero": (
        lambda x, t: t + lax.fori_loop(0, 3, lambda i, c: c[::-1], (jnp.zeros(2), x))[0],
        "adds a term to it",
    ),
    "a branch that is not zero": (
        lambda x, t: t + lax.cond(x[0] > 0, jnp.zeros_like, jnp.ones_like, x),
        "adds a term to it",
    ),
    "a call that makes ones of zeros": (
        lambda x, t: t + jax.jit(many_cosines)(jnp.zeros(2)),
        "adds a term to it",
    ),
    "a branch that gives a constant": (
        lambda x, t: lax.cond(x[0] > 0, jnp.ones_like, lambda t: t, t),
        "result 0 of a branch of `stablehlo.case` does not depend on the input",
    ),
    "a loop that goes on with a constant": (
        lambda x, t: lax.fori_loop(0, 3, lambda i, c: jnp.ones_like(c), t),
        "carry . after an iteration of `stablehlo.while` does not depend on the input",
    ),
    "a loop of unknown length that goes on with a constant": (
        lambda x, t: lax.fori_loop(0, jnp.int32(5 * x[0]), lambda i, c: jnp.ones_like(c), t),
        "carry . after an iteration",
    ),
    "a loop that adds to a constant": (
        lambda x, t: lax.fori_loop(0, 3, lambda i, c: (c[0], c[0] + c[1]), (t, x))[1],
        "carry . before the first iteration of `stablehlo.while` does not depend on the input",
    ),
    "a loop that exchanges with a constant": (
        lambda x, t: lax.fori_loop(0, 3, lambda i, c: c[::-1], (t, x))[0],
        "carry . before the first iteration",
    ),
    "a loop that fills a part of a constant": (
        lambda x, t: filled(x, lambda i: t[i], 1),
        "carry . before the first iteration",
    ),
    "a loop that stacks constants": (
        lambda x, t: filled(t, lambda i: x[i]),
        "carry . after an iteration",
    ),
    "a loop of unknown length that may leave a constant": (
        lambda x, t: lax.fori_loop(0, jnp.int32(5 * x[0]), lambda i, c: (c[0], c[0]), (t, x))[1],
        "carry . before the first iteration",
    ),
}


def while_it_is_large(t):
    return lax.while_loop(lambda c: jnp.sum(c) > 1e-3, lambda c: 0.5 * c, t)


def test_a_reduction_of_zeros_is_not_zero_by_what_its_body_takes_from_outside():
    text = """func.func public @main(%x: tensor<f64>) -> tensor<f64> {
      %zeros = stablehlo.constant dense<0.0> : tensor<3xf64>
      %init = stablehlo.constant dense<0.0> : tensor<f64>
      %one = stablehlo.constant dense<1.0> : tensor<f64>
      %ones = stablehlo.reduce(%zeros init: %init) across dimensions = [0]
        : (tensor<3xf64>, tensor<f64>) -> tensor<f64>
      reducer(%a: tensor<f64>, %b: tensor<f64>) {
        %larger = stablehlo.maximum %a, %one : tensor<f64>
        stablehlo.return %larger : tensor<f64>
      }
      %y = stablehlo.add %x, %ones : tensor<f64>
      return %y : tensor<f64>
    }"""
    module = ir.Module.parse(text, _jax.context())
    with pytest.raises(NotLinearError, match="adds a term to it"):
        run_pipeline(module, "transpose")


IMPLICIT = """func.func public @main(%x: tensor<2xf32>) -> tensor<3x2xf32> {
  %c = stablehlo.constant dense<4.0> : tensor<3x2xf32>
  %y = chlo.broadcast_OP %x, %c : (tensor<2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  return %y : tensor<3x2xf32> }"""


@pytest.mark.parametrize(("op", "expected"), [("multiply", 12.0), ("divide", 0.75)])
def test_an_op_with_an_implicit_broadcast_is_linear_where_the_explicit_one_is(op, expected):
    module = ir.Module.parse(IMPLICIT.replace("OP", op), _jax.context())
    run_pipeline(module, "transpose")
    (found,) = pullback_runtime.compile(module)(jnp.ones((3, 2)))
    assert jnp.allclose(found, expected)


def test_a_zero_with_an_implicit_broadcast_is_no_term():
    text = """func.func public @main(%x: tensor<3xf32>, %p: tensor<i1>) -> tensor<3xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %y = chlo.broadcast_select %p, %x, %zero
        : (tensor<i1>, tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
      return %y : tensor<3xf32> }"""
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, "transpose")
    (found,) = pullback_runtime.compile(module)(True, jnp.ones(3))
    assert jnp.allclose(found, 1.0)


@pytest.mark.parametrize("op", ["add", "subtract"])
def test_a_constant_with_an_implicit_broadcast_is_a_term(op):
    module = ir.Module.parse(IMPLICIT.replace("OP", op), _jax.context())
    with pytest.raises(NotLinearError, match=f"`stablehlo.{op}` adds a term to it"):
        run_pipeline(module, "transpose")


@pytest.mark.parametrize("result", [lambda x, t: jnp.sin(x) + t, lambda x, t: jnp.sin(x) + 0 * t])
def test_a_rule_whose_function_result_depends_on_the_tangent_has_no_transpose(result):
    """A residual had been taken for the result. JAX refuses as well."""
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (result(*p, *t), jnp.cos(*p) * t[0]))
    with pytest.raises(NotLinearError, match=r"result 0 of the function.*depends on the tangents"):
        pb.grad(lambda x: jnp.sum(f(x) ** 2))(X)
    assert jnp.allclose(pb.jvp(f, (X,), (X,))[1], jnp.cos(X) * X)


DEPENDING = {
    "where": (lambda x, t: jnp.where(t > 0, 2 * t, t), "compare"),
    "cond": (lambda x, t: lax.cond(jnp.sum(t) > 0, lambda t: 2 * t, lambda t: t, t), "compare"),
    "while": (lambda x, t: while_it_is_large(t), "while"),
    "in a branch": (
        lambda x, t: lax.cond(x[0] > 0, while_it_is_large, lambda t: t, t),
        "case",
    ),
    "in a loop": (
        lambda x, t: lax.scan(lambda c, x: (jnp.where(c > 0, 2 * c, c * x), None), t, x)[0],
        "(while|compare)",
    ),
    "run-time bounds": (
        lambda x, t: lax.fori_loop(0, jnp.sum(t).astype(int), lambda _, c: 2 * c, t),
        "convert",
    ),
    "index": (lambda x, t: t[jnp.argmax(t)] * x, "call"),
    "slice": (
        lambda x, t: lax.dynamic_slice(jnp.tile(t, 2), [jnp.sum(t).astype(int)], [2]),
        "convert",
    ),
    "integer": (lambda x, t: t * (1 + jnp.sum(t).astype(int)), "convert"),
    "step": (lambda x, t: t * (1 + jnp.floor(t)), "floor"),
    "step of what a call gives": (
        lambda x, t: (lambda y: y * (1 + jnp.sign(y)))(jax.jit(cosines_times)(x, t)),
        "sign",
    ),
    "bits": (lambda x, t: t * (lax.bitcast_convert_type(t, jnp.int32) > 0), "composite"),
    "call": (jax.jit(lambda x, t: jax.jit(lambda t: t > 0)(many_cosines(t)) * t), "(call|compare)"),
}


def as_backward(rule):
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (rule(x, ct),))
    return f


@pytest.mark.parametrize("name", DEPENDING)
def test_what_depends_on_the_tangent_in_another_way_is_not_linear(name):
    """It was taken for zero there. JAX refuses too, with an AssertionError."""
    rule, op = DEPENDING[name]
    derive = (
        lambda: pb.vjp(with_rule(rule), X)[1](X),
        lambda: pb.jvp(as_backward(rule), (X,), (X,)),
        lambda: pb.linearize(as_backward(rule), X),
        lambda: pb.linear_transpose(lambda t: rule(X, t), X)(X),
    )
    for each in derive:
        with pytest.raises(NotLinearError, match=rf"`[a-z]*\.{op}` makes the result depend on"):
            each()
    assert jnp.allclose(pb.vjp(as_backward(rule), X)[1](X)[0], rule(X, X))


@jax.jit
def both(x, t):
    return many_cosines(x), many_cosines(x) * t


def test_other_results_of_a_call_may_depend_on_the_tangent():
    """As those of loops and branches may, where nothing needs them."""

    def tangent(x, t):
        y, dy = lax.fori_loop(0, 3, lambda _, state: both(*state), (x, t))
        z, _ = both(y, 2 * dy)
        w, _ = lax.cond(x[0] > 0, lambda: (z, dy > 0), lambda: (x, dy < 0))
        return w * dy

    expected = jax.vjp(lambda t: tangent(X, t), X)[1](X)[0]
    assert jnp.allclose(pb.vjp(with_rule(tangent), X)[1](X)[0], expected)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_not_linear_in_its_tangents(name):
    tangent, words = RULES[name]
    program = pb.trace(with_rule(tangent))(X)
    program.jvp()
    with pytest.raises(NotLinearError, match=words) as caught:
        program.vjp()
    assert "test_not_linear.py" in caught.value.where
    assert "linear in" in caught.value.do


def test_the_residuals_of_a_linear_call_are_not_what_it_is_linear_in():
    def times(residuals, v):
        return residuals * v

    program = pb.trace(lambda r, v: linear_call(times, times, r, v))(X, X)
    transposed = program.transpose(1)
    assert jnp.array_equal(transposed(X, X), X * X)
    with pytest.raises(NotLinearError, match="is not linear in its residuals") as caught:
        program.transpose(0)
    assert "test_not_linear.py" in caught.value.where
    assert "behind the residuals" in caught.value.do


def test_a_program_that_is_not_linear_cannot_be_transposed():
    with pytest.raises(NotLinearError, match="is not linear in its operands"):
        pb.trace(jnp.sin)(X).transpose(0)


def doubled(x, count):
    for _ in range(count):
        x = x + x
    return x


ZEROS = {
    "moved around": lambda x: lax.dynamic_slice(
        lax.select(x > 0, jnp.zeros(2), -jnp.zeros(2)), (1,), (1,)
    ),
    "scattered and summed": lambda x: jnp.zeros((2, 2)).at[0, 1].add(0.0).sum(0),
    "a product": lambda x: jnp.outer(x, x) @ jnp.zeros(2),
    "doubled again and again": lambda x: doubled(jnp.zeros(2), 60),
}


@pytest.mark.parametrize("name", ZEROS)
def test_a_term_that_is_zero_does_not_make_a_rule_affine(name):
    program = pb.trace(with_rule(lambda x, t: 3.0 * t + ZEROS[name](x)))(X)
    assert jnp.allclose(program.vjp()(X, X)[1][0], 3.0 * X)


SCATTER_OF_TWO = """
func.func @main(%x: tensor<2xf64>) -> tensor<2xf64> {
  %y = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<2xf64>) -> tensor<2xf64>
  return %y : tensor<2xf64>
}
func.func private @f(%x: tensor<2xf64>) -> tensor<2xf64> {
  return %x : tensor<2xf64>
}
func.func private @f.jvp(%x: tensor<2xf64>, %t: tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>) {
  %i = stablehlo.constant dense<0> : tensor<1xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<2xf64>
  %found:2 = "stablehlo.scatter"(%zero, %zero, %i, %t, %zero) <{
    scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [0], scatter_dims_to_operand_dims = [0]>
  }> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
    stablehlo.return %c, %d : tensor<f64>, tensor<f64>
  }) : (tensor<2xf64>, tensor<2xf64>, tensor<1xi32>, tensor<2xf64>, tensor<2xf64>)
    -> (tensor<2xf64>, tensor<2xf64>)
  return %x, %found#0 : tensor<2xf64>, tensor<2xf64>
}
"""


def test_a_scatter_of_two_operands_is_zero_where_all_updates_are():
    module = ir.Module.parse(SCATTER_OF_TWO, _jax.context())
    run_pipeline(module, "builtin.module(jvp,to-stablehlo)")
    handle = pullback_runtime.make_handle(str(module))
    call = functools.partial(pullback_runtime.call_module, handle)
    with jax.enable_x64(True):
        assert jax.jit(call)(jnp.ones(2), jnp.array([5.0, 7.0]))[1].tolist() == [5.0, 7.0]


def test_long_sums_are_not_followed_to_their_end():
    """The slice comes last in reverse, and would rather find zeros to write into."""

    def function(x):
        total = x[1:].sum()
        for _ in range(1200):
            total += jnp.sum(x)
        return total

    assert jnp.allclose(pb.trace(function)(X).grad()(X), jnp.array([1200.0, 1201.0]))


OF_TWO = {
    "a select": lambda x, dx, dy: jnp.where(x > 0, dx, 2.0 * dx) + dy * x,
    "a primitive with a rule": lambda x, dx, dy: jnp.cumsum(dx) + dy * x,
    "a loop": lambda x, dx, dy: lax.fori_loop(0, 2, lambda i, c: c * x + dy, dx),
    "a branch": lambda x, dx, dy: lax.cond(x[0] > 0, lambda d: d * x, lambda d: d, dx) + dy,
    "padding by an integer": lambda x, dx, dy: jnp.pad(dx, 1)[1:3] + dy * x,
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", OF_TWO)
def test_a_rule_of_two_operands_is_linear_in_the_tangent_of_each(name, number):
    """That of the other is zero then, which the rule does not always show."""
    f = jax.custom_jvp(jnp.multiply)
    f.defjvp(lambda p, t: (f(*p), OF_TWO[name](p[0], *t)))
    y = jnp.array([1.1, -0.4])
    found = pb.trace(f)(X, y).vjp(wrt=number)(X, y, X)[1]
    assert jnp.allclose(found, jax.vjp(f, X, y)[1](X)[number])


@jax.jit
def long_with_sign(t):
    for _ in range(30):  # too many ops to be inlined
        t = t * X + t
    return t, jnp.sum(t) > 0


def test_a_call_may_give_what_is_no_linear_result_if_nobody_uses_it():
    """As linear solvers give how they ended, beside the solution."""
    f = with_rule(lambda x, t: long_with_sign(t)[0])
    assert jnp.allclose(pb.vjp(f, X)[1](X)[0], jax.vjp(f, X)[1](X)[0])
    assert jnp.allclose(pb.load(pb.artifact.serialize(pb.trace(f)(X))).vjp()(X, X)[1][0], long(X))


def test_but_not_if_somebody_does():
    def tangent(x, t):
        found, is_positive = long_with_sign(t)
        return jnp.where(is_positive, found, 2 * found)

    with pytest.raises(NotLinearError, match="makes the result depend on the input"):
        pb.vjp(with_rule(tangent), X)[1](X)


DECIDES = """func.func public @main(%x: tensor<f64>) -> tensor<2xf64> {
  %c = stablehlo.constant dense<[3.0, 5.0]> : tensor<2xf64>
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %p = stablehlo.compare GT, %x, %zero : (tensor<f64>, tensor<f64>) -> tensor<i1>
  STEP
  %wide = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f64>) -> tensor<2xf64>
  %y = stablehlo.multiply %found, %wide : tensor<2xf64>
  return %y : tensor<2xf64>
}
func.func private @again(%p: tensor<i1>, %c: tensor<2xf64>) -> tensor<2xf64> {
  %0 = call @again(%p, %c) : (tensor<i1>, tensor<2xf64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}
func.func private @blocks(%p: tensor<i1>, %c: tensor<2xf64>) -> tensor<2xf64> {
  cf.br ^bb1(%c : tensor<2xf64>)
^bb1(%0: tensor<2xf64>):
  return %0 : tensor<2xf64>
}"""
CALLED = "call @NAME(%p, %c) : (tensor<i1>, tensor<2xf64>) -> tensor<2xf64>"
DECIDED = {
    "the order of a sort": """"stablehlo.sort"(%c) <{dimension = 0 : i64}> ({
    ^bb0(%a: tensor<f64>, %b: tensor<f64>):
      %less = stablehlo.compare LT, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %order = stablehlo.xor %less, %p : tensor<i1>
      stablehlo.return %order : tensor<i1>
    }) : (tensor<2xf64>) -> tensor<2xf64>""",
    "a function of several blocks": CALLED.replace("NAME", "blocks"),
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_the_input_decides_is_not_linear(name):
    """The body of a sort was not looked at, and the other ended in an internal error."""
    text = DECIDES.replace("STEP", f"%found = {DECIDED[name]}")
    module = ir.Module.parse(text, _jax.context())
    with pytest.raises(NotLinearError, match=r"`stablehlo\.compare` makes the result depend on"):
        run_pipeline(module, "transpose")


def test_recursion_by_which_a_result_depends_on_the_input_is_an_error_in_words():
    text = DECIDES.replace("STEP", f"%found = {CALLED.replace('NAME', 'again')}")
    module = ir.Module.parse(text, _jax.context())
    with pytest.raises(NotDifferentiableError, match="`@again` calls itself"):
        run_pipeline(module, "transpose")


WITH_TERM = """func.func public @main(%x: tensor<f64>) -> tensor<f64> {
  %c = stablehlo.constant dense<TERM> : tensor<f64>
  %y = stablehlo.composite "pullback.CALL" %x, %c {
    composite_attributes = {RULES}, decomposition = @sum
  } : (tensor<f64>, tensor<f64>) -> tensor<f64>
  return %y : tensor<f64>
}
func.func private @sum(%x: tensor<f64>, %y: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.add %x, %y : tensor<f64>
  return %0 : tensor<f64>
}
func.func private @sum.t(%ct: tensor<f64>) -> (tensor<f64>, tensor<f64>) {
  return %ct, %ct : tensor<f64>, tensor<f64>
}"""


@pytest.mark.parametrize(
    ("call", "rules"),
    [
        ("linear_call", "num_residuals = 0 : i64, transpose = @sum.t"),
        ("custom_jvp_call", "transpose.11 = @sum.t"),
    ],
)
def test_a_transpose_of_two_operands_is_for_two_that_are_linear(call, rules):
    """The other was taken for linear, too, and left out. JAX refuses that."""
    text = WITH_TERM.replace("CALL", call).replace("RULES", rules)
    module = ir.Module.parse(text.replace("TERM", "0.0"), _jax.context())
    run_pipeline(module, "transpose")
    with jax.enable_x64(True):
        assert pullback_runtime.compile(module)(np.float64(2.0))[0] == 2.0
    module = ir.Module.parse(text.replace("TERM", "1.0"), _jax.context())
    with pytest.raises(NotLinearError, match=r"`sum` adds a term to it \(operand 1\)"):
        run_pipeline(module, "transpose")


SEEN = []


def seen(x):
    jax.debug.callback(lambda v: SEEN.append(float(v)), x)


@jax.jit
def both_seen(x, t):
    seen(x)
    seen(t)


SHOWN = {
    "the tangent": (lambda x, t: seen(t), []),
    "a part of what a call shows": (both_seen, [0.3]),
    "in a loop": (
        lambda x, t: lax.scan(lambda c, _: (2 * c, seen(c)), t, None, length=2),
        [],
    ),
    "beside the primal in a loop": (
        lambda x, t: lax.fori_loop(
            0, 2, lambda i, c: (2 * c[0], c[1], seen(c[0] + i)), (x, t, None)
        ),
        [0.3, 1.6],
    ),
    "in a branch": (lambda x, t: lax.cond(x > 0, seen, lambda t: None, t), []),
    "in a branch that it chooses": (
        lambda x, t: lax.cond(t > 0, lambda: None, lambda: seen(x)),
        [],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_nothing_is_shown_of_a_tangent_that_reverse_mode_does_not_compute(name):
    """It was shown as zero. JAX leaves it out, too."""
    show, expected = SHOWN[name]
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (show(*p, *t), (f(*p), jnp.cos(*p) * t[0]))[1])
    SEEN.clear()
    assert jnp.allclose(pb.grad(f)(0.3), jnp.cos(0.3))
    jax.effects_barrier()
    assert sorted(SEEN) == pytest.approx(expected)


def test_what_an_effect_gives_of_a_tangent_is_not_linear():
    text = """func.func public @main(%x: tensor<f64>) -> tensor<f64> {
      %y:2 = stablehlo.custom_call @kept(%x) {has_side_effect = true}
        : (tensor<f64>) -> (tensor<i32>, tensor<i32>)
      stablehlo.custom_call @kept(%y#0) {has_side_effect = true} : (tensor<i32>) -> ()
      return %x : tensor<f64>
    }"""
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, "transpose")
    assert "custom_call" not in str(module)
