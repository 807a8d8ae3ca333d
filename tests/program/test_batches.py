"""Batches of programs: `Program.vmap`, and `jax.vmap` of what was traced, derived or loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import SymbolicZero, linear_call
from jax.experimental import io_callback

import pullback as pb
from pullback import artifact
from pullback.errors import (
    ArgumentMismatchError,
    NotDifferentiableError,
    PullbackError,
    RuleResultError,
)
from pullback.passes.manager import run_pipeline
from pullback_runtime import DimensionError
from tests.rounding import FUNCTION, close

XS = jnp.array([[0.3, -0.7, 1.1], [1.2, 0.4, -0.2]])


def loss(params, x, *, scale):
    y = jnp.tanh(params["w"] @ x) * scale
    return {"y": y, "norm": jnp.sum(params["w"] ** 2)}


W = {"w": jnp.arange(12.0).reshape(4, 3) / 10}


def test_a_program_of_a_batch():
    program = pb.trace(loss)(W, XS[0], scale=2.0)
    batched = program.vmap((None, 0), {"y": 1, "norm": None}, axis_size=2)
    scales = jnp.array([2.0, 3.0])
    found = batched(W, XS, scale=scales)
    expected = jax.vmap(lambda p, x, s: loss(p, x, scale=s), (None, 0, 0), {"y": 1, "norm": None})(
        W, XS, scales
    )
    assert [aval.shape for aval in batched.out_avals] == [(), (4, 2)]
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), found, expected)


def test_arguments_tell_how_many_items_there_are():
    program = pb.trace(loss)(W, XS[0], scale=2.0)
    batched = program.vmap((None, 0), {"y": 1, "norm": None})
    assert "x: float32[batch,3]" in repr(batched)
    mapped = jax.vmap(lambda p, x, s: loss(p, x, scale=s), (None, 0, 0), {"y": 1, "norm": None})
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    for count in (2, 1, 5):
        xs, scales = jnp.resize(XS, (count, 3)), jnp.arange(1.0, count + 1)
        jax.tree.map(close, batched(W, xs, scale=scales), mapped(W, xs, scales))
        ones = jax.tree.map(jnp.ones_like, mapped(W, xs, scales))
        _, pulled = batched.vjp(1)(W, xs, ones, scale=scales)
        jax.tree.map(close, pulled, jax.vjp(lambda x: mapped(W, x, scales), xs)[1](ones)[0])  # noqa: B023
    assert batched.with_sizes(batch=4).out_avals[1].shape == (4, 4)
    keys = jax.random.split(jax.random.key(0), 3)
    draws = pb.trace(jax.random.normal)(keys[0]).vmap()(keys)
    close(draws, jax.vmap(jax.random.normal)(keys))


def test_what_has_no_size_says_so():
    batched = pb.trace(loss)(W, XS[0], scale=2.0).vmap((None, 0))
    with pytest.raises(DimensionError, match=r"\(x\) has the wrong shape: .* float32\[batch,3\]"):
        batched(W, XS[0], scale=jnp.ones(1))
    with pytest.raises(DimensionError, match=r"\(scale\) has the wrong shape|batch"):
        batched(W, XS, scale=jnp.ones(3))
    for use in (str, lambda program: program.save("never.mlirbc")):
        with pytest.raises(PullbackError, match="batches of any size has no module") as caught:
            use(batched)
        assert "with_sizes(batch=…)" in caught.value.do


def test_axes_and_sizes_of_numpy():
    batched = pb.trace(jnp.sin)(XS[0]).vmap(np.int64(0), np.int8(-1), axis_size=np.int64(2))
    close(batched(XS), jnp.sin(XS).T, ops=FUNCTION)
    assert batched.out_avals[0].shape == (3, 2)


def test_negative_axes_and_trees_of_axes():
    program = pb.trace(lambda p, x: p["a"] * x + p["b"])({"a": XS, "b": XS[0]}, XS)
    a, x = (jnp.arange(30.0).reshape(shape) for shape in ((2, 3, 5), (2, 5, 3)))
    expected = jax.vmap(lambda a, x: a * x + XS[0], (-1, 1), -2)(a, x)
    axes = {"a": -1, "b": None}, 1
    for given in (axes, list(axes)):
        batched = program.vmap(given, -2, axis_size=5)
        np.testing.assert_allclose(batched({"a": a, "b": XS[0]}, x), expected)


WRONG = {
    "structure": (
        lambda p: p.vmap((0, 0, 0), axis_size=2),
        "do not have the structure",
    ),
    "range": (lambda p: p.vmap((None, 2), axis_size=2), r"no batch axis 2 for x, .*float32\[3\]"),
    "kind": (lambda p: p.vmap((None, 0.5), axis_size=2), "no batch axis 0.5 for x"),
    "size": (lambda p: p.vmap(axis_size="2"), "axis_size='2' is no number of items"),
    "half": (lambda p: p.vmap(axis_size=2.5), r"axis_size=2\.5 is no number of items"),
    "negative": (lambda p: p.vmap(axis_size=-1), "a batch of -1 items"),
    "shared": (lambda p: p.vmap(None), "no argument has a batch axis, whose size would be"),
    "out none": (
        lambda p: p.vmap(0, None, axis_size=2),
        "result of `@main` at position 0 depends on the batch, and its axis is none",
    ),
}


@pytest.mark.parametrize("which", WRONG)
def test_axes_that_do_not_fit_are_named(which: str) -> None:
    program = pb.trace(lambda w, x: w["w"] @ x)(W, XS[0])
    wrong, words = WRONG[which]
    with pytest.raises(ArgumentMismatchError, match=words):
        wrong(program)


def test_a_batch_without_items_and_a_batch_of_nothing():
    program = pb.trace(lambda x, n: (jnp.sort(x) * n, n + 1))(XS[0], 2)
    y, m = program.vmap((0, None), axis_size=0)(XS[:0], 2)
    assert y.shape == (0, 3)
    assert m.shape == (0,)
    shared, _ = program.vmap(None, axis_size=2)(XS[0], 2)
    np.testing.assert_allclose(shared, jnp.stack([jnp.sort(XS[0]) * 2] * 2))


def test_a_rule_of_batching_is_left_to_jax():
    @jax.custom_batching.custom_vmap
    def f(x):
        return jnp.sin(x)

    f.def_vmap(lambda size, batched, x: (jnp.cos(x), True))
    program = pb.trace(f)(1.0)
    with pytest.raises(PullbackError, match="no vmap of a program with batching rules"):
        program.vmap(axis_size=2)
    np.testing.assert_allclose(jax.vmap(program)(XS[:, 0]), jnp.cos(XS[:, 0]), rtol=1e-6)


def test_what_a_derivative_needs_is_not_said_of_its_program():
    """The batch had been refused, and made by JAX, once a derivative had been asked for."""

    @jax.custom_batching.custom_vmap
    def slope(x):
        return jnp.cos(x)

    slope.def_vmap(lambda size, batched, x: (3.0 * jnp.cos(x), True))  # false
    wave = jax.custom_jvp(jnp.sin)
    wave.defjvp(lambda primals, tangents: (wave(*primals), slope(*primals) * tangents[0]))
    program, xs = pb.trace(lambda x: wave(x))(1.0), XS[:, 0]
    derived = program.grad()
    with pytest.raises(PullbackError, match="no vmap of a program with batching rules"):
        derived.vmap(axis_size=xs.size)
    np.testing.assert_allclose(jax.vmap(derived)(xs), 3 * jnp.cos(xs), rtol=1e-6)
    batch = program.vmap(axis_size=xs.size)
    np.testing.assert_allclose(batch(xs), jnp.sin(xs), rtol=1e-6)
    np.testing.assert_allclose(batch.jvp()(xs, xs)[1], 3 * xs * jnp.cos(xs), rtol=1e-6)


def test_a_file_says_that_it_has_lost_a_rule_of_batching() -> None:
    """Its batch would be that of the body, with other numbers than before it was saved."""

    @jax.custom_batching.custom_vmap
    def f(x):
        return jnp.sin(x)

    f.def_vmap(lambda size, batched, x: (jnp.cos(x), True))
    xs = XS[:, 0]
    loaded = pb.load(artifact.serialize(pb.trace(f)(1.0)))
    text = pb.load(pb.trace(f)(1.0).asm().encode())
    again = pb.load(artifact.serialize(pb.trace(lambda x: 2.0 * loaded(x))(1.0)))
    for program in (loaded, text, again, loaded.grad(), pb.load(loaded.grad().asm().encode())):
        for batch in (lambda p: p.vmap(axis_size=2), lambda p: jax.vmap(p)(xs)):
            with pytest.raises(PullbackError, match="no vmap of this program from a file: it had"):
                batch(program)
    with pytest.raises(PullbackError, match="no batch of this module: it had batching rules"):
        run_pipeline(loaded.module, "vmap{size=3}")
    np.testing.assert_allclose(jax.lax.map(loaded, xs), jnp.sin(xs), rtol=1e-6)
    of_items = pb.load(artifact.serialize(pb.trace(jax.vmap(f))(xs)))
    np.testing.assert_allclose(of_items(xs), jnp.cos(xs), rtol=1e-6)


def test_a_rule_of_batching_inside_of_a_derivative_rule_is_left_to_jax() -> None:
    """It is met when the rule is traced, which may be after the program was batched."""

    @jax.custom_batching.custom_vmap
    def slope(x):
        return jnp.sin(x)

    slope.def_vmap(lambda size, batched, x: (jnp.cos(x), True))

    @jax.custom_jvp
    def f(x):
        return 2.0 * x

    f.defjvp(lambda primals, tangents: (f(*primals), jax.jit(slope)(*primals) * tangents[0]))
    xs = XS[0]
    batches = pb.trace(f)(1.0).vmap(axis_size=3), jax.vmap(pb.trace(f)(1.0)), pb.vmap(f)
    for batched in batches:
        np.testing.assert_allclose(batched(xs), 2.0 * xs)
        ours = pb.grad(lambda xs: jnp.sum(batched(xs)))(xs)  # noqa: B023
        np.testing.assert_allclose(ours, jnp.cos(xs), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(pb.grad(f))(xs), jnp.cos(xs), rtol=1e-6)


def test_a_backward_rule_with_a_rule_of_batching_is_batched_by_jax() -> None:
    """The cotangent of what all items share is the sum of those of the items."""

    @jax.custom_batching.custom_vmap
    def slope(x):
        return jnp.sin(x)

    slope.def_vmap(lambda size, batched, x: (jnp.cos(x), True))
    f = jax.custom_vjp(lambda w, x: w * x)
    f.defvjp(lambda w, x: (w * slope(x), (w, x)), lambda r, ct: (ct * slope(r[1]), ct * r[0]))
    w, xs, cts = 2.0, jnp.arange(3.0), jnp.array([1.0, -2.0, 3.0])
    for batched in (pb.trace(f)(w, 1.0).vmap((None, 0), axis_size=3), pb.vmap(f, (None, 0))):
        value, pull = pb.vjp(lambda w, xs: batched(w, xs), w, xs)  # noqa: B023
        np.testing.assert_allclose(value, w * jnp.cos(xs), rtol=1e-6)
        of_w, of_xs = pull(cts)
        np.testing.assert_allclose(of_w, jnp.sum(cts * jnp.cos(xs)), rtol=1e-6)
        np.testing.assert_allclose(of_xs, cts * w, rtol=1e-6)


@jax.custom_jvp
def zero(x):
    return jnp.zeros_like(x)


zero.defjvp(lambda p, t: (zero(*p), 3 * t[0] * p[0]))


@jax.custom_jvp
def zero_and_double(x):
    return jnp.zeros_like(x), 2 * x


zero_and_double.defjvp(lambda p, t: (zero_and_double(*p), (3 * t[0] * p[0], 2 * t[0])))


@jax.custom_vjp
def zero_backward(x):
    return jnp.zeros_like(x)


zero_backward.defvjp(lambda x: (zero_backward(x), x), lambda x, ct: (3 * ct * x,))

APART: dict[str, Callable[[Any], Any]] = {
    "jvp": zero,
    "vjp": zero_backward,
    "of two results": lambda x: sum(zero_and_double(x)),
    "in jit": jax.jit(zero),
    "in a function": lambda x: jnp.sin(x) + zero(x) * x,
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, c: c + zero(x), x),
    "of an array": lambda x: jnp.sum(zero(jnp.stack([x, 2 * x]))),
}
MAPPED: dict[str, Callable[[Any], Any]] = {
    "pb.vmap": pb.vmap,
    "of pb.jit": lambda f: jax.vmap(pb.jit(f)),
    "program.vmap": lambda f: pb.trace(f)(0.5).vmap(axis_size=3),
}


@pytest.mark.parametrize("how", MAPPED)
@pytest.mark.parametrize("name", APART)
def test_a_result_that_does_not_depend_on_the_batch_has_derivatives_that_do(name, how) -> None:
    f, xs, cts = APART[name], jnp.array([0.5, 1.0, -2.0]), jnp.array([1.0, 2.0, 3.0])
    mapped = MAPPED[how](f)
    expected = jax.vmap(jax.grad(f))(xs)
    loss = lambda xs: jnp.sum(cts * mapped(xs))  # noqa: E731
    np.testing.assert_allclose(pb.grad(loss)(xs), cts * expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(xs), cts * expected, rtol=1e-6)
    value, tangent = pb.jvp(mapped, (xs,), (cts,))
    np.testing.assert_allclose(value, jax.vmap(f)(xs), rtol=1e-6)
    np.testing.assert_allclose(tangent, cts * expected, rtol=1e-6)
    second = jax.vmap(jax.grad(jax.grad(f)))(xs)
    np.testing.assert_allclose(pb.hessian(loss)(xs), jnp.diag(cts * second), rtol=1e-6)


def test_what_is_mapped_with_names_or_python_values_is_batched_by_jax() -> None:
    xs = jnp.arange(3.0)
    power = pb.vmap(lambda x, n: sum(x**i for i in range(n)), (0, None))
    of_name = pb.vmap(lambda x, name: jnp.sin(x) if name == "sin" else x, (0, None))
    np.testing.assert_allclose(pb.grad(lambda x: jnp.sum(power(x, 3)))(xs), 1 + 2 * xs)
    close(pb.grad(lambda x: jnp.sum(of_name(x, "sin")))(xs), jnp.cos(xs), ops=FUNCTION)
    inner = pb.vmap(lambda x: jax.lax.psum(x, "i") * x)
    outer = lambda xs: jnp.sum(jax.vmap(inner, axis_name="i")(xs))  # noqa: E731
    both = jnp.stack([xs, 2 * xs])
    np.testing.assert_allclose(pb.grad(outer)(both), jax.grad(outer)(both), rtol=1e-6)


def test_what_the_items_share_is_computed_once() -> None:
    def f(x):
        return jnp.tanh(x) * jnp.sum(x)

    x, basis = jnp.arange(3.0), jnp.eye(3)
    jvp = lambda library: lambda t: library.jvp(f, (x,), (t,))  # noqa: E731
    ours, theirs = (jax.vmap(jvp(m), out_axes=(None, -1))(basis) for m in (pb, jax))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    shared = jax.make_jaxpr(jax.vmap(jvp(pb), out_axes=(None, -1)))(basis)
    assert "while" not in str(shared)


MAPS = {
    "vjp": lambda library, f, x, vs: jax.vmap(library.vjp(f, x)[1])(vs)[0],
    "linearize": lambda library, f, x, vs: jax.vmap(library.linearize(f, x)[1])(vs),
    "jvp": lambda library, f, x, vs: jax.vmap(lambda v: library.jvp(f, (x,), (v,))[1])(vs),
}


def layers(x):
    step = jax.checkpoint(lambda c, w: (jnp.tanh(c * w), jnp.sum(c)))
    c, sums = jax.lax.scan(step, x, jnp.linspace(0.5, 1.5, 4))
    return jax.lax.cond(sums[0] > 0, jnp.sin, jnp.cos, c) + jnp.cumsum(x) * x[jnp.array([2, 0, 2])]


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_pairs_are_no_loops_over_items(name: str) -> None:
    x, vs = jnp.array([0.3, -0.7, 1.1]), jnp.arange(12.0).reshape(4, 3)
    mapped = functools.partial(MAPS[name], pb, layers)
    np.testing.assert_allclose(mapped(x, vs), MAPS[name](jax, layers, x, vs), rtol=1e-5)
    (result,) = jax.jit(mapped).trace(x, vs).jaxpr.jaxpr.outvars
    assert result.aval.shape == (4, 3)
    expected = jax.jacrev(lambda x: MAPS[name](jax, layers, x, vs))(x)
    np.testing.assert_allclose(jax.jacrev(lambda x: mapped(x, vs))(x), expected, rtol=1e-4)


@pytest.mark.parametrize("name", MAPS)
def test_rules_stay_with_what_is_mapped(name: str) -> None:
    """A rule that is false on purpose, at second order."""

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), f(3.0 * x)), lambda r, ct: (ct * r,))
    x, vs = jnp.array([0.3, -0.7]), jnp.ones((1, 2))
    found = jax.grad(lambda x: jnp.sum(MAPS[name](pb, f, x, vs)))(x)
    expected = jax.grad(lambda x: jnp.sum(MAPS["vjp"](jax, f, x, vs)))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@jax.custom_jvp
def with_jvp(x, n):
    return jnp.exp(x) * n, n + 1


@with_jvp.defjvp
def _(primals, tangents):
    (x, n), (dx, _) = primals, tangents
    return with_jvp(x, n), (3.0 * dx * with_jvp(x, n)[0], np.zeros((), jax.dtypes.float0))


@jax.custom_vjp
def with_vjp(x, n):
    return jnp.exp(x) * n, n + 1


with_vjp.defvjp(
    lambda x, n: (with_vjp(x, n), (x, n)),
    lambda r, cts: (3.0 * cts[0] * with_vjp(*r)[0], None),
)


@pytest.mark.parametrize("f", [with_jvp, with_vjp], ids=["custom_jvp", "custom_vjp"])
def test_loaded_programs_are_mapped_with_their_rules(f: Any) -> None:
    x, n, vs = jnp.array([0.3, -0.7]), jnp.int32(2), jnp.eye(2)
    program = pb.load(pb.artifact.serialize(pb.trace(f)(x, n)))
    expected = 6.0 * jnp.diag(jnp.exp(x))
    apart = jax.vmap(lambda x: program(x, n)[0])(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(apart[1], 2.0 * jnp.exp(2 * x), rtol=1e-6)
    by_rows = jax.vmap(jax.grad(lambda x, v: jnp.vdot(program(x, n)[0], v)), (None, 0))
    np.testing.assert_allclose(by_rows(x, vs), expected, rtol=1e-6)
    outside = jax.jacrev(lambda xs: jax.vmap(lambda x: program(x, n)[0])(xs))(jnp.stack([x, x]))
    np.testing.assert_allclose(outside[1, :, 1], expected, rtol=1e-6)
    curvature = jax.jacrev(jax.grad(lambda x: program(x, n)[0].sum()))(x)
    np.testing.assert_allclose(curvature, 3.0 * expected, rtol=1e-6)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def scaled(k, x, w):
    return k * x * w


@scaled.defjvp
def _(k, primals, tangents):
    (x, w), (dx, dw) = primals, tangents
    return scaled(k, x, w), 5.0 * k * dx * w + 7.0 * k * x * dw


@jax.custom_vjp
def clipped(x, w):
    return x * w


clipped.defvjp(
    lambda x, w: (clipped(x, w), (x, w)),
    lambda r, ct: (jnp.clip(ct, -1, 1) * r[1] * 11.0, jnp.sum(jnp.clip(ct, -1, 1) * r[0]) * 13.0),
)


def linear(x, w):
    times = lambda w, v: w * v * 2.0  # noqa: E731
    return linear_call(times, times, w, x)


RULES = {
    "custom_jvp": lambda x, w: scaled(3.0, x, w),
    "custom_vjp": clipped,
    "linear_call": linear,
    "kept": lambda x, w: jax.scipy.special.logsumexp(x * w) * jax.nn.sigmoid(x),
    "in a loop": lambda x, w: jax.lax.scan(lambda c, y: (clipped(c, y), c), x, w * jnp.ones(3))[0],
    "solve": lambda x, w: jnp.linalg.solve(jnp.eye(3) * (1 + w * w), x),
    "root": lambda x, w: jax.lax.custom_root(
        lambda y: y**3 - x * x - w * w,
        x,
        lambda f, y: jax.lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y * y + 1e-3), y),
        lambda g, y: y / g(jnp.ones_like(y)),
    ),
}
IN_JAX = {**RULES, "linear_call": lambda x, w: w * x * 2.0}  # JAX does not batch linear_call
OF_USERS = "custom_jvp", "custom_vjp", "linear_call"
CALLS = [
    *((name, (0, 0)) for name in RULES),
    *((name, axes) for name in OF_USERS for axes in ((0, None), (None, 0))),
]


@pytest.mark.parametrize(("name", "axes"), CALLS)
def test_rules_are_batched_with_their_calls(name: str, axes: Any) -> None:
    """Derivatives of a batch by rules that are false on purpose, in a file and before it."""
    w = jnp.array([1.5, -0.5]) if axes[1] == 0 else jnp.float32(1.5)
    x = XS if axes[0] == 0 else XS[0]
    program = pb.trace(RULES[name])(XS[0], jnp.float32(1.5)).vmap(axes, axis_size=2)
    out = jax.vmap(IN_JAX[name], axes)
    expected = jax.jacrev(out, (0, 1))(x, w)
    curved = jax.grad(lambda *args: jnp.sum(jax.grad(lambda *a: out(*a).sum())(*args)))(x, w)
    loaded = pb.load(pb.artifact.serialize(program, order=2))
    close = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=1e-5)
    for each in (program, loaded):
        close(each(x, w), out(x, w))
        jax.tree.map(close, pb.jacrev(each, (0, 1))(x, w), expected)
        first = each.vjp(wrt=0)
        again = jax.grad(lambda x: jnp.sum(first(x, w, jnp.ones((2, 3)))[1]))(x)  # noqa: B023
        close(again, curved)


def test_each_item_leaves_a_loop_and_takes_a_branch_by_itself():
    def f(x, n):
        x = jax.lax.while_loop(
            lambda c: c[1] < n, lambda c: (jnp.sin(c[0]) * 1.1, c[1] + 1), (x, 0)
        )
        branches = [jnp.cos, jnp.exp, lambda x: x * x]
        return jax.lax.switch(n - 1, branches, x[0])

    ns = jnp.array([1, 3])
    batched = pb.trace(f)(XS[0], 1).vmap(axis_size=2)
    np.testing.assert_allclose(batched(XS, ns), jax.vmap(f)(XS, ns), rtol=1e-6)
    _, found = batched.vjp(wrt=0)(XS, ns, jnp.ones((2, 3)))

    def unrolled(x, n):
        for _ in range(n):
            x = jnp.sin(x) * 1.1
        return jnp.sum([jnp.cos, jnp.exp, lambda x: x * x][n - 1](x))

    expected = [jax.grad(unrolled)(x, int(n)) for x, n in zip(XS, ns, strict=True)]
    np.testing.assert_allclose(found, jnp.stack(expected), rtol=1e-5)


@pytest.mark.parametrize("loop", [jax.lax.while_loop, pb.bounded_while_loop])
def test_an_item_that_has_left_a_loop_makes_no_gradient_nan(loop):
    """The loop goes on for others, and its slope is infinite where this item has stopped."""

    def f(x, step):
        def body(carry):
            total, x = carry
            return total + jnp.sqrt(x - step), x - step

        bound = [10] * (loop is pb.bounded_while_loop)
        return loop(lambda carry: carry[1] > step, body, (0.0 * x, x), *bound)[0]

    program = pb.trace(f)(XS[0, 0], XS[0, 0])
    xs, step = jnp.array([1.0, 0.75, 1.6, 0.25]), jnp.float32(0.25)
    expected = jnp.stack([pb.grad(f)(x, step) for x in xs])
    assert jnp.isfinite(expected).all()
    for axes, steps in (((0, None), step), ((0, 0), jnp.full(4, step))):
        batched = program.vmap(axes, axis_size=4)
        np.testing.assert_allclose(batched(xs, steps), jax.vmap(f, axes)(xs, steps), rtol=1e-6)
        (slopes, of_steps) = batched.vjp()(xs, steps, jnp.ones(4))[1]
        np.testing.assert_allclose(slopes, expected, rtol=1e-6)
        tangents = jnp.ones_like(xs), jnp.zeros_like(steps)
        np.testing.assert_allclose(batched.jvp()(xs, steps, *tangents)[1], expected, rtol=1e-6)
        if axes == (0, 0):
            each = jnp.stack([pb.grad(f, 1)(x, step) for x in xs])
            np.testing.assert_allclose(of_steps, each, rtol=1e-6)


def test_what_an_iteration_reads_in_parts_is_not_passed_over_in_each():
    def f(xs, n):
        def body(carry):
            total, i = carry
            return total + jnp.sin(xs[i]), i + 1

        return jax.lax.while_loop(lambda carry: carry[1] < n, body, (0.0, 0))[0]

    xs, ns = jnp.arange(100.0).reshape(2, 50), jnp.array([3, 50])
    batched = pb.trace(f)(xs[0], 1).vmap(axis_size=2)
    taken = [line for line in str(batched).splitlines() if "call" in line and "@taken" in line]
    assert taken
    assert not any("2x50" in line for line in taken)
    _, slopes = batched.vjp(wrt=0)(xs, ns, jnp.ones(2))
    reads = jnp.arange(50) < ns[:, None]
    np.testing.assert_allclose(slopes, jnp.where(reads, jnp.cos(xs), 0.0), rtol=1e-5, atol=1e-6)


def test_a_bound_of_a_loop_holds_for_each_item():
    def f(x, n):
        body = lambda c: (jnp.sin(c[0]) * 1.1, c[1] + 1)  # noqa: E731
        return pb.bounded_while_loop(lambda c: c[1] < n, body, (x, 0), 10)[0]

    ns = jnp.array([2, 5])
    batched = pb.trace(f)(XS[0], 1).vmap(axis_size=2)
    forward, _ = batched.split_vjp(wrt=0)
    assert (10, 2, 3) in [aval.shape for aval in forward.out_avals]
    _, found = batched.vjp(wrt=0)(XS, ns, jnp.ones((2, 3)))

    def unrolled(x, n):
        return functools.reduce(lambda x, _: jnp.sin(x) * 1.1, range(n), x).sum()

    expected = [jax.grad(unrolled)(x, int(n)) for x, n in zip(XS, ns, strict=True)]
    np.testing.assert_allclose(found, jnp.stack(expected), rtol=1e-5)


def test_what_a_checkpoint_keeps_it_keeps_of_a_batch():
    policy = jax.checkpoint_policies.dots_saveable
    f = jax.checkpoint(lambda x: jnp.sin(jnp.sin(jnp.sin(W["w"] @ x))), policy=policy)
    program = pb.trace(f)(XS[0])
    kept, kept_of_batch = (
        [aval.shape for aval in each.split_vjp()[0].out_avals]
        for each in (program, program.vmap(axis_size=2))
    )
    assert kept_of_batch == [(2, *shape) for shape in kept]
    assert (4,) in kept


def test_a_batch_of_a_batch():
    f = lambda x, y: clipped(x, y[0]) @ y  # noqa: E731
    program = pb.trace(f)(XS[0], XS[1]).vmap((0, None), axis_size=2).vmap((None, 0), axis_size=4)
    ys = jnp.arange(12.0).reshape(4, 3)
    theirs = jax.vmap(jax.vmap(f, (0, None)), (None, 0))
    np.testing.assert_allclose(program(XS, ys), theirs(XS, ys), rtol=1e-6)
    ours = pb.grad(lambda *a: jnp.sum(program(*a)), (0, 1))(XS, ys)
    expected = jax.grad(lambda *a: jnp.sum(theirs(*a)), (0, 1))(XS, ys)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_refusal_is_said_of_the_batch_too():
    @jax.custom_jvp
    def phase(x):
        return jnp.sin(x)

    @phase.defjvp
    def _(primals, tangents):
        raise RuntimeError("x is data")

    program = pb.trace(phase)(1.0)
    loaded = pb.load(pb.artifact.serialize(program, allow_refusals=True))
    for each in (program, loaded):
        batched = each.vmap(axis_size=2)
        np.testing.assert_allclose(batched(XS[:, 0]), jnp.sin(XS[:, 0]), rtol=1e-6)
        with pytest.raises((RuntimeError, NotDifferentiableError), match="x is data"):
            batched.jvp()


def slope(f: Any) -> Any:
    return lambda x: jnp.sum(jax.grad(f)(x))


def test_a_rule_that_calls_its_own_function_ends():
    @jax.custom_jvp
    def f(x, w):
        return jnp.exp(x * w)

    @f.defjvp
    def _(primals, tangents):
        (x, w), (dx, dw) = primals, tangents
        return f(x, w), 2.0 * f(x, w) * (dx * w + x * dw)

    program = pb.load(pb.artifact.serialize(pb.trace(f)(XS[0], jnp.float32(0.5))))
    batched = pb.load(pb.artifact.serialize(program.vmap((0, None), axis_size=2)))
    g = lambda h: lambda x: jnp.sum(h(x, jnp.float32(0.5)))  # noqa: E731
    theirs = jax.vmap(f, (0, None))
    for order in range(3):
        ours, expected = g(batched), g(theirs)
        for _ in range(order):
            ours, expected = slope(ours), slope(expected)
        np.testing.assert_allclose(ours(XS), expected(XS), rtol=1e-5)


def test_a_rule_that_is_told_of_zero_cotangents_is_batched():
    """Both of one result are used by one program, one of them by the other."""

    def bwd(x, cts):
        of_sin, of_cos = (0.0 if isinstance(ct, SymbolicZero) else ct for ct in cts)
        return (of_sin * jnp.cos(x) - of_cos * jnp.sin(x),)

    f = jax.custom_vjp(lambda x: (jnp.sin(x), jnp.cos(x)))
    f.defvjp(lambda x: (f(x.value), x.value), bwd, symbolic_zeros=True)
    for g in (lambda x: 2.0 * f(x)[0], lambda x: 2.0 * f(x)[1], lambda x: sum(f(x))):
        xs, cts = XS[0], jnp.ones_like(XS[0])
        (slopes,) = pb.trace(g)(xs[0]).vmap(axis_size=len(xs)).vjp()(xs, cts)[1]
        np.testing.assert_allclose(slopes, jax.vmap(jax.grad(g))(xs), rtol=1e-6)


def test_what_is_drawn_called_back_and_printed_runs_for_each_item(capfd):
    def f(x):
        jax.debug.print("item {}", x)
        like = jax.ShapeDtypeStruct((), jnp.float32)
        y = jax.pure_callback(np.sin, like, x, vmap_method="sequential")
        return y + jax.random.uniform(jax.random.key(0))

    program = pb.trace(f)(jnp.float32(1.0)).vmap(axis_size=2)
    np.testing.assert_allclose(program(XS[:, 0]), jax.vmap(f)(XS[:, 0]), rtol=1e-6)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("item 0.3") == 2


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_an_item_that_has_left_a_loop_calls_nobody(axes: Any) -> None:
    called = []

    def log(x):
        called.append(float(x))
        return x

    def f(limit, k):
        def body(carry):
            x, k = carry
            return 1.0 + io_callback(log, jax.ShapeDtypeStruct((), x.dtype), x), k

        return jax.lax.while_loop(lambda carry: carry[0] < limit, body, (0.0 * limit, k))

    limits, ks = jnp.array([1.0, 3.0, 0.0]), jnp.arange(3.0)
    args = [v if axis == 0 else v[1] for v, axis in zip((limits, ks), axes, strict=True)]
    x, k = pb.trace(f)(1.0, 0.0).vmap(axes, axis_size=3)(*args)
    np.testing.assert_array_equal(x, jnp.broadcast_to(args[0], 3))
    np.testing.assert_array_equal(k, jnp.broadcast_to(args[1], 3))
    assert sorted(called) == ([0.0, 0.0, 1.0, 2.0] if axes[0] == 0 else [0.0, 1.0, 2.0])


@pytest.mark.parametrize("count", [2, 3])
def test_a_branch_not_taken_calls_nobody(count):
    """As where a library raises an error for a number that is out of range."""

    def fails(x):
        raise ValueError(f"{x} is negative")

    @jax.custom_jvp
    def checked(x):
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        refuse = jax.jit(lambda: jax.pure_callback(fails, like, x))
        branches = [refuse, *[lambda: x] * (count - 1)]
        return jax.lax.switch(jnp.int32(x >= 0.0), branches)

    checked.defjvp(lambda primals, tangents: (checked(*primals), *tangents))
    xs, f = jnp.array([0.5, 3.0, 0.0]), lambda x: jnp.sin(checked(x))
    (slopes,) = pb.trace(f)(xs[0]).vmap(axis_size=3).vjp()(xs, jnp.ones(3))[1]
    for found in slopes, pb.vmap(pb.grad(f))(xs), -jax.vmap(pb.grad(pb.grad(pb.grad(f))))(xs):
        np.testing.assert_allclose(found, jnp.cos(xs), rtol=1e-6)
    with pytest.raises(Exception, match="is negative"):
        jax.block_until_ready(pb.vmap(pb.grad(f))(xs - 1))


@pytest.mark.parametrize("count", [2, 3])
def test_a_branch_not_taken_makes_no_gradient_nan(count):
    """The slopes there are infinite, by what differs between items and by what they share."""

    def f(x, w):
        branches = [lambda: w * 2.0 + x, lambda: jnp.sqrt(x) / x, lambda: w * jnp.log(x)]
        index = jnp.where(x > 0.0, jnp.where(x > 1.0, count - 1, 1), 0)
        return jax.lax.switch(index, branches[:count])

    xs, w, cts = jnp.array([0.0, -1.0, 0.5, 3.0]), jnp.float32(1.5), jnp.arange(1.0, 5.0)
    program = pb.trace(f)(xs[0], w).vmap((0, None), axis_size=4)
    out, pull = jax.vjp(jax.vmap(f, (0, None)), xs, w)
    for found, expected in [
        (program.vjp()(xs, w, cts), (out, pull(cts))),
        (program.jvp()(xs, w, cts, w), jax.jvp(jax.vmap(f, (0, None)), (xs, w), (cts, w))),
    ]:
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(expected))
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), found, expected)


def test_a_branch_not_taken_makes_no_gradient_of_a_sum_nan():
    """The cotangent is zero there in front of the sum, and the slopes behind it are infinite."""

    def f(x):
        return jax.lax.cond(jnp.min(x) > 0.0, lambda: jnp.sum(jnp.sqrt(x)), lambda: jnp.sum(x))

    xs, cts = jnp.array([[0.0, 2.0], [0.5, 3.0]]), jnp.arange(1.0, 3.0)
    program = pb.trace(f)(xs[0]).vmap(axis_size=2)
    expected = jnp.stack([ct * jax.grad(f)(x) for x, ct in zip(xs, cts, strict=True)])
    assert jnp.isfinite(expected).all()
    (slopes,) = program.vjp()(xs, cts)[1]
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)


def test_an_item_that_has_left_a_loop_makes_no_gradient_of_a_sum_nan():
    def f(x):
        def body(carry):
            total, x = carry
            return total + jnp.sum(jnp.sqrt(x - 0.25)), x - 0.25

        return jax.lax.while_loop(lambda carry: jnp.min(carry[1]) > 0.25, body, (0.0, x))[0]

    xs = jnp.array([[1.0, 1.5], [0.75, 1.0], [0.25, 0.5]])
    program = pb.trace(f)(xs[0]).vmap(axis_size=3)
    expected = jnp.stack([pb.grad(f)(x) for x in xs])
    assert jnp.isfinite(expected).all()
    (slopes,) = program.vjp()(xs, jnp.ones(3))[1]
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)


def with_slope(k: float) -> Any:
    f = jax.custom_vjp(lambda x: jnp.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda _, ct: (k * ct,))
    return f


def test_a_batch_in_another_program_keeps_its_rules():
    """Both programs have a rule of the same name, which are not the same."""
    inner, f = pb.trace(with_slope(3.0))(1.0).vmap(axis_size=2), with_slope(7.0)
    outer = pb.trace(lambda x: (f(x[0]), inner(x)))(XS[:, 0])
    _, (found,) = outer.vjp()(XS[:, 0], (1.0, jnp.ones(2)))
    np.testing.assert_allclose(found, [10.0, 3.0])


def test_a_result_that_all_items_share_has_its_rule_too():
    """The second result and its cotangent are for each item, whatever it is computed from."""

    @jax.custom_vjp
    def f(x, w):
        return x * w, jnp.sin(w)

    forward = lambda x, w: ((x * w, jnp.sin(w)), (x, w))  # noqa: E731
    f.defvjp(forward, lambda r, cts: (cts[0] * r[1], 5.0 * cts[1]))
    w, cts = jnp.float32(1.5), (XS, jnp.array([2.0, 3.0]))
    _, found = pb.trace(f)(XS[0], w).vmap((0, None), axis_size=2).vjp()(XS, w, cts)
    _, pull = jax.vjp(jax.vmap(f, (0, None)), XS, w)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), found, pull(cts))


def of_two(x, n):
    return jax.lax.composite(lambda x, n: (x * x, n + 1), "acme.two")(x, n)


WITH_COMPOSITES = {
    "branch": lambda x, n: jax.lax.cond(n[0] > 0, of_two, lambda x, n: (x, n), x, n),
    "loop": lambda x, n: jax.lax.fori_loop(0, 3, lambda _, c: of_two(*c), (x, n)),
    "call": jax.jit(lambda x, n: jax.lax.fori_loop(0, 3, lambda _, c: of_two(*c), of_two(x, n))),
}


@pytest.mark.parametrize("axes", [(0, None), (None, 0)])
@pytest.mark.parametrize("name", WITH_COMPOSITES)
def test_a_composite_of_which_items_share_a_result(name: str, axes: Any) -> None:
    """All results of a composite are batched, and what is around it knows that."""
    f, shared, items = WITH_COMPOSITES[name], jnp.array([2, 1]), jnp.array([[1, 2], [0, 3], [5, 4]])
    args = [shared if axis is None else items for axis in axes]
    found = pb.trace(f)(shared, shared).vmap(axes, axis_size=3)(*args)
    rows = [f(*(v if a is None else v[i] for v, a in zip(args, axes))) for i in range(3)]
    for ours, each in zip(found, zip(*rows, strict=True), strict=True):
        np.testing.assert_array_equal(ours, jnp.stack(each))


def test_what_items_share_passes_a_barrier_as_it_is() -> None:
    program = pb.trace(lambda x, w: jax.lax.optimization_barrier((x, w)))(XS[0], XS[0])
    _, w = program.vmap((0, None), (0, None), axis_size=2)(XS, XS[1])
    np.testing.assert_array_equal(w, XS[1])


SLOPES = {
    "same for each": lambda r, ct: (jnp.full_like(ct, 2**-10), ct * r[0]),
    "of each": lambda r, ct: (ct * r[1], ct * r[0]),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", SLOPES)
def test_many_cotangents_of_few_bits_are_summed(name: str, dtype: str) -> None:
    """The number of items is infinite in float16, and a sum of as many stands still in bfloat16."""
    f = jax.custom_vjp(lambda w, x: w * x)
    f.defvjp(lambda w, x: (w * x, (w, x)), SLOPES[name])
    size = 70000
    w, x = jnp.ones((), dtype), jnp.full(size, 2**-10, dtype)
    batched = pb.trace(f)(w, x[0]).vmap((None, 0), axis_size=size)
    found = pb.grad(lambda w: jnp.sum(batched(w, x).astype(jnp.float32)))(w)
    np.testing.assert_allclose(found.astype(float), size * 2**-10, rtol=1e-2)


# ---------------------------------------------------- results of a call that all items share


def of_each_and_of_all(w, x):
    return jnp.sin(w) * x, jnp.cos(w), jnp.int32(2)


def with_a_rule(symbolic_zeros: bool = False) -> Any:
    function = jax.custom_vjp(of_each_and_of_all)

    def fwd(w, x):
        w, x = (w.value, x.value) if symbolic_zeros else (w, x)
        return of_each_and_of_all(w, x), (w, x)

    def bwd(residuals, cts):
        w, x = residuals
        of_each, of_all = (
            jnp.zeros_like(w) if isinstance(ct, jax.custom_derivatives.SymbolicZero) else ct
            for ct in cts[:2]
        )
        return of_each * jnp.cos(w) * x - of_all * jnp.sin(w), of_each * jnp.sin(w)

    function.defvjp(fwd, bwd, symbolic_zeros=symbolic_zeros)
    return function


def total(results: Any) -> Any:
    of_each, of_all, count = results
    return jnp.sum(of_each**2) + jnp.sum(jnp.exp(of_all)) * jnp.sum(count)


SHARED: dict[str, Callable[[Any], Callable[[Any, Any], Any]]] = {
    "returned for each": lambda f: lambda w, xs: total(pb.vmap(lambda x: f(w, x))(xs)),
    "used with that of each": lambda f: (
        lambda w, xs: jnp.sum(pb.vmap(lambda x: jnp.prod(jnp.stack(f(w, x)[:2])))(xs))
    ),
    "dropped": lambda f: lambda w, xs: jnp.sum(pb.vmap(lambda x: f(w, x)[0])(xs) ** 2),
    "alone": lambda f: lambda w, xs: jnp.sum(pb.vmap(lambda x: f(w, x)[1])(xs) ** 2),
    "of two batches": lambda f: (
        lambda w, xs: total(
            pb.vmap(lambda w: pb.vmap(lambda x: f(w, x))(xs))(jnp.stack([w, 2 * w]))
        )
    ),
    "of two, twice": lambda f: (
        lambda w, xs: total(pb.vmap(pb.vmap(lambda x: f(w, x)))(jnp.stack([xs, 2 * xs])))
    ),
    "in jit": lambda f: lambda w, xs: total(pb.vmap(jax.jit(lambda x: f(w, x)))(xs)),
    "in a checkpoint": lambda f: (
        lambda w, xs: total(pb.vmap(jax.checkpoint(lambda x: f(w, x)))(xs))
    ),
    "in a loop": lambda f: (
        lambda w, xs: jnp.sum(
            pb.vmap(lambda x: jax.lax.scan(lambda c, w: (c + f(w, x)[0], f(w, x)[1]), x, w[None]))(
                xs
            )[1]
        )
    ),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("symbolic_zeros", [False, True])
@pytest.mark.parametrize("use", SHARED)
def test_a_result_that_all_items_share_has_its_cotangent_once(
    use: str, symbolic_zeros: bool, tmp_path: Path
) -> None:
    """JAX's batch of the rule counts it for each item up to 0.11, and raises from 0.12 on."""
    w, xs = np.array([0.3, 0.7]), np.array([[0.5, 0.9], [0.1, 0.2], [1.5, -0.4]])
    f, plain = SHARED[use](with_a_rule(symbolic_zeros)), SHARED[use](of_each_and_of_all)
    program = pb.trace(f)(w, xs)
    assert program.rules
    program.save(tmp_path / "f.mlirbc")
    expected = jax.grad(plain, (0, 1))(w, xs)
    for found in (
        pb.grad(f, (0, 1))(w, xs),
        pb.grad(jax.jit(f), (0, 1))(w, xs),
        pb.load(tmp_path / "f.mlirbc").grad((0, 1))(w, xs),
    ):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(
        pb.hessian(f)(w, xs), jax.hessian(plain)(w, xs), rtol=1e-11, atol=1e-13
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("around", [lambda f: f, jax.jit, jax.checkpoint])
def test_jax_batches_no_rule_whose_function_and_argument_are_shared(around: Any) -> None:
    f = with_a_rule()
    w, xs = np.array([0.3, 0.7]), np.array([[0.5, 0.9], [0.1, 0.2], [1.5, -0.4]])
    use = lambda w, xs: total(jax.vmap(around(lambda x: f(w, x)))(xs))  # noqa: E731
    with pytest.raises(RuleResultError) as raised:
        pb.grad(use)(w, xs)
    words = str(raised.value)
    assert "result 1 of `of_each_and_of_all` is the same for all items of a jax.vmap" in words
    assert "and so is its argument 0" in words
    assert "where: tests/program/test_batches.py:" in words
    assert "pb.vmap(f)" in words


def over_items(of_one: Callable[[Any], Any], xs: Any) -> Any:
    return jnp.sum(jax.vmap(of_one, axis_name="items")(xs) ** 2)


def with_a_backward_rule(of_mean: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    mean = jax.custom_vjp(lambda x: jax.lax.pmean(x, "items"))
    mean.defvjp(lambda x: (mean(x), x), lambda x, ct: (of_mean(x, ct),))
    return lambda xs: over_items(lambda x: mean(x) * x, xs)


DERIVED: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, xs: pb.grad(f)(xs),
    "grad of a program": lambda f, xs: pb.trace(f)(xs).grad(),
    "jvp": lambda f, xs: pb.jvp(f, (xs,), (xs,)),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("derive", DERIVED)
def test_a_rule_may_sum_a_cotangent_that_all_items_share(derive: str) -> None:
    """It would count it n times. JAX has no axis of that name in such a rule."""
    xs = np.array([0.3, -0.2, 0.7])
    f = with_a_backward_rule(lambda x, ct: jax.lax.psum(ct, "items"))
    with pytest.raises(RuleResultError) as raised:
        DERIVED[derive](f, xs)
    words = str(raised.value)
    assert "is the same for all items of a jax.vmap: the cotangent" in words
    assert "would be counted once for each item" in words
    assert "where: tests/program/test_batches.py:" in words
    assert "jax.shard_map" in words


@jax.custom_vjp
def stepped(y, t):
    return y * t, t + 1


stepped.defvjp(
    lambda y, t: (stepped(y, t), (y, t)),
    lambda r, cts: (cts[0] * r[1], 3 * cts[0] * r[0] + cts[1]),
)


def loss_of_steps(ys: Any, t: Any = 2.0) -> Any:
    return jnp.sum(jax.vmap(lambda y: stepped(y, t)[0])(ys) ** 2)


@pytest.mark.parametrize("around", [lambda f: f, jax.jit, jax.checkpoint, pb.jit])
def test_a_shared_result_without_a_cotangent_is_not_refused(around: Callable[..., Any]) -> None:
    """A batch of a solver shares its times, which a loss of its states does not use."""
    ys, t = np.arange(3, dtype=np.float32), np.float32(2)
    found = pb.grad(around(loss_of_steps), (0, 1))(ys, t)
    for one, expected in zip(found, (2 * ys * t**2, 3 * np.sum(2 * ys**2 * t)), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-6)
    np.testing.assert_allclose(pb.trace(around(loss_of_steps))(ys, t).grad()(ys, t), found[0])
    np.testing.assert_allclose(jax.grad(pb.jit(loss_of_steps))(ys), found[0], rtol=1e-6)


@pytest.mark.parametrize("around", [lambda f: f, jax.jit, jax.checkpoint])
def test_forward_mode_and_a_file_of_such_a_result(
    around: Callable[..., Any], tmp_path: Path
) -> None:
    ys, t = np.arange(3, dtype=np.float32), np.float32(2)
    program = pb.trace(around(loss_of_steps))(ys, t)
    program.save(tmp_path / "f.mlirbc")
    grads = 2 * ys * t**2, 3 * np.sum(2 * ys**2 * t)
    for each in (program, pb.load(tmp_path / "f.mlirbc")):
        for one, expected in zip(each.grad((0, 1))(ys, t), grads, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-6)
        np.testing.assert_allclose(each.grad(1)(ys, t), grads[1], rtol=1e-6)
        _, tangent = each.jvp()(ys, t, ys, t)
        np.testing.assert_allclose(tangent, grads[0] @ ys + grads[1] * t, rtol=1e-6)
        np.testing.assert_allclose(pb.hessian(each)(ys, t), 2 * t**2 * np.eye(3), rtol=1e-6)
    _, tangent = pb.jvp(around(loss_of_steps), (ys,), (ys,))
    np.testing.assert_allclose(tangent, grads[0] @ ys, rtol=1e-6)


def test_a_shared_result_with_a_cotangent_is_refused_still(tmp_path: Path) -> None:
    def loss(ys):
        states, time = jax.vmap(lambda y: stepped(y, 2.0), out_axes=(0, None))(ys)
        return jnp.sum(states) + time

    ys = np.arange(3, dtype=np.float32)
    for derive in (
        lambda: pb.grad(loss)(ys),
        lambda: pb.jvp(loss, (ys,), (ys,)),
        lambda: pb.trace(loss)(ys).save(tmp_path / "f.mlirbc"),
    ):
        with pytest.raises(RuleResultError, match="result 1 of `stepped` is the same") as error:
            derive()
        assert "test_batches.py" in error.value.where


@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_a_shared_result_of_arguments_that_are_not_shared(factor: float) -> None:
    """JAX hands the rule of each item the cotangent of all; one that ignores it is right."""
    f = jax.custom_vjp(lambda x: (2.0 * x, jnp.zeros_like(x)))
    f.defvjp(
        lambda x: ((2.0 * x, jnp.zeros_like(x)), x),
        lambda x, cts: (2.0 * cts[0] + (cts[1] * x if factor else 0.0),),
    )
    xs = jnp.arange(3.0)
    whole = lambda xs: sum(map(jnp.sum, jax.vmap(f)(xs)))  # noqa: E731
    if not factor:
        np.testing.assert_allclose(pb.grad(whole)(xs), [2.0] * 3)
        return
    with pytest.raises(RuleResultError, match="the cotangent of that result would be counted"):
        pb.grad(whole)(xs)
    by_pass = lambda xs: sum(map(jnp.sum, pb.vmap(f)(xs)))  # noqa: E731
    np.testing.assert_allclose(pb.grad(by_pass)(xs), 2.0 + xs)


# ------------------------------------------------------ what JAX has no batching rule for


def doubled(x):
    return jax.custom_derivatives.linear_call(
        lambda r, v: v * r, lambda r, ct: 3.0 * ct * r, 2.0, x
    )


@jax.custom_batching.custom_vmap
def with_batching_rule(x):
    return jnp.sin(x)


with_batching_rule.def_vmap(lambda size, batched, x: (jnp.cos(x), True))


def test_vmap_batches_a_linear_call_which_jax_does_not() -> None:
    xs = jnp.arange(3.0)
    with pytest.raises(NotImplementedError):
        jax.vmap(doubled)(xs)
    np.testing.assert_allclose(pb.vmap(doubled)(xs), 2 * xs)
    found = pb.grad(lambda xs: jnp.sum(pb.vmap(doubled)(xs) ** 2))(xs)
    np.testing.assert_allclose(found, 24 * xs)  # by its own transpose: 3 * 2 * (2 * 2 * xs)


@pytest.mark.parametrize("in_axes", [(0, 0, 0), (0, None, None), (None, 2, None), (None, 0, 0)])
def test_vmap_batches_ragged_products_along_any_axis(in_axes: Any) -> None:
    key = jax.random.key(0)
    shapes = ((2, 4, 3), (2, 2, 3, 5))
    lhs, rhs = (jax.random.normal(key, shape) for shape in shapes)
    sizes = jnp.array([[2, 2], [1, 3]], jnp.int32)
    args = [v if a == 0 else v[0] for v, a in zip((lhs, rhs, sizes), in_axes, strict=True)]
    if in_axes[1] == 2:
        args[1] = rhs[0]
    found = pb.vmap(jax.lax.ragged_dot, in_axes)(*args)
    count = next(v.shape[a] for v, a in zip(args, in_axes, strict=True) if a is not None)
    rows = [
        jax.lax.ragged_dot(*(v if a is None else jnp.take(v, i, a) for v, a in zip(args, in_axes)))
        for i in range(count)
    ]
    np.testing.assert_allclose(found, jnp.stack(rows), rtol=1e-5)


def test_vmap_runs_a_callback_for_one_item_after_the_other() -> None:
    seen = []

    def host(x):
        seen.append(x.shape)
        return np.sin(x)

    f = lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((3,), jnp.float32), x)  # noqa: E731
    xs = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(pb.vmap(f)(xs), np.sin(xs), rtol=1e-6)
    assert set(seen) == {(3,)}


def test_vmap_honours_a_batching_rule() -> None:
    xs = jnp.arange(3.0)
    for f in (with_batching_rule, lambda x: with_batching_rule(x)):
        np.testing.assert_allclose(pb.vmap(f)(xs), jnp.cos(xs), rtol=1e-6)


def test_vmap_traces_a_function_once_for_many_calls() -> None:
    traces = []

    def f(x):
        traces.append(x)
        return jnp.sin(x)

    for _ in range(3):
        pb.vmap(f)(jnp.arange(3.0))
    assert len(traces) == 1


def test_vmap_hands_on_integers_that_no_axis_is_mapped_of() -> None:
    f = lambda x, n: x * jnp.ones(n)  # noqa: E731
    np.testing.assert_allclose(pb.vmap(f, (0, None))(jnp.arange(3.0), 2).shape, (3, 2))
