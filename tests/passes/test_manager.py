"""Pipelines: the two ways to run them, their errors, and what reproduces a failure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.errors import MissingRuleError, PipelineError, VerificationError
from pullback.ir.masks import Asked
from pullback.ir.symbols import Symbols
from pullback.passes.base import NO_RULES, Pass
from pullback.passes.manager import run_pipeline
from pullback.tools.module_io import pipeline_of_reproducer

SOURCE = """
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @negate(%x) : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.abs %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @negate(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  return %0 : tensor<f32>
}
"""


def parse(source: str = SOURCE) -> ir.Module:
    return ir.Module.parse(source, _jax.context())


class Stop(Exception):
    """An exception that MLIR knows nothing of."""


@dataclass(frozen=True)
class Fail(Pass):
    """Raise."""

    name: ClassVar[str] = "fail"

    def run(self, module, rules) -> None:
        raise Stop("stopped by the test")


@dataclass(frozen=True)
class BreakModule(Pass):
    """Make the type of a result wrong."""

    name: ClassVar[str] = "break-module"

    def run(self, module, rules) -> None:
        function = module.body.operations[0]
        f64 = ir.RankedTensorType.get([], ir.F64Type.get())
        function.regions[0].blocks[0].operations[0].results[0].set_type(f64)


@dataclass(frozen=True)
class BreakRule(Pass):
    """Add a derivative op whose rule is not in the module."""

    name: ClassVar[str] = "break-rule"

    def run(self, module, rules) -> None:
        from pullback.ir import build, ops

        block = module.body.operations[0].regions[0].blocks[0]
        x = block.arguments[0]
        place, loc = ir.InsertionPoint(block.operations[0]), ir.Location.unknown(module.context)
        with build.inserting(place, loc):
            ops.call(ops.CustomJVPCall, "negate", [x], [x.type], jvp="nowhere")


@pytest.mark.parametrize("verify_each", [False, True])
def test_ours_and_stock_passes_mix(verify_each: bool) -> None:
    module = parse()
    run_pipeline(
        module,
        "builtin.module(inline-calls,func.func(trivial-dce),symbol-dce)",
        verify_each=verify_each,
    )
    text = str(module)
    assert "call" not in text
    assert "stablehlo.abs" not in text
    assert "@negate" not in text
    assert text.count("stablehlo.negate") == 1


def test_passes_can_be_given_as_objects() -> None:
    module = parse()
    from pullback.passes.inline_calls import InlineCalls

    run_pipeline(module, [InlineCalls(), "func.func(trivial-dce)"])
    assert "call" not in str(module)
    assert "stablehlo.abs" not in str(module)


@dataclass(frozen=True)
class Choose(Pass):
    """Do nothing."""

    name: ClassVar[str] = "choose"
    how: Literal["a", "b"] = "a"
    maybe: Literal["c"] | None = None
    several: tuple[Literal["d", "e"], ...] = ()

    def run(self, module, rules) -> None:
        pass


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ([Choose], r"a pipeline is a text, or a list of .* this is the class Choose\n.*\[Choose\("),
        (Choose(), r"this is an object of the class Choose\n  do:    write \[Choose\(\), 'cse'\]"),
        ([3], "this is an object of the class int"),
        ([Choose(how="z")], "pass 'choose': option 'how' takes one of a, b, and got 'z'"),
        ([Choose(maybe="z")], "pass 'choose': option 'maybe' takes one of c, and got 'z'"),
        (
            [Choose(several=("d", "z"))],
            r"option 'several' takes one of d, e or several.*\('d', 'z'",
        ),
    ],
)
def test_what_is_no_pipeline_is_one_error(pipeline, words) -> None:
    run_pipeline(parse(), [Choose("b", "c", ("d", "e")), Choose()])
    with pytest.raises(PipelineError, match=words):
        run_pipeline(parse(), pipeline)


@pytest.mark.parametrize("verify_each", [False, True])
def test_exception_of_a_pass_surfaces_unchanged(verify_each: bool) -> None:
    with pytest.raises(Stop, match="stopped by the test"):
        run_pipeline(parse(), [Fail()], verify_each=verify_each)


def test_failure_writes_a_reproducer_with_the_module_as_it_was(tmp_path) -> None:
    path = str(tmp_path / "crash.mlir")
    with pytest.raises(Stop) as caught:
        run_pipeline(parse(), ["inline-calls", Fail()], reproducer=path)
    culprit, note = caught.value.__notes__
    assert culprit == "in the pass `fail`"
    pipeline = "builtin.module(inline-calls,fail)"
    assert note == f"reproduce with: pullback-opt {path} '--pass-pipeline={pipeline}'"
    text = Path(path).read_text()
    assert pipeline_of_reproducer(text) == pipeline
    assert "call @negate" in str(parse(text))


def test_a_reproducer_that_cannot_be_written(tmp_path) -> None:
    with pytest.raises(PipelineError, match=r"cannot write the reproducer .*: No such file"):
        run_pipeline(parse(), [Fail()], reproducer=str(tmp_path / "no" / "crash.mlir"))


def test_verify_each_finds_invalid_ir() -> None:
    with pytest.raises(PipelineError, match=r"break-module,cse\) failed") as caught:
        run_pipeline(parse(), ["symbol-dce", BreakModule(), "cse"], verify_each=True)
    assert isinstance(caught.value.__cause__, ir.MLIRError)
    assert "type of return operand 0 ('tensor<f64>')" in str(caught.value)
    assert str(caught.value).endswith("the module is invalid after the pass `break-module`")


def test_verify_each_finds_broken_constraints() -> None:
    words = "custom_jvp_call_c3: `jvp` names @nowhere"
    with pytest.raises(VerificationError, match=words) as caught:
        run_pipeline(parse(), [BreakRule()], verify_each=True)
    assert caught.value.__notes__ == ["the module is invalid after the pass `break-rule`"]


def test_stock_pass_that_fails_is_named() -> None:
    source = "func.func @main(%x: tensor<f32>) { chlo.sinh %x : tensor<f32> -> tensor<f32> return }"
    with pytest.raises(PipelineError, match="'stablehlo-legalize-to-vhlo' failed"):
        run_pipeline(parse(source), "stablehlo-legalize-to-vhlo")


def test_no_rules_names_key_kind_and_mask() -> None:
    with pytest.raises(MissingRuleError, match=r"no jvp rule for key 'f#0' with mask '01'"):
        NO_RULES.stage(Symbols(parse()), "f#0", "jvp", Asked("01"))


def test_empty_pipeline_changes_nothing() -> None:
    module = parse()
    before = str(module)
    run_pipeline(module, "builtin.module()")
    run_pipeline(module, "")
    assert str(module) == before
