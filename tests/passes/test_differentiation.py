"""The drivers on traced programs: rules, calls, loops and branches, any order, against JAX.

Where JAX refuses (forward mode of custom_vjp, reverse mode of while) or loses a rule (second order
inside scan), the reference is the same mathematics written so that JAX can differentiate it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import linear_call

import pullback as pb
import pullback_runtime
from pullback._jax.primitives import trip_bound
from pullback.ir.symbols import functions
from pullback.passes.manager import run_pipeline
from tests.work import lines_run

ORDERS = ["jvp", "vjp", "vjp,jvp", "jvp,vjp", "vjp,vjp", "jvp,jvp", "vjp,vjp,jvp"]
A = np.array([0.3, 0.7])
B = np.array([0.2, -0.7])

pytestmark = pytest.mark.usefixtures("float64")


def flat(tree):
    return tuple(jax.tree.leaves(tree))


def jvp_of(f, count):
    def derived(*args):
        out, tangents = jax.jvp(f, args[:count], args[count:])
        return (*flat(out), *flat(tangents))

    return derived


def vjp_of(f, count):
    def derived(*args):
        out, pull = jax.vjp(lambda *a: flat(f(*a)), *args[:count])
        return (*out, *pull(tuple(args[count:])))

    return derived


def check(f, args, pipeline, reference=None, rtol=1e-9):
    """The derivative by passes equals JAX's derivative of the reference."""
    program = pb.trace(f)(*args)
    expected, values = reference or f, [jnp.asarray(a) for a in args]
    random = np.random.default_rng(0)
    for step in pipeline.split(","):
        count = len(values)
        like = values if step == "jvp" else flat(expected(*values))
        values += [jnp.asarray(random.standard_normal(x.shape)) for x in like]
        expected = (jvp_of if step == "jvp" else vjp_of)(expected, count)
    run_pipeline(program.module, pipeline, program.rules, verify_each=True)
    found = pullback_runtime.compile(program.module)(*program.constants, *values)
    wanted = flat(expected(*values))
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-11)


# ------------------------------------------------------------------- functions with rules
# The rules are false on purpose: a result that agrees cannot have been found without them.


@jax.custom_jvp
def tripled(x):
    return jnp.sin(x)


tripled.defjvp(lambda p, t: (tripled(*p), 3 * jnp.cos(p[0]) * t[0]))


@jax.custom_vjp
def pulled(x):
    return jnp.sin(x)


pulled.defvjp(lambda x: (pulled(x), x), lambda x, ct: (5 * ct * jnp.cos(x),))


@jax.custom_jvp
def pulled_reference(x):
    return jnp.sin(x)


pulled_reference.defjvp(lambda p, t: (pulled_reference(*p), 5 * jnp.cos(p[0]) * t[0]))


@jax.custom_vjp
def mixed(x, y, n):
    return jnp.sin(x) * y * n


mixed.defvjp(
    lambda x, y, n: (mixed(x, y, n), (x, y, n)),
    lambda r, ct: (3 * ct * jnp.cos(r[0]) * r[1] * r[2], 5 * ct * jnp.sin(r[0]) * r[2], None),
)


@jax.custom_jvp
def mixed_reference(x, y, n):
    return jnp.sin(x) * y * n


@mixed_reference.defjvp
def _(primals, tangents):
    x, y, n = primals
    dx, dy, _ = tangents
    tangent = 3 * dx * jnp.cos(x) * y * n + 5 * dy * jnp.sin(x) * n
    return mixed_reference(x, y, n), tangent


@jax.custom_jvp
def taken(x):
    return jnp.take(x, jnp.array([1, 0]))


# JAX fills with NaN what is outside, and calls that linear.
taken.defjvp(lambda p, t: (taken(*p), 3 * jnp.take(t[0], jnp.array([1, 0]))))


def product(x, y):
    return linear_call(lambda r, v: r * v, lambda r, v: r * v, x, y)


def repeat(f, x, count):
    for _ in range(count):
        x = f(x)
    return x


def scan_of(f):
    return lambda x: lax.scan(lambda c, _: (f(c) * c, None), x, None, length=3)[0]


def unrolled(f):
    return lambda x: repeat(lambda c: f(c) * c, x, 3)


