"""Refine the types in modules made with symbolic dimensions, once those of arguments are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import _jax
from pullback._jax import ir
from pullback.files.errors import ArtifactError, check_valid
from pullback.frontend import link
from pullback.ir import build
from pullback.ir.inline import inline
from pullback.ir.mlir_passes import run_stock
from pullback.ir.modules import clone, entry_of, take_entry
from pullback.ir.ops import COMPOSITE
from pullback.ir.regions import replace_op
from pullback.ir.signatures import drop_arguments, set_signature
from pullback.ir.symbols import erase_unreachable, functions, is_declaration, make_private
from pullback.ir.verify import verify
from pullback_runtime._jax import operations_where
from pullback_runtime.ir._erasure import erase, erasing

GLOBAL_CONSTANT = "jax.global_constant"
"""Marks arguments that JAX adds to each function: values of symbols, the number of the platform."""

POLYMORPHIC = "jax.uses_shape_polymorphism"
REFINE = (
    "stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism),"
    "func.func(stablehlo-check-shape-assertions)"
)


def take_polymorphism(module: ir.Module) -> bool:
    """Return True if JAX has marked a module as shape polymorphic, and remove the mark."""
    attributes = module.operation.attributes
    found = POLYMORPHIC in attributes
    is_so = found and ir.BoolAttr(attributes[POLYMORPHIC]).value
    if found:
        del attributes[POLYMORPHIC]
    return is_so


def refine(module: ir.Module) -> None:
    """Infer all types from those of the arguments of @main."""
    run_stock(module, REFINE)
    while _follow_all(module):
        run_stock(module, REFINE)


def _follow_all(module: ir.Module) -> int:
    """Infer the types that StableHLO does not, and return how many are new."""
    with erasing():
        found = sum(map(_follow, operations_where(module, _name_of_dynamic)))
    found += _refine_composites(module)
    if found:
        for function in functions(module).values():
            if not is_declaration(function):
                set_signature(function)
    return found


def _refine_composites(module: ir.Module) -> int:
    """Refine the decompositions of composites, which StableHLO leaves as they are.

    JAX gives a decomposition the values of symbols and the number of the platform as arguments,
    which are constants of it then.

    Returns: how many composites have other types or operands.
    """
    made: dict[Any, str] = {}
    waiting = operations_where(module, _is_unrefined)
    for op in waiting:
        name = ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
        taken = _global_constants(_function(op, name))
        kinds = [
            str(v.owner.attributes["value"] if i in taken else v.type)
            for i, v in enumerate(op.operands)
        ]
        key = name, *kinds
        if key not in made:
            copy = clone(module)
            take_entry(copy, name)
            _specialize(copy, op, taken)
            refine(copy)
            ir.SymbolTable(copy.operation).set_symbol_name(entry_of(copy)[0], name)
            made[key] = link.merge(module, copy, name)
            make_private(functions(module)[made[key]])
        _call_specialized(op, made[key], taken)
    if waiting:
        erase_unreachable(module)
    return len(waiting)


def _is_unrefined(op: ir.Operation) -> bool:
    """Return True for a composite whose types, or constants of its decomposition, are now known."""
    if op.name != COMPOSITE:
        return False
    function = _function(op, ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value)
    taken = _global_constants(function)
    known = all(
        build.is_constant(v) if i in taken else not _is_dynamic(v)
        for i, v in enumerate(op.operands)
    )
    return known and (bool(taken) or any(map(_is_dynamic, op.results)))


def _global_constants(function: Any) -> list[int]:
    """Return which arguments are values of symbols, or the number of the platform."""
    given = function.attributes.get("arg_attrs", ())
    return [i for i, attributes in enumerate(given) if GLOBAL_CONSTANT in attributes]


def _specialize(module: ir.Module, op: ir.Operation, taken: Sequence[int]) -> None:
    """Give @main the types of a composite's operands, and the constants among these."""
    function, block = entry_of(module)
    arguments = list(block.arguments)
    for v, operand in zip(arguments, op.operands, strict=True):
        v.set_type(operand.type)
    with ir.InsertionPoint.at_block_begin(block):
        for i in taken:
            constant = op.operands[i].owner.operation.clone()
            arguments[i].replace_all_uses_with(constant.results[0])
    drop_arguments(function, [arguments[i] for i in taken])


def _call_specialized(op: ir.Operation, name: str, taken: Sequence[int]) -> None:
    """Replace a composite with one of this decomposition, which lacks some operands."""
    attributes = dict(op.attributes.items())
    attributes["decomposition"] = ir.FlatSymbolRefAttr.get(name, op.context)
    results = ir.FunctionType(ir.TypeAttr(_function(op, name).attributes["function_type"]).value)
    operands = [v for i, v in enumerate(op.operands) if i not in taken]
    with build.inserting(ir.InsertionPoint(op), op.location):
        made = build.emit(COMPOSITE, list(results.results), operands, attributes)
    replace_op(op, made.results)


