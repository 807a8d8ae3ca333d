"""Derivatives through every form of a user's rule: what it sees, and what it may leave out."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import SymbolicZero
from jax.experimental import checkify

import pullback as pb
from pullback import NotLinearError, artifact

X, Y = jnp.array([0.3, 0.7]), jnp.array([0.2, -0.7])


def same(ours, theirs, rtol=1e-5):
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)


# ------------------------------------------------------------------------ symbolic zeros


def with_residuals_by_what_is_perturbed():
    """A rule that keeps other things for one argument than for both, in a jitted function."""

    @jax.custom_vjp
    def f(x, y):
        return x * y**2

    def fwd(x, y):
        out = f(x.value, y.value)
        if x.perturbed and y.perturbed:
            return out, {"1 x": x.value, "2 y": y.value}
        if y.perturbed:
            raise ValueError("not by y alone")
        return out, {"1 y": y.value, "2 x": x.value}

    def bwd(kept, ct):
        x, y = (kept[name] for key in "xy" for name in kept if key in name)
        return ct * y**2, ct * 2 * x * y

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    return jax.jit(lambda x, y: f(x, y))


def test_the_residuals_of_a_rule_are_those_of_what_is_perturbed():
    f = with_residuals_by_what_is_perturbed()
    for factor in (1.0, 2.0):
        same(pb.grad(lambda x: factor * f(x, 3.0))(2.0), factor * 9.0)  # noqa: B023
        same(pb.grad(lambda x: factor * f(x, x))(2.0), factor * 12.0)  # noqa: B023


def test_a_rule_that_has_refused_runs_again_for_others():
    f = with_residuals_by_what_is_perturbed()
    for factor in (1.0, 2.0):
        same(pb.grad(lambda x: factor * f(x, 3.0))(2.0), factor * 9.0)  # noqa: B023
        with pytest.raises(ValueError, match="not by y alone"):
            pb.grad(lambda y: factor * f(2.0, y))(3.0)  # noqa: B023


def seen_by_jvp():
    """A rule that multiplies by ten what it receives while the other tangent is absent."""

    @jax.custom_jvp
    def f(x, y):
        return jnp.sum(x * y)

    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        alone = type(dx) is SymbolicZero or type(dy) is SymbolicZero
        dx, dy = (jnp.zeros(2) if type(t) is SymbolicZero else t for t in (dx, dy))
        return f(x, y), jnp.sum(dx * y + x * dy) * (10.0 if alone else 1.0)

    f.defjvp(rule, symbolic_zeros=True)
    return f


def test_a_jvp_rule_sees_which_tangents_are_zero():
    f = seen_by_jvp()
    same(pb.grad(f)(X, Y), 10 * Y)
    same(pb.grad(f, argnums=1)(X, Y), 10 * X)
    same(pb.grad(f, argnums=(0, 1))(X, Y), (Y, X))
    for argnums in (0, 1, (0, 1)):
        same(pb.grad(f, argnums)(X, Y), jax.grad(f, argnums)(X, Y))
    same(pb.jvp(lambda x: f(x, Y), (X,), (X,)), jax.jvp(lambda x: f(x, Y), (X,), (X,)))


def test_a_jvp_rule_may_say_that_a_result_has_no_tangent():
    @jax.custom_jvp
    def f(x):
        return jnp.cos(x), jnp.sin(x)

    @partial(f.defjvp, symbolic_zeros=True)
    def _(primals, tangents):
        (x,), (dx,) = primals, tangents
        first, second = f(x)
        return (first, second), (SymbolicZero.from_primal_value(first), 3 * dx * first)

    for of in (lambda x: f(x)[1].sum(), lambda x: (f(x)[0] * f(x)[1]).sum()):
        same(pb.grad(of)(X), jax.grad(of)(X))
        same(pb.jacfwd(pb.grad(of))(X), jax.jacfwd(jax.grad(of))(X))
    same(pb.jvp(f, (X,), (Y,)), jax.jvp(f, (X,), (Y,)))


def test_a_jvp_rule_runs_once_whatever_results_have_no_tangent():
    runs = []

    @jax.custom_jvp
    def f(x):
        return jnp.argmax(x), jnp.cos(x), jnp.round(x)

    @f.defjvp
    def _(primals, tangents):
        runs.append(tangents)
        (x,), (dx,) = primals, tangents
        index = np.zeros((), jax.dtypes.float0)
        return (jnp.argmax(x), jnp.cos(x), jnp.round(x)), (index, 3 * dx, jnp.zeros_like(x))

    def of(x):
        index, wave, whole = f(x)
        return jnp.sum(x[index] * wave * whole)

    found = pb.grad(of)(X)
    assert len(runs) == 1
    same(found, jax.grad(of)(X))


def test_a_vjp_rule_runs_once_whatever_its_residuals_are():
    runs = []

    @jax.custom_vjp
    def f(x, y, n):
        return x * y, jnp.argmax(x), x / y

    def fwd(x, y, n):
        runs.append("fwd")
        wave = jnp.cos(y)
        results = x * y, jnp.argmax(x), x / y
        return results, (wave, (y, x), 2.0, n, wave)

    def bwd(residuals, cts):
        runs.append("bwd")
        first, _, last = cts
        wave, (y, x), number, n, same_wave = residuals
        first, last = (number + n) * first, same_wave * last
        return first * y + last / y, wave * first * x + jnp.sin(y) * last, None

    f.defvjp(fwd, bwd)

    def of(x, y):
        first, index, last = f(x, y, 3)
        return jnp.sum(first * last) * x[index]

    found = pb.grad(of, argnums=(0, 1))(X, Y)
    assert runs == ["fwd", "bwd"]
    same(found, jax.grad(of, argnums=(0, 1))(X, Y))
    ours = pb.jacfwd(pb.grad(of, argnums=(0, 1)), argnums=(0, 1))(X, Y)
    same(ours, jax.jacfwd(jax.grad(of, argnums=(0, 1)), argnums=(0, 1))(X, Y))


def test_a_fwd_rule_sees_which_arguments_are_perturbed():
    @jax.custom_vjp
    def f(x, y):
        return jnp.sum(x * y), jnp.sum(x)

    def fwd(x, y):
        factor = 10.0 if not (x.perturbed and y.perturbed) else 1.0
        return f(x.value, y.value), (x.value, y.value, factor)

    def bwd(residuals, cts):
        x, y, factor = residuals
        product, total = (jnp.zeros(()) if type(c) is SymbolicZero else c for c in cts)
        return (product * y + total) * factor, product * x * factor

    f.defvjp(fwd, bwd, symbolic_zeros=True)

    def first(x, y):
        return f(x, y)[0]

    for argnums in (0, 1, (0, 1)):
        same(pb.grad(first, argnums)(X, Y), jax.grad(first, argnums)(X, Y))
    same(pb.grad(first)(X, Y), 10 * Y)


def test_a_bwd_rule_sees_which_cotangents_are_zero():
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x), jnp.cos(x), jnp.int32(len(x))

    def bwd(x, cts):
        total, statistics, count = cts
        if type(count) is not SymbolicZero or type(statistics) is not SymbolicZero:
            raise ValueError("statistics have no derivative")
        return (3 * total * x,)

    f.defvjp(lambda x: (f(x.value), x.value), bwd, symbolic_zeros=True)
    same(pb.grad(lambda x: f(x)[0].sum())(X), 3 * X)
    same(pb.jacrev(pb.grad(lambda x: f(x)[0].sum()))(X), 3 * jnp.eye(2))
    for of in (lambda x: f(x)[1].sum(), lambda x: f(x)[0].sum() + f(x)[1].sum()):
        with pytest.raises(ValueError, match="statistics have no derivative"):
            pb.grad(of)(X)


def or_zeros(t, like):
    return jnp.zeros_like(like) if type(t) is SymbolicZero else t


@jax.custom_jvp
def power(x, y):
    return x**y


def power_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    out, total = power(x, y), or_zeros(dx, x) * y * x ** (y - 1)
    return out, total if type(dy) is SymbolicZero else total + dy * jnp.log(x) * out


power.defjvp(power_jvp, symbolic_zeros=True)


@jax.custom_vjp
def power_with_vjp(x, y):
    return x**y


power_with_vjp.defvjp(
    lambda x, y: (power_with_vjp(x, y), (x, y)),
    lambda r, ct: (ct * r[1] * r[0] ** (r[1] - 1), ct * jnp.log(r[0]) * r[0] ** r[1]),
)


def square_and_root_ct(x, square, root):
    total = or_zeros(square, x) * 2 * x
    return total if type(root) is SymbolicZero else total + root * 0.5 / jnp.sqrt(x)


@jax.custom_vjp
def square_and_root(x):
    return x * x, jnp.sqrt(x)


square_and_root.defvjp(
    lambda x: (square_and_root(x.value), x.value),
    lambda x, cts: (square_and_root_ct(x, *cts),),
    symbolic_zeros=True,
)

NAN_IN_WHAT_IS_NOT_ASKED_FOR = {
    "a tangent of a jvp rule": lambda x: power(x, 2 * jnp.ones(2)),
    "a tangent of a vjp rule": lambda x: power_with_vjp(x, 2 * jnp.ones(2)),
    "a cotangent": lambda x: square_and_root(x)[0],
    "a cotangent, in a loop": lambda x: jax.lax.fori_loop(
        0, 1, lambda i, c: square_and_root(c)[0], x
    ),
}


@pytest.mark.parametrize("name", NAN_IN_WHAT_IS_NOT_ASKED_FOR)
def test_no_zero_meets_an_infinite_factor(name):
    """At 0, where the derivative is 0, and one that is not asked for is infinite."""
    f, x = NAN_IN_WHAT_IS_NOT_ASKED_FOR[name], jnp.array([0.0, 0.7])
    program = pb.trace(f)(x)
    for each in (f, pb.load(artifact.serialize(program))):
        same(pb.jvp(each, (x,), (X,))[1], 2 * x * X)
        same(pb.linearize(each, x)[1](X), 2 * x * X)
        same(pb.vjp(each, x)[1](X), (2 * x * X,))


# --------------------------------------------------------------------- forms of the rules


@pytest.mark.parametrize("ct", [0, 2.5, 2j, True, np.float64(2.5)], ids=repr)
def test_a_bwd_rule_may_return_a_number(ct):
    """It is of JAX's type for it; an integer, which JAX gives as it is, of the argument's."""

    @jax.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (f(x, y), y), lambda y, _: (ct, _ * y))
    for dtype in (jnp.float32, jnp.bfloat16):
        x, y = jnp.ones((), dtype), jnp.full((), 3, dtype)
        found, expected = pb.grad(f, (0, 1))(x, y), jax.jit(jax.grad(f, (0, 1)))(x, y)
        assert found[0].dtype == (dtype if isinstance(ct, int) else expected[0].dtype)
        same(found, (ct, 3.0))


@pytest.mark.parametrize("made", [jnp.float32, jnp.complex64], ids=["float32", "complex64"])
def test_a_bwd_rule_may_return_another_float_type(made):
    """It is the gradient as it is; where it meets arithmetic JAX raises, and it is converted."""

    @jax.custom_vjp
    def widened(x):
        return x.astype(jnp.float32)

    widened.defvjp(lambda x: (widened(x), None), lambda _, ct: ((2 * ct).astype(made),))
    x = jnp.ones(2, jnp.bfloat16)
    once, twice = widened, jax.checkpoint(lambda x: widened(x * x))
    for f, expected, dtype in ((once, 2 * x, made), (twice, 4 * x, jnp.bfloat16)):
        program = pb.trace(lambda x, f=f: f(x).sum())(x)
        for each in (program, pb.load(artifact.serialize(program))):
            gradient = each.grad()(x)
            assert gradient.dtype == dtype
            same(gradient, expected)


@jax.custom_vjp
def sum_of_all(x):
    return jnp.sum(x)


def sum_of_all_bwd(residuals, ct):
    shape, named, twice = residuals
    return (jnp.broadcast_to(7 * ct, shape) * (2 if named["twice"] else 1) * twice,)


sum_of_all.defvjp(lambda x: (jnp.sum(x), (x.shape, {"twice": x.ndim == 1}, 2.0)), sum_of_all_bwd)


@jax.custom_vjp
def scaled_if(x, how, count):
    return x * count


scaled_if.defvjp(
    lambda x, how, count: (x * count, (how, x.size, count)),
    lambda kept, ct: (ct * kept[2] * (11 if kept[0] else 13) * len(range(kept[1])), None, None),
)


def once(f):
    return lambda x: jax.lax.scan(lambda c, _: (c + f(x), None), 0.0, None, length=1)[0]


def test_numbers_of_python_among_residuals_are_known_to_the_backward_rule():
    """JAX hands them on: a shape, a flag, an argument that the call was given as a number."""
    x = jnp.array([0.5, 2.0])

    def of_flags(x):
        return jnp.sum(scaled_if(scaled_if(x, True, 3), False, 3) + scaled_if(x, True, 4))

    for f in (lambda x: sum_of_all(x * x), of_flags):
        expected = jax.grad(f)(x)
        for each in (f, jax.jit(f), jax.checkpoint(f), once(f)):
            same(pb.grad(each)(x), expected)
        program = pb.trace(f)(x)
        for each in (program, pb.load(artifact.serialize(program))):
            same(each.grad()(x), expected)
        same(pb.jvp(f, (x,), (x,))[1], jnp.vdot(expected, x))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def applied(f, x, count):
    return f(x) * count


applied.defvjp(
    lambda f, x, count: (applied(f, x, count), (x, count)),
    lambda f, residuals, ct: (7.0 * ct * f(residuals[0]) * residuals[1], None),
)


@partial(jax.custom_jvp, nondiff_argnames=("power",))
def powered(tree, power):
    return tree["a"] ** power + tree["b"][0]


@powered.defjvp
def powered_jvp(power, primals, tangents):
    (tree,), (dtree,) = primals, tangents
    return powered(tree, power=power), 3.0 * power * dtree["a"] + 5.0 * dtree["b"][0]


def with_remat(optimize):
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(
        lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, ct: (2.0 * c * ct,), optimize_remat=optimize
    )
    return f


def scaled_by(scale):
    """A backward rule that closes over a value of the traced function."""

    @jax.custom_vjp
    def f(x):
        return x * 1.0

    f.defvjp(lambda x: (x, None), lambda _, ct: (ct * scale,))
    return f


@jax.custom_gradient
def tripled_gradient(x, y):
    shared = jnp.sin(x) * y
    return shared, lambda ct: (3.0 * ct * jnp.cos(x) * y, 4.0 * ct * jnp.sin(x))


@jax.custom_gradient
def single(x):
    kept = jnp.exp(x)
    return kept, lambda ct: 2.0 * ct * kept


@jax.custom_jvp
def by_parts(x, y, z):
    return x * y + z


by_parts.defjvps(lambda t, out, x, y, z: 6.0 * t * y, None, lambda t, out, x, y, z: t)

FORMS = {
    "nondiff_argnums, None for an integer": lambda x: jnp.sum(applied(jnp.sin, x, 3)),
    "nondiff_argnames, trees, keywords": lambda x: jnp.sum(
        powered({"a": x, "b": (x * 2, 1)}, power=3)
    ),
    "optimize_remat": lambda x: jnp.sum(with_remat(True)(x)),
    "optimize_remat under checkpoint": jax.checkpoint(lambda x: jnp.sum(with_remat(True)(x) * x)),
    "bwd closes over a tracer": lambda x: jnp.sum(scaled_by(2.5)(x)) * x[0],
    "custom_gradient, tuple": lambda x: jnp.sum(tripled_gradient(x, 2 * x)),
    "custom_gradient, scalar": lambda x: jnp.sum(single(x)),
    "defjvps with None": lambda x: jnp.sum(by_parts(x, 3 * x, x * x)),
}


@pytest.mark.parametrize("place", ["top", "jit", "scan", "cond", "vmap"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_rule_is_honoured(name, place):
    f = FORMS[name]
    placed = {
        "top": f,
        "jit": jax.jit(f),
        "scan": lambda x: jax.lax.scan(lambda c, _: (c + f(x) * x[0], None), 0.0, None, length=2)[
            0
        ],
        "cond": lambda x: jax.lax.cond(x[0] > 0, f, lambda x: jnp.sum(x), x),
        "vmap": lambda x: jnp.sum(jax.vmap(f)(jnp.stack([x, 2 * x]))),
    }[place]
    same(pb.grad(placed)(X), jax.grad(placed)(X))


@jax.custom_vjp
def flipped(x):
    return 2 * x


flipped.defvjp(lambda x: (2 * x, None), lambda _, ct: (-ct,))


@jax.custom_jvp
def rounded(x):
    return jnp.round(x)


rounded.defjvp(lambda primals, tangents: (jnp.round(*primals), *tangents))


def second(grad, f):
    return grad(lambda x: jnp.sum(grad(lambda x: jnp.sum(jnp.sin(f(x))))(x) * Y))


@pytest.mark.parametrize("f", [flipped, rounded], ids=["vjp", "jvp"])
@pytest.mark.parametrize(
    "place",
    [
        lambda f: f,
        lambda f: jax.jit(jax.checkpoint(f)),
        lambda f: jax.checkpoint(jax.checkpoint(f)),
        lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0],
    ],
    ids=["alone", "jit", "twice", "scan"],
)
def test_checkpoint_leaves_higher_derivatives_as_they_are(f, place):
    """Of a rule that is false on purpose, the second derivative is that of its forward rule."""
    placed = place(jax.checkpoint(f))

    def third(grad, g):
        return grad(lambda x: jnp.sum(second(grad, g)(x) * X))

    same(second(pb.grad, placed)(X), second(jax.grad, f)(X))
    same(third(pb.grad, placed)(X), third(jax.grad, f)(X))


@pytest.mark.parametrize("f", [flipped, rounded], ids=["vjp", "jvp"])
def test_a_loop_of_unknown_length_has_the_higher_derivatives_of_the_unrolled_one(f):
    def loop(x):
        return jax.lax.fori_loop(0, 3 + x.astype(int)[0] * 0, lambda _, c: f(c * x) + c, x)

    def unrolled(x):
        c = x
        for _ in range(3):
            c = f(c * x) + c
        return c

    same(second(pb.grad, loop)(X), second(jax.grad, unrolled)(X))
    same(
        pb.jvp(pb.grad(lambda x: jnp.sum(loop(x))), (X,), (Y,)),
        jax.jvp(jax.grad(lambda x: jnp.sum(unrolled(x))), (X,), (Y,)),
    )


def test_a_forward_rule_that_jax_may_leave_out_is_differentiated_through_its_body():
    """As one kept call it would have a rule with such a call in it again, without end."""
    program = pb.trace(lambda x: jnp.sum(with_remat(True)(with_remat(True)(x))))(X)
    saved = artifact.serialize(program)
    assert b"remat_opt" not in saved
    same(pb.hessian(pb.load(saved))(X), pb.hessian(program)(X))


@pytest.mark.parametrize("name", FORMS)
def test_forward_mode_agrees_with_reverse_mode(name):
    """JAX refuses forward mode of the custom_vjp ones."""
    f = FORMS[name]
    _, forward = pb.jvp(f, (X,), (Y,))
    same(forward, jnp.vdot(pb.grad(f)(X), Y))


def test_closure_convert_hoists_floats_and_keeps_integers():
    def outer(a, n):
        def inner(x):
            return jnp.sin(a * x) * n

        converted, hoisted = jax.closure_convert(inner, X)
        assert len(hoisted) == 1
        return jnp.sum(converted(X, *hoisted) * a)

    same(pb.grad(outer)(jnp.float32(1.3), 2), jax.grad(outer)(jnp.float32(1.3), 2))


@jax.custom_vjp
def keeping_scale(x, scale):
    """As 8-bit training has it: the gradient of the scale is the next one."""
    return x / scale


keeping_scale.defvjp(
    lambda x, scale: (x / scale, (scale, jnp.max(jnp.abs(x)))),
    lambda residuals, ct: (ct / residuals[0], residuals[1]),
)


@pytest.mark.parametrize("place", [lambda f: f, jax.jit, jax.checkpoint])
def test_a_cotangent_may_be_a_residual(place):
    f = place(keeping_scale)
    scale = jnp.array(2.0)
    ours, theirs = pb.vjp(f, X, scale)[1](Y), jax.vjp(f, X, scale)[1](Y)
    same(ours, theirs)
    same(ours, (Y / 2.0, jnp.max(X)))
    same(pb.vjp(pb.load(artifact.serialize(pb.trace(f)(X, scale))), X, scale)[1](Y), theirs)


@jax.custom_vjp
def with_itself_for_slope(v):
    return v * v


with_itself_for_slope.defvjp(lambda v: (v * v, v), lambda v, ct: (v,))


@jax.jit
def large(v):
    for factor in range(12):
        v = jnp.tanh(1.1 * v + jnp.sin(v) * factor)
    return v


PLACES = {
    "a call": large,
    "a loop": lambda v: jax.lax.fori_loop(0, 3, lambda _, v: jnp.tanh(1.1 * v), v),
    "a loop without a bound": lambda v: jax.lax.while_loop(
        lambda v: jnp.sum(v) > 1.0, lambda v: 0.5 * v, v
    ),
    "a branch": lambda v: jax.lax.cond(v[0] > 0, jnp.tanh, jnp.exp, v),
    "a rule": jax.nn.softplus,
    "a checkpoint": jax.checkpoint(large),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_cotangent_may_be_what_a_replaced_op_gave(name):
    """The residual is a value of the program, and its op gives way to one with residuals."""
    f = PLACES[name]
    found = pb.grad(lambda x: jnp.sum(with_itself_for_slope(f(x))))(X)
    value, pull = pb.vjp(f, X)
    same(found, pull(value)[0])


@jax.custom_jvp
def with_itself_for_tangent(v):
    return v * v


with_itself_for_tangent.defjvp(lambda primals, tangents: (primals[0] ** 2, primals[0]))


@pytest.mark.parametrize("name", PLACES)
def test_a_tangent_may_be_what_a_replaced_op_gave(name):
    def f(x):
        return jax.lax.fori_loop(0, 2, lambda _, x: with_itself_for_tangent(PLACES[name](x)), x)

    same(pb.jvp(f, (X,), (Y,)), jax.jvp(f, (X,), (Y,)))


@jax.custom_vjp
def product(w, x):
    return jnp.dot(w, x)


product.defvjp(
    lambda w, x: (product(w, x), (w, x)),
    lambda r, ct: (jax.lax.psum(ct * r[1], "batch"), ct * r[0]),
)


@pytest.mark.parametrize("axis", [None, 0])
def test_reverse_mode_may_reduce_over_a_named_axis(axis):
    """The rule gives every example the total gradient instead of its own."""
    xs = jnp.arange(12.0).reshape(4, 3)

    def loss(w, xs):
        weights = w if axis is None else jnp.broadcast_to(w, (4, 3))
        return jnp.sum(jax.vmap(product, in_axes=(axis, 0), axis_name="batch")(weights, xs) ** 2)

    w = jnp.array([1.0, -0.5, 2.0])
    same(pb.trace(loss)(w, xs)(w, xs), loss(w, xs))
    same(pb.grad(loss)(w, xs), jax.grad(loss)(w, xs))


def named_like_its_rule(factor):
    """A jitted function that calls a function with a rule, both of the name `f`."""

    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), factor * tangents[0]))
    ruled = f

    @jax.jit
    def f(x):
        for _ in range(10):  # too large to be inlined
            x = jnp.cos(x) + ruled(x)
        return x

    return f


def test_a_jitted_function_may_have_the_name_of_a_rule():
    f = named_like_its_rule(3.0)
    same(pb.jvp(f, (X,), (Y,)), jax.jvp(f, (X,), (Y,)))
    same(pb.vjp(f, X)[1](Y), jax.vjp(f, X)[1](Y))
    same(
        pb.jvp(lambda x: pb.jvp(f, (x,), (Y,))[1], (X,), (Y,)),
        jax.jvp(lambda x: jax.jvp(f, (x,), (Y,))[1], (X,), (Y,)),
    )


def doubled_on_host(x):
    return jax.pure_callback(lambda v: 2 * np.asarray(v), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


WITHOUT_TANGENT = {
    "top": lambda x: jnp.sum(doubled_on_host(jax.lax.stop_gradient(x)) * x),
    "jit": lambda x: jnp.sum(doubled_on_host(jax.jit(jax.lax.stop_gradient)(x)) * x),
    "scan": lambda x: jnp.sum(
        jax.lax.scan(
            lambda c, _: (c + doubled_on_host(jax.lax.stop_gradient(c)) * x, None), x, length=3
        )[0]
    ),
    "a rule's zero": lambda x: jnp.sum(doubled_on_host(by_parts(X, x, X)) * x),
}


@pytest.mark.parametrize("name", WITHOUT_TANGENT)
def test_what_a_rule_says_to_have_no_tangent_needs_no_rules(name):
    f = WITHOUT_TANGENT[name]
    same(pb.grad(f)(X), jax.grad(f)(X))


@jax.custom_jvp
def nothing(x):
    """Zero by its code; its rule is false on purpose."""
    return x * 0


nothing.defjvp(lambda p, t: (nothing(*p), 7.0 * p[0] * t[0]))


@jax.custom_vjp
def nothing_in_reverse(x):
    return x * 0


nothing_in_reverse.defvjp(lambda x: (x * 0, x), lambda x, ct: (7.0 * x * ct,))


def in_scan(f):
    return lambda x, dx: jax.lax.scan(lambda c, _: (f(x, c), None), dx, None, length=1)[0]


@pytest.mark.parametrize("place", [lambda f: f, jax.jit, jax.checkpoint, in_scan])
@pytest.mark.parametrize("factor", [nothing, nothing_in_reverse])
def test_a_zero_of_a_function_with_a_rule_has_the_derivative_of_the_rule(factor, place):
    """A tangent that it is a factor of, is zero, but the tangent's own derivative is not."""

    @jax.custom_jvp
    def f(x):
        return x

    f.defjvp(lambda p, t: (f(*p), place(lambda x, dx: factor(x) * dx)(p[0], t[0])))
    same(pb.grad(pb.grad(f))(1.5), jax.grad(jax.grad(f))(1.5))


