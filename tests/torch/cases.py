"""The modules of PyTorch that `make torch` compares, with random inputs and kinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

KINKS = [-6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 20.0, -20.0]


class Case(NamedTuple):
    kind: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    kinks: Callable[[], torch.Tensor] | None = None
    offset: float = 0.0


class Of(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function, *weights: Sequence[int]):
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.randn(shape) for shape in weights)

    def forward(self, x):
        return self.function(x, *self.weights)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attend(x, x, x, need_weights=False)[0]


class First(nn.Module):
    """The sequence that a recurrent module returns."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)[0]


class StraightThrough(torch.autograd.Function):
    """Deliberately not the derivative: that of rounding would be zero."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(4 * x) / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def jvp(ctx, tangent):
        return tangent.clone()


class ReversedGradient(torch.autograd.Function):
    """Deliberately not the derivative: the gradient of a domain classifier, reversed."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.scale * gradient, None


class Swish(torch.autograd.Function):
    """Saves its input, and computes again."""

    @staticmethod
    def forward(x):
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def slope(x):
        s = torch.sigmoid(x)
        return s * (1 + x * (1 - s))

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Swish.slope(ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * Swish.slope(ctx.saved_tensors[0])


class Exponential(torch.autograd.Function):
    """Saves its result."""

    @staticmethod
    def forward(ctx, x):
        result = torch.exp(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class SafeNorm(torch.autograd.Function):
    """The norm and the direction of rows, of which the first is zero at zero."""

    @staticmethod
    def forward(ctx, x, weight):
        norm = torch.sqrt((x * x).sum(-1, keepdim=True))
        ctx.save_for_backward(x, weight, norm)
        return norm * weight, norm.new_ones(())

    @staticmethod
    def backward(ctx, gradient, _):
        x, weight, norm = ctx.saved_tensors
        direction = x / torch.where(norm == 0, torch.ones_like(norm), norm)
        return gradient * weight * direction, (gradient * norm).sum(0)


def kinks():
    return torch.tensor(KINKS)


def ties():
    return torch.tensor([1.0, 2.0, 2.0, 0.0, 2.0, 1.0] * 6).reshape(1, 1, 6, 6)


def zero_rows():
    return torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])


def elementwise(make):
    return Case("activation", make, (12,), kinks)


def loss(function, shape=(4, 3)):
    return Case("loss", lambda: Of(function, shape), shape, lambda: torch.zeros(shape))


def spd(x):
    return x @ x.transpose(-1, -2) + 3 * torch.eye(x.shape[-1])


def classes(x, weight):
    return functional.cross_entropy(x @ weight, torch.tensor([0, 2, 1, 2]), label_smoothing=0.1)


def straight_through(x, weight):
    return StraightThrough.apply(x @ weight) ** 2


exponential = Exponential.apply  # looked up once, as many do