RULES = {
    "custom_jvp": (lambda x: tripled(x) * x, None),
    "custom_vjp": (lambda x: pulled(x) * x, lambda x: pulled_reference(x) * x),
    "custom_jvp in scan": (scan_of(tripled), unrolled(tripled)),
    "custom_vjp in scan": (scan_of(pulled), unrolled(pulled_reference)),
    "rules of rules": (
        lambda x: tripled(tripled(x)) * pulled(tripled(x)),
        lambda x: tripled(tripled(x)) * pulled_reference(tripled(x)),
    ),
    "custom_vjp, first operand": (
        lambda x: mixed(x, B, 2) * x,
        lambda x: mixed_reference(x, B, 2) * x,
    ),
    "custom_vjp, second operand": (
        lambda x: mixed(B, x, 2) * x,
        lambda x: mixed_reference(B, x, 2) * x,
    ),
    "custom_jvp, one operand": (lambda x: mixed_reference(x, B, 2) * x, None),
    "linear_call": (lambda x: product(x, product(x, x)), lambda x: x * x * x),
    "linear_call in scan": (
        lambda x: lax.scan(lambda c, _: (product(jnp.sin(x), c), None), x, None, length=3)[0],
        lambda x: repeat(lambda c: jnp.sin(x) * c, x, 3),
    ),
    "a rule that takes elements": (lambda x: taken(x) * x, None),
    "stop_gradient": (lambda x: x * lax.stop_gradient(x), None),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)) * x), None),
    "jit": (lambda x: repeat(jax.jit(lambda y: jnp.sin(y) * y), x, 3), None),
    "logistic": (lambda x: lax.logistic(100 * x) * x, None),
}


@pytest.mark.parametrize("pipeline", ORDERS)
@pytest.mark.parametrize("name", RULES)
def test_rules(name, pipeline):
    f, reference = RULES[name]
    check(f, [A], pipeline, reference)


def test_second_order_inside_scan_keeps_the_rule_that_older_jax_loses():
    """There, JAX's own second derivative of a false rule in a scan is that of the primal code."""

    def hessian(f):
        return jax.jvp(jax.grad(lambda x: f(x).sum()), (A,), (B,))[1]

    jax_keeps = np.allclose(hessian(scan_of(tripled)), hessian(unrolled(tripled)))
    assert jax_keeps == (jax.__version_info__ >= (0, 12))


# -------------------------------------------------------------------------- control flow


def nested_runtime_loops(x):
    def outer(i, c):
        return lax.fori_loop(0, 2 + i, lambda j, d: jnp.sin(d) * x + jnp.sin(c), c)

    return lax.fori_loop(0, 3, outer, x)


def nested_unrolled(x):
    c = x
    for i in range(3):
        d = c
        for _ in range(2 + i):
            d = jnp.sin(d) * x + jnp.sin(c)
        c = d
    return c


def sum_of_slices(x):
    """Each iteration slices an array that the loop does not change."""
    xs = jnp.outer(jnp.arange(1.0, 6.0), x)

    def body(i, c):
        return c * 0.5 + jnp.sin(lax.dynamic_index_in_dim(xs, i, keepdims=False)) * c

    return lax.fori_loop(0, 5, body, x)


def writes_slices(x):
    def body(i, buffer):
        last = lax.dynamic_index_in_dim(buffer, jnp.maximum(i - 1, 0), keepdims=False)
        return lax.dynamic_update_index_in_dim(buffer, jnp.sin(last) * x, i, 0)

    return lax.fori_loop(1, 4, body, jnp.zeros((4, 2)).at[0].set(x))


def stacks_part(slot, start, stop):
    """Writes some slots of an active buffer, and reads none of them in the loop."""

    def f(x):
        def body(i, carry):
            c, buffer = carry
            c = jnp.sin(c) * x
            return c, lax.dynamic_update_slice(buffer, (c * c)[None], (slot(i), 0))

        c, buffer = lax.fori_loop(start, stop, body, (x, jnp.outer(jnp.arange(1.0, 7.0), x)))
        return buffer * jnp.arange(6.0)[:, None] + c

    return f


def piecewise(x):
    return lax.cond(x.sum() > 0, lambda x: jnp.sin(x) * x, lambda x: x * x * x, x)


def switched(x):
    branches = [lambda x: x, lambda x: jnp.sin(x) * x, lambda x: B * 1.0]
    return sum(lax.switch(i, branches, x) * (i + 1) for i in range(3))


