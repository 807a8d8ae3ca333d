"""Which function of a saved module is the entry for which platform."""

from __future__ import annotations

from typing import Any

from pullback_runtime._container import SAVE_AGAIN, ArtifactError

METADATA = "entries"


def entries_of(metadata: dict[str, Any] | None) -> dict[str, str]:
    """The entry for each platform that the file names; empty for a file of other origin."""
    platforms = (metadata or {}).get("platforms", [])
    entries = (metadata or {}).get(METADATA, ["main"] * len(platforms))
    names = [*platforms, *entries]
    if len(platforms) != len(entries) or not all(isinstance(name, str) for name in names):
        raise ArtifactError("the file's metadata are damaged: entries", do=SAVE_AGAIN)
    return dict(zip(platforms, entries, strict=True))
