"""Calls that run elsewhere than a program was lowered for: it is made again for that platform.

So it is where the default device is a GPU and the arguments lie on a CPU. Here the default is only
said to be a GPU, and what is lowered for one is read, not run.
"""

from __future__ import annotations

import functools
import re
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
from pullback.frontend import trace

pytestmark = [
    pytest.mark.usefixtures("float64"),
    pytest.mark.skipif(
        pullback_runtime.default_backend() != "cpu",
        reason="tests/devices/test_gpu.py has these",
    ),
]

X = np.array([[2.0, 0.3], [0.3, 1.5]])


@pytest.fixture
def gpu_by_default(monkeypatch):
    for module in (trace, pullback_runtime):
        monkeypatch.setattr(module, "default_backend", lambda: "cuda")


@jax.custom_vjp
def with_rule(x):
    return jnp.linalg.cholesky(x)


with_rule.defvjp(lambda x: (with_rule(x), x), lambda x, ct: (ct * lax.linalg.cholesky(x) * 3.0,))


def looped(x):
    return lax.fori_loop(0, 3, lambda _, c: jnp.linalg.cholesky(c @ c.T + X), x)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "decomposition": lambda x: jnp.sum(jnp.linalg.cholesky(x) ** 2 * X),
    "by platform": lambda x: jnp.sum(lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos)),
    "random": lambda x: jnp.sum(jnp.sin(x * jax.random.normal(jax.random.key(0), x.shape))),
    "rule": lambda x: jnp.sum(with_rule(x) ** 2),
    "loop": lambda x: jnp.sum(looped(x)),
    "large constant": lambda x: jnp.sum(jnp.linalg.inv(x) @ np.ones((2, 5000))),
}
USES: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda library, f: library.grad(f)(X),
    "value_and_grad": lambda library, f: library.value_and_grad(f)(X),
    "jvp": lambda library, f: library.jvp(f, (X,), (X.T,)),
    "vjp": lambda library, f: library.vjp(f, X)[1](jnp.array(2.0)),
    "linearize": lambda library, f: library.linearize(f, X)[1](X.T),
    "vmap": lambda library, f: library.vmap(library.grad(f))(np.stack([X, X @ X])),
}
OF_PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "call": lambda p: (p(X),),
    "compile": lambda p: (p.compile()(X),),
    "compiled for": lambda p: (p.compile(backend="cpu")(X),),
    "compiled on": lambda p: (p.compile(device=jax.devices("cpu")[0])(X),),
    "derived": lambda p: p.value_and_grad()(X),
    "passes": lambda p: (p.run_passes("builtin.module(cse)")(X),),
    "derived by JAX": lambda p: jax.value_and_grad(p)(X),
    "in another": lambda p: pb.value_and_grad(lambda x: p(x))(X),
    "batched by JAX": lambda p: tuple(v[0] for v in jax.vmap(p.value_and_grad())(X[None])),
    "batched": lambda p: tuple(v[0] for v in p.value_and_grad().vmap(axis_size=1)(X[None])),
    "transposed": lambda p: (p(X), p.split_vjp()[1](p.split_vjp()[0](X)[1], 1.0)[0]),
}


REFUSED = {
    ("rule", "jvp"),
    ("rule", "linearize"),
    ("by platform", "vjp"),
    ("by platform", "linearize"),
    ("by platform", "transposed"),
}


def close(found: Any, expected: Any) -> None:
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9), found, expected)


@pytest.mark.usefixtures("gpu_by_default")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_of_where_they_run(name: str, use: str) -> None:
    if (name, use) in REFUSED:
        pytest.skip("by JAX, or by us: see test_half_a_derivative…")
    f = FUNCTIONS[name]
    assert pb.trace(f)(X).platforms == ("cuda",)
    close(USES[use](pb, f), USES[use](jax, f))


