"""Run `pullback compile`: keep the machine code of a saved program in a file."""

from __future__ import annotations

from pathlib import Path

import click
from rich.filesize import decimal

import pullback_runtime
from pullback.tools.show import into_its_folder, note
from pullback.tools.sources import entry_option
from pullback_runtime import _artifact


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@entry_option("--entry", "--entry-name")
@click.option("--backend", help="cpu, cuda, rocm or tpu; by default that of the first device.")
@click.option(
    "--engine", type=click.Choice(["jax", "pjrt", "iree"]), help="What compiles. By default jax."
)
@click.option("--plugin", type=click.Path(), help="The path of a PJRT plug-in that compiles.")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to write."
)
def compile(
    file: Path,
    entry: str | None,
    backend: str | None,
    engine: str | None,
    plugin: str | None,
    output: Path,
) -> None:
    """Compile FILE, a saved program, ahead of time, for pullback_runtime.load_executable.

    The output is machine code for this version of the engine and this kind of device, with the
    program beside it: load it only if you trust who compiled it.
    """
    content = _artifact.read_bytes(file)
    with _artifact.naming_file(file), into_its_folder(output):
        pullback_runtime.save_executable(
            content, output, entry=entry or "main", engine=engine, plugin=plugin, backend=backend
        )
    note(f"{output}: {decimal(output.stat().st_size)}, of them {decimal(len(content))} the program")
