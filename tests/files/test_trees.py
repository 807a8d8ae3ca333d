"""Argument trees in JSON: rebuilt where the class is here, dictionaries where it is not."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import importlib.machinery
import json
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback_runtime import ArgumentError
from pullback_runtime.call import _jax_trees

Pair = collections.namedtuple("Pair", "first second")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: object
    bias: object
    name: str = dataclasses.field(default="dense", metadata={"static": True})


@jax.tree_util.register_pytree_with_keys_class
class Module:
    """Like an Equinox module: fields in order, static data that JSON cannot hold."""

    def __init__(self, weight, bias, activation):
        self.weight, self.bias, self.activation = weight, bias, activation

    def tree_flatten_with_keys(self):
        keys = jax.tree_util.GetAttrKey("weight"), jax.tree_util.GetAttrKey("bias")
        return list(zip(keys, (self.weight, self.bias), strict=True)), self.activation

    @classmethod
    def tree_unflatten(cls, activation, values):
        return cls(*values, activation)


Pairs = collections.namedtuple("Pairs", "weight bias")
UNNAMED = functools.partial(jnp.tanh)
"""Static data that neither JSON nor a name can tell."""


class Missing:
    """The class of one object, which stands for a value that is not there."""


MISSING = Missing()


class Base:
    """What modules inherit from, in a package of its own, where the mark is as well."""


Base.__module__ = Missing.__module__ = "acme.modules"
sys.modules["acme.modules"] = types.ModuleType("acme.modules")
vars(sys.modules["acme.modules"]).update(Base=Base, MISSING=MISSING)


class Unit(enum.Enum):
    METRE = 1.0
    KILOMETRE = 1000.0


def module(kind):
    """Registers a dataclass as `equinox.Module` does: without `__init__`, with a mark in front."""
    kind = dataclasses.dataclass(frozen=True, eq=False)(kind)
    static = [f.name for f in dataclasses.fields(kind) if f.metadata.get("static")]
    data = [f.name for f in dataclasses.fields(kind) if not f.metadata.get("static")]

    def flatten(instance):
        has = instance.__dict__
        return [has.get(n, MISSING) for n in data], (
            MISSING,
            *(has.get(n, MISSING) for n in static),
        )

    def flatten_with_keys(instance):
        values, rest = flatten(instance)
        return list(zip(map(jax.tree_util.GetAttrKey, data), values, strict=True)), rest

    def unflatten(rest, values):
        instance = object.__new__(kind)
        for name, value in zip([*data, *static], [*values, *rest[1:]], strict=True):
            if value is not MISSING:
                object.__setattr__(instance, name, value)
        return instance

    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)
    return kind


def squared(x):
    return x * x


@module
class Dense(Base):
    weight: object
    bias: object
    activation: object = dataclasses.field(metadata={"static": True})
    unit: object = dataclasses.field(default=Unit.METRE, metadata={"static": True})
    dtype: object = dataclasses.field(default=np.dtype("bfloat16"), metadata={"static": True})

    def __call__(self, x):
        return self.activation(self.weight @ x + self.bias)


@module
class Network(Base):
    layers: object
    depth: int = dataclasses.field(metadata={"static": True})

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def network(activation=jnp.tanh):
    weights = np.linspace(-1.0, 1.0, 12).astype(np.float32)
    layers = (
        Dense(weights[:4].reshape(2, 2), weights[4:6], activation),
        Dense(weights[6:8].reshape(1, 2), weights[8:9], jax.nn.relu, Unit.KILOMETRE, jnp.float32),
    )
    return Network(layers, 2)


def round_trip(tree):
    return _jax_trees.restore(json.loads(json.dumps(_jax_trees.describe(tree))))


@pytest.mark.parametrize(
    "value",
    [
        0,
        None,
        (),
        {},
        [1, (2, None), {"b": 3, "a": [4]}],
        {2: 1, 1: {"x": 0}},
        Pair(1, Pair(2, [3])),
        Layer(1, {"k": 2}),
        Layer(1, 2, name="other"),
        collections.OrderedDict(z=1, a=2),
        collections.OrderedDict([(1, 1), ("1", 2)]),
        ((Layer(Pair(1, 2), None),), {"scale": 3}),
    ],
    ids=repr,
)
def test_trees_come_back_equal(value):
    tree = jax.tree.structure(value)
    assert round_trip(tree) == tree


def test_a_class_that_is_not_imported_becomes_a_dictionary(monkeypatch):
    described = _jax_trees.describe(jax.tree.structure((Layer(1, 2), Pair(3, 4))))
    monkeypatch.delitem(sys.modules, __name__)
    tree = _jax_trees.restore(described)
    layer, pair = jax.tree.unflatten(tree, [10, 20, 30, 40])
    assert layer == {"weight": 10, "bias": 20}
    assert list(layer) == ["weight", "bias"], "in the order of the fields, not of the alphabet"
    assert pair == {"first": 30, "second": 40}
    assert layer.class_name.endswith(":Layer")
    assert _without_static(_jax_trees.describe(tree)) == _without_static(described)
    assert round_trip(tree) == tree


def _without_static(described):
    if isinstance(described, dict):
        return {
            key: _without_static(item)
            for key, item in described.items()
            if not key.startswith("static")
        }
    return (
        [_without_static(item) for item in described] if isinstance(described, list) else described
    )


def test_static_data_that_json_cannot_hold_gives_a_dictionary():
    tree = round_trip(jax.tree.structure(Module(1, 2, UNNAMED)))
    assert jax.tree.unflatten(tree, [10, 20]) == {"weight": 10, "bias": 20}


@pytest.mark.parametrize(
    "argument",
    [{"bias": 2, "weight": 1}, {"weight": 1, "bias": 2}, Module(1, 2, UNNAMED), Layer(1, 2)],
    ids=["dict", "ordered", "instance", "another class with these fields"],
)
def test_dictionaries_and_instances_are_taken(argument):
    tree = round_trip(jax.tree.structure((Module(0, 0, UNNAMED), [0])))
    assert _jax_trees.flatten_arguments(tree, (argument, [3])) == [1, 2, 3]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"weight": 1}, r"with fields \(weight, bias\), got dict with fields \(weight\)"),
        ({"weight": [1], "bias": 2}, "expected an array, got list"),
        ((1, 2), r"with fields \(weight, bias\), got tuple with fields \(0, 1\)"),
        (7, r"with fields \(weight, bias\), got int"),
    ],
)
def test_misfits_name_the_argument(argument, words):
    tree = round_trip(jax.tree.structure({"model": Module(0, 0, UNNAMED)}))
    with pytest.raises(ArgumentError, match=words) as caught:
        _jax_trees.flatten_arguments(tree, {"model": argument})
    assert caught.value.where.startswith("arguments.model")


@pytest.mark.parametrize(
    "static",
    [
        Unit.METRE,
        jnp.float32,
        np.dtype("int8"),
        jax.nn.relu,
        jnp.sin,
        squared,
        Module,
        np.int8,
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_static_data_with_a_name_come_back(static):
    """Where its class is here, an Equinox module had come back as a dictionary."""
    for value in (Module(1, 2, static), Module(1, 2, {"a": [static, (3, None)]})):
        tree = jax.tree.structure(value)
        assert round_trip(tree) == tree
        with pytest.raises(ArgumentError, match="static data"):
            _jax_trees.flatten_arguments(round_trip(tree), Module(1, 2, jnp.cos))


def test_static_data_of_a_name_that_is_not_here_give_a_dictionary(monkeypatch):
    described = json.loads(
        json.dumps(_jax_trees.describe(jax.tree.structure(Module(1, 2, squared))))
    )
    with monkeypatch.context() as patched:
        patched.delattr(sys.modules[__name__], "squared")
        tree = _jax_trees.restore(described)
    assert jax.tree.unflatten(tree, [10, 20]) == {"weight": 10, "bias": 20}
    assert _jax_trees.flatten_arguments(tree, Module(1, 2, squared)) == [1, 2]


def test_the_mark_of_a_base_in_another_package_comes_back(monkeypatch):
    tree = jax.tree.structure(network())
    assert round_trip(tree) == tree
    described = _jax_trees.describe(tree)
    monkeypatch.delitem(sys.modules, "acme.modules")
    assert list(jax.tree.unflatten(_jax_trees.restore(described), range(4))) == ["layers"]


OF_OTHERS = [
    "os:system",
    "builtins:eval",
    "acme.modules:MISSING",
    "subprocess:Popen",
    "numpy:load",
    "trap:Trap",
    "sys:x.y",
]


@pytest.mark.parametrize("name", [*OF_OTHERS, "jax:numpy.nothing", "jax", "", "jax:", 3])
def test_only_names_beside_the_class_and_in_jax_are_looked_up(name):
    """A file could hand out a function that runs once the user calls it."""
    described = _jax_trees.describe(jax.tree.structure(Module(1, 2, squared)))
    tree = _jax_trees.restore({**described, "static_by_name": {"name": name}})
    assert jax.tree.unflatten(tree, [10, 20]) == {"weight": 10, "bias": 20}


def test_no_name_is_looked_up_by_code_of_a_module(monkeypatch):
    """A module's `__getattr__` may import others."""
    lazy = types.ModuleType("tests.lazy")
    lazy.__getattr__ = lambda name: pytest.fail(f"looked up {name}")
    monkeypatch.setitem(sys.modules, "tests.lazy", lazy)
    described = _jax_trees.describe(jax.tree.structure(Module(1, 2, squared)))
    for changed in ({"static_by_name": {"name": "tests.lazy:it"}}, {"class": "tests.lazy:It"}):
        tree = _jax_trees.restore({**described, **changed})
        assert jax.tree.unflatten(tree, [10, 20]) == {"weight": 10, "bias": 20}