def test_the_second_derivative_of_sinc_at_zero():
    """By the code of its rule's rule it is zero."""
    same(pb.grad(pb.grad(jnp.sinc))(0.0), -(jnp.pi**2) / 3)


# ------------------------------------------------------------------------- rules that fail


@jax.custom_vjp
def squares_its_cotangent(x):
    return x * 1.0


squares_its_cotangent.defvjp(lambda x: (x, None), lambda _, ct: (ct * ct,))


def test_a_bwd_that_is_not_linear_is_an_error_in_forward_mode_only():
    same(pb.vjp(squares_its_cotangent, X)[1](3 * X), (9 * X * X,))
    with pytest.raises(NotLinearError, match="cannot transpose") as caught:
        pb.jvp(lambda x: squares_its_cotangent(x), (X,), (Y,))
    line = squares_its_cotangent.bwd.__code__.co_firstlineno
    rule, _, call = caught.value.where.partition(", in `@squares_its_cotangent.bwd`, ")
    assert f"test_user_rules.py:{line}, in " in rule
    assert call.startswith("the backward rule of the call at tests/autodiff/test_user_rules.py:")


@pytest.mark.parametrize(
    "place",
    [
        lambda f: f,
        jax.jit,
        jax.checkpoint,
        lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0],
        lambda f: lambda x: jnp.sum(x) * jax.lax.cond(x[0] > 0, f, f, x),
    ],
    ids=["top", "jit", "remat", "scan", "cond"],
)
@pytest.mark.parametrize("closing", [False, True])
def test_an_error_in_a_backward_rule_names_its_line_not_that_of_the_call(place, closing):
    """JAX gives what a backward rule computes the line of the call."""

    def bwd(x, ct):
        return (factor * ct * ct,)

    factor = 2.0

    def f(x):
        nonlocal factor
        factor = jax.lax.stop_gradient(jnp.sum(x)) if closing else 2.0
        g = jax.custom_vjp(lambda x: jnp.sin(x) * factor)
        g.defvjp(lambda x: (g(x), x), bwd)
        return g(x)

    with pytest.raises(NotLinearError) as caught:
        pb.linearize(place(f), X)
    line = bwd.__code__.co_firstlineno + 1
    assert f"test_user_rules.py:{line}, in " in caught.value.where


