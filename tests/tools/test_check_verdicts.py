"""`pullback check` on rules that are nearly right, and on right ones of functions that are hard."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from pullback.tools.cli import main

HEAD = """
import jax, jax.numpy as jnp, numpy as np

def with_jvp(function, jvp):
    def named(*args):
        return function(*args)
    named = jax.custom_jvp(named)
    named.defjvp(lambda p, t: (named(*p), jvp(p, t)))
    return lambda *args: named(*args)
"""

WRONG = {
    "one element of many": ("jnp.sin", "(jnp.cos(p[0]) * t[0]).at[7].mul(2)", "f32[300]"),
    "one term of a sum": (
        "jax.nn.logsumexp",
        "jnp.sum((jax.nn.softmax(p[0]) * t[0])[1:])",
        "f32[200]",
    ),
    "the smaller of two arguments": (
        "lambda x, y: 200 * x + y",
        "200 * t[0] - t[1]",
        "f32[3], f32[3]",
    ),
    "a small function": ("lambda x: 1e-5 * x", "-1e-5 * t[0]", "f32[3]"),
    "a conjugate": ("jnp.conj", "t[0]", "c64[3]"),
    "where a condition is false": (
        "lambda x, m: jnp.where(m, x, 3 * x)",
        "t[0]",
        "f32[20], bool[20]",
    ),
    "beside infinities": (
        "lambda x: jnp.where(jnp.arange(4) % 2 == 0, x, -jnp.inf)",
        "jnp.where(jnp.arange(4) % 2 == 0, 3 * t[0], 0)",
        "f32[4]",
    ),
    "one of two results": ("lambda x: (x, 2 * x.sum())", "(t[0], t[0].sum())", "f32[3]"),
    "products of 16 bits": (
        "lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32)",
        "4 * t[0]",
        "f32[3]",
    ),
}

RIGHT = {
    "16 bits": ("jnp.sin", "jnp.cos(p[0]) * t[0]", "bf16[]"),
    "a result of 16 bits": (
        "lambda x: jnp.sin(x).astype(jnp.bfloat16)",
        "(jnp.cos(p[0]) * t[0]).astype(jnp.bfloat16)",
        "f32[]",
    ),
    "16 bits inside": (
        "lambda x: jnp.sin(x.astype(jnp.bfloat16)).astype(jnp.float32)",
        "jnp.cos(p[0]) * t[0]",
        "f32[]",
    ),
    "a large constant": ("lambda x: jnp.sin(x) + 1e4", "jnp.cos(p[0]) * t[0]", "f32[]"),
    "steps": ("lambda x: jnp.floor(x * 10)", "0 * t[0]", "f32[1000]"),
    "kinks": (
        "lambda x: jnp.maximum(x, 0.5)",
        "jnp.where(p[0] > 0.5, t[0], 0)",
        "f32[1000]",
    ),
    "kinks of both signs in a sum": (
        "lambda x: jnp.sum(jnp.maximum(x[::2], 0.5)) - jnp.sum(jnp.maximum(x[1::2], 0.5))",
        "jnp.sum((jnp.where(p[0] > 0.5, t[0], 0) * jnp.tile(jnp.array([1.0, -1.0]), 150)))",
        "f32[300]",
    ),
    "no complex derivative": (
        "lambda x: x * jnp.conj(x)",
        "t[0] * jnp.conj(p[0]) + p[0] * jnp.conj(t[0])",
        "c64[3]",
    ),
    "a random key": (
        "lambda x, k=jax.random.key(0): x * jax.random.uniform(k, x.shape)",
        "t[0] * jax.random.uniform(jax.random.key(0), (3,))",
        "f32[3]",
    ),
    "an array that it closes over": (
        "lambda x, c=jnp.arange(3.0) + 5: x * c",
        "t[0] * (jnp.arange(3.0) + 5)",
        "f32[3]",
    ),
    "a number that it closes over": (
        "lambda x, c=jnp.float32(3): x * c",
        "t[0] * jnp.float32(3)",
        "f32[3]",
    ),
    "an order": ("jnp.sort", "t[0][jnp.argsort(p[0])]", "f32[300]"),
    "many cancelling terms": ("lambda x: x - x.mean()", "t[0] - t[0].mean()", "f32[2000]"),
}


def check(folder, source: str, arguments: str, *options: str) -> tuple[int, str]:
    (folder / "rules.py").write_text(HEAD + source)
    command = ["check", f"{folder}/rules.py:f", "--args", arguments, *options]
    result = CliRunner().invoke(main, command)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.mark.parametrize("case", WRONG)
def test_a_rule_that_is_wrong_somewhere_is_noticed(tmp_path, case):
    function, jvp, arguments = WRONG[case]
    code, output = check(tmp_path, f"f = with_jvp({function}, lambda p, t: {jvp})", arguments)
    assert code == 1
    assert "FAIL named jvp" in output
    assert "FAIL named vjp" in output


@pytest.mark.parametrize("case", RIGHT)
@pytest.mark.parametrize("seed", ["0", "5"])
def test_a_right_rule_is_not_accused(tmp_path, case, seed):
    function, jvp, arguments = RIGHT[case]
    source = f"f = with_jvp({function}, lambda p, t: {jvp})"
    code, output = check(tmp_path, source, arguments, "--seed", seed)
    assert code == 0, output
    assert "2 checks of rules, 0 failed; inputs in (0.1, 0.9)" in output


VALUES = """
@jax.custom_vjp
def back(x): return 2 * x
back.defvjp(lambda x: (FOUND, None), lambda _, ct: (2 * ct,))
@jax.custom_jvp
def forth(x): return 2 * x
forth.defjvp(lambda p, t: ((lambda x: FOUND)(*p), 2 * t[0]))
def f(x): return back(x), forth(x)
"""


@pytest.mark.parametrize("arguments", ["f32[3]", "bf16[3]", "c64[2]"])
def test_a_rule_that_returns_another_value_than_its_function_is_noticed(tmp_path, arguments):
    code, output = check(tmp_path, VALUES.replace("FOUND", "3 * x"), arguments)
    assert code == 1
    said = "the rule returns other values than the function: relative difference 0."
    for name in ("back jvp", "back vjp", "forth jvp", "forth vjp"):
        assert f"FAIL {name}: {said}" in output
    code, output = check(tmp_path, VALUES.replace("FOUND", "(4 * x + 2) / 2 - 1"), arguments)
    assert code == 0, output


def test_other_inputs_can_be_asked_for(tmp_path):
    source = "f = with_jvp(jnp.abs, lambda p, t: t[0])"
    assert check(tmp_path, source, "f32[3]")[0] == 0
    code, output = check(tmp_path, source, "f32[3]", "--inputs", "-2", "-1")
    assert code == 1
    assert "FAIL named jvp: relative difference 2 " in output
    for bounds in (("1", "1"), ("0", "inf")):
        code, output = check(tmp_path, source, "f32[3]", "--inputs", *bounds)
        assert code == 2
        assert "--inputs wants two numbers, the smaller one first" in output


def test_a_tolerance_is_a_finite_number(tmp_path):
    source = "f = with_jvp(jnp.abs, lambda p, t: t[0])"
    for tolerance in ("nan", "inf"):
        code, output = check(tmp_path, source, "f32[3]", "--tolerance", tolerance)
        assert code == 2
        assert f"{tolerance} is no tolerance" in output


def test_rules_of_functions_that_only_rules_call_are_checked(tmp_path):
    source = """
