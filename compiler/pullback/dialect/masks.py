"""Masks: strings of one character per position, '1' where there is a tangent or cotangent.

Masks of functions range over all positions, masks of custom rules over inexact ones only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def mask_of(flags: Iterable[bool]) -> str:
    """The mask with '1' where a flag is set."""
    return "".join(["1" if f else "0" for f in flags])


def masked(items: Iterable[Item], mask: str) -> list[Item]:
    """Of as many items as the mask is long, those at its ones."""
    known = list(items)
    if len(known) != len(mask):
        raise ValueError(f"a mask of {len(mask)} for {len(known)} items")
    return [item for item, m in zip(known, mask) if m == "1"] if "0" in mask else known


def behind(positions: Iterable[int], first: int) -> str:
    """The mask of the positions from `first` on."""
    return mask_of(i >= first for i in positions)


def singles(mask: str) -> list[str]:
    """The masks of each position of a mask alone."""
    count = len(mask)
    return ["0" * i + "1" + "0" * (count - i - 1) for i in masked(range(count), mask)]


def jointly(masks: Iterable[str]) -> str:
    """The mask of what any of these has."""
    return "".join(map(max, zip(*masks, strict=True)))


def parted(mask: str, other: str) -> tuple[str, str]:
    """What of a mask another one has, and what it has not."""
    common = "".join(map(min, mask, other))
    return common, mask_of(m > c for m, c in zip(mask, common, strict=True))


def within(mask: str, other: str) -> bool:
    """Whether another mask, of the same positions, has all that this one has."""
    return "0" not in masked(other, mask)
