"""Measure work that no machine changes: how many lines of our packages a call runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pullback
import pullback_runtime

_OURS = tuple(f"{Path(p.__file__).parent}{os.sep}" for p in (pullback, pullback_runtime))


def lines_run(function: Callable[[], Any]) -> int:
    """Call a function and return how many lines of our packages ran, in this thread."""
    count = 0

    def line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(_OURS) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        function()
    finally:
        sys.settrace(before)
    return count
