"""Rules that refuse, by raising an exception of their own: written down, and said again."""

from __future__ import annotations

import contextlib
from functools import partial

import jax
import jax.extend
import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from jax.custom_derivatives import linear_call
from jax.interpreters import ad, mlir

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback.ir.ops import walk_calls
from pullback.ir.verify import verify
from pullback_cli import main
from pullback_runtime import _jax
from pullback_runtime.ir import _module
from tests.rules.processes import run_python

HERE = "test_refusals.py"


class Unphysical(Exception):
    """An exception of a user's own."""


@jax.custom_jvp
def guarded(x):
    return jnp.sin(x)


@guarded.defjvp
def guarded_jvp(primals, tangents):
    raise Unphysical("the phase\nhas no derivative")


@jax.custom_vjp
def halved(x):
    """Its rule says 5, and in itself has none."""
    return x / 2


halved.defvjp(lambda x: (x / 2, x), lambda x, ct: (5 * ct * jnp.cos(guarded(x) - guarded(x)),))


def refusing_in(part: str):
    @jax.custom_vjp
    def function(x):
        return jnp.sin(x)

    def fwd(x):
        if part == "fwd":
            raise Unphysical("not forward")
        return jnp.sin(x), x

    def bwd(x, ct):
        assert part != "bwd", "not backward"
        return (ct,)

    function.defvjp(fwd, bwd)
    return function


def scaled(r, x):
    def transpose(r, ct):
        raise Unphysical("one way only")

    return linear_call(lambda r, x: r * x, transpose, r, x)


one_way_p = jax.extend.core.Primitive("one_way")
one_way_p.def_impl(lambda x: x)
one_way_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(one_way_p, mlir.lower_fun(lambda x: x, multiple_results=False))


def one_way_jvp(primals, tangents):
    return one_way_p.bind(primals[0]), one_way_p.bind(tangents[0])


def one_way_transpose(ct, x):
    raise Unphysical("no way back")


ad.primitive_jvps[one_way_p] = one_way_jvp
ad.primitive_transposes[one_way_p] = one_way_transpose


@jax.custom_vjp
def by_first(x, y):
    return x * y


def by_first_fwd(x, y):
    if y.perturbed:
        raise Unphysical("y is data")
    return x.value * y.value, (x.value, y.value)


by_first.defvjp(
    by_first_fwd, lambda residuals, ct: (7 * ct * residuals[1], None), symbolic_zeros=True
)


@jax.custom_jvp
def also_by_first(x, y):
    return x * y


def also_by_first_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    if type(dy) is not jax.custom_derivatives.SymbolicZero:
        raise Unphysical("y is data")
    return x * y, 7 * dx * y


also_by_first.defjvp(also_by_first_jvp, symbolic_zeros=True)


def reload(function, *args):
    """The program after a file; it is sound by the verifier, and keeps its refusals in a second."""
    loaded = pb.load(artifact.serialize(pb.trace(function)(*args), allow_refusals=True))
    again = pb.load(artifact.serialize(loaded, allow_refusals=True))
    verify(again.module)
    return again


def refusal(derive) -> pb.NotDifferentiableError:
    with pytest.raises(pb.NotDifferentiableError) as caught:
        derive()
    return caught.value


def of_two(x, y):
    return guarded(x) * y + x


LATER = """
import sys
import jax
import jax.numpy as jnp
import pullback as pb

loaded = pb.load(sys.argv[1])
assert jnp.allclose(loaded(0.5, 2.0), jnp.sin(0.5) * 2.0 + 0.5)
assert jnp.allclose(loaded.grad(1)(0.5, 2.0), jnp.sin(0.5))
assert jnp.allclose(jax.grad(loaded, 1)(0.5, 2.0), jnp.sin(0.5))
for derive in (loaded.grad, loaded.jvp, loaded.linearize, lambda: jax.grad(loaded)(0.5, 2.0)):
    try:
        derive()
    except pb.NotDifferentiableError as error:
        print(error)
"""


