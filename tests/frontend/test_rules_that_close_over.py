"""Rules that use what their function closes over: operands of the call, and of the rule."""

# ruff: noqa: B007, B023
from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback import artifact

X, Y, Z = jnp.array([0.3, 0.7, -0.2]), jnp.array([1.5, 0.4, 2.0]), jnp.array([0.9, -1.1, 0.6])


def forward(a, b):
    f = jax.custom_jvp(lambda x: jnp.sin(x) * a + b)
    f.defjvp(lambda p, t: (f(*p), 3.0 * t[0] * jnp.cos(p[0]) * a * a + b * t[0]))
    return f


def backward(a, b):
    """Its forward rule uses the values as well."""
    f = jax.custom_vjp(lambda x: jnp.sin(x) * a + b)
    f.defvjp(
        lambda x: (f(x), (x, b)), lambda r, ct: (3.0 * ct * jnp.cos(r[0]) * a * a + r[1] * ct,)
    )
    return f


def in_another_order(a, b):
    """The backward rule uses what the function uses last, and in a branch."""
    f = jax.custom_vjp(lambda x: jnp.sin(x) * a + b)
    f.defvjp(
        lambda x: (f(x), x),
        lambda x, ct: (jax.lax.cond(x[0] > 0, lambda c: c * b * a * a, jnp.negative, ct),),
    )
    return f


def nested(a, b):
    inner = forward(b, a)
    f = jax.custom_vjp(lambda x: inner(x) * b)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (7.0 * ct * inner(x) * b,))
    return f


KINDS = [forward, backward, in_another_order, nested]

USES = {
    "once": lambda make, x, y, z: make(y, z)(x) * x,
    "with values of its own": lambda make, x, y, z: make(jnp.exp(y), z[0])(x),
    "two calls of one function": lambda make, x, y, z: twice(make(y, z), x),
    "two functions of one code": lambda make, x, y, z: make(y, z)(x) * make(z, y)(x),
    "one value twice": lambda make, x, y, z: make(y, y)(x) + make(z, y)(x),
    "what has no derivative": lambda make, x, y, z: make(jax.lax.stop_gradient(x * y), z)(x),
    "an integer": lambda make, x, y, z: make(jnp.argmax(y), z)(x),
}


def twice(f, x):
    return f(x) * f(2.0 * x)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_derivatives_by_the_arguments(make, use):
    def function(x, y, z):
        return jnp.sum(use(make, x, y, z))

    args = X, Y, Z
    program = pb.trace(function)(*args)
    gradient, curvature = jax.jit(
        lambda x, *others: jax.value_and_grad(
            lambda x: jnp.vdot(jax.grad(function)(x, *others), Z)
        )(x)
    )(*args)
    expected = jax.jit(jax.grad(function))(*args)
    assert jnp.allclose(gradient, jnp.vdot(expected, Z), rtol=1e-5)
    assert jnp.allclose(pb.grad(function)(*args), expected, rtol=1e-5)
    assert jnp.allclose(program.jvp(wrt=0)(*args, Z)[1], jnp.vdot(expected, Z), rtol=1e-5)
    assert jnp.allclose(program.grad().vjp(wrt=0)(*args, Z)[1], curvature, rtol=1e-4)
    loaded = pb.load(artifact.serialize(program))
    assert jnp.allclose(loaded.grad()(*args), expected, rtol=1e-5)
    assert jnp.allclose(loaded.grad().vjp(wrt=0)(*args, Z)[1], curvature, rtol=1e-4)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_by_what_it_closes_over_is_an_error(make):
    def function(x, y, z):
        return jnp.sum(make(y, z)(x))

    for position in (1, 2):
        with pytest.raises(pb.MissingRuleError, match="closes over a value that is different"):
            pb.grad(function, position)(X, Y, Z)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_inside_a_jitted_function(make):
    """JAX cannot do this."""
    inner = jax.jit(lambda x, y, z: make(y, z)(x))
    found = pb.grad(lambda x, y, z: jnp.sum(inner(x, y, z) * inner(x, z, y)))(X, Y, Z)
    expected = jax.jit(jax.grad(lambda x, y, z: jnp.sum(make(y, z)(x) * make(z, y)(x))))(X, Y, Z)
    assert jnp.allclose(found, expected, rtol=1e-5)


def jvp_of(k, a):
    f = jax.custom_jvp(lambda x: jnp.sin(x) * a)
    f.defjvp(lambda p, t: (f(*p), k * jnp.cos(p[0]) * a * t[0]))
    return f


def fwd_of(k, a):
    """Its backward rule takes the value from the residuals."""
    f = jax.custom_vjp(lambda x: jnp.sin(x) * a)
    f.defvjp(lambda x: (f(x), (x, a)), lambda r, ct: (k * ct * jnp.cos(r[0]) * r[1],))
    return f


def bwd_of(k, a):
    f = jax.custom_vjp(lambda x: jnp.sin(x) * a)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (k * ct * jnp.cos(x) * a,))
    return f


