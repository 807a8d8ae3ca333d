"""A catalogue of right rules of functions that are hard to check: none may raise an alarm."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero, linear_call

from pullback.testing import intended
from tests.testing.planted_faults import X, Y, Z

Right = tuple[Callable[..., Any], tuple[Any, ...]]
RIGHTS: dict[str, Callable[[], Right]] = {}


def right(make: Callable[[], Right]) -> Callable[[], Right]:
    RIGHTS[make.__name__] = make
    return make


def by_jvp(function, tangent, *args, **options):
    named = jax.custom_jvp(function, **options)
    named.defjvp(lambda p, t: (named(*p), tangent(p, t)))
    return named, args


def by_vjp(function, fwd, bwd, *args, **options):
    named = jax.custom_vjp(function, **options)
    named.defvjp(fwd, bwd)
    return named, args


LINE = np.linspace(0.1, 0.9, 300, dtype=np.float32)


# Kinks, steps, clipped domains, cancellation.


@right
def steps():
    return by_jvp(lambda x: jnp.floor(x * 10), lambda p, t: 0 * t[0], LINE)


@right
def kinks():
    return by_jvp(lambda x: jnp.maximum(x, 0.5), lambda p, t: jnp.where(p[0] > 0.5, t[0], 0), LINE)


@right
def kinks_in_a_sum():
    sign = np.tile(np.array([1.0, -1.0], np.float32), 150)
    return by_jvp(
        lambda x: jnp.sum(sign * jnp.maximum(x, 0.5)),
        lambda p, t: jnp.sum(jnp.where(p[0] > 0.5, t[0], 0) * sign),
        LINE,
    )


@right
def relu_with_one_at_zero():
    return by_jvp(lambda x: jnp.maximum(x, 0), lambda p, t: jnp.where(p[0] >= 0, t[0], 0), X)


@right
def relu_with_a_half_at_zero():
    return by_jvp(lambda x: jnp.maximum(x, 0), lambda p, t: (jnp.sign(p[0]) + 1) / 2 * t[0], X)


@right
def absolute_value():
    return by_jvp(lambda x: jnp.abs(x), lambda p, t: jnp.sign(p[0]) * t[0], X)


@right
def a_norm_that_is_safe_at_zero():
    def norm(x):
        return jnp.sqrt(jnp.sum(x**2))

    def tangent(p, t):
        size = norm(p[0])
        return jnp.vdot(p[0], t[0]) / jnp.where(size == 0, 1, size)

    return by_jvp(norm, tangent, X)


@right
def the_first_of_a_tie():
    def bwd(x, ct):
        return (jnp.zeros_like(x).at[jnp.argmax(x)].set(ct),)

    return by_vjp(lambda x: jnp.max(x), lambda x: (jnp.max(x), x), bwd, X)


@right
def a_share_of_a_tie():
    def bwd(x, ct):
        mask = x == jnp.max(x)
        return (ct * mask / jnp.sum(mask),)

    return by_vjp(lambda x: jnp.max(x), lambda x: (jnp.max(x), x), bwd, X)


@right
def a_clip():
    return by_jvp(
        lambda x: jnp.clip(x, -0.5, 0.5), lambda p, t: jnp.where(jnp.abs(p[0]) < 0.5, t[0], 0), X
    )


@right
def a_logarithm_of_positive_numbers():
    return by_jvp(lambda x: jnp.log(x), lambda p, t: t[0] / p[0], X)


@right
def a_square_root_that_is_clipped():
    return by_jvp(
        lambda x: jnp.sqrt(jnp.maximum(x, 1e-6)),
        lambda p, t: jnp.where(p[0] > 1e-6, 0.5 / jnp.sqrt(jnp.maximum(p[0], 1e-6)), 0) * t[0],
        X,
    )


@right
def an_entropy_at_the_border():
    def safe(x):
        return jnp.where(x > 0, x, 1)

    return by_jvp(
        lambda x: jnp.where(x > 0, -x * jnp.log(safe(x)), 0.0),
        lambda p, t: jnp.where(p[0] > 0, -jnp.log(safe(p[0])) - 1, 0) * t[0],
        X,
    )


@right
def an_infinite_slope_at_zero():
    """There the rule gives NaN for a tangent of zero, which is zero times infinity."""
    return by_jvp(
        lambda x: jax.scipy.special.xlogy(x, x), lambda p, t: (jnp.log(p[0]) + 1) * t[0], X
    )


@right
def an_inverse_sine():
    return by_jvp(lambda x: jnp.arcsin(x), lambda p, t: t[0] / jnp.sqrt(1 - p[0] ** 2), X)


@right
def a_function_without_a_value_here():
    return by_jvp(lambda x: jnp.log(-1 - x), lambda p, t: t[0] / (1 + p[0]), X)


@right
def a_sort():
    return by_jvp(lambda x: jnp.sort(x), lambda p, t: t[0][jnp.argsort(p[0])], LINE[::-1])


@right
def a_large_constant():
    return by_jvp(lambda x: jnp.sin(x) + 1e4, lambda p, t: jnp.cos(p[0]) * t[0], X)


@right
def many_cancelling_terms():
    return by_jvp(lambda x: x - x.mean(), lambda p, t: t[0] - t[0].mean(), LINE)


@right
def a_stable_logistic_loss():
    return by_jvp(lambda x: jnp.log1p(jnp.exp(-x)), lambda p, t: -jax.nn.sigmoid(-p[0]) * t[0], X)


@right
def a_saturated_tanh():
    return by_vjp(
        lambda x: jnp.tanh(x),
        lambda x: ((y := jnp.tanh(x)), y),
        lambda y, ct: ((1 - y * y) * ct,),
        5 * X,
    )


@right
def a_softmax():
    def tangent(p, t):
        y = jax.nn.softmax(p[0])
        return y * (t[0] - jnp.sum(y * t[0]))

    return by_jvp(lambda x: jax.nn.softmax(x), tangent, X)


@right
def small_units():
    return by_jvp(lambda x: x**2 * 1e6, lambda p, t: 2e6 * p[0] * t[0], 1e-6 * X)


# Solvers with noise.


def stopping(step, start, tolerance):
    def going(state):
        old, new, count = state
        return (jnp.max(jnp.abs(new - old)) > tolerance) & (count < 200)

    first = (start, step(start), 0)
    return jax.lax.while_loop(going, lambda s: (s[1], step(s[1]), s[2] + 1), first)[1]


def fixed_point(tolerance):
    """Solve y = cos(a y) from a starting value, in which the rule is zero."""

    @jax.custom_vjp
    def solve(a, start):
        return stopping(lambda y: jnp.cos(a * y), start, tolerance)

    def fwd(a, start):
        y = solve(a, start)
        return y, (a, y)

    def bwd(residuals, ct):
        a, y = residuals
        slope = -jnp.sin(a * y)
        return ct * slope * y / (1 - slope * a), jnp.zeros_like(y)

    solve.defvjp(fwd, bwd)
    return solve, (X, np.array([0.5, 0.6, 0.4], np.float32))


for tolerance in (1e-3, 1e-4, 1e-6):
    RIGHTS[f"a fixed point that stops at {tolerance:g}"] = functools.partial(fixed_point, tolerance)


def fixed_point_forward(tolerance):
    @jax.custom_jvp
    def solve(a, start):
        return stopping(lambda y: jnp.cos(a * y), start, tolerance)

    @solve.defjvp
    def jvp(primals, tangents):
        (a, _), (da, _) = primals, tangents
        y = solve(*primals)
        slope = -jnp.sin(a * y)
        return y, da * slope * y / (1 - slope * a)

    return solve, (X, np.array([0.5, 0.6, 0.4], np.float32))


for tolerance in (1e-3, 1e-6):
    RIGHTS[f"a fixed point with a jvp that stops at {tolerance:g}"] = functools.partial(
        fixed_point_forward, tolerance
    )


@right
def newtons_method():
    @jax.custom_jvp
    def root(x, start):
        return stopping(lambda y: y - (y**3 - x) / (3 * y**2), start, 1e-4)

    @root.defjvp
    def jvp(primals, tangents):
        y = root(*primals)
        return y, tangents[0] / (3 * y**2)

    return root, (X, np.ones_like(X))


@right
def an_iteration_of_a_given_number_of_steps():
    @jax.custom_jvp
    def root(x):
        return jax.lax.fori_loop(0, 20, lambda _, y: (y + x / y) / 2, jnp.ones_like(x))

    root.defjvp(lambda p, t: ((y := root(*p)), t[0] / (2 * y)))
    return root, (X,)


@right
def conjugate_gradients_by_a_linear_solve():
    a = np.array([[3.0, 1.0], [1.0, 2.0]], np.float32)

    def solver(matvec, b):
        return jax.scipy.sparse.linalg.cg(matvec, b, tol=1e-4)[0]

    def function(b):
        return jax.lax.custom_linear_solve(lambda x: a @ x, b, solver, symmetric=True)

    return function, (X[:2],)


@right
def a_bisection():
    @jax.custom_jvp
    def root(x):
        def halved(state):
            low, high = state
            middle = (low + high) / 2
            below = middle**3 < x
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        def going(state):
            return jnp.max(state[1] - state[0]) > 1e-3

        return jax.lax.while_loop(going, halved, (0 * x, 2 + 0 * x))[0]

    root.defjvp(lambda p, t: ((y := root(*p)), t[0] / (3 * y**2)))
    return root, (X,)


# Types: complex, half precision, integers, keys, zeros.


@right
def a_conjugate():
    return by_jvp(lambda z: jnp.conj(z), lambda p, t: jnp.conj(t[0]), Z)


@right
def no_complex_derivative():
    return by_jvp(
        lambda z: z * jnp.conj(z), lambda p, t: t[0] * jnp.conj(p[0]) + p[0] * jnp.conj(t[0]), Z
    )


@right
def a_complex_square_backward():
    return by_vjp(lambda z: z**2, lambda z: (z**2, z), lambda z, ct: (2 * z * ct,), Z)


@right
def bfloat16():
    return by_jvp(lambda x: jnp.sin(x), lambda p, t: jnp.cos(p[0]) * t[0], X.astype(jnp.bfloat16))


@right
def float16():
    return by_vjp(
        lambda x: x**2, lambda x: (x**2, x), lambda x, ct: (2 * x * ct,), X.astype(np.float16)
    )


@right
def bfloat16_inside():
    return by_jvp(
        lambda x: jnp.sin(x.astype(jnp.bfloat16)).astype(jnp.float32),
        lambda p, t: jnp.cos(p[0]) * t[0],
        X,
    )


@right
def a_result_of_bfloat16():
    return by_jvp(
        lambda x: jnp.sin(x).astype(jnp.bfloat16),
        lambda p, t: (jnp.cos(p[0]) * t[0]).astype(jnp.bfloat16),
        X,
    )


@right
def eight_bits_inside():
    return by_jvp(lambda x: x.astype(jnp.float8_e4m3fn).astype(jnp.float32), lambda p, t: t[0], X)


@right
def a_wide_cotangent():
    return by_vjp(
        lambda x: x.astype(jnp.float32) * 2,
        lambda x: (x.astype(jnp.float32) * 2, None),
        lambda _, ct: (2 * ct,),
        X.astype(jnp.bfloat16),
    )


@right
def integers():
    n = np.array([0, 2, 1], np.int32)
    return by_vjp(
        lambda x, n: x[n] * n,
        lambda x, n: (x[n] * n, n),
        lambda n, ct: (jnp.zeros(3).at[n].add(ct * n), None),
        X, n,
    )  # fmt: skip


@right
def a_random_key():
    return by_jvp(
        lambda x, key: x * jax.random.uniform(key, x.shape),
        lambda p, t: t[0] * jax.random.uniform(p[1], (3,)),
        X,
        jax.random.key(0),
    )


@right
def booleans():
    return by_jvp(
        lambda x, m: jnp.where(m, x, 3 * x),
        lambda p, t: jnp.where(p[1], 1, 3) * t[0],
        X,
        np.array([True, False, True]),
    )


@right
def a_static_argument():
    named = jax.custom_jvp(lambda n, x: x**n, nondiff_argnums=(0,))
    named.defjvp(lambda n, p, t: (p[0] ** n, n * p[0] ** (n - 1) * t[0]))
    return functools.partial(named, 3), (X,)


@right
def symbolic_zeros():
    named = jax.custom_jvp(lambda x, y: x * y)

    def jvp(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        terms = [b * a for a, b in ((dx, y), (dy, x)) if type(a) is not SymbolicZero]
        return x * y, sum(terms) if terms else jnp.zeros_like(x)

    named.defjvp(jvp, symbolic_zeros=True)
    return named, (X, Y)


@right
def symbolic_zeros_backward():
    named = jax.custom_vjp(lambda x, y: (x * y, x + y))

    def fwd(x, y):
        return (x.value * y.value, x.value + y.value), (x.value, y.value)

    def bwd(residuals, cts):
        x, y = residuals
        a, b = (0 if type(ct) is SymbolicZero else ct for ct in cts)
        return y * a + b + 0 * x, x * a + b + 0 * x

    named.defvjp(fwd, bwd, symbolic_zeros=True)
    return named, (X, Y)


@right
def trees():
    return by_vjp(
        lambda p: {"sum": p["w"] * p["x"]},
        lambda p: ({"sum": p["w"] * p["x"]}, p),
        lambda p, ct: ({"w": p["x"] * ct["sum"], "x": p["w"] * ct["sum"]},),
        {"w": X, "x": Y},
    )


@right
def a_scalar():
    return by_jvp(lambda x: jnp.sin(x), lambda p, t: jnp.cos(p[0]) * t[0], np.float32(0.4))


@right
def a_linear_call():
    def function(r, x):
        return linear_call(lambda r, x: x / r, lambda r, ct: ct / r, r, x)

    return function, (Y, X)


# Closures, callbacks, places.


@right
def closes_over_an_array():
    c = jnp.arange(3.0) + 5
    return by_jvp(lambda x: x * c, lambda p, t: t[0] * c, X)


@right
def closes_over_one_of_several_arrays():
    one, other = jnp.arange(3.0) + 4, jnp.arange(3.0) + 5
    return by_jvp(lambda x: x * one + other, lambda p, t: one * t[0], X)


@right
def closes_over_what_is_stopped():
    def function(x):
        y = jax.lax.stop_gradient(jnp.sin(x))
        named = jax.custom_jvp(lambda x: x * y)
        named.defjvp(lambda p, t: (named(*p), y * t[0]))
        return named(x)

    return function, (X,)


@right
def a_callback():
    def host(x):
        return np.sin(x)

    def function(x):
        return jax.pure_callback(host, x, x, vmap_method="expand_dims")

    return by_jvp(function, lambda p, t: jnp.cos(p[0]) * t[0], X)


@right
def a_backward_rule_by_a_callback():
    def bwd(x, ct):
        return (jax.pure_callback(lambda x, ct: np.cos(x) * ct, x, x, ct),)

    return by_vjp(lambda x: jnp.sin(x), lambda x: (jnp.sin(x), x), bwd, X)


@right
def a_factorization():
    """Its operand is a factor of the matrix, which other numbers are not."""

    @jax.custom_vjp
    def solve(factor, b):
        return jax.scipy.linalg.cho_solve((factor, True), b)

    solve.defvjp(
        lambda factor, b: (solve(factor, b), factor),
        lambda factor, ct: (None, jax.scipy.linalg.cho_solve((factor, True), ct)),
    )

    def function(a, b):
        factor = jnp.linalg.cholesky(a @ a.T + jnp.eye(3))
        return solve(jax.lax.stop_gradient(factor), b)

    return intended(solve) and function, (np.outer(X, Y), X)


@right
def in_a_scan():
    inner, _ = by_jvp(lambda x: jnp.tanh(x), lambda p, t: (1 - jnp.tanh(p[0]) ** 2) * t[0])

    def function(x):
        return jax.lax.scan(lambda c, x: (inner(c + x), c), jnp.float32(0), x)

    return function, (X,)


@right
def in_a_branch_that_is_not_taken():
    inner, _ = by_jvp(lambda x: x**3, lambda p, t: 3 * p[0] ** 2 * t[0])
    return lambda x: jax.lax.cond(x[0] > 5, inner, lambda x: x, x), (X,)


@right
def under_a_vmap():
    inner, _ = by_vjp(lambda x: x**3, lambda x: (x**3, x), lambda x, ct: (3 * x**2 * ct,))
    return jax.vmap(inner), (np.outer(X, Y),)


@right
def a_rule_of_a_rule():
    inner, _ = by_jvp(lambda x: jnp.cos(x), lambda p, t: -jnp.sin(p[0]) * t[0])
    return by_jvp(lambda x: jnp.sin(x), lambda p, t: inner(p[0]) * t[0], X)


# False on purpose.


@right
def a_clipped_cotangent_that_is_intended():
    bwd = intended(lambda _, ct: (jnp.clip(ct, -0.1, 0.1),))
    return by_vjp(lambda x: x * 1, lambda x: (x * 1, None), bwd, X)


@right
def a_straight_through_estimator():
    named = jax.custom_jvp(lambda x: jnp.round(x))
    named.defjvp(intended(lambda p, t: (named(*p), t[0])))
    return named, (X,)


@right
def a_reversed_gradient():
    named, args = by_vjp(lambda x: x * 1, lambda x: (x * 1, None), lambda _, ct: (-ct,), X)
    return intended(named), args


@right
def a_stopped_gradient_that_is_intended():
    bwd = intended(lambda _, ct: (jnp.zeros_like(ct),))
    return by_vjp(lambda x: 2 * x, lambda x: (2 * x, None), bwd, X)


@right
def zero_up_to_rounding():
    def bwd(_, ct):
        return ct, ct * 0.1 + ct * 0.2 - ct * 0.3

    return by_vjp(lambda x, y: x + 0.0 * y, lambda x, y: (x + 0.0 * y, None), bwd, X, Y)