def branch_in_scan(x):
    def body(c, i):
        return lax.cond(i % 2 == 0, lambda c: jnp.sin(c) * x, lambda c: c * c, c), c * x

    carry, ys = lax.scan(body, x, jnp.arange(4))
    return carry + ys.sum(0)


def test_a_loop_of_more_iterations_than_32_bits_count():
    """It has no residuals; the reverse loop ended at once, for its limit was negative."""

    def halved(x):
        return lax.fori_loop(0, 3_000_000_000, lambda i, c: c / 2 + i, x)

    text = str(pb.trace(halved)(A).vjp().module)
    assert text.count("dense<3000000000> : tensor<i64>") == 2
    assert "tensor<i32>" not in text


def loop_in_branch(x):
    def loop(x):
        return lax.scan(lambda c, _: (jnp.sin(c) * x, None), x, None, length=3)[0]

    return lax.cond(x.sum() > 0, loop, lambda x: x, x)


LOOPS = {
    "fori_loop": (lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * x, x), None),
    "fori_loop, start not 0": (
        lambda x: lax.fori_loop(3, 7, lambda i, c: jnp.sin(c) * x * i, x),
        None,
    ),
    "fori_loop, no iteration": (
        lambda x: lax.fori_loop(4, 4, lambda i, c: jnp.sin(c) * x, x) * x,
        None,
    ),
    "while, counted": (
        lambda x: lax.while_loop(
            lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x)
        )[1],
        lambda x: repeat(lambda c: jnp.sin(c) * x, x, 5),
    ),
    "while, counting up in steps": (
        lambda x: lax.while_loop(
            lambda c: c[0] < 8, lambda c: (c[0] + 2, jnp.sin(c[1]) * x * c[0]), (3, x)
        )[1],
        lambda x: jnp.sin(jnp.sin(jnp.sin(x) * x * 3) * x * 5) * x * 7,
    ),
    "while, counting down in steps": (
        lambda x: lax.while_loop(
            lambda c: c[0] > 1, lambda c: (c[0] - 2, jnp.sin(c[1]) * x * c[0]), (6, x)
        )[1],
        lambda x: jnp.sin(jnp.sin(jnp.sin(x) * x * 6) * x * 4) * x * 2,
    ),
    "while, counting down in an unsigned type": (
        lambda x: lax.while_loop(
            lambda c: c[0] > 1, lambda c: (c[0] - 2, jnp.sin(c[1]) * x * c[0]), (np.uint32(6), x)
        )[1],
        lambda x: jnp.sin(jnp.sin(jnp.sin(x) * x * 6) * x * 4) * x * 2,
    ),
    "while, counting in four bits": (
        lambda x: lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (jnp.int4(-2), x)
        )[1],
        lambda x: repeat(lambda c: jnp.sin(c) * x, x, 5),
    ),
    "while, whose counter wraps around": (
        lambda x: lax.while_loop(
            lambda c: c[0] < np.uint8(250),
            lambda c: (c[0] + np.uint8(120), jnp.sin(c[1]) * x),
            (np.uint8(30), x),
        )[1],
        lambda x: repeat(lambda c: jnp.sin(c) * x, x, 4),
    ),
    "while, bounded, whose counter wraps around": (
        lambda x: lax.while_loop(
            lambda c: trip_bound(c[0] != np.int8(-126), 200),
            lambda c: (c[0] + np.int8(1), c[1] + jnp.sin(c[1]) * x / 50),
            (np.int8(0), x),
        )[1],
        lambda x: lax.fori_loop(0, 130, lambda i, c: c + jnp.sin(c) * x / 50, x),
    ),
    "while, data-dependent": (
        lambda x: lax.while_loop(
            lambda c: c[0] < 7.3, lambda c: (c[0] + 1.0, jnp.sin(c[1]) * x), (0.0, x)
        )[1],
        lambda x: repeat(lambda c: jnp.sin(c) * x, x, 8),
    ),
    "while, no iteration": (
        lambda x: lax.while_loop(lambda c: c.sum() > 100, lambda c: jnp.sin(c) * x, x) * x,
        lambda x: x * x,
    ),
    "fori_loop, run-time bounds, nested": (nested_runtime_loops, nested_unrolled),
    "slices of an invariant": (sum_of_slices, None),
    "writes slices": (writes_slices, None),
    "stacks a part": (stacks_part(lambda i: i, 1, 4), None),
    "stacks a part, backwards": (stacks_part(lambda i: 5 - i, 1, 4), None),
    "stacks everything": (stacks_part(lambda i: i, 0, 6), None),
    "stacks with a stride": (stacks_part(lambda i: 2 * i, 0, 3), None),
    "stacks beyond the end": (stacks_part(lambda i: i + 3, 0, 5), None),
    "stacks one slot again": (stacks_part(lambda i: 2, 0, 3), None),
    "cond": (piecewise, None),
    "cond, other branch": (lambda x: piecewise(-x), None),
    "switch": (switched, None),
    "cond in scan": (branch_in_scan, None),
    "scan in cond": (loop_in_branch, None),
    "scan, reversed": (
        lambda x: lax.scan(
            lambda c, y: (jnp.sin(c) * y, c), x, jnp.outer(jnp.arange(4.0), x), reverse=True
        )[1],
        None,
    ),
    "scan, unrolled": (
        lambda x: lax.scan(lambda c, _: (jnp.sin(c) * x, c), x, None, length=5, unroll=2)[0],
        None,
    ),
    "scan, nested": (
        lambda x: lax.scan(
            lambda c, _: (
                lax.scan(lambda d, _: (jnp.sin(d) * c * x, None), c, None, length=2)[0],
                None,
            ),
            x,
            None,
            length=3,
        )[0],
        None,
    ),
    "map": (lambda x: lax.map(lambda y: jnp.sin(y) * x, jnp.outer(jnp.arange(3.0), x)), None),
    "vmap of scan": (
        jax.vmap(lambda x: lax.scan(lambda c, _: (jnp.sin(c) * x, c), x, None, length=3)[1]),
        None,
    ),
    "a carry that becomes active": (
        lambda x: lax.fori_loop(
            0, 3, lambda i, c: (jnp.sin(c[1]) * x, c[0] + c[1]), (jnp.ones(2), jnp.ones(2))
        )[1],
        None,
    ),
    "carries that swap": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: (c[1], jnp.sin(c[0]) * x), (x, 2 * x))[0],
        None,
    ),
}


