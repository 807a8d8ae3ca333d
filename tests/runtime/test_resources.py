"""Constants that share the memory of arrays: found in bytecode, and made plain for XLA."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import pullback_runtime
from pullback_runtime import _jax
from pullback_runtime._jax import ir
from pullback_runtime.ir import _module, _resources

TEXT = """func.func @main(%x: tensor<TYPE>) -> tensor<TYPE> {
  %one = stablehlo.constant dense<1> : tensor<TYPE>
  %two = stablehlo.constant dense<2> : tensor<3xi8>
  %sum = stablehlo.add %one, %x : tensor<TYPE>
  return %sum : tensor<TYPE> }"""


def module_with(array, name="values"):
    """`array + x`, the array as a resource, in a context of its own."""
    context = _jax.fresh_context()
    with context, ir.Location.unknown(context):
        element = _jax.element_type(array.dtype)
        one = "dense<1>" if array.dtype.kind in "iu" else "dense<1.0>"
        text = TEXT.replace("TYPE", f"{array.size}x{element}").replace("dense<1>", one)
        module = ir.Module.parse(text)
        op = module.body.operations[0].regions[0].blocks[0].operations[0]
        kind = op.operation.results[0].type
        op.operation.attributes["value"] = _resources.attribute(name, array, kind)
    return module


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float16", "int32"])
def test_resources_are_read_and_run(dtype):
    array = jnp.arange(100).astype(dtype)
    module = module_with(np.asarray(array))
    found = _resources.read(_module.to_bytecode(module))
    assert {name: bytes(data) for name, data in found.items()} == {"values": array.tobytes()}
    ones = jnp.ones(100, dtype)
    assert jnp.array_equal(pullback_runtime.compile(module)(ones)[0], array + ones)


def test_a_module_without_resources_has_none():
    module = module_with(np.ones(4, np.float32))
    _resources.make_plain(module, {"values": np.ones(4, np.float32).tobytes()})
    assert "dense_resource" not in str(module)
    assert _resources.read(_module.to_bytecode(module)) == {}
    assert _resources.read(b"module {}") == {}


def test_the_module_shares_the_memory_of_the_array():
    array = np.zeros(100, np.float32)
    module = module_with(array)
    array[7] = 5
    assert np.frombuffer(_resources.read(_module.to_bytecode(module))["values"], "f")[7] == 5


def test_a_context_numbers_a_name_that_it_has():
    data = {"a": b"1", "a_1": b"2"}
    found = [_resources.by_name(data, name) for name in ("a", "a_1", "a_2", "a_1_1")]
    assert found == [b"1", b"2", b"1", b"2"]


DUMPED = """module {
  func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %c = stablehlo.constant dense_resource<table> : tensor<2xf32>
    %0 = stablehlo.multiply %x, %c : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
{-# dialect_resources: { builtin: { table: "0x040000000000004000004040" } } #-}"""


def test_text_with_resources_is_compiled():
    compiled = pullback_runtime.compile(DUMPED, backend="cpu")
    np.testing.assert_array_equal(compiled(np.array([1, 10], np.float32))[0], [2, 30])


BESIDE = """module {
  func.func @main(%x: tensor<20xf32>) -> tensor<20xf32> {
    %c = stablehlo.constant dense_resource<"a \\22table\\22"> : tensor<20xf32>
    %d = stablehlo.constant dense<[NUMBERS]> : tensor<20xf32>
    %z = stablehlo.constant dense<[PAIRS]> : tensor<20xcomplex<f32>>
    %re = stablehlo.real %z : (tensor<20xcomplex<f32>>) -> tensor<20xf32>
    %0 = stablehlo.multiply %x, %c : tensor<20xf32>
    %1 = stablehlo.add %0, %d : tensor<20xf32>
    %2 = stablehlo.add %1, %re : tensor<20xf32>
    return %2 : tensor<20xf32>
  }
}
{-# dialect_resources: { builtin: { "a \\22table\\22": "0x04000000DATA" } } #-}"""


def test_plain_constants_beside_resources():
    """Those of more than 16 elements are left out of a text with the same words as resources."""
    numbers = [f"{float(i)}" for i in range(20)]
    text = BESIDE.replace("NUMBERS", ", ".join(numbers))
    text = text.replace("PAIRS", ", ".join(f"({i}, 1.0)" for i in numbers))
    text = text.replace("DATA", np.full(20, 3, np.float32).tobytes().hex())
    expected = 3 + 2 * np.arange(20.0)
    compiled = pullback_runtime.compile(text, backend="cpu")
    np.testing.assert_array_equal(compiled(np.ones(20, np.float32))[0], expected)


def test_a_constant_is_written_without_a_look_at_the_module_around_it():
    text = "\n".join(f"%{name} = stablehlo.constant dense<1.0> : tensor<2xf32>" for name in "abc")
    with _jax.context():
        module = ir.Module.parse(f"func.func @main() {{\n{text}\nreturn\n}}")
    last = list(module.body.operations[0].regions[0].blocks[0].operations)[2]
    assert "%cst_1 =" in last.operation.get_asm()  # as the module has it
    assert _jax.text_alone(last).startswith("%cst = stablehlo.constant dense<1.0")


@pytest.mark.parametrize(
    ("section", "there"),
    [
        ("", "none are in the module"),
        ('{-# dialect_resources: { builtin: { other: "0x0400000000000040" } } #-}', "none are in"),
        ('{-# dialect_resources: { builtin: { table: "0x0400000000000040" } } #-}', "has 4"),
    ],
)
def test_a_constant_whose_values_were_left_out_is_named(section, there):
    text = DUMPED.partition("{-#")[0] + section
    with pytest.raises(
        pullback_runtime.ModuleError, match=f"wants 8 bytes of values.*{there}"
    ) as e:
        pullback_runtime.compile(text)
    assert "dense_resource<table" in e.value.message
    assert e.value.where == "-:3:10"
    assert "--mlir-elide-… options" in e.value.do
