"""Files of other versions: each error names both versions and what to do."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
from pullback import artifact
from pullback_runtime import _jax
from pullback_runtime.files import _container
from pullback_runtime.ir import _module
from tests.files import models
from tests.files.edited import edited


@pytest.fixture(scope="module")
def saved():
    return artifact.serialize(models.program())


def test_newer_format(saved):
    newer = edited(saved, **{"pullback-format": 2})
    with pytest.raises(pb.ArtifactError) as caught:
        pb.load(newer)
    assert caught.value.message == "the file has format 2, and this pullback reads up to 1"
    assert caught.value.do == (
        'pip install --upgrade "pullback @ git+https://github.com/pullback-mlir/pullback" jax'
    )


def test_newer_stablehlo(saved):
    version = _container.read_layout(saved).stablehlo_version
    newer = saved.replace(version.encode(), b"9" * (len(version) - 4) + b".9.9", 1)
    with pytest.raises(pb.ArtifactError, match="reads up to") as caught:
        pb.load(newer)
    current = _jax.stablehlo.get_current_version()
    assert f"up to {current}" in caught.value.message
    assert f"save it with target='{current}'" in caught.value.do


def test_foreign_version(saved):
    version = _container.read_layout(saved).stablehlo_version
    foreign = saved.replace(version.encode(), b"x" * len(version), 1)
    with pytest.raises(pb.ArtifactError, match="names no StableHLO version that can be read") as e:
        pb.load(foreign)
    assert repr("x" * len(version)) in e.value.message
    assert _jax.stablehlo.get_current_version() in e.value.where


def test_newer_bytecode_of_another_tool():
    content = bytearray(_module.to_bytecode(models.program().module))
    assert content[4] == 6 << 1 | 1
    content[4] = 99 << 1 | 1
    with pytest.raises(pb.ArtifactError, match="bytecode version 99 is newer than the current"):
        pb.load(bytes(content))


@pytest.mark.parametrize("target", ["1.0.0", "1.8.4", _jax.stablehlo.get_current_version()])
def test_older_targets(target):
    x = jnp.linspace(-1.0, 1.0, 5)
    program = pb.trace(lambda x: models.doubled_sine(x) + models.clipped(x))(x)
    content = artifact.serialize(program, target=target)
    layout = _container.read_layout(content)
    assert (layout.stablehlo_version, layout.metadata["stablehlo"]) == (target, target)
    assert jnp.allclose(pb.load(content)(x), jnp.sin(x) + jnp.maximum(x, 0.0))


def test_older_targets_get_what_they_know_in_place_of_what_came_later():
    """`tan` came with 1.4.0. Readers of before 1.9.0 crash on locations that are ranges."""
    x = jnp.linspace(-1.0, 1.0, 5)
    table = jnp.asarray(models.weights(1 << 13))
    program = pb.trace(lambda x: jnp.sum(jnp.tan(x)) + jnp.sum(jnp.flip(table) * table))(x)
    for target, has_ranges in (("1.3.0", False), (None, True)):
        content = artifact.serialize(program, target=target)
        text = _module.parse(content).operation.get_asm(enable_debug_info=True)
        assert (" to :" in text) == has_ranges
        assert jnp.allclose(pb.load(content)(x), program(x))
        assert jnp.allclose(pb.load(content).grad()(x), 1 + jnp.tan(x) ** 2)


def accurate_tangent(x):
    return jax.lax.tan(x, accuracy=jax.lax.Tolerance(rtol=1e-3, atol=1e-3, ulps=8))


def test_the_highest_accuracy_is_left_out_for_versions_without_accuracies():
    """All ops have them since 1.10.0; jax 0.12 asks for the highest in the rule of `erf`."""

    def function(x):
        return jnp.sum(jax.lax.tan(x, accuracy=jax.lax.AccuracyMode.HIGHEST) + jax.lax.erf(x))

    x = jnp.linspace(-1.0, 1.0, 5)
    program = pb.trace(function)(x)
    for target, kept in (("1.0.0", False), ("1.9.0", False), ("1.10.0", True)):
        content = artifact.serialize(program, target=target)
        assert ("HIGHEST" in str(_module.parse(content))) == kept
        assert jnp.allclose(pb.load(content).grad()(x), program.grad()(x))


def test_what_an_older_version_cannot_say_is_refused():
    program = pb.trace(accurate_tangent)(jnp.ones(2))
    assert pb.load(artifact.serialize(program)).module
    with pytest.raises(pb.ArtifactError, match="does not fit the StableHLO version") as caught:
        artifact.serialize(program, target="1.8.4")
    assert "StableHLO 1.8.4: failed to legalize operation" in caught.value.where
    assert "save with a newer target=" in caught.value.do


def test_a_program_too_new_for_the_default_is_written_for_the_current_version(monkeypatch):
    monkeypatch.setattr("pullback.files.container.oldest_compatible_version", lambda: "1.8.4")
    content = artifact.serialize(pb.trace(accurate_tangent)(jnp.ones(2)))
    current = _jax.stablehlo.get_current_version()
    assert _container.read_layout(content).stablehlo_version == current


@pytest.mark.parametrize("target", ["0.9.0", "99.0.0", "1.0", "newest"])
def test_refused_targets(target):
    with pytest.raises(pb.ArtifactError, match=r"this jaxlib writes 1\.0\.0 to"):
        artifact.serialize(models.program(), target=target)


def test_default_target_is_read_by_both_supported_versions_of_jax(saved):
    """jax 0.10.2 reads up to 1.17.0, so what 0.12 writes by default must not be newer."""
    version = _container.read_layout(saved).stablehlo_version
    assert tuple(map(int, version.split("."))) <= (1, 17, 0)


def test_metadata_is_json_without_pickle(saved):
    layout = _container.read_layout(saved)
    text = json.dumps(layout.metadata)
    assert json.loads(text) == layout.metadata
    assert b"pickle" not in saved
    assert layout.metadata["platforms"] == ["cpu"]
    assert {rule["function"] for rule in layout.metadata["rules"]} >= {"doubled_sine", "clipped"}
