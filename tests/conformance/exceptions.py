"""The known differences from JAX: which cases, at which stages, and why.

A difference that is not listed here fails the sweep and the sample.
"""

from __future__ import annotations

import fnmatch
from typing import NamedTuple

from tests.conformance.comparison import FINE, Verdict


class Known(NamedTuple):
    """Cases and verdicts that have one reason.

    Attributes:
      cases: a pattern of case names, as a shell has them.
      stages: where they differ.
      status: how the stage ends.
      reason: why that is right, or whose limit it is.
    """

    cases: str
    stages: tuple[str, ...]
    status: str
    reason: str


EXCEPTIONS: tuple[Known, ...] = ()


def explanation(name: str, stage: str, verdict: Verdict) -> str | None:
    """Why a verdict is as it should be; None if nothing explains it."""
    if verdict.status in FINE:
        return ""
    for known in EXCEPTIONS:
        same = stage in known.stages and verdict.status == known.status
        if same and fnmatch.fnmatchcase(name, known.cases):
            return known.reason
    return None
