"""Import what a derivative does not need when it is first used."""

from __future__ import annotations

from pullback_runtime._first_use import importing, listing

tool = importing("pullback", "pullback._tools", also=["artifact", "torch"])
names = listing("pullback")
