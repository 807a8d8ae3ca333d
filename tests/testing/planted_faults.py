"""A catalogue of wrong rules: each with the check that must find it, and where the fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero, linear_call

X = np.array([0.3, 0.5, 0.7], np.float32)
Y = np.array([1.5, -0.4, 0.9], np.float32)
S = np.float32(0.6)
Z = np.array([0.3 + 0.2j, -0.5 + 0.1j], np.complex64)


@dataclass(frozen=True)
class Fault:
    """A function with a wrong rule.

    Attributes:
      function: the function.
      args: its arguments.
      rule: the function of the rule that is wrong.
      check: the check that fails.
      at_fault: the argument or result that the finding names.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    rule: Callable[..., Any]
    check: str
    at_fault: str


FAULTS: dict[str, Callable[[], Fault]] = {}


def fault(make: Callable[[], Fault]) -> Callable[[], Fault]:
    FAULTS[make.__name__] = make
    return make


def by_jvp(function, rule, *args, check="jvp", at="argument x", **options):
    """A function whose forward rule is `rule(primals, tangents)`, a tangent."""
    named = jax.custom_jvp(function, **options)

    def jvp(primals, tangents):
        return named(*primals), rule(primals, tangents)

    named.defjvp(jvp)
    jvp.__code__ = jvp.__code__.replace(co_firstlineno=rule.__code__.co_firstlineno)
    return Fault(named, args, jvp, check, at)


def by_vjp(function, fwd, bwd, *args, check="vjp", at="argument x", **options):
    named = jax.custom_vjp(function, **options)
    named.defvjp(fwd, bwd)
    return Fault(named, args, bwd, check, at)


# Wrong by a factor, a sign, a term.


@fault
def factor():
    return by_jvp(lambda x: jnp.sin(x), lambda p, t: 2 * jnp.cos(p[0]) * t[0], X)


@fault
def sign():
    return by_jvp(lambda x: jnp.cos(x), lambda p, t: jnp.sin(p[0]) * t[0], X)


@fault
def one_and_a_half_percent():
    return by_jvp(lambda x: jnp.sin(x), lambda p, t: 1.015 * jnp.cos(p[0]) * t[0], X)


@fault
def one_and_a_half_percent_backward():
    return by_vjp(lambda x: jnp.sin(x), lambda x: (jnp.sin(x), x),
                  lambda x, ct: (0.985 * jnp.cos(x) * ct,), X)  # fmt: skip


@fault
def one_element_of_many():
    return by_jvp(
        lambda x: jnp.sin(x),
        lambda p, t: (jnp.cos(p[0]) * t[0]).at[7].mul(2),
        np.linspace(0.1, 0.9, 300, dtype=np.float32),
        at="argument x, result[7]",
    )


@fault
def one_term_of_a_sum():
    return by_jvp(
        lambda x: jax.nn.logsumexp(x),
        lambda p, t: jnp.sum((jax.nn.softmax(p[0]) * t[0])[1:]),
        np.linspace(0.1, 0.9, 200, dtype=np.float32),
    )


@fault
def last_element_of_a_gradient():
    return by_vjp(
        lambda x: jnp.sum(x**2),
        lambda x: (jnp.sum(x**2), x),
        lambda x, ct: ((2 * x * ct).at[-1].set(0),),
        np.linspace(0.1, 0.9, 100, dtype=np.float32),
    )


@fault
def the_smaller_of_two_arguments():
    return by_jvp(lambda x, y: 200 * x + y, lambda p, t: 200 * t[0] - t[1], X, Y, at="argument y")


@fault
def an_argument_left_out():
    return by_vjp(
        lambda x, y: x * y,
        lambda x, y: (x * y, y),
        lambda y, ct: (y * ct, jnp.zeros_like(y)),
        X, Y, at="argument y",
    )  # fmt: skip


@fault
def arguments_exchanged():
    return by_vjp(
        lambda x, y: x**2 * y,
        lambda x, y: (x**2 * y, (x, y)),
        lambda r, ct: (r[0] ** 2 * ct, 2 * r[0] * r[1] * ct),
        X, Y,
    )  # fmt: skip


@fault
def a_small_function():
    return by_jvp(lambda x: 1e-5 * x, lambda p, t: -1e-5 * t[0], X)


@fault
def under_a_large_constant():
    return by_jvp(lambda x: jnp.sin(x) + 1e4, lambda p, t: 3 * jnp.cos(p[0]) * t[0], X)


@fault
def one_of_two_results():
    return by_jvp(
        lambda x: (x, 2 * x.sum()), lambda p, t: (t[0], t[0].sum()), X,
        at="argument x, result 1",
    )  # fmt: skip


@fault
def where_a_condition_is_false():
    m = np.array([True, False, True])
    return by_jvp(
        lambda x, m: jnp.where(m, x, 3 * x), lambda p, t: t[0], X, m, at="argument x, result[1]"
    )


@fault
def a_transposed_matrix():
    a = np.array([[1.0, 2.0], [0.5, -1.0]], np.float32)
    return by_vjp(
        lambda x, a: a @ x,
        lambda x, a: (a @ x, (x, a)),
        lambda r, ct: (r[1] @ ct, jnp.outer(ct, r[0])),
        X[:2], a,
    )  # fmt: skip


@fault
def a_sum_not_broadcast_back():
    return by_vjp(
        lambda x: jnp.mean(x),
        lambda x: (jnp.mean(x), x.shape[0]),
        lambda n, ct: (jnp.full(3, ct),),
        X,
    )


@fault
def a_permutation_not_inverted():
    order = np.array([1, 2, 0])
    return by_vjp(lambda x: x[order], lambda x: (x[order], None), lambda _, ct: (ct[order],), X)


@fault
def a_softmax_without_its_mean():
    return by_jvp(lambda x: jax.nn.softmax(x), lambda p, t: jax.nn.softmax(p[0]) * t[0], X)


# Wrong at some points only.


@fault
def nan_at_zero():
    return by_jvp(
        lambda x: jnp.sinc(x / jnp.pi),
        lambda p, t: (p[0] * jnp.cos(p[0]) - jnp.sin(p[0])) / p[0] ** 2 * t[0],
        X,
    )


@fault
def nan_of_a_norm_at_zero():
    return by_vjp(
        lambda x: jnp.sqrt(jnp.sum(x**2)),
        lambda x: (jnp.sqrt(jnp.sum(x**2)), x),
        lambda x, ct: (ct * x / jnp.sqrt(jnp.sum(x**2)),),
        X,
    )


@fault
def at_negative_numbers():
    return by_jvp(lambda x: jnp.abs(x), lambda p, t: t[0], X)


@fault
def overflow_at_large_numbers():
    return by_jvp(
        lambda x: jax.nn.softplus(x), lambda p, t: jnp.exp(p[0]) / (1 + jnp.exp(p[0])) * t[0], X
    )


@fault
def at_the_example_only():
    return by_jvp(
        lambda x: x**2, lambda p, t: jnp.where(jnp.abs(p[0]) > 5, 1.0, 2 * p[0]) * t[0], 10 * X,
        at="argument x, result[2]",
    )  # fmt: skip


@fault
def all_of_a_tie():
    """Each of the equal elements gets the whole cotangent: twice what any slope is."""
    return by_vjp(
        lambda x: jnp.max(x),
        lambda x: (jnp.max(x), x),
        lambda x, ct: (jnp.where(x == jnp.max(x), 2 * ct, 0),),
        X,
    )


@fault
def outside_of_a_clip():
    return by_jvp(lambda x: jnp.clip(x, -0.5, 0.5), lambda p, t: t[0], X)


# Second order.


@fault
def stopped_in_a_backward_rule():
    return by_vjp(
        lambda x: jnp.sin(x),
        lambda x: (jnp.sin(x), x),
        lambda x, ct: (jax.lax.stop_gradient(jnp.cos(x)) * ct,),
        X,
        check="second derivative",
    )