@pytest.mark.parametrize("use", OF_PROGRAMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_run_where_they_are_called(name: str, use: str) -> None:
    if (name, use) in REFUSED:
        pytest.skip("see test_half_a_derivative…")
    f = FUNCTIONS[name]
    found = OF_PROGRAMS[use](pb.trace(f, platforms="cuda")(X))
    close(found, jax.value_and_grad(f)(X)[: len(found)])


def routines(function: Callable[..., Any], platforms: tuple[str, ...]) -> set[str]:
    text = jax.jit(function).trace(X).lower(lowering_platforms=platforms).as_text()
    return {name.partition("_")[0] for name in re.findall(r"custom_call @(\w+)", text)}


LOWERED: dict[str, Callable[[Any], Any]] = {
    "pb.grad": pb.grad,
    "pb.hessian": pb.hessian,
    "program": lambda f: pb.trace(f)(X),
    "derived program": lambda f: pb.trace(f)(X).grad(),
    "JAX's derivative": lambda f: jax.grad(pb.trace(f)(X)),
    "second": lambda f: lambda x: jax.jvp(jax.grad(pb.trace(f)(X)), (x,), (x,)),
}


@pytest.mark.parametrize("made", LOWERED)
def test_a_call_is_lowered_for_each_platform(made: str) -> None:
    function = LOWERED[made](FUNCTIONS["decomposition"])
    assert routines(function, ("cpu",)) == {"lapack"}
    assert routines(function, ("cuda",)) == {"cusolver"}
    assert routines(function, ("cpu", "cuda")) == {"lapack", "cusolver"}


def test_exports_for_several_platforms() -> None:
    f = FUNCTIONS["by platform"]
    exported = jax.export.export(jax.jit(pb.grad(f)), platforms=("cuda", "cpu"))(X)
    close(exported.call(X), jax.grad(f)(X))
    program = pb.load(exported.serialize())
    close(program.for_platform("cuda")(X), -np.sin(X))


def test_a_variant_that_is_chosen_is_run_here_too() -> None:
    program = pb.trace(FUNCTIONS["by platform"], platforms=("cpu", "cuda"))(X)
    close(program.for_platform("cuda").grad()(X), -np.sin(X))
    close(program.grad()(X), np.cos(X))


@pytest.mark.usefixtures("gpu_by_default")
def test_files_with_variants_run_where_they_are_called() -> None:
    f = FUNCTIONS["by platform"]
    content = artifact.serialize(pb.trace(f, platforms=("cuda", "cpu"))(X))
    loaded = pb.load(content)
    for program in (loaded, pullback_runtime.load(content)):
        close(program(X), f(X))
    close(loaded.grad()(X), np.cos(X))
    close(jax.jit(jax.vmap(pb.grad(loaded)))(X[None])[0], np.cos(X))


@pytest.mark.usefixtures("gpu_by_default")
@pytest.mark.parametrize("order", [0, 1])
def test_exports_of_jax_run_where_they_are_called(order: int) -> None:
    """Also in the variant that a derivative of JAX's is the rule of."""
    f = FUNCTIONS["by platform"]
    exported = jax.export.export(jax.jit(f), platforms=("cuda", "cpu"))(X)
    loaded = pb.load(exported.serialize(vjp_order=order))
    close(loaded(X), f(X))
    close(pb.value_and_grad(loaded)(X), (f(X), np.cos(X)))
    close(jax.vmap(loaded.grad())(X[None])[0], np.cos(X))
    close(loaded.for_platform("cuda").grad()(X), -np.sin(X))


def test_a_file_for_one_platform_is_what_it_is() -> None:
    f = FUNCTIONS["by platform"]
    loaded = pb.load(artifact.serialize(pb.trace(f, platforms="cuda")(X)))
    close(loaded.grad()(X), -np.sin(X))


def test_the_settings_are_those_of_the_trace() -> None:
    """Rules are traced again, which is later than the function was."""
    f = jax.custom_vjp(lambda x: 2.0 * x)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct @ x,))
    with jax.default_matmul_precision("highest"):
        program = pb.trace(lambda x: jnp.sum(f(x)), platforms="cuda")(X).grad()
    lowered = jax.jit(program).trace(X).lower(lowering_platforms=("cpu",))
    assert lowered.as_text().count("HIGHEST, HIGHEST") == 1


def test_half_a_derivative_is_not_run_where_it_would_be_another(gpu_by_default) -> None:
    """Its residuals come from the other half, which may have been run on a GPU."""
    f = FUNCTIONS["by platform"]
    program = pb.trace(f)(X)
    for use in (lambda: pb.vjp(f, X), lambda: pb.linearize(f, X), lambda: jax.grad(program)(X)):
        with pytest.raises(pb.PullbackError) as caught:
            use()
        assert caught.value.message == (
            "a derivative in two parts, as of jax.grad, pb.vjp and pb.linearize, was made for "
            "cuda: for cpu it is another function, which needs other residuals"
        )
        assert "under jax.default_device" in caught.value.do


def test_a_file_that_calls_a_library_says_where_it_runs() -> None:
    f = FUNCTIONS["decomposition"]
    content = artifact.serialize(pb.trace(f, platforms="cuda")(X))
    for program in (pb.load(content), pullback_runtime.load(content)):
        with pytest.raises(pullback_runtime.ModuleError) as caught:
            program(X)
        assert str(caught.value).startswith(
            "the program was lowered for cuda, and is to run on cpu, which has no "
            "`cusolver_potrf_ffi`\n"
        )
        assert caught.value.do == (
            'run it on arrays of a cuda device, or trace it with platforms=("cuda", "cpu") and '
            "save that"
        )
