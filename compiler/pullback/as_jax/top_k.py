"""The greatest elements of an array."""

from __future__ import annotations

from jax import lax

from pullback.as_jax.table import Array, OpInJax, evaluates


@evaluates("chlo.top_k")
def _top_k(op: OpInJax, x: Array) -> list[Array]:
    op.flag("is_stable")  # JAX's is, and may be where the op need not be
    return list(lax.top_k(x, op.number("k")))