CASES = {
    "Linear, GELU": Case(
        "layer", lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), (5, 3)
    ),
    "Bilinear": Case(
        "layer", lambda: Of(lambda x, w: functional.bilinear(x, x, w), (2, 3, 3)), (5, 3)
    ),
    "Embedding": Case(
        "layer",
        lambda: Of(lambda x, w: functional.embedding(torch.tensor([1, 4, 1]), w) * x, (7, 3)),
        (3,),
    ),
    "Conv1d": Case("layer", lambda: nn.Conv1d(2, 3, 3, padding=1), (2, 2, 6)),
    "Conv2d, MaxPool2d": Case(
        "layer", lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2)), (1, 1, 6, 6)
    ),
    "ConvTranspose2d": Case("layer", lambda: nn.ConvTranspose2d(2, 3, 3, stride=2), (1, 2, 3, 3)),
    "MaxPool2d": Case("layer", lambda: nn.MaxPool2d(2), (1, 1, 6, 6), ties),
    "AvgPool2d": Case("layer", lambda: nn.AvgPool2d(2), (1, 1, 6, 6), ties),
    "ReLU": elementwise(nn.ReLU),
    "ReLU6": elementwise(nn.ReLU6),
    "LeakyReLU": elementwise(nn.LeakyReLU),
    "ELU": elementwise(nn.ELU),
    "SELU": elementwise(nn.SELU),
    "Hardswish": elementwise(nn.Hardswish),
    "Hardsigmoid": elementwise(nn.Hardsigmoid),
    "Hardtanh": elementwise(nn.Hardtanh),
    "Hardshrink": elementwise(nn.Hardshrink),
    "Softshrink": elementwise(nn.Softshrink),
    "Softplus": elementwise(nn.Softplus),
    "LogSigmoid": elementwise(nn.LogSigmoid),
    "PReLU": elementwise(nn.PReLU),
    "SiLU, Mish": elementwise(lambda: nn.Sequential(nn.SiLU(), nn.Mish())),
    "clamp": elementwise(lambda: Of(lambda x: torch.clamp(x, -1.0, 3.0) ** 2)),
    "abs, sqrt": elementwise(lambda: Of(lambda x: torch.sqrt(torch.abs(x) + 1) + torch.abs(x))),
    "maximum": elementwise(lambda: Of(lambda x: torch.maximum(x, x.flip(0)) * x)),
    "amax": Case("layer", lambda: Of(lambda x: torch.amax(x, -1) ** 2), (1, 1, 6, 6), ties),
    "norm": Case("layer", lambda: Of(lambda x: torch.linalg.norm(x, dim=-1)), (4, 3), zero_rows),
    "normalize": Case(
        "layer", lambda: Of(lambda x: functional.normalize(x, dim=-1)), (4, 3), zero_rows
    ),
    "MSELoss": loss(functional.mse_loss),
    "L1Loss": loss(functional.l1_loss),
    "SmoothL1Loss": loss(functional.smooth_l1_loss),
    "HuberLoss": loss(functional.huber_loss),
    "CrossEntropyLoss": Case("loss", lambda: Of(classes, (5, 3)), (4, 5)),
    "BCEWithLogitsLoss": loss(
        lambda x, y: functional.binary_cross_entropy_with_logits(x, torch.sigmoid(y))
    ),
    "CosineEmbeddingLoss": loss(
        lambda x, y: functional.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1, -1]))
    ),
    "MultiheadAttention": Case("attention", Attention, (1, 3, 4)),
    "TransformerEncoderLayer": Case(
        "attention",
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        (1, 3, 4),
    ),
    "scaled_dot_product_attention": Case(
        "attention",
        lambda: Of(
            lambda x, w: functional.scaled_dot_product_attention(x @ w, x, x, is_causal=True),
            (4, 4),
        ),
        (1, 2, 3, 4),
    ),
    "RNN": Case("recurrent", lambda: First(nn.RNN(3, 4, batch_first=True)), (2, 5, 3)),
    "GRU": Case("recurrent", lambda: First(nn.GRU(3, 4, batch_first=True)), (2, 5, 3)),
    "LSTM": Case("recurrent", lambda: First(nn.LSTM(3, 4, batch_first=True)), (2, 5, 3)),
    "LayerNorm": Case("normalization", lambda: nn.LayerNorm(4), (5, 4)),
    "GroupNorm": Case("normalization", lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
    "RMSNorm": Case("normalization", lambda: nn.RMSNorm(4, eps=1e-5), (5, 4)),
    "BatchNorm1d, eval": Case("normalization", lambda: nn.BatchNorm1d(4).eval(), (5, 4)),
    "solve": Case(
        "linear algebra", lambda: Of(lambda x, b: torch.linalg.solve(spd(x), b), (3, 2)), (3, 3)
    ),
    "cholesky": Case("linear algebra", lambda: Of(lambda x: torch.linalg.cholesky(spd(x))), (3, 3)),
    "eigh": Case(
        "linear algebra", lambda: Of(lambda x: torch.linalg.eigh(spd(x)).eigenvalues), (3, 3)
    ),
    "logdet, inv": Case(
        "linear algebra",
        lambda: Of(lambda x: torch.logdet(spd(x)) + torch.linalg.inv(spd(x))),
        (3, 3),
    ),
    "Function: Swish": Case("Function", lambda: Of(Swish.apply), (12,), kinks),
    "Function: Exponential": Case("Function", lambda: Of(lambda x: exponential(x) ** 2), (6,)),
    "Function: SafeNorm": Case(
        "Function", lambda: Of(lambda x, w: SafeNorm.apply(x, w)[0], (1,)), (4, 3), zero_rows
    ),
    "Function: straight through": Case("Function", lambda: Of(straight_through, (3, 2)), (5, 3)),
    "Function: reversed gradient": Case(
        "Function", lambda: Of(lambda x, w: ReversedGradient.apply(x @ w, 0.5) ** 2, (3, 2)), (5, 3)
    ),
}
