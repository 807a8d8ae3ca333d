"""`pullback-opt`: one test for each flag, and what it says about bad input."""

from __future__ import annotations

import io
import re
import shlex
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
from pullback import _jax, artifact
from pullback.passes import PASSES, PIPELINES, STOCK_PASSES, plugins
from pullback.tools.module_io import parse_module
from pullback_cli import opt as main
from pullback_runtime.files import _container
from tests.rounding import FUNCTION, close

pytestmark = pytest.mark.whole

SOURCE = """\
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  %1 = call @negate(%0) : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  return %x, %dx : tensor<f32>, tensor<f32>
}
func.func private @negate(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  return %0 : tensor<f32>
}
"""
MISSING_RULE = SOURCE.replace("jvp = @f.jvp", 'rule = "f#0"')
INVALID = SOURCE.replace("jvp = @f.jvp", "jvp = @nowhere")


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    """Runs the tool on a source; returns exit code, stdout and stderr."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def run_tool(source: str | bytes, *args: str, stdin: bool = False) -> tuple[int, str, str]:
        content = source.encode() if isinstance(source, str) else source
        path = tmp_path / "input.mlir"
        path.write_bytes(content)
        if stdin:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(SystemExit) as exit_info:
            main(["-" if stdin else str(path), *args], prog_name="pullback-opt")
        captured = capfd.readouterr()
        return exit_info.value.code, captured.out, captured.err

    return run_tool


@pytest.fixture
def crash(tmp_path) -> list[str]:
    return [f"--mlir-pass-pipeline-crash-reproducer={tmp_path / 'crash.mlir'}"]


def succeed(outcome: tuple[int, str, str]) -> tuple[str, str]:
    code, out, err = outcome
    assert code == 0, err
    return out, err


def fail(outcome: tuple[int, str, str], code: int = 1) -> str:
    assert outcome[0] == code
    assert outcome[1] == ""
    return outcome[2]


def test_without_flags_the_module_is_printed(run) -> None:
    out, err = succeed(run(SOURCE))
    assert 'stablehlo.composite "pullback.custom_jvp_call" %arg0' in out
    assert err == ""


def test_pass_pipeline(run) -> None:
    out, _ = succeed(run(SOURCE, "--pass-pipeline=builtin.module(inline-calls,to-stablehlo)"))
    assert "composite" not in out
    assert "call @f" in out


def test_short_flag_repeats(run) -> None:
    out, _ = succeed(run(SOURCE, "-p", "to-stablehlo", "-p", "inline-calls,cse"))
    assert "call" not in out


def test_passes_are_flags_in_the_order_given(run) -> None:
    _, err = succeed(
        run(SOURCE, "--cse", "--inline-calls=max-ops=3", "--cse", "--dump-pass-pipeline")
    )
    assert err == "builtin.module(cse,inline-calls{max-ops=3},cse)\n"


@pytest.mark.parametrize("name", sorted({*PASSES, *PIPELINES, *STOCK_PASSES}))
def test_every_pass_has_a_flag(run, name: str) -> None:
    wanted = {"vmap": "=size=2", "jet": "=order=2"}
    code, _, err = run("module {", f"--{name}{wanted.get(name, '')}")
    assert code == 1
    assert "No such option" not in err


def test_reads_standard_input(run) -> None:
    out, _ = succeed(run(SOURCE, stdin=True))
    assert "func.func @main" in out
    err = fail(run("module {", stdin=True))
    assert err.startswith("<stdin>:1:")


def test_output_file(run, tmp_path: Path) -> None:
    target = tmp_path / "out.mlir"
    out, _ = succeed(run(SOURCE, "-o", str(target)))
    assert out == ""
    assert "func.func @main" in target.read_text()
    err = fail(run(SOURCE, "-o", str(tmp_path / "no" / "out.mlir")))
    assert err == f"error: cannot write {tmp_path}/no/out.mlir: No such file or directory\n"


def test_bytecode_out_and_in(run, tmp_path: Path) -> None:
    target = tmp_path / "out.mlirbc"
    succeed(run(SOURCE, "--emit-bytecode", "-o", str(target)))
    assert _container.is_bytecode(target.read_bytes())
    assert succeed(run(target.read_bytes())) == succeed(run(SOURCE))


def test_portable_artifact_in(run) -> None:
    version = _jax.stablehlo.get_current_version()
    artifact = _jax.stablehlo.serialize_portable_artifact(parse_module(SOURCE), version)
    assert succeed(run(artifact)) == succeed(run(SOURCE))


def test_what_a_pass_makes_of_a_saved_program_can_be_read(run, tmp_path: Path) -> None:
    """The file's digest and its arguments are no more those of the module."""
    saved = artifact.serialize(pb.trace(lambda x: jnp.sin(x))(0.5))
    text, _ = succeed(run(saved, "--vjp"))
    assert "pullback.metadata" not in text
    target = tmp_path / "out.mlirbc"
    succeed(run(saved, "--cse", "--emit-bytecode", "-o", str(target)))
    close(pb.load(target)(0.5), jnp.sin(0.5), ops=FUNCTION)
    found = pb.load(text.encode())(jnp.float32(0.5), jnp.float32(2.0))
    assert jnp.allclose(found[1], 2 * jnp.cos(0.5))


