"""compile(): every form a module comes in, the caches, donation, and what it refuses."""

from __future__ import annotations

import copy
import io
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback_runtime as runtime
from pullback_runtime import _jax
from pullback_runtime._lazy_values import Recent
from pullback_runtime.ir import _module

TEXT = """
func.func @main(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.subtract %x, %y : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func @double(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
X, Y = np.array([3, 5], np.float32), np.array([1, 1], np.float32)


def as_module() -> _jax.ir.Module:
    with _jax.context():
        return _jax.ir.Module.parse(TEXT)


def as_bytecode() -> bytes:
    buffer = io.BytesIO()
    as_module().operation.write_bytecode(buffer)
    return buffer.getvalue()


def as_artifact() -> bytes:
    return _jax.stablehlo.serialize_portable_artifact(as_module(), "1.10.0")


FORMS = {
    "module": as_module,
    "text": lambda: TEXT,
    "text bytes": lambda: TEXT.encode(),
    "bytecode": as_bytecode,
    "portable artifact": as_artifact,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_module(form):
    (result,) = runtime.compile(FORMS[form](), backend="cpu")(X, Y)
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, [2, 4])


@pytest.mark.parametrize("form", ["text bytes", "bytecode", "portable artifact"])
def test_files(form, tmp_path):
    path = tmp_path / "program.mlir"
    path.write_bytes(FORMS[form]())
    np.testing.assert_array_equal(runtime.compile(path)(X, Y)[0], [2, 4])
    np.testing.assert_array_equal(runtime.compile(str(path))(X, Y)[0], [2, 4])


def test_a_named_entry():
    executable = runtime.compile(TEXT, entry="double")
    np.testing.assert_array_equal(executable(X)[0], [6, 10])
    assert "stablehlo.subtract" not in executable.stablehlo()


def test_jax_arrays_and_many_results(module_of):
    module = module_of(lambda x, n: (jnp.sin(x), n + 1, x.sum()), jnp.ones(3), 2)
    results = runtime.compile(module)(jnp.ones(3), 4)
    assert isinstance(results, tuple)
    np.testing.assert_allclose(results[0], np.sin(np.ones(3)), rtol=1e-6)
    assert (int(results[1]), float(results[2])) == (5, 3.0)


def composite_module(module_of):
    composite = jax.lax.composite(lambda x: jnp.sin(x), name="pullback.custom_jvp_call")

    def step(x):
        return jax.lax.fori_loop(0, 3, lambda _, value: composite(value), x)

    return module_of(step, np.ones(2, np.float32))


def test_pullback_ops_inside_a_loop_run_by_their_decomposition(module_of):
    executable = runtime.compile(composite_module(module_of))
    expected = np.sin(np.sin(np.sin(np.ones(2, np.float32))))
    np.testing.assert_allclose(executable(np.ones(2, np.float32))[0], expected, rtol=1e-6)
    assert "stablehlo.composite" not in executable.stablehlo()


def test_rule_functions_are_not_compiled():
    text = """
    func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
        composite_attributes = {jvp = @f.jvp}, decomposition = @f
      } : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    func.func private @f(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.cosine %x : tensor<f32>
      return %0 : tensor<f32>
    }
    func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
      %0 = stablehlo.custom_call @no_such_symbol(%x) : (tensor<f32>) -> tensor<f32>
      return %0, %dx : tensor<f32>, tensor<f32>
    }
    """
    executable = runtime.compile(text)
    np.testing.assert_allclose(executable(np.float32(1))[0], np.cos(1), rtol=1e-6)
    assert "f.jvp" not in executable.stablehlo()


def test_composites_of_others_are_left_to_xla(module_of):
    composite = jax.lax.composite(lambda x: jnp.sin(x), name="somebody.sine")
    executable = runtime.compile(module_of(composite, np.float32(1)))
    assert 'stablehlo.composite "somebody.sine"' in executable.stablehlo()
    np.testing.assert_allclose(executable(np.float32(1))[0], np.sin(1), rtol=1e-6)


def test_the_callers_module_is_not_touched(module_of):
    module = composite_module(module_of)
    before = str(module)
    runtime.compile(module)
    assert str(module) == before


# Caches.


def test_the_same_bytes_and_options_give_the_same_executable():
    first = runtime.compile(TEXT, backend="cpu")
    assert runtime.compile(TEXT.encode(), backend="cpu") is first
    assert runtime.compile(TEXT, backend="cpu", donate_argnums=(0,)) is not first
    assert runtime.compile(TEXT, backend="cpu", entry="double") is not first
    runtime.clear_cache()
    assert runtime.compile(TEXT, backend="cpu") is not first


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_an_executable_cannot_be_pickled_and_says_what_to_do(copied):
    executable = runtime.compile(TEXT)
    with pytest.raises(runtime.PullbackRuntimeError, match="cannot be pickled") as caught:
        copied(executable)
    assert "do:    hand on the module, or a saved program" in str(caught.value)
    np.testing.assert_array_equal(copy.copy(executable)(X, Y)[0], X - Y)


def test_threads_share_one_executable():
    with ThreadPoolExecutor(4) as pool:
        executables = list(pool.map(lambda _: runtime.compile(TEXT), range(8)))
    assert len(set(map(id, executables))) == 1


def test_the_least_used_executable_is_forgotten_first(monkeypatch):
    monkeypatch.setattr("pullback_runtime.call._compile._EXECUTABLES", Recent(2))
    first, second = runtime.compile(TEXT), runtime.compile(TEXT, entry="double")
    assert runtime.compile(TEXT) is first
    runtime.compile(TEXT, donate_argnums=(0,))
    assert runtime.compile(TEXT) is first
    assert runtime.compile(TEXT, entry="double") is not second


@pytest.fixture
def compilations(caplog):
    """How often XLA has compiled a @main since the test began."""
    caplog.set_level(logging.DEBUG, logger="jax")
    finished = "Finished XLA compilation of jit(main)"
    return lambda: sum(finished in record.getMessage() for record in caplog.records)


def test_the_first_call_does_not_compile_again(compilations):
    executable = runtime.compile(TEXT)
    assert compilations() == 1
    executable(X, Y)
    executable(jnp.asarray(X), Y)
    assert compilations() == 1


def test_jaxs_persistent_cache_is_filled_and_read(in_process, tmp_path):
    script = f"""
    import jax, pullback_runtime as runtime
    hits = []
    jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
    runtime.compile({TEXT!r})
    print(hits.count("/jax/compilation_cache/cache_hits"))
    """
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    assert in_process(script, **environment).strip() == "0"
    assert [path for path in tmp_path.iterdir() if path.name.startswith("jit_main")]
    assert in_process(script, **environment).strip() == "1"


def test_donation_reuses_the_argument():
    executable = runtime.compile(TEXT, donate_argnums=(0,))
    x, y = jnp.asarray(X), jnp.asarray(Y)
    np.testing.assert_array_equal(executable(x, y)[0], [2, 4])
    assert x.is_deleted()
    assert not y.is_deleted()
    assert executable.memory().aliased == 8


# What it reports.


def test_cost_memory_and_texts(module_of):
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    executable = runtime.compile(module_of(jnp.matmul, shape, shape))
    assert executable.cost()["flops"] == 2 * 64**3
    memory = executable.memory()
    assert (memory.arguments, memory.outputs) == (2 * 4 * 64 * 64, 4 * 64 * 64)
    assert memory.total >= memory.arguments + memory.outputs
    assert executable.hlo().startswith("HloModule jit_main")
    assert "stablehlo.dot_general" in executable.stablehlo()
    assert executable.in_avals == (shape, shape)
    assert executable.out_avals == (shape,)
    assert repr(executable) == f"Executable(@main on {jax.devices()[0]})"


# What it refuses.


def refused(error: type[Exception], *args: object, **options: object) -> str:
    with pytest.raises(error) as caught:
        runtime.compile(*args, **options)
    assert isinstance(caught.value, runtime.PullbackRuntimeError)
    return str(caught.value)


def test_no_such_entry():
    assert refused(runtime.ModuleError, TEXT, entry="f") == (
        "the module has no function @f\n"
        "  where: functions of the module: @main, @double\n"
        "  do:    name the function to call: entry=…"
    )


def test_text_that_does_not_parse():
    message = refused(runtime.ModuleError, "func.func @main() { retur }")
    assert message.startswith("the module does not parse: ")
    assert "custom op 'retur' is unknown" in message
    assert "must be StableHLO text or bytecode" in message


def test_bytes_that_are_no_bytecode():
    assert "does not parse" in refused(runtime.ModuleError, b"ML\xefRgarbage")


def test_a_function_that_calls_itself():
    """XLA would end the process."""
    text = """
    func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %y = call @f(%x) : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32>
    }
    func.func private @f(%x: tensor<f32>) -> tensor<f32> {
      %y = call @main(%x) : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32>
    }
    """
    assert refused(runtime.ModuleError, text) == (
        "@main calls itself, which XLA does not run\n"
        "  where: @main calls @f calls @main\n"
        "  do:    write the recursion as a loop: stablehlo.while"
    )
    with pytest.raises(runtime.ArtifactError, match="@main calls itself"):
        runtime.load(text.encode())


def test_functions_of_a_module_inside_are_others():
    text = """
    module {
      module @inner {
        func.func @f(%x: tensor<f32>) -> tensor<f32> {
          %y = call @main(%x) : (tensor<f32>) -> tensor<f32>
          return %y : tensor<f32>
        }
        func.func private @main(%x: tensor<f32>) -> tensor<f32> {
          return %x : tensor<f32>
        }
      }
      func.func @main(%x: tensor<f32>) -> tensor<f32> {
        %y = call @f(%x) : (tensor<f32>) -> tensor<f32>
        return %y : tensor<f32>
      }
      func.func private @f(%x: tensor<f32>) -> tensor<f32> {
        %y = stablehlo.add %x, %x : tensor<f32>
        return %y : tensor<f32>
      }
    }
    """
    (result,) = runtime.compile(text, backend="cpu")(np.float32(2))
    assert result == 4
    declared = text.replace("{\n          return %x : tensor<f32>\n        }", "")
    assert refused(runtime.ModuleError, declared).startswith("@main is declared, and has no body")


def test_a_composite_of_itself():
    text = """
    func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %y = stablehlo.composite "acme.f" %x {decomposition = @f} : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32>
    }
    func.func private @f(%x: tensor<f32>) -> tensor<f32> {
      %y = stablehlo.composite "acme.f" %x {decomposition = @f} : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32>
    }
    """
    assert refused(runtime.ModuleError, text).startswith("@f calls itself, which XLA")


def test_a_custom_call_of_a_function_that_is_not_there():
    """XLA would end the process; MLIR's verifier says nothing."""
    text = """
    func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %y = stablehlo.custom_call @g(%x) {called_computations = [@f]} : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32>
    }
    """
    assert refused(runtime.ModuleError, text) == (
        "a custom call names the function @f, which is not there\n"
        "  where: -:3:12, in @main\n"
        "  do:    add the function, or take it out of `called_computations`"
    )
    with pytest.raises(runtime.ArtifactError, match="names the function @f, which"):
        runtime.load(text.encode())


