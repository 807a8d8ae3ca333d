"""Run the body of a command."""

from __future__ import annotations

import importlib
from typing import Any


def call(place: str, arguments: dict[str, Any]) -> None:
    """Import the function at `module:name` and call it; report errors of pullback."""
    module, _, name = place.partition(":")
    function = getattr(importlib.import_module(module), name)
    importlib.import_module("pullback.tools.report").reporting(function, arguments)
