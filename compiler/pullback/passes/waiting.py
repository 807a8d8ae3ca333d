"""Cotangents that are not emitted yet, for what comes next may change how."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.rules.parts import summed
from pullback.rules.registry import InPlace


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

    def add(self, ct: Value | Masked | InPlace) -> None:
        if ct.__class__ is InPlace:
            self.places.append(ct)
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
        return [None if ct is None else Masked(ct, self.masks) for ct in cts]


class Absent:
    """The cotangent that a `custom_vjp` rule leaves out, or says to be zero.

    In JAX those are zeros like others: a rule that they come to runs, and what it returns may not
    be zero. So the call of a rule has to know that they are there.
    """

    def emit(self) -> None:
        return None


ABSENT = Absent()
WAITING: frozenset[Any] = frozenset({Gathered, Masked, Absent})
Waiting = Gathered | Masked | Absent


def emitted(ct: Any) -> Any:
    """The value of a cotangent, which may wait; None if there is none."""
    return ct.emit() if ct.__class__ in WAITING else ct


def chosen(ct: Value | Waiting, predicate: Value, taken: bool) -> Masked:
    """The cotangent of an operand of a `select`, of that of the result."""
    if ct.__class__ is Masked:
        return Masked(ct.ct, (*ct.masks, (predicate, taken)))
    return Masked(emitted(ct), ((predicate, taken),))


def alike(cts: Sequence[Any]) -> Masked | None:
    """Return a cotangent of these if all that are there have the same masks, None otherwise."""
    present = [ct for ct in cts if ct is not None]
    if any(ct.__class__ is not Masked or ct.masks != present[0].masks for ct in present):
        return None
    return present[0] if present else None


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
    if known.__class__ is Masked and ct.__class__ is Masked:
        pairs = zip(known.masks, ct.masks, strict=False)
        if shared := len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))):
            total = build.add(known.within(shared), ct.within(shared))
            return Masked(total, known.masks[:shared])
    return build.add(emitted(known), emitted(ct))
