"""`program.as_jax()` of files: calls with rules for both modes, of maps, and of some operands."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import SymbolicZero, linear_call
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import pullback as pb
from pullback import artifact
from pullback.errors import MissingRuleError, NotLinearError
from tests._jax.test_both_rules import both, thrice

pytestmark = pytest.mark.whole

X = np.linspace(0.1, 0.9, 3)
MATRIX = np.eye(3) * 2 + np.arange(9).reshape(3, 3) / 10
GRID = np.linspace(0, 1, 7)
SMOOTH = np.array([0.12, 0.57, 0.93])
"""A point where no function of JAX here has a kink."""


@pytest.fixture(autouse=True)
def in_64_bits():
    with jax.enable_x64(True):
        yield


def from_file(function, *args):
    return pb.load(artifact.serialize(pb.trace(function)(*args))).as_jax()


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------- what JAX itself has in both modes


def newton(f, y):
    return lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2), y)


def cube_root(x):
    one = jnp.ones_like(x)
    return lax.custom_root(lambda y: y**3 - x, one, newton, lambda g, y: y / g(one))


def ragged(x):
    sizes = jnp.array([1, 2], jnp.int32)
    a = jnp.outer(x, x).astype(jnp.float32)
    return lax.ragged_dot(a, jnp.stack([a, 2 * a]), sizes).astype(x.dtype)


OF_JAX = {
    "interp": lambda x: jnp.interp(x, GRID, GRID**2) ** 2,
    "searchsorted": lambda x: x * jnp.searchsorted(GRID, x),
    "histogram": lambda x: jnp.histogram(x, bins=3, weights=x**2)[0],
    "expm": lambda x: jax.scipy.linalg.expm(MATRIX * x),
    "frexp": lambda x: jnp.frexp(x)[0],
    "custom_root": cube_root,
    "ragged_dot": ragged,
}


@pytest.mark.parametrize("name", OF_JAX)
def test_a_function_of_jax_has_both_modes(name):
    function = OF_JAX[name]
    loaded = from_file(function, SMOOTH)

    def derivatives(f):
        def of(x):
            outs, moved = jax.jvp(f, (x,), (jnp.cos(x),))
            pulled = jax.vjp(f, x)[1](jnp.sin(outs))[0]
            return moved, pulled, jax.jvp(lambda x: jax.vjp(f, x)[1](outs)[0], (x,), (x,))[1]

        return jax.jit(of)(SMOOTH)

    for found, expected in zip(derivatives(loaded), derivatives(function), strict=True):
        tolerance = 1e-5 if name == "ragged_dot" else 1e-9
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    if name != "ragged_dot":  # in 32 bits, and of which JAX has no such batches
        slopes, step = jax.jacfwd(loaded)(SMOOTH), 1e-6 * np.cos(SMOOTH)
        close(slopes, jax.jacfwd(function)(SMOOTH))
        difference = (function(SMOOTH + step) - function(SMOOTH - step)) / 2e-6
        np.testing.assert_allclose(slopes @ np.cos(SMOOTH), difference, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------- gradients through sorts


TIES = np.array([1.0, 1.0, 0.5])
SORTS = {
    "sort": lambda x: jnp.sum(jnp.sort(x) ** 2 * GRID[:3]),
    "by two": lambda x: jnp.sum(lax.sort((TIES, x**2), num_keys=2)[1] * GRID[:3]),
    "order": lambda x: jnp.sum(x[jnp.argsort(-x)] ** 2 * GRID[:3]),
    "median": lambda x: jnp.median(x) ** 2,
}
"""Their gradients sort with comparators of JAX, of which passes have merged constants."""


@pytest.mark.parametrize("passes", [None, "simplify", "lower-custom-derivatives,inline-calls"])
@pytest.mark.parametrize("name", SORTS)
def test_a_gradient_through_a_sort_goes_back_to_jax(name, passes):
    function, x = SORTS[name], SMOOTH[::-1]
    program = pb.trace(function)(x).grad()
    gradient = (program.run_passes(passes) if passes else program).as_jax()
    close(gradient(x), jax.grad(function)(x))
    close(jax.jacfwd(gradient)(x), jax.hessian(function)(x))


def test_a_comparator_with_another_constant_is_not_that_of_jax():
    program = pb.trace(jnp.median)(SMOOTH).grad()
    text = str(program.run_passes("lower-custom-derivatives").module)
    start = text.index("stablehlo.sort")
    zero = "dense<0.000000e+00> : tensor<f64>"
    assert text.index(zero, start) < text.index("stablehlo.return", start)
    changed = text[:start] + text[start:].replace(zero, "dense<0.5> : tensor<f64>", 1)
    with pytest.raises(pb.PullbackError, match="compares more than one pair of elements"):
        pb.load(changed.encode()).as_jax()


# ------------------------------------------------------------------ rules of users for both modes


def second_orders(f):
    """Forward over reverse, reverse over reverse, forward over forward, reverse over forward."""
    slopes = (jax.grad, lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1])
    return [outer(inner(f)) for inner in slopes for outer in (slopes[1], slopes[0])]


def test_each_mode_takes_its_own_rule_to_any_order():
    """The rules of `both` are false: forward twice the slope, and backward thrice."""
    x = np.float64(0.7)
    loaded = from_file(lambda x: both(x, 2.0), x)
    assert jax.make_jaxpr(loaded)(x).eqns[0].primitive.name == "custom_jvp_call"
    for f in (loaded, jax.jit(loaded), jax.checkpoint(loaded)):
        close(f(x), 2 * np.sin(x))
        close(jax.jvp(f, (x,), (1.0,))[1], 4 * np.cos(x))
        close(jax.grad(f)(x), 6 * np.cos(x))
        close(jax.vmap(jax.grad(f))(X), 6 * np.cos(X))
        close(jax.vmap(jax.jacfwd(f))(X), 4 * np.cos(X))
        close([g(x) for g in second_orders(f)], np.array([-6, -6, -4, -4]) * np.sin(x))


def test_both_rules_hold_in_a_loop_and_by_each_operand():
    x = np.float64(0.7)
    loaded = from_file(thrice(lambda x: both(x, x)), x)

    def slope(one, other):
        total, c = 1.0, x
        for _ in range(3):
            c, total = np.sin(c) * c, (one * np.cos(c) * c + other * np.sin(c)) * total
        return total

    close(jax.jvp(loaded, (x,), (1.0,))[1], slope(2, 1))
    close(jax.grad(loaded)(x), slope(3, 1))


@jax.custom_vjp
def backward(x, y):
    return jnp.sin(x) * y


backward.defvjp(
    lambda x, y: (backward(x, y), (x, y)),
    lambda r, ct: (3 * jnp.cos(r[0]) * r[1] * ct, jnp.sin(r[0]) * ct),
)


def test_forward_mode_is_the_transposed_backward_rule():
    loaded = from_file(lambda x: backward(x, x**2), X)
    slope = 3 * np.cos(X) * X**2 + 2 * np.sin(X) * X
    close(jax.jacfwd(loaded)(X), np.diag(slope))
    close(jax.jacrev(loaded)(X), np.diag(slope))
    curvature = -3 * np.sin(X) * X**2 + 8 * np.cos(X) * X + 2 * np.sin(X)
    for of in second_orders(from_file(lambda x: backward(x, x**2), X[0])):
        close(of(X[0]), curvature[0])
    moved = jax.make_jaxpr(lambda x: jax.jvp(loaded, (x,), (x,))[1])(X)
    (call,) = (each for each in moved.eqns if each.primitive.name == "named_call")
    assert {"cos", "sin", "mul"} <= {each.primitive.name for each in call.params["jaxpr"].eqns}
    again = pb.trace(loaded)(X)  # as a module once more
    close(again.jvp()(X, X)[1], slope * X)
    close(again.vjp()(X, X)[1][0], slope * X)


@jax.custom_vjp
def clipped(x):
    return x**2


clipped.defvjp(lambda x: (x**2, x), lambda x, ct: (jnp.clip(2 * x * ct, -1, 1),))


def test_a_backward_rule_that_is_not_linear_has_no_forward_mode():
    loaded = from_file(clipped, X)
    close(jax.grad(lambda x: loaded(x).sum())(X), np.clip(2 * X, -1, 1))
    again = pb.trace(loaded)(X)  # as a module once more
    close(again.vjp()(X, np.ones(3))[1][0], np.clip(2 * X, -1, 1))
    moved = jax.jit(lambda x: jax.jvp(loaded, (x,), (x,))[1])
    for run in (moved, jax.jacfwd(loaded)):
        with pytest.raises(NotLinearError, match="cannot transpose") as caught:
            run(X)
        assert "the backward rule of the call at" in caught.value.where
        assert "take reverse mode, which keeps every rule" in caught.value.do


# ------------------------------------------------------------------------------- linear maps


def doubled():
    """A primitive that doubles; its transpose, which is false, multiplies by seven."""
    primitive = Primitive("doubled")
    primitive.def_impl(lambda x: 2 * x)
    primitive.def_abstract_eval(lambda x: x)
    ad.deflinear2(primitive, lambda ct, x: [7 * ct])
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
    batching.defvectorized(primitive)
    return primitive.bind


def test_a_primitive_keeps_its_transpose():
    double = doubled()
    loaded = from_file(lambda x: jnp.sum(jnp.sin(double(x))), X)
    close(jax.grad(loaded)(X), 7 * np.cos(2 * X))
    close(jax.jacfwd(loaded)(X), 2 * np.cos(2 * X))
    close(jax.hessian(loaded)(X), np.diag(-14 * np.sin(2 * X)))
    close(jax.jacrev(jax.grad(loaded))(X), np.diag(-49 * np.sin(2 * X)))
    close(jax.vmap(jax.grad(loaded))(np.stack([X, X])), np.stack([7 * np.cos(2 * X)] * 2))
    (alone,) = jax.linear_transpose(from_file(double, X), X)(X)
    close(alone, 7 * X)
    again = pb.trace(loaded)(X)  # as a module once more
    close(again.grad()(X), 7 * np.cos(2 * X))
    close(again.jvp()(X, X)[1], (2 * np.cos(2 * X) * X).sum())
    scanned = from_file(thrice(double), X)
    close(jax.grad(lambda x: scanned(x).sum())(X), [7.0**3] * 3)


def test_a_linear_call_has_batches_and_derivatives_by_its_residuals():
    def function(r, x):
        return linear_call(lambda r, v: jnp.sin(r) * v, lambda r, ct: 3 * r * ct, r, x)

    r, x = np.float64(0.7), np.float64(2.0)
    loaded = from_file(function, r, x)
    close(jax.grad(loaded, 1)(r, x), 3 * r)
    close(jax.grad(loaded, 0)(r, x), np.cos(r) * x)
    close(jax.vmap(jax.grad(loaded, 1), (0, None))(X, x), 3 * X)
    close(jax.vmap(loaded, (None, 0))(r, X), np.sin(r) * X)
    shared = jax.grad(lambda x: jax.vmap(loaded, (0, None))(X, x).sum())
    close(shared(x), 3 * X.sum())
    again = pb.trace(loaded)(r, x)  # as a module once more
    close(again.grad(1)(r, x), 3 * r)
    close(again.grad(0)(r, x), np.cos(r) * x)
    twice = jax.linear_transpose(lambda ct: jax.vjp(lambda x: loaded(r, x), x)[1](ct)[0], x)
    close(twice(x)[0], np.sin(r) * x)


# ---------------------------------------------------------------------------- symbolic zeros


@jax.custom_jvp
def product(x, y):
    return x * y


def product_with_zeros(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    moved = [2 * dx * y] if type(dx) is not SymbolicZero else []
    moved += [x * dy] if type(dy) is not SymbolicZero else []
    return product(x, y), sum(moved) * (5 if len(moved) == 2 else 1)


product.defjvp(product_with_zeros, symbolic_zeros=True)


@jax.custom_vjp
def product_backward(x, y):
    return x * y


def product_fwd(x, y):
    factor = 5.0 if x.perturbed and y.perturbed else 1.0
    return x.value * y.value, (factor * x.value, 2 * factor * y.value)


product_backward.defvjp(product_fwd, lambda r, ct: (r[1] * ct, r[0] * ct), symbolic_zeros=True)


@pytest.mark.parametrize("of_two", [product, product_backward])
def test_a_rule_that_sees_zeros_holds_in_a_scan(of_two):
    """JAX asks for the derivative by x alone first, for the carry starts constant; but it moves.

    By both, the tangent of the carry is 5 after the first step, and then 5 * (2 * x * 5 + x).
    """

    def function(x):
        return lax.scan(lambda c, _: (of_two(c, x), None), jnp.ones_like(x), None, length=2)[0]

    x = np.float64(0.7)
    expected = 5 * (2 * x * 5 + x)
    for f in (from_file(function, x), pb.trace(function)(x).as_jax()):
        for run in (f, jax.jit(f)):
            close(jax.grad(run)(x), expected)
            close(jax.jacfwd(run)(x), expected)
    close(jax.grad(function)(x), expected)


def test_a_rule_that_is_missing_raises_where_its_tangent_is_used():
    x = np.float64(0.7)

    @jax.custom_jvp
    def refusing(x, y):
        return x * y

    def rule(primals, tangents):
        if type(tangents[1]) is not SymbolicZero:
            raise ValueError("the second operand is data")
        return refusing(*primals), tangents[0] * primals[1]

    refusing.defjvp(rule, symbolic_zeros=True)
    loaded = pb.load(artifact.serialize(pb.trace(refusing)(x, x), allow_refusals=True)).as_jax()
    close(jax.grad(loaded)(x, x), x)
    assert jax.jit(lambda y: jax.jvp(lambda y: loaded(x, y), (y,), (y,))[0])(x) == x * x
    by_second = jax.jit(lambda y: jax.jvp(lambda y: loaded(x, y), (y,), (y,))[1])
    for run in (jax.grad(loaded, 1), lambda x, y: by_second(y)):
        with pytest.raises(MissingRuleError, match="the second operand is data"):
            run(x, x)
    with pytest.raises(MissingRuleError, match="the second operand is data"):
        pb.trace(loaded)(x, x).jvp(1)