@jax.custom_vjp
def solved(x):
    """Its backward rule is linear, but by code of which that is not seen: through logarithms."""
    return jnp.sin(x)


def solved_bwd(x, ct):
    return (jnp.sign(ct) * jnp.exp(jnp.log(jnp.abs(ct))) * jnp.cos(x),)


solved.defvjp(lambda x: (jnp.sin(x), x), solved_bwd)


@pytest.mark.parametrize(
    "place",
    [lambda f: f, jax.jit, jax.checkpoint, lambda f: lambda x: jax.jit(jnp.cos)(jax.jit(f)(x))],
    ids=["top", "jit", "remat", "two"],
)
def test_a_bwd_that_is_not_linear_is_no_error_where_its_derivative_is_stopped(place):
    """The gradient of such a loss holds the call, whose tangents nothing needs."""

    def stopped(x):
        return jnp.sum(jax.lax.stop_gradient(place(solved)(x)) * jnp.sin(x))

    def pair(x):
        first, second = jax.jit(lambda x: (solved(x), jnp.sin(x)))(x)
        return jnp.sum(jax.lax.stop_gradient(first) * second)

    def later(x):  # what it goes through has rules for all that agree in their types
        found = jnp.sin(place(solved)(x)) * x
        return jnp.sum(jax.lax.stop_gradient(found) * jnp.sin(x))

    for f in stopped, pair, later:
        same(pb.jvp(pb.grad(f), (X,), (Y,)), jax.jvp(jax.grad(f), (X,), (Y,)))
        same(pb.hessian(f)(X), jax.hessian(f)(X))
        same(pb.linearize(f, X)[1](Y), jax.linearize(f, X)[1](Y))
    with pytest.raises(NotLinearError):
        pb.jvp(place(solved), (X,), (Y,))


