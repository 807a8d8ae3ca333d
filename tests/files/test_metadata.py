"""Metadata that say what does not fit the module: nothing tells that those of a text are whole."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback._jax import ir
from pullback_runtime.files import _container
from pullback_runtime.ir import _module
from tests.files import models


def several_platforms():
    def function(x):
        return jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    return artifact.serialize(pb.trace(function, platforms=("cpu", "tpu"))(jnp.ones(2)))


def symbolic_dimensions(tmp_path):
    (b,) = jax.export.symbolic_shape("b")
    program = pb.trace(models.doubled_sine)(jax.ShapeDtypeStruct((b,), jnp.float32))
    program.save(tmp_path / "symbolic.mlirbc")
    return (tmp_path / "symbolic.mlirbc").read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return {
        "one": artifact.serialize(models.program()),
        "several": several_platforms(),
        "symbolic": symbolic_dimensions(tmp_path_factory.mktemp("symbolic")),
    }


def changed(content, names):
    """The text of the program, with other metadata."""
    module = _module.parse(content)
    attributes = module.operation.attributes
    found = json.loads(ir.StringAttr(attributes[_container.METADATA_ATTRIBUTE]).value) | names
    with module.context:
        attributes[_container.METADATA_ATTRIBUTE] = ir.StringAttr.get(json.dumps(found))
    del attributes[_container.DIGEST_ATTRIBUTE]
    return str(module).encode()


def use(content):
    """All of a loaded program that is read from the metadata."""
    loaded = pullback_runtime.load(content)
    return loaded.trees, loaded.out_avals, loaded.handle


ONE_LEAF = {"kind": "tuple", "children": ["*"]}
NO_ARGUMENTS = {"kind": "tuple", "children": [{"kind": "tuple", "children": []}]}

CHANGES = [
    ("one", {"platforms": 1.5}),
    ("one", {"platforms": ["cpu", ["tpu"]]}),
    ("one", {"in_tree": "*"}),
    ("one", {"in_tree": ONE_LEAF}),
    ("one", {"in_tree": NO_ARGUMENTS}),
    ("one", {"in_tree": {"kind": "tuple", "children": [ONE_LEAF, ONE_LEAF]}}),
    ("one", {"out_tree": None}),
    ("one", {"out_avals": [[None, [4]]]}),
    ("several", {"entries": -1}),
    ("several", {"entries": ["main"]}),
    ("several", {"entries": ["main", "nobody"]}),
    ("symbolic", {"platforms": ["cpu", ["tpu"]]}),
    ("symbolic", {"in_tree": NO_ARGUMENTS}),
    ("symbolic", {"out_tree": None}),
    ("symbolic", {"symbolic": 3}),
]


@pytest.mark.parametrize(
    ("kind", "names"), CHANGES, ids=[f"{kind}: {names}"[:60] for kind, names in CHANGES]
)
def test_what_does_not_fit_is_refused_cleanly(files, kind, names):
    content = changed(files[kind], names)
    with pytest.raises(pb.ArtifactError) as caught:
        pb.load(content)
    assert caught.value.do
    if kind == "one":
        with pytest.raises(pullback_runtime.ArtifactError):
            use(content)


@pytest.mark.parametrize("arguments", [None, -1, ["x"], [1, 2, 3, 4], "abcd"])
def test_names_of_arguments_that_do_not_fit_are_not_used(files, arguments):
    content = changed(files["one"], {"arguments": arguments})
    args, kwargs = models.arguments()
    expected = models.loss(*args, **kwargs)["loss"]
    for loaded in (pb.load(content), pullback_runtime.load(content)):
        assert jnp.allclose(loaded(*args, **kwargs)["loss"], expected)
