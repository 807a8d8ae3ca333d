"""The wheels: what is in them, and that they work away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import pullback_runtime

ROOT = Path(__file__).parents[2]
TRACE = """
import jax.numpy as jnp, pullback, pullback_runtime, sys
assert pullback.__file__.startswith(sys.prefix), pullback.__file__
assert pullback_runtime.__file__.startswith(sys.prefix), pullback_runtime.__file__
program = pullback.trace(lambda x: jnp.sin(x) * 2)(1.0)
assert "stablehlo.sine" in str(program)
print("traced")
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """The wheel of each distribution, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheels")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "compiler", "runtime"):
        run("cp", "-r", ROOT / name, source / name, cwd=folder)
    # What an earlier build left: as new as its copies, so that setuptools would take it.
    shutil.rmtree(source / "runtime" / "build", ignore_errors=True)
    for part in (source, source / "runtime"):
        command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, part)
        run(*command, cwd=folder)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def environment(wheels, tmp_path_factory) -> Path:
    """An environment with both wheels in it; dependencies are borrowed from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    run(
        *(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"),
        *("--quiet", "--no-deps", "--no-index", "--ignore-installed", *wheels.values()),
        cwd=folder,
    )
    borrowed = Path(sysconfig.get_path("purelib"))
    # A plain path entry: it stands behind the wheel, and its own .pth files are not read.
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    return folder


def outside() -> dict[str, str]:
    """Environment variables without anything that points at the checkout."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"JAX_PLATFORMS": "cpu"}


def names_in(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def tops_of(wheel: Path) -> set[str]:
    tops = {name.split("/")[0] for name in names_in(wheel)}
    return {top for top in tops if not top.endswith(".dist-info")}


def test_the_wheels_have_their_packages_and_nothing_else(wheels):
    """They have no file in common, so neither overwrites the other, nor goes with it."""
    assert tops_of(wheels["pullback"]) == {"pullback", "pullback_cli", "pullback_pytest"}
    assert tops_of(wheels["pullback_runtime"]) == {"pullback_runtime"}
    for package, wheel in wheels.items():
        assert f"{package}/py.typed" in names_in(wheel)
        assert any(name.endswith("licenses/LICENSE") for name in names_in(wheel))


def test_every_source_file_is_in_its_wheel(wheels):
    for root, package, wheel in (
        ("compiler", "pullback", "pullback"),
        ("compiler", "pullback_cli", "pullback"),
        ("runtime", "pullback_runtime", "pullback_runtime"),
    ):
        files = (ROOT / root / package).rglob("*.py")
        assert {str(path.relative_to(ROOT / root)) for path in files} <= names_in(wheels[wheel])


def needed_by(wheel: Path) -> list[str]:
    (metadata,) = (name for name in names_in(wheel) if name.endswith(".dist-info/METADATA"))
    lines = zipfile.ZipFile(wheel).read(metadata).decode().splitlines()
    needed = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return [each for each in needed if "extra ==" not in each]


def test_the_runtime_needs_numpy_alone(wheels):
    assert needed_by(wheels["pullback_runtime"]) == ["numpy"]


def test_the_whole_needs_the_runtime_beside_it(wheels):
    """So `pip install .` installs both from a checkout, and asks no index for the runtime."""
    runtime = wheels["pullback"].parent / "source" / "runtime"
    assert f"pullback-runtime @ {runtime.as_uri()}" in needed_by(wheels["pullback"])


def test_both_have_one_version(wheels):
    versions = {path.name.split("-")[1] for path in wheels.values()}
    assert versions == {pullback_runtime.__version__}
    projects = (ROOT / "pyproject.toml", ROOT / "runtime" / "pyproject.toml")
    parsed = [tomllib.loads(path.read_text()) for path in projects]
    assert len({each["project"]["requires-python"] for each in parsed}) == 1
    whole, runtime = parsed
    extra = runtime["project"]["optional-dependencies"]["jax"]
    assert set(extra) <= set(whole["tool"]["pullback"]["dependencies"])


def test_both_have_one_licence():
    assert (ROOT / "LICENSE").read_text() == (ROOT / "runtime" / "LICENSE").read_text()


@pytest.mark.slow
def test_the_wheel_traces_outside_of_the_checkout(environment, tmp_path):
    python = environment / "bin" / "python"
    assert "traced" in run(python, "-c", TRACE, cwd=tmp_path, env=outside())


@pytest.mark.slow
@pytest.mark.parametrize("script", ["pullback", "pullback-opt"])
def test_the_console_scripts_start(environment, tmp_path, script):
    help_text = run(environment / "bin" / script, "--help", cwd=tmp_path, env=outside())
    assert "Usage:" in help_text