@pytest.mark.parametrize(
    "call",
    [
        "call @f(%x)",
        'stablehlo.composite "acme.f" %x {decomposition = @f}',
    ],
)
def test_a_function_without_a_body(call):
    """XLA would end the process, and so would the interpreter."""
    text = f"""
    func.func @main(%x: tensor<f32>) -> tensor<f32> {{
      %y = {call} : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32>
    }}
    func.func private @f(tensor<f32>) -> tensor<f32>
    """
    assert refused(runtime.ModuleError, text) == (
        "@f is declared, and has no body\n"
        "  where: @main calls @f\n"
        "  do:    add its definition to the module, or link it"
    )
    with pytest.raises(runtime.ModuleError, match="@f is declared"):
        runtime.run_interpreted(text, np.float32(1))
    with pytest.raises(runtime.ArtifactError, match="@f is declared"):
        runtime.load(text.encode())


def test_a_missing_file():
    assert refused(runtime.ModuleError, Path("absent.mlir")) == (
        "cannot read the module file 'absent.mlir': No such file or directory\n"
        "  do:    check the path; a module given as text must contain its functions"
    )


def test_something_else_entirely():
    assert refused(runtime.ModuleError, 3).startswith("cannot read a module from int\n")


def test_dynamic_shapes():
    message = refused(
        runtime.ModuleError, "func.func @main(%x: tensor<i32>, %y: tensor<?xf32>) { return }"
    )
    assert message == (
        "the dynamic shape of tensor<?xf32> is not supported\n"
        "  where: argument 1 of @main\n"
        "  do:    make it static: the passes stablehlo-refine-arguments{types=…}, with a type for "
        "each argument, and stablehlo-refine-shapes"
    )


