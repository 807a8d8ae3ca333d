"""Mutable arrays (`jax.Ref`) that a function makes for itself, and those that cotangents go to.

JAX differentiates many of these functions; where it does not (second derivatives, batches,
checkpoints that write to one, loops of unknown length), finite differences are the oracle.
"""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback._jax import references
from tests.api.checks import assert_agrees

X = np.array([0.3, 0.4, 0.5])

pytestmark = pytest.mark.usefixtures("float64")


# ------------------------------------------------------------------------ functions and rules


@jax.custom_jvp
def tripled(x):
    """Its rule is false on purpose; a mutable array is in the function, and one in its rule."""
    r = jax.new_ref(x)
    r[0] += 1.0
    r[...] *= 2.0
    return r[...]


@tripled.defjvp
def _(primals, tangents):
    r = jax.new_ref(jnp.zeros_like(tangents[0]))
    r[...] += 5.0 * tangents[0]
    return tripled(*primals), r[...]


@jax.custom_vjp
def stretched(x):
    """As `tripled`, in reverse mode: the rule gives seven times the cotangent, and more."""
    r = jax.new_ref(x)
    r[0] += 1.0
    return r[...]


def _fwd(x):
    r = jax.new_ref(x)
    r[0] = jnp.sin(r[1])
    return stretched(x), r[...]


def _bwd(residual, ct):
    r = jax.new_ref(ct)
    r[1] += residual[0] * ct[0]
    return (7.0 * r[...],)


stretched.defvjp(_fwd, _bwd)


def loop(x):
    r = jax.new_ref(jnp.zeros(3))

    def body(i, _):
        r[i] = jnp.sin(x[i]) * r[i - 1] + jax.nn.softplus(x[i])

    jax.lax.fori_loop(0, 3, body, None)
    r[...] += x
    return jnp.sum(r[...] ** 2)


def scan_of_stacks(x):
    table = jnp.arange(3.0) * np.pi
    r = jax.new_ref(x)

    def body(c, i):
        r[...] = r[...] * table[i] + table[::-1]
        return c + r[1], r[2]

    c, ys = jax.lax.scan(body, 1.0, jnp.arange(3))
    return c + jnp.sum(ys) + jnp.sum(jax.freeze(r))


def branches(x):
    r = jax.new_ref(x)

    def first():
        r[0] = jnp.sin(r[1])
        return r[2]

    def second():
        r[1] *= 2.0
        return x[0]

    return jax.lax.cond(x[0] > 0.1, first, second) * jax.lax.cond(
        x[0] > 9.1, first, second
    ) + jnp.sum(r[...])


def steps_of_unknown_number(x):
    r, count = jax.new_ref(x), jax.new_ref(0)

    def body(c):
        r[...] = jnp.sin(r[...])
        count[...] += 1
        return c * 1.5

    jax.lax.while_loop(lambda c: c < 4.0, body, x[0])
    return jnp.sum(r[...]) * count[...]


def handed_to_functions(x):
    r = jax.new_ref(x)

    @jax.jit
    def update(i, v):
        r[i] += v
        return r[i]

    y = update(2, update(1, x[0]))
    r[jnp.array([0, 2])] = r[jnp.array([2, 1])] * 2
    old = jax.ref.swap(r, slice(0, 2), r[1:])
    r.addupdate(r[...])
    return jnp.sum(r[...] ** 2) * y + jnp.sum(old)


def checkpointed(x):
    r = jax.new_ref(x)

    @jax.checkpoint
    def step(y):
        r[0] = jnp.tanh(y[1]) * r[0]
        return jnp.sin(y) * r[1]

    return jnp.sum(step(step(x))) + r[0]


def freed(x):
    r = jax.empty_ref(jax.ShapeDtypeStruct((3,), x.dtype))
    r[...] = jnp.exp(x)
    y = jnp.sum(r[...])
    jax.free_ref(r)
    return y


def mapped(x):
    def one(x):
        r = jax.new_ref(jnp.zeros(()))
        r[...] += x
        r[...] = jax.nn.softplus(r[...])
        return r[...]

    return jnp.sum(jax.vmap(one)(x))


def complex_numbers(x):
    r = jax.new_ref(x + 1j)
    r[1] = jnp.exp(r[0])
    return jnp.sum(jnp.abs(r[...]))


def in_a_tree(x):
    state = {"m": jax.new_ref(x), "v": jax.new_ref(x**2)}
    for _ in range(2):
        state["m"][...] = 0.9 * state["m"][...] + 0.1 * state["v"][...]
        state["v"][...] = state["v"][...] * state["m"][...]
    return jnp.sum(state["m"][...] * state["v"][...])


