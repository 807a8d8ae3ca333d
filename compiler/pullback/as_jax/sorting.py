"""Sort by the comparators that JAX writes, and by those that compare one operand; `top_k`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from pullback.as_jax.elementwise import total_order
from pullback.as_jax.steps import steps_in_jax, steps_of
from pullback.as_jax.table import Array, OpInJax, evaluates
from pullback.ir import build
from pullback.rules.body_patterns import applied


@evaluates("stablehlo.sort")
def _sort(op: OpInJax, *operands: Array) -> list[Array]:
    if not operands[0].ndim:
        return list(operands)
    dimension = op.number("dimension") if "dimension" in op.attributes else -1
    stable = op.flag("is_stable")
    block = op.operation.regions[0].blocks[0]
    keys = _keys_as_jax(block, tuple(x.dtype.name for x in operands))
    if keys is not None:
        return list(lax.sort(operands, dimension=dimension, is_stable=stable, num_keys=keys))
    key = _key(op, block, operands)
    _, *found = lax.sort((key, *operands), dimension=dimension, is_stable=stable, num_keys=1)
    return found


def _key(op: OpInJax, block: Any, operands: Sequence[Array]) -> Array:
    """Return an array in whose ascending order the operands are sorted."""
    found = applied(block)
    if found is None or found.op is None or found.op.name != "stablehlo.compare":
        raise op.refusal("with a comparator that compares more than one pair of elements")
    arguments = list(block.arguments)
    direction = build.enumerator(found.op.attributes["comparison_direction"])
    positions = [arguments.index(v) if v in arguments else -1 for v in found.operands]
    if positions[0] + 1 != positions[1] or positions[0] % 2 or direction not in ("LT", "GT"):
        raise op.refusal(f"with a comparator that compares {direction}, not LT or GT")
    key = operands[positions[0] // 2]
    kind = found.op.attributes
    if "compare_type" in kind and build.enumerator(kind["compare_type"]) == "TOTALORDER":
        key = total_order(key)
    if direction == "LT":
        return key
    return lax.neg(key) if jnp.issubdtype(key.dtype, jnp.inexact) else lax.bitwise_not(key)


def _keys_as_jax(block: Any, dtypes: tuple[str, ...]) -> int | None:
    """Return by how many operands JAX compares with this comparator; None if it is not JAX's."""
    found = steps_of(block)
    for count in range(1, len(dtypes) + 1):
        if steps_in_jax(_by_keys, "stablehlo.sort", dtypes, count) == found:
            return count
    return None


def _by_keys(count: int) -> Callable[..., Any]:
    return lambda *arrays: lax.sort(arrays, num_keys=count)


@evaluates("chlo.top_k")
def _top_k(op: OpInJax, x: Array) -> list[Array]:
    op.flag("is_stable")  # JAX's is, and may be where the op need not be
    return list(lax.top_k(x, op.number("k")))
