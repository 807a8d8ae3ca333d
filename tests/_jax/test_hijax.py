"""Values of types that a user has defined for JAX (`jax.experimental.hijax`): refused in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import hijax

import pullback as pb
import pullback_runtime

HiPrim = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive  # of JAX 0.12, and of JAX 0.10
FLOATS = jax.typeof(jnp.ones(3, jnp.float32))


@dataclass(frozen=True)
class Quantized:
    """Integers and the factor that makes floats of them."""

    integers: Any
    factor: Any


@dataclass(frozen=True)
class QuantizedType(hijax.HiType):
    def to_tangent_aval(self) -> Any:
        return FLOATS

    def lo_ty(self) -> list[Any]:
        return [jax.typeof(jnp.ones(3, jnp.int8)), jax.typeof(jnp.ones((), jnp.float32))]

    def lower_val(self, value: Any) -> list[Any]:
        return [value.integers, value.factor]

    def raise_val(self, *parts: Any) -> Any:
        return Quantized(*parts)


hijax.register_hitype(Quantized, lambda value: QuantizedType())


class ToFloats(HiPrim):
    def __init__(self) -> None:
        self.in_avals, self.out_aval, self.params = (QuantizedType(),), FLOATS, {}
        super().__init__()

    def expand(self, value: Any) -> Any:
        return value.integers.astype(jnp.float32) * value.factor


class FromFloats(HiPrim):
    def __init__(self) -> None:
        self.in_avals, self.out_aval, self.params = (FLOATS,), QuantizedType(), {}
        super().__init__()

    def expand(self, x: Any) -> Any:
        return Quantized(x.astype(jnp.int8), jnp.float32(1))


X = jnp.ones(3, jnp.float32)
VALUE = Quantized(jnp.ones(3, jnp.int8), jnp.float32(2))


def loss(x: Any, value: Any) -> Any:
    return jnp.sum(x * ToFloats()(value))


def double(x: Any) -> Any:
    return 2 * x


USES = {
    "an argument": lambda: pb.trace(loss)(X, VALUE),
    "an argument of a gradient": lambda: pb.grad(loss)(X, VALUE),
    "differentiated": lambda: pb.grad(loss, 1)(X, VALUE),
    "jitted": lambda: pb.jit(loss)(X, VALUE),
    "of vjp": lambda: pb.vjp(loss, X, VALUE),
    "of linearize": lambda: pb.linearize(loss, X, VALUE),
    "closed over": lambda: pb.grad(lambda x: loss(x, VALUE))(X),
    "in an inner function": lambda: pb.grad(lambda x: jax.jit(loss)(x, VALUE))(X),
    "made inside": lambda: pb.grad(lambda x: loss(x, FromFloats()(x)))(X),
    "a result": lambda: pb.trace(lambda x: FromFloats()(x))(X),
}
AT_THE_BORDER = {
    "not used": lambda: pb.grad(lambda x, _: jnp.sum(x))(X, VALUE),
    "handed on": lambda: pb.trace(lambda x: (x, VALUE))(X),
    "of jvp": lambda: pb.jvp(loss, (X, VALUE), (X, X)),
    "a tangent": lambda: pb.linearize(double, X)[1](VALUE),
    "a cotangent": lambda: pb.vjp(double, X)[1](VALUE),
    "of a program": lambda: pb.grad(pb.trace(lambda x: x.sum())(X))(VALUE),
}


@pytest.mark.parametrize("use", USES | AT_THE_BORDER)
def test_a_value_of_a_type_of_its_own_is_refused(use: str) -> None:
    words = r"cannot trace a value of type QuantizedType: it is no array.*hijax\)"
    with pytest.raises(pb.PullbackError, match=words) as caught:
        (USES | AT_THE_BORDER)[use]()
    place = "test_hijax.py:" if use in USES else "among |^x$"
    assert re.search(place, caught.value.where or "")
    assert "hand on the arrays that it is made of" in (caught.value.do or "")


def test_a_program_is_called_with_arrays() -> None:
    program = pb.trace(double)(X)
    words = r"argument 0 \(x\) is no array: expected float32\[3\], got QuantizedType"
    with pytest.raises(pullback_runtime.ArgumentError, match=words):
        program(VALUE)
