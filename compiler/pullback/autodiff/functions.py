"""Reverse mode of whole functions: in place, split in two, or transposed.

`vjp_in_place` puts the cotangents behind the function's own ops; `split` makes a forward function
and a backward one, which takes residuals from it; `transpose` transposes a linear function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback._jax import ir
from pullback.autodiff.effects import erase_effects
from pullback.autodiff.residuals import Residuals
from pullback.autodiff.reverse import BE_LINEAR, Reverse, identity
from pullback.autodiff.specialized import kinds_in
from pullback.autodiff.state import Differentiation
from pullback.autodiff.zeros import adds_nothing
from pullback.errors import MissingRuleError, NotLinearError
from pullback.ir import build, placements
from pullback.ir.build import Value, inexact
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.dependence import dependents
from pullback.ir.locations import user_line
from pullback.ir.masks import masked
from pullback.ir.purity import is_used
from pullback.ir.regions import captures, operations, replace_terminator, terminator
from pullback.ir.signatures import drop_arguments, forget_results, keep_arguments, set_signature
from pullback_runtime.ir._erasure import erase


@dataclass(frozen=True)
class SplitFunction:
    """A function split into forward and backward.

    forward: (args…) → (kept outs…, residuals…); backward: (residuals…, cts…) → (cts of args…),
    one for each masked argument flagged in `nonzero`. `kept` are positions among the outs, and
    `compared` those among the residuals that a rule compares: see `Residuals.choose`.
    """

    forward: str
    backward: str
    kept: list[int]
    nonzero: list[bool]
    compared: list[int]


def vjp_in_place(
    diff: Differentiation, name: str, mask: str, ct_mask: str, unit_cotangent: bool
) -> None:
    """Turn (args…) → (outs…) into (args…, cts…) → (outs…, cts of masked args…).

    With a unit cotangent, no cotangent is an argument. The cotangents that are results have the
    types that rules gave them.
    """
    function, block = diff.function(name), diff.block(name)
    outs = list(terminator(block).operands)
    given = [out.type for out in outs]
    frame = Reverse(diff, identity, hands_on=True)
    takes, _ = kinds_in(function)
    wrt, kinds = masked(block.arguments, mask), masked(takes, mask)
    frame.analyze(block, wrt, kinds)
    loc = function.location
    with build.inserting(ir.InsertionPoint(terminator(block)), loc):
        for out, type in zip(_masked(outs, ct_mask), _masked(given, ct_mask), strict=True):
            ct = build.full_like(out, 1) if unit_cotangent else block.add_argument(type, loc)
            frame.accumulate(out, ct)
        frame.run()
        cts = _cotangents(frame, wrt)
    replace_terminator(block, [*terminator(block).operands, *cts])
    seeds = [] if unit_cotangent else _masked(given, ct_mask)
    taken, types = [kind.type for kind in takes], [kind.type for kind in kinds]
    if not frame.is_checked:
        types = _checked_types(cts, wrt)
    set_signature(function, [*taken, *seeds], [*given, *types])


def _cotangents(frame: Reverse, arguments: Sequence[Value]) -> list[Value]:
    """Return the cotangents of `arguments`, the frame's first active values; zeros if absent."""
    return list(map(build.instantiate, frame.cts, arguments))


def _checked_types(cts: Sequence[Value], arguments: Sequence[Value]) -> list[Any]:
    """Return the types of cotangents of arguments, whose element types may differ from theirs.

    Raises:
      MissingRuleError: one has another shape than the argument.
    """
    found = [ct.type for ct in cts]
    for type, v in zip(found, arguments, strict=True):
        if type != v.type and type != build.with_element(v.type, build.info(type).element):
            raise MissingRuleError(  # of an op, one operand may be static, and another dynamic
                f"no derivative by an argument of type {v.type} whose cotangent has type {type}",
                where=user_line(v.owner.owner.location),
                do=build.REFINE_SHAPES,
            )
    return found


def with_result_types(diff: Differentiation, name: str, types: Sequence[Any]) -> str:
    """Return a copy of @name with results converted to these types; @name if they have them."""

    def differs(block: Any) -> bool:
        return [v.type for v in terminator(block).operands] != list(types)

    def convert(block: Any) -> None:
        end = terminator(block)
        with build.inserting(ir.InsertionPoint(end), end.location):
            results = [build.converted(v, t) for v, t in zip(end.operands, types, strict=True)]
        replace_terminator(block, results)
        set_signature(block.owner)

    return diff.changed(name, "rounded", differs, convert)


Constants = tuple[tuple[int, float], ...]  # (position of an argument, value of its elements)


