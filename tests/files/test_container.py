"""The bytes of a file: sections, digest and metadata."""

from __future__ import annotations

import hashlib

import pytest

import pullback as pb
from pullback import artifact
from pullback_runtime import _jax
from pullback_runtime._jax import ir
from pullback_runtime.files import _container
from tests.files import models


@pytest.fixture(scope="module")
def saved():
    return artifact.serialize(models.program())


def test_layout_is_read_without_mlir(saved):
    layout = _container.read_layout(saved)
    assert layout.stablehlo_version.count(".") == 2
    assert layout.metadata["arguments"] == ["params['b']", "params['w']", "x", "scale"]
    assert saved[layout.digest_at :].startswith(b"pullback-sha256:")


def test_the_digest_is_sha256_of_length_and_content(saved):
    at = _container.read_layout(saved).digest_at + len(_container.DIGEST_PREFIX)
    blank = saved[:at] + b"0" * 64 + saved[at + 64 :]
    expected = hashlib.sha256(len(saved).to_bytes(8, "little") + blank).hexdigest()
    assert saved[at : at + 64].decode() == expected


@pytest.mark.parametrize("length", [10, 1 << 17, (1 << 17) + 1, (1 << 19) + 12345])
def test_the_fingerprint_sees_every_kind_of_damage(length):
    content = bytearray(models.weights(length // 4 + 1).tobytes()[:length])
    whole = _container.fingerprint(content, -200)
    for position in (0, length // 2, length - 1):
        for bit in (1, 128):
            content[position] ^= bit
            assert _container.fingerprint(content, -200) != whole
            content[position] ^= bit
    assert _container.fingerprint(content[:-1], -200) != whole
    assert _container.fingerprint(content + b"\0", -200) != whole
    assert _container.fingerprint(content, -200) == whole


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 3), (0, 4), (3, 6), (1, 5)])
def test_the_fingerprint_sees_rows_change_places(first, second):
    row = _container.FOLD_ROW_BYTES
    rows = [models.weights(8 * row // 4).tobytes()[i * row : (i + 1) * row] for i in range(8)]
    whole = _container.fingerprint(b"".join(rows), -200)
    rows[first], rows[second] = rows[second], rows[first]
    assert _container.fingerprint(b"".join(rows), -200) != whole


def test_the_digest_may_lie_across_rows():
    content = bytearray(models.weights(1 << 17).tobytes())
    at = _container.FOLD_ROW_BYTES - 40
    first = _container.fingerprint(content, at)
    content[at + len(_container.DIGEST_PREFIX) : at + 80] = b"f" * 64
    assert _container.fingerprint(content, at) == first


def test_other_tools_read_the_file(saved):
    """The digest must not stop StableHLO's own reader, nor XLA."""
    context = _jax.make_ir_context()
    with context, ir.Location.unknown(context):
        module = _jax.stablehlo.deserialize_portable_artifact(context, saved)
    assert "stablehlo.composite" in str(module)
    plain = _jax.stablehlo.deserialize_portable_artifact_str(saved)
    assert plain.startswith(_container.BYTECODE_MAGIC)


def test_a_string_that_looks_like_a_digest_is_refused():
    program = models.program()
    with program.module.context:
        fake = ir.StringAttr.get(_container.DIGEST_PLACEHOLDER[:-1] + "1")
        program.module.operation.attributes["user.note"] = fake
    with pytest.raises(pb.ArtifactError, match="a string that looks like one"):
        artifact.serialize(program)


def test_changed_metadata_is_damage(saved):
    changed = saved.replace(b'"scale"]', b'"scalf"]', 1)
    assert changed != saved
    with pytest.raises(pb.ArtifactError, match="does not have the digest that was saved with it"):
        pb.load(changed)


def test_a_removed_digest_is_damage(saved):
    with pytest.raises(pb.ArtifactError, match="its digest is missing"):
        pb.load(saved.replace(b"pullback-sha256:", b"pullback-sha255:"))
