"""compile(convention=…): an executable that takes and returns the caller's own arguments."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback_runtime as runtime

TABLE = jnp.arange(6, dtype=jnp.float32)
X = np.ones(6, np.float32)


def convention_of(example, constants=()):
    """Flat results come back as a dictionary; arguments are the leaves of what was given."""
    return runtime.Convention(
        example=example,
        flatten=lambda args, kwargs: jax.tree.leaves((args, kwargs)),
        unflatten=lambda results: {"sum": results[0], "rest": tuple(results[1:])},
        constants=constants,
    )


@pytest.fixture
def module(module_of):
    return module_of(lambda table, x, y: (table + x * y, y), TABLE, X, np.float32(2))


@pytest.fixture
def executable(module):
    convention = convention_of((({"x": X},), {"scale": np.float32(2)}), (TABLE,))
    return runtime.compile(module, backend="cpu", convention=convention)


def test_trees_in_and_out_and_constants_unseen(executable):
    result = executable({"x": X}, scale=2.0)
    np.testing.assert_array_equal(result["sum"], [2, 3, 4, 5, 6, 7])
    assert [float(value) for value in result["rest"]] == [2.0]


def test_it_is_compiled_once(module, caplog):
    caplog.set_level(logging.DEBUG, logger="jax")
    convention = convention_of((({"x": X},), {"scale": np.float32(2)}), (TABLE,))
    executable = runtime.compile(module, convention=convention)
    for _ in range(2):
        executable({"x": X}, scale=np.float32(3))
    messages = [record.getMessage() for record in caplog.records]
    assert sum("Finished XLA compilation of jit(main)" in message for message in messages) == 1
    assert runtime.compile(module, convention=convention) is executable


def test_constants_are_arguments_of_what_xla_compiles(executable):
    assert executable.memory().arguments == 4 * (6 + 6 + 1)
    assert "constant({" not in executable.hlo()


def test_errors_count_the_constants(executable):
    with pytest.raises(runtime.ArgumentError, match=r"argument 1 has .* expected float32\[6\]"):
        executable({"x": X[:2]}, scale=2.0)
    with pytest.raises(runtime.ArgumentError, match="takes 3 arguments, got 2"):
        executable({"x": X})


def test_random_keys_become_their_words(module_of):
    def draw(words):
        return jax.random.uniform(jax.random.wrap_key_data(words), (3,))

    key = jax.random.key(0)
    convention = runtime.Convention(
        example=((jax.eval_shape(lambda: key),), {}),
        flatten=lambda args, kwargs: [jax.random.key_data(args[0])],
        unflatten=lambda results: results[0],
    )
    module = module_of(draw, jax.random.key_data(key))
    executable = runtime.compile(module, convention=convention)
    np.testing.assert_array_equal(executable(key), jax.random.uniform(key, (3,)))


def test_donation_counts_the_callers_arguments(module_of):
    module = module_of(lambda table, x, y: (x + table, y), TABLE, X, X)
    convention = convention_of(((X, X), {}), (TABLE,))
    executable = runtime.compile(module, convention=convention, donate_argnums=(0,))
    first, second = jnp.asarray(X), jnp.asarray(X)
    executable(first, second)
    assert first.is_deleted()
    assert not second.is_deleted()
    assert not TABLE.is_deleted()


def test_an_explicit_device(in_process):
    script = """
    import jax, numpy as np, pullback_runtime as runtime
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    x = np.ones(2, np.float32)
    convention = runtime.Convention(
        (({"x": x},), {}), lambda args, kwargs: [args[0]["x"]], lambda results: results[0], ()
    )
    print(*runtime.compile(text, device=1, convention=convention)({"x": x}).devices())
    """
    printed = in_process(script, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert printed.strip() == "cpu:1"


def test_constants_are_what_they_were(module):
    """JAX takes over an array of NumPy's as it is where its memory is aligned."""
    room = np.zeros(TABLE.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    table = room[start : start + TABLE.nbytes].view(np.float32)
    convention = convention_of((({"x": X},), {"scale": np.float32(2)}), (table,))
    executable = runtime.compile(module, convention=convention)
    table[:] = 7
    result = executable({"x": X}, scale=np.float32(2))
    np.testing.assert_array_equal(result["sum"], 2 * X)
