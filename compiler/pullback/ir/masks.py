"""Masks: strings of one character per position, '1' where there is a tangent or cotangent.

Masks of functions range over all positions, masks of custom rules over inexact ones only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


class Asked(NamedTuple):
    """A request for a rule; its text is `operands`, `operands|results` or all three.

    Attributes:
      operands: a mask of the inexact operands: '1' for one that is perturbed.
      results: a mask of the inexact results: '1' for one with a cotangent; empty for all.
      types: element types of the cotangents of inexact results; empty for those of the results.
    """

    operands: str
    results: str = ""
    types: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.types:
            return f"{self.operands}|{self.results}|{','.join(self.types)}"
        return f"{self.operands}|{self.results}" if self.results else self.operands


def mask_of(flags: Iterable[bool]) -> str:
    """Return the mask with '1' where a flag is set."""
    return "".join(["1" if f else "0" for f in flags])


def masked(items: Iterable[Item], mask: str) -> list[Item]:
    """Return the items at the ones of a mask that has a character for each item."""
    known = list(items)
    if len(known) != len(mask):
        raise ValueError(f"a mask of {len(mask)} for {len(known)} items")
    return [item for item, m in zip(known, mask) if m == "1"] if "0" in mask else known


def behind(positions: Iterable[int], first: int) -> str:
    """Return a mask of these positions, with '1' for each that is `first` or more."""
    return mask_of(i >= first for i in positions)


def singles(mask: str) -> list[str]:
    """Return, for each '1' of a mask, the mask with that '1' alone."""
    count = len(mask)
    return ["0" * i + "1" + "0" * (count - i - 1) for i in masked(range(count), mask)]


def jointly(masks: Iterable[str]) -> str:
    """Return the union of some masks."""
    return "".join(map(max, zip(*masks, strict=True)))


def parted(mask: str, other: str) -> tuple[str, str]:
    """Split a mask into its intersection with another one and the rest."""
    common = "".join(map(min, mask, other))
    return common, mask_of(m > c for m, c in zip(mask, common, strict=True))


def within(mask: str, other: str) -> bool:
    """Return True if another mask of the same positions has every '1' of this one."""
    return "0" not in masked(other, mask)
