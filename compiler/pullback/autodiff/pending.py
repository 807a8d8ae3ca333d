"""Cotangents that are not emitted yet, for what comes next may change how."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pullback.autodiff.registry import InPlace, Op
from pullback.autodiff.slices import summed
from pullback.ir import build
from pullback.ir.build import Value


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

    def add(self, ct: Value | Waiting | InPlace) -> None:
        if ct.__class__ is InPlace:
            self.places.append(ct)
        elif ct.__class__ is Gathered and ct.type == self.type:
            self.places += ct.places
            self.value = build.add(self.value, ct.value)
        else:
            self.value = build.add(self.value, emitted(ct))

    def emit(self) -> Value:
        build.here.loc = self.loc
        return summed(self.value, self.places, self.type)


Mask = tuple[Value, bool]
"""A predicate, and what it says where there is a cotangent."""


class Masked:
    """The cotangent of what a `select` takes in some places only: zero in the others.

    These become zero behind the elementwise ops that it goes through, not in front of them. Where
    what is not taken has an infinite slope, or NaN, zero times that would be NaN.
    """

    __slots__ = ("_value", "ct", "loc", "masks")

    def __init__(self, ct: Value, masks: tuple[Mask, ...]) -> None:
        self.ct = ct
        self.masks = masks  # outer ones first
        self.loc = build.here.loc
        self._value: Value | None = None

    def emit(self) -> Value:
        if self._value is None:
            self._value = self.within(0)
        return self._value

    def within(self, count: int) -> Value:
        """The cotangent where so many of the outer masks are not looked at."""
        build.here.loc, found = self.loc, self.ct
        for predicate, taken in reversed(self.masks[count:]):
            either = (found, None) if taken else (None, found)
            found = build.select(predicate, *either)
        return found

    def through(self, cts: Any) -> list[Masked | None]:
        """What an elementwise op makes of it, given what it makes of `ct`."""
        return [None if ct is None else self._on(ct) for ct in cts]

    def _on(self, ct: Any) -> Any:
        """The same masks on another cotangent."""
        return Wide(self._on(ct.ct), ct.type) if ct.__class__ is Wide else Masked(ct, self.masks)


class Wide:
    """A cotangent with another element type than its primal value, such as f32 for f16.

    A backward rule of the user's may return one, and JAX hands it on. Ops that only move or add
    elements do so here, too. Where it meets arithmetic with primal values, it is converted.

    Attributes:
      ct: the cotangent in its own type; it may wait.
      type: that of the primal value.
    """

    __slots__ = ("_value", "ct", "loc", "type")

    def __init__(self, ct: Value | Gathered | Masked, type: Any) -> None:
        self.ct = ct
        self.type = type
        self.loc = build.here.loc
        self._value: Value | None = None

    @property
    def own_type(self) -> Any:
        """The type of the cotangent."""
        ct: Any = self.ct.ct if isinstance(self.ct, Masked) else self.ct
        return ct.type

    def emit(self) -> Value:
        if self._value is None:
            self._value = emitted(self.narrowed())
        return self._value

    def narrowed(self) -> Value | Masked:
        """The cotangent in the type of its primal value."""
        ct: Any = self.ct
        if ct.__class__ is Masked:
            return Masked(build.converted(ct.ct, self.type), ct.masks)
        ct = emitted(ct)
        build.here.loc = self.loc
        return build.converted(ct, self.type)


class Total:
    """What a loop has added to a cotangent so far: an argument of its body.

    Its type is that of the first contribution.
    """

    __slots__ = ("argument",)

    def __init__(self, argument: Value) -> None:
        self.argument = argument

    def emit(self) -> Value:
        return self.argument

    def add(self, ct: Wide) -> Wide:
        self.argument.set_type(ct.own_type)
        return Wide(_sum(self.argument, ct.ct), ct.type)


class Absent:
    """The cotangent that a `custom_vjp` rule leaves out, or says to be zero.

    In JAX those are zeros like others: a rule that they come to runs, and what it returns may not
    be zero. So the call of a rule has to know that they are there.
    """

    def emit(self) -> None:
        return None


ABSENT = Absent()
WAITING: frozenset[Any] = frozenset({Gathered, Masked, Wide, Total, Absent})
Waiting = Gathered | Masked | Wide | Total | Absent


def emitted(ct: Any) -> Any:
    """The value of a cotangent, which may wait; None if there is none."""
    return ct.emit() if ct.__class__ in WAITING else ct


def chosen(ct: Any, predicate: Value, taken: bool) -> Any:
    """The cotangent of an operand of a `select`, of that of the result."""
    if ct.__class__ is Wide:
        return Wide(chosen(ct.ct, predicate, taken), ct.type)
    if ct.__class__ is Masked:
        return Masked(ct.ct, (*ct.masks, (predicate, taken)))
    return Masked(emitted(ct), ((predicate, taken),))


def bare(ct: Any) -> Any:
    """Return the value of a cotangent in its own type and without its masks, or None."""
    if ct.__class__ is Wide or ct.__class__ is Masked:
        return bare(ct.ct)
    return emitted(ct)


def waiting_like(ct: Any, v: Value | None) -> Any:
    """Return the cotangent that a value is, if it stands for what is `bare` of another one."""
    if ct.__class__ is Wide:
        return Wide(waiting_like(ct.ct, v), ct.type)
    return Masked(v, ct.masks) if ct.__class__ is Masked else v


def alike(cts: Sequence[Any]) -> Masked | None:
    """Return a cotangent of these if all that are there have the same masks, None otherwise."""
    present = [ct for ct in cts if ct is not None]
    if any(ct.__class__ is not Masked or ct.masks != present[0].masks for ct in present):
        return None
    return present[0] if present else None


def as_given(ct: Value, type: Any) -> Value | Wide:
    """A cotangent from elsewhere of a value of a type, whose elements may be of another one."""
    if ct.type == type or build.info(ct.type).element == build.info(type).element:
        return ct
    return Wide(ct, type)


def handed_on(op: Op, cts: Sequence[Any]) -> list[Any]:
    """The cotangents of operands by a rule that takes, or makes, ones of other element types."""
    return [
        _of_type(ct, v.type, op.wide[i % len(op.wide)] if op.wide else None)
        if active and ct is not None
        else None
        for i, (v, ct, active) in enumerate(zip(op.operands, cts, op.active, strict=True))
    ]


def _of_type(ct: Any, type: Any, given: Any) -> Any:
    """The cotangent of a value of a type; one in place has the elements of what was `given`.

    That is the cotangent of the only result, or for a sort, that of the result of this operand.
    """
    if ct.__class__ is Masked:
        return ct if as_given(ct.ct, type) is ct.ct else Wide(ct, type)
    if ct.__class__ is not InPlace:
        return ct if ct.__class__ in WAITING else as_given(ct, type)
    if given is None:
        return ct
    return Wide(Gathered(build.with_element(type, build.info(given).element), None, ct), type)


def added(known: Any, v: Value, ct: Value | Waiting | InPlace) -> Any:
    """The sum of what is known of the cotangent of a value, if anything, and one more term."""
    if known.__class__ is Gathered:
        known.add(ct)
        return known
    if ct.__class__ is InPlace:
        return Gathered(v.type, emitted(known), ct)
    if known is None or known is ABSENT:
        return ct
    if ct is ABSENT:
        return known
    if ct.__class__ is Wide:
        if known.__class__ is Total:
            return known.add(ct)
        if known.__class__ is Wide and known.own_type == ct.own_type:
            return Wide(_sum(known.ct, ct.ct), ct.type)
    if known.__class__ is Masked and ct.__class__ is Masked:
        pairs = zip(known.masks, ct.masks, strict=False)
        if shared := len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))):
            total = build.add(known.within(shared), ct.within(shared))
            return Masked(total, known.masks[:shared])
    return build.add(emitted(known), emitted(ct))


def _sum(known: Any, ct: Any) -> Any:
    """The sum of two cotangents of one type, which may wait."""
    if ct.__class__ is Gathered:
        known, ct = ct, known
    return added(known, known, ct)
