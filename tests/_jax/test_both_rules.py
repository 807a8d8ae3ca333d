"""Forward mode of functions with a backward rule: by a second rule, or through their own code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import linear_call
from jax.experimental.ode import odeint

import pullback as pb
from pullback import artifact
from pullback.passes.manager import run_pipeline

SCALAR = jax.ShapeDtypeStruct((), jnp.float32)


@pb.custom_vjp
def both(x, y):
    """Its rules are false, and each in another way: forward twice the slope, backward thrice."""
    return jnp.sin(x) * y


def both_fwd(x, y):
    return both(x, y), (x, y)


def both_bwd(residuals, ct):
    x, y = residuals
    return 3 * ct * jnp.cos(x) * y, ct * jnp.sin(x)


def both_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return both(x, y), 2 * jnp.cos(x) * dx * y + jnp.sin(x) * dy


both.defvjp(both_fwd, both_bwd)
both.defjvp(both_jvp)

X, Y, XS = np.float32(0.7), np.float32(2.0), np.linspace(0.1, 0.9, 3, dtype=np.float32)
SLOPE, CURVATURE = np.cos(X) * Y, -np.sin(X) * Y


def thrice(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.fori_loop(0, 3, lambda _, c: f(c), x)


def scanned(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]


def of_y(x: Any) -> Any:
    return both(x, Y)


AROUND: dict[str, tuple[Callable[[Any], Any], float | None]] = {
    "alone": (of_y, SLOPE),
    "in jit": (jax.jit(of_y), SLOPE),
    "by name": (lambda x: both(y=Y, x=x), SLOPE),
    "in a branch": (lambda x: lax.cond(x > 0, of_y, jnp.sin, x), SLOPE),
    "in vmap": (lambda x: jnp.sum(jax.vmap(both, (0, None))(x * XS, Y)), None),
    "in pb.vmap": (lambda x: jnp.sum(pb.vmap(both, (0, None))(x * XS, Y)), None),
    "in two vmaps": (
        lambda x: jnp.sum(jax.vmap(jax.vmap(both, (0, None)), (None, 0))(x * XS, XS)),
        None,
    ),
    "in a scan": (scanned(of_y), None),
    "in a loop": (thrice(of_y), None),
}


@pytest.mark.parametrize("library", [jax, pb])
@pytest.mark.parametrize("name", AROUND)
def test_each_mode_takes_its_own_rule(name: str, library: Any) -> None:
    f, slope = AROUND[name]
    tangent = library.jvp(f, (X,), (np.float32(1),))[1]
    gradient = library.grad(f)(X)
    np.testing.assert_allclose(jax.jit(library.grad(f))(X), gradient, rtol=1e-6)
    if slope is None:
        calls = 3 if name in ("in a scan", "in a loop") else 1
        np.testing.assert_allclose(gradient / tangent, (3 / 2) ** calls, rtol=1e-5)
        return
    np.testing.assert_allclose([tangent, gradient], [2 * slope, 3 * slope], rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(library.grad(f))(XS), 3 * np.cos(XS) * Y, rtol=1e-6)


@pytest.mark.parametrize("library", [jax, pb])
def test_derivatives_of_derivatives(library: Any) -> None:
    second = library.hessian(both)(X, Y), library.grad(library.grad(both))(X, Y)
    np.testing.assert_allclose(second, [3 * CURVATURE] * 2, rtol=1e-6)
    twice_forward = library.jacfwd(library.jacfwd(both))(X, Y)
    np.testing.assert_allclose(twice_forward, 2 * CURVATURE, rtol=1e-6)


def test_a_while_loop_has_forward_mode() -> None:
    def f(x):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, both(c[1], Y)), (0, x))[1]

    for library in (jax, pb):
        found = library.jvp(f, (X,), (np.float32(1),))[1]
        np.testing.assert_allclose(found, pb.jvp(thrice(of_y), (X,), (np.float32(1),))[1])


def test_a_checkpoint_has_both_modes() -> None:
    f = jax.checkpoint(of_y)
    np.testing.assert_allclose(pb.grad(f)(X), 3 * SLOPE, rtol=1e-6)
    np.testing.assert_allclose(pb.jvp(f, (X,), (np.float32(1),))[1], 2 * SLOPE, rtol=1e-6)


def loaded(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return pb.load(artifact.serialize(pb.trace(f)(X)))


PROGRAMS: dict[str, Callable[..., Any]] = {
    "jit": pb.jit,
    "trace": lambda f: pb.trace(f)(X),
    "file": loaded,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_mode_that_jax_takes_of_a_program_takes_the_forward_rule(name: str) -> None:
    one, program = np.float32(1), PROGRAMS[name](of_y)
    slopes = {
        "jvp": jax.jvp(program, (X,), (one,))[1],
        "jacfwd": jax.jacfwd(program)(X),
        "linearize": jax.linearize(program, X)[1](one),
        "linearize in jit": jax.jit(lambda x: jax.linearize(program, x)[1](one))(X),
        "batch": jax.vmap(jax.jacfwd(program))(jnp.full(2, X))[1],
        "rematerialized": jax.jacfwd(jax.checkpoint(program))(X),
    }
    np.testing.assert_allclose([*slopes.values()], [2 * SLOPE] * len(slopes), rtol=1e-6)
    transposed = {
        "grad": jax.grad(program)(X),
        "jacrev": jax.jacrev(program)(X),
        "transpose": jax.linear_transpose(lambda t: jax.jvp(program, (X,), (t,))[1], one)(one)[0],
        "rematerialized": jax.grad(jax.checkpoint(program))(X),
        "linearized": jax.linear_transpose(jax.linearize(program, X)[1], one)(one)[0],
    }
    np.testing.assert_allclose([*transposed.values()], [3 * SLOPE] * len(transposed), rtol=1e-6)
    twice = jax.jvp(scanned(program), (X,), (one,))[1], jax.grad(scanned(program))(X)
    np.testing.assert_allclose(twice[1] / twice[0], (3 / 2) ** 3, rtol=1e-5)


def test_linear_maps_of_ours_take_the_forward_rule() -> None:
    one = np.float32(1)
    np.testing.assert_allclose(pb.linearize(of_y, X)[1](one), 2 * SLOPE, rtol=1e-6)
    for program in (pb.trace(of_y)(X), loaded(of_y)):
        forward, linear = program.linearize()
        out, residuals = forward(X)
        np.testing.assert_allclose(linear(residuals, one), 2 * SLOPE, rtol=1e-6)
        np.testing.assert_allclose(out, of_y(X), rtol=1e-6)


def test_forward_mode_of_a_gradient_takes_the_forward_rules_of_what_is_in_it() -> None:
    def squared(x):
        return of_y(x) ** 2 * jnp.sin(x)

    expected = pb.jvp(pb.grad(squared), (X,), (np.float32(1),))[1]
    assert abs(expected - jax.grad(pb.grad(squared))(X)) > 0.1
    for program in (pb.jit(squared), pb.trace(squared)(X), loaded(squared)):
        np.testing.assert_allclose(jax.hessian(program)(X), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(pb.grad(squared), (X,), (X / X,))[1], expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(pb.grad(squared))(X), expected, rtol=1e-6)


@jax.custom_jvp
def stepped(x):
    return jnp.sin(x)


@stepped.defjvp
def stepped_jvp(primals, tangents):
    def halve(c):
        return c[0] + c[1], c[1] / 2

    total = lax.while_loop(lambda c: jnp.abs(c[1]) > 0.1, halve, (0.0, tangents[0]))[0]
    return stepped(*primals), total


MATRIX = jnp.array([[2.0, 1.0], [1.0, 3.0]])


def solved_in_part(b):
    def matvec(v):
        return {"a": MATRIX @ v["a"], "b": 2 * v["b"]}

    return jax.scipy.sparse.linalg.cg(matvec, {"a": b, "b": b})[0]["a"].sum()


def rooted(a):
    def solve(f, x):
        return lax.fori_loop(0, 30, lambda _, x: x - f(x) / (3 * x**2), x)

    def tangent_solve(g, y):
        return jax.scipy.sparse.linalg.gmres(g, y)[0]

    return lax.custom_root(lambda x: x**3 - a, jnp.ones(2), solve, tangent_solve).sum()


clips = pb.custom_vjp(lambda x: jnp.sin(x))
clips.defvjp(lambda x: (clips(x), x), lambda x, ct: (jnp.clip(ct * jnp.cos(x), -1, 1),))
clips.defjvp(lambda p, t: (clips(*p), jnp.cos(p[0]) * t[0]))

FORWARD_ONLY: dict[str, tuple[Any, Any, Any]] = {
    "a tangent in a while_loop": (stepped, np.float32(0.3), None),
    "cg with an unused unknown": (solved_in_part, np.ones(2, np.float32), None),
    "custom_root by gmres": (rooted, np.array([2, 3], np.float32), None),
    "frexp": (lambda x: jnp.frexp(x)[0], np.float32(3), None),
    "a clipped rule": (lambda x: 5 * clips(x), np.float32(0.3), np.float32(1.5 * np.cos(0.3))),
}


@pytest.mark.parametrize("name", FORWARD_ONLY)
def test_forward_mode_needs_no_reverse_mode(name: str) -> None:
    f, x, expected = FORWARD_ONLY[name]
    if expected is None:
        expected = jax.jvp(f, (x,), (x,))[1]
    np.testing.assert_allclose(pb.jvp(f, (x,), (x,))[1], expected, rtol=1e-5)
    np.testing.assert_allclose(pb.linearize(f, x)[1](x), expected, rtol=1e-5)
    forward, linear = pb.trace(f)(x).linearize()
    np.testing.assert_allclose(linear(forward(x)[1], x), expected, rtol=1e-5)
    programs = [pb.jit(f), pb.trace(f)(x)]
    if f is not rooted:  # a file has rules for both modes
        programs.append(pb.load(artifact.serialize(pb.trace(f)(x))))
    for program in programs:
        np.testing.assert_allclose(jax.jvp(program, (x,), (x,))[1], expected, rtol=1e-5)
        np.testing.assert_allclose(jax.linearize(program, x)[1](x), expected, rtol=1e-5)


def test_a_map_that_has_forward_mode_alone_is_not_transposed() -> None:
    with pytest.raises(pb.NotLinearError, match="while"):
        jax.grad(pb.jit(stepped))(X)
    assert jax.grad(pb.jit(lambda x: 5 * clips(x)))(np.float32(0)) == 1


def test_a_program_and_a_file_hold_both_rules() -> None:
    program = pb.trace(both)(X, Y)
    loaded = pb.load(artifact.serialize(program))
    assert "bwd = @both.bwd, fwd = @both.fwd, jvp = @both.jvp" in str(loaded)
    for each in (program, loaded):
        np.testing.assert_allclose(each(X, Y), np.sin(X) * Y, rtol=1e-6)
        np.testing.assert_allclose(each.jvp(0)(X, Y, 1.0)[1], 2 * SLOPE, rtol=1e-6)
        np.testing.assert_allclose(each.grad()(X, Y), 3 * SLOPE, rtol=1e-6)
        np.testing.assert_allclose(each.grad().jvp(0)(X, Y, 1.0)[1], 3 * CURVATURE, rtol=1e-6)
        np.testing.assert_allclose(
            each.jvp(0).jvp(0)(X, Y, 1.0, 1.0)[1][1], 2 * CURVATURE, rtol=1e-6
        )
        batch = each.vmap((0, None), axis_size=3)
        _, tangents = batch.jvp(0)(XS, Y, np.ones(3, np.float32))
        np.testing.assert_allclose(tangents, 2 * np.cos(XS) * Y, rtol=1e-6)
        _, (cts, _) = batch.vjp()(XS, Y, np.ones(3, np.float32))
        np.testing.assert_allclose(cts, 3 * np.cos(XS) * Y, rtol=1e-6)


@functools.partial(pb.custom_vjp, nondiff_argnums=(0,))
def of_trees(function, d, n):
    return {"y": function(d["a"]) * n, "n": n + 1}


of_trees.defvjp(
    lambda function, d, n: (of_trees(function, d, n), (d, n)),
    lambda function, r, ct: ({"a": 3 * r[1] * ct["y"], "b": None}, None),
)
of_trees.defjvp(
    lambda function, p, t: (
        of_trees(function, *p),
        {"y": 2 * p[1] * t[0]["a"], "n": np.zeros((), jax.dtypes.float0)},
    )
)


@pytest.mark.parametrize("library", [jax, pb])
def test_trees_integers_and_arguments_without_derivatives(library: Any) -> None:
    d, ones = {"a": X, "b": Y}, {"a": np.float32(1), "b": np.float32(1)}
    f = lambda d: of_trees(jnp.sin, d, jnp.int32(2))  # noqa: E731
    assert library.jvp(f, (d,), (ones,))[1]["y"] == 4
    assert library.grad(lambda d: f(d)["y"])(d) == {"a": 6, "b": 0}
    batch = {"a": XS, "b": XS}
    found = jax.vmap(library.grad(lambda d: f(d)["y"]))(batch)
    np.testing.assert_array_equal(found["a"], [6.0] * 3)


def test_rules_see_symbolic_zeros() -> None:
    seen = []
    f = pb.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (ct * r[1], ct * r[0]))

    def jvp(primals, tangents):
        seen.append([type(t).__name__ for t in tangents])
        return f(*primals), primals[1] * tangents[0]

    f.defjvp(jvp, symbolic_zeros=True)
    assert pb.jvp(lambda x: f(x, Y), (X,), (np.float32(1),))[1] == Y
    assert seen[-1][1] == "SymbolicZero"


def test_a_function_among_the_arguments_is_converted() -> None:
    f = pb.custom_vjp(lambda g, x: g(x), closure_convert_argnums=0)
    f.defvjp(
        lambda g, x: (f(g, x), (g, x)), lambda r, ct: jax.vjp(lambda g, x: g(x), *r)[1](3 * ct)
    )
    f.defjvp(lambda p, t: (f(*p), 2 * jax.jvp(lambda g, x: g(x), p, t)[1]))
    for library in (jax, pb):
        scaled = lambda k: f(lambda x: x * k, X)  # noqa: E731
        np.testing.assert_allclose(library.grad(scaled)(Y), 3 * X, rtol=1e-6)
        np.testing.assert_allclose(library.jvp(scaled, (Y,), (Y,))[1], 2 * X * Y, rtol=1e-6)


def test_a_function_without_a_backward_rule_is_refused_as_by_jax() -> None:
    f = pb.custom_vjp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), t[0]))
    with pytest.raises(AttributeError, match="No VJP defined for custom_vjp function sin"):
        f(1.0)


def test_a_value_of_the_function_around_it_is_to_be_an_argument() -> None:
    def outer(x, k):
        f = pb.custom_vjp(lambda x: x * k)
        f.defvjp(lambda x: (f(x), None), lambda _, ct: (3 * ct,))
        f.defjvp(lambda p, t: (f(*p), 2 * t[0]))
        return f(x)

    assert pb.grad(lambda x: outer(x, 4.0))(X) == 3
    with pytest.raises(pb.LeakedValueError, match="closes over a value of the function") as e:
        pb.grad(outer)(X, 4.0)
    assert "test_both_rules.py" in e.value.where
    assert "pass the value as an argument" in e.value.do


def test_an_argument_by_name_only_is_refused() -> None:
    f = pb.custom_vjp(lambda x, *, y: x * y)
    f.defvjp(lambda x, y: (x * y, y), lambda y, ct: (ct * y, None))
    f.defjvp(lambda p, t: (f(*p), t[0]))
    with pytest.raises(pb.ArgumentMismatchError, match="takes y by name only"):
        f(X, y=Y)


# ------------------------------------------------------------------- through the function's code


@jax.custom_vjp
def clipped(x):
    return jnp.sin(x)


clipped.defvjp(lambda x: (clipped(x), x), lambda x, ct: (jnp.clip(ct * jnp.cos(x), -0.1, 0.1),))


@jax.custom_vjp
def called_back(x):
    return jnp.sin(x)


def on_the_host(x, ct):
    return (np.cos(x) * ct).astype(np.float32)


called_back.defvjp(
    lambda x: (called_back(x), x),
    lambda x, ct: (jax.pure_callback(on_the_host, SCALAR, x, ct),),
)


def decay(y):
    return odeint(lambda y, t: -y, y, jnp.linspace(0.0, 1.0, 3))[-1]


WITHOUT_FORWARD_MODE: dict[str, tuple[Callable[[Any], Any], float]] = {
    "clipped": (clipped, np.cos(X)),
    "in jit": (jax.jit(clipped), np.cos(X)),
    "in a loop": (thrice(clipped), np.cos(X) * np.cos(np.sin(X)) * np.cos(np.sin(np.sin(X)))),
    "with a callback": (called_back, np.cos(X)),
    "odeint": (decay, np.exp(-1.0)),
}
FORWARD: dict[str, Callable[..., Any]] = {
    "pb.jvp": lambda f, **how: pb.jvp(f, (X,), (np.float32(1),), **how)[1],
    "pb.jacfwd": lambda f, **how: pb.jacfwd(f, **how)(X),
    "pb.linearize": lambda f, **how: pb.linearize(f, X, **how)[1](np.float32(1)),
    "program.jvp": lambda f, **how: pb.trace(f)(X).jvp(**how)(X, 1.0)[1],
    "program.linearize": lambda f, **how: _applied(pb.trace(f)(X).linearize(**how)),
}


def _applied(split: Any) -> Any:
    _, residuals = split.forward(X)
    return split.linear(residuals, np.float32(1))


@pytest.mark.parametrize("how", FORWARD)
@pytest.mark.parametrize("name", WITHOUT_FORWARD_MODE)
def test_the_code_of_a_function_is_differentiated_where_the_caller_says_so(name, how) -> None:
    f, slope = WITHOUT_FORWARD_MODE[name]
    np.testing.assert_allclose(FORWARD[how](f, through="function"), slope, rtol=1e-4)
    with pytest.raises((pb.NotLinearError, pb.MissingRuleError)) as error:
        FORWARD[how](f)
    assert "f.defjvp(…) of f = pb.custom_vjp(…)" in error.value.do
    assert error.value.do.startswith("take reverse mode, which keeps every rule")
    called = {"odeint": "odeint", "with a callback": "called_back"}.get(name, "clipped")
    assert f'through={{"{called}": "function"}}' in error.value.do
    np.testing.assert_allclose(FORWARD[how](f, through={called: "function"}), slope, rtol=1e-4)


@jax.custom_vjp
def safe_norm(x):
    return jnp.sqrt(x @ x)


safe_norm.defvjp(
    lambda x: (safe_norm(x), x), lambda x, ct: (ct * x / jnp.where(x @ x == 0, 1, safe_norm(x)),)
)


@jax.custom_vjp
def summed(x):
    return x.sum()


summed.defvjp(lambda x: (summed(x), x), lambda x, ct: (jnp.clip(ct, -1, 1) + 0 * x,))


@pytest.mark.parametrize("key", [summed, "summed"])
@pytest.mark.parametrize("how", ["jvp", "jacfwd", "linearize", "program", "file"])
def test_the_code_of_one_function_is_differentiated_and_other_rules_stay(
    key: Any, how: str
) -> None:
    """At zero, the derivative of the norm's code is NaN."""

    def f(x):
        return safe_norm(x) + summed(x) + jax.vmap(summed)(x[None])[0]

    x, t, through = np.zeros(2, np.float32), np.ones(2, np.float32), {key: "function"}
    program = pb.trace(f)(x)
    found = {
        "jvp": lambda: pb.jvp(f, (x,), (t,), through=through)[1],
        "jacfwd": lambda: pb.jacfwd(f, through=through)(x) @ t,
        "linearize": lambda: pb.linearize(f, x, through=through)[1](t),
        "program": lambda: program.jvp(through=through)(x, t)[1],
        "file": lambda: pb.load(artifact.serialize(program)).jvp(through=through)(x, t)[1],
    }[how]()
    assert found == 4


