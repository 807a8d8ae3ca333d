"""Types in modules made while dimensions were symbols, once the arguments have theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback import _jax
from pullback._jax import ir
from pullback.artifact.errors import ArtifactError, check_valid
from pullback.dialect import build
from pullback.dialect.verify import verify
from pullback.passes.stock import run_stock
from pullback_runtime._jax import operations_named, operations_where

DYNAMIC_GATHER = "stablehlo.dynamic_gather"
POLYMORPHIC = "jax.uses_shape_polymorphism"
REFINE = (
    "stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism),"
    "func.func(stablehlo-check-shape-assertions)"
)


def is_polymorphic(module: ir.Module, drop: bool = False) -> bool:
    """Whether JAX says that dimensions were symbols; with `drop` it says so no more."""
    attributes = module.operation.attributes
    found = POLYMORPHIC in attributes
    if found and drop:
        del attributes[POLYMORPHIC]
    return found


def refine(module: ir.Module) -> None:
    """Infers all types from those of the arguments of @main."""
    run_stock(module, REFINE)
    while sum(map(_infer_gather, operations_named(module, DYNAMIC_GATHER))):
        run_stock(module, REFINE)


def _infer_gather(op: ir.Operation) -> bool:
    """Infers the type of a gather, which StableHLO does not; whether that is something new."""
    _, indices, sizes = op.operands
    if not _is_dynamic(op.result) or _is_dynamic(indices) or not build.is_constant(sizes):
        return False
    numbers = _jax.stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    slices = np.asarray(ir.DenseElementsAttr(sizes.owner.attributes["value"])).tolist()
    inner = iter([size for i, size in enumerate(slices) if i not in dropped])
    batch = [n for i, n in enumerate(indices.type.shape) if i != numbers.index_vector_dim]
    outer, rank = iter(batch), len(batch) + len(numbers.offset_dims)
    shape = tuple(next(inner if i in numbers.offset_dims else outer) for i in range(rank))
    op.result.set_type(of_shape(op.result.type, shape))
    return True


def check(module: ir.Module) -> None:
    """Raises ArtifactError where a type is not known, or is not right."""
    dynamic = operations_where(module, lambda op: any(map(_is_dynamic, op.results)))
    if dynamic:
        raise ArtifactError(
            f"the type of what `{dynamic[0].name}` gives does not follow from the sizes of the "
            "arguments",
            where=str(dynamic[0].location),
            do="trace the program for arrays of known shapes, and save that",
        )
    check_valid(
        module,
        "the types that follow from the sizes of the arguments are not right",
        do="trace the program for arrays of known shapes, and save that",
    )
    verify(module)


def of_shape(kind: Any, shape: tuple[int, ...]) -> ir.Type:
    """The type of the same elements in another shape."""
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(kind).element_type)


def _is_dynamic(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape
