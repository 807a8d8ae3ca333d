"""Each planted fault is found: the check, the rule's line, the argument or result."""

from __future__ import annotations

import re

import pytest

from pullback.testing import check_rules
from tests.testing.planted_faults import FAULTS


def test_there_are_as_many_as_promised():
    assert len(FAULTS) >= 40


@pytest.mark.whole
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    fault = FAULTS[name]()
    order = 2 if fault.check == "second derivative" else 1
    report = check_rules(fault.function, *fault.args, order=order, raises=False)
    found = [each for each in report.failed if each.check == fault.check]
    assert found, str(report)
    assert fault.at_fault in found[0].at_fault
    line = fault.rule.__code__.co_firstlineno
    assert re.search(rf"\bplanted_faults\.py:{line}\b", found[0].rule), found[0].rule
    if fault.check == "second derivative":
        assert all(each.check == fault.check for each in report.failed)
