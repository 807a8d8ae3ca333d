"""Programs on an engine that takes the file as it is: the same call and errors as with JAX."""

from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback_runtime as runtime
from pullback_runtime import _jax
from pullback_runtime._install import requirement
from pullback_runtime.call import _trees
from pullback_runtime.engine import _engines
from pullback_runtime.files import _bytecode_names, _container, _portable
from pullback_runtime.ir import _module
from tests.files import corpus
from tests.files.edited import edited

GOLDEN = Path(__file__).parents[1] / "files" / "golden"
PROGRAMS = sorted((GOLDEN / "format-1").glob("*.mlirbc"))
Pair = collections.namedtuple("Pair", "first second")
SHOW = """
import sys
sys.modules["jax"] = sys.modules["jaxlib"] = None  # so an import of them raises
import numpy as np
import pullback_runtime as runtime
"""


def portable(source, entry="main"):
    """A program that jaxlib runs as a plug-in would: from the bytes of the file alone."""
    engine = _engines.open_engine("jax", None, "cpu")
    return _portable.open_portable(_portable.read_whole(source, entry), engine)


def without_jax(code: str, *arguments: object) -> str:
    """What a fresh process prints in which JAX cannot be imported."""
    command = [sys.executable, "-c", SHOW + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def saved(function, *args):
    """The bytes of a program, saved by the compiler."""
    pullback = pytest.importorskip("pullback")
    return pullback.artifact.serialize(pullback.trace(function)(*args))


def words(call, *args, **kwargs) -> str:
    with pytest.raises(runtime.PullbackRuntimeError) as raised:
        call(*args, **kwargs)
    return str(raised.value)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_golden_programs_give_their_results(path):
    arguments, results = corpus.stored(path, "argument"), corpus.stored(path, "result")
    corpus.agree(portable(path).flat(*arguments), results)


def test_trees_go_in_and_out_as_with_jax():
    def function(pair, scale, *, shift):
        return {"sum": [pair.first + shift, None], "pair": Pair(pair.second * scale, scale)}

    pair = Pair(jnp.ones(3), jnp.arange(2.0))
    pullback = pytest.importorskip("pullback")
    content = pullback.artifact.serialize(pullback.trace(function)(pair, 2.0, shift=1.0))
    by_jax = runtime.load(content)(pair, 2.0, shift=1.0)
    found = portable(content)(pair, 2.0, shift=1.0)
    assert jax.tree.structure(found) == jax.tree.structure(by_jax)
    assert all(map(np.array_equal, jax.tree.leaves(found), jax.tree.leaves(by_jax)))
    by_name = portable(content)({"first": np.ones(3), "second": np.arange(2.0)}, 2.0, shift=1.0)
    assert np.array_equal(by_name["sum"][0], found["sum"][0])


TREES = {"w": [np.ones(2), np.ones(3)], "b": None}
MISFITS = {
    "too few": ((TREES,), {}),
    "a missing key": (({"w": [1.0, 2.0]}, 1.0), {}),
    "another container": (({"w": (1.0, 2.0), "b": None}, 1.0), {}),
    "a longer list": (({"w": [1.0, 2.0, 3.0], "b": None}, 1.0), {}),
    "None for a value": (({"w": [1.0, None], "b": None}, 1.0), {}),
    "a list for an array": ((TREES, [1.0]), {}),
    "a name too many": ((TREES, 1.0), {"other": 1.0}),
    "another shape": (({"w": [np.ones(2), np.ones(4)], "b": None}, 1.0), {}),
    "an integer for a float": (({"w": [np.ones(2), np.ones(3, np.int32)], "b": None}, 1.0), {}),
    "a complex number": ((TREES, 1j), {}),
    "a truth value": ((TREES, True), {}),
    "half precision": (({"w": [np.ones(2), np.ones(3, np.float16)], "b": None}, 1.0), {}),
}


@pytest.fixture(scope="module")
def of_trees():
    return saved(lambda tree, x: x * jnp.sum(tree["w"][0]) + tree["w"][1], TREES, 1.0)


@pytest.mark.parametrize("case", MISFITS)
def test_a_call_that_does_not_fit_has_the_words_of_jax(of_trees, case):
    args, kwargs = MISFITS[case]
    found = words(portable(of_trees), *args, **kwargs)
    assert found == words(runtime.load(of_trees), *args, **kwargs)


def test_a_value_for_none_is_refused(of_trees):
    found = words(portable(of_trees), {"w": [1.0, 2.0], "b": 1.0}, 1.0)
    assert "expected None, got float\n  where: argument 0.b" in found  # JAX names its tracer


def outcome(call, value):
    """What a call returns, and of which type, or the words of its error."""
    try:
        result = np.asarray(call(value))
    except runtime.ArgumentError as error:
        return str(error)
    return result.dtype, result.item()


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", "bfloat16", "complex64", "bool"])
@pytest.mark.parametrize("value", [True, 5, -1, 1.5, 2j, np.float64(2), np.int64(3)], ids=repr)
def test_numbers_are_converted_as_with_jax(dtype, value):
    content = saved(lambda x: x, jnp.zeros((), dtype))
    found, expected = (outcome(load(content), value) for load in (portable, runtime.load))
    assert found == expected


def test_integers_that_do_not_fit_are_refused():
    program = portable(saved(lambda x: x, jnp.zeros(2, jnp.int32)))
    assert np.array_equal(program(np.array([1, -2])), [1, -2])  # 64 bits
    expected = "argument 0 (x) does not fit into int32[2]: it has values from 1 to 1099511627776"
    assert expected in words(program, np.array([1, 2**40]))
    number = portable(saved(lambda x: x, jnp.zeros((), jnp.int32)))
    assert "argument 0 (x) does not fit into int32[]" in words(number, 2**40)


@pytest.mark.parametrize("value", ["a", object(), np.array(["a"])], ids=["text", "object", "texts"])
def test_what_is_no_array_is_refused(value):
    program = portable(saved(lambda x: x, jnp.zeros(())))
    assert "argument 0 (x) is no array: expected float32[], got" in words(program, value)


def test_arrays_of_64_bits_and_without_elements():
    with jax.enable_x64(True):
        content = saved(lambda x, y: (x * 2, y), jnp.ones(2), jnp.zeros((0, 3)))
    double, empty = portable(content)(np.array([0.1, 0.2]), np.zeros((0, 3)))
    assert double.dtype == np.float64
    assert np.array_equal(double, [0.2, 0.4])
    assert empty.shape == (0, 3)


def test_a_random_key_is_given_as_its_words():
    key = jax.random.key(0)
    content = saved(lambda key: (jax.random.uniform(key), key), key)
    value, words_of_key = portable(content)(np.asarray(jax.random.key_data(key)))
    assert value == jax.random.uniform(key)
    assert np.array_equal(words_of_key, jax.random.key_data(key))


def test_it_says_what_the_file_holds():
    path = GOLDEN / "format-1" / "recurrent.mlirbc"
    assert portable(path).describe().splitlines() == [
        "platforms   cpu",
        "argument    weights: float32[3]",
        "argument    inputs: float32[5]",
        "result      result[0]: float32[3]",
        "result      result[1]: float32[5]",
        "rule        pullback.custom_jvp_call @logaddexp: jvp",
        "rule        pullback.custom_jvp_call @logistic: jvp",
        "rule        pullback.custom_jvp_call @softplus: jvp",
    ]
    assert portable(path).describe() == runtime.load(path).describe()
    assert repr(portable(path)) == "PortableProgram(weights, inputs)"


def test_jax_says_it_of_other_files_too():
    found = runtime.load(TWO.encode()).describe().splitlines()
    assert found[1:] == ["argument    0: float32[2]", "result      result[0]: float32[2]"]
    pullback = pytest.importorskip("pullback")
    size = jax.export.symbolic_shape("b, 4")
    program = pullback.trace(jnp.sin)(jax.ShapeDtypeStruct(size, jnp.float32))
    found = runtime.load(pullback.artifact.serialize(program)).describe().splitlines()
    assert found[1:] == ["argument    x: float32[b,4]", "result      result: float32[b,4]"]


def test_files_that_only_jax_reads(tmp_path):
    reads = _portable.read_whole
    assert "and only JAX can read others: it is no MLIR bytecode" in words(reads, b"module {}")
    symbolic = GOLDEN / "symbolic-1" / "loss.mlirbc"
    found = words(reads, symbolic)
    assert "only JAX runs a program with symbolic dimensions" in found
    assert f"where: {symbolic}" in found
    content = bytearray(PROGRAMS[0].read_bytes())
    content[-1] ^= 1
    assert "does not have the digest" in words(reads, bytes(content))
    assert "cannot read" in words(reads, tmp_path / "nowhere.mlirbc")


def test_a_file_of_an_earlier_version_has_no_types():
    content = edited(saved(jnp.sin, 1.0), signature=None)
    found = words(_portable.read_whole, content)
    assert "the file does not say the types of its arguments" in found
    assert 'load it with engine="jax", or save it again' in found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mesh": [["x", 4]]}, "only JAX runs a program on several devices"),
        ({"arguments": []}, "names, trees and types of other numbers of arguments"),
        ({"signature": [[], ["float32[]"]]}, "names, trees and types of other numbers"),
        ({"signature": [["float32"], ["float32[]"]]}, "argument types are damaged: 'float32'"),
        ({"signature": [["sin[]"], ["float32[]"]]}, "argument types are damaged: no dtype 'sin'"),
        ({"signature": 3}, "argument types are damaged"),
        ({"out_tree": {"kind": "list"}}, "argument tree is damaged"),
        ({"pullback-format": 2}, "reads up to 1"),
    ],
    ids=str,
)
def test_metadata_that_do_not_fit_are_refused(changes, expected):
    content = edited(saved(jnp.sin, 1.0), **changes)
    assert expected in words(_portable.read_whole, content)


