"""Where a program comes from: a target, a file, or standard input."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

import pullback
from pullback import Program
from pullback._errors import UsageError
from pullback.tools.targets import Target, is_target, load_target, naming


@dataclass(frozen=True)
class Source:
    """A program, where it came from, and the target that it was traced from, if it was."""

    spec: str
    program: Program
    target: Target | None = None


def check_used(without: str, options: dict[str, Any]) -> None:
    """Raises UsageError for an option that says something of what is not asked for."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise UsageError(f"{name} says nothing without {without}", do=f"leave out {name}")


entry_option = click.option("--entry", help="The function of an MLIR file. By default main.")


def load_source(
    spec: str, arguments: str | None, platform: str = "cpu", entry: str | None = None
) -> Source:
    """Traces a target, or loads a module or a saved program from a file or from `-`."""
    if is_target(spec):
        if entry is not None:
            raise UsageError(
                f"--entry is for modules, and `{spec}` names its function", do="leave --entry out"
            )
        target = load_target(spec, arguments)
        return Source(spec, target.trace(platform), target)
    if arguments is not None:
        raise UsageError(f"--args is for targets, and `{spec}` is a module", do="leave --args out")
    content = sys.stdin.buffer.read() if spec == "-" else spec
    with naming(spec):
        loaded = pullback.load(content, entry=entry or "main")
    if not isinstance(loaded, Program):
        raise UsageError(
            f"`{spec}` has symbolic dimensions, and the command line wants sizes",
            do="use pullback.load in Python, or save program.with_shapes(…)",
        )
    return Source(spec, loaded)