@pytest.mark.parametrize("load", [pb.load, pullback_runtime.load], ids=["pullback", "runtime"])
def test_a_module_in_the_manner_of_equinox_comes_back(load):
    model, x = network(), np.array([0.5, -2.0], np.float32)

    def loss(model, x):
        return jnp.sum(model(x) ** 2)

    loaded = load(artifact.serialize(pb.trace(loss)(model, x).grad()))
    expected = jax.grad(loss)(model, x)
    found = loaded(model, x)
    assert jax.tree.structure(found) == jax.tree.structure(model)
    stepped = jax.tree.map(lambda w, g: w - 0.1 * g, model, found)
    assert stepped.layers[1].unit is Unit.KILOMETRE
    jax.tree.map(np.testing.assert_allclose, found, expected)
    with pytest.raises((ArgumentError, pb.PullbackError), match=r"static data|structure"):
        loaded(network(jnp.sin), x)


def test_derivatives_of_a_loaded_program_have_the_structure_of_the_model():
    model, x = network(squared), np.array([0.5, -2.0], np.float32)

    def loss(model, x):
        return jnp.sum(model(x) ** 2)

    loaded = pb.load(artifact.serialize(pb.trace(loss)(model, x)))
    _, (found, _) = loaded.vjp()(model, x, np.float32(1))
    jax.tree.map(np.testing.assert_allclose, found, jax.grad(loss)(model, x))
    jax.tree.map(np.testing.assert_allclose, loaded.grad()(model, x), found)