def _name_of_dynamic(op: ir.Operation) -> str | None:
    """Return the name of an op, or call for one, whose type StableHLO does not infer; else None."""
    name = op.name
    if name == "stablehlo.custom_call":
        name = ir.StringAttr(op.attributes["call_target_name"]).value
    return name if name in FOLLOWING else None


def _follow(op: ir.Operation) -> bool:
    """Infer the result types of such an op if sizes are constants; return True if any is new."""
    number, infer = FOLLOWING[_name_of_dynamic(op) or ""]
    values, sizes = list(op.operands)[:-number], list(op.operands)[-number:]
    if not all(map(build.is_constant, sizes)) or any(map(_is_dynamic, values)):
        return False
    return infer(op, values, [np.asarray(_constant(size)) for size in sizes])


def _constant(value: ir.Value) -> ir.DenseElementsAttr:
    return ir.DenseElementsAttr(value.owner.attributes["value"])


def _gather(op: ir.Operation, values: list[Any], sizes: list[np.ndarray]) -> bool:
    if not _is_dynamic(op.result):
        return False
    indices = values[1]
    numbers = _jax.stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    slices = sizes[0].tolist()
    inner = iter([size for i, size in enumerate(slices) if i not in dropped])
    batch = [n for i, n in enumerate(indices.type.shape) if i != numbers.index_vector_dim]
    outer, rank = iter(batch), len(batch) + len(numbers.offset_dims)
    shape = tuple(next(inner if i in numbers.offset_dims else outer) for i in range(rank))
    op.result.set_type(of_shape(op.result.type, shape))
    return True


def _reduce_window(op: ir.Operation, values: list[Any], sizes: list[np.ndarray]) -> bool:
    dims, strides, base, window, padding = sizes
    whole = (np.array(values[0].type.shape) - 1) * base + 1 + padding.sum(1)
    shape = tuple(np.maximum((whole - ((dims - 1) * window + 1)) // strides + 1, 0).tolist())
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    attributes = {
        name: build.i64s(tuple(each.tolist()))
        for name, each in zip(names, (dims, strides, base, window), strict=True)
    }
    attributes["padding"] = build.i64_rows(padding.tolist())
    kinds = [of_shape(result.type, shape) for result in op.results]
    made = _instead(op, "stablehlo.reduce_window", kinds, values, attributes, regions=1)
    scalars = [of_shape(value.type, ()) for value in values]
    block = made.regions[0].blocks.append(*scalars, arg_locs=[op.location] * len(scalars))
    (reducer,) = ir.ArrayAttr(op.attributes["called_computations"])
    function = _function(op, ir.FlatSymbolRefAttr(reducer).value)
    with build.inserting(ir.InsertionPoint(block), op.location):
        build.return_(inline(function, list(block.arguments)))
    erase(op)
    return True


def _function(op: ir.Operation, name: str) -> ir.Operation:
    """Return the function of this name in the module around an op."""
    while op.parent is not None:
        op = op.parent.operation
    return ir.SymbolTable(op)[name].operation


def _top_k(op: ir.Operation, values: list[Any], sizes: list[np.ndarray]) -> bool:
    k = int(sizes[0])
    kinds = [of_shape(each.type, (*each.type.shape[:-1], k)) for each in op.results]
    attributes = {"k": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), k)}
    _instead(op, "chlo.top_k", kinds, values, attributes)
    erase(op)
    return True


def _random_bits(op: ir.Operation, values: list[Any], sizes: list[np.ndarray]) -> bool:
    state, bits = op.results
    kinds = [state.type, of_shape(bits.type, tuple(sizes[0].tolist()))]
    attributes = {"rng_algorithm": op.attributes["rng_algorithm"]}
    _instead(op, "stablehlo.rng_bit_generator", kinds, values, attributes)
    erase(op)
    return True


def _instead(
    op: ir.Operation, name: str, kinds: Any, values: Any, attributes: Any, regions: int = 0
) -> ir.Operation:
    """Emit an op that replaces the results of another one, which is dead then."""
    with build.inserting(ir.InsertionPoint(op), op.location):
        made = build.emit(name, kinds, values, attributes, regions)
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    return made


DYNAMIC = "stablehlo.dynamic_"
FOLLOWING = {
    f"{DYNAMIC}gather": (1, _gather),
    f"{DYNAMIC}reduce_window": (5, _reduce_window),
    f"{DYNAMIC}rng_bit_generator": (1, _random_bits),
    f"{DYNAMIC}top_k": (1, _top_k),
}
"""Ops whose types StableHLO does not infer: how many operands are sizes, and what infers them."""


def check(module: ir.Module) -> None:
    """Raise ArtifactError if a type is not known, or is not right."""
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
    """Return the type with the same elements and another shape."""
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(kind).element_type)


def _is_dynamic(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape
