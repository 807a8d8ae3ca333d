"""What would be sent to other projects has the names and versions of this one, and works."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pullback_cli
import pullback_runtime

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())
SINE = """
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  return %0 : tensor<f32>
}
"""


def test_versions_are_that_of_the_last_release():
    """That of the sources is the same, or the next one, in development."""
    version = re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    assert pullback_runtime.__version__ == version or ".dev" in pullback_runtime.__version__
    version = re.escape(version)
    for path, pattern in {
        "conda-forge/recipe.yaml": rf'^  version: "{version}"$',
        "compiler-explorer/pullback.yaml": rf"^      - {version}$",
        "compiler-explorer/mlir.amazon.properties": rf"^compiler\.\w+\.semver={version}$",
    }.items():
        assert re.search(pattern, (PACKAGING / path).read_text(), re.M), path


@pytest.fixture
def rendered() -> dict[str, Any]:
    """The outputs of the recipe, as conda-forge's tool renders them."""
    rattler_build = pytest.importorskip("rattler_build", reason="an extra: release")
    recipe = rattler_build.Stage0Recipe.from_file(PACKAGING / "conda-forge/recipe.yaml")
    variants = recipe.render(rattler_build.VariantConfig({"python_min": ["3.11"]}))
    return {each.recipe.package.name: each.recipe.to_dict() for each in variants}


def test_the_recipe_has_the_dependencies_and_commands_of_the_projects(rendered):
    def needed(name: str) -> set[str]:
        run = rendered[name]["requirements"]["run"]
        return {re.sub("[ ,]", "", str(each)) for each in run if isinstance(each, str)}

    python = "python" + WHOLE["project"]["requires-python"]
    spelt = lambda project: {re.sub("[ ,]", "", each) for each in project}  # noqa: E731
    assert needed("pullback-runtime") == spelt([python, *RUNTIME["project"]["dependencies"]])
    assert needed("pullback") == spelt([python, *WHOLE["tool"]["pullback"]["dependencies"]])
    (pin,) = (
        each for each in rendered["pullback"]["requirements"]["run"] if not isinstance(each, str)
    )
    assert "pullback-runtime" in str(pin)
    for name, project in (("pullback", WHOLE), ("pullback-runtime", RUNTIME)):
        about = rendered[name]["about"]
        assert about["summary"] == project["project"]["description"]
        assert about["license"] == project["project"]["license"]
        assert about["homepage"] in project["project"]["urls"]["Documentation"]


def test_the_recipe_lists_each_dependency_and_command():
    """Without conda-forge's tool, which `make release-check` installs."""
    lines = (PACKAGING / "conda-forge/recipe.yaml").read_text().replace(" >=", ">=")
    for needed in WHOLE["tool"]["pullback"]["dependencies"]:
        assert f"\n        - {needed}\n" in lines
    for command, place in WHOLE["project"]["scripts"].items():
        assert f"\n          - {command} = {place}\n" in lines
    for backend in (WHOLE["build-system"], RUNTIME["build-system"]):
        assert all(f"\n        - {each}\n" in lines for each in backend["requires"])


def test_compiler_explorer_runs_passes_by_its_command_line(tmp_path):
    """Its class for MLIR runs `EXE -o OUTPUT OPTIONS INPUT`, and `EXE --version` at the start."""
    source, output = tmp_path / "example.mlir", tmp_path / "example.out.mlir"
    source.write_text(SINE)
    arguments = ["-o", str(output), "--vjp", str(source)]
    done = CliRunner().invoke(pullback_cli.opt, arguments)
    assert done.exit_code == 0, done.output
    assert "stablehlo.cosine" in output.read_text()
    assert re.match(r"pullback \S+", CliRunner().invoke(pullback_cli.opt, ["--version"]).output)


def test_the_task_of_vs_code_finds_the_place_of_an_error(tmp_path):
    path = tmp_path / "wrong.mlir"
    path.write_text(SINE.replace("sine %x", "sine %y"))
    (task,) = json.loads((PACKAGING / "vscode/tasks.json").read_text())["tasks"]
    assert task["command"] in WHOLE["project"]["scripts"]
    done = CliRunner().invoke(pullback_cli.opt, [str(path)])
    matcher = task["problemMatcher"]["pattern"]
    found = next(
        filter(None, (re.match(matcher["regexp"], line) for line in done.stderr.splitlines()))
    )
    assert found[matcher["file"]] == str(path)
    assert (found[matcher["line"]], found[matcher["column"]]) == ("3", "23")
    assert found[matcher["severity"]] == "error"
    assert "undeclared SSA value" in found[matcher["message"]]
