"""run_interpreted(): the reference interpreter agrees with XLA, and refuses what would crash it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import pullback_runtime as runtime

CASES = {
    "float": (jnp.tanh, np.linspace(-2, 2, 5, dtype=np.float32)),
    "chlo": (jax.lax.erf_inv, np.array([-0.5, 0.25], np.float32)),
    "bool": (jnp.logical_not, np.array([True, False, True])),
    "one bool": (jnp.logical_not, np.array(True)),
    "complex": (lambda x: x * (1 + 2j), np.array([1 + 1j, 2 - 3j], np.complex64)),
    "infinite imaginary part": (lambda x: x, np.array([complex(1, np.inf), -0.0], np.complex64)),
    "real to complex": (lambda x: jax.lax.complex(x, -x), np.array([1.5], np.float32)),
    "bfloat16": (lambda x: x * 2, np.array([1.5, -2.5], ml_dtypes.bfloat16)),
    "float8": (lambda x: x, np.array([1.5, -2.0], ml_dtypes.float8_e4m3fn)),
    "float16": (lambda x: x + 1, np.array([1.5], np.float16)),
    "int4": (lambda x: x, np.array([-8, 7], ml_dtypes.int4)),
    "int8": (lambda x: x - 100, np.array([-100, 3], np.int8)),
    "uint32": (lambda x: x * 3, np.array([2**31, 5], np.uint32)),
    "empty": (lambda x: x + 1, np.ones((0, 2), np.float32)),
    "loop": (lambda x: jax.lax.fori_loop(0, 4, lambda i, v: v * 2 + i, x), np.array(1, np.int32)),
    "cond": (lambda x: jax.lax.cond(x[0] > 0, jnp.sum, jnp.max, x), np.ones(3, np.float32)),
    "scatter": (lambda x: (x.at[1].set(9), x.at[2].add(x[0]), x), np.arange(3, dtype=np.float32)),
    "scatters in a loop": (
        lambda x: jax.lax.fori_loop(0, 3, lambda i, v: v + x.at[i].mul(2), x),
        np.array([1.0, -1.0, 2.0], np.float32),
    ),
    "many": (lambda x: (x, x.sum(), x > 0), np.array([1.0, -1.0], np.float32)),
}


@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_xla(case, module_of):
    function, x = CASES[case]
    module = module_of(function, x)
    interpreted = runtime.run_interpreted(module, x)
    compiled = runtime.compile(module, backend="cpu")(x)
    assert len(interpreted) == len(compiled) > 0
    for ours, theirs in zip(interpreted, compiled, strict=True):
        assert isinstance(ours, np.ndarray)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        wide = np.complex128 if np.iscomplexobj(ours) else np.float64
        np.testing.assert_allclose(ours.astype(wide), np.asarray(theirs).astype(wide), rtol=1e-5)


def test_pullback_ops_run_by_their_decomposition(module_of):
    composite = jax.lax.composite(lambda x: jnp.sin(x), name="pullback.linear_call")
    (result,) = runtime.run_interpreted(module_of(composite, np.float32(1)), 1.0)
    np.testing.assert_allclose(result, np.sin(1), rtol=1e-6)


def test_sixty_four_bits_need_no_switch():
    text = "func.func @main(%x: tensor<f64>) -> tensor<f64> { return %x : tensor<f64> }"
    (result,) = runtime.run_interpreted(text, np.float64(1) / 3)
    assert result == np.float64(1) / 3


def test_a_named_entry():
    text = """
    func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
    func.func @double(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.add %x, %x : tensor<f32>
      return %0 : tensor<f32>
    }"""
    assert runtime.run_interpreted(text, 2.0, entry="double") == (4.0,)


def test_an_unknown_op_is_refused_where_it_stands(module_of):
    module = module_of(jnp.linalg.cholesky, np.eye(2, dtype=np.float32))
    with pytest.raises(runtime.ModuleError) as caught:
        runtime.run_interpreted(module, np.eye(2, dtype=np.float32))
    message = str(caught.value)
    assert message.startswith("the reference interpreter does not know stablehlo.custom_call\n")
    assert "\n  where: " in message
    assert message.endswith("  do:    run it on a backend: compile(module, backend='cpu')")


def test_a_dynamic_shape_is_refused_where_it_stands():
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %shape = stablehlo.constant dense<4> : tensor<1xi32>
      %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<4xf32>, tensor<1xi32>) -> tensor<?xf32>
      %1 = stablehlo.dynamic_reshape %0, %shape : (tensor<?xf32>, tensor<1xi32>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }"""
    with pytest.raises(runtime.ModuleError, match=r"the dynamic shape that stablehlo.dynamic_resh"):
        runtime.run_interpreted(text, np.ones(4, np.float32))


def test_arguments_are_checked_as_in_a_compiled_call(module_of):
    module = module_of(jnp.sin, np.ones(3, np.float32))
    with pytest.raises(runtime.ArgumentError) as caught:
        runtime.run_interpreted(module, np.ones(2, np.float32), arg_names=["x"])
    assert str(caught.value).startswith(
        "argument 0 (x) has the wrong shape: expected float32[3], got float32[2] of NumPy\n"
    )
    with pytest.raises(runtime.ArgumentError, match="@main takes 1 arguments, got 2"):
        runtime.run_interpreted(module, 1.0, 2.0)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x: x.T @ x, [(0, 3)]),
        (lambda x, y: jax.lax.conv(x, y, (1,), "VALID"), [(1, 0, 3), (1, 0, 2)]),
    ],
)
def test_a_sum_of_no_products_is_refused(module_of, function, shapes):
    """It ended the process."""
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    with pytest.raises(runtime.ModuleError, match=r"does not know .* of empty arrays"):
        runtime.run_interpreted(module_of(function, *arrays), *arrays)
    square = np.ones((2, 2), np.float32)
    (empty,) = runtime.run_interpreted(module_of(lambda x: x[:0] @ x[0], square), square)
    assert empty.shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int32", "int8", "int4"])
def test_python_numbers_fit_where_they_fit_a_compiled_call(module_of, dtype):
    """A float for a parameter of 4 bits was cut, a complex number was an error of NumPy's."""
    module = module_of(lambda x: x, jnp.ones((), dtype))
    for number in (1.5, 2, True, 2j, np.float64(2.0)):
        found = []
        for run in (lambda x: runtime.run_interpreted(module, x), runtime.compile(module)):
            try:
                (result,) = run(number)
                found.append((result.dtype, float(result)))
            except runtime.ArgumentError as error:
                found.append(str(error).partition(":")[0])
        assert found[0] == found[1]


def test_wide_python_numbers_need_no_switch_either():
    kind = "tensor<i64>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ return %x : {kind} }}"
    for number in (2, 1 << 40):
        (result,) = runtime.run_interpreted(text, number)
        assert (result.dtype, int(result)) == (np.int64, number)
    (result,) = runtime.run_interpreted(text.replace("i64", "f64"), 0.1)
    assert result == 0.1
