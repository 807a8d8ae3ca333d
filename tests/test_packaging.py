"""The wheel: what is in it, and that it works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
def wheel(tmp_path_factory) -> Path:
    """A wheel, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "compiler", "runtime"):
        run("cp", "-r", ROOT / name, source / name, cwd=folder)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "-w",
        folder,
        source,
        cwd=folder,
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel in it; dependencies are borrowed from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    run(
        *(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"),
        *("--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel),
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


def test_the_wheel_has_the_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {top for name in names if not (top := name.split("/")[0]).endswith(".dist-info")}
    assert tops == {"pullback", "pullback_pytest", "pullback_runtime"}
    assert {"pullback/py.typed", "pullback_runtime/py.typed"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_every_source_file_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for root, package in (("compiler", "pullback"), ("runtime", "pullback_runtime")):
        files = (ROOT / root / package).rglob("*.py")
        assert {str(path.relative_to(ROOT / root)) for path in files} <= names


@pytest.mark.slow
def test_the_wheel_traces_outside_of_the_checkout(environment, tmp_path):
    python = environment / "bin" / "python"
    assert "traced" in run(python, "-c", TRACE, cwd=tmp_path, env=outside())


@pytest.mark.slow
@pytest.mark.parametrize("script", ["pullback", "pullback-opt"])
def test_the_console_scripts_start(environment, tmp_path, script):
    help_text = run(environment / "bin" / script, "--help", cwd=tmp_path, env=outside())
    assert "Usage:" in help_text
