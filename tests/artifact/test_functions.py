"""JAX's functions with rules of their own, in what `jax.export` writes, have JAX's derivatives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy import special

import pullback as pb
from pullback.artifact import functions
from pullback.artifact.sampled_values import agree
from tests.artifact.models import of_export

KINKS = np.array([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0])
POSITIVE = np.array([0.3, 0.9, 2.7])
_vectors = np.random.default_rng(0).standard_normal((4, 4))
SINGULAR = _vectors @ np.diag([1.0, 2.0, 0.0, 3.0]) @ np.linalg.inv(_vectors)
CASES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "relu": (jax.nn.relu, KINKS),
    "relu6": (jax.nn.relu6, KINKS),
    "inside another function": (jax.nn.hard_silu, KINKS),
    "i0": (jnp.i0, KINKS),
    "sinc": (jnp.sinc, KINKS),
    "expi": (special.expi, np.array([0.0, 1e-200, 0.5, -1.0, 3.0, 1e5])),
    "sici": (lambda x: special.sici(x)[0] * special.sici(x)[1], POSITIVE),
    "sici, one result": (lambda x: special.sici(x)[1], POSITIVE),
    "log1mexp": (jax.nn.log1mexp, POSITIVE),
    "hyp1f1, of literals": (lambda x: special.hyp1f1(1.5, 0.7, x), POSITIVE),
    "det": (jnp.linalg.det, SINGULAR),
    "slogdet": (lambda x: jnp.linalg.slogdet(x)[1], _vectors),
    "pinv": (jnp.linalg.pinv, _vectors[:3]),
    "pinv, hermitian": (lambda x: jnp.linalg.pinv(x @ x.T, hermitian=True), _vectors[:3]),
    "batch of relu": (lambda x: jax.vmap(jax.nn.relu)(x[:, None]), KINKS),
    "batch of expi": (lambda x: jax.vmap(special.expi)(x[:, None]), POSITIVE),
    "batch of det": (lambda x: jax.vmap(jnp.linalg.det)(jnp.stack([x, 2 * x])), SINGULAR),
}


def weighed(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def g(x):
        y = f(x)
        return jnp.sum(jnp.sin(y) * jnp.arange(1.0, 1.0 + y.size).reshape(y.shape))

    return g


def second(gradient: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return jax.jit(lambda x, t: jax.jvp(gradient, (x,), (t,))[1])


@pytest.mark.sweep
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """First and second order; of some the formula has the same ones, but the function is found."""
    found, again = list[bytes | None](), functions._again
    monkeypatch.setattr(functions, "_again", lambda *args: found.append(again(*args)) or found[-1])
    f, x = weighed(CASES[name][0]), CASES[name][1]
    program, t = of_export(f, x), np.cos(x)
    assert any(found)
    np.testing.assert_allclose(program(x), f(x), rtol=1e-12)
    gradient, (of_ours, of_jax) = program.grad(), map(second, (program.grad(), jax.grad(f)))
    np.testing.assert_allclose(gradient(x), jax.jit(jax.grad(f))(x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(of_ours(x, t), of_jax(x, t), rtol=1e-8, atol=1e-9)


X = KINKS.astype("float32")


def test_one_that_takes_long_to_compile_has_its_rule() -> None:
    program = of_export(lambda x: special.hyp2f1(0.3, 0.2, 1.3, x), X)
    assert "custom_jvp_call" in program.asm()


def slopes_of_relu(program: Any) -> np.ndarray:
    return np.asarray(program.grad()(X))


def summed(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: jnp.sum(f(x))


def test_in_single_precision() -> None:
    np.testing.assert_array_equal(slopes_of_relu(of_export(summed(jax.nn.relu), X)), X > 0)


def test_of_several_platforms() -> None:
    program = of_export(summed(jax.nn.relu), X, platforms=["cpu", "cuda", "tpu"])
    np.testing.assert_array_equal(slopes_of_relu(program), X > 0)


def test_of_symbolic_dimensions() -> None:
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), "float32")
    exported = jax.export.export(jax.jit(summed(jax.nn.relu)))(shape)
    np.testing.assert_array_equal(slopes_of_relu(pb.load(exported.serialize())), X > 0)


def test_of_a_text_without_lines() -> None:
    text = jax.jit(summed(jax.nn.relu)).lower(X).as_text()
    np.testing.assert_array_equal(slopes_of_relu(pb.load(text.encode())), X > 0)


def test_a_function_of_a_user_stays_what_it_is() -> None:
    """It is written with the same ops, next to one of JAX."""

    @jax.jit
    def relu(x):
        return jnp.maximum(x, 0)

    both = of_export(lambda x: jnp.sum(relu(x) + 2 * jax.nn.relu(x)), X)
    np.testing.assert_array_equal(slopes_of_relu(both), np.where(X == 0, 0.5, 3 * (X > 0)))


def test_another_function_of_that_name_stays_what_it_is() -> None:
    text = """
    func.func public @main(%x: tensor<7xf32>) -> tensor<f32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %y = call @relu(%x) : (tensor<7xf32>) -> tensor<7xf32>
      %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<7xf32>, tensor<f32>) -> tensor<f32>
      return %sum : tensor<f32>
    }
    func.func private @relu(%x: tensor<7xf32>) -> tensor<7xf32> {
      %y = stablehlo.negate %x : tensor<7xf32>
      return %y : tensor<7xf32>
    }
    """
    np.testing.assert_array_equal(slopes_of_relu(pb.load(text.encode())), -np.ones(7))


@jax.jit
def sinc(x):
    """Not as JAX writes it; what is differentiated at 0 is a constant."""
    at = jnp.pi * x
    return jnp.where(at == 0, 1.0, jnp.sin(at) / jnp.where(at == 0, 1.0, at))


def test_one_of_the_same_values_is_that_of_jax() -> None:
    """Another version of JAX has other ops for it, or other types of numbers in it."""
    program = pb.load(jax.jit(summed(sinc)).lower(X).as_text().encode())
    curvature = program.grad().jvp()(X, jnp.ones_like(X))[1]
    np.testing.assert_allclose(curvature[0], -(np.pi**2) / 3, rtol=1e-5)
    of_jax = jax.jvp(jax.grad(summed(jnp.sinc)), (X,), (jnp.ones_like(X),))[1]
    np.testing.assert_allclose(curvature, of_jax, rtol=1e-4, atol=1e-5)


def test_literals_may_stand_beside_arrays() -> None:
    program = of_export(lambda x: special.hyp1f1(1.5, x, 0.3), jnp.float32(0.7))
    assert "custom_jvp_call" in program.asm()


OTHERS = {
    "scale": lambda x: plain(x / np.pi),
    "everywhere": lambda x: plain(x) + 1e-3,
    "negative": lambda x: jnp.where(x < 0, 3 * x, plain(x)),
    "large": lambda x: jnp.where(x > 9, 7.0, plain(x)),
    "at 0": lambda x: jnp.sin(np.pi * x) / (np.pi * x),
}
plain = sinc.__wrapped__


@pytest.mark.parametrize("name", OTHERS)
def test_one_of_other_values_is_not(name: str) -> None:
    """These may be others at some arguments only."""

    @jax.jit
    def sinc(x):
        return OTHERS[name](x)

    program = pb.load(jax.jit(summed(sinc)).lower(X).as_text().encode())
    assert "custom_jvp_call" not in program.asm()


SETTINGS = {
    "none": contextlib.nullcontext(),
    "NaN is an error": jax.debug_nans(True),
    "no transfers": jax.transfer_guard("disallow"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_values_are_compared_while_jax_traces(name: str) -> None:
    """Values of hyp2f1 are no numbers at most samples; those of this function, beyond 1."""
    given = [jax.ShapeDtypeStruct((3,), jnp.float32)]
    text = jax.jit(lambda x: jnp.arcsin(x) * 2).lower(*given).as_text()
    found = []

    def compare(x: Any) -> Any:
        found.append(agree(text.encode(), "main", lambda x: [jnp.arcsin(x) / 0.5], given, "cpu"))
        return x

    with SETTINGS[name]:
        jax.make_jaxpr(compare)(1)
    assert found == [True]


def test_nothing_is_recognized_by_nan() -> None:
    def of(value: float) -> bool:
        text = jax.jit(lambda x: x * value).lower(X).as_text()
        given = [jax.ShapeDtypeStruct(X.shape, X.dtype)]
        return agree(text.encode(), "main", lambda x: [x * value], given, "cpu")

    assert of(2.0)
    assert not of(np.nan)


def test_one_with_a_kink_is_found_by_its_ops_alone() -> None:
    """Its values do not tell which slope it has at 0."""

    @jax.jit
    def relu(x):
        return jnp.where(x >= 0, x, 0)

    program = pb.load(jax.jit(summed(relu)).lower(X).as_text().encode())
    np.testing.assert_array_equal(slopes_of_relu(program), X >= 0)
