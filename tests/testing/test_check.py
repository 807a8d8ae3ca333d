"""`check_rules`: arguments, verdicts where little is known, and what it raises."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import linear_call

import pullback as pb
from pullback.errors import WrongRuleError
from pullback.testing import check, check_rules, intended
from pullback.testing.findings import Report
from pullback_cli.check import check as command
from tests.testing.planted_faults import FAULTS, X

find = functools.partial(check_rules, raises=False)


def verdicts(report, check):
    return [each.verdict for each in report if each.check == check]


def with_jvp(function, tangent):
    named = jax.custom_jvp(function)
    named.defjvp(lambda p, t: (named(*p), tangent(p, t)))
    return named


def test_a_wrong_rule_raises():
    fault = FAULTS["factor"]()
    with pytest.raises(WrongRuleError, match="2 of 9 checks of rules failed") as caught:
        check_rules(fault.function, *fault.args)
    assert "planted_faults.py" in str(caught.value.where)
    assert "pb.testing.intended(rule)" in str(caught.value.do)


def test_a_check_of_nothing_is_an_error():
    with pytest.raises(pb.PullbackError) as caught:
        check_rules(lambda x: x * 2, 1.0)
    assert "calls no function that has a derivative rule" in caught.value.message
    assert "custom_jvp, custom_vjp or linear_call" in caught.value.do
    assert check_rules(lambda x: x * 2, 1.0, raises=False).findings == ()
    with pytest.raises(pb.PullbackError, match="rules of installed packages only") as caught:
        raise check._nothing_checked(Report((), 1))
    assert "installed=True" in caught.value.do


def test_the_default_order_is_that_of_the_command():
    (option,) = (each for each in command.params if each.name == "order")
    assert inspect.signature(check_rules).parameters["order"].default == option.default


def test_a_traced_program_can_be_given():
    fault = FAULTS["factor"]()
    program = pb.trace(fault.function)(*fault.args)
    assert find(program, *fault.args).failed
    assert find(program).failed  # at random arguments


@pytest.mark.parametrize("name", ["factor", "stopped_in_residuals", "a_transpose_that_is_none"])
def test_rules_in_a_file_are_checked(name, tmp_path):
    fault = FAULTS[name]()
    pb.trace(fault.function)(*fault.args).save(tmp_path / "rules.mlirbc", order=2)
    loaded = pb.load(tmp_path / "rules.mlirbc")
    report = find(loaded, *fault.args, order=2)
    in_memory = find(fault.function, *fault.args, order=2)
    assert [each.check for each in report.failed] == [each.check for each in in_memory.failed]
    assert find(loaded, order=2).failed  # at random arguments
    assert all(each.rule.startswith("@") for each in report.failed)
    assert all("planted_faults.py" in each.rule for each in report.failed)


def test_rules_of_a_derivative_are_checked():
    wrong = with_jvp(jnp.sin, lambda p, t: 2 * jnp.cos(p[0]) * t[0])
    program = pb.trace(lambda x: jnp.sum(x * wrong(x)))(X)
    failed = find(program.grad(), X).failed
    assert failed
    assert all(each.rule.startswith("@") for each in failed)  # in the derived module
    assert not find(pb.trace(lambda x: jnp.sum(jax.nn.relu(x)))(X).grad(), X).failed


def test_a_call_without_rules_in_a_file_is_left_out(tmp_path):
    """No derivative asks for them: the file has only what derivatives need."""
    inner = with_jvp(jnp.sin, lambda p, t: jnp.cos(p[0]) * t[0])
    outer = jax.custom_jvp(lambda x: inner(x))
    outer.defjvp(lambda p, t: (jnp.sin(p[0]), jnp.cos(p[0]) * t[0]))
    pb.trace(outer)(X).save(tmp_path / "rules.mlirbc")
    report = find(pb.load(tmp_path / "rules.mlirbc"), X)
    assert len({each.name for each in report}) == 1
    assert not report.failed
    assert not report.doubtful


def test_a_batch_is_checked_where_jax_has_none():
    def scaled(x):
        return linear_call(lambda a, x: a * x, lambda a, ct: a * ct, 3.0, x)

    assert verdicts(find(scaled, X), "batch") == ["ok"]


def test_symbolic_dimensions_are_refused():
    size = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    with pytest.raises(pb.PullbackError, match="check_rules wants sizes"):
        check_rules(pb.trace(jnp.sin)(size))


def test_points_are_the_values_that_reach_the_call():
    """The rule is wrong where its function is called, and nowhere else."""

    def tangent(p, t):
        return jnp.where(jnp.abs(p[0] - 7) < 0.01, 5.0, 2 * p[0]) * t[0]

    square = with_jvp(lambda x: x**2, tangent)
    report = find(lambda x: square(x * 10), jnp.float32(0.7))
    assert report.failed
    assert report.failed[0].point == "x=7 (example)"
    assert not find(lambda x: square(x * 10), jnp.float32(0.3)).failed


@pytest.mark.parametrize("seed", [1, 5])
@pytest.mark.parametrize("name", ["factor", "one_element_of_many", "nan_at_zero"])
def test_other_random_numbers_find_the_same(name, seed):
    fault = FAULTS[name]()
    assert "FAIL" in verdicts(find(fault.function, *fault.args, seed=seed), fault.check)


def test_an_intended_rule_is_checked_for_all_but_derivatives():
    named = jax.custom_vjp(lambda x: 2 * x)
    named.defvjp(lambda x: (3 * x, None), intended(lambda _, ct: (ct.astype(jnp.float16),)))
    report = find(named, X, order=2)
    assert {each.check for each in report.failed} == {"value", "types"}


def test_a_rule_that_is_lost_in_noise_is_doubtful():
    """The rule is off by less than where the iteration stops accounts for."""

    @jax.custom_jvp
    def root(x):
        return jax.lax.while_loop(
            lambda y: jnp.max(jnp.abs(y * y - x)) > 1e-2, lambda y: y - (y * y - x) / 3, 1 + 0 * x
        )

    root.defjvp(lambda p, t: ((y := root(*p)), t[0] / (2 * y) * 1.03))
    report = find(root, X)
    assert not report.failed
    assert "where it stops may account for that" in str(report)


def wave(per_unit, factor):
    """sin(kx) / k, whose derivative cos(kx) is multiplied by a factor."""

    @jax.custom_vjp
    def waved(x):
        return jnp.sin(per_unit * x) / per_unit

    waved.defvjp(lambda x: (waved(x), x), lambda x, ct: (factor * ct * jnp.cos(per_unit * x),))
    return waved


@pytest.mark.parametrize("per_unit", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("x", [np.float32(100.0), np.linspace(90, 110, 5, dtype=np.float32)])
def test_a_right_rule_of_a_function_of_short_waves_does_not_fail(per_unit, x):
    """Neighbouring numbers are periods apart, and slopes over them agree by accident."""
    assert not find(wave(per_unit, 1.0), x).failed


@pytest.mark.parametrize("per_unit", [1.0, 1e2, 1e4, 1e6])
def test_a_wrong_rule_of_a_function_of_short_waves_fails_where_it_is_resolved(per_unit):
    assert verdicts(find(wave(per_unit, 1.05), np.float32(100.0)), "vjp") == ["FAIL"]


def test_a_function_that_its_type_does_not_resolve_is_doubtful():
    report = find(wave(1e8, 1.05), np.float32(100.0))
    (found,) = (each for each in report if each.check == "vjp")
    assert found.verdict == "doubtful"
    assert found.reason == (
        "the function is not resolved by float32 near this point: check it in 64 bits, or at "
        "smaller values"
    )
    with jax.enable_x64(True):
        assert not find(wave(1e8, 1.0), np.float64(1e-3)).failed
        assert find(wave(1e8, 1.05), np.float64(1e-8)).failed


def test_rules_of_jax_that_are_false_on_purpose_are_not_followed():
    """Those behind `sinc` stand for a power series at zero."""
    assert not find(lambda x: jnp.sinc(x), X, order=2).failed


def test_what_fails_at_other_points_is_doubtful():
    def only_ones(x):
        if (x != 1).any():
            raise ValueError("no ones")
        return x

    named = with_jvp(lambda x: jax.pure_callback(only_ones, x, x), lambda p, t: t[0])
    report = find(named, X)
    assert not report.failed
    assert "the function fails there, or near it: " in str(report)


def test_a_value_that_is_closed_over_need_not_be_differentiated():
    def function(x):
        y, z = jnp.sin(x), 2

        @jax.custom_jvp
        def scaled(x):
            return x * y * z

        scaled.defjvp(lambda p, t: (scaled(*p), y * z * t[0]))
        return jax.jit(scaled)(x)

    assert verdicts(find(function, X), "closed over") == ["FAIL"]
    assert verdicts(find(lambda x: function(jax.lax.stop_gradient(x)) + x, X), "closed over") == []
    assert "ok" in verdicts(find(function, X), "jvp")


def test_a_custom_root_is_not_accused():
    """The unknown of its function is closed over by its solver, too: two operands, one value."""

    def newton(f, y):
        return jax.lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2), y)

    def function(x):
        one = jnp.ones_like(x)
        return jax.lax.custom_root(lambda y: y**3 - x, one, newton, lambda g, y: y / g(one))

    report = find(function, X)
    assert not report.failed
    assert "belongs together, which other points do not" in str(report)


def test_a_fault_in_one_of_three_symbolic_zeros():
    fault = FAULTS["with_a_symbolic_zero"]()
    report = find(fault.function, *fault.args)
    names = {each.name.partition(" ")[2] for each in report.failed if each.check == "jvp"}
    assert names == {"by y alone"}
    assert {each.name.partition(" ")[2] for each in report} == {"", "by x alone", "by y alone"}


A = np.array([[3.0, 1.0], [0.5, 2.0]], np.float32)


def solving(solved, transposed):
    def solver(a):
        return lambda _, b: jnp.linalg.solve(a, b)

    @jax.checkpoint
    def function(b):
        return jax.lax.custom_linear_solve(lambda x: A @ x, b, solver(solved), solver(transposed))

    report = find(function, X[:2])
    return {each.check: each.verdict for each in report}, str(report)


def test_the_solvers_of_a_linear_solve():
    assert solving(A, A.T)[0] == {"solve": "ok", "vjp": "ok"}
    found, text = solving(A, A)
    assert found == {"solve": "ok", "vjp": "FAIL"}
    assert "to the transpose of solve" in text
    found, text = solving(2 * A, A.T)
    assert found["solve"] == "FAIL"
    assert "the solution, put into matvec, differs from the right side by " in text


@pytest.mark.parametrize("offset", [0, 1])
def test_a_linear_solve_of_what_the_target_computes(offset):
    """Its system is the target's: random numbers would not be what a factorization is of."""

    @jax.jit
    def function(a, b):
        a = a @ a.T + jnp.eye(3)
        factors = jax.scipy.linalg.cho_factor(a + offset)
        return jax.lax.custom_linear_solve(
            lambda x: a @ x, b, lambda _, c: jax.scipy.linalg.cho_solve(factors, c), symmetric=True
        )

    a = np.outer(X, X[::-1])
    assert verdicts(find(function, a, X), "solve") == ["FAIL" if offset else "ok"]
    unknown = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    report = find(function, unknown, X)
    assert verdicts(report, "solve") == ["doubtful" if offset else "ok"]
    assert ("its system is random here, and may have to be special" in str(report)) == (offset > 0)