def test_a_bwd_that_is_not_linear_is_an_error_where_a_linear_call_needs_its_tangent():
    def f(x):
        return pb.linear_call(lambda r, v: solved(r) * v, lambda r, ct: solved(r) * ct, x, 2.0 * x)

    same(pb.vjp(lambda v: f(v), X)[0], jnp.sin(X) * 2.0 * X)
    with pytest.raises(NotLinearError, match="cannot transpose"):
        pb.jvp(f, (X,), (Y,))


@jax.custom_jvp
def squares_its_tangent(x):
    return x * 1.0


squares_its_tangent.defjvp(lambda p, t: (p[0], t[0] * t[0]))


@jax.custom_jvp
def adds_to_its_tangent(x):
    return x * 1.0


adds_to_its_tangent.defjvp(lambda p, t: (p[0], t[0] + 1.0))


@jax.custom_jvp
def forgets_its_tangent(x):
    return x * 1.0


forgets_its_tangent.defjvp(lambda p, t: (p[0], jnp.ones(2)))


@jax.custom_jvp
def ones_for_its_tangent(x):
    return x * 1.0


ones = jax.custom_jvp(jnp.ones_like)
ones.defjvp(lambda p, t: (ones(*p), t[0]))
ones_for_its_tangent.defjvp(lambda p, t: (p[0], ones(t[0])))