def test_in_another_process(tmp_path):
    path = tmp_path / "refusing.mlirbc"
    pb.trace(of_two)(0.5, 2.0).save(path, allow_refusals=True)
    printed = run_python("-c", LATER, str(path))
    line = guarded_jvp.__code__.co_firstlineno + 2
    words = "the jvp rule of `guarded` raises: Unphysical: the phase\nhas no derivative (tests/"
    assert printed.count(words) == 4
    assert printed.count(f"{HERE}:{line}, in guarded_jvp)") == 4
    assert printed.count(", in of_two\n") == 4
    assert "differentiate by arguments that do not reach this step" in printed


def test_a_file_with_refusals_is_asked_for():
    program = pb.trace(of_two)(0.5, 2.0)
    for each in (program, reload(of_two, 0.5, 2.0)):
        with pytest.raises(pb.MissingRuleError, match="rule of `guarded` raises: Unph") as caught:
            artifact.serialize(each)
        assert "in guarded_jvp" in caught.value.message
        assert "in of_two" in caught.value.where
        assert "allow_refusals=True" in caught.value.do
    with pytest.raises(Unphysical):  # before it is saved, the exception is the user's
        program.grad()


def test_the_number_of_refusing_functions_is_told():
    with pytest.raises(pb.MissingRuleError, match=r"raises, and those of 1 more: Unphysical"):
        artifact.serialize(pb.trace(lambda x: guarded(x) + refusing_in("fwd")(x))(0.5))


@pytest.mark.parametrize(
    ("part", "words"), [("fwd", "Unphysical: not forward ("), ("bwd", "AssertionError: not backw")]
)
def test_a_pair_of_rules_one_of_which_refuses(part, words):
    loaded = reload(lambda x, y: refusing_in(part)(x) * y, 0.5, 2.0)
    assert jnp.allclose(loaded.grad(1)(0.5, 2.0), jnp.sin(0.5))
    for derive in (loaded.grad, loaded.jvp):
        message = refusal(derive).message
        assert message.startswith("the vjp rule of `function")
        assert words in message
        assert f", in refusing_in.{part})" in message


def test_a_jvp_rule_beside_a_pair_refuses_alone():
    """Forward mode does not transpose the pair: the function has a rule for it, which raises."""

    @pb.custom_vjp
    def both(x):
        return jnp.sin(x)

    def both_jvp(primals, tangents):
        raise Unphysical("not along a curve")

    both.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (7 * ct * x,))
    both.defjvp(both_jvp)
    loaded = reload(lambda x: both(x) * 2, 0.5)
    assert jnp.allclose(loaded.grad()(0.5), 7.0)
    assert "the jvp rule of `both" in refusal(loaded.jvp).message


def test_of_second_order_only():
    loaded = reload(halved, 0.5)
    gradient = loaded.grad()
    assert jnp.allclose(gradient(0.5), 5.0)
    assert "Unphysical" in refusal(gradient.grad).message
    assert "`guarded`" in refusal(gradient.jvp).message


def test_a_linear_map_that_is_not_transposed():
    loaded = reload(scaled, 3.0, 0.5)
    assert jnp.allclose(loaded.jvp(1)(3.0, 0.5, 2.0)[1], 6.0)
    assert jnp.allclose(loaded.grad(0)(3.0, 0.5), 0.5)
    message = refusal(lambda: loaded.grad(1)).message
    assert message.startswith("the transpose rule of `")
    assert "Unphysical: one way only" in message


def test_a_primitive_of_a_library_that_is_not_transposed():
    """As equinox's `nondifferentiable_backward`: an identity, in forward mode only."""

    def function(x, y):
        return one_way_p.bind(x) * y

    for derive in (jax.grad(function), pb.grad(function)):
        with pytest.raises(Unphysical, match="no way back"):
            derive(0.5, 2.0)
    loaded = reload(function, 0.5, 2.0)
    assert jnp.allclose(loaded.jvp(0)(0.5, 2.0, 1.0)[1], 2.0)
    assert jnp.allclose(loaded.grad(1)(0.5, 2.0), 0.5)
    assert "Unphysical: no way back" in refusal(loaded.grad).message