@pytest.mark.parametrize("factor", [1, 2])
def test_a_linear_solve_in_a_loop(factor):
    def function(a, b):
        def body(_, b):
            return jax.lax.custom_linear_solve(
                lambda x: a * x, b, lambda _, c: factor * c / a, symmetric=True
            )

        return jax.lax.fori_loop(0, 3, body, b)

    assert verdicts(find(function, X, X), "solve") == ["ok" if factor == 1 else "FAIL"]


def test_solves_of_jax_are_not_in_question():
    assert len(find(jnp.linalg.solve, np.eye(3, dtype=np.float32), X).findings) == 0


def test_points_for_which_there_was_no_time_are_named(monkeypatch):
    monkeypatch.setattr("pullback.testing.check.BUDGET", 0.0)
    doubts = find(with_jvp(jnp.sin, lambda p, t: jnp.cos(p[0]) * t[0]), X).doubtful
    assert [each.check for each in doubts] == ["points"]
    assert "0 s were over; not compared: near it, random in (0.1, 0.9), zeros," in doubts[0].reason


PACKAGE = """
import jax

def with_rule(function, tangent):
    named = jax.custom_jvp(function)

    def rule(p, t):
        return named(*p), tangent(*p) * t[0]

    named.defjvp(rule)
    return named
"""
INSIDE = """
import jax.numpy as jnp
from package import wrap

def used(x):
    return wrap.with_rule(jnp.sin, jnp.sin)(x)
"""


