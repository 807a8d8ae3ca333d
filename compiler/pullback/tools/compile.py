"""Run `pullback compile`: keep the machine code of a saved program in a file."""

from __future__ import annotations

from pathlib import Path

from rich.filesize import decimal

import pullback_runtime
from pullback.tools.show import note, working, writing
from pullback_runtime.files import _artifact


def compile(
    file: Path,
    entry: str | None,
    backend: str | None,
    engine: str | None,
    plugin: str | None,
    output: Path,
) -> None:
    """Compile FILE, a saved program, ahead of time, for pullback_runtime.load_executable."""
    content = _artifact.read_bytes(file)
    with _artifact.naming_file(file), writing(output), working(f"compiling {file}"):
        pullback_runtime.save_executable(
            content, output, entry=entry or "main", engine=engine, plugin=plugin, backend=backend
        )
    note(f"{output}: {decimal(output.stat().st_size)}, of them {decimal(len(content))} the program")