def test_a_flag_that_is_not_there_is_no_remedy(run) -> None:
    code, _, errors = run('func.func @main() { "acme.op"() : () -> () return }')
    assert code == 1
    assert "unregistered dialect\n" in errors
    assert "\n  do:    lower it to StableHLO and CHLO" in errors
    assert "-allow-unregistered-dialect" not in errors


def test_split_input_file(run) -> None:
    both = f"{SOURCE}// -----\n{SOURCE}"
    out, _ = succeed(run(both, "--split-input-file", "--inline-calls"))
    assert out.count("// -----\n") == 1
    assert out.count("func.func @main") == 2
    assert "redefinition of symbol named 'main'" in fail(run(both))


def test_line_numbers_stay_true_in_a_split_file(run) -> None:
    err = fail(run(f"{SOURCE}// -----\n{INVALID}", "--split-input-file"))
    line = SOURCE.count("\n") + 3
    assert re.search(rf"input.mlir:{line}:8: error: custom_jvp_call_c3: `jvp` names @nowhere", err)


def test_split_bytecode_is_refused(run) -> None:
    both = f"{SOURCE}// -----\n{SOURCE}"
    err = fail(run(both, "--split-input-file", "--emit-bytecode"))
    assert "bytecode holds one module, and --split-input-file found 2" in err


def test_verify_diagnostics(run) -> None:
    expected = INVALID.replace("  %0 = ", "  // expected-error @+1 {{names @nowhere}}\n  %0 = ", 1)
    assert succeed(run(expected, "--verify-diagnostics")) == ("", "")


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("// expected-error @+1 {{names @elsewhere}}", "'names @elsewhere' was not produced"),
        ("// expected-error {{names @nowhere}}", "'names @nowhere' was not produced"),
        ("// expected-warning @+1 {{names @nowhere}}", "expected warning 'names @nowhere'"),
        ("// nothing expected", ":3:8: error: custom_jvp_call_c3"),
        ("// expected-eror @+1 {{names @nowhere}}", "looks like an expected diagnostic"),
        ("// expected-error @+1 {names @nowhere}", "looks like an expected diagnostic"),
    ],
)
def test_verify_diagnostics_finds_differences(run, comment: str, words: str) -> None:
    source = INVALID.replace("  %0 = ", f"  {comment}\n  %0 = ", 1)
    assert words in fail(run(source, "--verify-diagnostics"))


@pytest.mark.parametrize("place", ["@+1", "@3", "@below"])
def test_places_and_regular_expressions(run, place: str) -> None:
    comment = f"// expected-error-re {place} {{{{_c3: .* @no[a-z]+,}}}}"
    source = INVALID.replace("  %0 = ", f"  {comment}\n  %0 = ", 1)
    succeed(run(source, "--verify-diagnostics"))


def test_expected_error_that_does_not_come(run) -> None:
    err = fail(run(f"// expected-error @unknown {{{{boo}}}}\n{SOURCE}", "--verify-diagnostics"))
    assert "line 1: expected error 'boo' was not produced" in err


def test_verify_each_and_its_opposite(run) -> None:
    assert "custom_jvp_call_c3" in fail(run(INVALID, "--verify-each"))
    out, _ = succeed(run(INVALID, "--no-verify-each"))
    assert "@nowhere" in out


PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from pullback._jax import ir
from pullback.passes.base import Pass

@dataclass(frozen=True)
class Wrong(Pass):
    name: ClassVar[str] = "acme-wrong"

    def run(self, module, rules):
        wrong = ir.TypeAttr.get(ir.Type.parse("(tensor<f32>) -> tensor<2xf32>"))
        module.body.operations[0].attributes["function_type"] = wrong
"""


def test_verify_each_names_the_pass_that_makes_an_invalid_module(run, tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "_LOADED", {})
    path = tmp_path / "acme_wrong.py"
    path.write_text(PLUGIN)
    flags = f"--load-pass-plugin={path}", "--cse", "--acme-wrong", "--cse", "--verify-each"
    err = fail(run(SOURCE, *flags))
    assert "error: type of return operand 0 ('tensor<f32>') doesn't match" in err
    assert err.endswith("the module is invalid after the pass `acme-wrong`\n")


def test_print_ir_around_a_pass_that_is_none(run) -> None:
    for flag in ("before", "after"):
        err = fail(run(SOURCE, "-p", "cse", f"--mlir-print-ir-{flag}=cse,inline-call"), code=2)
        assert "error: no pass is named 'inline-call'" in err
        assert "did you mean inline-calls" in err


def test_print_ir_before_and_after_one_pass(run) -> None:
    _, err = succeed(run(SOURCE, "-p", "inline-calls,cse", "--mlir-print-ir-before=inline-calls"))
    assert err.count("IR Dump") == 1
    assert "IR Dump Before inline-calls" in err
    assert "call @negate" in err
    _, err = succeed(run(SOURCE, "-p", "inline-calls,cse", "--mlir-print-ir-after=inline-calls"))
    assert "IR Dump After inline-calls" in err
    assert "call @negate" not in err


@pytest.mark.parametrize(
    "stages",
    [
        "canonicalize{top-down=false},cse",
        "func.func(canonicalize{max-iterations=3})",
        "func.func(cse,canonicalize)",
    ],
)
def test_a_pass_is_printed_whatever_stands_around_its_name(run, stages: str) -> None:
    _, err = succeed(run(SOURCE, "-p", stages, "--mlir-print-ir-after=canonicalize"))
    assert err.count("IR Dump After") == 1


def test_a_pipeline_is_no_pass_to_print_around(run) -> None:
    err = fail(run(SOURCE, "--to-stablehlo", "--mlir-print-ir-after=to-stablehlo"), code=2)
    assert "error: 'to-stablehlo' is a pipeline, and no pass" in err
    assert "name one of its passes: lower-custom-derivatives,order-effects,simplify" in err


def test_print_ir_before_all(run) -> None:
    _, err = succeed(run(SOURCE, "-p", "inline-calls,cse", "--mlir-print-ir-before-all"))
    assert re.findall(r"IR Dump Before (\w+)", err) == ["InlineCalls", "CSEPass"]


def test_print_ir_after_all(run) -> None:
    _, err = succeed(run(SOURCE, "-p", "inline-calls,cse", "--mlir-print-ir-after-all"))
    assert re.findall(r"IR Dump After (\w+)", err) == ["InlineCalls", "CSEPass"]


def test_print_ir_after_change(run) -> None:
    _, err = succeed(run(SOURCE, "-p", "cse,inline-calls,cse", "--mlir-print-ir-after-change"))
    assert re.findall(r"IR Dump After (\w+)", err) == ["InlineCalls"]


def test_print_ir_after_failure(run) -> None:
    err = fail(run(MISSING_RULE, "-p", "cse,stage-rules", "--mlir-print-ir-after-failure"))
    assert re.findall(r"IR Dump After (\w+) Failed", err) == ["StageRules"]


def test_print_ir_tree_dir(run, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    succeed(run(SOURCE, "-p", "inline-calls,cse", f"--mlir-print-ir-tree-dir={tree}"))
    names = sorted(path.name for path in tree.rglob("*.mlir"))
    assert [name.partition("_")[2] for name in names] == ["inline-calls.mlir", "cse.mlir"]


def test_timing(run) -> None:
    _, err = succeed(run(SOURCE, "--inline-calls", "--cse", "--mlir-timing"))
    assert "Execution time report" in err
    assert "InlineCalls" in err
    assert "CSE" in err


def test_pass_statistics(run) -> None:
    _, err = succeed(run(SOURCE, "--cse", "--mlir-pass-statistics"))
    assert "Pass statistics report" in err
    assert "cse\n  (S)     11 ops before, 11 after\n" in err


def test_a_module_that_does_not_survive_a_round_trip(run, monkeypatch) -> None:
    succeed(run(SOURCE, "-verify-roundtrip"))
    other = SOURCE.replace("@negate", "@other").encode()
    monkeypatch.setattr("pullback.tools.module_io._module.to_bytecode", lambda _: other)
    err = fail(run(SOURCE, "-verify-roundtrip"))
    assert "error: the module is another one after a round trip through bytecode" in err


def test_elide_large_constants(run) -> None:
    source = """
