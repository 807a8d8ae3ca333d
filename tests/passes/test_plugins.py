"""Passes and rules of installed packages: entry points of `pullback.passes`, `pullback.rules`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
from pullback import _jax
from pullback._jax import ir
from pullback.autodiff import registry
from pullback.autodiff.batch_rules import BATCHES
from pullback.dialect import build
from pullback.errors import DuplicateRuleError, MissingRuleError, PipelineError, PluginError
from pullback.passes import plugins
from pullback.passes.base import Pass
from pullback.passes.list_passes import list_passes
from pullback.passes.manager import run_pipeline
from pullback_runtime import _jax as runtime_jax


@dataclass(frozen=True)
class Mark(Pass):
    """Mark the module."""

    name: ClassVar[str] = "acme-mark"
    times: int = 1

    def run(self, module, rules) -> None:
        module.operation.attributes["acme.marked"] = ir.StringAttr.get("x" * self.times)


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Installs a distribution that has these entry points."""
    monkeypatch.syspath_prepend(tmp_path)
    metadata = tmp_path / "acme-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: acme\nVersion: 1.0\n")

    def installs(group: str, *points: tuple[str, str]) -> None:
        lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points)]
        (metadata / "entry_points.txt").write_text("\n".join(lines))

    return installs


@pytest.fixture
def install(distribution, monkeypatch):
    """Installs passes as entry points; their module is `acme`, with the pass above."""
    module = types.ModuleType("acme")
    module.Mark, module.text = Mark, "no pass"
    monkeypatch.setitem(sys.modules, "acme", module)

    def installs(*points: tuple[str, str]) -> None:
        distribution(plugins.GROUP, *points)
        plugins.installed.cache_clear()

    yield installs
    plugins.installed.cache_clear()


def run(pipeline: str, source: str = "") -> str:
    module = ir.Module.parse(source, _jax.context())
    run_pipeline(module, pipeline)
    return str(module)


@dataclass(frozen=True)
class EraseInUse(Pass):
    """Erase each sine, whether its result is used or not."""

    name: ClassVar[str] = "acme-erase"
    unused: bool = False

    def run(self, module, rules) -> None:
        for op in runtime_jax.operations_named(module, "stablehlo.sine"):
            if self.unused:
                op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


SINE = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  %1 = stablehlo.cosine %0 : tensor<f32>
  return %1 : tensor<f32>
}"""


@pytest.mark.parametrize("options", [{}, {"verify_each": True}], ids=["fast", "instrumented"])
def test_a_pass_that_erases_an_op_in_use_is_an_error(options) -> None:
    """The process ended later, with nothing printed."""
    module = ir.Module.parse(SINE, _jax.context())
    with pytest.raises(PipelineError) as caught:
        run_pipeline(module, [EraseInUse()], **options)
    assert caught.value.message == (
        "the pass `acme-erase` erases `stablehlo.sine`, and `stablehlo.cosine` uses what it gives"
    )
    assert '"-":3:' in caught.value.where
    assert "replace_all_uses_with(value)" in caught.value.do
    assert "stablehlo.sine" in str(module)
    run_pipeline(module, [EraseInUse(unused=True)], **options)
    assert "stablehlo.sine" not in str(module)


def test_a_pass_of_an_installed_package_runs_and_is_listed(install) -> None:
    install(("acme-mark", "acme:Mark"))
    assert 'acme.marked = "xx"' in run("acme-mark{times=2},cse")
    assert "\n  acme-mark " in list_passes()


MARK = "acme-mark", "acme:Mark"


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([(MARK[0], "no:M")], "'acme-mark' of an installed package cannot be imported: Module"),
        ([(MARK[0], "acme:No")], "'acme-mark' of an .* cannot be imported: AttributeError: "),
        ([(MARK[0], "acme:text")], "the entry point 'acme-mark' is no pass of this name"),
        ([MARK, ("acme-two", MARK[1])], "the entry point 'acme-two' is no pass of this name"),
        ([MARK, (MARK[0], "b:C")], r"two passes are named 'acme-mark'\n.* and acme 1\.0 \(b:C\)"),
        ([MARK, ("jvp", "b:C")], r"two passes are named 'jvp'\n.*: pullback and acme 1\.0 \(b:C\)"),
    ],
)
def test_a_broken_plug_in_is_one_error(install, points, words) -> None:
    install(*points)
    with pytest.raises(PluginError, match=words):
        run("acme-two" if ("acme-two", MARK[1]) in points else "acme-mark")


def test_rules_of_an_installed_package_are_imported(tmp_path, distribution) -> None:
    rules = "from pullback.rules.registry import elementwise\n"
    rules += "elementwise('{}', lambda op, t: t)\n"
    (tmp_path / "acme_plugin_rules.py").write_text(rules.format("acme.of_a_package"))
    (tmp_path / "acme_second_rules.py").write_text(rules.format("stablehlo.sine"))
    distribution(registry.PLUGINS, ("acme", "acme_plugin_rules"))
    registry.load_all()
    registry.load_installed()
    assert registry.RULES.pop("acme.of_a_package").module == "acme_plugin_rules"
    distribution(registry.PLUGINS, ("acme", "acme_second_rules"))
    with pytest.raises(DuplicateRuleError, match=r"two rules for `stablehlo\.sine`"):
        registry.load_installed()
    distribution(registry.PLUGINS, ("acme", "acme_no_rules"))
    words = r"the rules 'acme' of an installed package cannot be imported: .*\n.*\(acme_no_rules\)"
    with pytest.raises(PluginError, match=words):
        registry.load_installed()


DOCS = Path(__file__).parents[2] / "docs"
CALL = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @acme_sine(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}"""