@pytest.mark.parametrize("derive", [pb.jvp, lambda f, p, t, **how: pb.linearize(f, *p, **how)])
def test_a_linear_rule_is_not_dropped_unless_it_is_named(derive: Any) -> None:
    x = np.zeros(2, np.float32)
    with pytest.raises(pb.ArgumentMismatchError, match="drops the rule of `safe_norm`") as error:
        derive(lambda x: safe_norm(x) + summed(x), (x,), (x,), through="function")
    assert 'through={f: "function"}' in error.value.do
    assert "test_both_rules.py" in error.value.where
    named = {"safe_norm": "function", summed: "function"}
    assert derive(lambda x: safe_norm(x + 1) + summed(x), (x,), (x,), through=named)


def test_reverse_over_reverse_keeps_all_rules() -> None:
    """As the error says that forces nobody to drop a rule."""

    def f(x):
        return safe_norm(x) ** 2 + jnp.sin(summed(x))

    x, v = np.zeros(2, np.float32), np.ones(2, np.float32)
    product = pb.grad(lambda x: jnp.vdot(pb.grad(f)(x), v))(x)
    assert np.isfinite(product).all()
    np.testing.assert_allclose(product, pb.jacrev(pb.grad(f))(x) @ v, rtol=1e-6)


def test_the_code_in_a_file_is_differentiated_as_well() -> None:
    loaded = pb.load(artifact.serialize(pb.trace(clipped)(X)))
    np.testing.assert_allclose(loaded.jvp(through="function")(X, 1.0)[1], np.cos(X), rtol=1e-6)
    run_pipeline(loaded.module, "jvp{through=function}")
    assert "cosine" in str(loaded)