@pytest.mark.parametrize("function", [by_first, also_by_first])
def test_a_rule_that_refuses_by_some_operands(function):
    """With `symbolic_zeros`, a rule sees which operands are perturbed."""
    loaded = reload(lambda *args: function(*args), 0.5, 2.0)
    assert jnp.allclose(loaded.grad(0)(0.5, 2.0), 14.0)
    assert jnp.allclose(loaded.jvp(0)(0.5, 2.0, 1.0)[1], 14.0)
    second = loaded.grad(0).jvp(1)
    assert jnp.allclose(second(0.5, 2.0, 1.0)[1], 7.0)
    for derive in (lambda: loaded.grad(1), lambda: loaded.jvp(1), lambda: loaded.grad((0, 1))):
        assert "Unphysical: y is data" in refusal(derive).message


@jax.custom_jvp
def by_one(x, y):
    return x * y


def by_one_jvp(primals, tangents):
    (x, y), moving = primals, [t for t in tangents if not is_zero(t)]
    if len(moving) > 1:
        raise Unphysical("by both")
    return x * y, 7 * moving[0] * (x * y)


by_one.defjvp(by_one_jvp, symbolic_zeros=True)


@jax.custom_jvp
def passed_on(first, last, data):
    """As in loops of equinox: the tangent of a carry counts if that of the first one is there."""
    return last


def passed_on_jvp(primals, tangents):
    if not is_zero(tangents[2]):
        raise Unphysical("data")
    stops = is_zero(tangents[0]) or is_zero(tangents[1])
    return passed_on(*primals), jnp.zeros(()) if stops else tangents[1]


passed_on.defjvp(passed_on_jvp, symbolic_zeros=True)


@jax.custom_vjp
def halved_and_x(x):
    """By its rule, the second result depends on `x`."""
    return x / 2, jnp.ones(())


halved_and_x.defvjp(lambda x: (halved_and_x(x), None), lambda _, cts: (5 * cts[1],))


def is_zero(tangent):
    return isinstance(tangent, jax.custom_derivatives.SymbolicZero)


@jax.custom_vjp
def own(x):
    """What it computes refuses, and its rule does not ask for that."""
    return guarded(x) + by_first(x, x)


own.defvjp(lambda x: (guarded(x), x), lambda x, ct: (3 * ct * x,))

NOT_MET = {
    "of a constant": (lambda x: x * guarded(2.0), jnp.sin(2.0)),
    "of an integer": (lambda x: x * guarded(jnp.floor(x).astype(int)), 0.0),
    "by another operand": (lambda x: by_first(x, 2.0), 14.0),
    "by another operand, forward": (lambda x: also_by_first(x, 2.0), 14.0),
    "of what only a rule says to move": (
        lambda x: by_first(by_first(halved_and_x(x)[1], 1.0), 1.0),
        7 * 7 * 5.0,
    ),
    "in a loop": (
        lambda x: jax.lax.fori_loop(0, 3, lambda i, c: by_first(c, guarded(2.0)), x),
        (7 * jnp.sin(2.0)) ** 3,
    ),
}


@pytest.mark.parametrize("name", NOT_MET)
def test_a_refusal_that_no_derivative_meets_is_none(name):
    function, expected = NOT_MET[name]
    loaded = pb.load(artifact.serialize(pb.trace(lambda x: function(x))(0.5)))
    verify(loaded.module)
    assert jnp.allclose(loaded.grad()(0.5), expected)
    assert jnp.allclose(loaded.jvp()(0.5, 1.0)[1], expected)
    assert jnp.allclose(loaded.grad().grad()(0.5), jax.grad(jax.grad(function))(0.5))
    assert not any(call.refused for call in walk_calls(loaded.module))


def test_a_rule_that_sees_what_is_perturbed_together_is_not_the_sum_of_parts():
    x, y, z = 0.5, 2.0, 3.0
    loaded = reload(lambda x, y, z: passed_on(x, y * y, z), x, y, z)
    assert loaded.grad(1)(x, y, z) == 0.0
    assert jax.grad(passed_on, (0, 1))(x, y, z) == (0.0, 1.0)
    for derive in (lambda: loaded.grad((0, 1)), lambda: loaded.jvp((0, 1))):
        assert "Unphysical: data" in refusal(derive).message
    older = reload(lambda x, y, z: passed_on(x, y * y, z), x, y, z)
    for call in walk_calls(older.module):
        call.update(sees_zeros=None)  # as files of before are
    assert "Unphysical: data" in refusal(lambda: older.grad((0, 1))).message
    loaded = reload(lambda x, y: passed_on(x, y * y, z), x, y)
    assert loaded.grad((0, 1))(x, y) == (0.0, 4.0)
    assert loaded.jvp((0, 1))(x, y, 0.0, 1.0)[1] == 4.0
    once = artifact.serialize(pb.trace(lambda x, y: passed_on(x, y * y, z))(x, y), order=1)
    assert pb.load(once).grad((0, 1))(x, y) == (0.0, 4.0)


