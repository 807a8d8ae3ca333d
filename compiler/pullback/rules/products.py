"""Differentiate dot products, which are linear in each operand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback.autodiff.batch_rules import MappedOp, batch, shifted, to_front
from pullback.autodiff.registry import Op, bilinear
from pullback.ir import build
from pullback.ir.build import Value

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The cotangent of one operand as a product of `ct` and the other operand.

    `batch` and `contract` are those of the emitted product, in its order; `order` puts the
    dimensions of its result into the operand's.
    """

    ct_first: bool
    batch: tuple[Dims, Dims]
    contract: tuple[Dims, Dims]
    order: Dims


@_jax.cached
def _plan(numbers: Any, ranks: tuple[int, int], mine: int) -> Plan:
    """Return the plan whose result needs no transpose, if one of two orders has such: `dot(x, ct)`.

    JAX writes `dot(ct, x)` and a transpose for weights, which XLA runs slower on a CPU.
    """
    batch, contract = _dimensions(numbers, ranks)
    other = 1 - mine
    kept = _free(ranks[mine], batch[mine], contract[mine])
    other_kept = _free(ranks[other], batch[other], contract[other])
    count = len(batch[mine])
    first = count + (len(kept) if mine == 0 else 0)
    ct_contract = tuple(first + i for i in range(len(other_kept)))
    # Contracted dimensions come out in the order in which the other operand holds them.
    pairs = sorted(zip(contract[other], contract[mine], strict=True))
    contracted = tuple(dim for _, dim in pairs)
    ct_first = (*batch[mine], *kept, *contracted)
    ct_second = (*batch[mine], *contracted, *kept)
    swapped = ct_second == tuple(sorted(ct_second)) and ct_first != tuple(sorted(ct_first))
    layout = ct_second if swapped else ct_first
    sides = [(tuple(range(count)), ct_contract), (batch[other], other_kept)]
    left, right = reversed(sides) if swapped else sides
    order = tuple(layout.index(i) for i in range(len(layout)))
    return Plan(not swapped, (left[0], right[0]), (left[1], right[1]), order)


def _dimensions(numbers: Any, ranks: tuple[int, int]) -> tuple[tuple[Dims, Dims], ...]:
    """Return the batch and contracting dimensions of each operand."""
    if numbers is None:
        return ((), ()), ((ranks[0] - 1,), (0,))
    d = stablehlo.DotDimensionNumbers(numbers)
    batch = tuple(d.lhs_batching_dimensions), tuple(d.rhs_batching_dimensions)
    contract = tuple(d.lhs_contracting_dimensions), tuple(d.rhs_contracting_dimensions)
    return batch, contract


def _free(rank: int, *used: Dims) -> Dims:
    return tuple(i for i in range(rank) if all(i not in dims for dims in used))


@dataclass(frozen=True)
class Emission:
    """All that one transposed product needs but its operands; None for steps to skip."""

    ct_first: bool
    attributes: dict[str, Any]
    result: Any
    order: Dims | None
    other_element: Any
    ct_element: Any
    element: Any

    def emit(self, ct: Value, other: Value) -> Value | None:
        if self.other_element is not None:
            other = build.convert(other, self.other_element)
        if self.ct_element is not None:
            ct = build.convert(ct, self.ct_element)
        operands = [ct, other] if self.ct_first else [other, ct]
        product = build.emit1("stablehlo.dot_general", self.result, operands, self.attributes)
        if self.order is not None:
            product = build.permute(product, self.order)
        return product if self.element is None else build.convert(product, self.element)


_SETTINGS = ("dot_dimension_numbers", "precision_config", "algorithm")


@_jax.cached
def _emissions(
    numbers: Any, precision: Any, algorithm: Any, lhs: Any, rhs: Any, ct: Any
) -> tuple[Emission, Emission]:
    """Return the transposes in each operand; `numbers` is None for `stablehlo.dot`."""
    plans = [_plan(numbers, (_rank(lhs), _rank(rhs)), mine) for mine in (0, 1)]
    settings = [_kept(precision, algorithm, p.ct_first != (i == 0)) for i, p in enumerate(plans)]
    narrow = algorithm is not None
    return (
        _emission(plans[0], settings[0], narrow, lhs, rhs, ct),
        _emission(plans[1], settings[1], narrow, rhs, lhs, ct),
    )


