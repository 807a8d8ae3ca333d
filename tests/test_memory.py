"""What reverse mode keeps: checkpoints recompute, loops grow linearly, unbounded ones nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb

WIDTH = 16


def residual_bytes(f, *args) -> int:
    """Bytes that the forward half of the vjp hands to the backward half."""
    forward = pb.trace(f)(*args).split_vjp().forward
    results = len(jax.tree.leaves(jax.eval_shape(f, *args)))
    leaves = forward.out_avals[results:]
    return sum(int(np.prod(aval.shape)) * aval.dtype.itemsize for aval in leaves)


def temporaries(f, *args) -> int:
    return pb.trace(f)(*args).grad().compile("cpu").memory().temporaries


def layer(x, w):
    for _ in range(4):
        x = jnp.sin(x @ w)
    return x


def test_checkpoint_keeps_only_the_arguments_of_a_layer():
    def network(step):
        def f(ws, x):
            for w in ws:
                x = step(x, w)
            return x

        return f

    ws, x = [np.eye(WIDTH)] * 4, np.ones((64, WIDTH))
    plain, checkpointed = (
        residual_bytes(network(step), ws, x) for step in (layer, jax.checkpoint(layer))
    )
    inputs = sum(w.nbytes for w in ws) + 4 * x.astype(np.float32).nbytes
    assert checkpointed <= inputs + 64
    assert plain > 3 * checkpointed


def test_checkpoint_in_a_scan_stacks_only_its_arguments():
    def network(step):
        return lambda ws, x: lax.scan(lambda x, w: (step(x, w), None), x, ws)[0]

    ws, x = np.ones((8, WIDTH, WIDTH), np.float32), np.ones((64, WIDTH), np.float32)
    plain, checkpointed = (
        residual_bytes(network(step), ws, x) for step in (layer, jax.checkpoint(layer))
    )
    assert checkpointed <= ws.nbytes + 8 * x.nbytes + 64
    assert plain > 2 * checkpointed


def scan_loss(w, xs):
    def step(h, x):
        h = jnp.tanh(w * h + x)
        return h, h

    return jnp.sum(lax.scan(step, jnp.zeros(WIDTH), xs)[1] ** 2)


def test_scans_grow_linearly_and_stack_their_outputs_once():
    w = np.ones(WIDTH, np.float32)
    small, large = (temporaries(scan_loss, w, np.ones((n, WIDTH), np.float32)) for n in (50, 500))
    assert large < 10.5 * small
    outputs = 500 * WIDTH * 4
    assert large < 3.5 * outputs  # outputs, carries, the cotangent of the outputs


@pytest.mark.parametrize("bound", [None, 64])
def test_data_dependent_loops_take_fixed_memory_or_that_of_their_bound(bound):
    def loss(w, xs, n):
        def step(c):
            return c[0] + 1.0, jnp.tanh(w * c[1] + xs[0])

        start = (0.0, jnp.zeros(WIDTH))
        if bound is None:
            return jnp.sum(lax.while_loop(lambda c: c[0] < n, step, start)[1])
        return jnp.sum(pb.bounded_while_loop(lambda c: c[0] < n, step, start, bound)[1])

    w = np.full(WIDTH, 0.5, np.float32)
    found = []
    for length in (10, 1000):
        xs = np.ones((length, WIDTH), np.float32)
        found.append(temporaries(loss, w, xs, 40.0))
    assert found[0] == found[1]
    slots = 33 if bound is None else bound
    assert found[0] < 3 * slots * WIDTH * 4 + 2048

    def unrolled(w):
        h = jnp.zeros(WIDTH)
        for _ in range(40):
            h = jnp.tanh(w * h + xs[0])
        return jnp.sum(h)

    np.testing.assert_allclose(
        pb.grad(loss)(w, xs, 40.0), jax.grad(unrolled)(w), rtol=1e-5, atol=1e-6
    )