@pytest.mark.parametrize(
    "f",
    [squares_its_tangent, adds_to_its_tangent, forgets_its_tangent, ones_for_its_tangent],
    ids=lambda f: f.__name__,
)
def test_a_jvp_rule_that_is_not_linear_is_an_error_in_reverse_mode(f):
    with pytest.raises(NotLinearError, match=r"test_user_rules.py:\d+"):
        pb.grad(lambda x: jnp.sum(f(x)))(X)


def closing_over(x, factor):
    """A rule that does not know of what its function closes over."""
    f = jax.custom_jvp(lambda x: jnp.sin(x) * factor)
    f.defjvp(lambda primals, tangents: (3.0 * primals[0], 5.0 * tangents[0]))
    return jnp.sum(f(x))


@pytest.mark.parametrize(
    "place", [lambda f: f, jax.jit, jax.checkpoint], ids=["top", "jit", "remat"]
)
def test_a_jvp_rule_says_nothing_of_what_its_function_closes_over(place):
    """JAX refuses to differentiate by it, or gives zero where the function is jitted."""
    f = place(closing_over)
    program = pb.trace(f)(X, 2.0)
    assert jnp.allclose(program.grad()(X, 2.0), 5.0)
    assert jnp.allclose(program.jvp(wrt=0)(X, 2.0, X)[1], jnp.sum(5.0 * X))
    fixed = pb.grad(lambda factor: f(X, jax.lax.stop_gradient(factor)) * factor)(2.0)
    assert jnp.allclose(fixed, jnp.sum(2.0 * jnp.sin(X)))
    for derive in (lambda: program.grad(1), lambda: program.jvp(), lambda: program.linearize()):
        with pytest.raises(pb.MissingRuleError, match="custom_jvp rule and closes over a v") as e:
            derive()
        assert "test_user_rules.py:" in e.value.where
        assert "pass the value as an argument of the custom_jvp function" in e.value.do