def _emission(
    plan: Plan, settings: dict[str, Any], narrow: bool, mine: Any, other: Any, ct: Any
) -> Emission:
    """Return the transpose in one operand, with the types to multiply in and to return.

    A product that accumulates in a wider type than its operands have has a cotangent of that type.
    An algorithm says in which type to multiply (`narrow`): the operands', so the cotangent is
    narrowed.
    """
    mine_info, other_info, ct_info = build.info(mine), build.info(other), build.info(ct)
    ct_element = mine_info.element if narrow else ct_info.element
    other_element = other_info.element if narrow else ct_info.element
    left, right = (ct, other) if plan.ct_first else (other, ct)
    attributes = {"dot_dimension_numbers": build.dot_dimensions(plan.batch, plan.contract)}
    shapes = build.shape_of(left), build.shape_of(right)
    dims = build.product_shape(*shapes, plan.batch, plan.contract)
    return Emission(
        plan.ct_first,
        attributes | settings,
        build.tensor(dims, ct_info.element),
        None if plan.order == tuple(range(len(dims))) else plan.order,
        None if other_element == other_info.element else other_element,
        None if ct_element == ct_info.element else ct_element,
        None if mine_info.element == ct_info.element else mine_info.element,
    )


def _rank(type: Any) -> int:
    return len(build.shape_of(type))


def transpose(op: Op, cts: Sequence[Any]) -> tuple[Value | None, Value | None]:
    """Emit the cotangent of each operand: the product of `ct` and the other one."""
    (ct,), (x, y), (first, second) = cts, op.operands, op.active
    settings = map(op.operation.attributes.get, _SETTINGS)
    lhs, rhs = _emissions(*settings, x.type, y.type, ct.type)
    return lhs.emit(ct, op.rhs) if first else None, rhs.emit(ct, op.lhs) if second else None


def summed(operation: Any, x: Value, y: Value) -> Value | None:
    """Emit the sum of an op's results over iterations, given the stacks of its operands."""
    numbers, precision, algorithm = map(operation.attributes.get, _SETTINGS)
    ranks = _rank(operation.operands[0].type), _rank(operation.operands[1].type)
    batch, contract = _dimensions(numbers, ranks)
    return build.dot_general(
        x,
        y,
        batch=(shifted(batch[0]), shifted(batch[1])),
        contract=((0, *shifted(contract[0])), (0, *shifted(contract[1]))),
        element=build.info(operation.result.type).element,
        precision=precision,
        algorithm=algorithm,
    )


def _kept(precision: Any, algorithm: Any, exchanged: bool) -> dict[str, Any]:
    """Return precision and algorithm; each side keeps its own when the sides change places."""
    found = {}
    if precision is not None:
        sides = list(ir.ArrayAttr(precision))
        sides = sides[::-1] if exchanged else sides
        found["precision_config"] = ir.ArrayAttr.get(sides, context=_jax.context())
    if algorithm is not None:
        found["algorithm"] = _algorithm(algorithm, exchanged)
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


bilinear("stablehlo.dot_general", transpose, reads=_SETTINGS)
bilinear("stablehlo.dot", transpose)


# --------------------------------------------------------------------------------- batches


@batch("stablehlo.dot_general", "stablehlo.dot")
def _batch(op: MappedOp) -> Value:
    """Make a batch of both sides a batch dimension, and that of one side a free dimension.

    The sides change places where this saves a transpose: for a batch of vectors.
    """
    numbers, precision, algorithm = map(op.attributes.get, _SETTINGS)
    ranks = len(op.shape(0)), len(op.shape(1))
    batch, contract = _dimensions(numbers, ranks)
    free = [len(_free(*side)) for side in zip(ranks, batch, contract, strict=True)]
    lead = (0,) if all(op.batched) else ()
    rows = [
        (v, (*lead, *shifted(b)), shifted(c)) if moves else (v, b, c)
        for v, b, c, moves in zip(op.values, batch, contract, op.batched, strict=True)
    ]
    exchanged = not op.batched[0] and not free[1]
    (x, *of_x), (y, *of_y) = reversed(rows) if exchanged else rows
    kept = _kept(precision, algorithm, exchanged)
    product = build.dot_general(
        x,
        y,
        batch=(of_x[0], of_y[0]),
        contract=(of_x[1], of_y[1]),
        element=build.info(op.type()).element,
        precision=kept.get("precision_config"),
        algorithm=kept.get("algorithm"),
    )
    if lead:
        return product
    behind = 0 if op.batched[0] or exchanged else free[0]
    return to_front(product, len(batch[0]) + behind)