def explicit(k, a):
    """What they are, for JAX: it has no rules in loops that close over what is traced there."""
    f = jax.custom_jvp(lambda x, a: jnp.sin(x) * a)
    f.defjvp(lambda p, t: (f(*p), k * jnp.cos(p[0]) * p[1] * t[0]))
    return lambda x: f(x, a)


def jvp_alone(k, a):
    """Here and below: the value is one of the rule's only."""
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), k * jnp.cos(p[0]) * a * t[0]))
    return f


def fwd_alone(k, a):
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (f(x), k * jnp.cos(x) * a), lambda r, ct: (ct * r,))
    return f


def bwd_alone(k, a):
    """The value is in a dictionary, and found through a partial."""
    f = jax.custom_vjp(jnp.sin)
    bwd = lambda values, x, ct: (k * ct * jnp.cos(x) * values["a"],)  # noqa: E731
    f.defvjp(lambda x: (f(x), x), functools.partial(bwd, {"a": a}))
    return f


def bwd_of_another(k, a):
    """The value is in the backward rule of a function that only a backward rule calls."""
    inner = bwd_alone(k, a)
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: jax.vjp(inner, x)[1](ct))
    return f


def keyword_alone(k, a):
    def rule(primals, tangents, *, a=a):
        return f(*primals), k * jnp.cos(primals[0]) * a * tangents[0]

    f = jax.custom_jvp(jnp.sin)
    f.defjvp(rule)
    return f


def nondiff_alone(k, a):
    f = jax.custom_jvp(lambda a, x: jnp.sin(x), nondiff_argnums=(0,))
    f.defjvp(lambda a, p, t: (f(a, *p), k * jnp.cos(p[0]) * a * t[0]))
    return functools.partial(f, a)


def explicit_alone(k, a):
    f = jax.custom_jvp(lambda x, a: jnp.sin(x))
    f.defjvp(lambda p, t: (f(*p), k * jnp.cos(p[0]) * p[1] * t[0]))
    return lambda x: f(x, a)


def repeat(step, x, length=3):
    return jax.lax.scan(lambda c, _: (step(c), None), x, None, length)[0]


def carried(make, x, y):
    step = lambda c, w: ((c[0] * w, make(c[0] * y)(c[1]) + make(w)(x)), None)  # noqa: E731
    return jax.lax.scan(step, (y, x), jnp.stack([y, 2.0 * y]))[0][1]


def made_once(make, x, y):
    f = make(y)
    return repeat(lambda c: f(c) + f(x), x)


def while_loop(make, x, y):
    start = 0, x
    return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, make(y)(s[1]) + x), start)[1]


def called_twice(make, x, y):
    """One jaxpr of the jitted function, in which an argument is what is around it once only."""
    f = jax.jit(lambda x, w: make(y)(x) * make(w)(x))
    return f(x, y) + f(x, 2.0 * y)


def on_two_axes(make, x, y):
    f = jax.jit(lambda v: make(y)(v) * jnp.arange(3.0))
    pairs = jnp.outer(x, x)
    return jnp.sum(jax.vmap(f, 0)(pairs) * jax.vmap(f, 1)(pairs), 0)


def a_rule_of_a_rule(make, x, y):
    h = jax.custom_jvp(lambda x: make(y)(x) * y)
    h.defjvp(lambda p, t: jax.jvp(lambda x: explicit(2.0, y)(x) * y, p, t))
    return repeat(h, x)


BODIES = {
    "a loop": lambda make, x, y: repeat(lambda c: make(y)(c) + x, x),
    "a loop, made outside": made_once,
    "what the loop carries and slices": carried,
    "a loop in a loop": lambda make, x, y: repeat(
        lambda c: repeat(lambda d: make(jnp.exp(y))(d) + c, c), x
    ),
    "a while loop": while_loop,
    "branches": lambda make, x, y: jax.lax.cond(x[0] > 0, make(y), lambda x: make(y * y)(x), x),
    "a branch that has the value": lambda make, x, y: jax.lax.cond(
        x[0] > 0, lambda x: make(jnp.exp(y))(x), lambda x: x, x
    ),
    "a branch that is given the value": lambda make, x, y: jax.lax.cond(
        x[0] > 0, lambda v: make(y)(x) * v * y, lambda v: v, y
    ),
    "checkpoint": lambda make, x, y: jax.checkpoint(lambda x: make(y)(x))(x),
    "jit": lambda make, x, y: jax.jit(lambda x: make(y)(x))(x),
    "jit in a loop": lambda make, x, y: repeat(jax.jit(lambda x: make(y)(x)), x),
    "jit, called twice": called_twice,
    "vmap of jit": on_two_axes,
    "a rule": a_rule_of_a_rule,
}


def weighted(make, use):
    return lambda x, y: jnp.vdot(use(make, x, jax.lax.stop_gradient(y)), Z)


SAME = dict.fromkeys([jvp_of, fwd_of, bwd_of], explicit)
SAME |= dict.fromkeys([jvp_alone, fwd_alone, bwd_alone], explicit_alone)


@pytest.mark.parametrize("use", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("make", SAME, ids=lambda make: make.__name__)
def test_inside_other_functions(make, use):
    with jax.enable_x64(True):
        x, y = jnp.asarray(X, float), jnp.asarray(Y, float)
        function = weighted(functools.partial(make, 3.0), use)
        expected = jax.jacfwd(weighted(functools.partial(SAME[make], 3.0), use))
        program = pb.trace(function)(x, y)
        loaded = pb.load(artifact.serialize(program))
        for found in (pb.grad(function)(x, y), loaded.grad()(x, y)):
            assert jnp.allclose(found, expected(x, y), rtol=1e-12)
        moved = program.jvp(wrt=0)(x, y, Z.astype(float))[1]
        assert jnp.allclose(moved, jnp.vdot(expected(x, y), Z), rtol=1e-12)


TWICE = ("a loop", "what the loop carries and slices", "a while loop", "branches", "checkpoint")


@pytest.mark.parametrize("use", [BODIES[name] for name in TWICE], ids=TWICE)
@pytest.mark.parametrize("make", [jvp_of, bwd_of], ids=lambda make: make.__name__)
def test_derivatives_of_derivatives_of_functions(make, use):
    """With a rule that is true: for others, a loop has no second order that all agree on."""
    with jax.enable_x64(True):
        x, y = jnp.asarray(X, float), jnp.asarray(Y, float)
        function = weighted(functools.partial(make, 1.0), use)
        plain = weighted(lambda a: lambda x: jnp.sin(x) * a, use)
        expected = jax.jacfwd(jax.jacfwd(plain))(x, y)
        for second in (pb.hessian, lambda f: pb.jacrev(pb.grad(f))):
            assert jnp.allclose(second(function)(x, y), expected, rtol=1e-10)
        gradients = jax.vmap(pb.grad(function))(jnp.stack([x, y]), jnp.stack([y, x]))
        assert jnp.allclose(gradients[1], jax.jacfwd(plain)(y, x), rtol=1e-12)


@pytest.mark.parametrize("make", [jvp_of, bwd_of], ids=lambda make: make.__name__)
def test_by_what_the_rule_closes_over(make):
    """The gradient depends on the value, though the function is not differentiated by it."""

    def by_both(derive, make):
        function = lambda x, y: jnp.vdot(make(1.0, y)(x), Z)  # noqa: E731
        return derive(lambda y: jnp.vdot(derive(function)(X, y), X))(Y)

    assert jnp.allclose(by_both(pb.grad, make), Z * X * jnp.cos(X), rtol=1e-5)
    inside = jax.jit(lambda x, y: pb.grad(lambda x: jnp.vdot(make(3.0, y)(x), Z))(x))(X, Y)
    assert jnp.allclose(inside, 3.0 * Z * Y * jnp.cos(X), rtol=1e-5)


def test_one_rule_that_finds_its_value_at_different_operands():
    """Also while a trace goes on, in which values that are over are not known to be."""

    def function(x, a, b):
        rule = lambda p, t: (jnp.sin(p[0]) * a * b, 3.0 * jnp.cos(p[0]) * a * t[0])  # noqa: E731
        first = jax.custom_jvp(lambda x: jnp.sin(x) * (a * b))
        second = jax.custom_jvp(lambda x: jnp.sin(x) * (b * a))
        first.defjvp(rule)
        second.defjvp(rule)
        return jnp.sum(first(x) + 2.0 * second(x))

    expected = 9.0 * jnp.cos(X) * Y
    assert jnp.allclose(pb.grad(function)(X, Y, Z), expected, rtol=1e-5)
    inside = jax.jit(lambda x, a, b: pb.grad(lambda x: function(x, a, b))(x))
    assert jnp.allclose(inside(X, Y, Z), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "make", [bwd_of_another, keyword_alone, nondiff_alone], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("use", [BODIES["a loop"], BODIES["branches"]], ids=["loop", "branches"])
def test_wherever_the_value_is(make, use):
    function = weighted(functools.partial(make, 3.0), use)
    expected = jax.jacfwd(weighted(functools.partial(explicit_alone, 3.0), use))
    assert jnp.allclose(pb.grad(function)(X, Y), expected(X, Y), rtol=1e-5)


@pytest.mark.parametrize("make", [jvp_alone, fwd_alone, bwd_alone], ids=lambda f: f.__name__)
def test_by_what_only_the_rule_uses(make):
    """The function does not depend on it; the derivative does. JAX raises for the first."""
    function = lambda x, y: jnp.vdot(make(3.0, y * y)(x), Z)  # noqa: E731
    same = lambda x, y: jnp.vdot(explicit_alone(3.0, y * y)(x), Z)  # noqa: E731
    for position, expected in enumerate(jax.grad(same, (0, 1))(X, Y)):
        assert jnp.allclose(pb.grad(function, position)(X, Y), expected, rtol=1e-5)
        assert jnp.allclose(
            pb.trace(function)(X, Y).jvp()(X, Y, X, Y)[1], jax.jvp(same, (X, Y), (X, Y))[1]
        )
    by_both = lambda library, f: library.grad(  # noqa: E731
        lambda y: jnp.vdot(library.grad(f)(X, y), X)
    )(Y)
    assert jnp.allclose(by_both(pb, function), by_both(jax, same), rtol=1e-5)


@pytest.mark.parametrize("make", [jvp_alone, fwd_alone, bwd_alone], ids=lambda f: f.__name__)
def test_a_value_of_a_trace_that_goes_on(make):
    expected = 3.0 * Y * jnp.cos(X)
    for outer in (jax.jit, lambda f: jax.vmap(f)):
        inside = outer(lambda x, y: pb.grad(lambda x: jnp.sum(make(3.0, y)(x)))(x))
        assert jnp.allclose(inside(X, Y), expected, rtol=1e-5)


def test_a_jitted_function_in_two_traces():
    """The second trace finds the function traced, with a rule that closes over its own argument."""
    inner = jax.jit(lambda x, y: jvp_alone(3.0, y)(x))
    for use in (inner, lambda x, y: inner(x, 2.0 * y) + inner(x, y)):
        function = lambda x, y, use=use: jnp.sum(use(x, y))  # noqa: E731
        same = jax.jit(lambda x, y: explicit_alone(3.0, y)(x))
        plain = same if use is inner else lambda x, y, same=same: same(x, 2.0 * y) + same(x, y)
        expected = jax.grad(lambda x, y, plain=plain: jnp.sum(plain(x, y)))(X, Y)
        assert jnp.allclose(pb.grad(function)(X, Y), expected, rtol=1e-5)


@jax.tree_util.register_pytree_node_class
class Layer:
    """A tree with a method that is a rule."""

    def __init__(self, *parts):
        self.parts = parts

    def tree_flatten(self):
        return self.parts, None

    @classmethod
    def tree_unflatten(cls, _, parts):
        return cls(*parts)

    def rule(self, p, t):
        return jnp.sin(p[0]), self.parts[0] * t[0]


def by_a_layer(*more):
    def function(x, y):
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(Layer(y, *more).rule)
        return jnp.sum(f(x))

    return function


def test_a_method_of_a_tree():
    assert jnp.allclose(pb.grad(by_a_layer())(X, Y), Y)
    cannot_be_taken_apart = {1: 2.0, "two": 3.0}
    function = by_a_layer(cannot_be_taken_apart)
    assert jnp.allclose(pb.trace(function)(X, Y)(X, Y), jnp.sum(jnp.sin(X)))
    with pytest.raises(pb.LeakedValueError, match="uses a value of the function around it"):
        pb.grad(function)(X, Y)


LEAKS = {
    "of a function that is mapped": lambda x, y: jnp.sum(
        jax.vmap(lambda x, y: backward(y, y)(x))(x, y)
    ),
    "in an object": lambda x, y: jnp.sum(in_an_object(x, y)),
    "in the derivative of a rule": lambda x, y: jnp.sum(with_a_derivative(x, y)),
}


class Holder:
    """No function, container or tree, so nobody looks into it."""

    def __init__(self, value):
        self.value = value


def in_an_object(x, y):
    held = Holder(y)
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), held.value * t[0]))
    return f(x)


