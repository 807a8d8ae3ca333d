"""`pullback check`: what it prints, its options and exit codes."""

from __future__ import annotations

import json
import re

import jax
import jax.numpy as jnp
import pytest

from pullback.autodiff import registry
from pullback.tools import check

RULES = """
import jax, jax.numpy as jnp
import numpy as np
from pullback.testing import intended

@jax.custom_jvp
def right(x):
    return jnp.sin(x)

@right.defjvp
def right_jvp(p, t):
    return right(*p), jnp.cos(p[0]) * t[0]

@jax.custom_jvp
def wrong(x):
    return jnp.sin(x)

@wrong.defjvp
def wrong_jvp(p, t):
    return wrong(*p), 3 * jnp.cos(p[0]) * t[0]

@jax.custom_vjp
def missing(x):
    return 2 * x

def missing_fwd(x):
    return 2 * x, x

def missing_bwd(x, ct):
    return (ct * jnp.nan,)

missing.defvjp(missing_fwd, missing_bwd)

@jax.custom_vjp
def lost(x):
    return jnp.sin(x)

lost.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jax.lax.stop_gradient(jnp.cos(x)) * ct,))

@jax.custom_jvp
def nowhere(x):
    return jnp.log(-1 - x * x)

nowhere.defjvp(lambda p, t: (nowhere(*p), t[0] / p[0]))

@jax.custom_jvp
def absolute(x):
    return jnp.abs(x)

absolute.defjvp(lambda p, t: (absolute(*p), t[0]))

def good(x):
    return jax.lax.map(right, x)

def bad(x):
    return wrong(missing(x))

def elsewhere(x):
    return nowhere(x)

def second(x):
    return lost(x)

def without(x):
    return jnp.sin(x)

example_args = (np.array([0.25, 0.5, 0.75], np.float32),)
"""


@pytest.fixture
def run(tmp_path, pullback_command):
    (tmp_path / "rules.py").write_text(RULES)

    def call(function: str, *options: str) -> tuple[int, str]:
        result = pullback_command("check", f"{tmp_path}/rules.py:{function}", *options)
        return result.exit_code, result.output

    return call


def test_right_rules_pass(run):
    code, output = run("good")
    assert code == 0
    assert "ok   right: jvp, value, vjp, types, linearity, duality, batch, second deriv" in output
    assert "9 checks of rules, 0 failed, 0 doubtful" in output


def test_wrong_rules_are_named_with_their_lines_and_numbers(run):
    code, output = run("bad")
    assert code == 1
    assert "FAIL wrong jvp: the rule gives " in output
    assert "FAIL missing vjp: the rule gives nan, and the slope is " in output
    assert "at fault: argument x, result[0]" in output
    assert "point: x=[0.5, 1, 1.5] (example)" in output
    assert "rule: wrong_jvp at " in output
    assert "rules.py:18-20" in output
    assert "rule: missing_fwd at " in output
    assert "missing_bwd at " in output
    assert "rules.py:56, in bad" in output


def test_the_order_can_be_chosen(run):
    code, output = run("second")
    assert code == 1
    assert "FAIL lost second derivative: the rule gives 0, and the slope is " in output
    assert run("second", "--order", "1")[0] == 0
    assert run("good", "--order", "0")[0] == 2


def test_where_nothing_can_be_compared_there_is_doubt(run):
    code, output = run("elsewhere", "--order", "1")
    assert code == 0
    assert "doubtful nowhere jvp: the function has no slope there that can be told" in output
    assert "rules.py:59, in elsewhere" in output
    assert "doubtful nowhere vjp: the function has no slope there that can be told" in output
    assert "0 failed, 2 doubtful" in output


def test_findings_as_json(run):
    code, output = run("bad", "--json", "--order", "1")
    assert code == 1
    report = json.loads(output)
    assert report["failed"] == 3
    (found,) = (x for x in report["findings"] if (x["name"], x["check"]) == ("wrong", "jvp"))
    assert found["verdict"] == "FAIL"
    assert found["at_fault"] == "argument x, result[0]"
    assert found["found"] == pytest.approx(3 * found["wanted"], rel=1e-4)
    (found,) = (x for x in report["findings"] if (x["name"], x["check"]) == ("missing", "vjp"))
    assert found["found"] == "nan"


def test_what_takes_long_is_named(run, monkeypatch):
    monkeypatch.setattr(check, "PATIENCE", 0.0)
    assert "still running `right`, called at " in run("good")[1]
    monkeypatch.setattr(check, "PATIENCE", 1000.0)
    assert "still running" not in run("good")[1]


def test_other_inputs_can_be_asked_for(run):
    types = "--args", "f32[3]"
    assert run("absolute", *types, "--inputs", "1", "2")[0] == 0
    code, output = run("absolute", *types, "--inputs", "-2", "-1")
    assert code == 1
    assert "FAIL absolute jvp: the rule gives " in output
    assert "(of random arguments)" in output
    code, output = run("absolute", *types)
    assert code == 1
    assert "(negative)" in output
    for bounds in (("1", "1"), ("0", "inf")):
        code, output = run("absolute", *types, "--inputs", *bounds)
        assert code == 2
        assert "--inputs wants two numbers, the smaller one first" in output


def test_a_tolerance_is_a_finite_number(run):
    assert run("bad", "--order", "1", "--tolerance", "0.9")[1].count("FAIL wrong") == 0
    for tolerance in ("nan", "inf"):
        code, output = run("good", "--tolerance", tolerance)
        assert code == 2
        assert f"{tolerance} is no tolerance" in output


