"""Python callbacks of a module made in this process work, also beside JAX's own."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import pullback_runtime as runtime
from pullback_runtime import _jax

X = np.ones(3, np.float32)


@pytest.fixture
def log():
    return []


@pytest.fixture
def lowered(log):
    def sine(x):
        log.append(f"sine of {float(x.sum()):g}")
        return np.sin(x)

    def program(x):
        jax.debug.callback(lambda total: log.append(f"saw {float(total):g}"), x.sum())
        return jax.pure_callback(sine, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    return jax.jit(program).lower(X)


def with_callbacks(lowered):
    host_callbacks, keepalives = _jax.callbacks_of(lowered)
    assert len(host_callbacks) == 2
    return {"host_callbacks": host_callbacks, "keepalives": keepalives}


def test_a_compiled_module_calls_back(lowered, log):
    executable = runtime.compile(lowered.compiler_ir(), **with_callbacks(lowered))
    np.testing.assert_allclose(executable(X)[0], np.sin(X) + 1, rtol=1e-6)
    jax.effects_barrier()
    assert sorted(log) == ["saw 3", "sine of 3"]


def test_callbacks_are_renumbered_beside_others(lowered, log):
    handle = runtime.make_handle(lowered.compiler_ir(), **with_callbacks(lowered))

    @jax.jit
    def program(x):
        jax.debug.callback(lambda total: log.append(f"mine {float(total):g}"), x.sum())
        ten = jax.pure_callback(lambda v: v * 10, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return runtime.call_module(handle, ten)[0]

    np.testing.assert_allclose(program(X), np.sin(10 * X) + 1, rtol=1e-5)
    jax.effects_barrier()
    assert sorted(log) == ["mine 3", "saw 30", "sine of 30"]


def test_an_unused_result_does_not_silence_a_callback(lowered, log):
    handle = runtime.make_handle(lowered.compiler_ir(), **with_callbacks(lowered))
    jax.jit(lambda x: (runtime.call_module(handle, x), x)[1])(X)
    jax.effects_barrier()
    assert "saw 3" in log


def test_without_the_callbacks_the_module_is_refused(lowered):
    with pytest.raises(runtime.ModuleError) as caught:
        runtime.compile(lowered.compiler_ir())
    message = str(caught.value)
    assert message.startswith(
        "the module calls back into Python (2 callbacks), and 0 functions were given\n"
        "  where: xla_ffi_python_cpu_callback at "
    )
    assert "test_callbacks.py:" in message
    assert message.endswith(
        "  do:    pass host_callbacks=, in the process that traced it; a saved module has none"
    )


def test_a_callback_that_only_computes_may_be_recomputed_or_dropped(log):
    def sine(x):
        log.append("sine")
        return np.sin(x)

    lowered = jax.jit(
        lambda x: jax.pure_callback(sine, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    ).lower(X)
    host_callbacks, _ = _jax.callbacks_of(lowered)
    handle = runtime.make_handle(lowered.compiler_ir(), host_callbacks=host_callbacks)

    def loss(x):
        return (runtime.call_module(handle, jax.lax.stop_gradient(x))[0] * x).sum()

    np.testing.assert_allclose(jax.grad(jax.checkpoint(loss))(X), np.sin(X), rtol=1e-6)
    log.clear()
    jax.jit(lambda x: (runtime.call_module(handle, x), x)[1])(X)
    assert log == []
