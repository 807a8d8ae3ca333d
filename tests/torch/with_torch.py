"""What `pb.torch.trace` refuses, and what it takes from torch: run by `make torch`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd.function import once_differentiable

import pullback as pb

ONES = torch.ones(3)


def gradient(function, x=ONES):
    """The gradient of a function of one tensor."""
    program = pb.torch.trace(function, (x,))
    return program.grad(1)(pb.torch.parameters(function), x.numpy())


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return 5 * gradient * ctx.saved_tensors[0]


class Summed(torch.autograd.Function):
    """Its cotangent has the shape of its result, which torch sums to that of its argument."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)


def test_random_numbers_are_refused():
    words = "the module draws random numbers, which would be constants of the program"
    with pytest.raises(pb.PullbackError, match=words) as raised:
        pb.torch.trace(torch.nn.Dropout(), (ONES,))
    assert "module.eval()" in raised.value.do
    assert pb.torch.trace(torch.nn.Dropout().eval(), (ONES,))


def test_64_bits_are_refused_where_jax_has_32():
    with pytest.raises(pb.PullbackError, match=r"an argument has 64 bits \(float64\)"):
        pb.torch.trace(torch.nn.ReLU(), (ONES.double(),))
    with pytest.raises(pb.PullbackError, match=r"weight has 64 bits \(float64\)"):
        pb.torch.trace(torch.nn.Linear(3, 1).double(), (ONES,))


def test_a_function_that_writes_to_its_argument_is_refused():
    with pytest.raises(pb.PullbackError, match=r"`InPlace\.forward` writes to its arguments"):
        pb.torch.trace(lambda x: InPlace.apply(x).sum(), (ONES,))


def test_once_differentiable_has_one_derivative():
    program = pb.torch.trace(lambda x: Once.apply(x).sum(), (ONES,))
    first = program.grad(1)
    args = pb.torch.parameters(None), np.float32([1, 2, 3])
    np.testing.assert_array_equal(first(*args), [5, 10, 15])
    words = "`Once.backward` is marked `once_differentiable`, and has no derivative"
    with pytest.raises(pb.PullbackError, match=words):
        first.vjp(1)(*args, np.ones(3, np.float32))


def test_no_grad_and_detach_stop_gradients():
    def function(x):
        with torch.no_grad():
            scale = x**2 + Once.apply(x)
        return (x * scale + x.detach()).sum()

    np.testing.assert_array_equal(gradient(function), [2, 2, 2])


def test_a_cotangent_is_summed_to_the_shape_of_its_argument():
    weights = torch.ones(2, 3)
    np.testing.assert_array_equal(gradient(lambda x: Summed.apply(x, weights).sum()), [2, 2, 2])


def test_tensors_of_torch_are_constants():
    scale = torch.tensor([1.0, 2.0, 3.0])
    found = gradient(lambda x: (x * scale + torch.arange(3.0) * x).sum())
    np.testing.assert_array_equal(found, [1, 3, 5])


def test_functions_are_torch_again_after_the_trace():
    apply = Once.apply
    gradient(lambda x: apply(x).sum())
    x = ONES.clone().requires_grad_()
    Once.apply(x).sum().backward()
    np.testing.assert_array_equal(x.grad, [5, 5, 5])
    assert "apply" not in vars(torch.autograd.function._SingleLevelFunction)


def test_parameters_are_those_of_the_module_in_their_order():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    names = [name for name, _ in module.named_parameters()]
    assert list(pb.torch.parameters(module)) == names
    program = pb.torch.trace(module, (torch.ones(4, 3),))
    assert program.arg_paths == (*(f"parameters['{name}']" for name in names), "args[0]")
