"""A plug-in of pytest: the fixture `check_rules`.

It stands beside the package, so that a run of pytest that does not use it imports no JAX.
"""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def check_rules() -> Any:
    """Return `pullback.testing.check_rules`, which raises where a rule is wrong."""
    from pullback.testing import check_rules

    return check_rules
