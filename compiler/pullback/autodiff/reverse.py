"""Reverse mode as one sweep over a block, last op first, which accumulates cotangents.

`Reverse` is the frame that rules see. It serves four uses, which differ only in where the backward
ops go and in which values count as active:

- `vjp` in one function: after the primal ops, whose values it uses as they are;
- `vjp` split in two functions: primal values cross as residuals;
- `transpose` of a linear function: the active values are the linear ones, and every op on them must
  be linear;
- the split of a custom_jvp rule into its primal part and the transpose of its linear part.

Ops that have to change in order to give up their residuals (calls, loops, branches) are replaced
while the sweep passes them: all their users have been dealt with by then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from pullback._jax.inlining import inlined
from pullback.autodiff.activity import Active, analyze, numbered
from pullback.autodiff.checks import check_cotangents, is_custom_vjp, may_run_a_rule
from pullback.autodiff.diagonal import have_one_shape
from pullback.autodiff.pending import (
    ABSENT,
    WAITING,
    Masked,
    Wide,
    added,
    alike,
    as_given,
    emitted,
    handed_on,
)
from pullback.autodiff.registry import FarOp, InPlace, Op, Rule, jointly
from pullback.autodiff.specialized import (
    IN_REVERSE,
    Kind,
    Kinds,
    Reading,
    Record,
    specialize_reverse,
)
from pullback.autodiff.state import Differentiation
from pullback.autodiff.zeros import adds_nothing, is_nan
from pullback.errors import NotLinearError
from pullback.ir import build
from pullback.ir.build import Value, inexact
from pullback.ir.locations import user_line
from pullback.ir.regions import latest
from pullback_runtime.ir._erasure import retire


def identity(v: Value) -> Value:
    return v


class Reverse:
    """The reverse sweep over one block.

    Args:
      diff: the state of the pass.
      primal: maps a value of the primal block to one that backward ops may use.
      linear: transpose: an op that is not linear in its active operands is an error.
      hands_on: the caller accepts cotangents of other element types than their primals'.
    """

    def __init__(
        self,
        diff: Differentiation,
        primal: Callable[[Value], Value],
        linear: bool = False,
        hands_on: bool = False,
    ) -> None:
        self.diff = diff
        self.primal = primal
        self.record = Op if primal is identity else FarOp
        self.linear = linear
        self.hands_on = hands_on
        self.active: Active = {}
        self.cts: list[Any] = []  # of the active values
        self.records: list[Record] = []
        self.replaced: dict[Value, Value] = {}
        self.is_checked = True  # each cotangent is of a specialized rule, so of its operand's type
        self.compared: set[Value] = set()  # must not be recomputed: may differ

    def analyze(
        self, block: Any, active: Iterable[Value], kinds: Sequence[Kind] | None = None
    ) -> None:
        """Find what is active in `block`, given which values from outside are.

        These are all different if their kinds are known.
        """
        self.active = numbered(active)
        known: Kinds | None = None
        if not self.linear:
            known = [*kinds] if kinds else [None] * len(self.active)
        self.records = analyze(block, self.active, self, known)
        self.cts = [None] * len(self.active)

    def accumulate(self, v: Value, ct: Value | InPlace | None) -> None:
        """Add to the cotangent of a primal value, if it is active."""
        if ct is not None and (place := self.active.get(v)) is not None:
            self.cts[place] = added(self.cts[place], v, ct)

    def seed(self, v: Value, ct: Value) -> None:
        """Add a cotangent from outside of the block, which may have another element type."""
        self.accumulate(v, as_given(ct, v.type))

    def cotangent(self, v: Value) -> Value | None:
        """Return the cotangent of a primal value, when the sweep is over."""
        place = self.active.get(v)
        return None if place is None else self.cts[place]

    def run(self) -> None:  # noqa: C901 -- the hot loop: calls cost
        """Emit the cotangents of everything active, at the current place."""
        records, cts, here, known = self.records, self.cts, build.here, IN_REVERSE.known.get
        made: Any = here.made
        ip, primal = here.ip, None if self.record is Op else self.primal
        with ip:
            for record in reversed(records):
                if not isinstance(record, tuple):
                    self._run_rule(record)
                    continue
                signature, place, operation, values, places = record
                ct = cts[place]
                if ct is None:
                    continue
                cts[place] = masked = None
                loc = operation.location
                if ct.__class__ in WAITING:
                    if ct is ABSENT:
                        self._leave_out(places)
                        continue
                    if ct.__class__ is Wide:
                        if signature[0].hands_on:
                            cts[place] = ct
                            self._run_rule(self._op(record))
                            continue
                        ct = ct.narrowed()
                    if ct.__class__ is Masked and _is_elementwise(signature[0], values, places):
                        masked, ct = ct, ct.ct
                    else:
                        ct = emitted(ct)
                here.loc = loc
                function, takes, constants, gives = known(signature) or specialize_reverse(record)
                if function is None:
                    found: Iterable[Any] = itertools.repeat(masked or ct)
                else:
                    taken = takes(values)
                    if primal is not None and signature[0].compares:
                        self.compared.update(taken)
                    given = [ct, *(taken if primal is None else map(primal, taken))]
                    for constant in constants:
                        given.append(made.get(constant) or constant.make(made))
                    found = inlined(function, given, loc)
                    if masked is not None:
                        found = masked.through(found)
                for i, new in zip(gives, found):
                    place = places[i]
                    before = cts[place]
                    cts[place] = new if before is None else added(before, values[i + 1], new)
        records.clear()  # each refers to this frame, and no cycle shall outlive it
        self._settle()

    def _op(self, reading: Reading) -> Op:
        """Return the op of a reading, for a rule that runs for this op alone."""
        (rule, *_), _, operation, (result, *operands), places = reading
        flags = [place is not None for place in places]
        return self.record(operation, operands, [result], flags, rule, self)

    def _run_rule(self, op: Op) -> None:
        """Emit what one op adds to the cotangents of its operands."""
        self.is_checked = False
        given = [self._taken(r) for r in op.results]
        if all(ct is None for ct in given):
            return
        build.here.loc = op.operation.location
        if self.linear:
            self._check_linear(op)
        if op.rule.compares:
            self.compared.update((*op.operands, *op.results))
        left_out = all(ct is None or ct is ABSENT for ct in given)
        if left_out and not may_run_a_rule(op):
            self._leave_out(map(self.active.get, op.operands))
            return
        found = list(zip(op.operands, op.active, _pulled_back(op, given, left_out)))
        for v, active, ct in found:
            self.accumulate(v, ct if active else None)
        if not self.linear and (left_out or is_custom_vjp(op.operation)):
            self._leave_out(self.active[v] for v, active, ct in found if active and ct is None)

    def _taken(self, v: Value) -> Any:
        """Take the cotangent of a primal value out of `cts` and return it."""
        place = self.active.get(v)
        if place is None:
            return None
        ct, self.cts[place] = self.cts[place], None
        return ct

    def _leave_out(self, places: Iterable[int | None]) -> None:
        """Mark operands without a cotangent as `ABSENT`, as that of the result is."""
        for place in places:
            if place is not None and self.cts[place] is None:
                self.cts[place] = ABSENT

    def _settle(self) -> None:
        """Emit deferred cotangents, and replace the results of replaced ops in all of them.

        A cotangent may be a primal value: a rule may return a residual.
        """
        cts = self.cts
        for place in [i for i, ct in enumerate(cts) if ct.__class__ in WAITING]:
            ct = cts[place]
            cts[place] = emitted(ct.ct) if self.hands_on and ct.__class__ is Wide else ct.emit()
        if self.replaced:
            cts[:] = [None if ct is None else self.current(ct) for ct in cts]
        for old in self.replaced:
            old.replace_all_uses_with(self.current(old))

    def _check_linear(self, op: Op) -> None:
        if not op.rule.linear(op.active):
            raise _not_linear(op, f"`{op.name}` is not linear in its operands")
        if op.rule.linear is jointly and op.rule.family != "control":
            check_no_term(op, range(len(op.operands)), op.name)

    def residuals(self, values: Sequence[Value], compared: Iterable[int]) -> list[Value]:
        """Return the backward values of what a forward function stores as residuals.

        Those at `compared` must not be rematerialized: see `Residuals.choose`.
        """
        self.compared.update(values[i] for i in compared)
        return list(map(self.primal, values))

    def replace(self, op: Op, new: Sequence[Value]) -> None:
        """Replace the results of an op; the op leaves the block, but its results stay keys."""
        for old, v in zip(op.results, new, strict=True):
            old.replace_all_uses_with(v)
            self.replaced[old] = v
        retire(op.operation)

    def current(self, v: Value) -> Value:
        """Return what stands for a primal value now."""
        return latest(v, self.replaced)

    def assert_carried(self, values: Iterable[Value]) -> None:
        """Assert that no active value but those in `values` has a cotangent: it would be lost."""
        carried = set(values)
        lost = [v for v, i in self.active.items() if self.cts[i] is not None and v not in carried]
        assert not lost, f"cotangents that nothing carries on: {lost}"


def _pulled_back(op: Op, given: Sequence[Any], left_out: bool) -> Sequence[Any]:
    """Return the cotangents of an op's operands, which its rule makes of those of its results."""
    if any(ct.__class__ is Wide for ct in given):
        given = _other_types(op, given)
    masked, cts = (None, given) if op.rule.chooses else _unmasked(op, given)
    build.here.loc = op.operation.location
    if left_out and not is_custom_vjp(op.operation):
        pairs = zip(op.results, given, strict=True)
        cts = [None if ct is None else build.zeros_like(v) for v, ct in pairs]
    found = op.rule.vjp(op, cts)
    if op.rule.checked:
        check_cotangents(op, found)
    if masked is not None:
        found = masked.through(found)
    if op.rule.hands_on and (op.wide or op.rule.family == "control"):
        found = handed_on(op, found)
    return found


