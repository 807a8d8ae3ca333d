"""Reverse mode as one direct sweep: cotangents of a block, last op first.

`Reverse` is the frame that rules see. It serves four uses, which differ only in where the backward
ops go and in which values count as active:

- `vjp` in one function: behind the primal ops, which it reaches as they are;
- `vjp` split in two functions: primal values cross as residuals;
- `transpose` of a linear function: the active values are the linear ones, and every op on them must
  be linear;
- the split of a custom_jvp rule into its primal part and the transpose of its linear part.

Ops that have to change in order to give up their residuals (calls, loops, branches) are replaced
while the sweep passes them: all their users have been dealt with by then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback._errors import MissingRuleError, NotLinearError
from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value, inexact
from pullback.frontend.locations import user_line
from pullback.passes.activity import analyze
from pullback.passes.checks import check_count, check_type
from pullback.passes.dead_ops import erase_dead_ops
from pullback.passes.dependence import Dependence
from pullback.passes.differentiation import Differentiation
from pullback.passes.purity import is_used
from pullback.passes.regions import captures, latest, operations, replace_terminator, terminator
from pullback.passes.residuals import Residuals
from pullback.passes.signatures import lose_arguments, set_signature
from pullback.passes.zeros import is_nan, is_zero
from pullback.rules.parts import joined
from pullback.rules.registry import FarOp, InPlace, Op, jointly


def identity(v: Value) -> Value:
    return v


class Gathered:
    """Contributions to a cotangent, some of them in place: they wait until it is asked for.

    Those that do not meet, and so may lie side by side, are known by then.
    """

    __slots__ = ("loc", "places", "type", "value")

    def __init__(self, type: Any, value: Value | None, first: InPlace) -> None:
        self.type = type
        self.value = value
        self.places = [first]
        self.loc = build.here.loc

    def add(self, ct: Value | InPlace) -> None:
        if ct.__class__ is InPlace:
            self.places.append(ct)
        else:
            self.value = build.add(self.value, ct)

    def emit(self) -> Value:
        build.here.loc = self.loc
        parts = [place.part for place in self.places if place.part is not None]
        if self.value is None and len(parts) == len(self.places) > 1:
            whole = joined(parts, self.type)
            if whole is not None:
                return whole
        total = build.zeros(self.type) if self.value is None else self.value
        for place in self.places:
            total = place.update(total)
        return total


def _emitted(ct: Value | Gathered | None) -> Value | None:
    return ct.emit() if ct.__class__ is Gathered else ct


class Reverse:
    """The reverse sweep over one block.

    Args:
      diff: the state of the pass.
      primal: maps a value of the primal block to one that backward ops may use.
      linear: transpose: an op that is not linear in its active operands is an error.
    """

    def __init__(
        self, diff: Differentiation, primal: Callable[[Value], Value], linear: bool = False
    ) -> None:
        self.diff = diff
        self.primal = primal
        self.record = Op if primal is identity else FarOp
        self.linear = linear
        self.active: set[Value] = set()
        self.cts: dict[Value, Value] = {}
        self.records: list[Op] = []
        self.replaced: dict[Value, Value] = {}

    def analyze(self, block: Any, active: Sequence[Value]) -> None:
        """Find what is active in `block`, given which values from outside are."""
        self.active = set(active)
        self.records = analyze(block, self.active, self)

    def accumulate(self, v: Value, ct: Value | InPlace | None) -> None:
        """Add to the cotangent of a primal value, if it is active."""
        if ct is not None and v in self.active:
            self._add(v, ct)

    def _add(self, v: Value, ct: Value | InPlace) -> None:
        known = self.cts.get(v)
        if known.__class__ is Gathered:
            known.add(ct)
        elif ct.__class__ is InPlace:
            self.cts[v] = Gathered(v.type, known, ct)
        else:
            self.cts[v] = ct if known is None else build.add(known, ct)

    def run(self) -> None:
        """Emit the cotangents of everything active, at the current place."""
        here, records, known, take = build.here, self.records, self.cts, self.cts.pop
        while records:  # consumed: each refers to this frame, and no cycle shall outlive it
            op = records.pop()
            results, rule = op.results, op.rule
            if len(results) == 1:
                ct = take(results[0], None)
                if ct is None:
                    continue
                cts: Sequence[Any] = (ct.emit() if ct.__class__ is Gathered else ct,)
            else:
                cts = [_emitted(take(r, None)) for r in results]
                if all(ct is None for ct in cts):
                    continue
            here.loc = op.operation.location
            if self.linear:
                self._check_linear(op)
            found = rule.vjp(op, cts)
            if rule.checked:
                self._check(op, found)
            for v, active, ct in zip(op.operands, op.active, found):
                if ct is None or not active:
                    continue
                if v in known or ct.__class__ is InPlace:
                    self._add(v, ct)
                else:
                    known[v] = ct
        self._settle()

    def _settle(self) -> None:
        """Emit what waits; what was replaced before something used it, is so there as well.

        A cotangent may be a primal value: a rule may return a residual.
        """
        for v, ct in self.cts.items():
            self.cts[v] = self.current(_emitted(ct))
        for old in self.replaced:
            old.replace_all_uses_with(self.current(old))

    @staticmethod
    def _check(op: Op, found: Sequence[Any]) -> None:
        check_count(op, found, len(op.operands), "cotangent")
        for v, ct in zip(op.operands, found, strict=True):
            if ct is not None and not isinstance(ct, InPlace):
                check_type(op, ct, v.type, "cotangent")

    def _check_linear(self, op: Op) -> None:
        reason = None
        if not op.rule.linear(op.active):
            reason = "is not linear in its operands"
        elif (offset := _offset(op)) is not None:
            reason = f"adds a term to it (operand {offset}) that does not depend on the input"
        if reason is not None:
            raise NotLinearError(
                f"cannot transpose: `{op.name}` {reason}",
                where=user_line(op.operation.location),
                do=_BE_LINEAR,
            )

    def replace(self, op: Op, new: Sequence[Value]) -> None:
        """Put new results in the place of an op's; the op leaves the block but stays a key."""
        for old, v in zip(op.results, new, strict=True):
            old.replace_all_uses_with(v)
            self.replaced[old] = v
        self.diff.detach(op.operation)

    def current(self, v: Value) -> Value:
        """What stands for a primal value now."""
        return latest(v, self.replaced)

    def assert_carried(self, values: Iterable[Value]) -> None:
        """Asserts that whoever ran the sweep carries on every cotangent, with those of `values`."""
        lost = self.cts.keys() - set(values)
        assert not lost, f"cotangents that nothing carries on: {lost}"


