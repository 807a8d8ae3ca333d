"""A pytest plugin: runs JAX's test files with our functions, and writes down how each test ends.

A line that begins a test is written before it runs, so that a crash can be told from an end.
Tests that the log already has are left out: a run that was cut short goes on where it stopped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jax_suite import functions, results


def pytest_addoption(parser: pytest.Parser) -> None:
    """The mode, and the log."""
    modes = list(functions.OURS)
    parser.addoption("--replace", choices=modes, default=functions.DERIVATIVES)
    parser.addoption("--results", type=Path, required=True, metavar="FILE")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what has run, and puts our functions into the files of the rest."""
    done = results.read(config.getoption("--results"))
    left_out = [item for item in items if item.nodeid in done]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.nodeid not in done]
    mode = config.getoption("--replace")
    functions.put_into_checks(mode)
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        functions.put_into(module, mode)


def pytest_configure(config: pytest.Config) -> None:
    """Lets the log be written."""
    config.pluginmanager.register(Recorder(config.getoption("--results")))


class Recorder:
    """Writes the log."""

    def __init__(self, log: Path):
        self.log = log

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Says which test runs."""
        functions.calls.clear()
        results.write(self.log, {"begin": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Says how a test ended, or a part of it."""
        if report.when == "call" or not report.passed:
            words = report.longreprtext if report.failed else ""
            record = {"test": report.nodeid, "outcome": report.outcome, "words": words}
            results.write(self.log, record | {"calls": functions.calls["ours"]})
