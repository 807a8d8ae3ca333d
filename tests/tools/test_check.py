"""`pullback check`: right rules pass, wrong ones are named with the user's line."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from pullback.tools import rule_checks
from pullback.tools.cli import main

RULES = """
import jax, jax.numpy as jnp

@jax.custom_jvp
def right(x):
    return jnp.sin(x)

@jax.custom_jvp
def wrong(x):
    return jnp.sin(x)

@jax.custom_vjp
def missing(x):
    return 2 * x

@jax.custom_jvp
def nowhere(x):
    return jnp.log(-x)

nowhere.defjvp(lambda p, t: (nowhere(*p), t[0] / p[0]))
right.defjvp(lambda p, t: (right(*p), jnp.cos(p[0]) * t[0]))
wrong.defjvp(lambda p, t: (wrong(*p), 3 * jnp.cos(p[0]) * t[0]))
missing.defvjp(lambda x: (2 * x, x), lambda x, ct: (ct * jnp.nan,))

def good(x):
    return jax.lax.map(right, x)

def bad(x):
    return wrong(missing(x))

def elsewhere(x):
    return nowhere(x)
"""


def run(folder: Path, function: str) -> tuple[int, str]:
    (folder / "rules.py").write_text(RULES)
    result = CliRunner().invoke(
        main, ["check", f"{folder}/rules.py:{function}", "--args", "f32[3]"]
    )
    return result.exit_code, result.output


def test_right_rules_pass(tmp_path):
    code, output = run(tmp_path, "good")
    assert code == 0
    assert "ok   right jvp: largest relative difference" in output
    assert "2 checks of rules, 0 failed" in output


def test_wrong_rules_are_named_with_their_line(tmp_path):
    code, output = run(tmp_path, "bad")
    assert code == 1
    assert "FAIL wrong vjp: relative difference 0.67 to central differences" in output
    assert "FAIL missing vjp: the rule gives nan" in output
    assert "rules.py:29, in bad" in output
    assert "4 checks of rules, 4 failed" in output


def test_a_function_that_is_not_defined_at_random_inputs_says_nothing_of_its_rules(tmp_path):
    code, output = run(tmp_path, "elsewhere")
    assert code == 0
    assert "skip nowhere: the function is not finite" in output
    assert "rules.py:" in output
    assert "0 checks of rules, 0 failed, 1 skipped" in output


def test_what_takes_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(rule_checks, "PATIENCE", 0.0)
    assert "still running `right`, called at " in run(tmp_path, "good")[1]
    monkeypatch.setattr(rule_checks, "PATIENCE", 1000.0)
    assert "still running" not in run(tmp_path, "good")[1]
