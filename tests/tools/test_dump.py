"""`pullback dump`: every stage, every platform, one file per stage."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb

RULES = Path(__file__).parents[2] / "examples" / "rules.py"
STAGE_FILES = ["hlo.txt", "jaxpr.txt", "kept.txt", "program.mlir", "stablehlo.mlir"]


@pytest.mark.parametrize(
    ("stage", "present", "absent"),
    [
        ("jaxpr", "custom_jvp_call[", "pullback"),
        ("kept", "= pullback.custom_jvp_call[", "jvp="),
        ("program", 'stablehlo.composite "pullback.custom_jvp_call"', "HloModule"),
        ("stablehlo", "stablehlo.multiply", "pullback."),
        ("hlo", "HloModule", "stablehlo"),
    ],
)
def test_stages(pullback_command, model, stage, present, absent):
    result = pullback_command("dump", f"{model}:f", "--stage", stage)
    assert result.exit_code == 0
    assert present in result.stdout
    assert absent not in result.stdout


def test_the_default_is_the_program_alone(pullback_command, model):
    default = pullback_command("dump", f"{model}:f")
    named = pullback_command("dump", f"{model}:f", "--stage", "program")
    assert default.stdout == named.stdout
    assert default.stdout.startswith("module")


def test_rules_shows_the_bodies(pullback_command, model):
    without = pullback_command("dump", f"{model}:f").stdout
    staged = pullback_command("dump", f"{model}:f", "--rules").stdout
    assert 'rule = "cube"' in without
    assert "@cube.jvp" not in without
    assert "jvp = @cube.jvp" in staged
    assert "func.func private @cube.jvp(" in staged


def test_all_stages_in_order(pullback_command, model):
    lines = pullback_command("dump", f"{model}:f", "--stage", "all").stdout.splitlines()
    headings = [line for line in lines if line.startswith("// ----- ")]
    stages = ("jaxpr", "kept", "program", "stablehlo", "hlo")
    assert headings == [f"// ----- {stage} -----" for stage in stages]


def test_a_folder_gets_one_file_per_stage(pullback_command, model, tmp_path):
    folder = tmp_path / "deep" / "out"
    result = pullback_command("dump", f"{model}:f", "--stage", "all", "-o", folder)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert sorted(path.name for path in folder.iterdir()) == STAGE_FILES
    shown = pullback_command("dump", f"{model}:f").stdout
    assert (folder / "program.mlir").read_text() == shown.rstrip("\n") + "\n"


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_absent_hardware(pullback_command, model, platform):
    result = pullback_command("dump", f"{model}:f", "--stage", "all", "--platform", platform)
    assert result.exit_code == 0
    assert "// ----- stablehlo -----" in result.stdout
    assert f"no stage hlo: this machine has no {platform} backend" in result.stderr
    refused = pullback_command("dump", f"{model}:f", "--stage", "hlo", "--platform", platform)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("BackendNotFoundError: no backend")
    assert f"no backend '{platform}'; present: 'cpu'" in refused.stderr


def test_the_platform_decides_the_lowering(pullback_command, tmp_path):
    path = tmp_path / "by_platform.py"
    path.write_text(
        "import jax, jax.numpy as jnp\n"
        "def f(x):\n"
        "  return jax.lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos)\n"
    )
    command = ("dump", f"{path}:f", "--args", "f32[2]", "--stage", "stablehlo", "--platform")
    assert "stablehlo.cosine" in pullback_command(*command, "tpu").stdout
    assert "stablehlo.sine" in pullback_command(*command, "cpu").stdout


@pytest.mark.parametrize(
    ("stage", "results"),
    [("vjp", 3), ("jvp", 2), ("grad", 1)],
)
def test_derivatives_are_stages_too(pullback_command, model, stage, results):
    text = pullback_command("dump", f"{model}:scalar", "--stage", stage).stdout
    signature = next(line for line in text.splitlines() if "@main" in line)
    returned = signature.partition(" -> ")[2]
    assert returned.count("tensor<f32>") + returned.count("tensor<2xf32>") == results


def test_a_file_has_the_later_stages(pullback_command, model, tmp_path):
    saved = tmp_path / "saved.mlir"
    saved.write_text(pullback_command("dump", f"{model}:f", "--rules").stdout)
    result = pullback_command("dump", saved, "--stage", "all")
    headings = [line for line in result.stdout.splitlines() if line.startswith("// ----- ")]
    assert headings == [f"// ----- {stage} -----" for stage in ("program", "stablehlo", "hlo")]
    refused = pullback_command("dump", saved, "--stage", "kept")
    assert refused.exit_code == 2
    assert "a module has none of the stages jaxpr, kept" in refused.stderr


def test_print_ir_after_all(pullback_command, model, capfd):
    options = ("--stage", "stablehlo", "--rules", "--print-ir-after-all")
    result = pullback_command("dump", f"{model}:f", *options)
    assert result.exit_code == 0
    shown = capfd.readouterr().err
    after = [line for line in shown.splitlines() if "IR Dump After" in line]
    passes = ("stage-rules", "lower-custom-derivatives", "chlo-legalize-to-stablehlo")
    for name, line in zip(passes, (after[0], after[1], after[-1]), strict=True):
        assert name in line


@pytest.mark.parametrize(
    ("stages", "option"),
    [
        (["jaxpr"], "--locations"),
        (["hlo"], "--locations"),
        (["kept", "jaxpr"], "--rules"),
        (["program", "grad"], "--print-ir-after-all"),
    ],
)
def test_an_option_that_changes_nothing_is_refused(pullback_command, model, stages, option):
    chosen = [each for stage in stages for each in ("--stage", stage)]
    result = pullback_command("dump", f"{model}:f", *chosen, option)
    assert result.exit_code == 2
    assert f"{option} says nothing without " in result.stderr


def test_locations_point_at_the_users_lines(pullback_command, model):
    text = pullback_command("dump", f"{model}:f", "--locations").stdout
    line = model.read_text().splitlines().index("    return x * x * x") + 1
    assert f'"{model}":{line}' in text


def test_arguments_replace_the_example(pullback_command, model):
    result = pullback_command("dump", f"{model}:f", "--args", "bf16[7], bf16[]")
    assert "tensor<7xbf16>" in result.stdout


def test_a_functions_own_example_arguments_win(pullback_command, model):
    result = pullback_command("dump", f"{model}:needs_types")
    assert "(%arg0: tensor<2xf32>" in result.stdout


@pytest.mark.parametrize("kind", ["custom_jvp_call", "custom_vjp_call", "linear_call"])
def test_the_example_has_every_kind_of_rule_in_its_scan(pullback_command, kind):
    text = pullback_command("dump", f"{RULES}:train_step").stdout
    assert f'stablehlo.composite "pullback.{kind}"' in text
    assert "stablehlo.while" in text


def by_platform(x):
    return jax.lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos, default=jnp.tanh)


def test_the_variant_of_a_file_for_a_platform(pullback_command, tmp_path):
    path = tmp_path / "model.mlirbc"
    pb.trace(by_platform, platforms=("cpu", "tpu"))(jnp.ones(2)).save(path)
    shown = {p: pullback_command("dump", path, "--platform", p).stdout for p in ("cpu", "tpu")}
    assert shown["cpu"] == pullback_command("dump", path).stdout != shown["tpu"]
    assert "dense<0>" in shown["cpu"]
    refused = pullback_command("dump", path, "--platform", "rocm")
    assert refused.exit_code == 2
    assert "was traced for cpu, tpu, not for rocm" in refused.stderr


def test_a_file_for_another_platform_than_the_default(pullback_command, tmp_path):
    path = tmp_path / "model.mlirbc"
    pb.trace(jnp.sin, platforms=("tpu",))(jnp.ones(2)).save(path)
    assert "stablehlo.sine" in pullback_command("dump", path).stdout


def test_a_rule_whose_result_does_not_fit_is_named(pullback_command, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        "import jax, jax.numpy as jnp\n"
        "@jax.custom_vjp\n"
        "def double(x): return 2 * x\n"
        "double.defvjp(lambda x: (2 * x, None), lambda _, ct: (jnp.sum(ct),))\n"
        "def f(x): return jnp.sum(double(x))\n"
    )
    result = pullback_command("dump", f"{path}:f", "--args", "f32[3]", "--stage", "grad")
    assert result.exit_code == 2
    assert f"where: in the vjp rule of `double`, called at {path}:5, in f" in result.stderr


@pytest.fixture(scope="module")
def with_weights(tmp_path_factory):
    """A saved program with a constant of 100 elements, and one of 64."""
    large, small = np.arange(100, dtype=np.float32), np.arange(64, dtype=np.float32)
    path = tmp_path_factory.mktemp("weights") / "model.mlirbc"
    program = pb.trace(lambda x: x * jnp.sum(large * large) + jnp.sum(small * small))(1.0)
    program.save(path)
    return path


def test_large_constants_are_elided_where_they_are_shown(pullback_command, with_weights):
    text = pullback_command("dump", with_weights).stdout
    said = "// Constants of more than 64 elements are elided: --constants all shows them\n"
    assert text.startswith(said)
    assert text.count("dense_resource<__elided__> : tensor<100xf32>") == 1
    assert max(map(len, text.splitlines())) < 1200
    none = pullback_command("dump", with_weights, "--constants", "10").stdout
    assert "more than 10 elements" in none
    assert none.count("__elided__") == 2
    whole = pullback_command("dump", with_weights, "--constants", "all").stdout
    assert "elided" not in whole
    assert pb.load(whole.encode())(2.0) == pb.load(with_weights)(2.0)
    said = str(pb.load(with_weights))
    assert said.startswith(
        "// Constants of more than 64 elements are elided: `program.asm()` has all\n"
    )
    assert "elided" not in pb.load(with_weights).asm()


def test_files_have_all_constants(pullback_command, with_weights, tmp_path):
    assert pullback_command("dump", with_weights, "-o", tmp_path).exit_code == 0
    text = (tmp_path / "program.mlir").read_bytes()
    assert b"elided" not in text
    assert pb.load(text)(2.0) == pb.load(with_weights)(2.0)


def test_text_without_its_constants_is_refused_where_it_runs(
    pullback_command, with_weights, tmp_path
):
    path = tmp_path / "elided.mlir"
    path.write_text(pullback_command("dump", with_weights).stdout)
    result = pullback_command("run", path, "--random", "0")
    assert result.exit_code == 2
    assert "a constant wants 400 bytes of values, and none are in the module" in result.stderr
    assert "pullback dump --constants all" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--constants", "-1"], "'-1' is neither a number of elements nor all"),
        (["--constants", "few"], "'few' is neither a number of elements nor all"),
        (["--stage", "hlo", "--constants", "9"], "--constants says nothing without a stage that"),
        (["--stage", "jaxpr", "--lines"], "--lines says nothing without a stage that is a module"),
        (["--lines", "--locations"], "--lines and --locations are two forms of the same"),
    ],
)
def test_options_of_text_that_are_refused(pullback_command, model, options, said):
    result = pullback_command("dump", f"{model}:f", *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_lines_stand_above_the_ops_that_come_from_them(pullback_command, model, tmp_path):
    text = pullback_command("dump", f"{model}:scalar", "--lines").stdout
    source, rows = model.read_text().splitlines(), [row.strip() for row in text.splitlines()]
    for line, function, op in (
        ("return jnp.sum(cube(x) * y)", "scalar", "stablehlo.broadcast_in_dim"),
        ("return x * x * x", "cube", "stablehlo.multiply %arg0, %arg0"),
    ):
        number = source.index(f"    {line}") + 1
        at = rows.index(f"// {model}:{number}, in {function}: {line}")
        assert any(op in row for row in rows[at + 1 : at + 3])
    plain = pullback_command("dump", f"{model}:scalar").stdout
    without = [row for row in rows if not row.startswith("//")]
    assert without == [row.strip() for row in plain.splitlines()]
    (tmp_path / "lines.mlir").write_text(text)
    assert pullback_command("run", tmp_path / "lines.mlir", "--random", "0").exit_code == 0


def test_counts_of_stages(pullback_command, tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(
        "func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        "  %c = stablehlo.constant dense<2.0> : tensor<2x3xf32>\n"
        "  %0 = stablehlo.multiply %x, %c : tensor<2x3xf32>\n"
        "  return %0 : tensor<2x3xf32>\n}\n"
    )
    counts = json.loads(pullback_command("dump", path, "--stats", "--json").stdout)["program"]
    assert counts == {
        "functions": 1,
        "ops": 3,
        "calls with rules": 0,
        "bytes of constants": 24,
        "flops of a run": 6,
        "bytes moved by a run": 24 + 3 * 24,
        "ops by name": {"func.return": 1, "stablehlo.constant": 1, "stablehlo.multiply": 1},
    }
    both = pullback_command("dump", path, "--stats", "--stage", "program", "--stage", "jvp").stdout
    assert "----- jvp -----\n" in both
    assert "\nbytes of constants    24\n" in both
    assert re.search(r"ops by name:\n +2 stablehlo.multiply\n", both)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json"], "--json says nothing without --stats"),
        (["--stats", "--lines"], "--lines says nothing without IR, which --stats does not print"),
        (["--stats", "--stage", "hlo"], "--stats counts what is in modules, and hlo is none"),
    ],
)
def test_options_that_do_not_go_with_counts(pullback_command, model, options, words):
    result = pullback_command("dump", f"{model}:f", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