_BE_LINEAR = (
    "make the rule (or the function to transpose) linear in its tangents or cotangents: sums of "
    "them times factors that do not depend on them; for an iterative solver, "
    "jax.lax.custom_linear_solve says what it solves"
)


_MARK_WITH_NAN = frozenset({"stablehlo.select", "stablehlo.pad"})
"""JAX puts NaN where the index of a gather is outside, and where a kernel is not to read."""


def _offset(op: Op) -> int | None:
    """The first operand that makes a linear op affine, if there is one."""
    if op.rule.linear is not jointly or op.rule.family == "control":
        return None
    functions = op.frame.diff.functions
    for i, (v, active) in enumerate(zip(op.operands, op.active, strict=True)):
        if active or not inexact(v.type) or is_zero(v, functions):
            continue
        if op.name not in _MARK_WITH_NAN or not is_nan(v):
            return i
    return None


# ------------------------------------------------------------------------- whole functions


@dataclass(frozen=True)
class Split:
    """A function cut in two.

    forward: (args…) → (kept outs…, residuals…); backward: (residuals…, cts…) → (cts of args…),
    one for each masked argument flagged in `nonzero`. `kept` are positions among the outs.
    """

    forward: str
    backward: str
    kept: list[int]
    nonzero: list[bool]


def vjp_in_place(
    diff: Differentiation,
    name: str,
    mask: str,
    ct_mask: str,
    seed: Callable[[Value], Value] | None = None,
) -> None:
    """(args…) → (outs…) becomes (args…, cts…) → (outs…, cts of masked args…).

    With `seed`, cotangents are computed from the outs instead of being arguments.
    """
    function, block = diff.function(name), diff.block(name)
    arguments, taken = list(block.arguments), block.arguments.types
    outs = list(terminator(block).operands)
    given = [out.type for out in outs]
    frame = Reverse(diff, identity)
    wrt = _masked(arguments, mask)
    frame.analyze(block, wrt)
    loc = function.location
    with build.inserting(ir.InsertionPoint(terminator(block)), loc):
        for out, type in zip(_masked(outs, ct_mask), _masked(given, ct_mask), strict=True):
            frame.accumulate(out, seed(out) if seed else block.add_argument(type, loc))
        frame.run()
        cts = [_cotangent_of(a, frame) for a in wrt]
    replace_terminator(block, [*terminator(block).operands, *cts])
    seeds = [] if seed else _masked(given, ct_mask)
    set_signature(function, [*taken, *seeds], [*given, *_masked(taken, mask)])