def _other_types(op: Op, cts: Sequence[Any]) -> list[Any]:
    """Convert cotangents with other element types to what the rule of the op takes."""
    if op.rule.chooses:
        return list(cts)
    if not op.rule.hands_on:
        return [ct.narrowed() if ct.__class__ is Wide else ct for ct in cts]
    op.wide = [ct.own_type if ct.__class__ is Wide else None for ct in cts]
    return [ct.ct if ct.__class__ is Wide else ct for ct in cts]


BE_LINEAR = (
    "make the rule (or the function to transpose) linear in its tangents or cotangents: sums of "
    "them times factors that do not depend on them; for an iterative solver, "
    "jax.lax.custom_linear_solve says what it solves"
)


def _is_elementwise(rule: Rule, values: Sequence[Value], places: Sequence[int | None]) -> bool:
    """Return True if a rule acts element by element on these values: a result, and operands."""
    if rule.alike or not rule.elementwise:
        return rule.alike
    result, *operands = values
    moving = (v for v, place in zip(operands, places, strict=True) if place is not None)
    return have_one_shape([result, *moving])


def _unmasked(op: Op, given: Sequence[Any]) -> tuple[Masked | None, list[Any]]:
    """Return the cotangents for a rule, and their mask if it is to be applied after the rule."""
    masked = alike(given)
    if masked is not None:
        bare = [None if ct is None else ct.ct for ct in given]
        if op.rule.diagonal is not None:
            is_elementwise = op.rule.diagonal(op, bare)
        else:
            places = [0 if active else None for active in op.active]
            is_elementwise = _is_elementwise(op.rule, [*op.results[:1], *op.operands], places)
        if is_elementwise:
            return masked, bare
    return None, list(map(emitted, given))