FUNCTIONS = {
    f.__name__: f
    for f in (
        loop,
        scan_of_stacks,
        branches,
        steps_of_unknown_number,
        handed_to_functions,
        checkpointed,
        freed,
        mapped,
        complex_numbers,
        in_a_tree,
    )
}
ONLY_HERE = {"steps_of_unknown_number", "checkpointed"}
"""Where JAX's reverse mode raises."""


def differences(f, x, step=1e-6):
    """Central differences of `f` in the directions of x's elements, stacked behind its result's."""
    columns = [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    return np.stack([np.asarray(c) for c in columns], axis=-1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name: str) -> None:
    f = jax.jit(FUNCTIONS[name])
    program = pb.trace(f)(X)
    assert_agrees(program(X), f(X))
    gradient = program.grad()
    if name not in ONLY_HERE:
        assert_agrees(gradient(X), jax.grad(f)(X))
    np.testing.assert_allclose(gradient(X), differences(f, X), rtol=1e-7, atol=1e-8)
    _, tangent = pb.jvp(f, (X,), (X + 1,))
    np.testing.assert_allclose(tangent, gradient(X) @ (X + 1), rtol=1e-12)
    second = differences(gradient, X)
    for found in (pb.hessian(f)(X), pb.jacrev(pb.grad(f))(X)):
        np.testing.assert_allclose(found, second, rtol=1e-6, atol=1e-7)
    rows = gradient.vmap(axis_size=2)(np.stack([X, 2 * X]))
    assert_agrees(rows, jnp.stack([gradient(X), gradient(2 * X)]))


@pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="JAX's barrier takes none")
def test_a_barrier() -> None:
    def f(x):
        r, other = jax.new_ref(jnp.sin(x)), jax.new_ref(x)
        y, r, held = jax.lax.optimization_barrier((x**2, r, other))
        r[...] = r[...] * y * held[1]
        held[0] += 1.0
        return jnp.sum(r[...]) * other[0]

    assert_agrees(pb.trace(f)(X)(X), f(jnp.array(X)))
    assert_agrees(pb.grad(f)(X), jax.grad(f)(X))
    np.testing.assert_allclose(pb.hessian(f)(X), differences(pb.grad(f), X), rtol=1e-6, atol=1e-7)


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="JAX pins none")
def test_one_that_is_pinned_to_a_buffer() -> None:
    """JAX gives the value, under `jit`, and no derivatives."""

    def f(x, pin):
        r, other = jax.new_ref(x, pin=pin), jax.empty_ref(jax.typeof(x), pin=pin)
        other[...] = jnp.sin(r[...])

        def body(i, _):
            r[i] = jax.nn.softplus(other[i]) * r[i]

        jax.lax.fori_loop(0, 3, body, None)
        return jnp.sum(r[...] * other[...])

    pinned, plain = partial(f, pin=True), partial(f, pin=False)
    assert_agrees(pb.trace(pinned)(X)(X), jax.jit(plain)(X))
    assert_agrees(pb.grad(pinned)(X), pb.grad(plain)(X))
    assert_agrees(pb.grad(jax.jit(pinned))(X), pb.grad(plain)(X))
    assert_agrees(pb.hessian(pinned)(X), pb.hessian(plain)(X))
    assert pb.trace(pinned)(X).rules


# ------------------------------------------------------------------------------------- rules


def through_rules(x):
    r = jax.new_ref(x)
    for _ in range(2):
        r[...] = tripled(r[...]) * stretched(r[...])

    def body(i, _):
        r[i] = jax.nn.relu(r[i] - x[0])

    jax.lax.fori_loop(0, 3, body, None)
    return jnp.sum(jax.checkpoint(lambda x: jnp.sin(tripled(x)))(r[...]))


@jax.custom_jvp
def tripled_by_values(x):
    return 2.0 * x.at[0].add(1.0)


tripled_by_values.defjvp(lambda x, t: (tripled_by_values(*x), 5.0 * t[0]))


@jax.custom_vjp
def stretched_by_values(x):
    return x.at[0].add(1.0)


stretched_by_values.defvjp(
    lambda x: (stretched_by_values(x), jnp.sin(x[1])),
    lambda sine, ct: (7.0 * ct.at[1].add(sine * ct[0]),),
)


def through_rules_by_values(x):
    start = x[0]
    for _ in range(2):
        x = tripled_by_values(x) * stretched_by_values(x)
    return jnp.sum(jnp.sin(tripled_by_values(jax.nn.relu(x - start))))


