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

import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from pullback._errors import NotLinearError
from pullback._jax.inlining import inlined
from pullback.dialect import build
from pullback.dialect.build import Value, inexact
from pullback.frontend.locations import user_line
from pullback.passes.activity import Active, analyze, numbered
from pullback.passes.checks import check_cotangents
from pullback.passes.differentiation import Differentiation
from pullback.passes.regions import latest
from pullback.passes.specialized import IN_REVERSE, Kinds, Record, specialize_reverse
from pullback.passes.zeros import adds_nothing, is_nan
from pullback.rules.parts import summed
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
        return summed(self.value, self.places, self.type)


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
        self.active: Active = {}
        self.cts: list[Any] = []  # of the active values
        self.records: list[Record] = []
        self.replaced: dict[Value, Value] = {}

    def analyze(self, block: Any, active: Iterable[Value], kinds: Kinds | None = None) -> None:
        """Find what is active in `block`, given which values from outside are.

        These are all different if their kinds are known.
        """
        self.active = numbered(active)
        known = None if self.linear else list(kinds or [None] * len(self.active))
        self.records = analyze(block, self.active, self, known)
        self.cts = [None] * len(self.active)

    def accumulate(self, v: Value, ct: Value | InPlace | None) -> None:
        """Add to the cotangent of a primal value, if it is active."""
        if ct is not None and (place := self.active.get(v)) is not None:
            self._add(place, v, ct)

    def cotangent(self, v: Value) -> Value | None:
        """The cotangent of a primal value, as far as the sweep has come."""
        place = self.active.get(v)
        return None if place is None else self.cts[place]

    def _add(self, place: int, v: Value, ct: Value | InPlace) -> None:
        known = self.cts[place]
        if known.__class__ is Gathered:
            known.add(ct)
        elif ct.__class__ is InPlace:
            self.cts[place] = Gathered(v.type, known, ct)
        else:
            self.cts[place] = ct if known is None else build.add(known, ct)

    def run(self) -> None:
        """Emit the cotangents of everything active, at the current place."""
        records, cts, here, known = self.records, self.cts, build.here, IN_REVERSE.known.get
        made: Any = here.made
        ip, primal = here.ip, None if self.record is Op else self.primal
        with ip:
            while records:  # consumed: each refers to this frame, and no cycle shall outlive it
                record = records.pop()
                if isinstance(record, Op):
                    self._run_rule(record)
                    continue
                signature, place, operation, values, places = record
                ct = cts[place]
                if ct is None:
                    continue
                cts[place] = None
                if ct.__class__ is Gathered:
                    ct = ct.emit()
                function, takes, constants, gives = known(signature) or specialize_reverse(record)
                here.loc = loc = operation.location
                if function is None:
                    found: Iterable[Value] = itertools.repeat(ct)
                else:
                    taken = takes(values)
                    given = [ct, *(taken if primal is None else map(primal, taken))]
                    for constant in constants:
                        given.append(made.get(constant) or constant.make(made))
                    found = inlined(function, given, loc)
                for i, new in zip(gives, found):
                    place = places[i]
                    if cts[place] is None:
                        cts[place] = new
                    else:
                        self._add(place, values[i + 1], new)
        self._settle()

    def _run_rule(self, op: Op) -> None:
        """Emit what one op adds to the cotangents of its operands."""
        places = [self.active.get(r) for r in op.results]
        given = [None if place is None else self.cts[place] for place in places]
        if all(ct is None for ct in given):
            return
        cts = [_emitted(ct) for ct in given]
        for place in places:
            if place is not None:
                self.cts[place] = None
        build.here.loc = op.operation.location
        if self.linear:
            self._check_linear(op)
        found = op.rule.vjp(op, cts)
        if op.rule.checked:
            check_cotangents(op, found)
        for v, active, ct in zip(op.operands, op.active, found):
            if ct is not None and active:
                self._add(self.active[v], v, ct)

    def _settle(self) -> None:
        """Emit what waits; what was replaced before something used it, is so there as well.

        A cotangent may be a primal value: a rule may return a residual.
        """
        for place, ct in enumerate(self.cts):
            if ct is not None and (self.replaced or ct.__class__ is Gathered):
                self.cts[place] = self.current(_emitted(ct))
        for old in self.replaced:
            old.replace_all_uses_with(self.current(old))

    def _check_linear(self, op: Op) -> None:
        if not op.rule.linear(op.active):
            raise _not_linear(op, f"`{op.name}` is not linear in its operands")
        if op.rule.linear is jointly and op.rule.family != "control":
            check_no_term(op, range(len(op.operands)), op.name)

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
        carried = set(values)
        lost = [v for v, i in self.active.items() if self.cts[i] is not None and v not in carried]
        assert not lost, f"cotangents that nothing carries on: {lost}"


BE_LINEAR = (
    "make the rule (or the function to transpose) linear in its tangents or cotangents: sums of "
    "them times factors that do not depend on them; for an iterative solver, "
    "jax.lax.custom_linear_solve says what it solves"
)


_MARK_WITH_NAN = frozenset({"stablehlo.select", "stablehlo.pad"})
"""JAX puts NaN where the index of a gather is outside, and where a kernel is not to read."""


def check_no_term(op: Op, positions: Sequence[int], name: str) -> None:
    """Raises NotLinearError if one of these operands makes an op affine that is linear in them all.

    `name` is that of what the op computes.
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
    """Raises NotLinearError if a value that control flow hands on makes a linear op affine.

    `what` names the value in words.
    """
    functions = op.frame.diff.functions
    if v in active or adds_nothing(v, functions) or is_nan(v, functions):
        return
    raise _not_linear(op, f"{what} of `{op.name}` does not depend on the input and is not zero")


def _not_linear(op: Op, why: str) -> NotLinearError:
    where = user_line(op.operation.location)
    return NotLinearError(f"cannot transpose: {why}", where=where, do=BE_LINEAR)
