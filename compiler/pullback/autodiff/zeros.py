"""Dataflow analysis: what is zero, or NaN, for certain: constants, and what ops make of them.

So a term that is not a tangent does not make a linear map affine, and a rule that gives a zero
tangent ends the flow of derivatives there. For the latter its own derivatives have to be zero, too:
what is zero by the code of a function with a rule, such as `x * 0`, has those that the rule gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pullback._jax import ir
from pullback.autodiff.registry import RULES, by_its_parts
from pullback.autodiff.state import Differentiation
from pullback.ir import build, ops
from pullback.ir.build import Value
from pullback.ir.dataflow import CONTROL, MOST_VALUES, NO, YES, Known, Query, Sources
from pullback.ir.masks import masked
from pullback.ir.regions import APART, captures, operations
from pullback.ir.traits import DATA, MOVES
from pullback_runtime._jax import text_alone

_SHORT = {"large_elements_limit": 8, "large_resource_limit": 0}
_COMPLEX_ZERO = re.compile(r"dense<\(-?0\.0+e\+00, ?-?0\.0+e\+00\)>")
_TRIANGULAR_SOLVE = re.compile(r"lapack_[sdcz]trsm_ffi")
_NAN = re.compile(r"dense<\(?0x(7FC0|7E00|7FF8)0*\b")


_ALL = slice(None)
_BY_ELEMENT = frozenset(
    {
        *(f"stablehlo.{name}" for name in "all_reduce reduce reduce_scatter reduce_window".split()),
        "chlo.scan",
    }
)
"""Ops that are zero where all of their operands are, if their regions keep zeros."""

_OF_ZERO_ELEMENTS = frozenset(
    f"stablehlo.{name}" for name in "add subtract multiply maximum minimum return".split()
)
"""What a reduction or a scatter may apply to its elements."""


Functions = Mapping[str, Any]


def is_zero(v: Value, functions: Functions | None = None) -> bool:
    """Return True if a value is zero for certain: a constant, or what ops make of constants.

    With `functions`, those of the module by name, also what calls make of them.
    """
    return _Search(functions or {}).holds(v, {})


def stays_zero(v: Value, functions: Functions) -> bool:
    """Return True if a value is zero for certain, and so are all of its derivatives."""
    return _Search(functions, with_derivatives=True).holds(v, {})


def is_nan(v: Value, functions: Functions) -> bool:
    """Return True if all of a value is NaN for certain: a constant, or one that ops only move."""
    return _NanSearch(functions).holds(v, {})


def adds_nothing(v: Value, functions: Functions) -> bool:
    """Return True if each element of a value is surely zero or NaN, but not all of them surely NaN.

    A solver marks with NaN that it has failed; what it gives for zero is still no term of a sum.
    """
    return _TermSearch(functions).holds(v, {}) and not is_nan(v, functions)


def is_zero_constant(v: Value) -> bool:
    """Return True if a value is itself a constant of zeros, as `build.zeros` makes them."""
    if isinstance(v, ir.BlockArgument):
        return False
    operation = v.owner.operation
    if operation.name == "stablehlo.complex":
        return all(map(is_zero_constant, operation.operands))
    return operation.name == "stablehlo.constant" and _is_zero_constant(operation, v.type)


class _Search(Query):
    """Search for zeros.

    Args:
      with_derivatives: what is zero by the code of a function with a rule does not count, unless
        its arguments are.
    """

    def __init__(self, functions: Functions, with_derivatives: bool = False) -> None:
        super().__init__(functions)
        self.with_derivatives = with_derivatives

    def needed(self, call: Any, block: Any) -> Iterable[Value]:
        return _moved(call, block) if self.with_derivatives else ()

    def sources(self, v: Value, known: Known) -> Sources:
        if 0 in build.shape(v):
            return YES
        if isinstance(v, ir.BlockArgument):
            return super().sources(v, known)
        operation = v.owner.operation
        name = operation.name
        if name == "stablehlo.constant":
            return YES if _is_zero_constant(operation, v.type) else NO
        if name == "chlo.constant_like":
            return YES if _is_zero_number(operation.attributes["value"]) else NO
        if name == "stablehlo.custom_call" and _is_triangular_solve(operation):
            return [operation.operands[1]], False
        if name in CONTROL or name in APART:
            return super().sources(v, known)
        if not all(map(_keeps_zero, operation.regions)):
            return NO
        operands = list(operation.operands)
        captured = captures(operation) if len(operation.regions) else []
        if name == "stablehlo.scatter":
            del operands[len(operation.results)]  # the indices
        elif name in MOVES:
            operands = operands[DATA.get(name, _ALL)]
        elif name not in _BY_ELEMENT:
            return _of_linear(name, operands, captured)
        return [*operands, *captured], False


class _NanSearch(Query):
    """Search for values that are NaN throughout, which only ops that move values preserve."""

    def sources(self, v: Value, known: Known) -> Sources:
        operation = None if isinstance(v, ir.BlockArgument) else v.owner.operation
        if operation is None or operation.name in CONTROL:
            return super().sources(v, known)
        if operation.name == "stablehlo.constant":
            return YES if _is_nan_constant(operation) else NO
        if operation.name not in MOVES and operation.name != "stablehlo.convert":
            return NO
        return list(operation.operands)[DATA.get(operation.name, _ALL)], False


class _TermSearch(_Search):
    """Search for values with each element zero or NaN, which ops that keep zeros keep."""

    def sources(self, v: Value, known: Known) -> Sources:
        if not build.inexact(v.type):  # NaN would be converted to any number
            return YES if is_zero(v, self.functions) else NO
        if not isinstance(v, ir.BlockArgument) and v.owner.name == "stablehlo.constant":
            operation = v.owner.operation
            is_either = _is_nan_constant(operation) or _is_zero_constant(operation, v.type)
            return YES if is_either else NO
        return super().sources(v, known)


def _of_linear(name: str, operands: list[Value], captured: Sequence[Value]) -> Sources:
    """Decide an op by its rule: one that is linear in some operands is zero where they all are.

    Where it is linear in each of some, but not in all at once, it is a product.
    """
    rule = RULES.get(name)
    if rule is None or rule.linear is by_its_parts:
        return NO
    places = range(len(operands))
    inexact = [i for i in places if build.inexact(operands[i].type)]
    found = [i for i in inexact or places if rule.linear([i == other for other in places])]
    if not found:
        return NO
    is_sum = rule.linear([i in found for i in places])
    return [*(operands[i] for i in found), *captured], not is_sum


def _moved(operation: Any, block: Any) -> Iterator[Value]:
    """Yield the arguments by which a rule may give a call other derivatives than its code has."""
    view = ops.view(operation)
    if view is not None:
        first = view.num_residuals if isinstance(view, ops.LinearCall) else 0
        for i in range(first, len(block.arguments)):
            if build.inexact(block.arguments[i].type):
                yield block.arguments[i]


def given_zeros(diff: Differentiation, name: str, mask: str) -> str:
    """Return the name of a copy of @name for calls in which the masked arguments are zero.

    Values that are zero then become constants: otherwise, where such an argument is multiplied by
    an infinite factor, NaN would come into sums with the others. Values of dynamic shape stay as
    they are.
    """

    def derive() -> str:
        copy = diff.clone_function(name, f"{name}.given_zeros")
        block = diff.block(copy)
        values = masked(block.arguments, mask)
        known = dict.fromkeys(values, True)
        search = _Search(diff.functions, with_derivatives=True)
        for operation in operations(block):
            search.steps = MOST_VALUES
            for v in operation.results:
                if build.inexact(v.type) and search.holds(v, known):
                    values.append(v)
        with build.inserting(ir.InsertionPoint.at_block_begin(block), diff.function(name).location):
            for v in values:
                if -1 not in build.shape(v):
                    v.replace_all_uses_with(build.zeros(v.type))
        return copy

    return name if "1" not in mask else diff.cached(("given zeros", name, mask), derive)


def _is_zero_constant(operation: Any, type: Any) -> bool:
    if build.info(type).kind == "c":  # the bindings cannot read a complex splat
        return _COMPLEX_ZERO.search(text_alone(operation, **_SHORT)) is not None
    value = operation.attributes["value"]
    return value == build.splat(type, 0) or value == build.splat(type, -0.0)


def _is_nan_constant(operation: Any) -> bool:
    return _NAN.search(text_alone(operation, **_SHORT)) is not None


def _is_zero_number(value: Any) -> bool:
    """Return True if a number is zero; False for a complex one, which bindings cannot read."""
    return isinstance(value, ir.FloatAttr | ir.IntegerAttr) and value.value == 0


def _is_triangular_solve(operation: Any) -> bool:
    target = ir.StringAttr(operation.attributes["call_target_name"]).value
    return _TRIANGULAR_SOLVE.fullmatch(target) is not None


def _keeps_zero(region: Any) -> bool:
    """Return True if the body of a reduction or scatter gives zero for zeros."""
    return all(view.operation.name in _OF_ZERO_ELEMENTS for view in region.blocks[0].operations)