inner = with_jvp(jnp.cos, lambda p, t: 5 * t[0])
f = with_jvp(jnp.sin, lambda p, t: inner(p[0]) * t[0])
"""
    code, output = check(tmp_path, source, "f32[3]")
    assert code == 1
    assert "4 checks of rules, 2 failed" in output


def test_rules_of_jax_that_are_false_on_purpose_are_not_followed(tmp_path):
    """Those behind `sinc` stand for a power series at zero."""
    code, output = check(tmp_path, "def f(x): return jnp.sinc(x)", "f32[3]")
    assert code == 0, output


def test_a_backward_rule_that_has_no_transpose_is_not_accused(tmp_path):
    source = """
@jax.custom_vjp
def f(x):
    return jnp.sin(x)

def bwd(x, ct):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return (jax.pure_callback(lambda x, ct: np.cos(x) * ct, shape, x, ct),)

f.defvjp(lambda x: (jnp.sin(x), x), bwd)
"""
    code, output = check(tmp_path, source, "f32[3]")
    assert code == 0, output
    assert "skip f: its backward rule alone gives no jvp" in output
    assert "1 checks of rules, 0 failed, 1 skipped" in output


def test_what_fails_at_random_inputs_is_skipped(tmp_path):
    source = """
def only_ones(x):
    if (x != 1).any():
        raise ValueError("no ones")
    return x

f = with_jvp(lambda x: jax.pure_callback(only_ones, x, x), lambda p, t: t[0])
"""
    code, output = check(tmp_path, source, "f32[3]")
    assert code == 0
    assert "skip named: the function fails at inputs in (0.1, 0.9): " in output


def test_what_is_computed_with_8_bits_is_skipped(tmp_path):
    function = "lambda x: x.astype(jnp.float8_e4m3fn).astype(jnp.float32)"
    code, output = check(tmp_path, f"f = with_jvp({function}, lambda p, t: t[0])", "f32[3]")
    assert code == 0
    assert "skip named: it computes with 8 bits" in output


def test_a_vjp_that_is_not_finite_where_the_function_is_not_is_skipped(tmp_path):
    source = (
        "f = with_jvp(lambda x: jnp.log(x - 0.5), lambda p, t: t[0] / jnp.sqrt(p[0] - 0.5) ** 2)"
    )
    code, output = check(tmp_path, source, "f32[20]")
    assert code == 0, output
    assert "skip named: its vjp is not finite" in output


CLOSING = """
def f(x):
    y, z = jnp.sin(x), {z}

    @jax.custom_jvp
    def scaled(x):
        return x * y * z

    scaled.defjvp(lambda p, t: (scaled(*p), {by} * y * z * t[0]))
    return jax.jit(scaled)(x)
