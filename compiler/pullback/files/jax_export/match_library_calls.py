"""Restore JAX's derivatives of library calls, such as LAPACK's, in modules that lost them.

The rules of an LU decomposition are lost in an exported file, where it is a call of
`lapack_*getrf`, on a GPU of `cusolver_getrf`, and on a TPU of `LuDecomposition`. The call is
replaced with a JAX function that has the same results, with all its rules. It calls the same
library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax

from pullback._jax import ir
from pullback.autodiff.zeros import is_zero_constant
from pullback.frontend import link
from pullback.frontend.trace import trace
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.purity import is_used, target_of
from pullback.ir.symbols import CALL
from pullback.program.library_routines import (
    MAKES_Q,
    QR,
    ROUTINES,
    WITH_V,
    Results,
    asks_for_success,
    is_laid_out,
    options_of,
    routine_of,
)
from pullback_runtime._jax import operations_named
from pullback_runtime.call._libraries import home_of
from pullback_runtime.ir import _module
from pullback_runtime.ir._dtypes import element_dtype
from pullback_runtime.ir._erasure import erase, erasing

Types = Sequence[jax.ShapeDtypeStruct]
ELEMENT_BY_ELEMENT = {f"stablehlo.{name}" for name in ("real", "imag", "negate", "complex")}


def put_back(module: ir.Module) -> None:
    """Replace library calls with calls of functions that have rules, in place."""
    made = dict.fromkeys(ROUTINES, _put_back) | dict.fromkeys(QR, _put_back_qr)
    calls = operations_named(module, "stablehlo.custom_call")
    with erasing():
        for routine, call in [(routine_of(call), call) for call in calls]:  # some go with others
            if routine in made:
                whole = _without_tuple(call)
                if whole is not None:
                    made[routine](module, whole)


def _without_tuple(call: ir.Operation) -> ir.Operation | None:
    """Replace a call that returns a tuple, as in TensorFlow's modules, with one of several results.

    Return None if the tuple is used as a whole; a call without a tuple stays.
    """
    kind = call.results[0].type if len(call.results) == 1 else None
    if not isinstance(kind, ir.TupleType):
        return call
    parts = [use.owner.operation for use in call.results[0].uses]
    if any(part.name != "stablehlo.get_tuple_element" for part in parts):
        return None
    attributes = {key: value for key, value in call.attributes.items() if key != "xla_shape"}
    kinds = [kind.get_type(i) for i in range(kind.num_types)]
    with build.inserting(ir.InsertionPoint(call), call.location):
        new = build.emit(call.name, kinds, list(call.operands), attributes)
    for part in parts:
        number = ir.IntegerAttr(part.attributes["index"]).value
        part.results[0].replace_all_uses_with(new.results[number])
        erase(part)
    erase(call)
    return new


def _put_back(module: ir.Module, call: ir.Operation) -> None:
    """Replace the results that a function with rules returns; erase the call if it is dead then."""
    results = list(call.results)
    if routine_of(call) in WITH_V:
        count = build.info(results[1].type).shape[-1]
        if not all(_shows_columns(v, count, build.rank(v) - 1) for v in results[2:4]):
            return
    given = _called(module, call, dict(enumerate(results)))
    for i, v in given.items():
        results[i].replace_all_uses_with(v)
    status = results[-1]
    if given and len(results) > 1 and all(map(asks_for_success, status.uses)):
        with build.inserting(ir.InsertionPoint(call), call.location):
            status.replace_all_uses_with(build.zeros(status.type))
    if not any(map(is_used, results)):
        erase(call)


def _shows_columns(v: Value, count: int, dim: int) -> bool:
    """Return True if only the first `count` columns of U or V, along this dimension, are used."""
    if build.info(v.type).shape[dim] == count:
        return True
    for use in v.uses:
        user = use.owner.operation
        if user.name in ELEMENT_BY_ELEMENT:
            shown = _shows_columns(user.results[0], count, dim)
        elif user.name == "stablehlo.transpose":
            order = build.integers(user.attributes["permutation"])
            shown = _shows_columns(user.results[0], count, order.index(dim))
        else:
            shown = _is_leading_part(user) and _limit(user, dim) <= count
        if not shown:
            return False
    return True


def _put_back_qr(module: ir.Module, call: ir.Operation) -> None:
    """Replace R, and Q if it is made from the reflectors, which JAX has no derivatives of."""
    reflectors, scales = call.results
    makes_q = [use.owner.operation for use in scales.uses]
    if len(makes_q) > 1 or not all(routine_of(each) in MAKES_Q for each in makes_q):
        return
    if not _shows_r(reflectors, makes_q):
        return
    wanted = dict(enumerate([reflectors, *(each.results[0] for each in makes_q)]))
    given = _called(module, call, wanted)
    for i, v in given.items():
        wanted[i].replace_all_uses_with(v)
    for each in [*makes_q, call] if given else ():
        erase(each)


def _shows_r(v: Value, makes_q: Sequence[ir.Operation]) -> bool:
    """Return True if nothing of the reflectors is used but the triangle above them (R), and Q."""
    for use in v.uses:
        user = use.owner.operation
        if user in makes_q and use.operand_number == 0:
            continue
        if user.name == "stablehlo.pad" or _is_leading_part(user):
            if not _shows_r(user.results[0], makes_q):
                return False
        elif not (use.operand_number == 2 and _takes_upper_triangle(user)):
            return False
    return True


def _is_leading_part(user: ir.Operation) -> bool:
    is_slice = user.name == "stablehlo.slice"
    return is_slice and not any(build.integers(user.attributes["start_indices"]))


def _limit(user: ir.Operation, dim: int) -> int:
    return build.integers(user.attributes["limit_indices"])[dim]


def _takes_upper_triangle(user: ir.Operation) -> bool:
    """Return True if a `select` puts 0 below the diagonal, as in JAX's and TensorFlow's `triu`."""
    if user.name != "stablehlo.select" or not is_zero_constant(_repeated(user.operands[1])):
        return False
    mask, rank = _repeated(user.operands[0]), build.rank(user.operands[0])
    if not build.is_result_of(mask, "stablehlo.compare"):
        return False
    row, column = mask.owner.operands
    if build.enumerator(mask.owner.attributes["comparison_direction"]) != "GE":
        return False
    last = build.rank(mask) - 1
    return rank > 1 and [_counted(v) for v in (row, column)] == [(last - 1, -1), (last, 0)]


def _counted(v: Value) -> tuple[int, int] | None:
    """Return the dimension along which a value counts up by 1, and its first number; else None."""
    if build.is_result_of(v, "stablehlo.iota"):
        return int(ir.IntegerAttr(v.owner.attributes["iota_dimension"]).value), 0
    is_sum = build.is_result_of(v, "stablehlo.add")
    if not (is_sum or build.is_result_of(v, "stablehlo.broadcast_in_dim")):
        return None
    found = _counted(v.owner.operands[0])
    if found is None:
        return None
    dim, start = found
    if not is_sum:
        wide = build.integers(v.owner.attributes["broadcast_dimensions"])[dim]
        same = build.shape(v.owner.operands[0])[dim] == build.shape(v)[wide]
        return (wide, start) if same else None
    more = build.one_number(v.owner.operands[1])
    return None if more is None else (dim, start + int(more))


def _repeated(v: Value) -> Value:
    """Return the operand of a broadcast; any other value as it is."""
    return v.owner.operands[0] if build.is_result_of(v, "stablehlo.broadcast_in_dim") else v


def _arguments(types: Iterable[ir.Type]) -> Types | None:
    """Return abstract arguments of these types for JAX; None if JAX does not have one of them."""
    found = [build.info(t) for t in types]
    if any(t.kind == "?" or -1 in t.shape for t in found):
        return None
    return tuple(
        jax.ShapeDtypeStruct(t.shape, element_dtype(t.element, "a call of a library"))
        for t in found
    )


def _with_rules(function: Callable[..., Any], platform: str, given: Types) -> bytes:
    """Return the module of a JAX function, with all rules in it, as bytecode."""
    return _module.to_bytecode(trace(function, platforms=platform)(*given).stage_rules().module)


def _called(
    module: ir.Module, call: ir.Operation, results: Mapping[int, Value]
) -> dict[int, Value]:
    """Emit a call of a function with rules before a library call; return its results by position.

    There are none if no such function fits the call.
    """
    if not is_laid_out(call, options_of(call).get("transposed") is not True):
        return {}
    values = call.operands, results.values()
    given, wanted = (_arguments(v.type for v in each) for each in values)
    if given is None or wanted is None:
        return {}
    options = tuple(sorted(options_of(call).items()))
    platform = home_of(target_of(call) or "")
    assert platform is not None  # all routines are of libraries that one platform has
    places, source = _function(routine_of(call), platform, options, given, wanted)
    if not places:
        return {}
    name = link.merge_main(module, source, call)
    with build.inserting(ir.InsertionPoint(call), call.location):
        callee = {"callee": ir.FlatSymbolRefAttr.get(name, module.context)}
        kinds = [results[i].type for i in places]
        new = build.emit(CALL, kinds, list(call.operands), callee)
    return dict(zip(places, new.results, strict=True))


@functools.lru_cache(maxsize=256)
def _function(
    routine: str,
    platform: str,
    options: tuple[tuple[str, str | bool], ...],
    given: Any,
    wanted: Any,
) -> tuple[tuple[int, ...], bytes]:
    """Return positions of results that have derivatives in JAX, and a module with their rules.

    There are no positions if the call is unlike those that JAX makes, or JAX raises.
    """

    def function(*operands: Any) -> Results:
        found = ROUTINES[routine](dict(options), *operands)
        return {i: v for i, v in found.items() if i < len(wanted)}

    try:
        with jax.enable_x64(True):
            found = jax.eval_shape(function, *given)
            pairs = [(v, wanted[i]) for i, v in found.items()]
            if any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in pairs):
                return (), b""
            return tuple(sorted(found)), _with_rules(function, platform, given)
    except Exception:  # whatever JAX raises: the file is read, and has no derivative there
        return (), b""
