"""Import what a derivative does not need when it is first used."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def names() -> list[str]:
    """Return the names of `pullback`, with those that are imported when they are first used."""
    package = sys.modules["pullback"]
    return sorted({*vars(package), *package.__all__})


def tool(name: str) -> Any:
    """Return a public name of `pullback._tools`, or the module `pullback.artifact`.

    Raises: AttributeError for any other name.
    """
    package = sys.modules["pullback"]
    if name == "artifact":
        return importlib.import_module("pullback.artifact")
    if name.startswith("_") or name not in package.__all__:
        raise AttributeError(f"module 'pullback' has no attribute {name!r}")
    found = getattr(importlib.import_module("pullback._tools"), name)
    setattr(package, name, found)
    return found
