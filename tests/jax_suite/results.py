"""How the tests of a file ended: the log of a run, and what it says beside the catalogue."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.jax_suite.catalogue import KNOWN, Known

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
UNFINISHED = "the process ended during this test"


@dataclass
class Outcome:
    """How a test ended, and what its errors say."""

    status: str = FAILED
    words: str = UNFINISHED
    calls: int = 0
    """How often it called one of our functions."""

    def last_line(self) -> str:
        """Of the error, what is said last."""
        lines = [line for line in self.words.splitlines() if line.startswith("E  ")]
        return (lines or self.words.splitlines() or [""])[-1].strip()


def write(log: Path, record: dict[str, Any]) -> None:
    """Appends a line, at once."""
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read(log: Path) -> dict[str, Outcome]:
    """Of each test that began, how it ended. One with several parts fails if one of them does."""
    found: dict[str, Outcome] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        record = json.loads(line)
        if "begin" in record:
            found.setdefault(record["begin"], Outcome())
            continue
        now = Outcome(record["outcome"], record["words"], record["calls"])
        before = found.get(record["test"], Outcome())
        if before.words == UNFINISHED:
            found[record["test"]] = now
        elif now.status == FAILED:
            both = "\n".join(dict.fromkeys((before.words, now.words)))
            found[record["test"]] = Outcome(FAILED, both, now.calls)
    return found


@dataclass
class Findings:
    """The tests of a file, sorted out.

    Attributes:
      passed: the tests that did.
      calling: how many of them called one of our functions.
      failed: what the catalogue does not know.
      known: what it knows, with the reason.
      passing: what it says of tests that ran, none of which failed.
      by_jax: what fails with JAX's own functions too: so it is not ours.
    """

    passed: int
    calling: int
    skipped: int
    failed: dict[str, Outcome]
    known: dict[str, Known]
    passing: list[Known]
    by_jax: dict[str, Outcome] = field(default_factory=dict)

    def beside(self, without_ours: dict[str, Outcome]) -> Findings:
        """The same, when it is known how tests that failed end with JAX's own functions."""
        by_jax = {test for test, outcome in without_ours.items() if outcome.status == FAILED}
        both = {test: outcome for test, outcome in self.failed.items() if test in by_jax}
        ours = {test: outcome for test, outcome in self.failed.items() if test not in by_jax}
        return replace(self, failed=ours, by_jax=both)

    def counts(self) -> str:
        """How many there are of each, in words."""
        passed = f"{self.passed} passed ({self.calling} with a call of ours)"
        failed = f"{len(self.failed)} failed, {len(self.known)} known"
        return f"{passed}, {failed}, {len(self.by_jax)} by JAX too, {self.skipped} skipped"


def judge(outcomes: dict[str, Outcome], mode: str) -> Findings:
    """What the catalogue says of the tests of a file."""
    catalogue = [known for known in KNOWN if mode in known.modes]
    failed: dict[str, Outcome] = {}
    explained: dict[str, Known] = {}
    for test, outcome in outcomes.items():
        if outcome.status == FAILED:
            known = next((k for k in catalogue if k.explains(test, outcome.words)), None)
            if known is None:
                failed[test] = outcome
            else:
                explained[test] = known
    statuses = [outcome.status for outcome in outcomes.values()]
    passing = [
        known
        for known in catalogue
        if known not in explained.values() and _all_pass(known, outcomes)
    ]
    passed = [outcome for outcome in outcomes.values() if outcome.status == PASSED]
    calling = sum(outcome.calls > 0 for outcome in passed)
    return Findings(len(passed), calling, statuses.count(SKIPPED), failed, explained, passing)


def _all_pass(known: Known, outcomes: dict[str, Outcome]) -> bool:
    """Whether tests that it is about ran, and passed."""
    found = [outcome.status for test, outcome in outcomes.items() if known.is_about(test)]
    return PASSED in found and FAILED not in found