def test_rules_inside_of_an_installed_package_are_left_out(tmp_path, monkeypatch):
    """Those that it makes for the user are checked."""
    folder = tmp_path / "site-packages" / "package"
    folder.mkdir(parents=True)
    (folder / "wrap.py").write_text(PACKAGE)
    (folder / "inside.py").write_text(INSIDE)
    monkeypatch.syspath_prepend(folder.parent)
    from package import inside, wrap

    report = find(lambda x: inside.used(x), X)
    assert not report.findings
    assert report.summary.endswith("; 1 rules of installed packages left out")
    assert find(lambda x: inside.used(x), X, installed=True).failed
    assert find(lambda x: wrap.with_rule(jnp.sin, jnp.sin)(x), X).failed


def test_the_fixture_of_pytest(tmp_path):
    """The plug-in is named by hand: an installed one may be another copy, and is left out."""
    (tmp_path / "test_rules.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def test_rule(check_rules):\n"
        "    f = jax.custom_jvp(lambda x: jnp.sin(x))\n"
        "    f.defjvp(lambda p, t: (f(*p), 2 * jnp.cos(p[0]) * t[0]))\n"
        "    check_rules(f, jnp.ones(3))\n"
    )
    options = ["-q", "-p", "no:pullback", "-p", "pullback_pytest"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    found = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ)
    )
    assert found.returncode == 1
    assert "WrongRuleError: 2 of 9 checks of rules failed" in found.stdout


def test_the_plug_in_is_declared():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\npullback = "pullback_pytest"' in text


@pytest.mark.parametrize(("dtype", "factor"), [("float16", 1.05), ("bfloat16", 1.1)])
def test_a_wrong_rule_in_a_narrow_type_is_not_taken_for_rounding(dtype, factor) -> None:
    """A type of 8 bits rounds by as much: the rule is compared in 64 bits as well."""

    def sine(slope):
        f = jax.custom_vjp(jnp.sin)
        f.defvjp(
            lambda x: (jnp.sin(x), x), lambda x, ct: ((slope * jnp.cos(x) * ct).astype(dtype),)
        )
        return f

    x = jnp.linspace(-1, 2, 7).astype(dtype)
    check_rules(sine(1.0), x, order=1)
    with pytest.raises(WrongRuleError, match="FAIL sin vjp: the rule gives"):
        check_rules(sine(factor), x, order=1)