def test_other_rules_are_honoured_on_the_way() -> None:
    @jax.custom_jvp
    def sevenfold(x):
        return x * x

    sevenfold.defjvp(lambda p, t: (sevenfold(*p), 7 * p[0] * t[0]))
    f = jax.custom_vjp(lambda x: sevenfold(x) + both(x, Y))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (jnp.clip(ct, -1, 1),))
    found = pb.jvp(f, (X,), (np.float32(1),), through="function")[1]
    np.testing.assert_allclose(found, 7 * X + 2 * SLOPE, rtol=1e-6)
    assert pb.grad(f)(X) == 1


def test_what_cannot_be_differentiated_through_is_refused() -> None:
    with pytest.raises(pb.ArgumentMismatchError, match="through='code'") as error:
        pb.jvp(clipped, (X,), (X,), through="code")
    assert "called by these names: clipped" in error.value.do
    for through in ({"clipped": "code"}, {3: "function"}):
        with pytest.raises(pb.ArgumentMismatchError, match="nothing to differentiate") as error:
            pb.jvp(clipped, (X,), (X,), through=through)
        assert '{f: "function"}' in error.value.do
    assert pb.jvp(both, (X, Y), (X, Y), through={"both": "rules"})
    size = jax.export.symbolic_shape("n")
    program = pb.trace(jnp.sin)(jax.ShapeDtypeStruct(size, jnp.float32))
    with pytest.raises(pb.PullbackError, match="whose dimensions are symbols"):
        program.jvp(through="function")


