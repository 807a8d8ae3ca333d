"""What is known to be zero, by the constants of a module."""

import time

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.passes import zeros

CONSTANTS = {
    "dense<0.0> : tensor<2xf64>": True,
    "dense<-0.0> : tensor<2xf64>": True,
    "dense<[0.0, 1.0]> : tensor<2xf64>": False,
    "dense<(0.0, 0.0)> : tensor<2xcomplex<f64>>": True,
    "dense<(0.0, -0.0)> : tensor<2xcomplex<f32>>": True,
    "dense<(0.0, 1.0)> : tensor<2xcomplex<f64>>": False,
    "dense<[(0.0, 0.0), (1.0, 0.0)]> : tensor<2xcomplex<f64>>": False,
}
NOT_NUMBERS = {
    "dense<0x7FC00000> : tensor<2xf32>": True,
    "dense<(0x7FF8000000000000, 0.0)> : tensor<2xcomplex<f64>>": True,
    "dense<1.0> : tensor<2xf32>": False,
}


def constants(texts, others=0):
    """The values of these constants, in a function with so many other ops."""
    lines = [f"%c{i} = stablehlo.constant {text}" for i, text in enumerate(texts)]
    lines += [f"%{i + 1} = stablehlo.sine %{i} : tensor<f32>" for i in range(others)]
    body = "\n".join(lines)
    with _jax.context():
        module = ir.Module.parse(f"func.func @main(%0: tensor<f32>) {{\n{body}\nreturn\n}}")
    block = module.body.operations[0].regions[0].blocks[0]
    return module, [op.result for op in list(block.operations)[: len(texts)]]


@pytest.mark.parametrize(("text", "expected"), CONSTANTS.items())
def test_a_constant_is_zero(text, expected):
    _module, (value,) = constants([text])
    assert zeros.is_zero_constant(value) is expected


@pytest.mark.parametrize(("text", "expected"), NOT_NUMBERS.items())
def test_a_constant_is_nan(text, expected):
    _module, (value,) = constants([text])
    assert zeros.is_nan(value) is expected


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (zeros.is_zero_constant, "dense<(0.0, 0.0)> : tensor<2xcomplex<f64>>"),
        (zeros.is_nan, "dense<0x7FC00000> : tensor<2xf32>"),
    ],
)
def test_what_a_constant_is_takes_no_longer_in_a_large_function(ask, text):
    def seconds(others):
        _module, (value,) = constants([text], others)
        found = []
        for _ in range(5):
            start = time.perf_counter()
            assert ask(value)
            found.append(time.perf_counter() - start)
        return min(found)

    assert seconds(others=10_000) < 20 * seconds(others=0)
