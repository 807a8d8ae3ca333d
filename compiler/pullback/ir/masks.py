"""Masks: strings of one character per position, '1' where there is a tangent or cotangent.

Masks of functions range over all positions, masks of custom rules over inexact ones only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


class Asked(NamedTuple):
    """What a rule is asked for, as the text `operands`, `operands|results` or all three.

    Attributes:
      operands: a mask of the inexact operands: '1' for one that is perturbed.
      results: a mask of the inexact results: '1' for one with a cotangent; empty for all.
      types: element types of the cotangents of inexact results, in the text with commas; empty for
        those of the results.
    """

    operands: str
    results: str = ""
    types: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Asked:
        """Read the text of a mask."""
        operands, results, types = [*text.split("|"), "", ""][:3]
        return Asked(operands, results, tuple(types.split(",")) if types else ())

    def __str__(self) -> str:
        if self.types:
            return f"{self.operands}|{self.results}|{','.join(self.types)}"
        return f"{self.operands}|{self.results}" if self.results else self.operands


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
