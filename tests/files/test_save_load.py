"""Save and load: numbers, rules, refusals, size."""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import _jax, artifact
from pullback._jax import ir
from pullback.files import container
from pullback.ir import ops
from pullback_runtime.files import _container
from pullback_runtime.ir import _module
from tests.files import models
from tests.rounding import FUNCTION, close
from tests.work import layers_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SAVE_MEMORY = BENCHMARKS / "save_memory.py"
STANDARD_EXAMPLES = runpy.run_path(str(BENCHMARKS / "programs.py"))["CASES"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.mlirbc"
    models.program().save(path)
    return path


def test_a_loaded_program_computes_the_same(saved):
    args, kwargs = models.arguments()
    expected = models.loss(*args, **kwargs)
    for loaded in (pb.load(saved), pullback_runtime.load(saved)):
        found = loaded(*args, **kwargs)
        assert found.keys() == expected.keys()
        assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-6)
        assert (found["count"].dtype, int(found["count"])) == (jnp.int32, 4)


def test_arguments_keep_their_names(saved):
    program = pb.load(saved)
    assert program.arg_paths == ("params['b']", "params['w']", "x", "scale")
    assert program.in_tree == models.program().in_tree
    args, kwargs = models.arguments()
    with pytest.raises(pullback_runtime.ArgumentError, match=r"params\['w'\]"):
        program({"b": args[0]["b"], "w": jnp.ones(5)}, args[1], **kwargs)


def test_every_rule_is_in_the_file_as_a_symbol(saved):
    module = pb.load(saved).module
    calls = list(ops.walk_calls(module))
    names = {call.decomposition: call for call in calls}
    assert {"fwd", "bwd"} <= set(names["doubled_sine"].symbols)
    assert "jvp" in names["clipped"].symbols
    defined = {op.attributes["sym_name"].value for op in module.body.operations}
    assert {symbol for call in calls for symbol in call.symbols.values()} <= defined
    assert all(call.rule_key is None for call in calls)


def test_chlo_ops_come_back(saved):
    """An expanded `chlo.erf` would be differentiated as a polynomial."""
    before = str(models.program().stage_rules())
    assert str(pb.load(saved)).count("chlo.erf ") == before.count("chlo.erf ") > 0


def test_a_saved_program_can_be_saved_again(saved):
    again = artifact.serialize(pb.load(saved))
    assert artifact.serialize(pb.load(again)) == again
    args, kwargs = models.arguments()
    assert jnp.allclose(
        pb.load(again)(*args, **kwargs)["loss"], models.loss(*args, **kwargs)["loss"]
    )


def test_threads_may_save_and_derive_one_program():
    """Each file is prepared in an MLIR context of its own, where the rules are lowered again."""
    tables = [jnp.asarray(models.weights(1 << 13)) + i for i in range(2)]

    def made(table):
        @jax.custom_vjp
        def scaled(x):
            return x * table

        scaled.defvjp(lambda x: (x * table, None), lambda _, ct: (2 * ct * table,))
        return pb.trace(lambda x: jnp.sum(scaled(x)))(table)

    programs = list(map(made, tables)) * 3
    with ThreadPoolExecutor(6) as threads:
        gradients = [threads.submit(program.grad) for program in programs]
        files = [threads.submit(artifact.serialize, program) for program in programs]
    for gradient, file, table in zip(gradients, files, tables * 3, strict=True):
        assert jnp.allclose(gradient.result()(table), 2 * table)
        assert jnp.allclose(pb.load(file.result()).grad()(table), 2 * table)


def test_saving_does_not_change_the_program():
    program = models.program()
    before = program.asm(debug_info=True)
    artifact.serialize(program)
    assert program.asm(debug_info=True) == before