def test_loading_never_imports_what_the_file_names(monkeypatch, tmp_path):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    described = {
        "kind": "class",
        "class": "trap:Trap",
        "fields": ["x"],
        "children": ["*"],
        "static": None,
    }
    assert jax.tree.unflatten(_jax_trees.restore(described), [1]) == {"x": 1}
    assert "trap" not in sys.modules


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "subprocess:Popen", "sys:modules"])
def test_names_of_things_that_are_no_pytree_classes_are_not_used(name):
    described = {"kind": "class", "class": name, "fields": ["x"], "children": ["*"], "static": None}
    assert jax.tree.unflatten(_jax_trees.restore(described), [1]) == {"x": 1}


@pytest.mark.parametrize(
    "described",
    [
        7,
        {},
        {"kind": "tuple"},
        {"kind": "planet", "children": []},
        {"kind": "dict", "keys": ["a"], "children": []},
        {"kind": "dict", "keys": "ab", "children": ["*", "*"]},
        {"kind": "dict", "keys": ["a", "a"], "children": ["*", "*"]},
        {"kind": "dict", "keys": ["a", 1], "children": ["*", "*"]},
        {"kind": "class", "class": "x:Y", "fields": ["a", "a"], "children": ["*", "*"]},
    ],
)
def test_damaged_trees(described):
    with pytest.raises(pullback_runtime.ArtifactError, match="argument tree is damaged"):
        _jax_trees.restore(described)


