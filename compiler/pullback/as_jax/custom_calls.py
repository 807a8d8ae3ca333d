"""Custom calls: by JAX's FFI, or by `jax.lax` where it has the routine as a primitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from pullback._jax import ir, stablehlo
from pullback.as_jax import table
from pullback.as_jax.reductions import comparison
from pullback.as_jax.table import Array, OpInJax, evaluates
from pullback.ir import build
from pullback.ir.purity import ANNOTATIONS, callback, is_used, target_of
from pullback.ir.regions import results_of
from pullback.program.library_routines import (
    QR,
    ROUTINES,
    asks_for_success,
    is_laid_out,
    options_of,
    routine_of,
)
from pullback_runtime._jax import load_lapack
from pullback_runtime.ir._dtypes import element_dtype

CONFIGURATION = "mhlo.backend_config"
"""The attribute with the options of a typed call, whatever version the op says it has."""

_TYPED = 4
"""The first version of the API whose calls have typed options."""


@evaluates("stablehlo.custom_call")
def _custom_call(op: OpInJax, *operands: Array) -> list[Array]:
    target = target_of(op.operation) or ""
    if callback(op.operation) is not None:
        raise op.refusal("which calls back into this process")
    if target in ANNOTATIONS:
        op.attributes.names.update(_all_names(op))
        return list(operands)
    found = None
    if target.startswith("lapack_"):
        load_lapack()
        found = _lapack(op, *operands)
    if target == "ApproxTopK":
        found = _approx_top_k(op, *operands)
    return _foreign(op, target, operands) if found is None else found


def is_foreign(operation: Any) -> bool:
    """Return True for a call of a library of which JAX has no primitive."""
    target = target_of(operation)
    known = target is None or target in ANNOTATIONS or target == "ApproxTopK"
    return not known and routine_of(operation) not in ROUTINES.keys() - set(QR)


def _all_names(op: OpInJax) -> list[str]:
    return [each if isinstance(each, str) else each.name for each in op.operation.attributes]


def _foreign(op: OpInJax, target: str, operands: Sequence[Array]) -> list[Array]:
    """Call a target by JAX's FFI, which neither differentiates it nor knows its batches."""
    op.attributes.names.update(("call_target_name", "sdy.sharding_rule"))
    if "called_computations" in op.attributes and len(op.attributes["called_computations"]):
        raise op.refusal("which calls functions of the module")
    attributes, legacy = _configuration(op)
    version = op.number("api_version") if "api_version" in op.attributes else 1
    version = _TYPED if CONFIGURATION in op.attributes else version
    outs = [table.aval_of(r.type) for r in results_of(op.operation)]
    call = jax.ffi.ffi_call(
        target,
        outs,
        has_side_effect=op.flag("has_side_effect"),
        vmap_method="sequential",
        input_layouts=_layouts(op, "operand_layouts"),
        output_layouts=_layouts(op, "result_layouts"),
        input_output_aliases=_aliases(op),
        custom_call_api_version=version,
        legacy_backend_config=None if version >= _TYPED else legacy,
    )
    return list(call(*operands, **attributes))


def _configuration(op: OpInJax) -> tuple[dict[str, Any], str]:
    """Return the attributes of a typed call, and the text of an untyped one."""
    attributes: dict[str, Any] = {}
    legacy = ""
    for name in ("backend_config", CONFIGURATION):
        if name not in op.attributes:
            continue
        given = op.attributes[name]
        if isinstance(given, ir.DictAttr):
            attributes |= {each.name: _as_python(op, each.attr) for each in given}
        else:
            legacy = ir.StringAttr(given).value
    return attributes, legacy


def _as_python(op: OpInJax, attribute: Any) -> Any:
    """Return an attribute of a typed call as JAX's FFI takes it, which makes the same of it."""
    if isinstance(attribute, ir.BoolAttr | ir.StringAttr):
        return attribute.value
    if isinstance(attribute, ir.IntegerAttr | ir.FloatAttr):
        dtype = element_dtype(attribute.type, "an attribute")
        return np.asarray(attribute.value, dtype)[()]
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return np.asarray(list(attribute), np.int64)
    if isinstance(attribute, ir.DenseI32ArrayAttr):
        return np.asarray(list(attribute), np.int32)
    raise op.refusal(f"with the attribute {attribute}")


def _layouts(op: OpInJax, name: str) -> list[tuple[int, ...]] | None:
    """Return the layout of each operand or result, which JAX has from major to minor."""
    if name not in op.attributes:
        return None
    given = (np.asarray(ir.DenseIntElementsAttr(each)) for each in op.attributes[name])
    return [tuple(int(d) for d in each[::-1]) for each in given]


def _aliases(op: OpInJax) -> dict[int, int] | None:
    if "output_operand_aliases" not in op.attributes:
        return None
    found = {}
    for each in map(stablehlo.OutputOperandAlias, op.attributes["output_operand_aliases"]):
        if each.operand_tuple_indices or len(each.output_tuple_indices) > 1:
            raise op.refusal("with aliases inside of tuples")
        found[each.operand_index] = next(iter(each.output_tuple_indices), 0)
    return found


# --------------------------------------------------- routines that JAX has as primitives


def _lapack(op: OpInJax, *operands: Array) -> list[Array] | None:
    """Return the results of a routine by the primitive of JAX, if that gives all that are used.

    Its status is 0, since JAX's results are NaN where it fails.
    """
    routine, results = routine_of(op.operation), results_of(op.operation)
    if routine in QR or routine not in ROUTINES or not is_laid_out(op.operation, True):
        return None
    avals = [table.aval_of(v.type) for v in results]
    made = ROUTINES[routine](options_of(op.operation), *operands)
    found = {
        i: x for i, x in made.items() if (x.shape, x.dtype) == (avals[i].shape, avals[i].dtype)
    }
    *_, status = results
    for i, v in enumerate(results):
        if (
            i not in found
            and is_used(v)
            and not (v == status and all(map(asks_for_success, v.uses)))
        ):
            return None
    op.attributes.names.update(_all_names(op))
    return [found[i] if i in found else lax.full(a.shape, 0, a.dtype) for i, a in enumerate(avals)]


def _approx_top_k(op: OpInJax, x: Array, *rest: Array) -> list[Array] | None:
    """Return the greatest or least elements and their positions, if the call asks for these."""
    options = {each.name: each.attr for each in ir.DictAttr(op.attributes[CONFIGURATION])}
    dimension = int(options["reduction_dim"].value)
    block = op.functions.block(op.attributes["called_computations"][0].value)
    numbers = op.operands[1]
    is_counted = len(rest) == 3 and build.is_result_of(numbers, "stablehlo.iota")
    if not is_counted or build.number(numbers.owner, "iota_dimension") != dimension:
        return None
    choose = {"GT": lax.approx_max_k, "LT": lax.approx_min_k}.get(comparison(block))
    if choose is None:
        return None
    op.attributes.names.update(_all_names(op))
    return list(
        choose(
            x,
            int(options["top_k"].value),
            reduction_dimension=dimension,
            recall_target=float(options["recall_target"].value),
            reduction_input_size_override=int(options["reduction_input_size_override"].value),
            aggregate_to_topk=bool(options["aggregate_to_topk"].value),
        )
    )
