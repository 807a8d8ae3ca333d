"""Files of every released format load, and give their stored results and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

import pullback as pb
from pullback.dialect import ops
from pullback_runtime.files import _container
from tests.files import corpus

FOLDER = Path(__file__).parent / "golden"
FILES = sorted(FOLDER.glob("format-*/*.mlirbc"))
each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}"
)


def test_there_is_a_file_for_every_format():
    formats = {int(path.parent.name.removeprefix("format-")) for path in FILES}
    assert formats == set(range(1, _container.FORMAT_VERSION + 1))
    assert len(FILES) >= 4


@each_file
def test_results(path):
    corpus.check_results(path)


@each_file
def test_gradients(path):
    corpus.check_gradients(path)


@each_file
def test_the_rules_are_still_rules(path):
    assert all(call.symbols for call in ops.walk_calls(pb.load(path).module))
