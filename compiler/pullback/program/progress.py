"""Show how far a long work is, to who waits at a terminal."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:  # a program without a terminal does not need them
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

QUIET = 2.0
"""Seconds after which something is shown."""


class Progress:
    """A line on the terminal that goes when the work is done; elsewhere nothing is shown.

    One inside another shows its text in the line of the outer one.

    Args:
      console: where to show it; standard error by default.
      after: seconds before anything is shown.
    """

    _shown: ClassVar[Progress | None] = None

    def __init__(self, console: Console | None = None, after: float = QUIET) -> None:
        self._console = console
        self._after = after
        self._outer: Progress | None = None
        self._spinner: Spinner | None = None
        self._live: Live | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._outer = Progress._shown
        console = None if self._outer is not None else self._console or _terminal()
        if console is not None and console.is_terminal:
            from rich.live import Live
            from rich.spinner import Spinner

            Progress._shown = self
            self._spinner = Spinner("dots")
            self._live = Live(
                self._spinner,
                console=console,
                refresh_per_second=10,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),  # else it would go to the console
            )
            self._timer = threading.Timer(self._after, self._live.start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None and self._live is not None:
            self._timer.cancel()
            self._timer.join()
            self._live.stop()
            Progress._shown = None

    def show(self, text: str, done: int = 0, total: int | None = None) -> None:
        """Show what is being done, and how much of it if that is known."""
        if self._outer is not None:
            self._outer.show(text, done, total)
        elif self._spinner is not None:
            self._spinner.update(text=text if total is None else f"{text} ({done} of {total})")


def _terminal() -> Console | None:
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    return Console(stderr=True)
