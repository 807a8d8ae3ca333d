"""Take models of ONNX in, and their derivatives out, as models of ONNX that ONNX Runtime runs.

    python examples/onnx_derivative/derive.py FOLDER

`make onnx` runs it, in an environment with onnx, torch-mlir, jax2onnx and ONNX Runtime. For each of
two models it writes `model.onnx`, `jacobian.onnx` and `hvp.onnx`, runs the last two, and prints how
far they are from the programs of pullback, from JAX's derivatives of the same function in 64 bits,
and from finite differences of `model.onnx` in ONNX Runtime. It fails if one is too far.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import jax2onnx
import numpy as np
import onnx
import onnxruntime
from jax import lax
from jax2onnx.plugins.jax.lax.dot_general import DotGeneralPlugin
from onnx import helper, numpy_helper

import pullback as pb

# jax2onnx 0.17.1 writes a product of matrices without the transpose of the first: docs/exchange.md
# has more. Without this method it writes an Einsum.
DotGeneralPlugin._try_lower_matmul = lambda self, *_: False

TOLERANCES = {"pullback": 5e-6, "JAX": 5e-6, "finite differences": 5e-3}
"""The largest errors, relative to the largest number; model.onnx has 32 bits, and so its slopes."""

PASSES = "torch-onnx-to-torch-backend-pipeline", "torch-backend-to-stablehlo-backend-pipeline"
"""What torch-mlir lowers a model of ONNX by, to StableHLO."""


def half_square(function):
    return lambda x: jnp.sum(function(x) ** 2) / 2


def by_both_modes(function):
    """A Jacobian by reverse mode, and a product with a Hessian by forward over reverse mode."""
    gradient = pb.grad(half_square(function))
    return pb.jacrev(function), lambda x, v: pb.jvp(gradient, (x,), (v,))[1]


def by_forward_mode(function):
    """The same without reverse mode, of which jax2onnx has no convolution."""
    slope = lambda x, v: pb.jvp(half_square(function), (x,), (v,))[1]  # noqa: E731
    return pb.jacfwd(function), pb.jacfwd(slope)


@dataclass(frozen=True)
class Model:
    """A model: the nodes of its graph, and the same in JAX."""

    shape: tuple[int, ...]
    weights: dict[str, tuple[int, ...]]
    nodes: list[tuple[str, list[str], dict]]
    """The op of each, its operands and attributes; its result has its number as a name."""
    in_jax: Callable
    derivatives: Callable


def perceptron(x, hidden, bias, out):
    return jnp.tanh(jax.nn.softplus(x @ hidden + bias) @ out)


def convolution(x, kernel, bias, out):
    y = lax.conv_general_dilated(x, kernel, (2, 2), ((1, 1), (1, 1))) + bias[:, None, None]
    return jnp.tanh(jnp.mean(jax.nn.softplus(y), axis=(2, 3)) @ out)


MODELS = {
    "perceptron": Model(
        (1, 6),
        {"hidden": (6, 16), "bias": (16,), "out": (16, 3)},
        [
            ("Gemm", ["x", "hidden", "bias"], {}),
            ("Softplus", ["0"], {}),
            ("Gemm", ["1", "out"], {}),
            ("Tanh", ["2"], {}),
        ],
        perceptron,
        by_both_modes,
    ),
    "convolution": Model(
        (1, 1, 6, 6),
        {"kernel": (4, 1, 3, 3), "bias": (4,), "out": (4, 3)},
        [
            ("Conv", ["x", "kernel", "bias"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
            ("Softplus", ["0"], {}),
            ("GlobalAveragePool", ["1"], {}),
            ("Flatten", ["2"], {}),
            ("Gemm", ["3", "out"], {}),
            ("Tanh", ["4"], {}),
        ],
        convolution,
        by_forward_mode,
    ),
}


def write(model, weights, path):
    """Write a model with these weights, in 32 bits, as ONNX."""
    kind = onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node(op, operands, [str(number)], **attributes)
        for number, (op, operands, attributes) in enumerate(model.nodes)
    ]
    result = helper.make_tensor_value_info(nodes[-1].output[0], kind, (1, 3))
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("x", kind, model.shape)],
        [result],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, path)


def read(path):
    """Import a model of ONNX by torch-mlir, whose commands are beside this Python."""
    commands = Path(sys.executable).parent
    imported, lowered = path.with_suffix(".torch.mlir"), path.with_suffix(".mlir")
    subprocess.run([commands / "torch-mlir-import-onnx", path, "-o", imported], check=True)
    pipeline = f"--pass-pipeline=builtin.module({','.join(PASSES)})"
    subprocess.run([commands / "torch-mlir-opt", imported, pipeline, "-o", lowered], check=True)
    return pb.load(lowered)


def export(program, arguments, path):
    """Write a program as a model of ONNX with inputs `x` and, if it has two, `v`.

    What it calls no longer needs rules, for which ONNX has no op.
    """
    names = ["x", "v"][: len(arguments)]
    function = program.run_passes("lower-custom-derivatives").as_jax()
    made = jax2onnx.to_onnx(function, arguments, input_names=names)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, path)


def run(path):
    """Return the function of a model of ONNX, evaluated by ONNX Runtime: its first result."""
    session = onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_inputs()]
    return lambda *arguments: session.run(None, dict(zip(names, arguments, strict=True)))[0]


def slope(function, x, direction, step=0.1):
    """The derivative along a direction: a central difference of fourth order, in 64 bits."""

    def rise(h):
        ends = [np.float64(function(np.float32(x + s * direction))) for s in (h, -h)]
        return ends[0] - ends[1]

    return (8 * rise(step) - rise(2 * step)) / (12 * step)


def in_64_bits(model, weights, x, v):
    """The Jacobian and the product by JAX, of the function that is written in JAX."""
    with jax.enable_x64(True):
        weights, x, v = jax.tree.map(np.float64, (weights, x, v))
        function = partial(model.in_jax, **weights)
        product = jax.jvp(jax.grad(half_square(function)), (x,), (v,))[1]
        return np.asarray(jax.jacrev(function)(x)), np.asarray(product)


def by_differences(function, x, v):
    """The Jacobian and the product from values of `function` alone."""

    def loss(x):
        return np.sum(np.float64(function(x)) ** 2) / 2

    units = np.eye(x.size).reshape(-1, *x.shape)
    jacobian = [slope(function, x, each) for each in units]
    product = [slope(lambda x: slope(loss, x, v), x, each) for each in units]
    return np.stack(jacobian, -1).reshape(1, 3, *x.shape), np.reshape(product, x.shape)


def compare(name, model, folder):
    """Print the errors of derivatives in ONNX Runtime; return True if one is too large."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    weights = {
        key: np.float32(rng.standard_normal(shape) / 2) for key, shape in model.weights.items()
    }
    x, v = rng.standard_normal((2, *model.shape)).astype(np.float32)
    write(model, weights, folder / "model.onnx")
    program = read(folder / "model.onnx")
    jacobian, hvp = model.derivatives(program)
    programs = pb.trace(jacobian)(x), pb.trace(hvp)(x, v)
    export(programs[0], [x], folder / "jacobian.onnx")
    export(programs[1], [x, v], folder / "hvp.onnx")
    found = run(folder / "jacobian.onnx")(x), run(folder / "hvp.onnx")(x, v)
    expected = {
        "pullback": (programs[0](x), programs[1](x, v)),
        "JAX": in_64_bits(model, weights, x, v),
        "finite differences": by_differences(run(folder / "model.onnx"), x, v),
    }
    failed = False
    for other, values in expected.items():
        errors = []
        for ours, theirs in zip(found, values, strict=True):
            assert ours.shape == theirs.shape
            errors.append(np.abs(ours - theirs).max() / np.abs(theirs).max())
        failed |= not max(errors) <= TOLERANCES[other]
        print(f"| {name} | {other} | {errors[0]:.0e} | {errors[1]:.0e} |")
    return failed


def main(folder):
    onnxruntime.set_default_logger_severity(3)  # constants that jax2onnx writes and nothing uses
    print("| model | in ONNX Runtime, from | Jacobian | Hessian · vector |\n|---|---|---|---|")
    failed = [compare(name, model, Path(folder) / name) for name, model in MODELS.items()]
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