_MARK_WITH_NAN = frozenset({"stablehlo.select", "stablehlo.pad"})
"""JAX puts NaN where the index of a gather is outside, and where a kernel is not to read."""


def check_no_term(op: Op, positions: Sequence[int], name: str) -> None:
    """Raise NotLinearError if one of these operands adds a term, which makes a linear op affine.

    The op is jointly linear in these operands; `name` is that of what it computes.
    """
    functions = op.frame.diff.functions
    for i in positions:
        v = op.operands[i]
        if op.active[i] or not inexact(v.type) or adds_nothing(v, functions):
            continue
        if op.name not in _MARK_WITH_NAN or not is_nan(v, functions):
            why = f"adds a term to it (operand {i}) that does not depend on the input"
            raise _not_linear(op, f"`{name}` {why}")


def check_handed_on(op: Op, v: Value, active: Container[Value], what: str) -> None:
    """Raise NotLinearError if a value that control flow returns makes a linear op affine.

    `what` names the value in words.
    """
    functions = op.frame.diff.functions
    if v in active or adds_nothing(v, functions) or is_nan(v, functions):
        return
    raise _not_linear(op, f"{what} of `{op.name}` does not depend on the input and is not zero")


def _not_linear(op: Op, why: str) -> NotLinearError:
    where = user_line(op.operation.location)
    return NotLinearError(f"cannot transpose: {why}", where=where, do=BE_LINEAR)
