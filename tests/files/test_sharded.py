"""Programs with shardings and shard_map: files for several devices."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback_cli import main
from pullback_runtime.call import _meshes
from tests.files.edited import edited
from tests.files.test_parse import check_parse
from tests.rules.processes import run_python


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    run_python("-m", "tests.files.sharded", "write", str(folder))
    return folder


def test_on_as_many_devices(folder):
    printed = run_python("-m", "tests.files.sharded", "check", str(folder))
    assert printed.count("gives its results and gradients") == 3


def test_exchange_with_jax_export(folder):
    assert "exchanged" in run_python("-m", "tests.files.sharded", "exchange", str(folder))


def test_refusals(folder):
    printed = run_python("-m", "tests.files.sharded", "refuse", str(folder))
    assert "ArtifactError a program over several devices cannot be saved while" in printed
    assert "do:    save program.with_shapes(…), which keeps its shardings" in printed
    assert "sharded.py:" in printed
    assert printed.count("ArgumentError the program runs on all devices of a mesh") == 2
    assert "where: compile(device=1, topology=None, mesh=" in printed
    assert "ArtifactError the entries are for different meshes" in printed
    assert "where: on_mesh: (rows: 2, columns: 2); plain: none" in printed


@pytest.mark.parametrize("name", ["constrained", "mapped"])
def test_parse_as_with_stablehlos_own_deserialiser(folder, name):
    check_parse((folder / f"{name}.mlirbc").read_bytes())


def test_the_mesh_of_a_rule_is_in_the_file(folder):
    """The program has none by itself, before a derivative is asked for."""
    assert "rows: 2, columns: 2" in command("info", str(folder / "in_a_rule.mlirbc"))


def command(*arguments: str) -> str:
    return CliRunner().invoke(main, arguments, catch_exceptions=False).output


def test_on_one_device_all_but_running(folder, tmp_path):
    path, derived = str(folder / "mapped.mlirbc"), str(tmp_path / "derived.mlirbc")
    assert "rows: 2, columns: 2" in command("info", path)
    command("derive", path, "--vjp", "-o", derived)
    bare = pullback_runtime.load(path)
    args = [np.ones(shape) for shape in ((4, 3), (8, 4), (8, 3))]
    for call, count in ((pb.load(path), 2), (bare, 2), (bare.flat, 2), (pb.load(derived), 3)):
        with pytest.raises(pullback_runtime.BackendNotFoundError) as caught:
            call(*args[:count])
        assert caught.value.message == (
            "the program runs on a mesh of 4 devices (rows: 2, columns: 2); here are 1"
        )
        assert "XLA_FLAGS=--xla_force_host_platform_device_count=4" in caught.value.do
    with pytest.raises(pb.PullbackError, match="no vmap of a program with shardings"):
        pb.load(path).vmap(axis_size=2)


@pytest.mark.parametrize("damaged", [3, ["rows"], [["rows", 0]], [[2, 2]], [["rows", 2.0]]])
def test_damaged_mesh(damaged):
    program = artifact.serialize(pb.trace(jnp.sin)(1.0))
    content = edited(program, **{_meshes.METADATA: damaged})
    with pytest.raises(pb.ArtifactError, match="metadata are damaged: mesh"):
        pb.load(content)
    with pytest.raises(pullback_runtime.ArtifactError, match="metadata are damaged: mesh"):
        pullback_runtime.load(content)(1.0)