def split(
    diff: Differentiation,
    name: str,
    mask: str,
    ct_mask: str,
    linear: bool = False,
    constants: Constants = (),
    may_lose: bool = False,
    types: Sequence[Any] = (),
) -> SplitFunction:
    """Split @name into forward and backward functions, once per combination of arguments.

    With `linear`, the masked arguments are the linear ones: forward loses them, and the results
    that depend on them linearly. A result that depends on them in another way is an error, or with
    `may_lose` is lost as well. `constants` are arguments whose elements all have one known value.
    `types` has, for each result, the type of its cotangent if that has another element type; what
    backward returns may have other element types as well.
    """
    types = tuple(types)

    def derive() -> SplitFunction:
        return _split(diff, name, mask, ct_mask, linear, constants, may_lose, types)

    key = "split", name, mask, ct_mask, linear, str(constants), may_lose, types
    return diff.cached(key, derive)


def _split(
    diff: Differentiation,
    name: str,
    mask: str,
    ct_mask: str,
    linear: bool,
    constants: Constants,
    may_lose: bool,
    types: Sequence[Any],
) -> SplitFunction:
    forward = diff.clone_function(name, f"{name}.fwd")
    draft, _ = diff.add_function(f"{name}.bwd.draft", (), (), diff.function(name).location)
    with _dropped_if_not_linear(diff, draft, forward):
        halves = forward, draft
        pair = _split_between(diff, name, halves, mask, ct_mask, linear, constants, types)
    if linear:  # only now: what backward computes again may be dead in forward
        with _dropped_if_not_linear(diff, pair.backward, forward):
            count = len(pair.kept) if may_lose else 0
            lost = _drop_linear_part(diff, diff.block(forward), mask, count)
        pair = replace(pair, kept=[k for i, k in enumerate(pair.kept) if i not in lost])
    return pair


@contextlib.contextmanager
def _dropped_if_not_linear(diff: Differentiation, *names: str) -> Iterator[None]:
    """On NotLinearError, remove the partly built functions: the caller may try another rule."""
    try:
        yield
    except NotLinearError:
        for name in names:
            diff.drop_function(name)
        raise


def _split_between(
    diff: Differentiation,
    name: str,
    halves: tuple[str, str],
    mask: str,
    ct_mask: str,
    linear: bool,
    constants: Constants,
    types: Sequence[Any],
) -> SplitFunction:
    forward, draft = halves
    block, draft_block = diff.block(forward), diff.block(draft)
    with build.inserting(ir.InsertionPoint.at_block_begin(block), diff.function(name).location):
        for index, value in constants:
            argument = block.arguments[index]
            argument.replace_all_uses_with(build.full(argument.type, value))
    loc = diff.function(forward).location
    wrt = _masked(block.arguments, mask)
    outs = list(terminator(block).operands)
    of_cts = [other or v.type for v, other in zip(outs, types or [None] * len(outs), strict=True)]
    for type in _masked(of_cts, ct_mask):
        draft_block.add_argument(type, loc)
    with build.inserting(ir.InsertionPoint(draft_block), loc):
        residuals = Residuals(block, None, lambda v: frame.current(v), diff.stores_all)
        frame = Reverse(diff, residuals, linear, hands_on=True)
        frame.analyze(block, wrt)
        for v, ct in zip(_masked(outs, ct_mask), draft_block.arguments, strict=True):
            if linear and v not in frame.active and not adds_nothing(v, diff.functions):
                raise _constant_tangent(diff, name, v)
            frame.seed(v, ct)
        frame.run()
        cts = [frame.cotangent(a) for a in wrt]
    chosen = residuals.choose(frame.compared)
    stored = [frame.current(v) for v in chosen]
    compared = [i for i, v in enumerate(chosen) if v in residuals.exact]
    kept = [i for i, v in enumerate(outs) if not (linear and v in frame.active)]
    now = list(terminator(block).operands)
    replace_terminator(block, [*(now[i] for i in kept), *stored])
    set_signature(diff.function(forward))
    backward = _finish_backward(diff, f"{name}.bwd", draft, chosen, residuals, cts)
    return SplitFunction(forward, backward, kept, [ct is not None for ct in cts], compared)


def split_entry(diff: Differentiation, entry: str, mask: str, ct_mask: str) -> str:
    """Split @entry in place; return the name of its backward function, which is an entry, too.

    It is `@entry.bwd` unless the module has a function of that name, and returns the cotangent of
    every masked argument, zeros included.
    """
    pair = split(diff, entry, mask, ct_mask)
    diff.take_place(pair.forward, entry)
    placements.note_results(diff.function(entry), diff.functions)
    block = diff.block(pair.backward)
    end = terminator(block)
    wrt = _masked(diff.block(entry).arguments, mask)
    found = iter(list(end.operands))
    with build.inserting(ir.InsertionPoint(end), end.location):
        cts = [next(found) if z else build.zeros(a.type) for a, z in zip(wrt, pair.nonzero)]
    _checked_types(cts, wrt)
    replace_terminator(block, cts)
    set_signature(diff.function(pair.backward))
    return diff.expose(pair.backward, f"{entry}.bwd")


