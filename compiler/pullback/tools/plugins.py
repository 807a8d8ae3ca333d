"""Load the rules of other packages, which a tool imports before it differentiates."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.autodiff import registry
from pullback.tools.targets import load_module


def load_rules(plugins: Sequence[str]) -> None:
    """Import modules that register rules, after this package's: a second rule is an error."""
    registry.load_all()
    for place in plugins:
        load_module(place)
