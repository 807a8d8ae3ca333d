"""`pullback info`: what a file says about itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import pullback

RULES = Path(__file__).parents[2] / "examples" / "rules.py"


@pytest.fixture
def saved(tmp_path, pullback_command) -> Path:
    """The gradient of the example, saved."""
    path = tmp_path / "gradient.mlirbc"
    result = pullback_command("derive", f"{RULES}:train_step", "--grad", "-o", path)
    assert result.exit_code == 0, result.stderr
    return path


def facts(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        found.setdefault(line[:18].strip(), []).append(line[18:])
    return found


def test_a_saved_program(pullback_command, saved):
    found = facts(pullback_command("info", saved).stdout)
    assert found["size"] == [f"{saved.stat().st_size:,} bytes"]
    assert found["format"] == ["MLIR bytecode of a saved program"]
    assert found["written by"][0].startswith("StableHLO_v1.")
    assert found["jax"] == [jax.__version__]
    assert found["platforms"] == ["cpu"]
    assert found["argument"][1] == "weights['first']: float32[8,12]"
    assert found["result"] == ["result: float32[4]"]
    assert "pullback.custom_vjp_call @clip_cotangent: bwd, fwd" in found["rule"]
    assert "pullback.linear_call @divide: transpose" in found["rule"]
    assert int(found["functions"][0]) > 10
    as_json = json.loads(pullback_command("info", saved, "--json").stdout)
    assert as_json["size"] == saved.stat().st_size
    assert as_json["arguments"][1] == {"path": "weights['first']", "type": "float32[8,12]"}
    rule = {"op": "pullback.linear_call", "function": "divide", "rules": ["transpose"]}
    assert {**rule, "exported": False, "refused": {}} in as_json["rules"]
    assert [str(as_json["functions"])] == found["functions"]


def test_any_module(pullback_command, tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text("func.func @main(%x: tensor<i32>) -> tensor<i32> { return %x : tensor<i32> }")
    found = facts(pullback_command("info", path).stdout)
    assert found["format"] == ["MLIR text"]
    assert found["argument"] == ["argument 0: int32[]"]
    assert found["calls with rules"] == ["0"]
    assert "give one" not in found


def test_functions_of_a_foreign_module_that_have_no_rule(pullback_command, tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text("""
      func.func @main(%x: tensor<f32>) -> tensor<f32> {
        %0 = stablehlo.composite "acme.f" %x {decomposition = @f} : (tensor<f32>) -> tensor<f32>
        %1 = func.call @f(%0) : (tensor<f32>) -> tensor<f32>
        %2 = func.call @f(%1) : (tensor<f32>) -> tensor<f32>
        return %2 : tensor<f32>
      }
      func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
    """)
    found = facts(pullback_command("info", path).stdout)
    assert found["without a rule"] == ["composite acme.f: 1 call", "function f: 2 calls"]
    assert found["give one"] == [
        "pb.load(file, rules={name: function}), function with jax.custom_jvp or custom_vjp; "
        "to a composite also by --load-rules"
    ]
    as_json = json.loads(pullback_command("info", path, "--json").stdout)
    assert as_json["without rules"][0] == {"name": "acme.f", "kind": "composite", "calls": 1}


def test_a_rule_that_locations_name_is_lost(pullback_command, tmp_path):
    @jax.custom_vjp
    def clipped(x):
        return jnp.minimum(x, 1.25)

    clipped.defvjp(lambda x: (clipped(x), None), lambda _, ct: (ct,))
    path = tmp_path / "model"
    path.write_bytes(jax.export.export(jax.jit(lambda x: clipped(x) ** 2))(1.0).serialize())
    place = r"of custom_vjp_call at .*test_info.py:\d+, in \S+"
    (found,) = facts(pullback_command("info", path).stdout)["lost rule"]
    assert re.fullmatch(place, found)
    as_json = json.loads(pullback_command("info", path, "--json").stdout)
    assert [f"of {call}" for call in as_json["lost rules"]] == [found]


def test_the_derivative_of_an_export_is_a_rule(pullback_command, tmp_path):
    exported = jax.export.export(jax.jit(lambda x: x * x))(1.0)
    path = tmp_path / "exported"
    path.write_bytes(exported.serialize(vjp_order=1))
    found = facts(pullback_command("info", path).stdout)
    assert found["format"] == ["what jax.export serialised"]
    assert found["rule"] == ["pullback.custom_vjp_call @function: the vjp of the export"]


def test_another_function_than_main(pullback_command, tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text("func.func @f(%x: tensor<i32>) -> tensor<i32> { return %x : tensor<i32> }")
    refused = pullback_command("info", path)
    assert refused.exit_code == 2
    assert "name the function to call: --entry …" in refused.stderr
    found = facts(pullback_command("info", path, "--entry", "f").stdout)
    assert found["argument"] == ["argument 0: int32[]"]


def test_what_does_not_parse_is_said_with_the_name_of_the_file(pullback_command, tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text("func.func @main(")
    said = pullback_command("info", path).stderr
    assert said.splitlines()[0].startswith(f"{path}:1:16: error: the file does not parse: ")
    assert said.splitlines()[1:] == [
        "func.func @main(",
        "               ^",
        "  do:    correct the text of the module there",
    ]
    refused = pullback_command("info", path.with_suffix(".py"))
    assert refused.exit_code == 2
    assert "m.py` is a file of Python, and `pullback info` describes saved pro" in refused.stderr
    assert "m.py:function" in refused.stderr


def test_mistakes(pullback_command, tmp_path):
    result = pullback_command("info", tmp_path / "absent.mlir")
    assert result.exit_code == 2
    assert "ArtifactError: cannot read" in result.stderr
    torn = tmp_path / "torn.mlirbc"
    torn.write_bytes(b"ML\xefR\x0d")
    result = pullback_command("info", torn)
    assert result.exit_code == 2
    assert "the file is damaged" in result.stderr


def test_the_order_that_a_file_was_saved_for(pullback_command, tmp_path):
    path, program = tmp_path / "once.mlirbc", pullback.trace(jax.nn.softplus)(1.0)
    program.save(path, order=1)
    assert facts(pullback_command("info", path).stdout)["rules"] == [
        "for derivatives up to order 1"
    ]
    program.save(path)
    assert "rules" not in facts(pullback_command("info", path).stdout)


def test_what_is_loaded_knows_how_often_it_can_be_differentiated(pullback_command, tmp_path):
    """A file that is saved from another one has no more rules than that."""
    path, program = tmp_path / "again.mlirbc", pullback.trace(jax.nn.softplus)(1.0)
    program.save(path, order=2)
    loaded = pullback.load(path)

    def said(again, **options):
        again.save(path, **options)
        return facts(pullback_command("info", path).stdout)["rules"]

    assert said(loaded) == said(loaded, order=5) == ["for derivatives up to order 2"]
    assert said(loaded, order=1) == ["for derivatives up to order 1"]
    for derived in (loaded.grad(), loaded.jvp(), loaded.vjp(), *loaded.split_vjp()):
        assert said(derived) == ["for derivatives up to order 1"]
    assert said(loaded.grad().grad()) == ["for derivatives up to order 0"]
