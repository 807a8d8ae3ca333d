"""Which ops of ONNX come in, and whose derivatives go out again: run by `make onnx`."""

from __future__ import annotations

import itertools
import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from jax2onnx.plugins.jax.lax.dot_general import DotGeneralPlugin

import pullback as pb

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_derivative" / "derive.py"
AS_IT_COMES = DotGeneralPlugin._try_lower_matmul
derive = SimpleNamespace(**runpy.run_path(str(EXAMPLE)))
onnxruntime.set_default_logger_severity(3)
RNG = np.random.default_rng(0)


def weights(name, *shape):
    """A constant in the text form of ONNX."""
    numbers = ", ".join(f"{each:.3f}" for each in RNG.standard_normal(np.prod(shape)))
    return f"float[{','.join(map(str, shape))}] {name} = {{{numbers}}}"


IMAGE, ROWS, STEPS = (1, 2, 6, 6), (4, 8), (5, 1, 2)
OPS = {
    "AveragePool": (IMAGE, "", "y = AveragePool <kernel_shape = [2, 2]> (x)"),
    "BatchNormalization": (IMAGE, "float[2] s = {1, 2}", "y = BatchNormalization(x, s, s, s, s)"),
    "Concat": (ROWS, "", "y = Concat <axis = 0> (x, x)"),
    "CumSum": (ROWS, "int64 i = {1}", "y = CumSum(x, i)"),
    "Einsum": (ROWS, "", 'y = Einsum <equation = "ij,kj->ik"> (x, x)'),
    "Elu": (ROWS, "", "y = Elu(x)"),
    "Erf": (ROWS, "", "y = Erf(x)"),
    "Gather": (ROWS, "int64[2] i = {2, 0}", "y = Gather(x, i)"),
    "Gelu": (ROWS, "", "y = Gelu(x)"),
    "GlobalAveragePool": (IMAGE, "", "y = GlobalAveragePool(x)"),
    "LayerNormalization": (ROWS, weights("w", 8), "y = LayerNormalization(x, w)"),
    "LogSoftmax": (ROWS, "", "y = LogSoftmax(x)"),
    "MatMul": (ROWS, weights("w", 8, 3), "y = MatMul(x, w)"),
    "Pow": (ROWS, "float i = {3.0}", "y = Pow(x, i)"),
    "ReduceMax": (ROWS, "", "y = ReduceMax(x)"),
    "ReduceSum": (ROWS, "", "y = ReduceSum(x)"),
    "Sigmoid": (ROWS, "", "y = Sigmoid(x)"),
    "Slice": (ROWS, "int64[2] i = {1, 2}, int64[2] j = {3, 5}", "y = Slice(x, i, j)"),
    "Softmax": (ROWS, "", "y = Softmax(x)"),
    "Softplus": (ROWS, "", "y = Softplus(x)"),
    "Tanh": (ROWS, "", "y = Tanh(x)"),
    "Where": (ROWS, "float b = {0.0}", "c = Greater(x, b)  y = Where(c, x, b)"),
}
FORWARD_ALONE = {
    "AveragePool with strides": (
        IMAGE,
        "",
        "y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)",
    ),
    "Conv": (IMAGE, weights("w", 3, 2, 3, 3), "y = Conv(x, w)"),
    "TopK": (ROWS, "int64[1] i = {3}", "y, _ = TopK(x, i)"),
}
NOT_OUT = {
    "ConvTranspose": (IMAGE, weights("w", 2, 3, 3, 3), "y = ConvTranspose(x, w)"),
    "MaxPool": (IMAGE, "", "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)"),
}
NOT_IN = {
    "GRU": (
        STEPS,
        f"{weights('w', 1, 9, 2)}, {weights('r', 1, 9, 3)}",
        "y = GRU <hidden_size = 3> (x, w, r)",
    ),
    "LSTM": (
        STEPS,
        f"{weights('w', 1, 12, 2)}, {weights('r', 1, 12, 3)}",
        "y = LSTM <hidden_size = 3> (x, w, r)",
    ),
    "Resize": (
        IMAGE,
        "float[4] s = {1.0, 1.0, 2.0, 2.0}",
        'y = Resize <mode = "linear"> (x, , s)',
    ),
}