def _finish_backward(
    diff: Differentiation,
    name: str,
    draft: str,
    chosen: list[Value],
    residuals: Residuals,
    cts: list[Value | None],
) -> str:
    """Settle the residuals of a draft, put them in front of its arguments, and rename it."""
    function, block = diff.function(draft), diff.block(draft)
    count, loc = len(block.arguments), function.location
    with build.inserting(ir.InsertionPoint(block), loc):
        # Before residuals settle, for a cotangent may be one of them, or one that was given.
        build.emit("func.return", (), [ct for ct in cts if ct is not None])
    residuals.settle({v: block.add_argument(v.type, loc) for v in chosen})
    keep_arguments(function, [*range(count, count + len(chosen)), *range(count)])
    name = diff.symbols.unique(name)
    diff.rename(draft, name)
    return name


def _drop_linear_part(
    diff: Differentiation, block: Any, mask: str, may_lose: int = 0
) -> frozenset[int]:
    """Erase the linear arguments and everything that depends on them; return the lost results.

    These are results, among the first `may_lose`, that depend on the arguments in another way than
    linearly. For a later result, that is an error.
    """
    erase_dead_ops(block, diff.functions)
    linear, stand_ins = _masked(block.arguments, mask), diff.stand_ins(block)
    if any(map(is_used, [*linear, *stand_ins])):
        erase_effects(diff, block, [*linear, *stand_ins])
        erase_dead_ops(block, diff.functions)
        stand_ins = diff.stand_ins(block)
    lost: frozenset[int] = frozenset()
    if any(map(is_used, [*linear, *stand_ins])):
        lost = _dependent(diff, block, [*linear, *stand_ins], may_lose)
    if lost:
        results = list(terminator(block).operands)
        replace_terminator(block, [v for i, v in enumerate(results) if i not in lost])
        erase_dead_ops(block, diff.functions)
        stand_ins = diff.stand_ins(block)
    forget_results(block.owner)
    drop_arguments(block.owner, linear)
    for zeros in stand_ins:
        zeros.replace_all_uses_with(zeros.owner.operands[0])
        erase(zeros.owner)
    return lost


def _dependent(
    diff: Differentiation, block: Any, linear: Sequence[Value], may_lose: int
) -> frozenset[int]:
    """Return the results that still depend on the linear input once the linear part is erased.

    Raises: NotLinearError for one behind the first `may_lose`.
    """
    found = dependents(linear, block, diff.functions)
    lost = frozenset(i for i, v in enumerate(terminator(block).operands) if v in found)
    if all(i < may_lose for i in lost):
        return lost
    users = [
        operation
        for operation in operations(block)
        if not found.isdisjoint([*operation.operands, *captures(operation)])
    ]
    leaving = [each for each in users if not all(inexact(r.type) for r in each.results)]
    operation = (leaving or users)[0]
    raise NotLinearError(
        f"cannot transpose: `{operation.name}` makes the result depend on the input in another "
        "way than linearly",
        where=user_line(operation.location),
        do=BE_LINEAR,
    )


def _constant_tangent(diff: Differentiation, name: str, v: Value) -> NotLinearError:
    made_by = diff.function(name) if isinstance(v, ir.BlockArgument) else v.owner
    return NotLinearError(
        f"cannot transpose `@{name}`: a result does not depend on the tangents and is not zero",
        where=user_line(made_by.location),
        do="make every tangent that the rule returns linear in the tangents it receives",
    )


def transpose(diff: Differentiation, name: str, mask: str, ct_mask: str) -> str:
    """Transpose a function that is linear in its masked arguments; return the new function's name.

    (args…) → (outs…) gives (args not masked…, cts of outs in ct_mask…) → (cts of masked args…).
    The cotangents that it returns may have other element types than the arguments.
    """

    def derive() -> str:
        return _transpose(diff, name, mask, ct_mask)

    return diff.cached(("transpose", name, mask, ct_mask), derive)


def _transpose(diff: Differentiation, name: str, mask: str, ct_mask: str) -> str:
    transposed = diff.clone_function(name, f"{name}.t")
    with _dropped_if_not_linear(diff, transposed):
        _transpose_in_place(diff, name, transposed, mask, ct_mask)
    return transposed


def _transpose_in_place(
    diff: Differentiation, name: str, transposed: str, mask: str, ct_mask: str
) -> None:
    function, block = diff.function(transposed), diff.block(transposed)
    loc = function.location
    wrt = _masked(block.arguments, mask)
    outs = list(terminator(block).operands)
    frame = Reverse(diff, identity, linear=True, hands_on=True)
    frame.analyze(block, wrt)
    with build.inserting(ir.InsertionPoint(terminator(block)), loc):
        for v, m in zip(outs, ct_mask, strict=True):
            if m == "1":
                if v not in frame.active and not adds_nothing(v, diff.functions):
                    raise _constant_tangent(diff, name, v)
                frame.accumulate(v, block.add_argument(v.type, loc))
        frame.run()
        cts = _cotangents(frame, wrt)
    _checked_types(cts, wrt)
    replace_terminator(block, cts)
    _drop_linear_part(diff, block, mask)


def _masked(values: Sequence[Value], mask: str) -> list[Value]:
    return masked(list(values)[: len(mask)], mask)
