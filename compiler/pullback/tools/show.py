"""Print IR, notes and errors: with colour where the terminal has it."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jax

from pullback.errors import UsageError
from pullback.program.progress import Progress
from pullback.tools.diagnostics import messages_of
from pullback_runtime import ArtifactError, __version__


def show_ir(text: str) -> None:
    """Print MLIR, a jaxpr or HLO: coloured on a terminal, byte for byte elsewhere."""
    if _may_have_colour(err=False):
        from rich.console import Console

        console = Console(soft_wrap=True)
        if console.is_terminal:
            coloured = importlib.import_module("pullback.tools.coloured").coloured
            console.print(coloured(text), highlight=False)
            return
    click.echo(text)


def _may_have_colour(*, err: bool) -> bool:
    """Return True if rich may find a terminal: importing it takes longer than most commands."""
    forced = "FORCE_COLOR" in os.environ or "TTY_COMPATIBLE" in os.environ
    stream = sys.stderr if err else sys.stdout
    return forced or (stream is not None and stream.isatty())


def write(text: str, output: Path) -> None:
    """Write text to a file, with one newline at its end."""
    with writing(output):
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


@contextlib.contextmanager
def writing(output: Path) -> Iterator[None]:
    """Run the body, which writes a file or makes a folder; turn OSErrors into UsageErrors."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write `{output}`: {error.strerror or error}",
            do="give another place with -o, in a folder that is there",
        ) from error


def note(text: str) -> None:
    """Print a remark for the reader, on stderr so that pipes stay clean."""
    if not _may_have_colour(err=True):
        click.echo(text, err=True)
        return
    from rich.console import Console

    Console(stderr=True, soft_wrap=True).print(text, style="dim", markup=False, highlight=False)


@contextlib.contextmanager
def working(text: str) -> Iterator[Progress]:
    """Run the body, and show this text on a terminal where that takes long."""
    with Progress() as progress:
        progress.show(text)
        yield progress


def versions() -> str:
    """Return the versions of pullback and of JAX."""
    return f"pullback {__version__}, with jax {jax.__version__}"


def show_error(error: Any) -> None:
    """Print an error: what happened, where, and what to do; of a file with its line and a caret."""
    message = messages_of(error)[0]
    place = f"{message.file}:{message.line}:{message.column}"
    if isinstance(error, ArtifactError) and error.where == place:
        file = Path(message.file)
        source = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        name = "<stdin>" if message.file == "-" else message.file
        click.echo(message.format(name, source), err=True)
        return
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    label = type(error).__name__
    console.print(f"[bold red]{label}:[/] ", end="")
    console.print(error.message, markup=False, highlight=False)
    for question, answer in (("where:", error.where), ("do:   ", error.do)):
        if answer:
            console.print(f"  [bold]{question}[/] ", end="")
            answer = answer.replace("entry=…", "--entry …")  # an option of each command but opt
            console.print(answer, markup=False, highlight=False)
