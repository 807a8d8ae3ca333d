"""Attention by Pallas kernels: its rule is held against a derived gradient, and shipped for TPUs.

The forward kernel takes a block of queries at a time and remembers a row's log-sum-exp; so the
backward kernel computes its probabilities again, and no matrix of all of them is stored. JAX has no
reverse mode for kernels. pullback derives one, slow and right, to hold the rule against.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import pullback as pb

BLOCK = 128


def forward(q_ref, k_ref, v_ref, o_ref, lse_ref):
    scores = q_ref[...] @ k_ref[...].T
    lse = jax.nn.logsumexp(scores, axis=1, keepdims=True)
    o_ref[...] = jnp.exp(scores - lse) @ v_ref[...]
    lse_ref[...] = lse


def backward(q_ref, k_ref, v_ref, o_ref, lse_ref, ct_ref, q_ct_ref, k_ct_ref, v_ct_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        k_ct_ref[...] = jnp.zeros_like(k_ct_ref)
        v_ct_ref[...] = jnp.zeros_like(v_ct_ref)

    q, k, v, ct = q_ref[...], k_ref[...], v_ref[...], ct_ref[...]
    p = jnp.exp(q @ k.T - lse_ref[...])
    scores_ct = p * (ct @ v.T - jnp.sum(ct * o_ref[...], axis=1, keepdims=True))
    q_ct_ref[...] = scores_ct @ k
    k_ct_ref[...] += scores_ct.T @ q
    v_ct_ref[...] += p.T @ ct


def blocks_of(size, width):
    """A block of rows for each step; all of them in each."""
    rows = pl.BlockSpec((BLOCK, width), lambda i: (i, 0))
    return rows, pl.BlockSpec((size, width), lambda i: (0, 0))


def run_forward(interpret, q, k, v):
    rows, whole = blocks_of(*q.shape)
    column, _ = blocks_of(q.shape[0], 1)
    return pl.pallas_call(
        forward,
        grid=(q.shape[0] // BLOCK,),
        in_specs=[rows, whole, whole],
        out_specs=[rows, column],
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((q.shape[0], 1), q.dtype),
        ],
        interpret=interpret,
    )(q, k, v)


def run_backward(interpret, residuals, ct):
    q = residuals[0]
    rows, whole = blocks_of(*q.shape)
    column, _ = blocks_of(q.shape[0], 1)
    return tuple(
        pl.pallas_call(
            backward,
            grid=(q.shape[0] // BLOCK,),
            in_specs=[rows, whole, whole, rows, column, rows],
            out_specs=[rows, whole, whole],
            out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype)] * 3,
            interpret=interpret,
        )(*residuals, ct)
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(interpret, q, k, v):
    return run_forward(interpret, q, k, v)[0]


def attention_fwd(interpret, q, k, v):
    o, lse = run_forward(interpret, q, k, v)
    return o, (q, k, v, o, lse)


attention.defvjp(attention_fwd, run_backward)


def without_rule(q, k, v):
    return run_forward(True, q, k, v)[0]


def loss(f, q, k, v):
    return jnp.sum(f(q, k, v) ** 2)


if __name__ == "__main__":
    keys = jax.random.split(jax.random.key(0), 3)
    args = [0.1 * jax.random.normal(key, (2 * BLOCK, 128)) for key in keys]

    by_rule = pb.grad(functools.partial(loss, functools.partial(attention, True)), (0, 1, 2))(*args)
    derived = pb.grad(functools.partial(loss, without_rule), (0, 1, 2))(*args)
    for name, ours, wanted in zip("qkv", by_rule, derived, strict=True):
        error = jnp.max(jnp.abs(ours - wanted)) / jnp.max(jnp.abs(wanted))
        print(f"cotangent of {name}: the rule differs by {error:.0e} from what was derived")

    on_tpu = functools.partial(loss, functools.partial(attention, False))
    pb.trace(on_tpu, platforms=("tpu",))(*args).save("attention.mlirbc")
    gradient = pb.load("attention.mlirbc").grad((0, 1, 2))
    print(f"kernels in the gradient of the file: {str(gradient).count('@tpu_custom_call')}")
