"""What a `select` does not take has no derivative, also where its slope is infinite or NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as sp
import numpy as np
import pytest
from jax import export, lax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import linear_call

import pullback as pb
from pullback import artifact
from pullback.autodiff.registry import RULES, load_all

X = np.array([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])
COLUMNS = np.array([0.0, 0.2, 2.0])


def safe(function: Callable[[Any], Any], instead: float = 1.0) -> Callable[[Any], Any]:
    """Of positive arguments; others get another one first, as JAX wants it."""
    return lambda x: function(jnp.where(x > 0, x, instead))


CHOICES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "square root": (
        lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0),
        lambda x: jnp.where(x > 0, safe(jnp.sqrt)(x), 0.0),
    ),
    "chain": (
        lambda x: jnp.where(x > 0, jnp.sin(jnp.log(x) * x), x**2),
        lambda x: jnp.where(x > 0, safe(lambda x: jnp.sin(jnp.log(x) * x))(x), x**2),
    ),
    "nested": (
        lambda x: jnp.where(x > 0, jnp.where(x > 1, 1 / (x - 1), jnp.log(x)), jnp.exp(x)),
        lambda x: jnp.where(
            x > 0,
            jnp.where(x > 1, 1 / (jnp.where(x > 1, x, 2.0) - 1), safe(jnp.log)(x)),
            jnp.exp(x),
        ),
    ),
    "both": (
        lambda x: jnp.where(x == 0, 1.0, jnp.sin(x) / x) + jnp.where(x > 0, x * jnp.log(x), -x),
        lambda x: (
            jnp.where(x == 0, 1.0, jnp.sin(x) / jnp.where(x == 0, 1.0, x))
            + jnp.where(x > 0, safe(lambda x: x * jnp.log(x))(x), -x)
        ),
    ),
    "shared": (
        lambda x: (lambda q: jnp.where(x > 0, jnp.where(x > 1, q, q * q) * x, x))(1 / x),
        lambda x: (lambda q: jnp.where(x > 0, jnp.where(x > 1, q, q * q) * x, x))(
            1 / jnp.where(x > 0, x, 1.0)
        ),
    ),
    "repeated divisor": (
        lambda x: jnp.where(x[:, None] > COLUMNS, (1 + COLUMNS) / x[:, None], 0),
        lambda x: jnp.where(x[:, None] > COLUMNS, (1 + COLUMNS) / safe(abs)(x)[:, None], 0),
    ),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CHOICES)
def test_what_is_not_taken_has_no_derivative(name: str) -> None:
    """The reference says the same by arguments that are harmless, as JAX needs it."""
    f, harmless = (lambda x, g=g: jnp.sum(jnp.sin(g(x))) for g in CHOICES[name])
    expected, second = jax.grad(harmless)(X), jax.hessian(harmless)(X)
    program = pb.trace(f)(X)
    for found in (
        pb.grad(f)(X),
        pb.trace(f)(X).grad()(X),
        pb.load(artifact.serialize(program)).grad()(X),
        jax.vmap(pb.grad(f))(X[:, None])[:, 0],
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pb.hessian(f)(X), second, rtol=1e-10, atol=1e-12)
    reverse_twice = jax.vmap(lambda ct: pb.vjp(pb.grad(f), X)[1](ct)[0])(np.eye(len(X)))
    np.testing.assert_allclose(reverse_twice, second, rtol=1e-10, atol=1e-12)
    in_a_loop = pb.grad(lambda x: jax.lax.scan(lambda c, x: (c + f(x[None]), None), 0.0, x)[0])
    np.testing.assert_allclose(in_a_loop(X), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("float64")
def test_the_transpose_of_what_is_chosen() -> None:
    """A linear function, whose factor is infinite where it is not taken."""

    def f(t):
        return jnp.where(X != 0, t / X, t)

    (found,) = pb.linear_transpose(f, X)(np.ones_like(X))
    np.testing.assert_allclose(found, np.where(X != 0, 1 / np.where(X != 0, X, 1), 1), rtol=1e-12)


def test_a_rule_with_a_guard() -> None:
    norm = jax.custom_jvp(lambda x: jnp.sqrt(jnp.sum(x**2)))

    @norm.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        size = norm(x)
        slope = jnp.sum(x * t) / size
        return size, jax.lax.select(size == 0, jnp.zeros_like(slope), slope)

    assert pb.grad(norm)(jnp.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(pb.grad(norm)(jnp.array([0.0, 3.0, 4.0])), [0, 0.6, 0.8], rtol=1e-6)


def test_numbers_that_two_choices_meet_in_are_added_once() -> None:
    def f(x, y):
        both = jnp.sin(x) * y
        return jnp.sum(jnp.where(x > 0, both, 2 * both) + jnp.where(y > 0, both, jnp.abs(both)))

    x, y = jnp.array([-1.0, 0.3, 0.7]), jnp.array([0.5, -2.0, 3.0])
    for ours, theirs in zip(pb.grad(f, (0, 1))(x, y), jax.grad(f, (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# ------------------------------------------------------------------- the table of elementwise ops

load_all()
ELEMENTWISE = sorted(name for name, rule in RULES.items() if rule.elementwise)
OPERANDS = {  # a module with one op, by its operands; %x is what the slope is infinite before
    **dict.fromkeys(("chlo.polygamma", "chlo.zeta"), ("%two, %x",)),
    **dict.fromkeys(("chlo.next_after",), ("%x, %two",)),
    **dict.fromkeys(("chlo.broadcast_polygamma", "chlo.broadcast_zeta"), ("%two, %x",)),
    "chlo.broadcast_next_after": ("%x, %two",),
    "stablehlo.clamp": ("%zero, %x, %two",),
    "stablehlo.select": ("%all, %x, %two", "%none, %two, %x"),
    "chlo.broadcast_select": ("%all, %x, %two", "%none, %two, %x"),
}
BINARY = (
    "add atan2 complex divide maximum minimum multiply power remainder subtract next_after"
).split()
ATTRIBUTES = {
    "stablehlo.reduce_precision": "{exponent_bits = 8 : i32, mantissa_bits = 7 : i32}",
    "sdy.sharding_constraint": "{sharding = #sdy.sharding<@mesh, [{}]>}",
}
FROM_COMPLEX = frozenset({"stablehlo.real", "stablehlo.imag", "chlo.conj"})
TYPES = {"%all": "3xi1", "%none": "3xi1", "%c": "3xcomplex<f64>"}


def operands_of(op: str) -> tuple[str, ...]:
    if op in OPERANDS:
        return OPERANDS[op]
    if op.partition(".")[2].removeprefix("broadcast_") in BINARY:
        return "%x, %two", "%two, %x"
    return ("%c",) if op in FROM_COMPLEX else ("%x",)


def module_of(op: str, operands: str) -> str:
    """sum(where(p, op(sqrt(z) / 4 + shift), 0)): at z = 0 the slope of the root is infinite."""
    types = ", ".join(f"tensor<{TYPES.get(v, '3xf64')}>" for v in operands.split(", "))
    name = op.partition(".")[2].removeprefix("broadcast_")
    result = {"complex": "3xcomplex<f64>", "conj": "3xcomplex<f64>", "convert": "3xf32"}
    type = f"tensor<{result.get(name, '3xf64')}>"
    shift = 1.5 if name == "acosh" else 0.25
    zeros = "(0.0, 0.0)" if "complex" in type else "0.0"
    return f"""module {{
      sdy.mesh @mesh = <["a"=1]>
      func.func public @main(%z: tensor<3xf64>, %p: tensor<3xi1>) -> {type} {{
        %root = stablehlo.sqrt %z : tensor<3xf64>
        %quarter = stablehlo.constant dense<0.25> : tensor<3xf64>
        %shift = stablehlo.constant dense<{shift}> : tensor<3xf64>
        %zero = stablehlo.constant dense<0.0> : tensor<3xf64>
        %two = stablehlo.constant dense<2.0> : tensor<3xf64>
        %all = stablehlo.constant dense<true> : tensor<3xi1>
        %none = stablehlo.constant dense<false> : tensor<3xi1>
        %less = stablehlo.multiply %root, %quarter : tensor<3xf64>
        %x = stablehlo.add %less, %shift : tensor<3xf64>
        %c = stablehlo.complex %x, %x : tensor<3xcomplex<f64>>
        %y = "{op}"({operands}) {ATTRIBUTES.get(op, "")} : ({types}) -> {type}
        %nothing = stablehlo.constant dense<{zeros}> : {type}
        %chosen = stablehlo.select %p, %y, %nothing : tensor<3xi1>, {type}
        return %chosen : {type} }} }}"""


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("op", ELEMENTWISE)
def test_each_elementwise_op_keeps_what_is_not_taken_apart(op: str) -> None:
    z, some, everything = (
        np.array([0.0, 1.0, 0.0]),
        np.array([False, True, False]),
        np.ones(3, bool),
    )
    for operands in operands_of(op):
        program = pb.load(module_of(op, operands).encode())
        ct = jnp.ones_like(program(z, some))
        derived = program.vjp(wrt=0)
        _, found = derived(z, some, ct)
        _, whole = derived(z, everything, ct)
        assert np.array_equal(found[::2], [0.0, 0.0]), found
        assert found[1] == whole[1]
        assert np.isfinite(whole[1])
        assert not np.isfinite(whole[::2]).any() or not whole.any(), "what is taken has its slope"


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": jnp.abs,
    "abs of a complex number": lambda x: jnp.abs(lax.complex(x, x + 1)),
    "acos": jnp.arccos,
    "acosh": lambda x: jnp.arccosh(x + 1.5),
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atanh": jnp.arctanh,
    "astype": lambda x: x.astype(jnp.float32).astype(jnp.float64),
    "bessel_i0e": sp.i0e,
    "bessel_i1e": sp.i1e,
    "betaln": lambda x: sp.betaln(x + 1, 2.0),
    "clip": lambda x: jnp.clip(x, -1.0, 3.0),
    "digamma": lambda x: lax.digamma(x + 0.5),
    "erf_inv": lax.erf_inv,
    "expit": sp.expit,
    "hypot": lambda x: jnp.hypot(x, 1.0),
    "igamma": lambda x: sp.gammainc(1.0, x),
    "lgamma": lambda x: lax.lgamma(x + 0.5),
    "logaddexp": lambda x: jnp.logaddexp(x, 1.0),
    "logit": lambda x: sp.logit(x + 0.1),
    "name": lambda x: checkpoint_name(x, "a"),
    "negative power": lambda x: (x + 1) ** -1,
    "optimization_barrier": lax.optimization_barrier,
    "polygamma": lambda x: sp.polygamma(1, x + 1),
    "power": lambda x: (x + 1) ** 2.5,
    "relu": jax.nn.relu,
    "remainder": lambda x: x % 3.0,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "xlogy": lambda x: sp.xlogy(x, x + 1),
}


def with_jvp_rule(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    function = jax.custom_jvp(f)
    function.defjvp(lambda primals, tangents: jax.jvp(f, primals, tangents))
    return function


def with_vjp_rule(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    function = jax.custom_vjp(f)
    function.defvjp(lambda x: jax.vjp(f, x), lambda pull, ct: pull(ct))
    return function


def saving_everything(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.checkpoint(f, policy=jax.checkpoint_policies.everything_saveable)


AROUND: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "alone": lambda f: f,
    "in jit": jax.jit,
    "in a checkpoint": jax.checkpoint,
    "in a checkpoint that saves everything": saving_everything,
    "with a jvp rule": with_jvp_rule,
    "with a vjp rule": with_vjp_rule,
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_called_keeps_what_is_not_taken_apart(name: str, around: str) -> None:
    """At 0 the slope of the root is infinite; the reference takes another root there."""
    f, x = AROUND[around](FUNCTIONS[name]), np.array([0.0, 0.25, 0.0, 0.09])

    def loss(x, root=jnp.sqrt):
        return jnp.sum(jnp.where(x > 0, f(root(x)), 0.0))

    expected = jax.grad(lambda x: loss(x, safe(jnp.sqrt, 0.25)))(x)
    np.testing.assert_allclose(pb.grad(loss)(x), expected, rtol=1e-12)
    if around != "alone":
        return
    np.testing.assert_allclose(pb.grad(saving_everything(loss))(x), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(pb.grad(loss))(x[:, None])[:, 0], expected, rtol=1e-12)
    program = pb.load(artifact.serialize(pb.trace(loss)(x)))
    np.testing.assert_allclose(program.grad()(x), expected, rtol=1e-12)


def test_a_linear_call_keeps_what_is_not_taken_apart() -> None:
    def loss(x):
        scaled = linear_call(lambda r, t: t * r, lambda r, ct: ct * r, x + 1, jnp.sqrt(x))
        return jnp.sum(jnp.where(x > 0, scaled, 0.0))

    np.testing.assert_allclose(pb.grad(loss)(jnp.array([0.0, 1.0])), [0.0, 2.0], rtol=1e-6)


BACKWARD: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "sum": (lambda ct: jnp.sum(ct) * jnp.ones_like(ct), [1.0, 1.0, 1.0]),
    "reversed": (lambda ct: ct[::-1], [0.0, 1.0, 0.0]),
    "one more": (lambda ct: ct + 1, [1.0, 2.0, 1.0]),
    "by the sign of a sum": (lambda ct: ct * jnp.sign(jnp.sum(ct) - 2), [0.0, -1.0, 0.0]),
    "clipped": (lambda ct: jnp.clip(ct, -0.5, 0.5), [0.0, 0.5, 0.0]),
    "at least 2": (lambda ct: jnp.maximum(ct, 2.0), [2.0, 2.0, 2.0]),
    "a constant": (lambda ct: jnp.full_like(ct, 3.0), [3.0, 3.0, 3.0]),
    "where it is positive": (lambda ct: jnp.where(ct > 0, 1.0, 2.0), [2.0, 1.0, 2.0]),
    "scanned": (lambda ct: jnp.cumsum(ct), [0.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_a_backward_rule_that_is_not_elementwise_gets_zeros(name: str) -> None:
    """As in JAX: what is not taken has the cotangent zero, and the rule says what comes of it."""
    rule, expected = BACKWARD[name]
    f = jax.custom_vjp(lambda x: x * 1)
    f.defvjp(lambda x: (f(x), None), lambda _, ct: (rule(ct),))
    taken = np.array([False, True, False])

    def loss(x):
        return jnp.sum(jnp.where(taken, f(x), 0.0))

    x = jnp.arange(3.0)
    assert jax.grad(loss)(x).tolist() == expected
    assert pb.grad(loss)(x).tolist() == expected


def test_a_backward_rule_that_shows_its_cotangent_shows_zeros() -> None:
    shown = []
    f = jax.custom_vjp(lambda x: x * 1)

    def backward(_, ct):
        jax.debug.callback(lambda ct: shown.append(ct.tolist()), ct)
        return (2 * ct,)

    f.defvjp(lambda x: (f(x), None), backward)
    taken = np.array([False, True])
    found = pb.grad(lambda x: jnp.sum(jnp.where(taken, f(x), 0.0)))(jnp.ones(2))
    jax.effects_barrier()
    assert (found.tolist(), shown) == ([0.0, 2.0], [[0.0, 1.0]])


EXPORTED: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), [-1.5, 0.0, 0.5, 3.0]),
    "erfc": (jax.scipy.special.erfc, [-2.0, 0.0, 0.5, 3.0]),
    "erf_inv": (jax.scipy.special.erfinv, [-0.9, 0.0, 0.5]),
    "ndtr": (jax.scipy.special.ndtr, [-1.0, 0.0, 2.0]),
    "log_ndtr": (jax.scipy.special.log_ndtr, [-1.0, 0.0, 2.0]),
    "gammaln": (jax.scipy.special.gammaln, [0.5, 1.0, 2.0, 3.0, 20.0]),
    "digamma": (jax.scipy.special.digamma, [0.5, 1.0, 3.0]),
    "betainc": (lambda x: jax.scipy.special.betainc(1.0, 2.0, x), [0.1, 0.5, 0.9]),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_expansions_that_jax_exported_have_gradients(name: str) -> None:
    """They compute what is not taken, too: zero times its slope was NaN."""
    if name == "gammaln" and jax.__version_info__ >= (0, 12):
        pytest.skip("JAX 0.12 computes it from the bits of the number")
    f, points = EXPORTED[name]
    x = jnp.array(points)
    program = pb.load(export.export(jax.jit(f))(x).serialize())
    _, (found,) = program.vjp()(x, jnp.ones_like(x))
    np.testing.assert_allclose(found, jax.vjp(f, x)[1](jnp.ones_like(x))[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ct", [40000.0, -40000.0])
@pytest.mark.parametrize("x", [-2.0, 1.0])
def test_large_cotangents_of_a_hyperbolic_tangent_stay_finite(x: float, ct: float) -> None:
    """t (1 + y) is infinite in 16 bits."""
    (found,) = pb.vjp(jnp.tanh, jnp.float16(x))[1](jnp.float16(ct))
    np.testing.assert_allclose(float(found), ct / np.cosh(x) ** 2, rtol=5e-3)


def test_large_cotangents_of_a_repeated_divisor_stay_finite() -> None:
    """What is divided, times them, is infinite in 16 bits: the sum of that, divided, would be."""
    x, y = jnp.full((2, 3), 300, jnp.float16), jnp.full(2, 10, jnp.float16)
    ct = jnp.full_like(x, 5000)
    (found,) = pb.vjp(lambda y: x / y[:, None], y)[1](ct)
    np.testing.assert_allclose(found, [-45000.0] * 2, rtol=5e-3)


def test_a_small_divisor_of_zero_in_half_precision() -> None:
    """Its reciprocal is infinite in 16 bits, and so is the square of one that is not as small."""
    zero, tenth = jnp.float16(0), jnp.float16(0.1)
    assert pb.vjp(lambda y: zero / y, jnp.float16(1e-5))[1](tenth) == (0,)
    second = pb.jvp(pb.grad(lambda x, y: x / y, 1), (zero, jnp.float16(0.01)), (tenth, zero))[1]
    np.testing.assert_allclose(float(second), -1000, rtol=5e-3)


def test_the_second_derivative_of_a_small_root_in_half_precision() -> None:
    """The derivative of a reciprocal is infinite; what it is multiplied by makes it small again."""
    x, one = jnp.float16(1e-4), jnp.float16(1)
    scaled = pb.grad(lambda x, scale: jnp.sqrt(x) * scale)
    for scale in (0.0, 1e-3):
        found = pb.jvp(lambda x, scale=scale: scaled(x, jnp.float16(scale)), (x,), (one,))[1]
        np.testing.assert_allclose(float(found), -scale / 4 * 1e6, rtol=5e-3)