LOADED_WITHOUT_COMPILER = """
import sys
import jax.numpy as jnp
sys.modules["pullback"] = None
import pullback_runtime
program = pullback_runtime.load(sys.argv[1])
params = {"w": jnp.linspace(0.5, 1.5, 4), "b": jnp.linspace(-1.0, 1.0, 4)}
print(float(program(params, jnp.linspace(-1.0, 2.0, 4), scale=jnp.float32(0.5))["loss"]))
"""


def test_the_runtime_needs_neither_the_compiler_nor_the_source(saved, tmp_path):
    printed = printed_without_compiler(LOADED_WITHOUT_COMPILER, saved, tmp_path)
    args, kwargs = models.arguments()
    assert float(printed) == pytest.approx(float(models.loss(*args, **kwargs)["loss"]), rel=1e-6)


def printed_without_compiler(script, path, folder, **environment):
    """What a script prints that is given a file, in a process that has the runtime only."""
    runtime = os.path.dirname(os.path.dirname(pullback_runtime.__file__))
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), path],
        env={**os.environ, "PYTHONPATH": runtime, "JAX_PLATFORMS": "cpu", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


RUN_ON_EACH_DEVICE = """
import sys, jax, jax.numpy as jnp, pullback_runtime
first, second = jax.devices()
loaded = pullback_runtime.load(sys.argv[1])
assert len(loaded.constants) == 1
for device in (second, first):
    assert loaded(jax.device_put(jnp.int32(7), device)).devices() == {device}
with jax.default_device(second):
    assert loaded(jnp.int32(7)).devices() == {second}
mesh = jax.make_mesh((2,), ("d",))
on_both = jax.device_put(jnp.int32(7), jax.NamedSharding(mesh, jax.P()))
assert loaded(on_both).devices() == {first, second}
print(pullback_runtime.load(sys.argv[1], backend="cpu")(jnp.int32(7)))
"""


def test_large_constants_go_where_the_arguments_are(tmp_path):
    """In the runtime they were tied to the first device."""
    values = jnp.asarray(models.weights(1 << 20))
    path = tmp_path / "table.mlirbc"
    pb.trace(lambda i: values[i])(jnp.int32(0)).save(path)
    two = "--xla_force_host_platform_device_count=2"
    printed = printed_without_compiler(RUN_ON_EACH_DEVICE, path, tmp_path, XLA_FLAGS=two)
    assert float(printed) == pytest.approx(float(values[7]))


def test_many_random_keys_as_a_constant():
    """A traced program gave them to its module as keys."""
    keys = jax.random.split(jax.random.key(3), 1 << 12)
    program = pb.trace(lambda i, x: jax.random.normal(keys[i]) * x)(jnp.int32(0), 2.0)
    assert len(program.constants) == 1
    expected = jax.random.normal(keys[77]) * 2.0
    content = artifact.serialize(program)
    for each in (program, program.compile(), pb.load(content), pullback_runtime.load(content)):
        assert each(jnp.int32(77), 2.0) == pytest.approx(float(expected))
    for each in (program, pb.load(content)):
        assert each.grad(1)(jnp.int32(77), 3.0) == pytest.approx(float(expected) / 2)
        assert jax.grad(each, 1)(jnp.int32(77), 3.0) == pytest.approx(float(expected) / 2)


def test_large_constants_are_stored_once():
    weights = models.weights(1 << 16)

    @jax.jit
    def inner(x):
        return jnp.sin(x) * weights

    def model(x):
        return models.doubled_sine(inner(x) + inner(2 * x) * weights)

    x = jax.ShapeDtypeStruct(weights.shape, weights.dtype)
    content = artifact.serialize(pb.trace(model)(x))
    assert content.count(weights.tobytes()[:4096]) == 1
    assert weights.nbytes < len(content) < 1.2 * weights.nbytes
    ones = jnp.ones(weights.shape)
    assert jnp.allclose(pb.load(content)(ones), model(ones), atol=1e-5)


def test_large_constants_of_rules_are_stored_once_too():
    """In a rule they are resources of the loaded module: MLIR does not copy them."""
    shared, own = models.weights(1 << 15).reshape(2, 128, 128) / 10
    scaled = jax.jit(lambda x: jnp.tanh(x @ own))

    @jax.custom_vjp
    def function(x):
        return x @ shared

    function.defvjp(lambda x: (x @ shared, scaled(x)), lambda r, ct: (3 * ct @ shared.T + r,))

    def model(x):
        return jnp.sum(jnp.sin(function(x)))

    x = models.weights(128)
    program = pb.trace(model)(x)
    content = artifact.serialize(program)
    assert [content.count(array.tobytes()) for array in (shared, own)] == [1, 1]
    expected = jax.grad(model)(x)
    second = program.grad().jvp()(x, x)[1]
    loaded = pb.load(content)
    assert (len(loaded.constants), str(loaded).count("dense_resource<")) == (1, 3)
    for each in (loaded, pb.load(artifact.serialize(loaded))):
        assert jnp.allclose(each(x), model(x))
        assert jnp.allclose(each.grad()(x), expected, atol=1e-6)
        assert jnp.allclose(jax.jit(jax.grad(each))(x), expected, atol=1e-5)
        assert jnp.allclose(each.grad().jvp()(x, x)[1], second, atol=1e-5)
        assert jnp.allclose(pb.load(artifact.serialize(each.grad()))(x), expected, atol=1e-6)
    assert jnp.allclose(pullback_runtime.load(content)(x), model(x))


LARGE_TYPES = [
    "float16",
    "bfloat16",
    "float32",
    "float8_e4m3fn",
    "int8",
    "uint8",
    "int16",
    "int32",
    "uint32",
] + ["complex64", "float64", "int64", "uint64", "complex128"]


@pytest.mark.parametrize("dtype", LARGE_TYPES)
def test_large_constants_are_arrays_outside_the_loaded_module(dtype):
    with jax.enable_x64(jnp.dtype(dtype).itemsize // (1 + (dtype == "complex128")) == 8):
        values = jnp.asarray(100 * models.weights(1 << 15)).astype(dtype)
        content = artifact.serialize(pb.trace(lambda i: values[i])(jnp.int32(0)))
        assert content.count(np.asarray(values).tobytes()) == 1
        loaded = pb.load(content)
        assert [(c.dtype, c.shape) for c in loaded.constants] == [(values.dtype, values.shape)]
        assert jnp.array_equal(loaded.constants[0], values)
        assert loaded.arg_paths == ("i",)
        for each in (loaded, pullback_runtime.load(content), pb.load(artifact.serialize(loaded))):
            assert each(jnp.int32(77)) == values[77]
            assert jax.jit(each)(jnp.int32(77)) == values[77]


def test_wide_constants_stay_in_the_module_where_jax_would_narrow_them():
    with jax.enable_x64(True):
        values = jnp.asarray(models.weights(1 << 15), "float64")
        content = artifact.serialize(pb.trace(lambda i: values[i].astype("float32"))(jnp.int32(0)))
    loaded = pb.load(content)
    assert loaded.constants == ()
    assert loaded(jnp.int32(77)) == jnp.float32(values[77])


def test_a_splat_of_the_program_is_not_taken_for_a_large_constant():
    """The first stub of an int8 array is the splat 0x5A, which this program has itself."""
    values = jnp.arange(1 << 15, dtype=jnp.int8)
    program = pb.trace(lambda i: (values + jnp.full(1 << 15, 0x5A, jnp.int8))[i])(jnp.int32(0))
    loaded = pb.load(artifact.serialize(program))
    assert len(loaded.constants) == 1
    assert loaded(jnp.int32(7)) == 7 + 0x5A


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
@pytest.mark.parametrize("model", ["directly", "in_a_nested_jit", "in_a_custom_vjp"])
def test_saving_and_loading_hold_a_large_model_once(model, tmp_path):
    path, size = str(tmp_path / "large.mlirbc"), 128 << 20
    for action in ("save", "load"):
        command = [sys.executable, "-W", "ignore", str(SAVE_MEMORY), "--one"]
        command += [action, model, path, str(size)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert 0.9 < float(printed) < 1.3


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "int8", "complex64", "float16"])
def test_constants_of_each_type(dtype):
    values = jnp.asarray(models.weights(100) * 3).astype(dtype)
    content = artifact.serialize(pb.trace(lambda i: values[i])(jnp.int32(0)))
    loaded = pb.load(content)
    for index in (0, 57, 99):
        assert loaded(jnp.int32(index)) == values[index]


def print_inside(x):
    jax.debug.print("{}", x)
    return models.doubled_sine(x)


def call_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@pytest.mark.parametrize(
    ("function", "name"), [(print_inside, "debug_"), (call_back, "pure_callback")]
)
def test_callbacks_are_refused_by_name_and_line(function, name, tmp_path):
    path = tmp_path / "model.mlirbc"
    program = pb.trace(function)(jnp.ones(2))
    with pytest.raises(pb.NotPortableError, match="cannot be saved: it calls Python") as caught:
        program.save(path)
    assert f"`{name}" in caught.value.message
    assert f"test_save_load.py:{function.__code__.co_firstlineno + 1}" in caught.value.where
    assert not path.exists()


CHECKS = """
import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir


def raise_if(x):
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


traced_apart = jax.jit(lambda x: raise_if(x))
check_p = Primitive("check")
check_p.def_impl(raise_if)
check_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(check_p, mlir.lower_fun(raise_if, multiple_results=False))


def lowered_apart(x):
    return check_p.bind(x)
"""


@pytest.fixture
def installed(tmp_path):
    """Imports checks as of an installed library of a name."""

    def import_checks(library):
        path = tmp_path / "site-packages" / library / "checks.py"
        path.parent.mkdir(parents=True)
        path.write_text(CHECKS)
        spec = importlib.util.spec_from_file_location("checks", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return import_checks


@pytest.mark.parametrize("library", ["equinox", "others"])
@pytest.mark.parametrize("check", ["traced_apart", "lowered_apart"])
def test_a_callback_of_a_library_is_refused_by_the_line_that_calls_it(library, check, installed):
    """Equinox traces its checks by themselves: the error named a line of Equinox's alone."""
    checks = installed(library)

    def solve(x):
        return jax.jit(lambda x: 2 * getattr(checks, check)(x))(jax.lax.stop_gradient(x))

    with pytest.raises(pb.NotPortableError) as caught:
        artifact.serialize(pb.trace(lambda x: x * solve(x))(jnp.ones(2)))
    line = solve.__code__.co_firstlineno + 1
    assert f"{library}/checks.py:" in caught.value.where
    assert f", called at tests/files/test_save_load.py:{line}, in " in caught.value.where
    assert ("EQX_ON_ERROR=nan" in caught.value.do) == (library == "equinox")
    assert ("remove the callback" in caught.value.do) == (library != "equinox")


def test_each_callback_has_its_remedy(installed):
    checks = installed("equinox")
    with pytest.raises(pb.NotPortableError, match="`debug_print`") as caught:
        artifact.serialize(pb.trace(lambda x: checks.traced_apart(print_inside(x)))(jnp.ones(2)))
    assert caught.value.do.startswith("remove the callback or debug print")
    assert "; set EQX_ON_ERROR=nan" in caught.value.do


@jax.custom_vjp
def bwd_calls_back(x):
    return x


bwd_calls_back.defvjp(lambda x: (x, None), lambda _, ct: (call_back(ct),))


def test_callbacks_in_rules_are_refused():
    with pytest.raises(pb.NotPortableError, match="it calls Python in this process") as caught:
        artifact.serialize(pb.trace(lambda x: bwd_calls_back(x))(jnp.ones(2)))
    line = call_back.__code__.co_firstlineno + 1
    assert f"test_save_load.py:{line}, in call_back" in caught.value.where


def test_a_callback_without_a_line_is_named_by_its_function():
    text = """func.func private @inner(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x)
        : (tensor<f32>) -> tensor<f32> loc(unknown)
      return %0 : tensor<f32>
    }"""
    module = ir.Module.parse(text, _jax.context())
    with pytest.raises(pb.NotPortableError) as caught:
        container.refuse_callbacks(module)
    assert caught.value.where == "the function `@inner` of the module"


@jax.custom_jvp
def without_rule(x):
    return x


def test_a_missing_rule_is_refused_by_name_and_line():
    with pytest.raises((pb.MissingRuleError, AttributeError), match="without_rule"):
        artifact.serialize(pb.trace(lambda x: without_rule(x))(jnp.ones(2)))


@jax.custom_vjp
def not_traceable(x):
    return x


not_traceable.defvjp(lambda x: (x, None), lambda _, ct: (ct * float(ct[0]),))


def test_a_rule_that_cannot_be_staged_is_refused_by_name_and_line():
    program = pb.trace(lambda x: not_traceable(x))(jnp.ones(2))
    with pytest.raises(
        pb.MissingRuleError, match="the vjp rule of `not_traceable` raises: Concretiz"
    ) as caught:
        artifact.serialize(program)
    line = test_a_rule_that_cannot_be_staged_is_refused_by_name_and_line.__code__.co_firstlineno
    assert f"test_save_load.py:{line + 1}" in caught.value.where
    assert f"test_save_load.py:{line - 3}, in <lambda>)" in caught.value.message


def test_values_of_an_outer_trace_are_refused():
    def outer(y):
        artifact.serialize(pb.trace(lambda x: x * y)(jnp.ones(100)))

    with pytest.raises(pb.NotPortableError, match="closes over values of a trace"):
        jax.jit(outer)(jnp.ones(100))


def test_an_unstaged_rule_of_a_module_without_table_is_refused():
    text = str(models.program())
    foreign = pb.load(text.encode())
    with pytest.raises(pb.MissingRuleError, match="this module came without a rule table"):
        artifact.serialize(foreign)


def test_other_platforms_than_traced_are_refused():
    with pytest.raises(pb.ArtifactError, match="traced for cpu, not for tpu") as caught:
        artifact.serialize(models.program(), platforms=["cpu", "tpu"])
    assert "trace it again" in caught.value.do


def test_one_except_catches_both_packages(saved):
    with pytest.raises(pullback_runtime.ArtifactError):
        pb.load(saved.read_bytes()[:-1])
    with pytest.raises(pb.PullbackError):
        pb.load(saved.read_bytes()[:-1])
    with pytest.raises(pb.ArtifactError, match=r"cannot read .*No such file"):
        pb.load("/nowhere/model.mlirbc")


def layered(x):
    for _ in range(20):
        x = models.doubled_sine(x) + jnp.tanh(x @ x.T) @ x
    return jnp.sum(x)


def test_size_is_at_most_that_of_one_order_of_jax():
    """And below twice the same program without its rules, although any order is in there."""
    x = jnp.ones((8, 8))
    with_rules = artifact.serialize(pb.trace(layered)(x))
    without = artifact.serialize(pb.trace(layered)(x).run_passes("lower-custom-derivatives"))
    exported = jax.export.export(jax.jit(layered))(x)
    assert len(with_rules) < 2 * len(without)
    assert len(with_rules) <= len(exported.serialize(vjp_order=1))


@pytest.mark.parametrize("example", STANDARD_EXAMPLES, ids=lambda case: case.name)
def test_sizes_of_the_standard_examples(example):
    """The programs of benchmarks/programs.py: the same bounds."""
    function, args = example.make()
    with_rules = artifact.serialize(pb.trace(function)(*args))
    without = artifact.serialize(pb.trace(function)(*args).run_passes("lower-custom-derivatives"))
    exported = jax.export.export(jax.jit(function))(*args)
    assert len(with_rules) < 2 * len(without)
    assert len(with_rules) <= len(exported.serialize(vjp_order=1))


def test_many_large_constants_are_found_without_a_look_at_all_the_module_for_each(monkeypatch):
    """To print an operation takes long, and in some ways as long as its module is large."""
    tables = [jnp.asarray(models.weights(1 << 12)) + i for i in range(20)]
    program = pb.trace(lambda x: sum(jnp.sum(table * x) for table in tables))(jnp.float32(1))
    content = artifact.serialize(program)
    monkeypatch.setattr("pullback_runtime.files._constants.text_alone", None)
    assert len(pb.load(content).constants) == 20


def test_constants_of_a_small_file_stay_in_the_module(monkeypatch):
    """Taking them out would take longer than all the rest of loading."""
    weights = models.weights(1 << 14).reshape(128, 128) / 100
    program = pb.trace(lambda x: jnp.sum(jnp.tanh(x @ weights) @ weights))(jnp.ones((2, 128)))
    content = artifact.serialize(program)
    taken_out = pb.load(content)
    monkeypatch.setattr("pullback_runtime.files._artifact.EMBEDDED_BELOW", 4 << 20)
    loaded, x = pb.load(content), jnp.ones((2, 128))
    assert (len(taken_out.constants), len(loaded.constants)) == (1, 0)
    ops = 4 * 128 + FUNCTION  # in sums of elements that add up to `scale`, but for their signs
    close(loaded(x), program(x), ops=ops, scale=24.0)
    close(loaded.grad()(x), program.grad()(x), ops=ops, scale=1.2)
    again = artifact.serialize(loaded)
    assert again.count(np.asarray(weights).tobytes()) == 1
    close(pb.load(again).grad()(x), program.grad()(x), ops=ops, scale=1.2)
    close(pullback_runtime.load(content)(x), program(x), ops=ops, scale=24.0)


@pytest.mark.parametrize("mapped_from", [1, 1 << 30], ids=["mapped", "read"])
def test_a_file_that_changes_after_it_was_loaded_changes_no_constant(
    tmp_path, monkeypatch, mapped_from
):
    """The digest was that of what was loaded, also where constants are put off to first use."""
    monkeypatch.setattr("pullback_runtime.files._mmap.MAPPED_FROM", mapped_from)
    path, weights = tmp_path / "model.mlirbc", models.weights(1 << 14)
    pb.trace(lambda x: jnp.sum(weights * x))(jnp.float32(2)).save(path)
    programs = pb.load(path), pullback_runtime.load(path)
    with open(path, "r+b") as file:
        file.write(bytes(path.stat().st_size))
    for loaded in programs:
        assert np.isclose(loaded(jnp.float32(2)), 2 * jnp.sum(weights))


def test_loading_puts_no_array_anywhere_before_it_is_used():
    weights = models.weights(1 << 14)
    content = artifact.serialize(pb.trace(lambda x: jnp.sum(weights * x))(jnp.float32(2)))
    before = {id(array) for array in jax.live_arrays()}

    def put():
        return [array for array in jax.live_arrays() if id(array) not in before and array.size > 1]

    loaded = pb.load(content)
    gradient = loaded.grad()
    assert not put()
    assert np.isclose(gradient(jnp.float32(2)), jnp.sum(weights), rtol=1e-4)
    assert np.isclose(loaded(jnp.float32(2)), 2 * jnp.sum(weights), rtol=1e-4)
    assert len(put()) == 1, "a program and its derivatives share their constants"


def types_in(content):
    module = _module.parse(content)
    text = ir.StringAttr(module.operation.attributes[_container.METADATA_ATTRIBUTE]).value
    return {name for name in ("in_avals", "out_avals") if name in _container.parse_metadata(text)}


def test_a_file_says_the_types_that_its_module_cannot_say():
    plain = artifact.serialize(models.program())
    keys = artifact.serialize(pb.trace(jax.random.split)(jax.random.key(0)))
    assert types_in(plain) == set()
    assert types_in(keys) == {"in_avals", "out_avals"}
    loaded = pb.load(keys)
    assert jax.dtypes.issubdtype(loaded.in_avals[0].dtype, jax.dtypes.prng_key)
    assert jnp.array_equal(
        jax.random.key_data(loaded(jax.random.key(3))),
        jax.random.key_data(jax.random.split(jax.random.key(3))),
    )


def test_what_a_whole_file_says_of_arguments_is_read_when_it_is_asked_for():
    content = artifact.serialize(models.program())
    text = pb.load(content).asm().encode()

    def reads_types(call):
        return "signature" in {name for _, name in layers_of(call).functions}

    loaded = []
    assert not reads_types(lambda: loaded.append(pb.load(content, trusted=True)))
    assert reads_types(lambda: loaded[0].in_avals)
    assert reads_types(lambda: pb.load(text))  # of text nobody knows that it is whole


BY_HAND = """
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %y = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %t = stablehlo.add %dx, %dx : tensor<f32>
  return %x, %t : tensor<f32>, tensor<f32>
}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("pullback.custom_jvp_call", "pullback.custom_jvp", "composite_c1"),
        ("jvp = @f.jvp", "jpv = @f.jvp", "custom_jvp_call_c1: unknown attribute 'jpv'"),
        ("jvp = @f.jvp", "jvp = @g", "custom_jvp_call_c3: `jvp` names @g"),
        ("jvp = @f.jvp", "jvp = @f", "custom_jvp_call_c6"),
    ],
)
def test_a_module_by_hand_is_verified(right, wrong, words):
    """A misspelt name was no rule at all: derivatives were those of the decomposition."""
    assert pb.load(BY_HAND.encode()).grad()(1.0) == 2.0
    with pytest.raises(pb.ArtifactError, match=words) as caught:
        pb.load(BY_HAND.replace(right, wrong).encode())
    assert caught.value.where.endswith(":3:8")
    assert "docs/dialect.md" in caught.value.do


def weighted(params, ids, *, scale):
    return jnp.sum(params["w"][ids]) * scale


@pytest.mark.parametrize("engine", ["runtime", "compiler"])
def test_arguments_go_by_the_names_that_describe_shows(engine, tmp_path):
    params, ids, scale = {"w": jnp.arange(8.0)}, jnp.array([1, 2]), jnp.float32(2)
    pb.trace(weighted)(params, ids, scale=scale).save(tmp_path / "f.mlirbc")
    load = pullback_runtime.load if engine == "runtime" else pb.load
    program = load(tmp_path / "f.mlirbc")
    assert program(params, ids, scale=scale) == 6
    assert program(ids=ids, params=params, scale=scale) == 6
    assert program(params, scale=scale, ids=ids) == 6
    for wrong in ({"ids": ids}, {"params": params, "ids": ids, "scale": scale, "more": ids}):
        with pytest.raises((pb.PullbackError, pullback_runtime.PullbackRuntimeError)):
            program(**wrong)


def test_a_derivative_of_what_the_runtime_has_loaded_is_an_error_that_says_where_it_is(tmp_path):
    pb.trace(jnp.sin)(1.0).save(tmp_path / "f.mlirbc")
    program = pullback_runtime.load(tmp_path / "f.mlirbc")
    with pytest.raises(AttributeError, match=r"has no \.grad\(\): the runtime runs programs") as e:
        program.grad()
    assert isinstance(e.value, pullback_runtime.MissingTransformError)
    assert "pullback.load(file).grad()" in e.value.do
    assert not hasattr(program, "anything")
