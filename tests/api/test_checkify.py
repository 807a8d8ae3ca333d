"""`checkify` of what pullback makes: no clean bill where it did not look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import checkify

import pullback as pb
import pullback_runtime as runtime
from pullback import artifact

X = jnp.float32(-1)


def checking_itself(x: Any) -> Any:
    checkify.debug_check(x > 0, "not positive: {x}", x=x)
    return jnp.log(x)


def checked(x: Any) -> Any:
    checkify.check(x > 0, "not positive: {x}", x=x)
    return jnp.log(x)


def loaded(f: Callable[..., Any]) -> Any:
    return pb.load(artifact.serialize(pb.trace(f)(X)))


def in_the_runtime(f: Callable[..., Any]) -> Any:
    handle = runtime.make_handle(pb.trace(f)(X).asm())
    return lambda x: runtime.call_module(handle, x)[0]


CALLS: dict[str, Callable[[Callable[..., Any]], Callable[[Any], Any]]] = {
    "program": lambda f: pb.trace(f)(X),
    "loaded": loaded,
    "gradient": pb.grad,
    "compiled": lambda f: pb.trace(f)(X).compile(),
    "in the runtime": in_the_runtime,
    "in jit": lambda f: jax.jit(pb.jit(f)),
    "in vmap": lambda f: lambda x: jax.vmap(pb.trace(f)(X))(x[None])[0],
    "in a loop": lambda f: lambda x: lax.fori_loop(0, 2, lambda _, c: pb.grad(f)(c), x),
    "in JAX's gradient": lambda f: jax.grad(pb.trace(f)(X)),
    "in another program": lambda f: pb.grad(lambda x: pb.trace(f)(X)(x)),
}


def check_refused(error: runtime.MissingTransformError, *names: str) -> None:
    assert "checkify" in str(error)
    assert all(name in str(error) for name in names)
    assert "call checkify first" in str(error.do)


@pytest.mark.parametrize("name", CALLS)
def test_errors_that_cannot_be_seen_are_not_said_to_be_absent(name: str) -> None:
    function = checkify.checkify(CALLS[name](jnp.log), errors=checkify.all_checks)
    with pytest.raises(runtime.MissingTransformError) as caught:
        function(X)
    check_refused(caught.value, "NaNError", "DivisionByZeroError", "OOBError")


@pytest.mark.parametrize("name", CALLS)
def test_a_debug_check_that_was_left_out_is_not_said_to_hold(name: str) -> None:
    function = checkify.checkify(CALLS[name](checking_itself), errors=checkify.user_checks)
    with pytest.raises(runtime.MissingTransformError) as caught:
        function(X)
    check_refused(caught.value, "FailedCheckError")


@pytest.mark.parametrize("name", CALLS)
def test_checks_around_what_has_none_are_looked_at(name: str) -> None:
    """JAX refuses to trace a `check` alone, so there is none in a program."""
    call = CALLS[name](jnp.log)

    def function(x: Any) -> Any:
        checkify.check(x > 0, "not positive: {x}", x=x)
        return call(x)

    error, _ = checkify.checkify(function)(X)
    assert "not positive: -1.0" in str(error.get())
    assert checkify.checkify(function)(-X)[0].get() is None


@pytest.mark.parametrize("f", [checked, checking_itself, jnp.log])
def test_what_checkify_returns_is_derived_with_all_errors(f: Callable[..., Any]) -> None:
    """The remedy that the error names."""
    errors = checkify.all_checks
    gradient, error = pb.grad(lambda x: checkify.checkify(f, errors=errors)(x)[::-1], has_aux=True)(
        X
    )
    assert gradient == -1
    expected = checkify.checkify(f, errors=errors)(X)[0]
    assert str(error.get()) == str(expected.get())


def test_sizes_that_are_symbolic() -> None:
    size = jax.export.symbolic_shape("n")
    program = pb.trace(jnp.log)(jax.ShapeDtypeStruct(size, jnp.float32))
    with pytest.raises(runtime.MissingTransformError) as caught:
        checkify.checkify(program, errors=checkify.nan_checks)(-jnp.ones(3))
    check_refused(caught.value, "NaNError")
