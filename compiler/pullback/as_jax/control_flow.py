"""Calls, branches and loops."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax.ad_checkpoint import checkpoint_name

from pullback._jax import remat
from pullback.as_jax.derivative_ops import call_with_rules
from pullback.as_jax.table import Array, OpInJax, evaluates
from pullback.ir.build import is_result_of
from pullback.ir.ops import composite_name
from pullback.ir.placements import memory_of
from pullback.ir.symbols import called
from pullback.ir.while_loops import integer_constant


@evaluates("func.call")
def _call(op: OpInJax, *operands: Array) -> list[Array]:
    return op.functions.jitted(_callee(op, "callee"))(*operands)


def _callee(op: OpInJax, attribute: str) -> str:
    op.attributes[attribute]
    return str(called(op.operation))


@evaluates("stablehlo.composite")
def _composite(op: OpInJax, *operands: Array) -> list[Array]:
    """Call the decomposition of a composite, with its rules if it is one of ours."""
    op.attributes.names.update(("name", "version", "composite_attributes"))
    name = _callee(op, "decomposition")
    if composite_name(op.operation) == remat.SAVED:
        kept = remat.SAVED if memory_of(op.operation) is None else remat.OFFLOADED
        return [checkpoint_name(operands[0], kept)]
    with_rules = call_with_rules(op)
    return list((with_rules or op.functions.jitted(name))(*operands))


@evaluates("stablehlo.if")
def _if(op: OpInJax, predicate: Array) -> list[Array]:
    return list(lax.cond(predicate, *op.regions))


@evaluates("stablehlo.case")
def _case(op: OpInJax, index: Array) -> list[Array]:
    """Switch to a branch; an index out of bounds chooses the last one."""
    last = lax.full_like(index, len(op.regions) - 1)
    if not _is_clamped(op.operands[0]):
        index = lax.select(lax.lt(index, lax.full_like(index, 0)), last, index)
    return list(lax.switch(index, op.regions))


def _is_clamped(v: Any) -> bool:
    """Return True if a value of the module is known not to be negative, as JAX writes it."""
    if is_result_of(v, "stablehlo.convert"):
        return str(v.owner.operands[0].type) == "tensor<i1>"
    if not is_result_of(v, "stablehlo.clamp"):
        return False
    lowest = integer_constant(v.owner.operands[0])
    return lowest is not None and lowest >= 0