@fault
def stopped_in_residuals():
    return by_vjp(
        lambda x: x**3,
        lambda x: (x**3, jax.lax.stop_gradient(x)),
        lambda x, ct: (3 * x**2 * ct,),
        X,
        check="second derivative",
    )


@fault
def stopped_in_a_forward_rule():
    return by_jvp(
        lambda x: jnp.exp(x),
        lambda p, t: jax.lax.stop_gradient(jnp.exp(p[0])) * t[0],
        X,
        check="second derivative",
    )


@fault
def second_order_of_one_argument():
    return by_vjp(
        lambda x, y: x**2 * y**2,
        lambda x, y: (x**2 * y**2, (x, jax.lax.stop_gradient(y))),
        lambda r, ct: (2 * r[0] * r[1] ** 2 * ct, 2 * r[0] ** 2 * r[1] * ct),
        X, Y, check="second derivative", at="argument y",
    )  # fmt: skip


@fault
def a_wrong_rule_in_a_rule():
    inner = by_jvp(lambda x: jnp.cos(x), lambda p, t: 5 * jnp.sin(p[0]) * t[0], X)
    outer = by_jvp(lambda x: jnp.sin(x), lambda p, t: inner.function(p[0]) * t[0], X)
    return Fault(outer.function, (X,), inner.rule, "jvp", "argument x")


# Values, types, linearity, duality.


@fault
def another_value_forward():
    named = jax.custom_jvp(lambda x: 2 * x)

    def jvp(p, t):
        return 2.1 * p[0], 2 * t[0]

    named.defjvp(jvp)
    return Fault(named, (X,), jvp, "value", "result")


@fault
def another_value_backward():
    def bwd(_, ct):
        return (2 * ct,)

    return by_vjp(lambda x: 2 * x, lambda x: (2 * x + 1, None), bwd, X, check="value", at="result")


@fault
def a_cotangent_of_half_precision():
    return by_vjp(
        lambda x: jnp.sin(x),
        lambda x: (jnp.sin(x), x),
        lambda x, ct: ((jnp.cos(x) * ct).astype(jnp.float16),),
        X,
        check="types",
    )


@fault
def a_cotangent_of_bfloat16():
    return by_vjp(
        lambda x, y: x * y,
        lambda x, y: (x * y, (x, y)),
        lambda r, ct: (r[1] * ct, (r[0] * ct).astype(jnp.bfloat16)),
        X, Y, check="types", at="argument y",
    )  # fmt: skip


@fault
def clipped_cotangents():
    return by_vjp(
        lambda x: 3 * x,
        lambda x: (3 * x, None),
        lambda _, ct: (jnp.clip(3 * ct, -0.5, 0.5),),
        X,
        check="linearity",
    )


@fault
def a_tangent_that_is_squared():
    return by_jvp(lambda x: x**2, lambda p, t: 2 * p[0] * t[0] + t[0] ** 2, X, check="linearity",
                  at="result")  # fmt: skip


@fault
def an_offset_of_tangents():
    return by_jvp(
        lambda x: jnp.sin(x), lambda p, t: jnp.cos(p[0]) * t[0] + 0.1, X, check="linearity",
        at="result",
    )  # fmt: skip


@fault
def a_transpose_that_is_none():
    def transpose(r, ct):
        return 2 * ct / r

    def function(r, x):
        return linear_call(lambda r, x: x / r, transpose, r, x)

    return Fault(function, (Y, X), transpose, "duality", "argument")


@fault
def a_transpose_of_another_matrix():
    a = np.array([[1.0, 2.0], [0.5, -1.0]], np.float32)

    def transpose(a, ct):
        return a @ ct

    def function(a, x):
        return linear_call(lambda a, x: a @ x, transpose, a, x)

    return Fault(function, (a, X[:2]), transpose, "duality", "argument")


# Symbolic zeros, complex numbers, half precision, closures, calls elsewhere.