def test_results_of_other_types_are_refused():
    whole = _portable.read_whole(saved(jnp.sin, 1.0))
    program = _portable.open_compiled(whole, lambda arrays: [np.float64(1.0)])
    assert "the engine returned arrays of other types than the file names" in words(program, 1.0)


def test_the_names_of_calls_are_checked_when_a_file_is_read():
    target = "xla_python_cpu_callback"

    def call_python(module):
        for call in _jax.operations_named(module, "stablehlo.custom_call"):
            call.attributes["call_target_name"] = _jax.ir.StringAttr.get(target)

    content = edited((GOLDEN / "format-1" / "solver.mlirbc").read_bytes(), call_python)
    assert f"the file calls `{target}`" in words(_portable.read_whole, content)


def test_the_main_of_another_platform_is_not_run():
    pullback = pytest.importorskip("pullback")

    def function(x):
        return jax.lax.platform_dependent(x, tpu=jnp.cos, default=jnp.sin)

    content = pullback.artifact.serialize(
        pullback.trace(function, platforms=("tpu", "cpu"))(jnp.ones(2))
    )
    found = words(portable, content)
    assert "the file's @main is for tpu, and that for cpu is @main" in found
    assert 'save(platforms=["cpu"])' in found


TWO = """
module {
  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %y = stablehlo.sine %x : tensor<2xf32>
    return %y : tensor<2xf32>
  }
  func.func public @other(%x: tensor<2xf32>) -> tensor<2xf32> {
    %y = func.call @main(%x) : (tensor<2xf32>) -> tensor<2xf32>
    %z = stablehlo.add %y, %y : tensor<2xf32>
    return %z : tensor<2xf32>
  }
}
"""


