"""Report what a check of rules has found."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pullback.errors import WrongRuleError
from pullback.ir import notebook

Verdict = Literal["ok", "FAIL", "doubtful"]
VERDICTS: tuple[Verdict, ...] = ("FAIL", "doubtful", "ok")
"""The worst one first."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check of one rule.

    Attributes:
      verdict: 'ok', 'FAIL', or 'doubtful' where noise hides the answer.
      name: of the function that has the rule.
      check: what was checked, such as 'jvp', 'vjp', 'second derivative' or 'batch'.
      rule: the rule's function and its lines, such as `bwd at model.py:12-15`.
      where: the line of the call.
      reason: what is wrong, or why there is no answer.
      at_fault: the argument or result, such as 'argument x'.
      point: the operands' values where it was seen.
      found: the rule's number.
      wanted: the number it was compared with.
      error: how far the number wanted may be wrong.
    """

    verdict: Verdict
    name: str
    check: str
    rule: str
    where: str
    reason: str = ""
    at_fault: str = ""
    point: str = ""
    found: float | None = None
    wanted: float | None = None
    error: float | None = None

    def __str__(self) -> str:
        line = f"{self.verdict:<4} {self.name} {self.check}: {self.reason}"
        more = {
            "at fault": self.at_fault,
            "point": self.point,
            "rule": self.rule,
            "call": self.where,
        }
        return "\n".join([line, *(f"       {key}: {each}" for key, each in more.items() if each)])

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a dictionary of plain values; numbers that JSON lacks as text."""
        return {
            key: value if not isinstance(value, float) or abs(value) < float("inf") else str(value)
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Report:
    """The findings of a check, in the order of the calls.

    Attributes:
      findings: one for each check of each rule.
      left_out: how many rules of installed packages were not checked.
    """

    findings: tuple[Finding, ...]
    left_out: int = 0

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        lines = []
        for (name, where), group in itertools.groupby(self.findings, lambda x: (x.name, x.where)):
            found = list(group)
            fine = [each.check for each in found if each.verdict == "ok"]
            lines += [str(each) for each in found if each.verdict != "ok"]
            lines += [f"ok   {name}: {', '.join(fine)} ({where})"] if fine else []
        return "\n".join([*lines, self.summary])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the calls, each with the checks of its rules."""
        parts = []
        for (name, where), group in itertools.groupby(self.findings, lambda x: (x.name, x.where)):
            found = list(group)
            verdict = next((v for v in VERDICTS if any(each.verdict == v for each in found)), "")
            summary = f"{verdict} <code>{html.escape(name)}</code>, called at {html.escape(where)}"
            rows = [(x.verdict, x.check, x.rule, x.reason, x.at_fault, x.point) for x in found]
            checks = notebook.table(("", "check", "rule", "reason", "at fault", "point"), rows)
            parts.append(notebook.fold(summary, checks, is_open=verdict != "ok"))
        return notebook.page(notebook.fold(html.escape(self.summary), *parts, is_open=True))

    def as_json(self) -> dict[str, Any]:
        """Return the report as a dictionary of plain values."""
        return {
            "findings": [each.as_json() for each in self.findings],
            "failed": len(self.failed),
            "doubtful": len(self.doubtful),
            "left_out": self.left_out,
        }

    @property
    def failed(self) -> list[Finding]:
        return [each for each in self.findings if each.verdict == "FAIL"]

    @property
    def doubtful(self) -> list[Finding]:
        return [each for each in self.findings if each.verdict == "doubtful"]

    @property
    def summary(self) -> str:
        """The numbers of findings in one line."""
        counts = len(self.findings), len(self.failed), len(self.doubtful)
        more = f"; {self.left_out} rules of installed packages left out" if self.left_out else ""
        return "{} checks of rules, {} failed, {} doubtful".format(*counts) + more

    def raise_for_failures(self) -> None:
        """Raise an error if a rule is wrong.

        Raises:
          WrongRuleError: a check has failed; the message names all that have.
        """
        if self.failed:
            first = self.failed[0]
            raise WrongRuleError(
                f"{len(self.failed)} of {len(self.findings)} checks of rules failed:\n"
                + "\n".join(map(str, self.failed)),
                where=f"{first.rule}; called at {first.where}",
                do="correct the rule; or, if it is not meant to be the derivative, mark it: "
                "pb.testing.intended(rule)",
            )