def _cotangent_of(argument: Value, frame: Reverse) -> Value:
    """The cotangent of a function's argument, which has its type."""
    ct = build.instantiate(frame.cts.get(argument), argument)
    if ct.type != argument.type:  # of an op, one operand may be static, and another dynamic
        raise MissingRuleError(
            f"no derivative by an argument of type {argument.type} whose cotangent has type "
            f"{ct.type}",
            where=user_line(argument.owner.owner.location),
            do=build.REFINE_SHAPES,
        )
    return ct


Constants = tuple[tuple[int, float], ...]  # (position of an argument, value of its elements)


def split(
    diff: Differentiation,
    name: str,
    mask: str,
    ct_mask: str,
    linear: bool = False,
    constants: Constants = (),
    may_lose: bool = False,
) -> Split:
    """Forward and backward functions of @name; derived once per (mask, cotangent mask).

    With `linear`, the masked arguments are the linear ones: forward loses them, and the results
    that depend on them linearly. One that does in another way is an error, or with `may_lose` lost
    as well. `constants` are arguments whose elements are all of one known value.
    """

    def derive() -> Split:
        return _split(diff, name, mask, ct_mask, linear, constants, may_lose)

    return diff.cached(("split", name, mask, ct_mask, linear, str(constants), may_lose), derive)


def _split(
    diff: Differentiation,
    name: str,
    mask: str,
    ct_mask: str,
    linear: bool,
    constants: Constants,
    may_lose: bool,
) -> Split:
    forward = diff.clone_function(name, f"{name}.fwd")
    draft, _ = diff.add_function(f"{name}.bwd.draft", (), (), diff.function(name).location)
    with _dropped_if_not_linear(diff, draft, forward):
        pair = _split_between(diff, name, (forward, draft), mask, ct_mask, linear, constants)
    if linear:  # only now: what backward computes again may be dead in forward
        with _dropped_if_not_linear(diff, pair.backward, forward):
            count = len(pair.kept) if may_lose else 0
            lost = _drop_linear_part(diff, diff.block(forward), mask, count)
        pair = replace(pair, kept=[k for i, k in enumerate(pair.kept) if i not in lost])
    set_signature(diff.function(forward))
    return pair


@contextlib.contextmanager
def _dropped_if_not_linear(diff: Differentiation, *names: str) -> Iterator[None]:
    """Leaves nothing half done behind: who asked may know another way."""
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
) -> Split:
    forward, draft = halves
    block, draft_block = diff.block(forward), diff.block(draft)
    with build.inserting(ir.InsertionPoint.at_block_begin(block), diff.function(name).location):
        for index, value in constants:
            argument = block.arguments[index]
            argument.replace_all_uses_with(build.full(argument.type, value))
    loc = diff.function(forward).location
    wrt = _masked(block.arguments, mask)
    outs = list(terminator(block).operands)
    for v in _masked(outs, ct_mask):
        draft_block.add_argument(v.type, loc)
    with build.inserting(ir.InsertionPoint(draft_block), loc):
        anchor = build.emit("builtin.unrealized_conversion_cast", [build.scalar("i1")], ())
        residuals = Residuals(block, anchor, lambda v: None, lambda v: frame.current(v))
        frame = Reverse(diff, residuals, linear)
        frame.analyze(block, wrt)
        for v, ct in zip(_masked(outs, ct_mask), draft_block.arguments, strict=True):
            if linear and v not in frame.active and not is_zero(v, diff.functions):
                raise _constant_tangent(diff, name, v)
            frame.accumulate(v, ct)
        frame.run()
        cts = [frame.cts.get(a) for a in wrt]
    chosen = residuals.choose()
    stored = [frame.current(v) for v in chosen]
    kept = [i for i, v in enumerate(outs) if not (linear and v in frame.active)]
    now = list(terminator(block).operands)
    replace_terminator(block, [*(now[i] for i in kept), *stored])
    backward = _finish_backward(diff, f"{name}.bwd", draft, chosen, residuals, anchor, cts)
    return Split(forward, backward, kept, [ct is not None for ct in cts])


def split_entry(diff: Differentiation, entry: str, mask: str, ct_mask: str) -> str:
    """Split @entry in place; the name of its backward function, which gives every masked ct.

    It is `@entry.bwd` unless the module has a function of that name, and an entry itself.
    """
    pair = split(diff, entry, mask, ct_mask)
    diff.take_place(pair.forward, entry)
    block = diff.block(pair.backward)
    end = terminator(block)
    wrt = _masked(diff.block(entry).arguments, mask)
    found = iter(list(end.operands))
    with build.inserting(ir.InsertionPoint(end), end.location):
        cts = [next(found) if z else build.zeros(a.type) for a, z in zip(wrt, pair.nonzero)]
    replace_terminator(block, cts)
    set_signature(diff.function(pair.backward))
    return diff.expose(pair.backward, f"{entry}.bwd")


