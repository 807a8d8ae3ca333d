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
from pullback._errors import MissingRuleError, RuleResultError
from pullback._jax import ir
from pullback.dialect.build import maximum, mul
from pullback.passes import reverse, specialized
from pullback.passes.manager import run_pipeline
from pullback.rules.registry import RULES
from tests.rules import harness

pytestmark = pytest.mark.usefixtures("float64")

CUBE = np.random.default_rng(0).uniform(0.5, 1.5, (3, 3, 3))
SQUARE = CUBE[0]


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


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wrt", [0, 1, (0, 1)], ids=["first", "second", "both"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_what_tells_two_ops_apart(pair, wrt):
    """Both in one program and one after the other: the second finds what is of the first."""

    def functions():  # new ones, for derivatives of functions are kept
        f, g = (lambda x, y, of=of: jnp.sin(of(x, y)).sum() for of in pair)
        return [f, g, lambda x, y: f(x, y) + g(x, y)]

    for order in (functions(), functions()[::-1]):
        specialized.specialized.clear()
        for function in order:
            found = pb.grad(function, wrt)(CUBE, CUBE[::-1])
            jax.tree.map(close, found, jax.grad(function, wrt)(CUBE, CUBE[::-1]))


def test_what_is_one_value_for_a_rule_stays_one():
    text = str(pb.trace(lambda x: x * x)(SQUARE).vjp().module)
    assert text.count("stablehlo.multiply") == 2, text


def test_a_rule_runs_once_for_ops_alike(monkeypatch):
    made = []
    specialize = reverse.specialize
    monkeypatch.setattr(reverse, "specialize", lambda op: made.append(op) or specialize(op))

    def layers(x, w):
        for _ in range(20):
            x = jnp.tanh(x @ w)
        return x

    specialized.specialized.clear()
    program = pb.trace(layers)(SQUARE, SQUARE).vjp()
    assert [op[2].name for op in made] == ["stablehlo.tanh", "stablehlo.dot_general"]
    assert str(program.module).count("stablehlo.tanh") == 20
    made.clear()
    again = pb.trace(layers)(SQUARE, SQUARE).vjp()
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


def test_ops_lie_where_the_op_is_that_they_are_of():
    def f(x):
        with jax.named_scope("inner"):
            return lax.tanh(x)

    text = pb.trace(f)(SQUARE).vjp().module.operation.get_asm(enable_debug_info=True)
    (place,) = {
        line.rpartition("loc(")[2] for line in text.splitlines() if "stablehlo.multiply" in line
    }
    assert f"loc({place}" in next(line for line in text.splitlines() if "stablehlo.tanh" in line)


# ------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize("read", [lambda a: a["x"], lambda a: a.get("x"), lambda a: "x" in a])
def test_a_rule_names_the_attributes_that_it_reads(read, monkeypatch):
    looking = dataclasses.replace(
        RULES["stablehlo.sine"], vjp=lambda op, cts: [cts[0]] if read(op.attributes) else [None]
    )
    monkeypatch.setitem(RULES, "stablehlo.sine", looking)
    program = pb.trace(lax.sin)(SQUARE)
    with pytest.raises(RuleResultError) as failure:
        program.vjp()
    message = str(failure.value)
    assert "the rule for `stablehlo.sine` in pullback.rules.elementwise looks at" in message
    assert "the attribute `x`, and reads=()" in message
    assert "name it in `reads`" in message
    assert "test_specialized.py:" in message


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda ct: [ct, ct], "returned 2 cotangents instead of 1"),
        (lambda ct: ct, "returned no list of cotangents, but"),
        (lambda ct: [1.0], "returned 1.0 for a cotangent"),
    ],
)
def test_what_a_specialized_rule_returns_is_checked(found, words, monkeypatch):
    wrong = dataclasses.replace(RULES["stablehlo.sine"], vjp=lambda op, cts: found(cts[0]))
    monkeypatch.setitem(RULES, "stablehlo.sine", wrong)
    with pytest.raises(RuleResultError, match=words):
        pb.trace(lax.sin)(SQUARE).vjp()


ALIKE = sorted(name for name, rule in RULES.items() if rule.alike)


def test_ops_whose_types_are_alike():
    """The result of such an op is taken to have the type of its operands."""
    seen = set()
    for case in harness.all_cases():
        if case.op not in ALIKE:
            continue
        for function in harness.module(case).body.operations:
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
        specialized.specialized.clear()
        alone.append(derived(text))
    assert list(map(derived, modules)) == alone
    specialized.specialized.clear()
    assert list(map(derived, reversed(modules))) == alone[::-1]


def test_functions_go_with_their_context(monkeypatch):
    """Of programs of ever new shapes, the first are forgotten."""
    monkeypatch.setattr(specialized, "SIZE", 1 << 23)
    counts = []
    for size in range(1, 9):
        pb.trace(lax.tanh)(np.ones(size)).vjp()
        counts.append(len(specialized.specialized))
    assert max(counts) > counts[-1] >= 1
