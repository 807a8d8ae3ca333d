"""Write the programs of `cases`, and what torch says of their derivatives: runs with torch."""

from __future__ import annotations

import copy
import sys
import traceback
from pathlib import Path

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

import pullback as pb
from tests.torch.cases import CASES, Case


class Weighed(torch.nn.Module):
    """A sum over what a module returns, in which each element has a weight of its own."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        y = self.module(x)
        weights = torch.sin(torch.arange(1.0, 1.0 + y.numel(), dtype=y.dtype))
        return torch.sum(y.reshape(-1) * weights)


def points(case: Case) -> list[torch.Tensor]:
    generator = np.random.default_rng(0)
    random = [torch.tensor(generator.standard_normal(case.shape), dtype=torch.float32)]
    return random if case.kinks is None else [*random, case.kinks()]


def numbers(tensors) -> list[np.ndarray]:
    return [each.detach().numpy(force=True) for each in tensors]


def said(module, x, tangents) -> dict[str, list[np.ndarray]]:
    """The derivatives that torch has by the parameters and `x`; an empty list where it has none."""
    names = [name for name, _ in module.named_parameters()]
    leaves = [each.detach().requires_grad_() for each in (*module.parameters(), x)]

    def call(*leaves):
        return torch.func.functional_call(module, dict(zip(names, leaves)), (leaves[-1],))

    with sdpa_kernel(SDPBackend.MATH):  # the other one has no second derivative
        gradient = torch.autograd.grad(
            call(*leaves), leaves, create_graph=True, materialize_grads=True, allow_unused=True
        )
        found = {"gradient": numbers(gradient), "hvp": [], "forward": []}
        product = sum((g * t).sum() for g, t in zip(gradient, tangents))
        try:
            found["hvp"] = numbers(
                torch.autograd.grad(product, leaves, materialize_grads=True, allow_unused=True)
                if product.requires_grad
                else map(torch.zeros_like, leaves)
            )
        except RuntimeError as error:
            print(f"  torch has no second derivative: {str(error).splitlines()[0][:90]}")
        try:
            with forward_ad.dual_level():
                duals = map(forward_ad.make_dual, leaves, tangents)
                tangent = forward_ad.unpack_dual(call(*duals)).tangent
                found["forward"] = [np.float64(0) if tangent is None else tangent.detach().numpy()]
        except (RuntimeError, NotImplementedError) as error:
            print(f"  torch has no forward mode: {str(error).splitlines()[0][:90]}")
    return found


def write(name: str, case: Case, folder: Path) -> None:
    torch.manual_seed(0)
    module = Weighed(case.make())
    program = pb.torch.trace(module, (points(case)[0],))
    stem = folder / name.replace(" ", "_")
    program.save(stem.with_suffix(".mlirbc"))
    exact = copy.deepcopy(module).double()
    arrays = {}
    for i, x in enumerate(points(case)):
        generator = torch.Generator().manual_seed(i)
        leaves = (*module.parameters(), x)
        tangents = [torch.randn(each.shape, generator=generator) for each in leaves]
        found = said(exact, x.double(), tuple(each.double() for each in tangents))
        found |= {"x": numbers([x]), "tangents": numbers(tangents)}
        arrays |= {
            f"point/{i}/{key}/{j}": a for key, each in found.items() for j, a in enumerate(each)
        }
    named = {f"parameter/{name}": a for name, a in pb.torch.parameters(module).items()}
    np.savez(stem.with_suffix(".npz"), kind=case.kind, **arrays, **named)


def main(folder: str, only: str = "") -> int:
    Path(folder).mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, case in CASES.items():
        if only in name:
            print(name, flush=True)
            try:
                write(name, case, Path(folder))
            except Exception:
                failed += 1
                traceback.print_exc()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