def test_a_saved_jvp_rule_says_nothing_of_what_its_function_closes_over():
    loaded = pb.load(artifact.serialize(pb.trace(closing_over)(X, 2.0)))
    assert jnp.allclose(loaded.grad()(X, 2.0), 5.0)
    with pytest.raises(pb.MissingRuleError, match="closes over a value that is differentiated"):
        loaded.grad(1)


class Settings:
    """No container that we look into."""

    def __init__(self, factor):
        self.factor = factor


def test_a_jvp_rule_that_uses_a_value_in_an_object_is_an_error_with_its_line():
    def scaled(x, factor):
        settings = Settings(factor)
        f = jax.custom_jvp(lambda x: x * 2)
        f.defjvp(lambda primals, tangents: (f(*primals), settings.factor * tangents[0]))
        return f(x)

    for derive in (pb.grad(scaled), lambda *args: pb.jvp(scaled, args, args)):
        with pytest.raises(
            pb.LeakedValueError, match="uses a value of the function around it"
        ) as e:
            derive(0.5, 3.0)
        assert "test_user_rules.py:" in e.value.where
        assert "pass the value as an argument" in e.value.do


def test_a_rule_that_is_batched_alone_is_an_error():
    @jax.custom_jvp
    def zero(x):
        return np.zeros(x.shape, x.dtype)

    zero.defjvp(lambda primals, tangents: (zero(*primals), *tangents))
    of_batch = jax.jit(lambda xs: jnp.sum(jax.vmap(zero)(xs)))  # one zero: it needs no batch
    with pytest.raises(pb.RuleResultError, match=r"gives float32\[3\] where .* gives") as e:
        pb.grad(of_batch)(jnp.ones(3))
    assert "jax.vmap(pb.jit(f))" in e.value.do
    line = zero.jvp.__code__.co_firstlineno
    assert f"; its rule begins at tests/autodiff/test_user_rules.py:{line}" in e.value.where


def test_a_forward_rule_that_is_batched_alone_is_an_error():
    twice = jax.custom_vjp(lambda x, w: w * 2)
    twice.defvjp(lambda x, w: (w * 2 + 0 * x, None), lambda _, ct: (None, 2 * ct))
    of_batch = jax.jit(lambda w: jnp.sum(jax.vmap(twice, (0, None))(jnp.ones(3), w)))
    with pytest.raises(pb.RuleResultError, match=r"gives float32\[3\] where .* gives float32\[\]"):
        pb.grad(of_batch)(2.0)


@jax.custom_vjp
def stopped(x):
    return jnp.sin(x), jnp.cos(x)


def _no_backward(x, cts):
    raise ValueError("no backward")


stopped.defvjp(lambda x: (stopped(x), x), _no_backward)


def test_a_backward_rule_that_raises_has_a_forward_mode_where_nothing_needs_it(tmp_path):
    """As the potentials of optimal transport, whose cost has a gradient without theirs."""

    def cost(x):
        return sum(jax.lax.stop_gradient(jax.jit(stopped)(x))) * x

    x = jnp.float32(1.5)
    pb.trace(cost)(x).save(tmp_path / "cost.mlirbc", allow_refusals=True)
    wanted = jax.jit(lambda x: jax.jvp(cost, (x,), (x,)))(x)
    for found in (pb.jvp(cost, (x,), (x,)), pb.load(tmp_path / "cost.mlirbc").jvp()(x, x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="no backward") as raised:
        pb.jvp(lambda x: stopped(x)[0] * x, (x,), (x,))
    assert "in the vjp rule of `stopped`, called at " in "".join(raised.value.__notes__)


@jax.custom_vjp
def counted(x, n):
    return n, jnp.sin(x), 2 * n


counted.defvjp(lambda x, n: (counted(x, n), x), lambda x, ct: (3 * ct[1] * jnp.cos(x), None))


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit])
def test_a_jvp_rule_may_push_through_a_backward_rule_whose_function_returns_integers(wrapped):
    @jax.custom_jvp
    def f(x):
        return counted(x, 2)

    f.defjvp(wrapped(lambda primals, tangents: jax.jvp(lambda x: counted(x, 2), primals, tangents)))

    def of(x):
        return jnp.sum(f(x)[1] * f(x)[2])

    def twice(p):
        return p.grad(lambda x: p.grad(of)(x) @ Y)(X)

    same(pb.grad(of)(X), jax.grad(of)(X))
    same(twice(pb), twice(jax))


@jax.custom_vjp
def clipped(x, bound):
    return x * 1.0


def _clipped_bwd(bound, ct):
    return jnp.clip(ct, -bound, bound), jnp.zeros_like(bound)


clipped.defvjp(lambda x, bound: (x * 1.0, bound), _clipped_bwd)

BODIES = {
    "called": lambda x, b: clipped(x, b) ** 2 * jnp.sin(x),
    "jit": jax.jit(lambda x, b: clipped(x, b) ** 2 * jnp.sin(x)),
    "vmap": jax.vmap(lambda x, b: clipped(x, b) * x),
    "scan": lambda x, b: jax.lax.scan(lambda c, _: (clipped(c, b) * c, None), x, None, 3)[0],
    "cond": lambda x, b: jax.lax.cond(x[0] > 0, lambda: clipped(x, b) * x, lambda: 2 * x),
}


