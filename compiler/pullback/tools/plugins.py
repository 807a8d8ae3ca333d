"""Load the rules and passes of other packages that a command line names."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.autodiff import registry
from pullback.passes import plugins
from pullback.tools.targets import load_module


def load_rules(places: Sequence[str]) -> None:
    """Import modules that register rules, after this package's: a second rule is an error."""
    registry.load_all()
    for place in places:
        load_module(place)


def load_passes(places: Sequence[str]) -> None:
    """Import modules that define passes; two passes of one name are an error."""
    for place in places:
        plugins.add(load_module(place), place)
