"""The version of pullback that is installed."""

from __future__ import annotations

from importlib import metadata


def installed_version() -> str:
    """The installed version; a source tree that is not installed has none."""
    try:
        return metadata.version("pullback")
    except metadata.PackageNotFoundError:
        return "of a source tree"