@jax.custom_jvp
def of_all_alike(x):
    return x


def of_all_alike_jvp(primals, tangents):
    return of_all_alike(*primals), passed_on(*primals, *primals, *primals) * tangents[0]


of_all_alike.defjvp(of_all_alike_jvp)


def test_a_second_derivative_by_more_operands_raises_what_the_rule_does():
    """The first derivative perturbs two operands of `passed_on`, the second one all of them."""
    loaded = reload(lambda x: passed_on(x, x * x, 3.0) + of_all_alike(x), 0.5)
    assert loaded.grad()(0.5) == 1.5
    assert "Unphysical: data" in refusal(lambda: loaded.grad().grad()).message


BOTH_RULES = """
func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x, %y {
    composite_attributes = {bwd = @f.bwd, fwd = @f.fwd, jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.jvp(%x: tensor<f32>, %y: tensor<f32>, %dx: tensor<f32>, %dy: tensor<f32>)
    -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.multiply %dx, %y : tensor<f32>
  return %x, %0 : tensor<f32>, tensor<f32>
}
func.func private @f.fwd(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  return %x, %y : tensor<f32>, tensor<f32>
}
func.func private @f.bwd(%y: tensor<f32>, %ct: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  return %y, %ct : tensor<f32>, tensor<f32>
}
"""


def test_a_jvp_rule_beside_fwd_and_bwd_serves_fewer_operands():
    loaded = pb.load(BOTH_RULES.encode())
    assert loaded.jvp(0)(2.0, 3.0, 1.0) == (2.0, 3.0)
    assert loaded.jvp(1)(2.0, 3.0, 1.0) == (2.0, 0.0)


def test_a_refusal_that_derivatives_of_some_order_meet_first():
    program = pb.trace(lambda x: own(x))(0.5)
    with pytest.raises(pb.MissingRuleError, match="rule of `guarded` raises: Unphysical") as caught:
        artifact.serialize(program, order=2)
    assert caught.value.do.startswith("save with order=1: derivatives up to that order do not ask")
    with pytest.warns(match="(?s)`guarded` raises: Unphysical.*of order 2 or more may ask"):
        loaded = pb.load(artifact.serialize(program))
    assert jnp.allclose(loaded.grad()(0.5), 1.5)
    loaded = pb.load(artifact.serialize(program, order=1))
    assert jnp.allclose(loaded.grad()(0.5), 1.5)
    with pytest.raises(pb.MissingRuleError, match="rule of `guarded` raises") as caught:
        artifact.serialize(pb.trace(lambda x: guarded(x))(0.5))
    assert caught.value.do.startswith("save with allow_refusals=True")


@jax.custom_jvp
def still(x):
    """By its rule it does not move, though it computes."""
    return x + 1.0


still.defjvp(lambda primals, tangents: (still(*primals), jnp.zeros(())))


def test_a_refusal_that_no_derivative_asks_for():
    """Only to differentiate the program tells that."""
    loaded = reload_whole(lambda x: x**2 * guarded(still(x)))
    factor = jnp.sin(1.5)
    assert jnp.allclose(loaded.grad()(0.5), factor)
    assert jnp.allclose(loaded.jvp()(0.5, 2.0)[1], 2.0 * factor)
    assert jnp.allclose(loaded.grad().grad()(0.5), 2.0 * factor)
    assert jnp.allclose(pb.load(artifact.serialize(loaded)).grad()(0.5), factor)
    with pytest.raises(pb.MissingRuleError, match="the jvp rule of `guarded` raises: Unphysical"):
        reload_whole(lambda x: x * guarded(still(x)) + guarded(x))


@jax.custom_jvp
def failing(x):
    return jnp.sin(x)


failing.defjvp(lambda primals, tangents: (failing(*primals), tangents[0] * misspelt(primals[0])))