def test_another_public_function_is_run_by_the_name_of_main():
    """As bytes: `@main` and `@other` exchange their names, and so do the calls of them."""
    module = _module.parse(TWO.encode())
    stablehlo = _jax.stablehlo
    with module.context, _jax.ir.Location.unknown(module.context):
        content = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
    layout, engine = _container.read_layout(content), _engines.open_engine("jax", None, "cpu")
    x = np.array([0.5, 1.0], np.float32)
    for name, factor in (("main", 1), ("other", 2)):
        (found,) = engine.compile(_bytecode_names.with_main(content, layout, name))([x])
        np.testing.assert_allclose(found, factor * np.sin(x), rtol=1e-6)
    with pytest.raises(runtime.ArtifactError, match="the file has no function @third"):
        _bytecode_names.with_main(content, layout, "third")


@pytest.mark.parametrize("name", ["xla_ffi_python_cpu_callback", "CustomSPMDPartitioning"])
def test_calls_of_the_process_that_made_the_file_are_refused(name):
    strings = f"custom_call_v1\0{name}\0".encode()
    with pytest.raises(runtime.ArtifactError, match=f"the file calls `{name}`"):
        _portable.check_names(strings)
    with pytest.raises(runtime.ArtifactError, match="the file has `infeed`"):
        _portable.check_names(b"infeed_v2\0")
    _portable.check_names(b"custom_call_v1\0lapack_spotrf_ffi\0")