def test_rules_stay_and_answer() -> None:
    program = pb.trace(through_rules)(X)
    assert {"tripled", "stretched", "relu"} <= set(program.rules)
    assert_agrees(program(X), through_rules(jnp.array(X)))
    assert_agrees(program(X), through_rules_by_values(jnp.array(X)))
    assert_agrees(program.grad()(X), jax.grad(through_rules_by_values)(jnp.array(X)))


def test_a_rule_that_closes_over_a_value() -> None:
    def f(x):
        s = 2.0 * jnp.sum(x)

        @jax.custom_jvp
        def scaled(y):
            return jnp.sin(y)

        @scaled.defjvp
        def _(primals, tangents):
            return scaled(*primals), 3.0 * s * tangents[0]

        r = jax.new_ref(x)

        def body(i, c):
            r[i] = scaled(r[i]) + c * r[i]
            return c + 1.0

        return jax.lax.fori_loop(0, 3, body, 1.0) * jnp.sum(r[...])

    # JAX raises: the rule runs when the loop's trace is over.
    assert_agrees(pb.grad(f)(X), 4.0 * (3.0 * (2.0 * np.sum(X)) + np.array([1.0, 2.0, 3.0])))


def test_calls_that_do_not_say_what_they_make() -> None:
    def doubled(residual, y):
        r = jax.new_ref(y)
        r[...] *= 2.0 * residual
        return r[...]

    def inverse(g, y):
        return y / g(jnp.ones(3))

    def f(x):
        def cubic(z):
            r = jax.new_ref(z)
            r[...] = r[...] ** 3
            return r[...] + z - jnp.sin(x)

        y = jax.custom_derivatives.linear_call(doubled, doubled, x, jnp.sin(x))
        return jnp.sum(y * jax.lax.custom_root(cubic, jnp.zeros(3), newton(30), inverse))

    def newton(steps):
        def solve(f, z):
            return jax.lax.fori_loop(0, steps, lambda _, z: z - f(z) / (3 * z**2 + 1), z)

        return solve

    def by_values(x):
        z = jax.lax.custom_root(lambda z: z**3 + z - jnp.sin(x), jnp.zeros(3), newton(30), inverse)
        return jnp.sum(2.0 * x * jnp.sin(x) * z)

    assert_agrees(pb.trace(f)(X)(X), by_values(X))
    assert_agrees(pb.grad(f)(X), jax.grad(by_values)(X))
    np.testing.assert_allclose(pb.hessian(f)(X), jax.hessian(by_values)(X), rtol=1e-9)


def test_saved_and_loaded(tmp_path) -> None:
    path = tmp_path / "f.pbk"
    pb.trace(through_rules)(X).save(path, order=1)
    assert_agrees(pb.load(path).grad()(X), jax.grad(through_rules_by_values)(jnp.array(X)))


# ---------------------------------------------------------------------------------- refusals


def handed_to_a_rule(x):
    @jax.custom_vjp
    def stash(ref, x):
        return x

    def backward(ref, ct):
        ref[...] = ct
        return None, ct

    stash.defvjp(lambda ref, x: (x, ref), backward)
    r = jax.new_ref(jnp.zeros(3))
    return jnp.sum(stash(r, jnp.sin(x)))


def taken(x, r):
    r[...] += x
    return jnp.sum(r[...])