def with_a_derivative(x, y):
    """Its rule differentiates a function by a backward rule that closes over a value."""
    f = jax.custom_jvp(lambda x: jnp.sin(x) * y)
    f.defjvp(lambda p, t: jax.jvp(lambda x: backward(y, y)(x), p, t))
    return f(x)


@pytest.mark.parametrize("function", LEAKS.values(), ids=LEAKS)
def test_what_is_no_operand_of_the_call_is_an_error(function):
    with pytest.raises(pb.LeakedValueError, match="uses a value of the function around it") as e:
        pb.grad(function)(X, Y)
    assert "test_rules_that_close_over.py:" in e.value.where
    assert "pass the value as an argument" in e.value.do


def test_a_value_that_a_cache_has_kept_is_an_error_that_says_where_it_was_made():
    """Nobody looks into a cache. JAX too finds a value there of a trace that is over, under jit."""

    @functools.cache
    def nodes():
        return jnp.linspace(0.0, 1.0, 3)

    f = jax.custom_jvp(lambda x: jnp.sum(jnp.sin(x * nodes())))
    f.defjvp(lambda p, t: (f(*p), jnp.sum(jnp.cos(p[0] * nodes()) * nodes()) * t[0]))
    line = nodes.__wrapped__.__code__.co_firstlineno + 2
    with pytest.raises(pb.LeakedValueError) as e:
        pb.grad(f)(0.7)
    place = e.value.where.partition("the value is made at ")[2]
    assert f"test_rules_that_close_over.py:{line}, in " in place
    assert "a cache that it comes from must keep NumPy arrays" in e.value.do


def times(factor):
    """A false rule, with a variable of a function that is over when it is called."""
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
    return f


def rule_in_the_loop(x):
    for factor in (2.0, 3.0):
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
        x = f(x)
    return x