def saved(case, folder):
    """The path of a model of these nodes, and two inputs for it."""
    shape, constants, nodes = case
    text = f"""<ir_version: 10, opset_import: ["": 22]>
    main (float[{",".join(map(str, shape))}] x) => (float[1] y) <{constants}> {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True), folder / "op.onnx")
    x, v = RNG.standard_normal((2, *shape)).astype(np.float32)
    return folder / "op.onnx", x, v


def derivatives(program, x, v):
    """Programs of derivatives of the first result, with arguments: by forward mode, by both."""

    def first(x):
        return jax.tree.leaves(program(x))[0]

    def loss(x):
        return jnp.sum(jnp.sin(first(x)))

    def hvp(x, v):
        return pb.jvp(pb.grad(loss), (x,), (v,))[1]

    forward = [(pb.trace(pb.jacfwd(first))(x), [x])]
    return forward, [(pb.trace(pb.jacrev(first))(x), [x]), (pb.trace(hvp)(x, v), [x, v])]


def far(program, arguments, folder):
    """The largest difference of a program in ONNX Runtime, relative to the largest number."""
    derive.export(program, arguments, folder / "out.onnx")
    found = derive.run(folder / "out.onnx")(*arguments)
    expected = np.asarray(jax.tree.leaves(program(*arguments))[0])
    return np.abs(found - expected).max() / max(np.abs(expected).max(), 1.0)


def imported(case, folder):
    """The program of a model, whose value is that of ONNX Runtime, and two inputs for it."""
    path, x, v = saved(case, folder)
    program = derive.read(path)
    value = jax.tree.leaves(program(x))[0]
    np.testing.assert_allclose(value, derive.run(path)(x), rtol=2e-6, atol=2e-6)
    return program, x, v


@pytest.mark.parametrize("name", OPS)
def test_an_op_whose_derivatives_go_out(name, tmp_path):
    program, x, v = imported(OPS[name], tmp_path)
    forward, reverse = derivatives(program, x, v)
    for each, arguments in [(program, [x]), *forward, *reverse]:
        assert far(each, arguments, tmp_path) < 5e-6


@pytest.mark.parametrize("name", FORWARD_ALONE)
def test_an_op_of_which_jax2onnx_takes_forward_mode_alone(name, tmp_path):
    program, x, v = imported(FORWARD_ALONE[name], tmp_path)
    forward, reverse = derivatives(program, x, v)
    for each, arguments in [(program, [x]), *forward]:
        assert far(each, arguments, tmp_path) < 5e-6
    for each, arguments in reverse:
        with pytest.raises(NotImplementedError):
            far(each, arguments, tmp_path)


@pytest.mark.parametrize("name", NOT_OUT)
def test_an_op_whose_derivatives_do_not_go_out(name, tmp_path):
    program, x, v = imported(NOT_OUT[name], tmp_path)
    for each, arguments in itertools.chain(*derivatives(program, x, v)):
        with pytest.raises(NotImplementedError):
            far(each, arguments, tmp_path)


@pytest.mark.parametrize("name", NOT_IN)
def test_an_op_that_torch_mlir_does_not_lower(name, tmp_path):
    path, *_ = saved(NOT_IN[name], tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        derive.read(path)


@jax.custom_vjp
def straight_through(x):
    return jnp.minimum(x, 1.0)


straight_through.defvjp(lambda x: (straight_through(x), x), lambda x, ct: (ct * x,))
MATRIX = 3 * jnp.eye(3) + 1
PROGRAMS = {
    "cholesky": lambda x: jnp.sum(jnp.linalg.cholesky(MATRIX + jnp.diag(x)) ** 2),
    "cond": lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, jnp.sum(x**2)),
    "rule": lambda x: jnp.sum(straight_through(x) ** 2),
    "scan": lambda x: jax.lax.scan(lambda c, y: (jnp.sin(c) * y, c), 1.0, x)[0],
    "solve": lambda x: jnp.sum(jnp.linalg.solve(MATRIX + jnp.diag(x), x)),
    "sort": lambda x: jnp.sum(jnp.sort(x) ** 2 * jnp.arange(3.0)),
    "while": lambda x: jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c), jnp.sum(x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_jax_whose_derivatives_go_out(name, tmp_path):
    x, v = np.float32([[0.5, 3.0, 2.0], [0.3, -0.2, 0.9]])
    program = pb.trace(PROGRAMS[name])(x)
    gradient = program.grad()
    hvp = pb.trace(lambda x, v: pb.jvp(gradient, (x,), (v,))[1])(x, v)
    for each, arguments in [(program, [x]), (gradient, [x]), (hvp, [x, v])]:
        assert far(each, arguments, tmp_path) < 5e-6


def test_the_derivatives_of_erf_are_those_of_a_rational_function(tmp_path):
    """Errors of the first and second derivative, relative to the largest."""
    program = derive.read(saved(((2001,), "", "y = Erf(x)"), tmp_path)[0])
    x = np.linspace(-5, 5, 2001, dtype=np.float32)
    one = np.ones_like(x)
    first = program.jvp()(x, one)[1]
    second = pb.jvp(lambda x: pb.jvp(program, (x,), (one,))[1], (x,), (one,))[1]
    slope = 2 / np.sqrt(np.pi) * np.exp(-(np.float64(x) ** 2))
    assert 1e-7 < np.abs(first - slope).max() / 1.13 < 3e-6
    assert 1e-5 < np.abs(second + 2 * x * slope).max() / 0.97 < 1e-4


@pytest.mark.parametrize(
    ("op", "slope"), [("Abs", 1.0), ("Asinh", 0.0), ("Relu", 0.5), ("LeakyRelu", 0.505)]
)
def test_slopes_at_zero(op, slope, tmp_path):
    """They are those of torch-mlir's formulas; that of asinh should be 1."""
    program = derive.read(saved(((1,), "", f"y = {op}(x)"), tmp_path)[0])
    assert program.vjp()(np.zeros(1, "f"), np.ones(1, "f"))[1][0] == pytest.approx(slope)


def test_jax2onnx_loses_the_transpose_of_the_first_matrix(tmp_path, monkeypatch):
    """A product of matrices by the first dimension of both; the example mends it."""
    x = RNG.standard_normal((3, 3)).astype(np.float32)
    program = pb.trace(lambda x: jnp.tensordot(x, jnp.sin(x), (0, 0)))(x)
    assert far(program, [x], tmp_path) < 5e-6
    monkeypatch.setattr(DotGeneralPlugin, "_try_lower_matmul", AS_IT_COMES)
    assert far(program, [x], tmp_path) > 0.1
