"""Dot products, linear in each operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.rules.registry import Op, bilinear

Dims = list[int]


@dataclass(frozen=True)
class Roles:
    """Dimensions of a product, as seen by the operand whose cotangent is wanted."""

    batch: Dims
    contract: Dims
    other_batch: Dims
    other_contract: Dims


def _roles(op: Op, mine: int) -> Roles:
    if op.name == "stablehlo.dot":
        ranks = len(op.shape(0)), len(op.shape(1))
        contract = [ranks[0] - 1], [0]
        return Roles([], contract[mine], [], contract[1 - mine])
    d = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = list(d.lhs_batching_dimensions), list(d.rhs_batching_dimensions)
    contract = list(d.lhs_contracting_dimensions), list(d.rhs_contracting_dimensions)
    return Roles(batch[mine], contract[mine], batch[1 - mine], contract[1 - mine])


def _free(rank: int, *used: Dims) -> Dims:
    return [i for i in range(rank) if all(i not in dims for dims in used)]


def transpose_product(op: Op, mine: int, ct: Value) -> Value:
    """The cotangent of operand `mine`: the product of `ct` and the other operand.

    Of the two orders, the one whose result needs no transpose is emitted: `dot(x, ct)` for weights.
    JAX writes `dot(ct, x)` and a transpose, which XLA runs slower on a CPU.
    """
    roles = _roles(op, mine)
    kept = _free(len(op.shape(mine)), roles.batch, roles.contract)
    other_kept = _free(len(op.shape(1 - mine)), roles.other_batch, roles.other_contract)
    count = len(roles.batch)
    first = count + (len(kept) if mine == 0 else 0)
    ct_dims = list(range(count)), [first + i for i in range(len(other_kept))]
    # Contracted dimensions come out in the order in which the other operand holds them.
    pairs = sorted(zip(roles.other_contract, roles.contract, strict=True))
    contracted = [dim for _, dim in pairs]
    ct_first = [*roles.batch, *kept, *contracted]
    ct_second = [*roles.batch, *contracted, *kept]
    swapped = ct_second == sorted(ct_second) and ct_first != sorted(ct_first)
    other, ct = _common_type(op, op.operand(1 - mine), ct, mine)
    pair = [(ct, *ct_dims), (other, roles.other_batch, other_kept)]
    layout = ct_second if swapped else ct_first
    left, right = reversed(pair) if swapped else pair
    product = build.dot_general(
        left[0],
        right[0],
        batch=(left[1], right[1]),
        contract=(left[2], right[2]),
        element=build.info(op.result_type).element,
        **_settings(op, swapped == (mine == 0)),
    )
    product = build.permute(product, [layout.index(i) for i in range(len(layout))])
    return build.convert(product, build.info(op.operands[mine].type).element)


def _common_type(op: Op, other: Value, ct: Value, mine: int) -> tuple[Value, Value]:
    """A product that accumulates in a wider type than its operands has a cotangent of that type.

    An algorithm says in which type to multiply: the operands', so the cotangent is narrowed.
    """
    if "algorithm" in op.attributes:
        return other, build.convert(ct, build.info(op.operands[mine].type).element)
    return build.convert(other, build.info(ct.type).element), ct


def _settings(op: Op, exchanged: bool) -> dict[str, Any]:
    """Precision and algorithm; each side keeps its own when the sides change places."""
    attributes, found = op.attributes, {}
    if "precision_config" in attributes:
        precision = list(ir.ArrayAttr(attributes["precision_config"]))
        precision = precision[::-1] if exchanged else precision
        found["precision"] = ir.ArrayAttr.get(precision, context=_jax.context())
    if "algorithm" in attributes:
        found["algorithm"] = _algorithm(attributes["algorithm"], exchanged)
    return found


def _algorithm(attribute: Any, exchanged: bool) -> Any:
    a = stablehlo.DotAlgorithm(attribute)
    left = a.lhs_precision_type, a.lhs_component_count
    right = a.rhs_precision_type, a.rhs_component_count
    if not exchanged or left == right:
        return attribute
    return stablehlo.DotAlgorithm.get(
        right[0],
        left[0],
        a.accumulation_type,
        right[1],
        left[1],
        a.num_primitive_operations,
        a.allow_imprecise_accumulation,
        ctx=_jax.context(),
    )


def transpose_lhs(op: Op, ct: Value) -> Value:
    return transpose_product(op, 0, ct)


def transpose_rhs(op: Op, ct: Value) -> Value:
    return transpose_product(op, 1, ct)


bilinear("stablehlo.dot_general", transpose_lhs, transpose_rhs)
bilinear("stablehlo.dot", transpose_lhs, transpose_rhs)