@pytest.mark.parametrize("data", [["weight"], ["weight", "bias", "scale"]])
@pytest.mark.parametrize("static", [[], ["name"], ["name", "kind"]])
def test_classes_whose_fields_have_changed_since(data, static, monkeypatch):
    """JAX's C++ code reads as many parts as the class has, and not as many as the tree has."""
    tree = jax.tree.structure([Layer(1, 2)])
    described = json.loads(json.dumps(_jax_trees.describe(tree)))
    options = {name: dataclasses.field(default="x", metadata={"static": True}) for name in static}
    fields = [(name, object, dataclasses.field(default=0)) for name in data]
    fields += [(name, str, option) for name, option in options.items()]
    changed = dataclasses.make_dataclass("Layer", fields, namespace={"__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Layer", jax.tree_util.register_dataclass(changed))
    restored = _jax_trees.restore(described)
    assert jax.tree.unflatten(restored, [1, 2]) == [{"weight": 1, "bias": 2}]
    assert _jax_trees.flatten_arguments(restored, [{"bias": 2, "weight": 1}]) == [1, 2]


@jax.tree_util.register_pytree_node_class
class Parts:
    """Registered with methods, which have no name that tells whose they are."""

    def __init__(self, *parts):
        self.parts = parts

    def tree_flatten(self):
        return self.parts, None

    @classmethod
    def tree_unflatten(cls, _, parts):
        return cls(*parts)


def test_a_class_registered_with_its_methods():
    tree = jax.tree.structure([Parts(1, (2,))])
    assert round_trip(tree) == tree


def test_a_name_that_is_that_of_a_dictionary_here(monkeypatch):
    described = json.loads(json.dumps(_jax_trees.describe(jax.tree.structure(Layer(1, 2)))))
    monkeypatch.setattr(sys.modules[__name__], "Layer", dict)
    restored = _jax_trees.restore(described)
    assert jax.tree.unflatten(restored, [1, 2]) == {"weight": 1, "bias": 2}


def test_keys_of_dictionaries_that_are_neither_text_nor_numbers():
    tree = jax.tree.structure({(1, "b"): 0, (1, "a"): 0})
    assert round_trip(tree) == tree


def test_a_tree_nested_without_end():
    described = "*"
    for _ in range(1000):
        described = {"kind": "list", "children": [described]}
    with pytest.raises(pullback_runtime.ArtifactError, match="nested more than 200 deep"):
        _jax_trees.restore(described)


def apply(model, x):
    value = model.activation(model.weight * x + model.bias)
    return Module(value, value.sum(), None), Layer(x, value)


def test_a_program_over_classes_that_are_not_here(monkeypatch):
    model = Module(jnp.full(3, 2.0), jnp.ones(3), jnp.tanh)
    x = jnp.arange(3.0)
    content = artifact.serialize(pb.trace(apply)(model, x))
    monkeypatch.delitem(sys.modules, __name__)
    expected = jnp.tanh(2 * x + 1)
    for loaded in (pb.load(content), pullback_runtime.load(content)):
        first, second = loaded({"bias": model.bias, "weight": model.weight}, x)
        assert list(first) == ["weight", "bias"]
        assert jnp.allclose(first["weight"], expected)
        assert jnp.allclose(first["bias"], expected.sum())
        assert jnp.allclose(second["bias"], expected)
    flat = pullback_runtime.load(content).flat(model.weight, model.bias, x)
    assert [leaf.shape for leaf in flat] == [(3,), (), (3,), (3,)]


def test_derivatives_of_a_program_over_classes_that_are_not_here(monkeypatch):
    """`jax.tree.map` sorts a dictionary by key; a class has its fields in an order of its own."""
    model, x = Module(jnp.full(3, 2.0), jnp.ones(3), jnp.tanh), jnp.arange(3.0)
    content = artifact.serialize(pb.trace(apply)(model, x))
    monkeypatch.delitem(sys.modules, __name__)
    loaded = pb.load(content)
    args = {"bias": model.bias, "weight": model.weight}, x
    tangents = {"bias": jnp.ones(3), "weight": x}, 2 * x

    def expected(weight, bias, x):
        value = jnp.tanh(weight * x + bias)
        return {"weight": value, "bias": value.sum()}, {"weight": x, "bias": value}

    leaves = model.weight, model.bias, x
    out, moved = jax.jvp(expected, leaves, (x, jnp.ones(3), 2 * x))
    pushed = pb.linearize(loaded, *args)[1](*tangents)
    for name in ("weight", "bias"):
        np.testing.assert_allclose(pushed[0][name], moved[0][name], rtol=1e-6)
    found, dx = pb.vjp(loaded, *args)[1](({"bias": out[0]["bias"], "weight": x}, out[1]))
    wanted = jax.vjp(expected, *leaves)[1](({"bias": out[0]["bias"], "weight": x}, out[1]))
    for given, want in zip((found["weight"], found["bias"], dx), wanted, strict=True):
        np.testing.assert_allclose(given, want, rtol=1e-6)
    only = {"bias": False, "weight": True}, True  # of a dictionary: in the order of its keys
    _, pull = pb.vjp(loaded, *args, in_nzs=only, saveable_args=(False, True))
    pull.args_res[0] = args[0]
    found, dx = pull(({"bias": out[0]["bias"], "weight": x}, out[1]))
    for given, want in zip((found["weight"], dx), wanted[::2], strict=True):
        np.testing.assert_allclose(given, want, rtol=1e-6)
    assert not found["bias"].any()
    pushed = pb.linearize(loaded, *args, in_nzs=only)[1](*tangents)
    moved = jax.jvp(expected, leaves, (x, jnp.zeros(3), 2 * x))[1]
    for name in ("weight", "bias"):
        np.testing.assert_allclose(pushed[0][name], moved[0][name], rtol=1e-6)
    with pytest.raises(ArgumentError, match="2 positional arguments are expected, and 3 were"):
        loaded(*leaves)


def test_typed_keys_cross_the_file():
    def draw(key, x):
        first, second = jax.random.split(key)
        return second, jax.random.normal(first, x.shape) + x

    key, x = jax.random.key(7), jnp.zeros(3)
    content = artifact.serialize(pb.trace(draw)(key, x))
    next_key, expected = draw(key, x)
    for loaded in (pb.load(content), pullback_runtime.load(content)):
        found_key, found = loaded(key, x)
        assert found_key.dtype == key.dtype
        assert jnp.array_equal(jax.random.key_data(found_key), jax.random.key_data(next_key))
        assert jnp.allclose(found, expected)


@pytest.mark.parametrize(
    ("saved", "given", "words"),
    [
        (Layer(0, 0, "relu"), Layer(0, 0, "sin"), r"\('relu',\), got .*\('sin',\)"),
        ({1: 0}, {"1": 0}, r"dict with fields \(1\), got dict with fields \('1'\)"),
        ([0, 0], [0], r"list with fields \(0, 1\), got list with fields \(0\)"),
        (collections.OrderedDict(a=0, b=0), collections.OrderedDict(b=0, a=0), "static data"),
        (None, (), r"expected None, got tuple"),
        ((), 0, r"tuple with fields \(\), got int"),
    ],
)
def test_what_is_beside_a_dictionary_by_field_name_must_be_what_was_saved(saved, given, words):
    """Static data that are others had been passed over, and so had keys of other types."""
    beside = Module(0, 0, UNNAMED)
    tree = round_trip(jax.tree.structure((saved, beside)))
    assert _jax_trees.flatten_arguments(tree, (saved, beside)) == jax.tree.leaves((saved, beside))
    with pytest.raises(ArgumentError, match=words):
        _jax_trees.flatten_arguments(tree, (given, beside))


def test_a_loaded_program_refuses_other_static_data_also_beside_a_class_that_is_not_here():
    def run(layer, module):
        return {"relu": jax.nn.relu, "sin": jnp.sin}[layer.name](layer.weight) + module.weight

    module = Module(1.0, 0.0, UNNAMED)
    content = artifact.serialize(pb.trace(run)(Layer(2.0, 0.0, "relu"), module))
    for loaded in (pb.load(content), pullback_runtime.load(content)):
        assert loaded(Layer(2.0, 0.0, "relu"), module) == 3.0
        with pytest.raises(ArgumentError, match="static data"):
            loaded(Layer(2.0, 0.0, "sin"), module)


@pytest.mark.parametrize(
    ("saved", "given", "words"),
    [
        (
            Unit.METRE,
            Unit.KILOMETRE,
            r"static data <Unit.METRE: 1.0>, got Module with.*<Unit.KILOM",
        ),
        (jnp.float32, jnp.int8, "float32.*, got Module with .*int8"),
        (jnp.sin, jnp.cos, "function sin>.*, got Module with .*function cos>"),
    ],
)
@pytest.mark.parametrize("is_here", [True, False])
def test_other_static_data_that_json_cannot_hold(saved, given, words, is_here, monkeypatch):
    """A quantity in kilometres had been taken for one in metres."""
    described = _jax_trees.describe(jax.tree.structure(Module(0, 0, saved)))
    with monkeypatch.context() as patched:
        if not is_here:
            patched.delitem(sys.modules, __name__)
        tree = _jax_trees.restore(json.loads(json.dumps(described)))
    assert _jax_trees.flatten_arguments(tree, Module(1, 2, saved)) == [1, 2]
    if not is_here:
        assert _jax_trees.flatten_arguments(tree, Pairs(1, 2)) == [1, 2]
    with pytest.raises(ArgumentError, match=words):
        _jax_trees.flatten_arguments(tree, Module(1, 2, given))


def test_other_static_data_of_a_class_that_was_not_here_then(monkeypatch):
    described = _jax_trees.describe(jax.tree.structure(Layer(0, 0, "relu")))
    with monkeypatch.context() as patched:
        patched.delitem(sys.modules, __name__)
        tree = _jax_trees.restore(described)
    assert _jax_trees.flatten_arguments(tree, Layer(1, 2, "relu")) == [1, 2]
    with pytest.raises(ArgumentError, match=r"static data \('relu',\), got Layer with \('sin',\)"):
        _jax_trees.flatten_arguments(tree, Layer(1, 2, "sin"))


def elsewhere(path):
    module = types.ModuleType("elsewhere")
    module.__file__ = path
    module.__spec__ = importlib.machinery.ModuleSpec("elsewhere", None, origin=path)
    module.__spec__.has_location = True
    return module


class WithAddress:
    def __init__(self, address):
        self.address = address

    def __repr__(self):
        return f"<WithAddress at 0x{self.address}>"


@pytest.mark.parametrize(
    ("saved", "given"),
    [
        ({"act": jnp.sin, "n": (1,)}, {"n": (1,), "act": jnp.sin}),
        ([({1: 2, 3: jnp.sin},)], [({3: jnp.sin, 1: 2},)]),
        ((elsewhere("/here/it.py"), jnp), (elsewhere("/there/it's.py"), jnp)),
        (WithAddress("00007FA7"), WithAddress("7fa8")),
    ],
)
def test_the_same_static_data_in_other_words(saved, given):
    """In another order, from another environment, and as Windows writes addresses."""
    tree = round_trip(jax.tree.structure(Module(0, 0, saved)))
    assert _jax_trees.flatten_arguments(tree, Module(1, 2, given)) == [1, 2]
    with pytest.raises(ArgumentError, match="static data"):
        _jax_trees.flatten_arguments(tree, Module(1, 2, [given, 1]))


@pytest.mark.parametrize("static", [frozenset("abc"), [{1.5, 2.5}, jnp.sin]])
def test_static_data_that_are_written_in_any_order_are_not_compared(static):
    tree = round_trip(jax.tree.structure(Module(0, 0, static)))
    assert _jax_trees.flatten_arguments(tree, Module(1, 2, jnp.cos)) == [1, 2]


def test_a_tree_that_is_too_deep_to_be_loaded_is_not_saved():
    deep = 1.0
    for _ in range(_jax_trees.MAX_DEPTH):
        deep = [deep]
    _jax_trees.describe(jax.tree.structure(deep))
    with pytest.raises(pb.ArtifactError, match="nested more than 200 deep"):
        artifact.serialize(pb.trace(lambda tree: tree)([deep]))
