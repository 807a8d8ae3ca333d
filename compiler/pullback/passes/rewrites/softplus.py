"""The derivative of softplus from the exponential that softplus has computed."""

from __future__ import annotations

import math
from typing import Any

from pullback.ir import build
from pullback.ir.build import Value, is_result_of, one_number
from pullback.ir.inline import inline_call
from pullback.ir.regions import blocks, operands_of, terminator
from pullback.ir.symbols import CALL, callee
from pullback.passes.rewrites.pattern import Pattern, match
from pullback.passes.rewrites.rewrite import Rewrite


def _or_zero(variable: str) -> Pattern:
    """Return the pattern of 0 in the place of an infinite number."""
    return ("select", ("compare EQ", variable, math.inf), 0, variable)


DIFFERENCE: Pattern = ("subtract", _or_zero("x"), _or_zero("y"))

_DISTANCE: Pattern = ("abs", ("as", "d", ("subtract", "a", "b")))
_EXPONENTIAL: Pattern = ("as", "e", ("exponential", ("negate", _DISTANCE)))
_SUM: Pattern = ("as", "sum", ("add", ("maximum", "a", "b"), ("log_plus_one", _EXPONENTIAL)))
LOGADDEXP: Pattern = ("select", ("compare NE", "d", "d"), "_", _SUM)
"""max(a, b) + log(1 + exp(-|a - b|)), and something else where a - b is not a number."""


def _applies(op: Any) -> bool:
    return match(op.operands[0], DIFFERENCE, {}) and -1 not in build.shape(op.operands[0])


def _is_finite(v: Value) -> bool:
    number = one_number(v)
    return number is not None and math.isfinite(number)


def _inlined(y: Value, x: Value, functions: dict[str, Any]) -> Value:
    """Return y; if it is `logaddexp` of x and of a number, inline the call first."""
    if not is_result_of(y, CALL):
        return y
    call = y.owner.operation
    function = functions[callee(call)]
    others = [each for each in operands_of(call) if each != x]
    if len(others) != 1 or not _is_finite(others[0]) or len(function.regions[0].blocks) != 1:
        return y
    returned = terminator(blocks(function)[0]).operands
    if len(returned) != 1 or not match(returned[0], LOGADDEXP, {}):
        return y
    use = next(iter(y.uses))
    user, number = use.owner, use.operand_number
    inline_call(call, function)
    return user.operands[number]


def _emit(op: Any, functions: dict[str, Any]) -> Value | None:
    found: dict[str, Value] = {}
    match(op.operands[0], DIFFERENCE, found)
    x = found["x"]
    y = _inlined(found["y"], x, functions)
    if not match(y, LOGADDEXP, found):
        return None
    is_first = x == found["a"]
    if not (is_first or x == found["b"]) or not _is_finite(found["b" if is_first else "a"]):
        return None
    y.replace_all_uses_with(found["sum"])  # which is NaN itself where x is
    larger = build.compare("GE" if is_first else "LE", found["d"], 0.0)
    e = found["e"]
    return build.div(build.select(larger, build.full_like(e, 1), e), build.add(e, 1.0))


SHARE_EXPONENTIAL = Rewrite("stablehlo.exponential", _applies, _emit)
"""Replace exp(x - logaddexp(x, c)), for a finite number c, by 1 / (1 + e) or e / (1 + e).

These are the derivatives of softplus on either side of c, and e = exp(-|x - c|) is what
`logaddexp` has computed. JAX's rule computes another exponential. The result is rounded in another
way, with a smaller error: that of the difference, x eps / 2, grows with x. The `select` for NaN,
through which XLA does not move the transposes of a convolution, is not needed beside a number.
"""