@pytest.mark.parametrize("encoding", ['"mine"', "#stablehlo.bounds<?>"])
def test_encodings(encoding):
    text = f"func.func @main(%x: tensor<2xf32, {encoding}>) {{ return }}"
    assert refused(runtime.ModuleError, text) == (
        f"the encoding of tensor<2xf32, {encoding}> is not supported\n"
        "  where: argument 0 of @main\n"
        "  do:    write the type without it, as XLA takes it"
    )


def test_tuples():
    message = refused(
        runtime.ModuleError, "func.func @main(%x: tuple<tensor<f32>, tensor<i32>>) { return }"
    )
    assert message == (
        "cannot pass values of type tuple<tensor<f32>, tensor<i32>>\n"
        "  where: argument 0 of @main\n"
        "  do:    pass its members one by one: as arguments, or results, of their own"
    )


def test_tokens():
    message = refused(runtime.ModuleError, "func.func @main(%t: !stablehlo.token) { return }")
    assert message.startswith("cannot pass values of type !stablehlo.token\n")


def test_an_op_that_the_backend_lacks():
    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.custom_call @no_such_symbol(%x) : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }"""
    message = refused(runtime.CompileError, text)
    assert message.startswith("nothing is registered on cpu for the custom call `no_such_symbol`")
    assert "where: -:2:12, in @main" in message


def test_what_xla_does_not_compile():
    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.create_token : !stablehlo.token
      %1 = "stablehlo.send"(%x, %0) {
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>
      } : (tensor<f32>, !stablehlo.token) -> !stablehlo.token
      return %x : tensor<f32>
    }"""
    message = refused(runtime.CompileError, text)
    assert message.startswith("XLA does not compile @main: ")
    assert "look for an op this backend lacks" in message