def pushing_through(body):
    """A function whose rule pushes through one that has a backward rule which is not linear."""
    f = jax.custom_jvp(body)
    f.defjvp(lambda primals, tangents: jax.jvp(body, primals, tangents))
    return lambda x: jnp.sum(f(x, 0.3 * jnp.ones(2)) * Y)


@pytest.mark.parametrize("body", [*BODIES.values(), jax.checkpoint(BODIES["called"])])
def test_a_tangent_that_only_goes_back_may_be_there_and_unused(body):
    f = pushing_through(body)
    same(pb.jit(lambda x: jax.jvp(f, (x,), (x,))[0])(X), f(X))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_jvp_rule_may_push_through_a_backward_rule_that_is_not_linear(body, tmp_path):
    f = pushing_through(body)
    same(pb.grad(f)(X), jax.grad(f)(X))
    same(pb.hessian(f)(X), jax.hessian(f)(X))
    same(pb.grad(lambda x: pb.grad(f)(x) @ Y)(X), jax.grad(lambda x: jax.grad(f)(x) @ Y)(X))
    pb.trace(f)(X).save(tmp_path / "f.mlirbc")
    loaded = pb.load(tmp_path / "f.mlirbc")
    same(loaded.grad()(X), jax.grad(f)(X))
    for program in (pb.trace(f)(X), loaded):
        with pytest.raises(pb.MissingRuleError, match="rule `clipped_bwd` cannot be"):
            program.jvp()(X, X)


def test_a_rule_that_only_goes_back_may_return_another_float_type():
    @jax.custom_vjp
    def mixed(x, y):
        return x * y

    def bwd(args, ct):
        kept = jnp.where(ct > 0, 1, 0 * ct)
        return kept * args[1], kept * args[0]

    mixed.defvjp(lambda *args: (mixed(*args), args), bwd)
    f = pushing_through(lambda x, _: mixed(x, x.astype(jnp.float16)))
    x = jnp.array([0.5, 2.0])
    staged = pb.load(pb.trace(f)(x).stage_rules().asm().encode())
    same(staged.grad()(x), jax.grad(f)(x))


def test_what_needs_a_tangent_that_only_goes_back_does_not_run(tmp_path):
    def moved(x):
        return jax.jvp(lambda x: clipped(x, X), (x,), (x,))[1]

    def slope(x):
        return jnp.sum(moved(x) * x)

    program = pb.trace(moved)(X)
    line = moved.__code__.co_firstlineno + 1
    path = tmp_path / "f.mlirbc"
    for run in (lambda: program(X), lambda: jax.jit(program)(X), lambda: program.save(path)):
        with pytest.raises(pb.MissingRuleError, match="no jvp rule for a custom_vjp") as caught:
            run()
        assert f"test_user_rules.py:{line}" in caught.value.where
        assert "linear in the cotangent" in caught.value.do
    with pytest.raises(pb.MissingRuleError, match="no jvp rule for a custom_vjp"):
        pb.grad(slope)(X)

    def by_what_it_keeps(bound):
        return jax.jvp(lambda x: clipped(x, bound), (X,), (Y,))[1]

    program = pb.trace(by_what_it_keeps)(X)
    for derivative in (program.jvp, program.vjp):
        with pytest.raises(pb.MissingRuleError, match="no jvp rule for a custom_vjp"):
            derivative()


# ------------------------------------------------------------- terms that are zero or NaN


def rule_with_a_term(term):
    @jax.custom_jvp
    def function(x):
        return jnp.sin(x)

    function.defjvp(lambda x, t: (function(*x), term(x[0]) + t[0] * jnp.cos(x[0])))
    return lambda x: jnp.sum(function(x) ** 2)


def marked(x, b):
    """As solvers do that mark with NaN that they have failed."""
    return jnp.where(jnp.all(jnp.isfinite(x)), b / (2.0 + x * x), jnp.nan)


NO_TERMS = {
    "zero or a mark": lambda x: marked(x, jnp.zeros(2)),
    "in a function": lambda x: jax.jit(marked)(x, jnp.zeros(2)),
    "a sum of such": lambda x: marked(x, jnp.zeros(2)) - 3.0 * marked(2 * x, jnp.zeros(2)),
}
TERMS = {
    "one or a mark": lambda x: marked(x, jnp.ones(2)),
    "a mark alone": lambda x: jnp.full(2, jnp.nan),
    "by an integer": lambda x: marked(x, jnp.zeros(2)).astype(int).astype(x.dtype),
}


@pytest.mark.parametrize("name", NO_TERMS)
def test_a_term_that_is_zero_or_marks_a_failure_is_none(name):
    f, x = rule_with_a_term(NO_TERMS[name]), jnp.array([0.3, 0.8])
    assert jnp.allclose(pb.grad(f)(x), jax.grad(f)(x))
    assert jnp.allclose(pb.grad(f)(x), 2 * jnp.sin(x) * jnp.cos(x))
    assert jnp.all(jnp.isnan(pb.jvp(f, (x / 0.0,), (x,))[1]))


@pytest.mark.parametrize("name", TERMS)
def test_any_other_term_is_an_error(name):
    f, x = rule_with_a_term(TERMS[name]), jnp.array([0.3, 0.8])
    with pytest.raises(pb.NotLinearError, match="adds a term to it"):
        pb.grad(f)(x)


# --------------------------------------------------------- rules that do not look at cotangents


@jax.custom_vjp
def quantized(x, scale):
    return jnp.round(x / scale), scale * 2


quantized.defvjp(lambda x, s: (quantized(x, s), s), lambda s, cts: (None, s * 3))


def with_a_zero_for_the_second(zero):
    dot = jax.custom_vjp(lambda x, q: jnp.sum(q))
    dot.defvjp(lambda x, q: (jnp.sum(q), x), lambda x, ct: (ct * jnp.ones_like(x), zero(x)))
    return dot


def scanned(f):
    return lambda x, s: jax.lax.scan(lambda c, _: (c + f(x, s), None), 0.0, None, length=2)[0]


LEFT_OUT = {
    "None": lambda x: None,
    "zeros": jnp.zeros_like,
}
AROUND_LEFT_OUT = {
    "nothing": lambda f: f,
    "scan": scanned,
    "checkpoint": jax.checkpoint,
    "cond": lambda f: lambda x, s: jax.lax.cond(s > 0, f, lambda x, s: jnp.sum(x), x, s),
}


