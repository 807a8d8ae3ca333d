"""Options that several commands have, and the types of their values."""

from __future__ import annotations

import math
from typing import Any

import click


def flag(name: str, help_text: str, *parameter: str) -> Any:
    """Return an option that is a plain flag, maybe for a parameter of another name."""
    return click.option(name, *parameter, is_flag=True, help=help_text)


def whole_number(text: str) -> int:
    """Parse an integer; Python's underscores between digits are a ValueError."""
    if "_" in text:
        raise ValueError(text)
    return int(text)


class Tolerance(click.FloatRange):
    """A finite number of at least 0: click's range would let NaN pass."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is no tolerance; write a number such as 1e-3", param, ctx)
        return number


def _parse_sizes(context: Any, parameter: Any, text: str | None) -> dict[str, int] | None:
    """Parse `b=4,n=3` to a dictionary."""
    del context, parameter
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        sizes = {name.strip(): whole_number(size) for name, _, size in pairs}
    except ValueError:
        raise click.BadParameter(f"{text!r} is not sizes such as b=4,n=3") from None
    if len(sizes) < len(pairs):
        raise click.BadParameter(f"{text!r} gives a dimension two sizes")
    return sizes


def parse_positions(context: Any, parameter: Any, text: str | None) -> int | tuple[int, ...] | None:
    """Parse `0,1` to a tuple; a single `0` to a number, so that its gradient is not a tuple."""
    del context, parameter
    if text is None:
        return None
    try:
        positions = tuple(whole_number(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not positions such as 0,1") from None
    return positions if len(positions) > 1 else positions[0]


_sizes_option = click.option(
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


def source_options(*entry: str) -> Any:
    """Return a decorator that adds the options for what SOURCE is: arguments, an entry, sizes."""

    def add(command: Any) -> Any:
        arguments = click.option(
            "--args", "arguments", help="Argument types of a function: 'f32[8,128], i32[8]'."
        )
        command = _sizes_option(allow_custom_calls_option(command))
        return arguments(entry_option(*entry)(command))

    return add


load_rules_option = click.option(
    "--load-rules",
    "plugins",
    multiple=True,
    metavar="PLACE",
    type=click.Path(),
    help="Import derivative rules from path/file.py or package.module; repeatable.",
)