func.func @main() -> tensor<4xf32> {
  %0 = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
    out, _ = succeed(run(source, "--mlir-elide-elementsattrs-if-larger=2"))
    assert "dense_resource<__elided__>" in out
    out, _ = succeed(run(source, "--mlir-elide-elementsattrs-if-larger=4"))
    assert "dense<[1.0" in out


def test_print_debuginfo(run) -> None:
    out, _ = succeed(run(SOURCE, "--mlir-print-debuginfo"))
    assert ":5:8)" in out
    assert "loc(" not in succeed(run(SOURCE))[0]


def test_print_op_generic(run) -> None:
    out, _ = succeed(run(SOURCE, "--mlir-print-op-generic"))
    assert '"func.call"(%' in out
    assert '"builtin.module"() ({' in out


def test_list_passes(run) -> None:
    out, _ = succeed(run("", "--list-passes"))
    for name in (*PASSES, *PIPELINES, *STOCK_PASSES):
        assert re.search(rf"^  {re.escape(name)} ", out, re.MULTILINE), name
    assert "max-ops                              an integer; default none" in out


def test_failed_pass_prints_a_command_and_writes_a_file_that_reproduce(run, crash) -> None:
    err = fail(run(MISSING_RULE, "--cse", "--stage-rules", *crash))
    assert "error: no derivative rule for key 'f#0' with mask '1'" in err
    assert "  do:    write the module with its rules in it" in err
    (command,) = re.findall("^reproduce with: (.*)$", err, re.MULTILINE)
    program, path, *flags = shlex.split(command)
    assert (program, flags) == ("pullback-opt", ["--pass-pipeline=builtin.module(cse,stage-rules)"])
    text = Path(path).read_text()
    for again in (run(text, *flags), run(text, "--run-reproducer")):
        assert "no derivative rule for key 'f#0'" in fail(again)
    assert "holds no `pipeline:` resource" in fail(run(SOURCE, "--run-reproducer"))


def test_no_reproducer_unless_asked(run, tmp_path) -> None:
    assert "reproduce" not in fail(run(MISSING_RULE, "--stage-rules"))
    assert [path.name for path in tmp_path.iterdir()] == ["input.mlir"]


def test_a_reproducer_holds_the_data_of_constants(run, crash) -> None:
    constant = "%c = stablehlo.constant dense_resource<table> : tensor<2xf32>"
    source = MISSING_RULE.replace("%1 = call", f"{constant}\n  %1 = call")
    source += '{-# dialect_resources: { builtin: { table: "0x0400000000004040000080BF" } } #-}'
    path = re.search("pullback-opt (.*mlir) ", fail(run(source, "--stage-rules", *crash)))[1]
    out, _ = succeed(run(Path(path).read_text()))
    assert ': "0x0400000000004040000080BF"' in out
    assert "no derivative rule" in fail(run(Path(path).read_text(), "--run-reproducer"))


def test_a_rule_that_raises_is_named_and_reproduced(run, crash, tmp_path: Path) -> None:
    rules = tmp_path / "raising rules.py"
    rules.write_text(
        "from pullback.autodiff.registry import elementwise\n"
        "elementwise('test_opt.raises', lambda op, t: op.nosuch)\n"
    )
    call = '"test_opt.raises" %x {decomposition = @f} : (tensor<f32>) -> tensor<f32>'
    source = SOURCE.replace("negate %x : tensor<f32>", f"composite {call}")
    err = fail(run(source, f"--load-rules={rules}", "--vjp", *crash))
    assert re.search("a rule for .* failed: AttributeError: .* no attribute 'nosuch'", err)
    assert f"where: {rules}:2, in <lambda>" in err
    assert "Traceback" not in err
    (command,) = re.findall("^reproduce with: (.*)$", err, re.MULTILINE)
    assert shlex.split(command)[2:] == [
        f"--load-rules={rules}",
        "--pass-pipeline=builtin.module(vjp)",
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("module {", "input.mlir:1:7: error: expected operation name in quotes"),
        ("func.func @f(%x: tensor<f33>)", "input.mlir:1:"),
        ("foo.bar", "error: Dialect `foo' not found for custom op 'foo.bar'"),
        (b"\xff\xfe", "the input is neither MLIR bytecode nor UTF-8 text: byte 0 is 0xff"),
        (b"\xff\xfe\x00", "this is neither StableHLO text or bytecode, nor what jax.export seri"),
        (b"ML\xefR\x01garbage", "error: "),
        (b"ML\xefR\x01StableHLO_v1.0.0\x00garbage", "the file is damaged: section 103"),
        (SOURCE.replace("return %1", "return %9"), "use of undeclared SSA value name"),
        (SOURCE.replace("decomposition = @f", "decomposition = @g"), "'g' does not reference"),
    ],
)
def test_bad_input(run, source: str | bytes, words: str) -> None:
    err = fail(run(source))
    assert words in err
    assert "Traceback" not in err


