"""Run `pullback view`: show a program in a browser, from source lines to lowered ops."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from pullback.errors import UsageError
from pullback.tools.derive import Positions
from pullback.tools.show import note, write
from pullback.tools.sources import (
    check_used,
    for_platform,
    load_source,
)
from pullback.tools.targets import blaming
from pullback.tools.view.explorer import explore
from pullback.tools.view.page import page
from pullback.tools.view.stages import read_stages


def view(
    source: str,
    mode: str | None,
    wrt: Positions,
    explorer: bool,
    output: Path | None,
    **of_source: Any,
) -> None:
    """Show SOURCE as a page: source lines, the program, its derivative, lowered StableHLO."""
    if mode is None:
        check_used("--derivative", {"--wrt": wrt})
    if explorer and output is not None:
        raise UsageError("--explorer serves pages and writes none", do="leave out -o")
    loaded = for_platform(load_source(source, **of_source))
    program = loaded.fixed("a page")
    with blaming(source):
        stages = read_stages(program, mode, wrt)
    if stages.remark:
        note(stages.remark)
    if explorer:
        explore(stages)
        return
    saved = loaded.target is None and source != "-"
    text = page(stages, source, source, Path(source).stat().st_mtime if saved else None)
    if output is not None:
        write(text, output)
        note(f"{output}: {len(text):,} characters")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
        file.write(text)
    if not webbrowser.open(Path(file.name).as_uri()):
        raise UsageError(f"no browser opens here; the page is {file.name}", do="write it: -o FILE")
