"""Dataflow analysis: what is zero, or NaN, for certain: constants, and what ops make of them.

So a term that is not a tangent does not make a linear map affine, and a rule that gives a zero
tangent ends the flow of derivatives there. For the latter its own derivatives have to be zero, too:
what is zero by the code of a function with a rule, such as `x * 0`, has those that the rule gives.

The analysis is on demand: from the value in question it goes back to its operands, by a worklist.
Loop carries are the greatest fixpoint: zero until an iteration shows otherwise.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback._jax import ir
from pullback.autodiff.registry import RULES, by_its_parts
from pullback.autodiff.state import Differentiation
from pullback.ir import build, ops
from pullback.ir.build import Value
from pullback.ir.masks import masked
from pullback.ir.regions import APART, BRANCHES, MANUAL, captures, operations, terminator
from pullback.ir.symbols import CALLS, called
from pullback.ir.traits import DATA, MOVES
from pullback_runtime._jax import text_alone

MOST_VALUES = 1000
"""Limits the steps of a search for a zero."""

DEEPEST = 30
"""Through how many loops and calls, nested or one after another, a zero is traced."""

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

RETURN = "stablehlo.return"
_OF_ZERO_ELEMENTS = frozenset(
    f"stablehlo.{name}" for name in "add subtract multiply maximum minimum return".split()
)
"""What a reduction or a scatter may apply to its elements."""


Functions = Mapping[str, Any]
Known = dict[Value, bool]


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


_Sources = tuple[list[Value], bool]
_YES: _Sources = [], False
_NO: _Sources = [], True


class _Search:
    """The search for one value; `steps` are left before it is given up."""

    def __init__(self, functions: Functions, with_derivatives: bool = False) -> None:
        self.functions = functions
        self.with_derivatives = with_derivatives
        self.steps = MOST_VALUES
        self.depth = 0
        self._calls: dict[Any, tuple[Any, Known]] = {}  # by the block of the function

    def holds(self, v: Value, known: Known) -> bool:
        """Return True if a value is zero, given which others in `known` are; add answers there."""
        todo = [v]
        while todo:
            self.steps -= 1
            if self.steps < 0:
                return False
            sources, one_is_enough = self._sources(todo[-1], known)
            # Of a sum, the last term is the newest, and least likely to be zero.
            missing = None
            answer = not one_is_enough
            for source in reversed(sources):
                found = known.get(source)
                if found is one_is_enough:
                    answer, missing = one_is_enough, None
                    break
                if found is None:
                    missing = source
                    break
            if missing is not None:
                todo.append(missing)
            else:
                known[todo.pop()] = answer
        return known[v]

    def _sources(self, v: Value, known: Known) -> _Sources:
        """Return the values that decide whether `v` is zero, and if one that is zero is enough.

        This is the transfer function of the analysis.
        """
        if v in known:
            return _YES if known[v] else _NO
        if isinstance(v, ir.BlockArgument) and v.owner in self._calls:
            operands, outside = self._calls[v.owner]
            return _YES if self.holds(operands[v.arg_number], outside) else _NO
        return self._sources_of(v, known)

    def _sources_of(self, v: Value, known: Known) -> _Sources:  # noqa: C901 -- a case for each kind of op
        if 0 in build.shape(v):
            return _YES
        if isinstance(v, ir.BlockArgument):
            owner = v.owner.owner.operation
            if owner.name == MANUAL:
                return [owner.operands[v.arg_number]], False
            return self._of_carry(owner, v.arg_number, known)
        operation = v.owner.operation  # the view of a composite has a name of its own
        name = operation.name
        if name == "stablehlo.constant":
            return _YES if _is_zero_constant(operation, v.type) else _NO
        if name == "chlo.constant_like":
            return _YES if _is_zero_number(operation.attributes["value"]) else _NO
        if name in BRANCHES or name == MANUAL:
            ends = [terminator(region.blocks[0]) for region in operation.regions]
            return [end.operands[v.result_number] for end in ends], False
        if name in APART:
            return [operation.operands[v.result_number]], False
        if name == "stablehlo.custom_call" and _is_triangular_solve(operation):
            return [operation.operands[1]], False
        if name == "stablehlo.while":
            return self._of_carry(operation, v.result_number, known)
        if name in CALLS:
            return self._of_call(operation, v.result_number, known)
        if not all(map(_keeps_zero, operation.regions)):
            return _NO
        operands = list(operation.operands)
        captured = captures(operation) if len(operation.regions) else []
        if name == "stablehlo.scatter":
            del operands[len(operation.results)]  # the indices
        elif name in MOVES:
            operands = operands[DATA.get(name, _ALL)]
        elif name not in _BY_ELEMENT:
            return _of_linear(name, operands, captured)
        return [*operands, *captured], False

    def _of_carry(self, loop: Any, index: int, known: Known) -> _Sources:
        """Decide a carry: zero if it starts with zero, and each iteration leaves all such zero."""
        if loop.name != "stablehlo.while":
            return _NO
        inits, body = list(loop.operands), loop.regions[1].blocks[0]
        arguments, end = list(body.arguments), terminator(body)
        handed_on = list(end.operands)
        if end.name != RETURN or not len(handed_on) == len(inits) == len(arguments):
            return _NO  # the loop is being made, or rewritten
        if handed_on[index] == arguments[index]:
            return [inits[index]], False
        with self._deeper() as is_allowed:
            zero = [is_allowed and self.holds(init, known) for init in inits]
            before: list[bool] = []
            while zero[index] and zero != before:
                before, carries = zero, {**known, **dict(zip(arguments, zero, strict=True))}
                zero = [z and self.holds(v, carries) for v, z in zip(handed_on, zero, strict=True)]
        return _YES if zero[index] else _NO

    def _of_call(self, operation: Any, index: int, known: Known) -> _Sources:
        """Decide a result of a call: zero if the function's is, given which operands are.

        Only operands that it depends on are looked at: calls have thousands, and as many results.
        """
        function = self.functions.get(called(operation) or "")
        if function is None or not len(function.regions[0].blocks):
            return _NO
        block = function.regions[0].blocks[0]
        with self._deeper() as is_allowed, self._called(block, operation.operands, known):
            if not is_allowed:
                return _NO
            inside: Known = {}
            moved = _moved(operation, block) if self.with_derivatives else ()
            if not all(self.holds(argument, inside) for argument in moved):
                return _NO
            found = self.holds(terminator(block).operands[index], inside)
        return _YES if found else _NO

    @contextlib.contextmanager
    def _called(self, block: Any, operands: Any, outside: Known) -> Iterator[None]:
        """Run the body with the arguments of a function standing for these operands of a call."""
        before = self._calls.get(block)
        self._calls[block] = operands, outside
        yield
        if before is None:
            del self._calls[block]
        else:
            self._calls[block] = before

    @contextlib.contextmanager
    def _deeper(self) -> Iterator[bool]:
        """Run the body one level deeper; yield False if that is too deep."""
        self.depth += 1
        try:
            yield self.depth < DEEPEST
        finally:
            self.depth -= 1


class _NanSearch(_Search):
    """A search for values that are NaN throughout, which only ops that move values preserve."""

    def _sources_of(self, v: Value, known: Known) -> _Sources:
        if isinstance(v, ir.BlockArgument):
            return _NO
        operation = v.owner.operation
        if operation.name == "stablehlo.constant":
            return _YES if _is_nan_constant(operation) else _NO
        if operation.name in CALLS:
            return self._of_call(operation, v.result_number, known)
        if operation.name not in MOVES and operation.name != "stablehlo.convert":
            return _NO
        return list(operation.operands)[DATA.get(operation.name, _ALL)], False


class _TermSearch(_Search):
    """A search for values with each element zero or NaN, which the ops that keep zeros keep."""

    def _sources_of(self, v: Value, known: Known) -> _Sources:
        if not build.inexact(v.type):  # NaN would be converted to any number
            return _YES if is_zero(v, self.functions) else _NO
        if not isinstance(v, ir.BlockArgument) and v.owner.name == "stablehlo.constant":
            operation = v.owner.operation
            is_either = _is_nan_constant(operation) or _is_zero_constant(operation, v.type)
            return _YES if is_either else _NO
        return super()._sources_of(v, known)


def _of_linear(name: str, operands: list[Value], captured: Sequence[Value]) -> _Sources:
    """Decide an op by its rule: one that is linear in some operands is zero where they all are.

    Where it is linear in each of some, but not in all at once, it is a product.
    """
    rule = RULES.get(name)
    if rule is None or rule.linear is by_its_parts:
        return _NO
    places = range(len(operands))
    inexact = [i for i in places if build.inexact(operands[i].type)]
    found = [i for i in inexact or places if rule.linear([i == other for other in places])]
    if not found:
        return _NO
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