@pytest.mark.parametrize("called", ["here", "in jit", "in a branch"])
@pytest.mark.parametrize("around", AROUND_LEFT_OUT)
@pytest.mark.parametrize("zero", LEFT_OUT)
def test_a_rule_runs_whose_cotangents_another_rule_leaves_out(zero, around, called):
    """As in JAX, where they are zeros: Flax hands on new scales of FP8 products in this way.

    The reference has zeros: JAX itself does not hand on None to a rule in a jit of its own.
    """
    quantize = {
        "here": quantized,
        "in jit": jax.jit(quantized),
        "in a branch": lambda x, s: jax.lax.cond(s > 0, quantized, lambda x, s: (x, s), x, s),
    }[called]

    def using(zero):
        dot = with_a_zero_for_the_second(zero)
        return AROUND_LEFT_OUT[around](lambda x, s: dot(x, 2 * quantize(x, s)[0]))

    f, x, s = using(LEFT_OUT[zero]), jnp.ones(2), jnp.float32(0.5)
    expected = jax.grad(using(jnp.zeros_like), (0, 1))(x, s)
    assert float(expected[1]) > 0
    loaded = pb.load(artifact.serialize(pb.trace(f)(x, s)))
    for found in (pb.grad(f, (0, 1))(x, s), loaded.grad((0, 1))(x, s)):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, s: jax.lax.stop_gradient(quantized(x, s)[0]).sum() + x.sum(),
        lambda x, s: quantized(x, s)[0].astype(int).sum() + x.sum(),
        lambda x, s: x.sum() + 0 * len(quantized(x, s)),
    ],
)
def test_a_rule_does_not_run_where_nothing_asks_for_cotangents(f):
    x, s = jnp.ones(2), jnp.float32(0.5)
    assert float(jax.grad(f, 1)(x, s)) == float(pb.grad(f, 1)(x, s)) == 0.0


@pytest.mark.parametrize(
    "n", [2, np.int32(2), jnp.int32(2), np.array(2, np.int8), True, np.True_, jnp.array(True)]
)
def test_integers_of_all_kinds_are_residuals(n):
    f = jax.custom_vjp(lambda x, n: x * n)
    f.defvjp(lambda x, n: (f(x, n), n), lambda n, ct: (3 * ct * n, None))
    x = jnp.ones(2)
    for derive in (pb, jax):
        found = derive.grad(lambda x: jnp.sum(f(x, n) + f(x, n)))(x)
        np.testing.assert_allclose(found, 6.0 * int(n) * x)
    assert pb.grad(lambda x: jnp.sum(jax.jit(f)(x, n)))(x).tolist() == [3.0 * int(n)] * 2


# -------------------------------------------------------------- other interpreters of rules


def test_a_rule_that_an_interpreter_gives_as_a_tuple_of_cotangents():
    """`checkify` does. The rows of the first cotangent were taken for cotangents."""

    @jax.custom_vjp
    def dense(w, b):
        return jnp.sin(w) + b

    dense.defvjp(lambda w, b: (dense(w, b), w), lambda w, ct: (3 * ct * jnp.cos(w), 2 * ct.sum(0)))
    w, b = jnp.arange(6.0).reshape(2, 3), jnp.ones(3)

    def loss(w, b):
        _, y = checkify.checkify(dense)(w, b)
        return jnp.sum(y**2)

    expected = jax.grad(loss, (0, 1))(w, b)
    same(pb.grad(loss, (0, 1))(w, b), expected)
    same(pb.grad(loss, 1)(w, b), expected[1])
    program = pb.load(artifact.serialize(pb.trace(loss)(w, b)))
    same(program.grad((0, 1))(w, b), expected)


@jax.custom_vjp
def half(t):
    return t


half.defvjp(lambda t: (t, None), lambda _, ct: (0.5 * ct,))


def through_half(between):
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), between(jnp.cos(p[0]), t[0])))
    return f


TO_A_TANGENT = {
    "alone": lambda c, t: c * half(t),
    "in jit": lambda c, t: jax.jit(half)(c * t),
    "in a loop": lambda c, t: c * jax.lax.fori_loop(0, 1, lambda _, t: half(t), t),
    "of its residuals": lambda c, t: half_scaled(t, c),
}
half_scaled = jax.custom_vjp(lambda t, c: t * c)
half_scaled.defvjp(lambda t, c: (t * c, (t, c)), lambda r, ct: (0.5 * r[1] * ct, None))


@pytest.mark.parametrize("name", TO_A_TANGENT)
def test_a_backward_rule_that_a_jvp_rule_applies_to_its_tangent_is_taken(name):
    """It was left out, and nothing said so. JAX refuses (jax#19087)."""
    f, x = through_half(TO_A_TANGENT[name]), jnp.float32(0.3)
    loaded = pb.load(artifact.serialize(pb.trace(f)(x)))
    for found in (pb.grad(f)(x), pb.vjp(f, x)[1](1.0)[0], jax.grad(pb.jit(f))(x), loaded.grad()(x)):
        np.testing.assert_allclose(found, 0.5 * np.cos(0.3), rtol=1e-6)
    np.testing.assert_allclose(pb.jvp(f, (x,), (x / x,))[1], np.cos(0.3), rtol=1e-6)


def test_a_backward_rule_that_needs_the_tangent_is_refused():
    squares = jax.custom_vjp(lambda t: t)
    squares.defvjp(lambda t: (t, t), lambda t, ct: (t * ct,))
    with pytest.raises(
        pb.NotLinearError, match="a residual that depends on what it is linear in"
    ) as e:
        pb.grad(through_half(lambda c, t: c * squares(t)))(0.3)
    assert "test_user_rules.py" in e.value.where
    assert "pb.linear_call" in e.value.do


@pytest.mark.parametrize("inner", [pb.grad, lambda loss: jax.grad(pb.jit(loss))])
def test_the_derivative_of_the_gradient_of_a_scan_goes_through_the_rule(inner):
    """JAX up to 0.11 differentiates the function there: docs/known_jax_faults.md."""

    @jax.custom_jvp
    def f(x):
        return x * x

    f.defjvp(lambda p, t: (f(*p), 3 * p[0] * t[0]))
    loss = lambda x: jnp.sum(jax.lax.scan(lambda c, x: (c, jnp.sin(f(x))), 0.0, x)[1])  # noqa: E731
    wanted = 3 * jnp.cos(X**2) - 9 * X**2 * jnp.sin(X**2)
    same(jax.jacfwd(inner(loss))(X), jnp.diag(wanted))
    same(pb.jacrev(inner(loss))(X), jnp.diag(wanted))