@pytest.mark.parametrize("result", ["0", "x"])
def test_a_map_that_is_known_by_its_transpose_only(result):
    text = f"""func.func @main(%x: tensor<f32>) -> tensor<f32> {{
      %0 = stablehlo.composite "pullback.linear_call" %x {{
        composite_attributes = {{num_residuals = 0 : i64, transpose_only = "it clips"}},
        decomposition = @unknown
      }} : (tensor<f32>) -> tensor<f32>
      return %{result} : tensor<f32>
    }}
    func.func private @unknown(%x: tensor<f32>) -> tensor<f32> {{
      %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
      return %nan : tensor<f32>
    }}"""
    if result == "x":
        assert runtime.compile(text)(np.float32(2))[0] == 2
    else:
        assert "known by its transpose only: it clips" in refused(runtime.CompileError, text)


def test_donating_what_is_not_there():
    assert refused(runtime.ArgumentError, TEXT, donate_argnums=2) == refused(
        runtime.ArgumentError, TEXT, donate_argnums=(2,)
    )
    assert refused(runtime.ArgumentError, TEXT, donate_argnums=(2,)) == (
        "cannot donate argument 2: @main takes 2 arguments\n"
        "  where: compile(donate_argnums=(2,))\n"
        "  do:    count flat arguments from 0"
    )


