"""MLIR locations point at the user's line."""

from __future__ import annotations

import inspect
import re
import types
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
from pullback import _jax
from pullback._jax import ir
from pullback.ir import locations, ops
from pullback_runtime._jax import operations_named


def inner(x):
    return jax.nn.softplus(x)


def test_a_kept_call_inside_a_scan_names_its_line() -> None:
    def body(carry, _):
        return inner(jnp.cumprod(carry)), None

    line = inspect.getsourcelines(body)[1] + 1
    program = pb.trace(lambda x: jax.lax.scan(body, x, None, length=3)[0])(jnp.ones(3))
    calls = ops.walk_calls(program.module)
    found = {call.rule_key: locations.user_line_of(call.op) for call in calls}
    assert set(found) == {"cumprod", "logaddexp"}
    assert program.rules["cumprod"].where.endswith(
        f"test_locations.py:{line}, in test_a_kept_call_inside_a_scan_names_its_line.body"
    )
    assert all("pullback/frontend" not in str(where) for where in found.values())


def test_the_innermost_frame_is_the_one_named() -> None:
    program = pb.trace(lambda x: inner(x) * jnp.sin(x))(1.0)
    line = inspect.getsourcelines(inner)[1] + 1
    assert program.rules["logaddexp"].where.endswith(f"test_locations.py:{line}, in inner")
    text = program.asm(debug_info=True)
    assert 'test_locations.py"' in text
    assert "pullback/frontend" not in text
    assert "pullback/frontend" not in str(program)


def test_a_location_of_a_file_without_python() -> None:
    with _jax.context():
        module = ir.Module.parse(
            "module { func.func @f(%x: tensor<f32>) -> tensor<f32> {\n"
            '  %0 = stablehlo.sine %x : tensor<f32> loc("model.mlir":7:3)\n'
            "  return %0 : tensor<f32>\n} }"
        )
    (function,) = module.body.operations
    sine = function.regions[0].blocks[0].operations[0]
    assert locations.user_line_of(sine) == "model.mlir:7:3"
    unknown = ir.Location.unknown(module.context)
    assert locations.user_line(unknown) is None


def test_locations_as_other_frontends_write_them() -> None:
    """Several places at once, a call, a range, and names without a file."""
    written = {
        'loc(fused<"meta">["x.py":5:6, "y.py":7:8])': "x.py:5:6",
        'loc(fused["op", "x.py":5:6])': "x.py:5:6",
        'loc(callsite("x.py":5:6 at "y.py":7:8))': "x.py:5:6",
        'loc("x.py":5:6 to :9)': "x.py:5:6",
        'loc("aten::sin"("x.py":5:6))': "x.py:5, in aten::sin",
        'loc(fused<"meta">["aten::sin"("x.py":5:6), unknown])': "x.py:5, in aten::sin",
        'loc(""("x.mlir":5:6))': "x.mlir:5:6",
        'loc(""(""("x.mlir":5:6)))': "x.mlir:5:6",
        'loc(""("aten::sin"("x.py":5:6)))': "x.py:5, in aten::sin",
        'loc("aten::sin")': None,
    }
    with _jax.context():
        for text, place in written.items():
            module = ir.Module.parse(f"module {{}} {text}")
            assert locations.user_line(module.operation.location) == place, text


def test_names_that_are_not_ascii() -> None:
    with ir.Context() as context:
        plain = ir.Location.file("caf\u00e9\\n.mlir", 3, 5, context)
        assert locations.user_line(plain) == "caf\u00e9\\n.mlir:3:5"
        named = ir.Location.name("gr\u00f6\u00dfe", plain, context)
        assert locations.user_line(named) == "caf\u00e9\\n.mlir:3, in gr\u00f6\u00dfe"


def test_a_frame_is_described_relative_to_the_working_directory(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert locations.describe(f"{tmp_path}/model.py", 3, "A.<locals>.f") == "model.py:3, in A.f"
    assert locations.describe("/elsewhere/model.py", 3, "f") == "/elsewhere/model.py:3, in f"
    monkeypatch.chdir(tmp_path.parent)
    assert locations.describe(f"{tmp_path}/model.py", 3, "f") == f"{tmp_path.name}/model.py:3, in f"


def library(name: str) -> Any:
    """A module as one that is installed, whose functions call the one that they are given."""
    code = "def outer(f, x):\n    return inner(f, x)\n\ndef inner(f, x):\n    return f(x)\n"
    made = types.ModuleType(name)
    exec(compile(code, f"/python/site-packages/{name}.py", "exec"), made.__dict__)
    return made


def test_a_line_of_a_library_names_the_one_that_called_it() -> None:
    solver = library("solver")

    def run(x):
        return solver.outer(jnp.cumprod, x) + solver.outer(jnp.sin, x)

    place = f"test_locations.py:{inspect.getsourcelines(run)[1] + 1}, in "
    expected = f"site-packages/solver.py:5, in inner, called at .*{re.escape(place)}.*run$"
    program = pb.trace(run)(jnp.ones(3))
    assert re.search(expected, program.rules["cumprod"].where)
    (sine,) = operations_named(program.module, "stablehlo.sine")
    assert re.search(expected, locations.user_line_of(sine))


def test_an_error_in_a_library_names_the_line_that_called_it() -> None:
    solver = library("solver")

    def fail(x):
        raise ValueError(x)

    with pytest.raises(ValueError, match="1") as caught:
        solver.outer(fail, 1)
    assert ", called at" not in locations.of_error(caught.value)
    with pytest.raises(TypeError) as caught:
        solver.outer(None, 1)
    line = f"test_locations.py:{inspect.currentframe().f_lineno - 1}, in test_an_error"
    found = locations.of_error(caught.value)
    assert found.startswith("/python/site-packages/solver.py:5, in inner, called at ")
    assert line in found