"""


def test_a_rule_that_closes_over_a_value_of_the_target(tmp_path):
    code, output = check(tmp_path, CLOSING.format(z="2", by=1), "f32[3]")
    assert code == 0, output
    assert "2 checks" in output
    assert check(tmp_path, CLOSING.format(z="2", by=2), "f32[3]")[0] == 1


def test_a_rule_that_closes_over_one_of_several_arrays(tmp_path):
    """Which it is we do not know."""
    source = """
one, other = jnp.arange(3.0) + 4, jnp.arange(3.0) + 5
f = with_jvp(lambda x: x * one + other, lambda p, t: one * t[0])
"""
    code, output = check(tmp_path, source, "f32[3]")
    assert code == 0, output
    assert "skip named: which array it closes over is not known" in output


def test_a_rule_with_symbolic_zeros_is_checked_by_each_operand_alone(tmp_path):
    source = """
from jax.custom_derivatives import SymbolicZero

@jax.custom_jvp
def f(x, y):
    return x * y

def jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    if type(dx) is SymbolicZero:
        return x * y, WRONG * x * dy
    if type(dy) is SymbolicZero:
        return x * y, dx * y
    return x * y, dx * y + x * dy

f.defjvp(jvp, symbolic_zeros=True)
"""
    code, output = check(tmp_path, source.replace("WRONG", "1"), "f32[3], f32[3]")
    assert code == 0, output
    code, output = check(tmp_path, source.replace("WRONG", "2"), "f32[3], f32[3]")
    assert code == 1
    assert "ok   f jvp" in output
    assert "ok   f by operand 0 alone jvp" in output
    assert "FAIL f by operand 1 alone jvp" in output


def test_a_custom_root_is_not_accused(tmp_path):
    """The unknown of its function is closed over by its solver, too: two operands, one value."""
    source = """
def newton(f, y):
    return jax.lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2), y)

def f(x):
    one = jnp.ones_like(x)
    return jax.lax.custom_root(lambda y: y**3 - x, one, newton, lambda g, y: y / g(one))
"""
    code, output = check(tmp_path, source, "f32[3]")
    assert code == 0, output
    assert "skip custom_root: " in output


SOLVE = """
A = jnp.array([[3.0, 1.0], [0.5, 2.0]])

def solver(a):
    return lambda _, b: jnp.linalg.solve(a, b)

@jax.checkpoint
def f(b):
    return jax.lax.custom_linear_solve(lambda x: A @ x, b, solver(SOLVED), solver(TRANSPOSED))
"""


def test_the_solvers_of_a_linear_solve(tmp_path):
    def verdict(solved, transposed):
        source = SOLVE.replace("SOLVED", solved).replace("TRANSPOSED", transposed)
        return check(tmp_path, source, "f32[2]")

    code, output = verdict("A", "A.T")
    assert code == 0, output
    assert re.search(r"ok   custom_linear_solve\S* solve", output)
    assert re.search(r"ok   custom_linear_solve\S* vjp", output)
    code, output = verdict("A", "A")
    assert code == 1
    assert re.search(r"ok   custom_linear_solve\S* solve", output)
    assert re.search(r"FAIL custom_linear_solve\S* vjp: .* to the transpose of solve", output)
    code, output = verdict("2 * A", "A.T")
    assert code == 1
    assert re.search(r"FAIL custom_linear_solve\S* solve: the solution, put into matvec", output)


def test_a_linear_solve_of_what_the_target_computes(tmp_path):
    """Its system is the target's: random numbers would not be what a factorization is of."""
    source = """
@jax.jit
def f(a, b):
    a = a @ a.T + jnp.eye(3)
    factors = jax.scipy.linalg.cho_factor(OF)
    return jax.lax.custom_linear_solve(
        lambda x: a @ x, b, lambda _, c: jax.scipy.linalg.cho_solve(factors, c), symmetric=True
    )
"""
    code, output = check(tmp_path, source.replace("OF", "a"), "f32[3,3], f32[3]")
    assert code == 0, output
    assert output.count("ok   custom_linear_solve") == 2
    code, output = check(tmp_path, source.replace("OF", "a + 1"), "f32[3,3], f32[3]")
    assert code == 0
    assert "skip custom_linear_solve: the solution, put into matvec, differs" in output
    assert "its system depends on inputs, in (0.1, 0.9) here, and may have to be special" in output


def test_a_linear_solve_in_a_loop_is_not_looked_at(tmp_path):
    source = """
def f(a, b):
    def body(_, b):
        solve = lambda _, c: c / a
        return jax.lax.custom_linear_solve(lambda x: a * x, b, solve, symmetric=True)
    return jax.lax.fori_loop(0, 3, body, b)
"""
    code, output = check(tmp_path, source, "f32[3], f32[3]")
    assert code == 0, output
    assert "skip custom_linear_solve: it is in a loop, a branch or a rule" in output


def test_solves_of_jax_are_not_in_question(tmp_path):
    code, output = check(tmp_path, "def f(a, b): return jnp.linalg.solve(a, b)", "f32[3,3], f32[3]")
    assert code == 0, output
    assert "custom_linear_solve" not in output
