"""Deferred cotangents: contributions kept symbolic until the sum is needed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pullback.autodiff.registry import InPlace, Op
from pullback.autodiff.slices import summed
from pullback.ir import build
from pullback.ir.build import Value


class Gathered:
    """A sum of contributions to a cotangent, some of them in place, deferred until it is needed.

    By then it is known which of them do not overlap, and may be concatenated.
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
    """The cotangent of an operand of `select`, which is zero wherever that is not selected.

    The mask is applied after the elementwise ops that it passes, not before them: where the operand
    has an infinite slope, or NaN, and is not selected, zero times that would be NaN.
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
        """Apply all masks but the first `count` to the cotangent; return that."""
        build.here.loc, found = self.loc, self.ct
        for predicate, taken in reversed(self.masks[count:]):
            either = (found, None) if taken else (None, found)
            found = build.select(predicate, *either)
        return found

    def through(self, cts: Any) -> list[Masked | None]:
        """Put the masks on the cotangents `cts` that an elementwise op made of `ct`."""
        return [None if ct is None else self._on(ct) for ct in cts]

    def _on(self, ct: Any) -> Any:
        """Put the masks on another cotangent."""
        return Wide(self._on(ct.ct), ct.type) if ct.__class__ is Wide else Masked(ct, self.masks)


class Wide:
    """A cotangent with another element type than its primal value, such as f32 for f16.

    A backward rule of the user's may return one, and JAX passes it on. So do ops here that only
    move or add elements. Where it reaches arithmetic with primal values, it is converted.

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
        """Convert the cotangent to the type of its primal value."""
        ct: Any = self.ct
        if ct.__class__ is Masked:
            return Masked(build.converted(ct.ct, self.type), ct.masks)
        ct = emitted(ct)
        build.here.loc = self.loc
        return build.converted(ct, self.type)


class Total:
    """The sum that a loop accumulates of a cotangent: an argument of its body.

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
    """A symbolic zero that comes from a `custom_vjp` rule, which left the cotangent out.

    In JAX that is an array of zeros: a `custom_vjp` rule that gets it runs, and may return what is
    not zero. So calls of rules have to tell it from the absence of any cotangent.
    """

    def emit(self) -> None:
        return None


ABSENT = Absent()
WAITING: frozenset[Any] = frozenset({Gathered, Masked, Wide, Total, Absent})
Waiting = Gathered | Masked | Wide | Total | Absent


def emitted(ct: Any) -> Any:
    """Emit a cotangent if it is deferred, and return its value; None if there is none."""
    return ct.emit() if ct.__class__ in WAITING else ct


def chosen(ct: Any, predicate: Value, taken: bool) -> Any:
    """Return the cotangent of an operand of a `select`, given that of the result."""
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
    """Put the masks and the type that `bare` took off a cotangent on the value `v`."""
    if ct.__class__ is Wide:
        return Wide(waiting_like(ct.ct, v), ct.type)
    return Masked(v, ct.masks) if ct.__class__ is Masked else v


def alike(cts: Sequence[Any]) -> Masked | None:
    """Return one of these cotangents if all that are not None have the same masks, else None."""
    present = [ct for ct in cts if ct is not None]
    if any(ct.__class__ is not Masked or ct.masks != present[0].masks for ct in present):
        return None
    return present[0] if present else None


def as_given(ct: Value, type: Any) -> Value | Wide:
    """Wrap a cotangent as `Wide` if its element type is not that of the primal type."""
    if ct.type == type or build.info(ct.type).element == build.info(type).element:
        return ct
    return Wide(ct, type)


def handed_on(op: Op, cts: Sequence[Any]) -> list[Any]:
    """Wrap the cotangents that a rule returns as `Wide` where their element types differ."""
    return [
        _of_type(ct, v.type, op.wide[i % len(op.wide)] if op.wide else None)
        if active and ct is not None
        else None
        for i, (v, ct, active) in enumerate(zip(op.operands, cts, op.active, strict=True))
    ]


def _of_type(ct: Any, type: Any, given: Any) -> Any:
    """Wrap a cotangent as `Wide` if its element type is not that of its primal `type`.

    One that is in place has the element type of `given`: the type of the cotangent of the only
    result or, for a sort, of the result that corresponds to the operand.
    """
    if ct.__class__ is Masked:
        return ct if as_given(ct.ct, type) is ct.ct else Wide(ct, type)
    if ct.__class__ is not InPlace:
        return ct if ct.__class__ in WAITING else as_given(ct, type)
    if given is None:
        return ct
    return Wide(Gathered(build.with_element(type, build.info(given).element), None, ct), type)


def added(known: Any, v: Value, ct: Value | Waiting | InPlace) -> Any:
    """Add one more term to the known cotangent of a value, if there is any; defer if possible."""
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
    """Add two cotangents of one type, which may be deferred."""
    if ct.__class__ is Gathered:
        known, ct = ct, known
    return added(known, known, ct)
