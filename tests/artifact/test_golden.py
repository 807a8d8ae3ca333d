"""Files of every released format load, and give their stored results and gradients."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback.dialect import ops
from pullback.passes import manager
from pullback_runtime import _container

FOLDER = Path(__file__).parent / "golden"
FILES = sorted(FOLDER.glob("format-*/*.mlirbc"))


def stored(path, group):
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        count = sum(name.startswith(group) for name in arrays)
        return [arrays[f"{group}{number}"] for number in range(count)]


def agree(found, expected):
    assert len(found) == len(expected)
    for each, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, wanted, rtol=2e-5, atol=1e-6)


def test_there_is_a_file_for_every_format():
    formats = {int(path.parent.name.removeprefix("format-")) for path in FILES}
    assert formats == set(range(1, _container.FORMAT_VERSION + 1))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_results(path):
    arguments = stored(path, "argument")
    program = pb.load(path)
    args, kwargs = jax.tree.unflatten(program.in_tree, arguments)
    agree(jax.tree.leaves(program(*args, **kwargs)), stored(path, "result"))
    agree(pullback_runtime.load(path).flat(*arguments), stored(path, "result"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_gradients(path):
    program = pb.load(path)
    results = [np.ones(a.shape, a.dtype) for a in program.out_avals if a.dtype.kind == "f"]
    manager.run_pipeline(program.module, "builtin.module(vjp{entry=main})", program.rules)
    found = pullback_runtime.compile(program.module)(*stored(path, "argument"), *results)
    agree(found[len(program.out_avals) :], stored(path, "gradient"))
    assert list(ops.walk_calls(program.module)), "the rules are there for the next order"
