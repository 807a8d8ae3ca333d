"""What is shown of a long work."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from pullback.program.progress import Progress


def shown(seconds: float, terminal: bool, total: int | None = None) -> str:
    """What stands on the console after a work that takes longer, or less long, than 0.1 s."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with Progress(console, after=0.1) as outer:
        outer.show("checking", 3, total)
        time.sleep(seconds)
        if seconds and terminal:
            outer._live.refresh()
        with Progress() as inner:
            inner.show("staging the second rule")
            if seconds and terminal:
                outer._live.refresh()
    return console.file.getvalue()


def test_long_work_at_a_terminal() -> None:
    text = shown(0.2, terminal=True)
    assert "checking" in text
    assert "staging the second rule" in text
    assert " of " not in text
    assert "checking (3 of 8)" in shown(0.2, terminal=True, total=8)


@pytest.mark.parametrize(("seconds", "terminal"), [(0.0, True), (0.2, False)])
def test_nothing_where_it_is_short_or_nobody_looks(seconds, terminal) -> None:
    assert "checking" not in shown(seconds, terminal)