def test_a_rule_that_fails_and_that_no_derivative_asks_for():
    loaded = reload_whole(lambda x: x**2 * failing(still(x)))
    assert jnp.allclose(loaded.grad().grad()(0.5), 2 * jnp.sin(1.5))
    with pytest.raises(pb.MissingRuleError, match="the jvp rule of `failing` raises: NameError"):
        reload_whole(lambda x: x * failing(still(x)) + failing(x))


def reload_whole(function):
    """A program of one number, in a file whose derivatives none of its rules refuses."""
    return pb.load(artifact.serialize(pb.trace(function)(0.5)))


def test_a_refusal_in_a_rule_that_first_derivatives_do_not_ask_for():
    """What the jvp rule computes without tangents is not transposed by the first derivative."""

    @jax.custom_jvp
    def function(x):
        return jnp.sin(x)

    function.defjvp(lambda x, t: (function(*x), one_way_p.bind(jnp.cos(x[0])) * t[0]))
    program = pb.trace(lambda x: function(x))(0.5)
    with pytest.raises(pb.MissingRuleError, match=r"the transpose\.1 rule of `one_way") as caught:
        artifact.serialize(program, order=2)
    assert caught.value.do.startswith("save with order=1: derivatives up to that order do not ask")
    loaded = pb.load(artifact.serialize(program, order=1))
    assert jnp.allclose(loaded.grad()(0.5), jnp.cos(0.5))
    assert jnp.allclose(loaded.jvp()(0.5, 2.0)[1], 2 * jnp.cos(0.5))


weighted_p = jax.extend.core.Primitive("weighted")
weighted_p.def_impl(lambda *xs: sum(xs[:6]) * xs[6] * xs[7])
weighted_p.def_abstract_eval(lambda *xs: xs[0])
mlir.register_lowering(weighted_p, mlir.lower_fun(weighted_p.impl, multiple_results=False))
TRACED: list[list[int]] = []


def weighted_jvp(primals, tangents):
    moving = [i for i, t in enumerate(tangents) if type(t) is not ad.Zero]
    TRACED.append(moving)
    if moving[-1] > 5:
        raise Unphysical("the weights do not move")
    total = sum(tangents[i] for i in moving)
    return weighted_p.bind(*primals), 7 * total * primals[6]


ad.primitive_jvps[weighted_p] = weighted_jvp


def test_one_rule_by_all_operands_that_it_does_not_refuse():
    """As for the solves of lineax: found by few traces, and nothing is solved twice."""

    def function(x):
        y = jnp.sin(x)
        first = weighted_p.bind(x, y, x, y, x, y, still(x), 2.0)
        both = [jnp.full(2, v) for v in (first, y, y, y, y, y, 3.0, still(x))]
        return weighted_p.bind(*both)[0]

    program = pb.trace(function)(0.5)
    TRACED.clear()
    loaded = pb.load(artifact.serialize(program, allow_refusals=True))
    accepted = [moving for moving in TRACED if moving[-1] < 6]
    assert len(accepted) == 5, "four to find what is accepted, and one for the other call"
    calls = [call for call in walk_calls(loaded.module) if call.decomposition.startswith("weigh")]
    assert {tuple(call.symbols) for call in calls} == {("jvp.11111100",)}
    slope = 7 * 3.0 * (7 * 1.5 * (3 + 3 * jnp.cos(0.5)) + 5 * jnp.cos(0.5))
    assert jnp.allclose(loaded.jvp()(0.5, 1.0)[1], slope)
    assert jnp.allclose(program.jvp()(0.5, 1.0)[1], slope)
    assert jnp.allclose(loaded.grad()(0.5), slope)


