"""What `engines` finds among installed distributions; `make runtime-alone` runs real plug-ins."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import jax
import pytest

import pullback_runtime as runtime
from pullback_runtime._install import requirement
from pullback_runtime.engine import _engines


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution that has these files."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(name, version, *files, missing=()):
        known = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        known.mkdir()
        (known / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
        )
        (known / "RECORD").write_text("".join(f"{each},,\n" for each in (*files, *missing)))
        for each in files:
            (tmp_path / each).parent.mkdir(exist_ok=True)
            (tmp_path / each).touch()

    return installed


def test_jax_is_listed_with_its_version_and_place():
    (found,) = (each for each in runtime.engines() if each.engine == "jax")
    assert found.version == importlib.metadata.version("jax") == jax.__version__
    assert found.path == Path(jax.__file__).parent


@pytest.mark.parametrize(
    "file",
    [
        "libpjrt_cpu.so",
        "libpjrt_cpu.dylib",
        "pjrt_cpu.dll",
        "pjrt_c_api_cpu_plugin.so",
    ],
)
def test_a_plug_in_is_found_by_the_name_of_its_distribution(install, tmp_path, file):
    install("pypjrt", "1.0", "pypjrt/__init__.py")
    install("fastatomstruct-xla-cpu", "2026.6.23", f"package/{file}", "package/__init__.py")
    install("some-xla-cpu", "1.0", "other/libpjrt_cpu.so")
    expected = ("pjrt", "fastatomstruct-xla-cpu", "2026.6.23", tmp_path / "package" / file)
    assert [each for each in runtime.engines() if each.engine == "pjrt"] == [expected]


def test_plug_ins_are_found_by_platform_and_in_order(install):
    assert list(_engines.installed_plugins()) == []
    install("fastatomstruct-xla-cpu", "2", "second/libpjrt_cpu.so")
    install("lammps-jax-pjrt-cpu", "1", "first/pjrt_c_api_cpu_plugin.so")
    install("jax-cuda13-pjrt", "3", "jax_plugins/xla_cuda_plugin.so")
    install("libtpu", "4", missing=["libtpu/libtpu.so"])
    versions = lambda platform: [each.version for each in _engines.installed_plugins(platform)]  # noqa: E731
    assert versions(None) == ["3", "1", "2"]
    assert versions("cpu") == ["1", "2"]
    assert versions("tpu") == []


def test_without_pypjrt_no_plug_in_is_listed(install, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypjrt", None)
    install("lammps-jax-pjrt-cpu", "1", "first/pjrt_c_api_cpu_plugin.so")
    assert "pjrt" not in [each.engine for each in runtime.engines()]


def test_what_runs_nothing_says_what_to_install():
    error = _engines.no_engine()
    assert error.message == (
        "nothing here runs a program: JAX is not installed, and no engine was named"
    )
    assert error.do == (
        f"pip install {requirement('pullback-runtime', 'jax')}; or "
        f"pip install {requirement('pullback-runtime', 'pjrt')} and a "
        "plug-in, pip install --no-deps lammps-jax-pjrt-cpu (Linux), and load the file with "
        'engine="pjrt"'
    )