@pytest.mark.parametrize("pipeline", ORDERS[:-1])
@pytest.mark.parametrize("name", LOOPS)
def test_control_flow(name, pipeline):
    f, reference = LOOPS[name]
    check(f, [A], pipeline, reference)


def test_linearizing_twice_gives_two_linear_maps():
    module = pb.trace(jnp.sin)(A).module
    run_pipeline(module, "builtin.module(linearize,linearize)")
    assert module.operation.verify()
    assert {"main.linear", "main.linear_0"} <= set(functions(module))


def long_chain(x):
    """Cheap to compute again from `x` alone, views at first."""
    y = x
    for _ in range(300):
        y = jnp.reshape(jnp.broadcast_to(y, (1, 2)), (2,))
    for _ in range(300):
        y = jnp.sin(y) * x
    return y


LONG = {
    "in a loop": (lambda x: lax.fori_loop(0, 1, lambda i, c: long_chain(c), x), "vjp"),
    "in a branch": (lambda x: lax.cond(x[0] > 0, long_chain, lambda x: x, x), "vjp"),
    "with residuals between functions": (long_chain, "vjp{split=true}"),
}


@pytest.mark.parametrize("name", LONG)
def test_long_chains_are_computed_again_without_recursion(name):
    f, pipeline = LONG[name]
    program = pb.trace(f)(A)
    run_pipeline(program.module, pipeline, program.rules, verify_each=True)


def nested(depth):
    """Branches in loops in branches in loops."""

    def around(f):
        def step(carry, x):
            carry = lax.cond(x > 0, f, lambda x: x, carry) * x
            return carry, jnp.sum(carry)

        return lambda x: lax.scan(step, x, x)[0]

    f = jnp.sin
    for _ in range(depth):
        f = around(f)
    return lambda x: jnp.sum(f(x))


def test_nested_control_flow_is_not_analyzed_exponentially_often():
    shallow, deep = (lines_run(pb.trace(nested(depth))(A).grad) for depth in (4, 8))
    assert deep < 8 * shallow


def test_nested_control_flow():
    f = nested(3)
    np.testing.assert_allclose(pb.grad(f)(A), jax.grad(f)(A), rtol=1e-12)
    np.testing.assert_allclose(pb.hessian(f)(A), jax.hessian(f)(A), rtol=1e-11)