def _finish_backward(
    diff: Differentiation,
    name: str,
    draft: str,
    chosen: list[Value],
    residuals: Residuals,
    anchor: Any,
    cts: list[Value | None],
) -> str:
    """Move the draft's ops under a signature with the residuals in front."""
    draft_block = diff.block(draft)
    ct_arguments = list(draft_block.arguments)
    loc = diff.function(draft).location
    with build.inserting(ir.InsertionPoint(draft_block), loc):
        # Before residuals settle, for a cotangent may be one of them, or one that was given.
        build.emit("func.return", (), [ct for ct in cts if ct is not None])
    types = [v.type for v in (*chosen, *ct_arguments)]
    name, block = diff.add_function(name, types, [], loc)
    arguments = list(block.arguments)
    for old, new in zip(ct_arguments, arguments[len(chosen) :], strict=True):
        old.replace_all_uses_with(new)
    residuals.settle(dict(zip(chosen, arguments, strict=False)))
    anchor.erase()
    for view in list(draft_block.operations):
        block.append(view.operation)
    diff.drop_function(draft)
    set_signature(diff.function(name))
    return name


def _drop_linear_part(
    diff: Differentiation, block: Any, mask: str, may_lose: int = 0
) -> frozenset[int]:
    """Erase the linear arguments and everything that only depended on them.

    Of so many leading results, those that depend on them in another way go as well; which these
    are. Among the other results it is an error.
    """
    erase_dead_ops(block, diff.functions)
    linear, stand_ins = _masked(block.arguments, mask), diff.stand_ins(block)
    lost: frozenset[int] = frozenset()
    if any(map(is_used, [*linear, *stand_ins])):
        lost = _dependent(diff, block, [*linear, *stand_ins], may_lose)
    if lost:
        results = list(terminator(block).operands)
        replace_terminator(block, [v for i, v in enumerate(results) if i not in lost])
        erase_dead_ops(block, diff.functions)
        stand_ins = diff.stand_ins(block)
    with build.inserting(ir.InsertionPoint.at_block_begin(block)):
        for argument in reversed(linear):
            if is_used(argument):
                argument.replace_all_uses_with(build.zeros(argument.type))
            block.erase_argument(argument.arg_number)
    lose_arguments(block.owner, mask)
    for zeros in stand_ins:
        zeros.replace_all_uses_with(zeros.owner.operands[0])
        zeros.owner.erase()
    return lost


def _dependent(
    diff: Differentiation, block: Any, linear: Sequence[Value], may_lose: int
) -> frozenset[int]:
    """The results that depend on the input of a linear function, which has lost its linear part.

    Raises: NotLinearError for one behind the first `may_lose`.
    """
    found = set(linear)
    Dependence(diff.functions).spread(block, found)
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
        do=_BE_LINEAR,
    )


def _constant_tangent(diff: Differentiation, name: str, v: Value) -> NotLinearError:
    made_by = diff.function(name) if isinstance(v, ir.BlockArgument) else v.owner
    return NotLinearError(
        f"cannot transpose `@{name}`: a result does not depend on the tangents and is not zero",
        where=user_line(made_by.location),
        do="make every tangent that the rule returns linear in the tangents it receives",
    )


def transpose(diff: Differentiation, name: str, mask: str, ct_mask: str) -> str:
    """The transpose of a function linear in its masked arguments, as a function.

    (args…) → (outs…) gives (args not masked…, cts of outs in ct_mask…) → (cts of masked args…).
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
    frame = Reverse(diff, identity, linear=True)
    frame.analyze(block, wrt)
    with build.inserting(ir.InsertionPoint(terminator(block)), loc):
        for v, m in zip(outs, ct_mask, strict=True):
            if m == "1":
                if v not in frame.active and not is_zero(v, diff.functions):
                    raise _constant_tangent(diff, name, v)
                frame.accumulate(v, block.add_argument(v.type, loc))
        frame.run()
        cts = [_cotangent_of(a, frame) for a in wrt]
    replace_terminator(block, cts)
    _drop_linear_part(diff, block, mask)
    set_signature(function)


def _masked(values: Sequence[Value], mask: str) -> list[Value]:
    return [v for v, m in zip(list(values)[: len(mask)], mask, strict=True) if m == "1"]
