"""Load a program from a target, a file, or standard input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

import pullback
from pullback import Program
from pullback.errors import UsageError
from pullback.passes.options import parse_number
from pullback.program.symbolic import SymbolicProgram
from pullback.tools.module_io import standard_input
from pullback.tools.targets import Target, is_target, load_target, naming


@dataclass(frozen=True)
class Source:
    """A program, its origin, and the target that it was traced from, if any."""

    spec: str
    program: Program | SymbolicProgram
    target: Target | None = None

    def fixed(self, what: str, do: str = "give them: --sizes {}") -> Program:
        """Return the program if its sizes are fixed; raise UsageError if dimensions are symbols."""
        if isinstance(self.program, Program):
            return self.program
        symbols = self.program.symbols
        raise UsageError(
            f"{what} wants sizes, and `{self.spec}` has the symbolic dimensions "
            f"{', '.join(symbols)}",
            do=do.format(",".join(f"{symbol}=4" for symbol in symbols)),
        )


def check_used(without: str, options: dict[str, Any]) -> None:
    """Raise UsageError for an option that has no effect without another one."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise UsageError(f"{name} says nothing without {without}", do=f"leave out {name}")


def _parse_sizes(context: Any, parameter: Any, text: str | None) -> dict[str, int] | None:
    """Parse `b=4,n=3` to a dictionary."""
    del context, parameter
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        sizes = {name.strip(): parse_number(int, size) for name, _, size in pairs}
    except ValueError:
        raise click.BadParameter(f"{text!r} is not sizes such as b=4,n=3") from None
    if len(sizes) < len(pairs):
        raise click.BadParameter(f"{text!r} gives a dimension two sizes")
    return sizes


class Tolerance(click.FloatRange):
    """A finite number of at least 0: click's range would let NaN pass."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is no tolerance; write a number such as 1e-3", param, ctx)
        return number


sizes_option = click.option(
    "--sizes", callback=_parse_sizes, help="Of symbolic dimensions, such as b=4,n=3."
)


def entry_option(*names: str) -> Any:
    """Return the option, of these names, that chooses a program of a file."""
    return click.option(
        *names,
        "entry",
        help="Which program of a file, by default its first; of another module, the function.",
    )


allow_custom_calls_option = click.option(
    "--allow-custom-calls",
    multiple=True,
    metavar="NAME",
    help="Allow a file to make custom calls of this target; repeatable.",
)


def load_source(
    spec: str,
    arguments: str | None,
    platform: str | None = None,
    entry: str | None = None,
    sizes: dict[str, int] | None = None,
    allow_custom_calls: Sequence[str] = (),
) -> Source:
    """Trace a target, or load a module or a saved program from a file or from `-`."""
    if is_target(spec):
        source = _traced(spec, arguments, platform, entry, allow_custom_calls)
    else:
        source = _loaded(spec, arguments, entry, allow_custom_calls)
    if sizes is None:
        return source
    if isinstance(source.program, Program):
        raise UsageError(
            f"--sizes is for symbolic dimensions, and `{spec}` has none", do="leave --sizes out"
        )
    return replace(source, program=source.program.with_sizes(**sizes))


def _traced(
    spec: str,
    arguments: str | None,
    platform: str | None,
    entry: str | None,
    allow_custom_calls: Sequence[str],
) -> Source:
    if entry is not None:
        raise UsageError(
            f"--entry is for modules, and `{spec}` names its function", do="leave --entry out"
        )
    if allow_custom_calls:
        raise UsageError(
            f"--allow-custom-calls is for files, and `{spec}` is a function",
            do="leave --allow-custom-calls out",
        )
    target = load_target(spec, arguments)
    return Source(spec, target.trace(platform), target)


def _loaded(
    spec: str, arguments: str | None, entry: str | None, allow_custom_calls: Sequence[str]
) -> Source:
    if arguments is not None:
        raise UsageError(f"--args is for targets, and `{spec}` is a module", do="leave --args out")
    content = standard_input() if spec == "-" else spec
    with naming(spec):
        program = pullback.load(
            content, entry=entry or "main", allow_custom_calls=allow_custom_calls
        )
        return Source(spec, program)
