"""Judge whether a number that a rule gives can be the slope that was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.testing.findings import Finding
from pullback.testing.slopes import Slope

SMALL = 1e-2
"""What is smaller than this part of the largest element is compared with that part."""

COARSE = 0.05
"""A slope that is not known to this part of its size says nothing."""

STOPPED = 0.1
"""So large a part of a slope may the stop test of an iteration account for."""


@dataclass(frozen=True)
class Limits:
    """Bound the differences that are not wrong.

    Attributes:
      tolerance: relative to a number or, if that is small, to a part of the largest.
      floor: what rounding of the rule may account for.
      resolution: below this, slopes are lost in the rounding of values.
      iterates: the function may stop at a tolerance, which shows in its slopes.
      typical: the size of slopes of this function.
      most: the largest number of the rule's type.
    """

    tolerance: float
    floor: float
    resolution: float
    iterates: bool
    typical: float
    most: float


@dataclass(frozen=True)
class Outcome:
    """Tell of each element what a comparison says.

    Attributes:
      wrong: the rule's number is not the slope.
      unsure: nothing is known.
      stopped: it is apart by what a stop test may account for.
    """

    wrong: np.ndarray
    unsure: np.ndarray
    stopped: np.ndarray


def judged(found: np.ndarray, slope: Slope, limits: Limits, largest: float) -> Outcome:
    """Compare numbers of a rule with slopes.

    Args:
      found: the rule's.
      slope: of the function.
      limits: what may be apart.
      largest: the largest of the slopes that belong together.
    """
    with np.errstate(all="ignore"):
        value, error = slope.value, slope.error
        if limits.iterates:
            error = error + slope.unsteady
        is_measured = np.isfinite(value) & np.isfinite(error) & (np.abs(value) < limits.most)
        size = np.fmax(np.fmax(np.abs(found), np.abs(value)), SMALL * largest)
        size = np.where(np.isfinite(size), size, np.abs(value))
        allowed = limits.tolerance * size + limits.floor
        unsure = ~is_measured | (error > COARSE * size + limits.resolution)
        is_between = (found >= slope.low - allowed) & (found <= slope.high + allowed)
        is_apart = ~(np.abs(found - value) <= allowed + error) & ~is_between
        wrong = is_measured & is_apart & ~(unsure & ~np.isfinite(found))
        stopped = np.zeros_like(wrong)
        if limits.iterates:
            most = STOPPED * np.fmax(size, limits.typical)
            stopped = wrong & (np.abs(found - value) <= most)
    return Outcome(wrong & ~stopped, unsure & ~wrong, stopped)


@dataclass
class Tally:
    """Gather the outcomes of one check of one rule into a finding.

    Attributes:
      blank: the finding if all is well.
      sure: something has been compared.
      failure: what is wrong.
      noise: what noise may account for, or not.
      unknown: why something was not compared.
    """

    blank: Finding
    sure: bool = False
    failure: Finding | None = None
    noise: Finding | None = None
    unknown: Finding | None = None

    def fail(self, reason: str, **more: Any) -> None:
        """Note that the rule is wrong; the first of these counts."""
        self.failure = self.failure or replace(self.blank, verdict="FAIL", reason=reason, **more)

    def hidden(self, reason: str, **more: Any) -> None:
        """Note a difference that noise may account for."""
        self.noise = self.noise or replace(self.blank, verdict="doubtful", reason=reason, **more)

    def skip(self, reason: str, **more: Any) -> None:
        """Note that something was not compared, which counts if nothing was."""
        unknown = replace(self.blank, verdict="doubtful", reason=reason, **more)
        self.unknown = self.unknown or unknown

    @property
    def finding(self) -> Finding:
        """A failure; else a doubt, if there is one; else that the rule is right."""
        if self.sure:
            return self.failure or self.noise or self.blank
        return self.failure or self.noise or self.unknown or self.blank
