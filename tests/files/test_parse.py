"""Whole files of ours go through StableHLO's own passes, set up once and not verified again."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback._jax import ir
from pullback.files import vhlo_gaps
from pullback.ir import ops
from pullback_runtime import _jax
from pullback_runtime.files import _container
from pullback_runtime.ir import _module
from tests.files import models
from tests.files.test_golden import each_file

ROOT = Path(__file__).parents[2]
LIT_FILES = sorted((ROOT / "lit_tests" / "rules").glob("*/*.mlir"))
TARGETS = ("1.9.0", _jax.stablehlo.get_current_version())


def check_parse(content: bytes) -> None:
    """The same module, with locations, as StableHLO's own deserialiser makes.

    Also where it is not seen that ops are older than this StableHLO.
    """
    expected = asm(_module.parse(content))
    for strings in (content[slice(*_container.read_layout(content).strings)], b""):
        module = _module.parse(content, strings=strings)
        assert module.operation.verify()
        assert asm(module) == expected


def asm(module: ir.Module) -> str:
    return module.operation.get_asm(enable_debug_info=True, assume_verified=True)


@each_file
def test_golden_files_parse_as_with_stablehlos_own_deserialiser(path):
    check_parse(path.read_bytes())


def test_ops_are_brought_to_current_versions_only_where_they_are_older(monkeypatch):
    run = []
    passes = _jax._passes
    monkeypatch.setattr(
        _jax, "_passes", lambda text, context: run.append(text) or passes(text, context)
    )
    program = pb.trace(lambda x: jnp.sin(x @ x))(jnp.ones((2, 2)))
    for target in ("1.0.0", _jax.stablehlo.get_current_version()):
        pb.load(artifact.serialize(program, target=target), trusted=True)
    older, newer = run
    assert "vhlo-to-version" in older
    assert "vhlo-to-version" not in newer


def test_names_of_functions_may_look_like_those_of_ops():
    name = "sine_v" + "9" * 5000  # more digits than Python makes a number of
    text = f"""func.func @main(%x: tensor<f32>) -> tensor<f32> {{
      %0 = call @{name}(%x) : (tensor<f32>) -> tensor<f32>
      %1 = call @tanh_v1(%0) : (tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }}
    func.func private @{name}(%x: tensor<f32>) -> tensor<f32> {{ return %x : tensor<f32> }}
    func.func private @tanh_v1(%x: tensor<f32>) -> tensor<f32> {{ return %x : tensor<f32> }}"""
    check_parse(artifact.serialize(pb.load(text.encode())))


def test_vhlo_of_other_writers():
    """Old exports of JAX have MLIR's name in place of StableHLO's; tools write such text."""
    module = pb.trace(jnp.sin)(1.0).module
    written = _jax.stablehlo.serialize_portable_artifact(module, "1.0.0")
    vhlo = ir.Module.parse(written, _jax.context())
    assert "vhlo.sine_v1" in str(vhlo)  # of which there is a newer version
    for content in str(vhlo).encode(), _module.to_bytecode(vhlo):
        assert pb.load(content).jvp()(0.0, 2.0)[1] == 2
        assert pullback_runtime.compile(content)(np.float32(0))[0] == 0


def portable(text: str, version: str) -> bytes | None:
    """A portable artifact of a lit file; None where VHLO cannot hold it."""
    with _jax.context(), ir.Location.unknown():
        try:
            module = ir.Module.parse(text)
            vhlo_gaps.wrap_chlo(module)
            return _jax.stablehlo.serialize_portable_artifact(module, version)
        except (ir.MLIRError, ValueError):
            return None


@pytest.mark.parametrize("version", TARGETS)
def test_all_ops_parse_as_with_stablehlos_own_deserialiser(version):
    texts = [path.read_text().split("// -----")[0] for path in LIT_FILES]
    contents = [content for text in texts if (content := portable(text, version))]
    assert len(contents) > 90
    for content in contents:
        check_parse(content)


NESTED = """func.func @main(%x: tensor<f32>, %p: tensor<i1>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  %1 = "stablehlo.if"(%p) ({
    %2 = stablehlo.sine %0 : tensor<f32>
    %3 = "stablehlo.if"(%p) ({
      %4 = stablehlo.sine %2 : tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }, {
      stablehlo.return %x : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    stablehlo.return %3 : tensor<f32>
  }, {
    %2 = stablehlo.sine %x : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<i1>) -> tensor<f32>
  return %1 : tensor<f32>
}"""


@pytest.mark.parametrize(("name", "count"), [("stablehlo.sine", 4), ("stablehlo.if", 2)])
def test_operations_are_found_wherever_they_are(name, count):
    module = _module.parse(NESTED.encode())
    walked = []

    def visit(op):
        walked.extend([op] if op.name == name else [])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.POST_ORDER)
    assert _jax.operations_named(module, name) == walked
    assert len(walked) == count
    assert _jax.operations_named(module, "stablehlo.cosine") == []


def test_strings_of_composites_of_others_stay_strings():
    text = """module {
      func.func @main(%x: tensor<f32>) -> tensor<f32> {
        %0 = stablehlo.composite "other.call" %x {
          composite_attributes = {jvp = "f.jvp"}, decomposition = @f
        } : (tensor<f32>) -> tensor<f32>
        %1 = stablehlo.composite "pullback.custom_jvp_call" %0 {
          composite_attributes = {jvp = @f.jvp}, decomposition = @f
        } : (tensor<f32>) -> tensor<f32>
        %2 = stablehlo.composite "pullback.custom_jvp_call" %1 {
          composite_attributes = {jvp = @f.jvp}, decomposition = @f
        } : (tensor<f32>) -> tensor<f32>
        return %2 : tensor<f32>
      }
      func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
      func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>)
          -> (tensor<f32>, tensor<f32>) { return %x, %dx : tensor<f32>, tensor<f32> }
    }"""
    loaded = pb.load(artifact.serialize(pb.load(text.encode())))
    composites = ops.named_composites(loaded.module)
    assert [(name, str(op.attributes["composite_attributes"])) for name, op in composites] == [
        ("other.call", '{jvp = "f.jvp"}'),
        ("pullback.custom_jvp_call", "{jvp = @f.jvp}"),
        ("pullback.custom_jvp_call", "{jvp = @f.jvp}"),
    ]


def test_a_module_that_a_pass_has_broken_is_not_saved(monkeypatch):
    """No one verifies it when it is loaded."""

    def break_types(module):
        block = module.body.operations[0].regions[0].blocks[0]
        block.arguments[0].set_type(ir.Type.parse("tensor<5xf32>", module.context))

    monkeypatch.setattr(vhlo_gaps, "drop_sharding_hints", break_types)
    with pytest.raises(pb.ArtifactError, match=r"the program is not valid.*\n.*tensor<5xf32>") as e:
        artifact.serialize(models.program())
    assert "pullback has edited its module" in e.value.do
