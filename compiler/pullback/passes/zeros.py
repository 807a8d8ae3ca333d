"""What is zero, or NaN, for certain: constants, and what ops make of them.

So a term that is no tangent does not make a linear map affine, and a rule that gives a zero tangent
ends the flow of derivatives there.
"""

from __future__ import annotations

import re
from typing import Any

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.passes.differentiation import terminator

MOST_VALUES = 1000
"""Further back than so many values, a zero is not looked for."""

_SHORT = {"large_elements_limit": 8}
_COMPLEX_ZERO = re.compile(r"dense<\(-?0\.0+e\+00, ?-?0\.0+e\+00\)>")
_NAN = re.compile(r"dense<\(?0x(7FC0|7E00|7FF8)0*\b")
_NAN_PRESERVING = frozenset(
    f"stablehlo.{name}" for name in ("broadcast_in_dim", "reshape", "convert")
)


def _stablehlo(names: str) -> list[str]:
    return [f"stablehlo.{name}" for name in names.split()]


_ALL = slice(None)
_OF_ZEROS: dict[str, slice] = {
    **dict.fromkeys(
        _stablehlo(
            "broadcast_in_dim reshape convert slice transpose reverse negate real imag complex "
            "concatenate pad add subtract reduce reduce_window"
        ),
        _ALL,
    ),
    **dict.fromkeys(_stablehlo("gather dynamic_slice divide"), slice(1)),
    **dict.fromkeys(_stablehlo("dynamic_update_slice"), slice(2)),
    "stablehlo.select": slice(1, None),
    "stablehlo.scatter": slice(0, None, 2),
    "sdy.sharding_constraint": _ALL,
}
"""Ops that are zero where these of their operands are."""

_PRODUCTS = frozenset(_stablehlo("multiply dot_general convolution"))
"""Ops that are zero where one of their operands is."""

_OF_ZERO_ELEMENTS = frozenset(_stablehlo("add subtract multiply maximum minimum return"))
"""What a reduction or a scatter may apply to its elements."""


def is_zero(v: Value) -> bool:
    """Whether a value is zero for certain: a constant, or what ops make of constants."""
    known: dict[Value, bool] = {}
    todo = [v]
    while todo:
        if len(known) > MOST_VALUES:
            return False
        sources, one_is_enough = _sources(todo[-1])
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


_ZERO: tuple[list[Value], bool] = [], False
_NOT_ZERO: tuple[list[Value], bool] = [], True


def _sources(v: Value) -> tuple[list[Value], bool]:
    """The values on which it depends whether this one is zero; and whether one is enough."""
    if 0 in build.shape(v):
        return _ZERO
    if isinstance(v, ir.BlockArgument):
        init = _init_of_invariant(v)
        return _NOT_ZERO if init is None else ([init], False)
    operation = v.owner
    name = operation.name
    if name == "stablehlo.constant":
        return _ZERO if _is_zero_constant(operation, v.type) else _NOT_ZERO
    if name in _PRODUCTS:
        return list(operation.operands), True
    chosen = _OF_ZEROS.get(name)
    if chosen is None or not all(map(_keeps_zero, operation.regions)):
        return _NOT_ZERO
    return list(operation.operands)[chosen], False


def _is_zero_constant(operation: Any, type: Any) -> bool:
    if build.info(type).kind == "c":  # the bindings cannot read a complex splat
        return _COMPLEX_ZERO.search(operation.get_asm(**_SHORT)) is not None
    value = operation.attributes["value"]
    return value == build.splat(type, 0) or value == build.splat(type, -0.0)


def _keeps_zero(region: Any) -> bool:
    """Whether the body of a reduction or scatter gives zero for zeros."""
    return all(view.operation.name in _OF_ZERO_ELEMENTS for view in region.blocks[0].operations)


def _init_of_invariant(argument: Value) -> Value | None:
    """What a loop starts a carry with that its body hands on as it is."""
    block, index = argument.owner, argument.arg_number
    loop = block.owner.operation
    if loop.name != "stablehlo.while":
        return None
    body, inits = loop.regions[1].blocks[0], loop.operands
    handed_on = list(terminator(body).operands)
    if not len(handed_on) == len(inits) == len(body.arguments):
        return None  # the loop is being rewritten
    return inits[index] if handed_on[index] == body.arguments[index] else None


def is_nan(v: Value) -> bool:
    """Whether a value is NaN throughout for certain: a constant, or one moved around."""
    while not isinstance(v, ir.BlockArgument) and v.owner.name in _NAN_PRESERVING:
        v = v.owner.operands[0]
    if isinstance(v, ir.BlockArgument) or v.owner.name != "stablehlo.constant":
        return False
    return _NAN.search(v.owner.get_asm(**_SHORT)) is not None