@pytest.mark.parametrize(
    "damaged",
    [{}, {"kind": "set"}, {"kind": "dict", "keys": ["a"], "children": []}, 3],
    ids=repr,
)
def test_damaged_trees_are_refused(damaged):
    with pytest.raises(runtime.ArtifactError, match="the file's argument tree is damaged"):
        _trees.restore(damaged)


def test_a_process_without_jax_shows_and_asks_for_an_engine():
    printed = without_jax(
        """
program = runtime.load(sys.argv[1])
print(program.describe())
for use in (
    lambda: program(np.ones(3), np.ones(5)),
    lambda: runtime.load(sys.argv[1], engine="jax"),
    lambda: runtime.compile,
    lambda: runtime.save_executable(sys.argv[1], "out.exe"),
    lambda: runtime.load(sys.argv[1], engine="gpu"),
):
    try:
        use()
    except runtime.EngineNotFoundError as error:
        print(error)
print(*[name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib")])
""",
        GOLDEN / "format-1" / "recurrent.mlirbc",
    )
    assert "argument    weights: float32[3]" in printed
    nothing = "nothing here runs a program: JAX is not installed, and no engine was named"
    assert printed.count(nothing) == 2
    assert printed.count(f"do:    pip install {requirement('pullback-runtime', 'jax')}; or") == 2
    assert "engine 'jax' needs the package jax, which is not installed" in printed
    assert "pullback_runtime.compile needs JAX, which is not installed" in printed
    assert "no engine 'gpu'\n  do:    choose one of 'jax', 'pjrt', 'iree'" in printed
    assert printed.splitlines()[-1] == "jax jaxlib"  # the two that stand for absent packages


@pytest.mark.parametrize("engine", ["pjrt", "iree"])
def test_a_missing_engine_says_what_to_install(monkeypatch, engine):
    package = {"pjrt": "pypjrt", "iree": "iree.runtime"}[engine]
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)
    found = words(runtime.load, PROGRAMS[0], engine=engine)
    assert f"engine '{engine}' needs the package {package}" in found
    assert f"do:    pip install {requirement('pullback-runtime', engine)}" in found


def test_importing_the_package_imports_no_jax():
    code = "import pullback_runtime, sys; print('jax' in sys.modules, 'jaxlib' in sys.modules)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "False False\n"


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = runtime.nothing


def test_entries_of_one_file(tmp_path):
    pullback = pytest.importorskip("pullback")
    program = pullback.trace(lambda x: jnp.sum(jnp.logaddexp(x, 0.0) * x))(jnp.ones(3))
    path, x = tmp_path / "all.mlirbc", np.array([0.5, 1.0, 2.0], np.float32)
    pullback.save_all(path, energy=program, forces=program.grad())
    energy, forces = portable(path), portable(path, "forces")
    np.testing.assert_allclose(energy(x), program(x), rtol=1e-6)
    np.testing.assert_allclose(forces(x), program.grad()(x), rtol=1e-6)
    assert list(energy.entries) == ["energy", "forces"]
    np.testing.assert_allclose(energy.entries["forces"](x), forces(x))
    assert forces.describe() == runtime.load(path, entry="forces").describe()
    assert forces.describe().splitlines()[0] == "entries     energy, forces"
    assert "result      result: float32[3]" in forces.describe()
    found = words(portable, path, "virial")
    assert "the file has no entry `virial`" in found
    assert found == words(runtime.load, path, entry="virial")