def rule_outside_of_the_loop(x):
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
    for factor in np.array([2.0, 3.0]):
        x = f(x)
    return x


def assigned_below(x):
    factor = 2.0
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
    x = f(x)
    factor = 3.0
    return factor * x


def forward_rule(x):
    for factor in (2.0, 3.0):
        f = jax.custom_vjp(jnp.sin)
        f.defvjp(lambda x: (f(x), factor * jnp.cos(x)), lambda slope, ct: (slope * ct,))
        x = f(x)
    return x


def function_of_the_loop(x):
    for act in (jnp.sin, jnp.cos):
        f = jax.custom_jvp(lambda x: act(x))
        f.defjvp(lambda p, t: jax.jvp(act, p, t))
        x = f(x)
    return x


def loop_around_a_jitted_function(x):
    for factor in (2.0, 3.0):
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
        x = jax.jit(lambda x: f(x))(x)
    return x


def loop_in_a_scan(x):
    return repeat(rule_in_the_loop, x)


def assigned_by_another_function(x):
    factor = 2.0

    def double():
        nonlocal factor
        factor *= 2.0

    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
    x = f(x)
    double()
    return x


def assigned_where_it_is_no_own_variable(x):
    factor = 2.0

    def inner(x):
        nonlocal factor
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
        x = f(x)
        factor = 3.0
        return x

    return inner(x)


def deleted_below(x):
    factor = 2.0
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))  # noqa: F821
    x = f(x)
    del factor
    return x


def deleted_argument(x, factor=2.0):
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))  # noqa: F821
    x = f(x)
    del factor
    return x


def function_that_is_an_argument(x):
    apply = jax.custom_jvp(lambda g, x: g(x), nondiff_argnums=(0,))
    apply.defjvp(lambda g, p, t: (g(*p), 3.0 * jax.jvp(g, p, t)[1]))
    for factor in (2.0, 3.0):
        x = apply(lambda x: jnp.sin(x) * factor, x)
    return x


def of_the_last_turn(x):
    for value in (2.0 * x, 3.0 * x):
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t: (p[0], jnp.cos(p[0]) * value * t[0]))
        x = f(x)
    return x


def computed_below(x):
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), value * t[0]))
    x = f(x)
    value = jnp.exp(x)
    return x


def assigned_where_an_error_is_caught(x):
    factor = 2.0
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
    try:
        x = f(x)
        int("none")
    except ValueError:
        factor = 3.0
    return x


def assigned_where_an_error_from_further_in_is_caught(x):
    factor, found = 2.0, []
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))

    def find():
        found.append(f(x))
        raise ValueError

    try:
        find()
    except ValueError:
        factor = 3.0
    return found[0]


def slope_of(g):
    """A function whose rule calls another function, which it closes over in its caller."""
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (jnp.sin(p[0]), g() * t[0]))
    return f


def function_assigned_below(x):
    g = lambda: 2.0  # noqa: E731
    x = slope_of(lambda: g())(x)
    g = lambda: 3.0  # noqa: E731
    return x


def jitted_function_assigned_below(x):
    g = jax.jit(lambda: 2.0)
    x = slope_of(lambda: g())(x)
    g = jax.jit(lambda: 3.0)
    return x


def function_with_a_default_argument(x):
    for factor in (2.0, 3.0):
        g = lambda factor=factor: factor  # noqa: E731
        x = slope_of(lambda: g())(x)
    return x


def one_of_two_functions(x):
    for first in (True, False):
        g = (lambda: 2.0) if first else (lambda: 3.0)
        x = slope_of(lambda: g())(x)
    return x


def one_of_two_constants(x):
    for first in (True, False):
        factor = 2.0 if first else 3.0
        if first:
            x = slope_of(lambda: factor)(x)
    return x


def functions_of_a_list(x):
    functions = [lambda: 2.0, lambda: 3.0]
    while functions:
        g = functions.pop()
        x = slope_of(lambda: g())(x)
    return x


def function_with_rules_of_the_loop(x):
    for act in (jnp.sin, jnp.cos):
        f = jax.custom_jvp(act)
        f.defjvp(lambda p, t: (f(*p), 2.0 * t[0]))
        x = f(x)
    return x


def rule_of_another_function(x):
    for factor in (2.0, 3.0):
        g = jax.custom_jvp(jnp.sin)
        g.defjvp(lambda p, t, factor=factor: (jnp.sin(p[0]), factor * t[0]))
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t: jax.jvp(g, p, t))
        x = f(x)
    return x


REBOUND = {
    function_assigned_below: "g",
    jitted_function_assigned_below: "g",
    function_with_a_default_argument: "g",
    one_of_two_constants: "factor",
    function_with_rules_of_the_loop: "f",
    rule_of_another_function: "g",
    assigned_where_an_error_is_caught: "factor",
    assigned_where_an_error_from_further_in_is_caught: "factor",
    function_that_is_an_argument: "factor",
    assigned_where_it_is_no_own_variable: "factor",
    rule_in_the_loop: "factor",
    rule_outside_of_the_loop: "factor",
    assigned_below: "factor",
    forward_rule: "factor",
    function_of_the_loop: "act",
    loop_around_a_jitted_function: "factor",
    loop_in_a_scan: "factor",
}