def test_an_error_shows_its_line_and_a_caret(run) -> None:
    constant = f"%c = stablehlo.constant dense<[{'1.0, ' * 999}]> : tensor<999xf32>"
    for body, at in (("\treturn %9 : i32", "%"), (f"{constant} return", "]")):
        line = f'func.func @"ü"() {{{body} }}'
        _, shown, caret = fail(run(f"module {{\n{line}\n}}")).splitlines()[:3]
        assert shown[caret.index("^")] == at
        assert shown == line or (len(shown) <= 160 and shown in line)


def test_what_jax_export_serialised(run) -> None:
    exported = jax.export.export(jax.jit(jnp.sin))(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        succeed(run(bytes(exported.serialize()), "--cse"))
    with pytest.warns(pb.LostRulesWarning):
        out, _ = succeed(run(bytes(exported.serialize()), "--jvp"))
    assert "stablehlo.cosine" in out


def test_a_text_whose_locations_name_a_rule_that_is_lost(run) -> None:
    halved = jax.custom_jvp(lambda x: 0.375 * x)
    halved.defjvp(lambda primals, tangents: (halved(*primals), tangents[0]))
    lines = jax.jit(lambda x: halved(x) ** 2).lower(1.0).as_text(debug_info=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        succeed(run(lines, "--cse"))
    with pytest.warns(pb.LostRulesWarning, match=r"custom_jvp_call at .*test_opt.py"):
        succeed(run(lines, "--jvp"))


def test_missing_file(run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main([str(tmp_path / "no.mlir")])
    assert exit_info.value.code == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-p", "inlin-calls"], "did you mean inline-calls?"),
        (["--inlin-calls"], "--inline-calls"),
        (["--inline-calls=max-op=3"], "did you mean max-ops?"),
        (["--cse", "--pass-pipeline=cse"], "the pipeline is given twice"),
        (["--no-such-flag"], "No such option '--no-such-flag'. --list-passes lists all passes; of"),
        (["--no-such-flag"], "a pass of your own, name its file: --load-pass-plugin"),
        (["--grad"], "A gradient is made by `pullback derive --grad`, and --vjp is the pass."),
        (["-p", "bogus"], "no pass is named 'bogus'\n  do:    list them: pullback opt --list-pa"),
        (["--load-pass-plugin=json"], "`json` defines no pass"),
        (["--mlir-elide-elementsattrs-if-larger=x"], "'x' is not a valid integer"),
    ],
)
def test_bad_usage(run, args: list[str], words: str) -> None:
    assert words in fail(run(SOURCE, *args), code=2)
