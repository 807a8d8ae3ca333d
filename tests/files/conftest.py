"""What the tests of this folder share."""

from __future__ import annotations

import pytest

from pullback_runtime.files import _artifact, _constants


@pytest.fixture(autouse=True)
def takes_out_small_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few KiB are loaded as those of many MiB are, whose constants become arrays."""
    monkeypatch.setattr(_artifact, "EMBEDDED_BELOW", _constants.SMALLEST_BYTES)
    monkeypatch.setattr(_artifact, "MANY_EMBEDDED_BELOW", 0)