@pytest.mark.parametrize("suffix", ["mlirbc", "mlir"])
def test_rules_in_files(tmp_path, pullback_command, suffix):
    (tmp_path / "rules.py").write_text(RULES)
    target, path = f"{tmp_path}/rules.py:bad", tmp_path / f"program.{suffix}"
    types = "--args", "f32[3]"
    if suffix == "mlir":
        shown = pullback_command("dump", target, *types, "--stage", "program", "--rules")
        path.write_text(shown.stdout)
    else:
        pullback_command("derive", target, *types, "--vmap", "2", "-o", path)
    result = pullback_command("check", path, "--order", "1")
    assert result.exit_code == 1, result.output
    assert re.search(r"FAIL wrong\w* jvp: the rule gives", result.stdout)
    assert "rule: @wrong.jvp" in result.stdout
    refused = pullback_command("check", path, "--entry", "other")
    assert refused.exit_code == 2
    assert re.search("no (entry|function) .?`?@?other", refused.stderr)


CALLS = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "test_check.wrong" %x {decomposition = @sine}
    : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.composite "test_check.forward" %0 {decomposition = @sine}
    : (tensor<f32>) -> tensor<f32>
  %2 = stablehlo.custom_call @test_check_call(%1) : (tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}
func.func private @sine(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  return %0 : tensor<f32>
}
"""
PLUGIN = """from pullback.dialect.build import cos, mul
from pullback.rules.registry import rule

@rule("test_check.wrong")
class Wrong:
    @staticmethod
    def jvp(op, tangents):
        return []

    @staticmethod
    def vjp(op, cts):
        return [cts[0], cts[0]]

@rule("test_check.forward")
class WrongInForwardMode:
    @staticmethod
    def jvp(op, tangents):
        return [mul(tangents[0], mul(cos(op.x), 3.0))]

    @staticmethod
    def vjp(op, cts):
        return [mul(cts[0], cos(op.x))]
"""


@pytest.fixture
def checked_plugin(tmp_path, pullback_command):
    """The command for a module that has a composite with a registered rule, and a custom call."""
    module, rules = tmp_path / "calls.mlir", tmp_path / "plugin_of_test_check.py"
    module.write_text(CALLS)
    rules.write_text(PLUGIN)
    yield lambda *options: pullback_command("check", module, "--load-rules", rules, *options)
    forget_plugin()


def forget_plugin() -> None:
    for name in ("wrong", "forward"):
        registry.RULES.pop(f"test_check.{name}", None)


def test_a_custom_call_is_allowed_by_name(checked_plugin):
    refused = checked_plugin()
    assert refused.exit_code == 2
    assert "the file calls `test_check_call`, which runs whatever is" in refused.stderr
    forget_plugin()
    result = checked_plugin("--allow-custom-calls", "test_check_call", "--order", "1")
    assert result.exit_code == 1
    assert "checks of rules, 4 failed" in result.stdout


def test_both_modes_of_a_registered_rule_are_checked(checked_plugin):
    """Each mode by the function for it; JAX would transpose the one for reverse mode."""
    said = checked_plugin("--allow-custom-calls", "test_check_call", "--order", "1").stdout
    returned = "the rule raises RuleResultError: the rule for `test_check.wrong` in {} returned {}"
    place = "plugin_of_test_check"
    assert f"FAIL test_check.wrong jvp: {returned.format(place, '0 tangents instead of 1')}" in said
    assert f"FAIL test_check.wrong vjp: {returned.format(place, '2 cotangents instead')}" in said
    assert "rule: the rule registered for `test_check.wrong`: jvp at " in said
    assert f"{place}.py:6-8 and vjp at " in said
    assert f"{place}.py:10-12\n" in said
    assert "FAIL test_check.forward jvp: the rule gives " in said
    assert "FAIL test_check.forward duality: the inner product of the vjp is " in said
    assert "ok   test_check.forward: value, vjp, types, linearity, batch (" in said


def test_each_composite_is_checked_by_its_own_call(checked_plugin, tmp_path):
    """Without lines, composites of one name differ in attributes alone."""
    call = """  %{} = stablehlo.composite "test_check.forward" %{} {{
      composite_attributes = {{n = {} : i64}}, decomposition = @sine
    }} : (tensor<f32>) -> tensor<f32> loc(unknown)
"""
    text = "func.func @main(%0: tensor<f32>) -> tensor<f32> {\n"
    text += call.format(1, 0, 1) + call.format(2, 1, 2) + "  return %2 : tensor<f32>\n}\n"
    text += "".join(CALLS.partition("func.func private")[1:])
    (tmp_path / "calls.mlir").write_text(text)
    result = checked_plugin("--order", "1")
    assert result.stdout.count("FAIL test_check.forward jvp: the rule gives ") == 2
    assert "4 failed, 0 doubtful" in result.stdout


def test_a_target_that_has_the_rule_itself_is_its_call(run):
    code, output = run("right", "--order", "1")
    assert code == 0
    assert "ok   right: jvp, value, vjp, types, linearity, duality, batch (the target its" in output


def test_without_a_rule_there_is_nothing_to_check(run, tmp_path, pullback_command):
    code, output = run("without")
    assert code == 2
    assert "no rule was found: `" in output
    assert "name a function that calls one with custom_jvp, custom_vjp or linear_call" in output
    code, output = run("without", "--json")
    assert code == 2
    assert '"findings": []' in output
    exported = tmp_path / "exported.bin"
    exported.write_bytes(bytes(jax.export.export(jax.jit(jnp.sin))(1.0).serialize()))
    result = pullback_command("check", exported)
    assert result.exit_code == 2
    assert "jax.export leaves out the rules of functions" in result.stderr
    assert "save the function with pb.trace(f)" in result.stderr