REFUSED = {
    "operand of a call with rules": (lambda _: (handed_to_a_rule,), "test_references.py:"),
    "argument": (lambda r: (taken, r), "among its arguments"),
    "closed over": (lambda r: (lambda x: taken(x, r),), "among its arguments"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_from_outside_is_an_error_in_words(name: str) -> None:
    given, where = REFUSED[name]
    f, *others = given(jax.new_ref(np.zeros(3)))
    words = r"handed a mutable array \(jax.Ref\)(.|\n)*with jax.new_ref"
    with pytest.raises(pb.PullbackError, match=words) as caught:
        pb.grad(f)(X, *others)
    assert where in (caught.value.where or "")


def test_a_condition_that_reads_what_the_body_writes_is_an_error() -> None:
    def until(x, limit, written):
        r = jax.new_ref(x)

        def body(count):
            if written:
                r[...] *= 2.0
            return count + r[0]

        return jax.lax.while_loop(lambda count: count + r[0] < limit, body, 0.0)

    # JAX's loop does not end: its condition has the value from before the loop.
    with pytest.raises(pb.PullbackError, match="condition reads what its body writes") as caught:
        pb.trace(until, static_argnums=(1, 2))(X, 9.0, True)
    assert "test_references.py:" in (caught.value.where or "")

    def condition(r, count):
        r[...] *= 2.0
        return r[0] < 9.0

    def writing(x):
        r = jax.new_ref(x)
        jax.lax.while_loop(partial(condition, r), lambda count: count + 1, 0)
        return jnp.sum(r[...])

    with pytest.raises(pb.PullbackError, match="or writes"):  # JAX's has half of the value
        pb.trace(writing)(X)
    program = pb.trace(lambda x: until(x, 1.0, False))(X)
    assert_agrees(program(X), jax.jit(lambda x: until(x, 1.0, False))(X))


def test_a_callback_is_handed_the_value() -> None:
    seen = []

    def f(x):
        r = jax.new_ref(x)
        r[0] += 1.0
        jax.debug.callback(seen.append, r)
        return jnp.sum(r[...] ** 2)

    assert_agrees(pb.grad(f)(X), 2.0 * np.array([1.3, 0.4, 0.5]))
    jax.effects_barrier()
    np.testing.assert_allclose(seen, [[1.3, 0.4, 0.5]])


def test_a_function_without_one_is_not_made_anew() -> None:
    closed = jax.make_jaxpr(jnp.sin)(X)
    assert references.discharged(closed) is closed


# --------------------------------------------------------------------- cotangents into arrays


def layer(p, x, i):
    return (p["w"] @ x)[i], p["b"] * jnp.sum(x)


PLACES = {"b": jax.ad.GradValue()}, jax.ad.DontWant(), jax.ad.GradValue()


@pytest.mark.parametrize("jitted", [False, True])
def test_cotangents_are_added_to_mutable_arrays(jitted: bool) -> None:
    p = {"w": np.ones((2, 3)), "b": np.ones(2)}
    found = []
    for vjp in (jax.vjp, pb.vjp):
        total = jax.new_ref(np.ones((2, 3)))
        places = ({"w": total, **PLACES[0]}, *PLACES[1:])
        _, pull = vjp(layer, p, X, 1)

        def run(pull, ct, places=places):
            return pull.with_refs(*places)(ct)

        for _ in range(2):
            out = (jax.jit(run) if jitted else run)(pull, (1.0, np.ones(2)))
        assert out[0]["w"] == jax.ad.GradRef()
        assert out[1] == jax.ad.DidntWant()
        found.append((out[0]["b"], out[2], total[...]))
    assert_agrees(*reversed(found))


def test_gradients_of_small_batches_add_up_in_a_loop() -> None:
    def loss(w, xs):
        return jnp.mean(jnp.tanh(xs @ w))

    def total(vjp, w, batches):
        ref = jax.new_ref(jnp.zeros_like(w))

        def step(_, xs):
            value, pull = vjp(partial(loss, xs=xs), w)
            pull.with_refs(ref)(jnp.ones_like(value))
            return None, value

        _, values = jax.lax.scan(step, None, batches)
        return jax.freeze(ref), values

    w, batches = np.linspace(-1, 1, 6).reshape(3, 2), np.linspace(-1, 2, 60).reshape(5, 4, 3)
    assert_agrees(total(pb.vjp, w, batches), total(jax.vjp, w, batches))
    assert_agrees(jax.jit(partial(total, pb.vjp))(w, batches), total(jax.vjp, w, batches))


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ((1.0,), "must be jax.Ref, .* but there is a float"),
        ((jax.ad.GradValue(),) * 2, r"in the structure of the arguments, .*, but they have "),
    ],
)
def test_places_that_do_not_fit_are_an_error(places, words: str) -> None:
    _, pull = pb.vjp(jnp.sin, X)
    with pytest.raises(pb.ArgumentMismatchError, match=words) as caught:
        pull.with_refs(*places)
    assert re.search("name a place for each leaf", str(caught.value))


def test_a_place_of_another_type_is_an_error() -> None:
    _, pull = pb.vjp(lambda x, n: x * n, X, 2)
    pull.with_refs(jax.new_ref(jnp.zeros_like(X)), jax.new_ref(0))
    for place in (X[:1], np.zeros(X.shape, np.int32)):
        words = r"args\[0\] is added to a jax.Ref of .*, but there is one of "
        with pytest.raises(pb.ArgumentMismatchError, match=words) as caught:
            pull.with_refs(jax.new_ref(place), jax.ad.DontWant())
        assert "jnp.zeros_like" in str(caught.value)
