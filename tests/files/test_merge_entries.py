"""Several programs in one file, as entries with names."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback.files import merge_entries
from pullback.ir import ops
from pullback.ir.symbols import functions, is_public
from pullback_runtime.files import _container, _entries
from pullback_runtime.ir import _module
from tests.files import models

WIDTH = 64


@jax.custom_jvp
def distance(x):
    """A norm whose tangent is twice the true one, so that a lost rule shows."""
    return jnp.sqrt(jnp.sum(x * x, -1) + 1e-6)


@distance.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    norm = distance(x)
    return norm, 2 * jnp.sum(x * dx, -1) / norm


def parameters():
    random = np.random.default_rng(0)
    sizes = [8, WIDTH, WIDTH, WIDTH, 1]
    shapes = zip(sizes, sizes[1:], strict=False)
    return [jnp.asarray(random.normal(size=shape) / 4, jnp.float32) for shape in shapes]


def of_parameters(weights, x, cell):
    """The energy of a small network over distances of particles."""
    positions = x @ cell
    apart = distance(positions[:, None] - positions[None] + 1e-2)
    features = jnp.exp(-((apart[..., None] - jnp.arange(8.0)) ** 2)).sum(1)
    for each in weights[:-1]:
        features = jax.nn.silu(features @ each)
    return jnp.sum(jax.nn.softplus(features @ weights[-1]))


energy = functools.partial(of_parameters, parameters())


def positions():
    return jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)), jnp.float32), jnp.eye(3)


def traced():
    program = pb.trace(energy)(*positions())
    forces = program.grad(0)
    return {
        "energy": program,
        "forces": forces,
        "both": program.value_and_grad(0),
        "virial": program.grad(1),
        "hvp": forces.jvp(0),
    }


def hvp(x, cell, dx):
    return jax.jvp(lambda x: jax.grad(energy)(x, cell), (x,), (dx,))


EXPECTED = {
    "energy": jax.jit(energy),
    "forces": jax.jit(jax.grad(energy)),
    "both": jax.jit(jax.value_and_grad(energy)),
    "virial": jax.jit(jax.grad(energy, 1)),
    "hvp": jax.jit(hvp),
}


def arguments(name):
    x, cell = positions()
    return (x, cell, jnp.cos(x)) if name == "hvp" else (x, cell)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("entries") / "model.mlirbc"
    pb.save_all(path, **traced())
    return path


def close(found, expected):
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=2e-5), found, expected
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_each_entry_computes_what_was_saved(path, name):
    args, expected = arguments(name), EXPECTED[name](*arguments(name))
    for loaded in (pb.load(path, entry=name), pullback_runtime.load(path, entry=name)):
        assert tuple(loaded.entries) == tuple(EXPECTED)
        close(loaded(*args), expected)
        close(loaded.entries[name](*args), expected)
    close(pullback_runtime.load(path, entry=name).flat(*args), jax.tree.leaves(expected))


@pytest.mark.parametrize("name", EXPECTED)
def test_each_entry_is_differentiated_batched_and_lowered(path, name):
    loaded, (x, *rest) = pb.load(path, entry=name), arguments(name)
    assert all(call.symbols for call in ops.walk_calls(loaded.module)), "the rules are kept"

    @jax.jit
    def expected(x):
        def of_x(x):
            return EXPECTED[name](x, *rest)

        out, pull = jax.vjp(of_x, x)
        tangents = jax.jvp(of_x, (x,), (jnp.sin(x),))[1]
        return out, pull(out)[0], tangents, jax.vmap(of_x)(jnp.stack([x, 2 * x]))

    out, cotangent, tangents, batch = expected(x)
    close(loaded.jvp(0)(x, *rest, jnp.sin(x))[1], tangents)
    close(loaded.vjp(0)(x, *rest, out)[1], cotangent)
    close(loaded.vmap((0, *(None for _ in rest)))(jnp.stack([x, 2 * x]), *rest), batch)
    close(loaded.run_passes("to-stablehlo").compile()(x, *rest), out)


def test_a_third_derivative_of_an_entry(path):
    x, cell = positions()
    loaded, dx = pb.load(path, entry="forces").jvp(0).jvp(0), jnp.cos(x)

    def along(t):
        return EXPECTED["forces"](x + t * dx, cell)

    close(loaded(x, cell, dx, dx)[1][1], jax.jit(jax.jacfwd(jax.jacfwd(along)))(0.0))


def test_the_first_entry_is_the_program_that_any_tool_runs(path):
    content = path.read_bytes()
    close(pb.load(path)(*positions()), energy(*positions()))
    (value,) = pullback_runtime.run_interpreted(content, *positions())
    close(value, energy(*positions()))
    (forces,) = pullback_runtime.run_interpreted(content, *positions(), entry="forces")
    close(forces, EXPECTED["forces"](*positions()))
    module = _module.parse(content)
    public = [name for name, each in functions(module).items() if is_public(each)]
    assert public == ["main", "forces", "both", "virial", "hvp"]


def test_five_entries_take_at_most_a_third_more_than_one(path):
    alone = len(artifact.serialize(traced()["energy"]))
    ratio = path.stat().st_size / alone
    assert ratio <= 1.3, f"{path.stat().st_size} bytes for five, {alone} for one: {ratio:.2f}"


def test_an_entry_costs_its_own_function_alone(path):
    """All rules of derivatives are those of the program that they are derived from."""
    of_one = functions(_module.parse(artifact.serialize(traced()["energy"])))
    of_all = functions(_module.parse(path.read_bytes()))
    by_one_operand = "logaddexp.jvp.10"  # of which the energy alone has the rule by both
    assert {*of_all} - {*of_one} - {by_one_operand} == {*EXPECTED} - {"energy"}
    text = _container.read_layout(path.read_bytes()).metadata[_entries.METADATA]
    assert {name: set(own) for name, own in text.items()} == {
        "energy": set(),
        "forces": {"entries", "signature"},
        "both": {"out_tree", "entries", "signature"},
        "virial": {"entries", "signature"},
        "hvp": {"in_tree", "out_tree", "arguments", "entries", "signature"},
    }


WEIGHTS = models.weights(1 << 15)


def weighted(x):
    return jnp.sum(WEIGHTS * x)


def several(copy):
    """Programs traced by themselves, which close over equal arrays, or over the same one."""
    other = copy(WEIGHTS)
    return {
        "sum": pb.trace(weighted)(jnp.float32(2)),
        "path": pb.trace(jnp.sin)(jnp.float32(2)),
        "slope": pb.trace(weighted)(jnp.float32(2)).grad(),
        "other": pb.trace(lambda y, x: (x[0] * y, jnp.sum(jnp.sin(other * x))))(2.0, jnp.ones(1)),
    }


@pytest.mark.parametrize("copy", [lambda array: array, np.copy], ids=["same", "equal"])
def test_constants_are_written_and_loaded_once(tmp_path, copy):
    path = tmp_path / "constants.mlirbc"
    pb.save_all(path, **several(copy))
    assert path.read_bytes().count(WEIGHTS.tobytes()) == 1
    assert path.stat().st_size < WEIGHTS.nbytes + 8000
    loaded = pb.load(path)
    found = [each.constants for each in loaded.entries.values()]
    assert [*map(len, found)] == [1, 0, 1, 1]
    assert len({id(array) for each in found for array in each}) == 1
    runs = pullback_runtime.load(path, entry="other").entries
    assert len({id(array) for each in runs.values() for array in each.constants}) == 1
    for entries in (loaded.entries, runs):
        close(entries["sum"](2.0), 2 * jnp.sum(WEIGHTS))
        close(entries["path"](2.0), jnp.sin(2.0))
        close(entries["slope"](2.0), jnp.sum(WEIGHTS))
        close(entries["other"](3.0, jnp.ones(1)), (3.0, jnp.sum(jnp.sin(WEIGHTS))))


def test_constants_that_stay_in_the_module(monkeypatch):
    monkeypatch.setattr("pullback_runtime.files._artifact.EMBEDDED_BELOW", 1 << 30)
    content = _saved(**several(np.copy))
    loaded = pb.load(content, entry="other")
    assert loaded.constants == ()
    close(loaded(3.0, jnp.ones(1)), (3.0, jnp.sum(jnp.sin(WEIGHTS))))
    close(loaded.entries["slope"](2.0), jnp.sum(WEIGHTS))


def _saved(platforms=None, **entries):
    """The bytes that `save_all` writes."""
    with tempfile.TemporaryDirectory() as folder:
        pb.save_all(Path(folder) / "saved.mlirbc", platforms=platforms, **entries)
        return (Path(folder) / "saved.mlirbc").read_bytes()


def test_large_constants_of_rules_are_shared_and_saved_again(tmp_path):
    """One that the function has as well, and one that only its rule has."""
    shared, own = (models.weights(2 << 14)[i::2].reshape(128, 128) for i in range(2))
    scaled = jax.jit(lambda x: jnp.tanh(x @ own))

    @jax.custom_jvp
    def function(x):
        return x @ shared

    @function.defjvp
    def _(primals, tangents):
        (x,), (dx,) = primals, tangents
        return function(x), 3 * dx @ shared + scaled(x) * dx

    def model(x):
        return jnp.sum(jnp.sin(function(x)))

    def written():
        content = path.read_bytes()
        assert [content.count(each.tobytes()) for each in (shared, own)] == [1, 1]
        return len(content), functions(_module.parse(content))

    x, path = models.weights(128) / 16, tmp_path / "rules.mlirbc"
    program = pb.trace(model)(x)
    again = pb.trace(model)(x).grad().jvp()
    pb.save_all(path, value=program, slope=program.grad(), again=again)
    written()
    value, slope, again = (each.constants for each in pb.load(path).entries.values())
    assert {id(value[0])} < {*map(id, slope)} == {*map(id, again)}
    program = pb.load(artifact.serialize(program))
    pb.save_all(path, value=program, slope=program.grad(), again=program.grad().jvp())
    size, names = written()
    assert sum(name.startswith("function.") for name in names) == 1, names  # its jvp
    loaded = pb.load(path)
    assert str(loaded).count("dense_resource<"), "the rule has its constant"
    pb.save_all(path, **loaded.entries, more=loaded.grad())
    size_of_four, names_of_four = written()
    assert size_of_four < size + 3000
    assert set(names_of_four) == {*names, "more"}, "all share their rules"
    slope = jax.grad(model)
    for name in ("slope", "more"):
        close(pb.load(path, entry=name)(x), slope(x))
    for tangent in (pb.load(path, entry="again"), pb.load(path, entry="more").jvp()):
        close(tangent(x, x), jax.jvp(slope, (x,), (x,)))


def test_each_entry_has_its_own_trees_and_types(tmp_path):
    args, kwargs = models.arguments()
    model = models.program()
    key = jax.random.key(3)
    entries = {
        "model": model,
        "draw": pb.trace(lambda key, *, shift: {"n": jax.random.normal(key, (3,)) + shift})(
            key, shift=1.0
        ),
        "split": pb.trace(jax.random.split)(key),
    }
    path = tmp_path / "trees.mlirbc"
    pb.save_all(path, **entries)
    for load in (pb.load, pullback_runtime.load):
        close(load(path)(*args, **kwargs), model(*args, **kwargs))
        close(load(path, entry="draw")(key, shift=2.0), {"n": jax.random.normal(key, (3,)) + 2})
        keys = load(path, entry="split")(key)
        assert jnp.array_equal(
            jax.random.key_data(keys), jax.random.key_data(jax.random.split(key))
        )
    loaded = pb.load(path)
    assert loaded.entries["draw"].arg_paths == ("key", "shift")
    assert loaded.arg_paths == model.arg_paths


def test_equal_entries_are_public_functions_of_their_own():
    program = pb.trace(models.doubled_sine)(jnp.float32(1))
    content = _saved(first=program, second=program, third=pb.trace(models.doubled_sine)(1.0))
    module = _module.parse(content)
    known = functions(module)
    assert [name for name, each in known.items() if is_public(each)] == ["main", "second", "third"]
    for name in ("first", "second", "third", "main"):
        close(pb.load(content, entry=name).grad()(0.5), 2 * np.cos(0.5))


def test_entries_of_several_platforms():
    def by_platform(x):
        y = jax.lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos)
        return jnp.sum(models.doubled_sine(y))

    program = pb.trace(by_platform, platforms=("cpu", "tpu"))(jnp.ones(3))
    plain = pb.trace(lambda x: x * 2, platforms=("tpu", "cpu"))(jnp.ones(3))
    content = _saved(f=program, plain=plain, slope=program.grad())
    x = jnp.linspace(0.0, 1.0, 3)
    loaded = pb.load(content)
    for name, function in (("cpu", jnp.sin), ("tpu", jnp.cos)):
        slope = loaded.entries["slope"].for_platform(name)
        (inner_slope,) = jax.vjp(function, x)[1](2 * jnp.cos(function(x)))
        close(slope(x), inner_slope)
        close(slope.jvp()(x, x)[0], slope(x))
        close(loaded.entries["plain"].for_platform(name)(x), 2 * x)
    assert loaded.entries["slope"].platforms == ("cpu", "tpu")
    close(pullback_runtime.load(content, entry="slope")(x), loaded.entries["slope"](x))
    one = pb.trace(jnp.sin, platforms=("cpu",))(x)
    with pytest.raises(pb.ArtifactError, match="the entries are for different platforms") as caught:
        _saved(both=program, one=one)
    assert "both: cpu, tpu; one: cpu" in str(caught.value)
    for platforms in (["cpu"], "cpu"):
        assert pb.load(_saved(platforms, both=program, one=one)).platforms == ("cpu",)
    with pytest.raises(pb.ArtifactError, match="traced for cpu, not for tpu") as caught:
        _saved(("cpu", "tpu"), both=program, one=one)
    assert "so it is for the entry `one`" in caught.value.__notes__


def test_entries_of_different_meshes_are_refused():
    """`test_sharded.py` does so with devices."""
    with pytest.raises(pb.ArtifactError, match=r"a: \(x: 2\); b: \(x: 4\)"):
        merge_entries.check_meshes({"a": (("x", 2),), "b": (("x", 4),)})
    merge_entries.check_meshes({"a": (("x", 2),), "b": (("x", 2),)})


def test_a_file_of_one_program_has_the_entry_main():
    for path in Path(__file__).parent.glob("golden/format-*/*.mlirbc"):
        for load in (pb.load, pullback_runtime.load):
            assert tuple(load(path).entries) == ("main",)
            assert tuple(load(path, entry="main").entries) == ("main",)
    program = pb.trace(jnp.sin)(1.0)
    assert _saved(main=program) == artifact.serialize(program)
    assert pb.load(_saved(main=program)).entries["main"](2.0) == pytest.approx(np.sin(2.0))


def test_what_is_derived_or_traced_has_no_entries(path):
    loaded = pb.load(path)
    assert not loaded.grad().entries
    assert not loaded.stage_rules().entries
    assert not pb.trace(jnp.sin)(1.0).entries
    assert "forces" in loaded.entries
    assert repr(loaded.entries) == "Entries(energy, forces, both, virial, hvp)"
    with pytest.raises(KeyError, match="no entry 'stress'; there are energy, forces"):
        loaded.entries["stress"]


@pytest.mark.parametrize("load", [pb.load, pullback_runtime.load])
def test_an_entry_that_is_not_there(path, load):
    with pytest.raises(pullback_runtime.ArtifactError, match="has no entry `stress`") as caught:
        load(path, entry="stress")
    assert f"{path}, its entries: energy, forces, both, virial, hvp" in str(caught.value)
    with pytest.raises(pullback_runtime.ArtifactError, match="its entries: main"):
        load(artifact.serialize(pb.trace(jnp.sin)(1.0)), entry="forces")


MODULE = """
func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
func.func @twice(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %x, %x : tensor<f32>
  return %0 : tensor<f32>
}
"""


def test_a_function_of_another_module():
    for load in (pb.load, pullback_runtime.load):
        assert load(MODULE.encode(), entry="twice")(3.0) == 6
        assert load(MODULE.encode())(3.0) == 3
        assert not load(MODULE.encode()).entries
        with pytest.raises(pullback_runtime.ArtifactError, match="has no function @thrice"):
            load(MODULE.encode(), entry="thrice")
        exported = jax.export.export(jax.jit(jnp.sin))(1.0).serialize()
        with pytest.raises(pullback_runtime.ArtifactError, match="which is its @main, and not @f"):
            load(exported, entry="f")


def _sine():
    return pb.trace(jnp.sin)(1.0)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (dict, "there are no entries to save"),
        (lambda: {"f": jnp.sin}, "the entry `f` is no program: it is of type"),
        (lambda: {"a-b": _sine()}, "`a-b` cannot be the name of an entry: it is no identifier"),
        (lambda: {"é": _sine()}, "it is no identifier"),
        (lambda: {"f": _sine(), "main": _sine()}, "the name of the first entry only"),
        (
            lambda: {"f": pb.trace(models.doubled_sine)(1.0), "doubled_sine": _sine()},
            "`doubled_sine` cannot be the name of an entry: a function of the module has it",
        ),
        (lambda: {"f": _sine(), "order": _sine()}, "no entry can have the name `order`"),
        (
            lambda: {
                "f": _sine(),
                "s": pb.trace(jnp.sin)(
                    jax.ShapeDtypeStruct(jax.export.symbolic_shape("b"), jnp.float32)
                ),
            },
            "the entry `s` has symbolic dimensions",
        ),
    ],
)
def test_refused(entries, words, tmp_path):
    path = tmp_path / "refused.mlirbc"
    with pytest.raises(pb.ArtifactError) as caught:
        pb.save_all(path, **entries())
    assert words in str(caught.value)
    assert "do:" in str(caught.value)
    assert not path.exists()


def test_an_error_names_the_entry(tmp_path):
    @jax.custom_jvp
    def refusing(x):
        return x

    @refusing.defjvp
    def _(primals, tangents):
        raise TypeError("no such slope")

    with pytest.raises(pb.MissingRuleError, match="no such slope") as caught:
        pb.save_all(tmp_path / "f.mlirbc", sine=_sine(), second=pb.trace(refusing)(1.0))
    assert "so it is for the entry `second`" in caught.value.__notes__


def test_metadata_of_entries():
    first, own = {"a": 1, "b": [2]}, {"b": [2], "c": 3}
    found = _entries.differences(first, own)
    assert found == {"a": None, "c": 3}
    metadata = {**first, _entries.METADATA: {"f": {}, "g": found}}
    assert _entries.metadata_of(metadata, "f") == first
    assert _entries.metadata_of(metadata, "g") == {"a": None, "b": [2], "c": 3}
    for damaged in ([], {}, {"f": 3}, 7):
        with pytest.raises(_container.ArtifactError, match="metadata are damaged: named_entries"):
            _entries.names_of({_entries.METADATA: damaged})
