"""A rule runs once for each signature: whatever tells two ops apart must be part of it."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb
from pullback import _jax
from pullback._jax import ir
from pullback.autodiff import specialized
from pullback.autodiff.registry import RULES, load_all
from pullback.errors import MissingRuleError, RuleResultError
from pullback.ir.build import maximum, mul
from pullback.passes.manager import run_pipeline
from tests.rules import harness

load_all()

pytestmark = pytest.mark.usefixtures("float64")

CUBE = np.random.default_rng(0).uniform(0.5, 1.5, (3, 3, 3))
SQUARE = CUBE[0]
POINT = CUBE, CUBE[::-1]


def dot(lhs, rhs, batch=((), ())):
    return lambda x, y: lax.dot_general(x, y, ((lhs, rhs), batch))


def convolved(padding):
    return lambda x, y: lax.conv_general_dilated(x, y, (1,), [padding])


def solved(**options):
    return lambda x, y: lax.linalg.triangular_solve(x + 3 * jnp.eye(3), y, **options)


PAIRS = {
    "attribute of a transpose": (
        lambda x, y: lax.transpose(x, (1, 2, 0)) * y,
        lambda x, y: lax.transpose(x, (2, 0, 1)) * y,
    ),
    "dimensions of a broadcast": (
        lambda x, y: lax.broadcast_in_dim(x[0, 0], (3, 3, 3), (0,)) * y,
        lambda x, y: lax.broadcast_in_dim(x[0, 0], (3, 3, 3), (2,)) * y,
    ),
    "dimensions of a sum": (lambda x, y: x.sum(0) * y[0], lambda x, y: x.sum(2) * y[0]),
    "contracted dimensions": (dot((0,), (1,)), dot((2,), (1,))),
    "batch dimensions": (dot((1,), (1,), ((0,), (0,))), dot((1,), (1,), ((2,), (0,)))),
    "padding of a convolution": (convolved((1, 1)), convolved((2, 0))),
    "side of a solve": (solved(left_side=True), solved(left_side=False)),
    "triangle of a solve": (solved(lower=True), solved(lower=False)),
    "direction of a transform": (
        lambda x, y: jnp.real(jnp.fft.fft(x + 1j * y)),
        lambda x, y: jnp.real(jnp.fft.ifft(x + 1j * y)),
    ),
    "branch that is active": (
        lambda x, y: jnp.where(x > 1, x, jnp.sin(y)),
        lambda x, y: jnp.where(x > 1, jnp.sin(y), x),
    ),
    "one part twice": (
        lambda x, y: jnp.concatenate([x, y, x]) * jnp.arange(9.0)[:, None, None],
        lambda x, y: jnp.concatenate([y, x, x]) * jnp.arange(9.0)[:, None, None],
    ),
    "operand that is active": (lambda x, y: x / y.mean(), lambda x, y: y.mean() / x),
    "what is handed on": (lambda x, y: x + y, lambda x, y: x - y),
    "one operand twice": (lambda x, y: x * y, lambda x, y: x * x),
    "one quotient twice": (lambda x, y: x / y, lambda x, y: (x + y) / (x + y) + x),
    "constants of one rule": (lambda x, y: x**0.5 * y, lambda x, y: jnp.tanh(x) * y),
}


MODES = (specialized.IN_REVERSE, specialized.IN_FORWARD)


def forget():
    for mode in MODES:
        mode.known.clear()


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def pushed(jvp, function, wrt):
    """The value and the tangent of a function, of whose arguments those in `wrt` have tangents."""
    moving = (wrt,) if isinstance(wrt, int) else wrt

    def of_moving(*args):
        given = dict(zip(moving, args, strict=True))
        return function(*(given.get(i, x) for i, x in enumerate(POINT)))

    return jvp(of_moving, *(tuple(values[i] for i in moving) for values in (POINT, POINT[::-1])))


@pytest.mark.parametrize("wrt", [0, 1, (0, 1)], ids=["first", "second", "both"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_what_tells_two_ops_apart(pair, wrt):
    """Both in one program and one after the other: the second finds what is of the first."""

    def functions():  # new ones, for derivatives of functions are kept
        f, g = (lambda x, y, of=of: jnp.sin(of(x, y)).sum() for of in pair)
        return [f, g, lambda x, y: f(x, y) + g(x, y)]

    for order in (functions(), functions()[::-1]):
        forget()
        for function in order:
            found = pb.grad(function, wrt)(*POINT)
            jax.tree.map(close, found, jax.grad(function, wrt)(*POINT))
            found, expected = (pushed(jvp, function, wrt) for jvp in (pb.jvp, jax.jvp))
            jax.tree.map(close, found, expected)


def test_what_is_one_value_for_a_rule_stays_one():
    text = str(pb.trace(lambda x: x * x)(SQUARE).vjp().module)
    assert "stablehlo.add" not in text, text


@pytest.mark.parametrize(
    ("derive", "order"),
    [
        (pb.Program.vjp, ["stablehlo.tanh", "stablehlo.dot_general"]),
        (pb.Program.jvp, ["stablehlo.dot_general", "stablehlo.tanh"]),
    ],
    ids=["vjp", "jvp"],
)
def test_a_rule_runs_once_for_ops_alike(derive, order, monkeypatch):
    made = []
    for name in order:
        run = getattr(RULES[name], derive.__name__)

        def counted(op, given, name=name, run=run):
            made.append(name)
            return run(op, given)

        rule = dataclasses.replace(RULES[name], **{derive.__name__: counted})
        monkeypatch.setitem(RULES, name, rule)

    def layers(x, w):
        for _ in range(20):
            x = jnp.tanh(x @ w)
        return x

    forget()
    program = derive(pb.trace(layers)(SQUARE, SQUARE))
    assert made == order
    assert str(program.module).count("stablehlo.tanh") == 20
    made.clear()
    again = derive(pb.trace(layers)(SQUARE, SQUARE))
    assert not made
    assert str(again.module) == str(program.module)


@pytest.mark.parametrize("value", [0.0, -0.0, 2.5, 1j, -1.5 + 1j])
def test_a_constant_is_made_once_for_all_that_use_it(value, monkeypatch):
    def vjp(op, cts):
        return [mul(mul(cts[0], value), value)]

    monkeypatch.setitem(
        RULES, "stablehlo.exponential", dataclasses.replace(RULES["stablehlo.exponential"], vjp=vjp)
    )
    x = SQUARE.astype(complex if isinstance(value, complex) else float)
    program = pb.trace(lambda x: lax.exp(lax.exp(x)))(x).vjp()
    parts = 2 if isinstance(value, complex) else 1
    assert str(program.module).count("stablehlo.constant") == parts
    _, (ct,) = program(x, x)
    np.testing.assert_allclose(ct, x * value**4)


def test_zeros_of_two_signs_are_two_constants(monkeypatch):
    def vjp(op, cts):
        return [maximum(mul(cts[0], 0.0), mul(cts[0], -0.0))]

    monkeypatch.setitem(
        RULES, "stablehlo.sine", dataclasses.replace(RULES["stablehlo.sine"], vjp=vjp)
    )
    program = pb.trace(lax.sin)(SQUARE).vjp()
    assert "dense<0.0" in str(program.module)
    assert "dense<-0.0" in str(program.module)


@pytest.mark.parametrize("derive", [pb.Program.vjp, pb.Program.jvp], ids=["vjp", "jvp"])
def test_ops_lie_where_the_op_is_that_they_are_of(derive):
    def f(x, y):
        with jax.named_scope("inner"):
            x = lax.tanh(x)
        with jax.named_scope("outer"):  # a rule in forward mode copies the product
            return lax.dot(x, y)

    program = derive(pb.trace(f)(SQUARE, SQUARE))
    text = program.module.operation.get_asm(enable_debug_info=True)
    places = {op: set() for op in ("tanh", "multiply", "dot_general")}
    for line in text.splitlines():
        for op, found in places.items():
            if f"stablehlo.{op} " in line:
                found.add(line.rpartition("loc(")[2])
    assert len(places["multiply"]) == 1
    assert places["multiply"] == places["tanh"]
    assert len(places["dot_general"]) == 1
    assert places["dot_general"] != places["tanh"]
    assert text.count("stablehlo.dot_general") == 3


# ------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
@pytest.mark.parametrize("read", [lambda a: a["x"], lambda a: a.get("x"), lambda a: "x" in a])
def test_a_rule_names_the_attributes_that_it_reads(read, mode, monkeypatch):
    def looks(op, given):
        return [given[0] if read(op.attributes) else None]

    looking = dataclasses.replace(RULES["stablehlo.sine"], **{mode: looks})
    monkeypatch.setitem(RULES, "stablehlo.sine", looking)
    program = pb.trace(lax.sin)(SQUARE)
    forget()
    with pytest.raises(RuleResultError) as failure:
        getattr(program, mode)()
    message = str(failure.value)
    assert "the rule for `stablehlo.sine` in pullback.rules.elementwise looks at" in message
    assert "the attribute `x`, and reads=()" in message
    assert "name it in `reads`" in message
    assert "test_specialized.py:" in message


@pytest.mark.parametrize(("mode", "what"), [("vjp", "cotangent"), ("jvp", "tangent")])
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda v: [v, v], "returned 2 {}s instead of 1"),
        (lambda v: [], "returned 0 {}s instead of 1"),
        (lambda v: v, "returned no list of {}s, but"),
        (lambda v: [1.0], "returned 1.0 for a {}"),
    ],
)
def test_what_a_specialized_rule_returns_is_checked(found, words, mode, what, monkeypatch):
    wrong = dataclasses.replace(
        RULES["stablehlo.sine"], **{mode: lambda op, given: found(given[0])}
    )
    monkeypatch.setitem(RULES, "stablehlo.sine", wrong)
    program = pb.trace(lax.sin)(SQUARE)
    with pytest.raises(RuleResultError, match=words.format(what)):
        getattr(program, mode)()


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
def test_a_rule_says_that_it_copies_the_op(mode, monkeypatch):
    """It is then for ops only whose attributes it names, and in reverse it may not."""
    known = RULES["stablehlo.transpose"]
    wrong = {"copies": False} if mode == "jvp" else {"vjp": known.jvp}
    monkeypatch.setitem(RULES, "stablehlo.transpose", dataclasses.replace(known, **wrong))
    forget()
    with pytest.raises(RuleResultError) as failure:
        getattr(pb.trace(jnp.transpose)(SQUARE), mode)()
    message = str(failure.value)
    assert "the rule for `stablehlo.transpose` in pullback.rules.shape copies the op" in message
    assert "say copies=True if `jvp` copies it" in message
    assert "test_specialized.py:" in message


def test_a_tangent_may_be_zero_or_another_one(monkeypatch):
    """What depends on a zero one is not active; what hands a tangent on adds no op."""
    none = dataclasses.replace(RULES["stablehlo.sine"], jvp=lambda op, ts: [None])
    same = dataclasses.replace(RULES["stablehlo.cosine"], jvp=lambda op, ts: [ts[0]])
    last = dataclasses.replace(RULES["stablehlo.atan2"], jvp=lambda op, ts: [ts[1]])
    for rule in (none, same, last):
        monkeypatch.setitem(RULES, rule.name, rule)
    forget()
    program = pb.trace(lambda x, y: lax.sin(x) * y + lax.cos(lax.atan2(x, y)))(SQUARE, SQUARE).jvp()
    x, y, dx, dy = (SQUARE + i for i in range(4))
    assert str(program.module).count("stablehlo.multiply") == 2
    value, tangent = program(x, y, dx, dy)
    close(value, np.sin(x) * y + np.cos(np.arctan2(x, y)))
    close(tangent, np.sin(x) * dy + dy)
    forget()


ALIKE = sorted(name for name, rule in RULES.items() if rule.alike)


def test_ops_whose_types_are_alike():
    """The result of such an op is taken to have the type of its operands."""
    seen = set()
    for case in harness.all_cases():
        if case.op not in ALIKE:
            continue
        module = harness.lower(case, harness.sample(case, np.random.default_rng(0)))
        for function in module.body.operations:
            for op in function.regions[0].blocks[0].operations:
                if op.operation.name in ALIKE:
                    types = {v.type for v in (*op.operands, *op.results)}
                    assert len(types) == 1, f"{case.name}: {op}"
                    seen.add(op.operation.name)
    assert seen == set(ALIKE)


def derived(text):
    """The derivative of a module in all arguments, or the words of its error."""
    module = ir.Module.parse(text, _jax.context())
    try:
        run_pipeline(module, "vjp", verify_each=True)
    except MissingRuleError as error:
        return str(error)
    return str(module)


STATIC, DYNAMIC = "tensor<4xf64>", "tensor<?xf64>"
MODULES = {
    "types": [
        f"""func.func @main(%x: {x}, %y: {y}) -> {out} {{
          %0 = stablehlo.multiply %x, %y : ({x}, {y}) -> {out}
          return %0 : {out}
        }}"""
        for x, y, out in itertools.product((STATIC, DYNAMIC), repeat=3)
    ],
    "operands": [
        f"""func.func @main(%x: {STATIC}, %y: {STATIC}, %z: {STATIC}) -> {STATIC} {{
          %0 = stablehlo.clamp {", ".join(operands)} : {STATIC}
          return %0 : {STATIC}
        }}"""
        for operands in itertools.product(("%x", "%y", "%z"), repeat=3)
    ],
}


@pytest.mark.parametrize("modules", MODULES.values(), ids=MODULES)
def test_what_becomes_of_an_op_does_not_follow_from_ops_before_it(modules):
    alone = []
    for text in modules:
        forget()
        alone.append(derived(text))
    assert list(map(derived, modules)) == alone
    forget()
    assert list(map(derived, reversed(modules))) == alone[::-1]


MARKED = """
sdy.mesh @mesh = <["i"=2]>
func.func @main(%x: tensor<4xf64>) -> (tensor<4xf64>, tensor<f64>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = "stablehlo.reshape"(%x) MARK : (tensor<4xf64>) -> tensor<4xf64>
  %1 = "stablehlo.reshape"(%x) OTHER : (tensor<4xf64>) -> tensor<4xf64>
  %2 = stablehlo.add %0, %1 : tensor<4xf64>
  %3 = "stablehlo.reduce"(%x, %zero) <{dimensions = array<i64: 0>}> ({
    ^bb0(%a: tensor<f64>, %b: tensor<f64>):
      %c = stablehlo.add %a, %b : tensor<f64>
      CONSTRAINT
      stablehlo.return %SUM : tensor<f64>
  }) : (tensor<4xf64>, tensor<f64>) -> tensor<f64>
  %4 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] :
    (tensor<4xf64>, tensor<f64>) -> tensor<f64>
  %5 = stablehlo.add %3, %4 : tensor<f64>
  return %2, %5 : tensor<4xf64>, tensor<f64>
}
"""


@pytest.mark.parametrize("first", [True, False])
def test_a_copy_has_what_the_op_has_and_nothing_else(first):
    """Attributes that no rule knows, and constraints in a region, which refer to this module."""
    constraint = "%d = sdy.sharding_constraint %c <@mesh, []> : tensor<f64>"
    with_marks = MARKED.replace("MARK", '{mine = "kept"}').replace("OTHER", '{mine = "as well"}')
    with_marks = with_marks.replace("CONSTRAINT", constraint).replace("%SUM", "%d")
    without = MARKED.replace("MARK", "").replace("OTHER", "")
    without = without.replace("CONSTRAINT", "").replace("%SUM", "%c")
    forget()
    for text in (with_marks, without) if first else (without, with_marks):
        module = ir.Module.parse(text, _jax.context())
        run_pipeline(module, "jvp", verify_each=True)
        for mark in ("kept", "as well", "sharding_constraint"):
            assert str(module).count(mark) == 2 * text.count(mark), str(module)


def test_functions_go_with_their_context(monkeypatch):
    """Of programs of ever new shapes, the first are forgotten."""
    monkeypatch.setattr(specialized, "SIZE", 1 << 23)
    counts = []
    for size in range(1, 9):
        pb.trace(lax.tanh)(np.ones(size)).vjp()
        counts.append(len(specialized.IN_REVERSE.known))
    assert any(after < before for before, after in itertools.pairwise(counts)), counts
    assert counts[-1] >= 1
