"""Write the modules of PyTorch in this folder, and what its autograd says of them.

    pip install torch==2.9.0 torch_xla==2.9.0
    python tests/files/pytorch/write.py

Each module has a scalar result; its arguments are the weights of the model, then an array.
"""

import json
import re
from pathlib import Path

import numpy as np
import torch
from torch.export import export
from torch_xla.stablehlo import exported_program_to_stablehlo

FOLDER = Path(__file__).parent
LOCATION = re.compile(r" loc\([^()]*\)")


class Weighed(torch.nn.Module):
    """A sum over what a module gives, in which each element has a weight of its own."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        y = self.module(x).flatten()
        weights = torch.sin(torch.arange(1.0, 1.0 + y.numel()))
        return torch.sum(y * weights, dim=0)  # without `dim`, torch_xla leaves the sum out


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attend(x, x, x, need_weights=False)[0]


nn = torch.nn
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), (2, 3)),
    "norm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.SiLU()), (2, 3)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Softmax(1)),
        (1, 1, 6, 6),
    ),
    "attention": (Attention, (1, 3, 4)),
}


def write(name, make, shape):
    torch.manual_seed(0)
    model = Weighed(make()).eval()
    x = torch.tensor(np.random.default_rng(0).standard_normal(shape), dtype=torch.float32)
    exported = export(model, (x,))
    text = exported_program_to_stablehlo(exported).get_stablehlo_text("forward")
    lines = [line for line in LOCATION.sub("", text).splitlines() if not line.startswith("#loc")]
    (FOLDER / f"{name}.mlir").write_text("\n".join(lines) + "\n")

    meta = exported_program_to_stablehlo(exported)._bundle.stablehlo_funcs[0].meta
    known = dict(model.named_parameters())
    arguments = [known.get(each.name, x) for each in meta.input_locations]
    for each in arguments:
        each.requires_grad_()
    value = model(x)
    gradients = torch.autograd.grad(value, arguments)
    said = {
        "arguments": [each.detach().numpy().tolist() for each in arguments],
        "value": value.item(),
        "gradients": [each.numpy().tolist() for each in gradients],
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    for name, (make, shape) in MODELS.items():
        write(name, make, shape)