# ------------------------------------------------------------------------ callbacks on tangents


@jax.custom_jvp
def on_tangents(x):
    return jnp.sin(x)


def on_tangents_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return on_tangents(x), jax.pure_callback(on_the_host, SCALAR, x, dx)


on_tangents.defjvp(on_tangents_jvp)


def remedied(x):
    """As the error says."""
    f = jax.custom_jvp(jnp.sin)

    def call(x, t):
        return jax.pure_callback(on_the_host, SCALAR, x, t)

    f.defjvp(lambda p, t: (f(*p), linear_call(call, call, p[0], t[0])))
    return f(x)


REVERSE: dict[str, Callable[..., Any]] = {
    "grad": lambda f: pb.grad(f)(X),
    "of a loop": lambda f: pb.grad(thrice(f))(X),
    "of a program": lambda f: pb.trace(f)(X).grad()(X),
}


@pytest.mark.parametrize("how", REVERSE)
def test_a_callback_on_a_tangent_has_no_reverse_mode_and_the_error_says_what_has(how: str) -> None:
    with pytest.raises(pb.MissingRuleError, match="that is to be transposed") as error:
        REVERSE[how](on_tangents)
    assert "test_both_rules.py" in error.value.where
    assert "pb.linear_call" in error.value.do
    assert "jax.custom_vjp" in error.value.do
    assert np.isfinite(REVERSE[how](remedied))


def test_a_callback_on_a_tangent_has_forward_mode() -> None:
    one = np.float32(1)
    for found in (pb.jvp(on_tangents, (X,), (one,))[1], pb.linearize(on_tangents, X)[1](one)):
        np.testing.assert_allclose(found, np.cos(X), rtol=1e-6)
