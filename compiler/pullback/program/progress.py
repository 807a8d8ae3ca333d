"""Show how far a long staging of rules is, to who waits at a terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

QUIET = 2.0
"""Seconds after which something is shown."""


class Progress:
    """A line on the terminal that goes when the work is done; rich shows none elsewhere.

    Args:
      console: where to show it; standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._show_at = time.monotonic() + QUIET
        self._status: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, text: str) -> None:
        """Show what is being done, if it takes long already."""
        if time.monotonic() < self._show_at:
            return
        if self._status is None:
            self._status = Status(text, console=self._console)
            self._status.start()
        self._status.update(text)