def test_a_refusal_that_only_the_call_in_a_rule_asks_for():
    """The program and a rule call one function, whose call the program's derivative only passes."""
    shared = jax.jit(lambda x: guarded(x))

    @jax.custom_jvp
    def function(x):
        return jnp.sin(x)

    function.defjvp(lambda x, t: (function(*x), shared(x[0]) * t[0]))
    program = pb.trace(lambda x: shared(still(x)) * function(x))(0.5)
    with pytest.raises(pb.MissingRuleError, match="the jvp rule of `guarded` raises") as caught:
        artifact.serialize(program, order=2)
    assert caught.value.do.startswith("save with order=1: derivatives up to that order do not ask")
    with pytest.warns(
        match="(?s)the jvp rule of `guarded` raises.*a derivative of order 2 or more"
    ):
        loaded = pb.load(artifact.serialize(program))
    with pytest.raises(pb.NotDifferentiableError, match="Unphysical: the phase"):
        loaded.grad().grad()
    slope = jnp.sin(1.5) * jnp.sin(0.5)
    for each in (loaded, pb.load(artifact.serialize(program, order=1))):
        assert jnp.allclose(each.grad()(0.5), slope)


def test_a_refusal_that_forward_mode_alone_asks_for():
    @jax.custom_vjp
    def function(x):
        return jnp.sin(x)

    function.defvjp(lambda x: (jnp.sin(x), None), lambda _, ct: (one_way_p.bind(ct),))
    program = pb.trace(lambda x: function(x))(0.5)
    assert program.grad()(0.5) == 1.0
    with pytest.raises(pb.MissingRuleError, match=r"the transpose\.1 rule of `one_way"):
        artifact.serialize(program, order=1)


def test_a_refusal_beside_a_rule_that_has_no_forward_mode():
    """No derivative asks for the one, and there is none in forward mode for the other."""

    @jax.custom_vjp
    def clipped(x):
        return jnp.sin(x)

    clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * jnp.minimum(ct, 0.5),))
    program = pb.trace(lambda x: guarded(still(x)) + clipped(x))(0.5)
    loaded = pb.load(artifact.serialize(program))
    assert jnp.allclose(loaded.grad()(0.5), 0.5 * jnp.cos(0.5))
    for each in (program, loaded):
        with pytest.raises(pb.NotLinearError, match=r"`stablehlo\.minimum` is not linear"):
            each.jvp()


def test_a_call_that_is_met_again_with_more_operands_perturbed():
    """First by one of them; in the rule, by the other."""

    @jax.custom_jvp
    def function(x):
        return by_one(x, 2.0)

    @function.defjvp
    def _(primals, tangents):
        return function(*primals), by_one(3.0, primals[0]) * tangents[0]

    def program(x):
        return function(x) + by_one(x, 2.0)

    loaded = pb.load(artifact.serialize(pb.trace(program)(0.5), allow_refusals=True))
    first, second = jax.grad(program), jax.grad(jax.grad(program))
    assert jnp.allclose(loaded.grad()(0.5), first(0.5))
    assert jnp.allclose(loaded.grad().grad()(0.5), second(0.5))


def branching(x):
    return jnp.sin(x) if x > 0 else x


def misspelt(x):
    return jnp.sin(y)  # noqa: F821


@pytest.mark.parametrize("order", [1, None])
def test_a_rule_that_uses_what_is_not_there_is_a_refusal_where_these_are_allowed(order):
    """As in `expi`, whose rule needs none of the rules of the functions that it is made of."""

    @partial(jax.custom_jvp, nondiff_argnums=(0,))
    @jax.jit
    def power(n, x):
        return x**n

    @power.defjvp
    @jax.jit
    def _(n, primals, tangents):
        return power(n, *primals), 5 * n * power(n - 1, *primals) * tangents[0]

    x = jnp.array([0.5, 2.0])
    program = pb.trace(jax.vmap(lambda x: power(3.0, x)))(x)
    once = pb.load(artifact.serialize(program, order=1))
    assert jnp.allclose(once.jvp()(x, x)[1], 15 * x**3)
    leak = "rule of `power_1` raises: LeakedValueError: the rule of `power_1` uses a value of"
    with pytest.raises(pb.MissingRuleError, match=leak) as caught:
        artifact.serialize(program, order=2)
    assert HERE in caught.value.where
    assert "save with allow_refusals=True" in caught.value.do
    with pytest.warns(match="(?s)LeakedValueError.*a derivative of order 2 or more may ask for it"):
        artifact.serialize(program)

    loaded = pb.load(artifact.serialize(program, order=order, allow_refusals=True))
    assert jnp.allclose(loaded.jvp()(x, x)[1], 15 * x**3)
    if order is None:
        said = refusal(loaded.jvp().jvp).message
        assert "LeakedValueError: the rule of `power" in said
        assert "uses a value of the function around it" in said
        assert HERE in said


