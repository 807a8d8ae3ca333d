"""On an NVIDIA GPU, if there is one: `make gpu`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb
import pullback_runtime
from pullback import artifact
from tests.files.jax_export.test_match_library_calls import CASES, S, weighed
from tests.files.models import of_export

pytestmark = [
    pytest.mark.usefixtures("float64"),
    pytest.mark.skipif(
        pullback_runtime.default_backend() != "cuda", reason="JAX does not run on an NVIDIA GPU"
    ),
]

A = np.random.default_rng(1).standard_normal((4, 4))
KEY = 7
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "normal": lambda x: x * jax.random.normal(jax.random.key(KEY), x.shape),
    "gamma": lambda x: jax.random.gamma(jax.random.key(KEY), jnp.abs(x) + 1),
    "fft": jnp.fft.fft,
    "sort": jnp.sort,
    "top_k": lambda x: lax.top_k(x, 2)[0],
    "cumsum": functools.partial(jnp.cumsum, axis=0),
    "cumprod": functools.partial(jnp.cumprod, axis=0),
    "cumlogsumexp": lax.cumlogsumexp,
    "cummax": lax.cummax,
    "gammaln": lambda x: jax.scipy.special.gammaln(jnp.abs(x) + 0.5),
    "igamma": lambda x: jax.scipy.special.gammainc(jnp.abs(x) + 1, jnp.abs(x) + 0.5),
    "conv": lambda x: lax.conv(x[None, None], x[None, None, :3, :3], (1, 1), "SAME"),
    "scatter": lambda x: x.at[jnp.array([0, 1, 0])].add(x[:3]),
    "scan": lambda x: lax.scan(lambda c, r: (jnp.sin(c + r), c * r), x[0], x)[0],
    "loop": lambda x: lax.fori_loop(0, 5, lambda _, c: jnp.cos(c * x), x),
    "cond": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "softmax": lambda x: jax.nn.softmax(jax.nn.gelu(x)),
    "ragged_dot": lambda x: lax.ragged_dot(x, jnp.stack([x, 2 * x]), jnp.array([1, 3])),
    "eigenvalues": jnp.linalg.eigvals,
    "expm": jax.scipy.linalg.expm,
}
ALL: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    **CASES,
    **{name: (lambda x, f=f: weighed(f(x)), A) for name, f in FUNCTIONS.items()},
}


def close(found: Any, expected: Any, tolerance: float = 1e-8) -> None:
    def same(x: Any, y: Any) -> None:
        np.testing.assert_allclose(
            np.asarray(x, "f8"), np.asarray(y, "f8"), rtol=tolerance, atol=tolerance
        )

    jax.tree.map(same, found, expected)


@pytest.mark.parametrize("name", ALL)
def test_equal_to_jax(name: str) -> None:
    f, x = ALL[name]
    assert pb.trace(f)(x).platforms == ("cuda",)
    expected, t = jax.jit(jax.grad(f))(x), np.cos(x)
    close(jnp.abs(pb.grad(f)(x)), jnp.abs(expected))
    close(pb.jvp(f, (x,), (t,)), jax.jit(lambda x: jax.jvp(f, (x,), (t,)))(x))
    close(jnp.abs(pb.load(artifact.serialize(pb.trace(f)(x))).grad()(x)), jnp.abs(expected))


def test_the_same_file_on_a_gpu_and_on_a_cpu() -> None:
    f, x = CASES["svd"]
    content = artifact.serialize(pb.trace(f, platforms=("cpu", "cuda"))(x).grad())
    cpu, expected = jax.devices("cpu")[0], jax.grad(f)(x)
    for program in (pb.load(content), pullback_runtime.load(content)):
        here, there = program(x), program(jax.device_put(x, cpu))
        assert [each.devices() == {cpu} for each in (here, there)] == [False, True]
        close([here, there], [expected, expected])
    for options in ({"backend": "cpu"}, {"device": cpu}, {"backend": "cuda"}, {}):
        close(pb.load(content).compile(**options)(x), expected)


def test_arguments_on_a_cpu() -> None:
    (f, _), cpu = CASES["cholesky"], jax.devices("cpu")[0]
    x, program = jax.device_put(S, cpu), pb.trace(f)(S)
    for function in (pb.grad(f), program.grad(), jax.grad(program), pb.jit(pb.grad(f))):
        found = function(x)
        assert found.devices() == {cpu}
        close(found, jax.grad(f)(S))
    close(pb.hessian(f)(x), jax.hessian(f)(S), 1e-6)
    with jax.default_device(cpu):
        assert pb.trace(f)(S).platforms == ("cpu",)
        assert pb.grad(f)(S).devices() == {cpu}


def test_an_export_has_derivatives_of_the_routines_of_large_matrices() -> None:
    """Which are other ones, and what is wider than high is handed over in rows."""
    for shape in ((40, 36), (1100, 8), (8, 1100)):
        x = np.random.default_rng(2).standard_normal(shape)

        def f(x):
            u, s, vh = jnp.linalg.svd(x, full_matrices=False)
            return weighed(s) + weighed(u[:, 0]) + weighed(vh[0])

        close(of_export(f, x).grad()(x), jax.grad(f)(x), 1e-5)


def test_callbacks() -> None:
    def f(x):
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jnp.sum(x * jax.pure_callback(np.cos, like, lax.stop_gradient(x)))

    close(pb.grad(f)(A), np.cos(A))


def attention(implementation: str) -> Callable[..., Any]:
    """JAX's kernels for attention, whose rules are kernels as well."""
    if implementation == "cudnn":
        return functools.partial(jax.nn.dot_product_attention, implementation="cudnn")
    from jax.experimental.pallas.ops.gpu import attention

    return lambda q, k, v: attention.mha(q, k, v, None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("implementation", ["cudnn", "pallas"])
def test_attention(implementation: str) -> None:
    with jax.enable_x64(False):
        q = jnp.asarray(np.random.default_rng(3).standard_normal((2, 256, 2, 64)), "bfloat16")
        attend = attention(implementation)

        def f(*args):
            return jnp.sum(attend(*args).astype("float32") ** 2)

        args = (q, q[::-1], q + 1)
        expected = jax.jit(jax.grad(f, (0, 1, 2)))(*args)
        close(pb.grad(f, (0, 1, 2))(*args), expected, 3e-2)
        content = artifact.serialize(pb.trace(f)(*args), order=1)
        close(pb.load(content).grad((0, 1, 2))(*args), expected, 3e-2)