REBOUND_BY_OTHERS = [one_of_two_functions, functions_of_a_list, assigned_by_another_function]


@pytest.mark.parametrize(
    ("function", "name"), REBOUND.items(), ids=[function.__name__ for function in REBOUND]
)
def test_a_variable_that_is_assigned_again_has_its_last_value_and_a_warning(function, name):
    """JAX runs the rule at the call, and so with another value; but not under `jax.jit`."""
    with pytest.warns(pb.LateBindingWarning) as told:
        found = pb.grad(function)(0.3)
    assert jnp.allclose(found, jax.grad(jax.jit(function))(0.3), rtol=1e-5)
    words = next(w for each in told if f"reads `{name}`" in (w := str(each.message)))
    line = r"test_rules_that_close_over\.py:\d+, in \w+"
    assert re.search(rf"assigned again at \S*{line}.*, after the call at \S*{line}", words)
    assert f"with a default argument of the rule, `{name}={name}`" in words


def test_the_warning_names_the_line_that_assigns():
    with pytest.warns(pb.LateBindingWarning) as told:
        pb.trace(assigned_below)(0.3)
    line = assigned_below.__code__.co_firstlineno
    assert f"py:{line + 5}, in assigned_below, after" in str(told[0].message)
    assert f"py:{line + 4}, in assigned_below: the rule is traced" in str(told[0].message)


@pytest.mark.parametrize("function", REBOUND_BY_OTHERS, ids=lambda function: function.__name__)
def test_a_variable_that_is_assigned_where_nobody_looks_has_its_last_value(function):
    assert jnp.allclose(pb.grad(function)(0.3), jax.grad(jax.jit(function))(0.3), rtol=1e-5)


@pytest.mark.parametrize("function", [deleted_below, deleted_argument])
def test_a_variable_that_is_deleted_is_the_error_of_python(function):
    for derive in (pb.grad(function), jax.grad(jax.jit(function))):
        with pytest.raises(NameError, match="factor"):
            derive(0.3)


@pytest.mark.filterwarnings("ignore::pullback.LateBindingWarning")
def test_a_value_of_the_trace_in_a_variable_that_is_assigned_again():
    """Where it is computed before the call, it is an operand."""
    x = 0.3
    slope = jnp.cos(x) * jnp.cos(jnp.float32(x)) * (3.0 * x) ** 2
    assert jnp.allclose(pb.grad(of_the_last_turn)(x), slope, rtol=1e-5)
    with pytest.raises(pb.LeakedValueError, match="uses a value of the function around it"):
        pb.grad(computed_below)(x)


def default_argument(x):
    for factor in (2.0, 3.0):
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t, factor=factor: (f(*p), factor * jnp.cos(p[0]) * t[0]))
        x = f(x)
    return x


def default_argument_of_a_backward_rule(x):
    for factor in (2.0, 3.0):
        f = jax.custom_vjp(jnp.sin)
        f.defvjp(lambda x: (f(x), x), lambda x, ct, factor=factor: (factor * jnp.cos(x) * ct,))
        x = f(x)
    return x


def default_arguments(x):
    for factor in (2.0, 3.0):
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t, factor=factor, f=f: (f(*p), factor * jnp.cos(p[0]) * t[0]))
        x = f(x)
    return x


def functions_of_each_turn(x):
    from jax import custom_jvp, jit

    for _ in range(2):

        @jit
        def twice(x):
            return 2.0 * x

        thrice = jit(lambda x, n: n * x, static_argnames=("n",))

        @custom_jvp
        def f(x):
            return twice(jnp.sin(x))

        @f.defjvp
        def rule(primals, tangents):
            return f(*primals), jnp.cos(primals[0]) * twice(thrice(*tangents, n=3))

        x = f(x)
    return x


def assigned_above(x):
    factor = 0.0
    for number in range(3):
        factor = factor + number
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
    return f(f(x))


def left_at_once(x):
    while True:
        factor = float(len("ab"))
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
        if factor > 1.0:
            x = f(x)
            break
    return x


def in_another_branch(x):
    factor = float(len("ab"))
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
    if factor > 1.0:
        return f(x)
    factor = 3.0
    return x * factor


def a_constant_and_a_function(x):
    for _ in range(2):
        factor = 2.0

        @jax.custom_jvp
        def f(x):
            return jnp.sin(x)

        @f.defjvp
        def rule(primals, tangents):
            return f(*primals), factor * jnp.cos(primals[0]) * tangents[0]

        x = f(x)
    return x


def backward_rule(x):
    """Which JAX runs when the function has ended, too."""
    for factor in (2.0, 3.0):
        f = jax.custom_vjp(jnp.sin)
        f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (factor * jnp.cos(x) * ct,))
        x = f(x)
    return x


