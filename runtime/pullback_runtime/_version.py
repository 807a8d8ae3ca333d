"""The version that is installed; both distributions have the same."""

from __future__ import annotations

from importlib import metadata


def _installed() -> str:
    """Return the version of the distribution, or "0+source" for sources that are not installed."""
    try:
        return metadata.version("pullback-runtime")
    except metadata.PackageNotFoundError:
        return "0+source"


__version__ = _installed()