def test_a_rule_for_the_custom_calls_of_one_target() -> None:
    registry.load_all()
    with pytest.raises(MissingRuleError, match="@acme_sine"):
        run("vjp", CALL)
    name = "stablehlo.custom_call @acme_sine"
    registry.elementwise(name, lambda op, t: build.mul(t, build.cos(op.x)))
    try:
        assert "stablehlo.cosine" in run("vjp", CALL)
        typed = CALL.replace("(%x) :", "(%x) {api_version = 4 : i32} :").encode()
        function = pb.load(typed, allow_custom_calls={"acme_sine"}).as_jax()
        assert jax.eval_shape(jax.grad(function), jnp.float32(0.0)).shape == ()
    finally:
        del registry.RULES[name], BATCHES[name]


@pytest.fixture
def page() -> str:
    return (DOCS / "plugins.md").read_text()


def test_the_page_names_every_builder(page) -> None:
    own = {
        name
        for name, value in vars(build).items()
        if getattr(value, "__module__", None) in ("pullback.ir.build", "pullback.ir.types")
    }
    assert len(own) > 80
    assert {name for name in own - {"Here"} if not re.search(rf"\b{name}\b", page)} == set()


def test_the_page_names_every_member_of_an_op(page) -> None:
    ours = {"frame", "info", "rule", "wide"}  # of the drivers and of rules with regions
    members = {name for name in vars(registry.Op) if name[0] != "_"}
    assert {name for name in members if f"`op.{name}" not in page} == ours


LIT_TESTS = {
    "rule": """
// RUN: pullback-opt --load-rules %S/rules.py --vjp %s | filecheck %s
// RUN: env JAX_ENABLE_X64=1 pullback-opt --load-rules %S/rules.py --vjp %s | filecheck %s
// CHECK: stablehlo.custom_call @acme_tanh(%arg0)
// CHECK: stablehlo.subtract
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @acme_tanh(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
""",
    "pass": """
// RUN: pullback-opt -load-pass-plugin %S/passes.py -acme-expand-powers %s | filecheck %s
// RUN: pullback opt %s | not filecheck %s
// CHECK-NOT: stablehlo.power
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %c = stablehlo.constant dense<3.0> : tensor<f32>
  %0 = stablehlo.power %x, %c : tensor<f32>
  return %0 : tensor<f32>
}
""",
}


def test_rules_passes_and_lit_tests_as_in_the_docs(tmp_path) -> None:
    """A user's own suite of lit tests runs in the server."""
    for page, language, file in (
        ("plugins.md", "python", "rules.py"),
        ("write_a_pass.md", "python", "passes.py"),
        ("lit_test.md", "py", "lit.cfg.py"),
    ):
        text = (DOCS / page).read_text()
        (tmp_path / file).write_text(re.findall(rf"```{language}\n(.*?)```", text, re.S)[0])
    for name, test in LIT_TESTS.items():
        (tmp_path / f"{name}.mlir").write_text(test)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    tests = [str(tmp_path / f"{name}.mlir") for name in LIT_TESTS]
    command = [sys.executable, "-c", "from lit.main import main; main()", "-v", *tests]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "Passed: 2" in ran.stdout