def assigned_by_another_function_above(x):
    """And in the rule itself, which may count how often it runs."""
    factor, runs = None, 0

    def start():
        nonlocal factor
        factor = 2.0

    def rule(primals, tangents):
        nonlocal runs
        runs += 1
        return f(*primals), factor * jnp.cos(primals[0]) * tangents[0]

    start()
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(rule)
    return f(x)


def function_that_has_ended(x):
    for factor in (2.0, 3.0):
        x = times(factor)(x)
    return x


def in_a_handler_above(x):
    factor = 0.0
    try:
        int("none")
    except ValueError:
        factor = 2.0
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
    with jax.named_scope("inner"):
        return f(x)


AS_AT_THE_CALL = [
    in_a_handler_above,
    default_arguments,
    functions_of_each_turn,
    assigned_above,
    backward_rule,
    assigned_by_another_function_above,
    function_that_has_ended,
]

AS_AT_THE_CALL_FOR_ALL_ONE_KNOWS = [
    default_argument,
    default_argument_of_a_backward_rule,
    left_at_once,
    in_another_branch,
    a_constant_and_a_function,
]
"""A variable here is assigned in a loop around the call, or below it."""


@pytest.mark.parametrize("function", AS_AT_THE_CALL, ids=lambda function: function.__name__)
def test_a_variable_that_is_as_it_was_at_the_call(function):
    assert jnp.allclose(pb.grad(function)(0.3), jax.grad(function)(0.3), rtol=1e-5)


@pytest.mark.parametrize(
    "function", AS_AT_THE_CALL_FOR_ALL_ONE_KNOWS, ids=lambda function: function.__name__
)
def test_a_variable_that_may_be_as_it_was_at_the_call(function):
    with pytest.warns(pb.LateBindingWarning):
        found = pb.grad(function)(0.3)
    assert jnp.allclose(found, jax.grad(function)(0.3), rtol=1e-5)


@pytest.mark.filterwarnings("ignore::pullback.LateBindingWarning")
@pytest.mark.parametrize("function", [default_arguments, a_constant_and_a_function, times(2.0)])
def test_second_derivatives_of_rules_that_call_their_functions(function):
    found, expected = (d(d(function))(0.3) for d in (pb.grad, jax.grad))
    assert jnp.allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("function", [default_argument, default_argument_of_a_backward_rule])
def test_second_derivatives_are_by_the_rule_of_the_last_turn(function):
    """Under jit in JAX, too. The first ones are right: there, a rule calls its function alone."""
    with pytest.warns(pb.LateBindingWarning, match="reads `f`.*`f=f`"):
        found = pb.grad(pb.grad(function))(0.3)
    assert jnp.allclose(found, jax.grad(jax.grad(jax.jit(function)))(0.3), rtol=1e-5)


def test_a_variable_of_the_function_that_derives_may_be_assigned_again():
    for factor in (2.0, 3.0):
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0]))
        found = pb.grad(lambda x: f(x))(0.3)
        assert jnp.allclose(found, factor * jnp.cos(0.3), rtol=1e-5)
        pb.trace(lambda x: f(x))(0.3).grad().grad()  # and in the trace of a rule


class Solver:
    """An object with a number in it; there, a value of the trace is not found."""

    def __init__(self):
        self.largest = jnp.asarray(2.0)

    def solve(self, x):
        return jax.lax.fori_loop(0, 2, lambda _, x: jnp.minimum(jnp.sin(x), self.largest), x)


def solved(x):
    solver = Solver()
    f = jax.custom_vjp(solver.solve)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (solver.largest * jnp.cos(x) * ct,))
    return f(x)


def test_a_number_that_was_made_in_the_trace_is_just_a_number():
    x = jnp.float32(0.3)
    wanted = 2.0 * jnp.cos(x)
    assert jnp.allclose(jax.grad(solved)(x), wanted)
    for place in (solved, jax.jit(solved), lambda x: jax.lax.map(solved, x[None])[0]):
        assert jnp.allclose(pb.grad(place)(x), wanted)
        assert jnp.allclose(pb.jvp(place, (x,), (x,))[1], x * wanted)


def gradient_by(table):
    """Return a function whose `bwd` rule reads a table, which its own code does not."""
    f = jax.custom_vjp(lambda x: jnp.sum(x * 2))
    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct * table(),))
    return f


def residual_by(table):
    f = jax.custom_vjp(lambda x: jnp.sum(x * 2))
    f.defvjp(lambda x: (f(x), table()), lambda table, ct: (ct * table,))
    return f


def tangent_by(table):
    f = jax.custom_jvp(lambda x: jnp.sum(x * 2))
    f.defjvp(lambda p, t: (f(*p), jnp.vdot(table(), t[0])))
    return f


def gradient_of_one_function_by(table):
    return jax.custom_gradient(lambda x: (jnp.sum(x * 2), lambda ct: ct * table()))


def transposed_by(table):
    return lambda x: jax.custom_derivatives.linear_call(
        lambda _, x: jnp.sum(x * 2), lambda _, ct: ct * table(), (), x
    )


