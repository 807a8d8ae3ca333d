"""The data of constants in bytecode: found, replaced, and refused where they do not fit."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import artifact
from pullback_runtime.files import _bytecode_constants, _constants, _container
from pullback_runtime.ir import _module
from tests.files import corpus


@pytest.fixture(scope="module")
def saved():
    return artifact.serialize(pb.trace(corpus.lookup)(np.ones(8, np.float32)))


def large(content):
    tables = _bytecode_constants.read_tables(content)
    found = [
        blob
        for blob in _bytecode_constants.blobs(content, tables)
        if blob.end - blob.start > 1 << 14
    ]
    return tables, found


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 1 << 30, (1 << 56) - 1, 1 << 60])
def test_numbers_come_back(value):
    content = _bytecode_constants.varint(value)
    assert _container.read_varint(content + b"rest", 0) == (value, len(content))


def test_nothing_replaced_is_the_same_file(saved):
    tables, found = large(saved)
    same = {blob: saved[blob.start : blob.end] for blob in found}
    assert len(same) == 1
    assert b"".join(_bytecode_constants.replace(saved, tables, same)) == saved


def test_other_data_are_what_mlir_reads(saved):
    tables, (blob,) = large(saved)
    data = np.arange(1 << 13, dtype=np.float32)
    content = b"".join(
        _bytecode_constants.replace(saved, tables, {blob: _bytecode_constants.as_bytes(data)})
    )
    text = str(_module.parse(content))
    assert text.count(data.tobytes().hex().upper()) == 1


def test_the_file_is_what_mlir_would_have_written(saved):
    """MLIR's own writer makes the same attributes of the whole module."""
    text = str(_module.parse(saved))
    assert text.count(corpus.TABLE.tobytes().hex().upper()) == 1


def test_metadata_that_name_other_constants_are_refused(saved):
    described = _container.read_layout(saved).metadata["constants"]
    ((name, shape, text, data, entry),) = described
    for wrong in (
        [name, [1 << 14], text, data, entry],
        [name, shape, text, data, "9999"],
        ["float64", shape, text, data, entry],
    ):
        changed = _container.dump_metadata({"constants": [wrong]})
        with pytest.raises(_container.ArtifactError, match="name other constants"):
            _constants.take_out(saved, _container.parse_metadata(changed)["constants"])
