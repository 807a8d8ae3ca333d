"""What is shown of a long staging of rules."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pullback.program import progress


def shown(monkeypatch, seconds: float, terminal: bool) -> str:
    """What stands on the console after a work of so many seconds."""
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with progress.Progress(console) as shows:
        shows.show("staging the first rule")
        clock[0] = seconds
        shows.show("staging the second rule")
    return console.file.getvalue()


def test_long_work_at_a_terminal(monkeypatch) -> None:
    text = shown(monkeypatch, 3.0, terminal=True)
    assert "staging the second rule" in text
    assert "first" not in text


@pytest.mark.parametrize(("seconds", "terminal"), [(1.0, True), (3.0, False)])
def test_nothing_where_it_is_short_or_nobody_looks(monkeypatch, seconds, terminal) -> None:
    assert shown(monkeypatch, seconds, terminal) == ""
