"""Which function of a saved module is the entry for which platform."""

from __future__ import annotations

from typing import Any, TypeGuard

from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError

METADATA = "entries"


def entries_of(metadata: dict[str, Any] | None) -> dict[str, str]:
    """Return the entry for each platform in the metadata; empty for a file without metadata."""
    platforms = (metadata or {}).get("platforms", [])
    entries = (metadata or {}).get(METADATA)
    if entries is None and isinstance(platforms, list):
        entries = ["main"] * len(platforms)
    if not (are_names(platforms) and are_names(entries) and len(platforms) == len(entries)):
        raise ArtifactError("the file's metadata are damaged: entries", do=SAVE_AGAIN)
    return dict(zip(platforms, entries, strict=True))


def are_names(found: Any) -> TypeGuard[list[str]]:
    """Return True if this is a list of strings."""
    return isinstance(found, list) and all(isinstance(name, str) for name in found)
