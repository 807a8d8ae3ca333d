"""Parse pass options: text in MLIR's `{name=value …}` syntax to the fields of a pass."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable
from typing import Any

from pullback.errors import PipelineError
from pullback.passes.base import Pass, default_of, option_name

_OPTION = re.compile(r"""\s*([\w.-]+)(?:=("[^"]*"|'[^']*'|\{[^}]*\}|[^\s"'{}]*))?(?=\s|$)""")


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return a hint for a misspelt name: the closest candidates, or all if they are few."""
    names = sorted(candidates)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"choose from: {', '.join(names)}" if 0 < len(names) <= 12 else None


def build_pass(pass_class: type[Pass], text: str) -> Pass:
    """Build a pass with the options of `text`, such as `entry=main wrt=0,1`.

    Raises:
      PipelineError: for an unknown or repeated option and for a value of the wrong type.
    """
    types_of_options = option_types(pass_class)
    values: dict[str, Any] = {}
    for name, value in split_options(pass_class.name, text):
        field = name.replace("-", "_")
        if field not in types_of_options:
            raise _unknown_option(pass_class, name)
        if field in values:
            raise PipelineError(f"pass {pass_class.name!r}: option {name!r} is given twice")
        values[field] = _convert(types_of_options[field], value, pass_class.name, name)
    for option in dataclasses.fields(pass_class):
        if option.name not in values and default_of(option) is dataclasses.MISSING:
            name = option_name(option)
            raise PipelineError(
                f"pass {pass_class.name!r} needs the option {name!r}",
                do=f"give it, as {pass_class.name}{{{name}=…}}",
            )
    try:
        return pass_class(**values)
    except (TypeError, ValueError) as error:
        raise PipelineError(f"pass {pass_class.name!r}: {error}") from error


def option_types(pass_class: type[Pass]) -> dict[str, Any]:
    """Return the types of the options of a pass, by field name."""
    hints = typing.get_type_hints(pass_class)
    return {field.name: hints[field.name] for field in dataclasses.fields(pass_class)}


def split_options(pass_name: str, text: str) -> list[tuple[str, str | None]]:
    """Split `a=1 b="x y" flag` into name and value pairs; a flag has no value."""
    pairs: list[tuple[str, str | None]] = []
    position, text = 0, text.rstrip()
    while position < len(text):
        match = _OPTION.match(text, position)
        if match is None:
            rest = text[position:].strip()
            raise PipelineError(
                f"pass {pass_name!r}: cannot read options at {rest!r}",
                do="write options as name=value, separated by spaces",
            )
        name, value = match.groups()
        if value and value[0] in "\"'{":
            value = value[1:-1]
        pairs.append((name, value))
        position = match.end()
    return pairs


def _unknown_option(pass_class: type[Pass], name: str) -> PipelineError:
    known = [option_name(field) for field in dataclasses.fields(pass_class)]
    if not known:
        return PipelineError(f"pass {pass_class.name!r} takes no options, and got {name!r}")
    return PipelineError(
        f"pass {pass_class.name!r} has no option {name!r}", do=did_you_mean(name, known)
    )


def _convert(kind: Any, text: str | None, pass_name: str, option: str) -> Any:
    """Parse the value of one option; a name without `=value` sets a bool."""
    if text is None and kind is not bool:
        raise PipelineError(f"pass {pass_name!r}: option {option!r} needs a value, as {option}=…")
    try:
        return _parse(kind, "true" if text is None else text)
    except ValueError as error:
        raise PipelineError(
            f"pass {pass_name!r}: option {option!r} takes {describe_type(kind)}, and got {text!r}"
        ) from error


def _parse(kind: Any, text: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if text == "none" and type(None) in arguments:
            return None
        return _parse(next(item for item in arguments if item is not type(None)), text)
    if origin is typing.Literal:
        if text not in arguments:
            raise ValueError(text)
        return text
    if origin is tuple:
        return tuple(_parse(arguments[0], item) for item in text.split(",")) if text else ()
    if kind is bool:
        return _parse_bool(text)
    return text if kind is str else parse_number(kind, text)


def check_choices(given: Pass) -> None:
    """Check that the options of a pass that are one of a few words are one of these.

    Raises:
      PipelineError: an option, a field whose type is a `Literal`, is none of its values.
    """
    for name, kind in option_types(type(given)).items():
        value = getattr(given, name)
        if not _is_a_choice(kind, value):
            option = name.replace("_", "-")
            raise PipelineError(
                f"pass {given.name!r}: option {option!r} takes {describe_type(kind)}, and got "
                f"{value!r}"
            )


def _is_a_choice(kind: Any, value: Any) -> bool:
    """Return False for a value that is not among those of a `Literal`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return any(_is_a_choice(each, value) for each in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple and isinstance(value, tuple | list):
        return all(_is_a_choice(arguments[0], each) for each in value)
    return value is None or kind is not type(None)


def parse_number(kind: Any, text: str) -> Any:
    """Parse an int or a float; Python's underscores between digits are a ValueError."""
    if "_" in text:
        raise ValueError(text)
    return kind(text)


def _parse_bool(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text not in values:
        raise ValueError(text)
    return values[text]


_DESCRIPTIONS = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def describe_type(kind: Any) -> str:
    """Describe in words what values an option of this type takes."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(describe_type(item) for item in arguments if item is not type(None))
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"{describe_type(arguments[0])} or several, separated by commas"
    return _DESCRIPTIONS.get(kind, str(kind))