@fault
def with_a_symbolic_zero():
    named = jax.custom_jvp(lambda x, y: x * y)

    def jvp(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        if type(dx) is SymbolicZero:
            return x * y, 2 * x * dy
        if type(dy) is SymbolicZero:
            return x * y, dx * y
        return x * y, dx * y + x * dy

    named.defjvp(jvp, symbolic_zeros=True)
    return Fault(named, (X, Y), jvp, "jvp", "argument y")


@fault
def a_conjugate_forgotten():
    return by_jvp(lambda z: jnp.conj(z), lambda p, t: t[0], Z, at="argument z")


@fault
def a_conjugate_too_many():
    return by_vjp(
        lambda z: z**2,
        lambda z: (z**2, z),
        lambda z, ct: (2 * jnp.conj(z) * ct,),
        Z, at="argument z",
    )  # fmt: skip


@fault
def in_half_precision():
    return by_jvp(
        lambda x: jnp.sin(x), lambda p, t: 1.5 * jnp.cos(p[0]) * t[0], X.astype(jnp.bfloat16)
    )


@fault
def with_half_precision_inside():
    return by_jvp(
        lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32), lambda p, t: 4 * t[0], X
    )


@fault
def beside_integers():
    n = np.array([1, 2, 3], np.int32)
    return by_jvp(lambda x, n: x * n, lambda p, t: t[0] * (p[1] + 1), X, n)


@fault
def beside_infinities():
    return by_jvp(
        lambda x: jnp.where(jnp.arange(3) % 2 == 0, x, -jnp.inf),
        lambda p, t: jnp.where(jnp.arange(3) % 2 == 0, 3 * t[0], 0),
        X,
    )


@fault
def closes_over_a_differentiated_value():
    rules = []

    def function(x):
        y = jnp.sin(x)
        named = jax.custom_jvp(lambda x: x * y)

        def jvp(p, t):
            return named(*p), y * t[0]

        named.defjvp(jvp)
        rules.append(jvp)
        return named(x)

    jax.eval_shape(function, X)
    return Fault(function, (X,), rules[0], "closed over", "a value of type float32[3]")


@fault
def in_a_loop():
    inner = by_jvp(lambda x: jnp.tanh(x), lambda p, t: (1 - jnp.tanh(p[0])) * t[0], X)

    def function(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: inner.function(y), x)

    return Fault(function, (X,), inner.rule, "jvp", "argument x")


@fault
def in_a_branch():
    inner = by_jvp(lambda x: x**3, lambda p, t: 3 * p[0] * t[0], X)

    def function(x):
        return jax.lax.cond(x[0] > 0, inner.function, lambda x: x, x)

    return Fault(function, (X,), inner.rule, "jvp", "argument x")


@fault
def under_a_checkpoint_and_a_jit():
    inner = by_vjp(lambda x: x**3, lambda x: (x**3, x), lambda x, ct: (3 * x * ct,), X)
    return Fault(jax.checkpoint(jax.jit(inner.function)), (X,), inner.rule, "vjp", "argument x")


@fault
def of_an_iteration():
    """So wrong that no stop test accounts for it."""

    def root(x):
        def going(y):
            return jnp.max(jnp.abs(y * y - x)) > 1e-3

        return jax.lax.while_loop(going, lambda y: (y + x / y) / 2, jnp.ones_like(x))

    return by_vjp(
        lambda x: root(x),
        lambda x: ((y := root(x)), y),
        lambda y, ct: (ct / y,),
        X,
    )


@fault
def not_batched_as_items():
    """A rule that takes the mean over a batch by way of a `custom_vmap`."""

    @jax.custom_batching.custom_vmap
    def scaled(x):
        return 2 * x

    @scaled.def_vmap
    def batched(size, is_batched, x):
        return 2 * x.mean(0, keepdims=True) * jnp.ones_like(x), True

    return by_jvp(lambda x: 2 * x, lambda p, t: scaled(t[0] * p[0]) / p[0], X, check="batch",
                  at="")  # fmt: skip


@fault
def an_extra_dependence():
    return by_vjp(
        lambda x, y: x + 0 * y,
        lambda x, y: (x + 0 * y, None),
        lambda _, ct: (ct, ct),
        X, Y, at="argument y",
    )  # fmt: skip