def test_a_library_function_whose_rules_are_not_all_there_can_be_saved():
    x = jnp.array([-0.3, 1.2])
    expi = jax.scipy.special.expi
    loaded = pb.load(artifact.serialize(pb.trace(expi)(x)))

    def derivatives(f):
        first = jax.grad(lambda x: jnp.sum(f(x)))
        return first(x), jax.grad(lambda x: jnp.sum(first(x)))(x)

    for ours, expected in zip(derivatives(loaded), derivatives(expi), strict=True):
        assert jnp.allclose(ours, expected)


@pytest.mark.parametrize(
    ("body", "words"),
    [(branching, "TracerBoolConversionError"), (misspelt, "NameError"), (jnp.dot, "TypeError")],
)
def test_what_goes_wrong_in_a_rule_is_a_refusal_where_these_are_allowed(body, words):
    @jax.custom_jvp
    def function(x):
        return jnp.sin(x)

    function.defjvp(lambda primals, tangents: (function(*primals), body(*tangents)))
    program = pb.trace(lambda x: function(x))(0.5)
    with pytest.raises(pb.MissingRuleError, match=f"the jvp rule of `function` raises: {words}"):
        artifact.serialize(program)
    loaded = pb.load(artifact.serialize(program, allow_refusals=True))
    assert jnp.allclose(loaded(0.5), jnp.sin(0.5))
    with pytest.raises(pb.NotDifferentiableError, match=rf"{words}: (.*\n)*.*test_refusals\.py:"):
        loaded.grad()


def test_a_rule_that_fails_and_is_not_needed():
    """As one that adds two of JAX's empty cotangents, in a function that has another rule."""

    @jax.custom_vjp
    def inner(x):
        return jnp.sin(x)

    inner.defvjp(lambda x: (inner(x), x), lambda x, ct: misspelt(ct))

    @jax.custom_vjp
    def outer(x):
        return inner(x)

    outer.defvjp(lambda x: (inner(x), x), lambda x, ct: (2 * ct,))
    program = pb.trace(outer)(0.5)
    with pytest.warns(match="the vjp rule of `inner` raises: NameError.*of order 2 or more"):
        assert pb.load(artifact.serialize(program)).grad()(0.5) == 2.0
    loaded = pb.load(artifact.serialize(program, allow_refusals=True))
    assert loaded.grad()(0.5) == 2.0


def test_a_step_that_jax_has_no_derivative_of():
    """Not where no derivative meets it; what JAX has for some operands is saved for these."""

    def function(x):
        values, vectors = jnp.linalg.eig(x)
        return jnp.sum(jnp.abs(values)) + jnp.sum(jnp.abs(vectors))

    x = jnp.array([[2.0, 1.0], [0.0, 3.0]])
    with pytest.raises(pb.MissingRuleError, match="JAX has no jvp rule for `eig`") as caught:
        artifact.serialize(pb.trace(function)(x))
    assert "test_refusals.py:" in caught.value.where
    assert "save with allow_refusals=True" in caught.value.do
    loaded = pb.load(artifact.serialize(pb.trace(function)(x), allow_refusals=True))
    assert jnp.allclose(loaded(x), function(x))
    with pytest.raises(pb.MissingRuleError, match="no jvp rule for `eig`"):
        loaded.grad()
    stopped = pb.trace(lambda x: jnp.sum(x) * function(jax.lax.stop_gradient(x)))(x)
    assert jnp.allclose(pb.load(artifact.serialize(stopped)).grad()(x), function(x))
    assert artifact.serialize(pb.trace(jax.scipy.special.betainc)(1.0, 2.0, 0.5))

    @jax.custom_jvp
    def of_both(x, y):
        return x * y

    def of_both_jvp(primals, tangents):
        assert not any(map(is_zero, tangents)), "both or none"
        return of_both(*primals), 7 * tangents[0] + tangents[1]

    of_both.defjvp(of_both_jvp, symbolic_zeros=True)
    with_both = pb.trace(lambda x: of_both(x[0, 0], 2.0) + function(jax.lax.stop_gradient(x)))(x)
    with pytest.raises(AssertionError, match="both or none"):
        with_both.grad()
    with pytest.raises(pb.MissingRuleError, match="for tangents of inexact operands 0 alone"):
        pb.load(artifact.serialize(with_both)).grad()  # the file has the rule for both