# Arguments of a call.


def rejected(*args: object, **options: object) -> str:
    executable = runtime.compile(TEXT, **options)
    with pytest.raises(runtime.ArgumentError) as caught:
        executable(*args)
    return str(caught.value)


def test_a_wrong_shape_names_the_argument():
    assert rejected(X, np.ones(3, np.float32)) == (
        "argument 1 has the wrong shape: expected float32[2], got float32[3]\n"
        "  where: in a call of @main\n"
        "  do:    pass an array of the expected shape, or trace the program for this one"
    )


def test_a_wrong_dtype_names_the_argument_by_its_path():
    assert rejected(X, np.ones(2, np.int32), arg_names=["x", "params['y']"]) == (
        "argument 1 (params['y']) has the wrong dtype: expected float32[2], got int32[2]\n"
        "  where: in a call of @main\n"
        "  do:    convert it: x.astype('float32')"
    )


@pytest.mark.parametrize("element", ["bf16", "f16", "f8E4M3FN"])
def test_a_python_float_gives_way_to_a_narrower_one(element):
    kind = f"tensor<{element}>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ return %x : {kind} }}"
    (result,) = runtime.compile(text, backend="cpu")(1.5)
    assert result == 1.5


def test_a_python_integer_is_not_cut_to_a_narrower_one():
    text = "func.func @main(%x: tensor<i8>) -> tensor<i8> { return %x : tensor<i8> }"
    with pytest.raises(runtime.ArgumentError, match="wrong dtype: expected int8"):
        runtime.compile(text, backend="cpu")(300)


def test_a_wrong_count_lists_the_parameters():
    assert rejected(X, arg_names=["x", "y"]) == (
        "@main takes 2 arguments, got 1\n"
        "  where: parameters: x: float32[2], y: float32[2]\n"
        "  do:    pass one array per parameter, in this order"
    )


def test_sixty_four_bits_need_a_switch():
    text = "func.func @main(%x: tensor<2xf64>) -> tensor<2xf64> { return %x : tensor<2xf64> }"
    assert refused(runtime.ArgumentError, text) == (
        "argument 0 of @main is float64[2], but JAX makes 64-bit arrays 32-bit\n"
        "  where: in compiling the module\n"
        "  do:    set JAX_ENABLE_X64=1 in the environment, or call "
        "jax.config.update('jax_enable_x64', True) before any array is made"
    )
    with jax.enable_x64(True):
        (result,) = runtime.compile(text)(np.array([1, 2], np.float64))
    assert result.dtype == np.float64


def test_an_argument_error_is_a_type_error():
    with pytest.raises(TypeError, match="takes 2 arguments"):
        runtime.compile(TEXT)()


def test_python_scalars_take_the_dtype_of_their_parameter(module_of):
    executable = runtime.compile(module_of(lambda x: x * 2, np.float32(1)))
    assert float(executable(3)[0]) == 6.0
    assert float(executable(1.5)[0]) == 3.0
    with pytest.raises(runtime.ArgumentError, match=r"expected float32\[\], got complex64\[\]"):
        executable(1j)


def test_what_a_large_module_holds_does_not_stay_in_the_shared_context():
    """A context keeps all constants that it has seen: those of each module would add up."""
    values = np.arange(1 << 17, dtype=np.float32)
    with _jax.fresh_context() as context, _jax.ir.Location.unknown(context):
        module = _jax.ir.Module.parse(TEXT.replace("2xf32", f"{values.size}xf32"))
        (subtract, _) = module.body.operations[0].regions[0].blocks[0].operations
        with _jax.ir.InsertionPoint(subtract):
            constant = _jax.ir_constant(values)
        subtract.operation.operands[1].replace_all_uses_with(constant)
        content = _module.to_bytecode(module)
    _jax.context()
    before = vars(_jax.context).copy()
    (result,) = runtime.compile(content)(values, values)
    assert not result.any()
    assert vars(_jax.context) == before
