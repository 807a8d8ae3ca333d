"""No right rule raises an alarm."""

from __future__ import annotations

import pytest

from pullback.testing import check_rules
from tests.testing.right_rules import RIGHTS


def test_there_are_as_many_as_promised():
    assert len(RIGHTS) >= 40


@pytest.mark.whole
@pytest.mark.parametrize("name", RIGHTS)
def test_a_right_rule_raises_no_alarm(name):
    function, args = RIGHTS[name]()
    report = check_rules(function, *args, order=2, raises=False)
    assert not report.failed, str(report)
    assert len(report.findings)