def test_other_tools_read_the_file():
    content = artifact.serialize(pb.trace(of_two)(0.5, 2.0), allow_refusals=True)
    expected = jnp.sin(0.5) * 2.0 + 0.5
    assert jnp.allclose(pullback_runtime.load(content)(0.5, 2.0), expected)
    assert jnp.allclose(pb.load(content).to_exported().call(0.5, 2.0), expected)
    module = _jax.stablehlo.deserialize_portable_artifact(_jax.context(), content)
    (interpreted,) = pullback_runtime.run_interpreted(module, jnp.float32(0.5), jnp.float32(2.0))
    assert jnp.allclose(interpreted, expected)


def test_the_command_line(tmp_path):
    path, derived = str(tmp_path / "refusing.mlirbc"), str(tmp_path / "derived.mlirbc")
    pb.trace(of_two)(0.5, 2.0).save(path, allow_refusals=True)
    run = CliRunner().invoke
    listed = run(main, ["info", path]).output
    assert "jvp of @guarded: Unphysical: the phase has no derivative (" in listed
    refused = run(main, ["derive", path, "--grad"])
    assert isinstance(refused.exception, (pb.NotDifferentiableError, SystemExit))
    save = ["derive", path, "--grad", "--wrt", "1", "-o", derived]
    assert run(main, save).exception is not None
    assert run(main, [*save, "--allow-refusals"], catch_exceptions=False).exit_code == 0
    assert jnp.allclose(pb.load(derived)(0.5, 2.0), jnp.sin(0.5))


TEXT = """module {{ func.func @main(%x: tensor<f32>) -> tensor<f32> {{
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {{
    composite_attributes = {{refused = {refused}}}, decomposition = @f
  }} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32> }}
  func.func private @f(%x: tensor<f32>) -> tensor<f32> {{ return %x : tensor<f32> }} }}"""


@pytest.mark.parametrize("refused", ['"jvp"', "3 : i64", "{jvp = 3 : i64}", '{jvp = "\\FF"}'])
def test_a_damaged_refusal_is_seen(refused):
    with pytest.raises(pb.ArtifactError, match="the file is damaged"):
        pb.load(TEXT.format(refused=refused).encode())
    assert pb.load(TEXT.format(refused='{jvp = "no"}').encode())(1.0) == 1.0


def test_flipped_bits_in_what_a_refusal_says():
    """Without a digest, changed words are another sound file."""
    content = bytearray(_module.to_bytecode(reload(of_two, 0.5, 2.0).module))
    start = content.index(b"Unphysical") - 2
    for position in range(start, start + 40):
        content[position] ^= 0x88
        with contextlib.suppress(pb.ArtifactError):
            pb.load(bytes(content))
        content[position] ^= 0x88


def test_what_goes_wrong_in_a_rule_of_a_rule_is_a_warning(tmp_path):
    """As where the derivative of a kernel for attention is a kernel that has none."""

    @jax.custom_vjp
    def inner(x):
        return jnp.cos(x)

    inner.defvjp(lambda x: (inner(x), x), lambda x, ct: misspelt(ct))

    @jax.custom_vjp
    def outer(x):
        return jnp.sin(x)

    outer.defvjp(lambda x: (outer(x), x), lambda x, ct: (ct * inner(x),))
    x = jnp.array([0.5, 1.0])
    program = pb.trace(lambda x: jnp.sum(outer(x)))(x)
    with pytest.raises(pb.MissingRuleError, match="rule of `inner` raises: NameError: ") as caught:
        program.save(tmp_path / "outer.mlirbc", order=2)
    assert caught.value.do.startswith("save with order=1: derivatives up to that order do not ask ")
    with pytest.warns(match="the vjp rule of `inner` raises: NameError.*of order 2 or more"):
        program.save(tmp_path / "outer.mlirbc")
    program.save(tmp_path / "outer.mlirbc", order=1)
    assert jnp.allclose(pb.load(tmp_path / "outer.mlirbc").grad()(x), jnp.cos(x))