READERS = [gradient_by, residual_by, tangent_by, gradient_of_one_function_by, transposed_by]


def made():
    return jnp.array([0.0, 1.0, 5.0])


def beside(make, x):
    table = made()
    return make(lambda: table)(x)


def in_an_object_of_the_trace(make, x):
    held = Holder(made())
    return make(lambda: held.value)(x)


def from_a_cache(make, x):
    table = functools.cache(made)
    return make(table)(x * table()) / 5.0 + jnp.sum(table())


def in_a_jitted_function(make, x):
    return jax.jit(functools.partial(beside, make))(x)


def around_a_jitted_function(make, x):
    table = made()
    return jax.jit(make(lambda: table))(x)


def in_a_loop(make, x):
    return jax.lax.fori_loop(0, 2, lambda _, carry: carry + beside(make, x), 0.0) / 2.0


def around_a_loop(make, x):
    table = made()
    call = make(lambda: table)
    return jax.lax.scan(lambda carry, _: (carry + call(x), None), 0.0, length=2)[0] / 2.0


def in_a_branch(make, x):
    return jax.lax.cond(x[0] > 0, functools.partial(beside, make), jnp.sum, x)


def in_a_checkpoint(make, x):
    return jax.checkpoint(functools.partial(beside, make))(x)


def in_a_shard_map(make, x):
    mesh, whole = jax.make_mesh((1,), ("i",)), jax.sharding.PartitionSpec()
    mapped = jax.shard_map(
        functools.partial(beside, make), mesh=mesh, in_specs=whole, out_specs=whole
    )
    return mapped(x)


def in_another_rule(make, x):
    f = jax.custom_jvp(lambda x: jnp.sum(x * made()))
    f.defjvp(lambda p, t: jax.jvp(functools.partial(beside, make), p, t))
    return f(x)


PLACES = [
    *(beside, in_an_object_of_the_trace, from_a_cache, in_a_jitted_function),
    *(around_a_jitted_function, in_a_loop, around_a_loop, in_a_branch, in_a_checkpoint),
    *(in_a_shard_map, in_another_rule),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("make", READERS, ids=lambda make: make.__name__)
def test_a_rule_may_read_a_constant_of_the_trace(make, place):
    """JAX can do this outside of jit, where the constant is an array."""

    def function(x):
        return place(make, x)

    wanted = made() ** 2 / 5.0 if place is from_a_cache else made()
    assert jnp.allclose(pb.grad(function)(X), wanted)
    assert jnp.allclose(jax.jit(pb.grad(function))(X), wanted)
    assert jnp.allclose(jax.vmap(pb.grad(function))(jnp.stack([X, Y])), wanted)
    program = pb.trace(function)(X)
    _, (of_batch,) = program.vmap(axis_size=2).vjp()(jnp.stack([X, Y]), jnp.array([1.0, 2.0]))
    assert jnp.allclose(of_batch, jnp.outer(jnp.array([1.0, 2.0]), wanted))
    loaded = pb.load(artifact.serialize(program, order=1))
    assert jnp.allclose(loaded.grad()(X), wanted)


@pytest.mark.parametrize("make", READERS, ids=lambda make: make.__name__)
def test_a_program_that_another_one_calls_reads_its_constants(make):
    inner = pb.trace(lambda x: beside(make, x))(X)
    assert jnp.allclose(pb.grad(lambda x: inner(x) * 3.0)(X), 3.0 * made())


def test_a_large_constant_of_the_trace():
    table = np.arange(5000.0, dtype=np.float32)
    x = jnp.ones(5000)

    def function(x):
        values = jnp.array(table)
        return gradient_by(lambda: values)(x) + jnp.sum(x * values)

    assert jnp.allclose(pb.grad(function)(x), 2.0 * table)


def test_a_constant_of_the_last_turn_is_what_a_backward_rule_reads():
    """As in JAX, which runs the rule when the loop is over."""

    def function(x):
        for factor in (2.0, 3.0):
            table = jnp.array([factor, factor, factor])
            f = jax.custom_vjp(jnp.sin)
            f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * table * ct,))
            x = f(x)
        return jnp.sum(x)

    assert jnp.allclose(pb.grad(function)(X), jax.grad(function)(X))


def test_a_value_of_the_last_turn_is_what_a_backward_rule_reads():
    def function(x, y):
        for value in (y, 2.0 * y):
            f = jax.custom_vjp(jnp.sin)
            f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * value * ct,))
            x = f(x)
        return jnp.sum(x)

    found = pb.grad(function)(X, Y)
    assert jnp.allclose(found, jnp.cos(jnp.sin(X)) * jnp.cos(X) * (2.0 * Y) ** 2)


def test_no_value_of_a_trace_outlives_a_rule_that_reads_a_constant():
    def function(x):
        return beside(gradient_by, x) * in_an_object_of_the_trace(tangent_by, x)

    program = pb.trace(function)(X)
    with jax.checking_leaks():
        program.grad()
