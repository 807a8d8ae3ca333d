"""Which custom calls a file may make, and what is said of those that are not here."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import lapack

import pullback as pb
import pullback_runtime as runtime
from pullback import _jax, artifact
from pullback._jax import ir
from pullback.files import container
from pullback_runtime._jax import operations_named
from pullback_runtime.call._libraries import OF_TPUS
from pullback_runtime.files import _custom_calls
from pullback_runtime.ir import _module

pytestmark = pytest.mark.whole

X = np.arange(3, dtype=np.int32)
LOADS = pytest.mark.parametrize("load", [pb.load, runtime.load], ids=["pullback", "runtime"])
TEXT = """func.func public @main(%x: tensor<3xi32>) -> tensor<3xi32> {
  %0 = stablehlo.custom_call @TARGET(%x)
    {api_version = 4 : i32, backend_config = {index = 0 : ui64}} : (tensor<3xi32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}"""
TRANSFER = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  OP
  return %x : tensor<3xf32>
}"""
TRANSFERS = {
    "send": '"stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, '
    "type = 2>, is_host_transfer = true} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token",
    "recv": '"stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>'
    ", is_host_transfer = true} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)",
    "infeed": '"stablehlo.infeed"(%t) {infeed_config = ""} '
    ": (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)",
    "outfeed": '"stablehlo.outfeed"(%x, %t) {outfeed_config = ""} '
    ": (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token",
}
OF_PROCESS = """
    xla_ffi_python_cpu_callback xla_ffi_partitioned_python_cpu_callback xla_python_cpu_callback
    xla_buffer_python_cpu_callback xla_ffi_python_gpu_callback xla_python_gpu_callback
    xla_ffi_partitioned_python_gpu_callback xla_buffer_python_gpu_callback CustomSPMDPartitioning
    InspectSharding tf.call_tf_function
""".split()


def text_of(target: str) -> bytes:
    return TEXT.replace("TARGET", target).encode()


def bytecode_of(target: str) -> bytes:
    module = ir.Module.parse(text_of(target), _jax.context())
    return _module.to_bytecode(module)


def saved(target: str) -> bytes:
    """A file with the digest that belongs to it, such as anybody can make."""
    program = pb.load(text_of("mine"), allow_custom_calls=["mine"])
    (call,) = operations_named(program.module, "stablehlo.custom_call")
    call.attributes["call_target_name"] = ir.StringAttr.get(target, call.context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container, "refuse_callbacks", lambda module: None)
        return artifact.serialize(program)


FORMS = pytest.mark.parametrize("form", [text_of, bytecode_of, saved])


def refused(load, content, match, **options):
    with pytest.raises((pb.ArtifactError, runtime.ArtifactError), match=match) as caught:
        load(content, **options)
    return caught.value


@LOADS
@FORMS
@pytest.mark.parametrize("target", OF_PROCESS)
def test_what_means_something_only_in_a_process_is_refused(load, form, target):
    """The first of these ended the process as it ran."""
    words = f"the file calls `{target}`, which means something only in the process that made it"
    error = refused(load, form(target), words, allow_custom_calls=[target])
    assert error.where == "-:2:8, in @main"
    assert "out of the function, and save it again" in error.do


@LOADS
@FORMS
def test_other_targets_need_a_word(load, form):
    content = form("mine")
    for allowed in ([], ["others"], "xminex"):
        error = refused(load, content, "the file calls `mine`", allow_custom_calls=allowed)
        assert error.where == "-:2:8, in @main"
        assert 'allow_custom_calls=["mine"]' in error.do
        assert "--allow-custom-calls mine" in error.do
    for allowed in (["mine"], {"mine", "others"}, "mine"):
        assert load(content, allow_custom_calls=allowed)


@LOADS
@pytest.mark.parametrize("op", TRANSFERS)
def test_transfers_to_the_host_are_refused(load, op):
    """The helper process and XLA wait for ever for the other side."""
    content = TRANSFER.replace("OP", TRANSFERS[op]).encode()
    error = refused(load, content, f"the file has `stablehlo.{op}`, which exchanges values")
    assert error.where.startswith("-:3:")


@LOADS
def test_a_transfer_between_devices_is_none_to_the_host(load):
    content = TRANSFER.replace("OP", TRANSFERS["send"]).replace("= true", "= false")
    assert load(content.replace("type = 2", "type = 1").encode())


@LOADS
def test_an_error_names_the_file(load, tmp_path):
    path = tmp_path / "calls.mlir"
    path.write_bytes(text_of("mine"))
    assert refused(load, path, "the file calls `mine`").where == f"{path}:2:8, in @main"


@LOADS
def test_a_callback_of_jax_is_refused(load):
    """As its line, the text has that in the text, and bytecode that of the user."""

    def f(x):
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(np.abs, like, x)

    program = pb.trace(f)(X)
    words = "the file calls `xla_ffi_python_cpu_callback`"
    refused(load, str(program).encode(), words)
    error = refused(load, _module.to_bytecode(program.module), words)
    assert f"test_custom_calls.py:{f.__code__.co_firstlineno + 2}" in error.where


@LOADS
def test_derivatives_of_an_export_are_looked_at(load):
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    def call(x):
        return jax.ffi.ffi_call("mine", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (call(ct),))
    check = jax.export.DisabledSafetyCheck.custom_call("mine")
    exported = jax.export.export(jax.jit(f), disabled_checks=[check])(np.float32(1))
    assert load(bytes(exported.serialize()))
    content = bytes(exported.serialize(vjp_order=1))
    refused(load, content, "the file calls `mine`")
    assert load(content, allow_custom_calls=["mine"])


def test_a_call_in_a_function_that_nothing_meets_is_no_harm():
    unused = TEXT.replace("@main", "@unused").replace("TARGET", "xla_ffi_python_cpu_callback")
    main = "func.func @main(%x: tensor<3xi32>) -> tensor<3xi32> { return %x : tensor<3xi32> }"
    assert pb.load(f"{unused}\n{main}".encode())(X).tolist() == [0, 1, 2]


@pytest.mark.parametrize("target", [name for name, _, _ in lapack.registrations()["cpu"]])
def test_what_jaxlib_registers_may_come_from_a_file(target):
    assert runtime.load(text_of(target))


FROM_ANYWHERE = [
    *("Sharding", "annotate_device_placement", "LayoutConstraint", "TopK", "ApproxTopK"),
    *("xla.sdy.FuncResultSharding", "mhlo.erf", "chlo.erf", "shape_assertion", "dce_sink"),
    *("cusolver_getrf_ffi", "cu_threefry2x32_ffi", "hipsolver_syevd_ffi", "cusparse_gtsv2_ffi"),
    *("tpu_custom_call", "__gpu$xla.gpu.triton", "__cudnn$fmhaSoftmax", "__op$block_scaled_dot"),
    *OF_TPUS,
]


@pytest.mark.parametrize("target", FROM_ANYWHERE)
def test_what_jax_and_xla_know_may_come_from_a_file(target):
    assert runtime.load(text_of(f'"{target}"'))


@pytest.mark.parametrize("target", ["mosaic_gpu_v2", "lapack_mine", "cu_mine_ffi", "my.erf"])
def test_what_is_called_alike_may_not(target):
    refused(runtime.load, text_of(target), "the file calls")


# ------------------------------------------------------------------------- what is not here


def runs(x):
    """Ways to run a loaded program."""
    yield lambda program: program(x)
    yield lambda program: jax.jit(program)(x)
    yield lambda program: jax.jit(lambda x: 2 * program(x))(x)
    yield lambda program: jax.vmap(program, axis_size=2, in_axes=None)(x)
    yield lambda program: program.compile()(x)
    yield lambda program: program.flat(x)


@pytest.mark.parametrize("form", [text_of, saved])
@pytest.mark.parametrize("number", range(6))
def test_a_call_that_is_not_here_is_an_error_of_ours(form, number):
    loaded = pb.load if number != 5 else runtime.load
    content = form("nowhere")
    program = loaded(content, allow_custom_calls=["nowhere"])
    with pytest.raises(runtime.CompileError) as caught:
        list(runs(X))[number](program)
    error = caught.value
    assert error.message == "nothing is registered on cpu for the custom call `nowhere`"
    assert error.where == "-:2:8, in @main"
    assert "register it before the program runs" in error.do
    assert 'jax.ffi.register_ffi_target("nowhere", …, platform="cpu")' in error.do


def test_the_runtime_says_so_as_well():
    program = runtime.load(text_of("nowhere"), allow_custom_calls=["nowhere"])
    for run in (program, jax.jit(program), program.flat):
        with pytest.raises(runtime.CompileError, match="nothing is registered on cpu"):
            run(X)


def test_what_jax_exported_says_so_as_well():
    check = jax.export.DisabledSafetyCheck.custom_call("nowhere")

    def f(x):
        return jax.ffi.ffi_call("nowhere", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    for shape in ((3,), jax.export.symbolic_shape("n")):
        like = jax.ShapeDtypeStruct(shape, np.int32)
        exported = jax.export.export(jax.jit(f), disabled_checks=[check])(like)
        content = bytes(exported.serialize())
        for load in (pb.load, runtime.load):
            program = load(content, allow_custom_calls=["nowhere"])
            with pytest.raises(runtime.CompileError, match="nothing is registered on cpu"):
                program(X)


def test_what_is_not_here_can_be_lowered_for_elsewhere():
    check = jax.export.DisabledSafetyCheck.custom_call("nowhere")
    program = pb.load(text_of("nowhere"), allow_custom_calls=["nowhere"])
    exported = jax.export.export(jax.jit(program), disabled_checks=[check])(X)
    assert "nowhere" in exported.mlir_module()


def test_what_nothing_needs_may_be_missing():
    """XLA leaves it out."""
    text = TEXT.replace("return %0", "return %x").replace("TARGET", "nowhere").encode()
    assert pb.load(text, allow_custom_calls=["nowhere"])(X).tolist() == [0, 1, 2]


def test_what_is_registered_runs():
    _custom_calls._jax.load_lapack()
    capsules = {name: capsule for name, capsule, _ in lapack.registrations()["cpu"]}
    jax.ffi.register_ffi_target("mine_potrf", capsules["lapack_spotrf_ffi"], platform="cpu")

    def f(x):
        like = (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((), np.int32))
        call = jax.ffi.ffi_call("mine_potrf", like, input_output_aliases={0: 0})
        return call(x, uplo=np.uint8(ord("L")))[0]

    x = 4 * np.eye(3, dtype=np.float32)
    content = artifact.serialize(pb.trace(f)(x), allow_refusals=True)
    for load in (pb.load, runtime.load):
        refused(load, content, "the file calls `mine_potrf`")
        program = load(content, allow_custom_calls=["mine_potrf"])
        np.testing.assert_array_equal(program(x), 2 * np.eye(3))


@pytest.mark.parametrize("attribute", ["backend_config", "mhlo.backend_config"])
def test_a_module_that_calls_back_needs_its_functions(attribute):
    text = text_of("xla_ffi_python_cpu_callback").replace(b"backend_config", attribute.encode())
    text = text if attribute == "backend_config" else text.replace(b"api_version = 4 : i32, ", b"")
    with pytest.raises(runtime.ModuleError, match=r"1 callbacks.*0 functions were given"):
        runtime.compile(text)


def test_a_module_with_an_address_needs_what_is_there():
    text = text_of("CustomSPMDPartitioning").replace(b"{index = 0 : ui64}", b'"94000000"')
    text = text.replace(b"api_version = 4", b"api_version = 1")
    with pytest.raises(runtime.ModuleError, match="needs an object of the process that made it"):
        runtime.compile(text)
