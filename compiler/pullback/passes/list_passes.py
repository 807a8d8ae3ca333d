"""The list of passes, for people and for programs."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from pullback.passes import PASSES, PIPELINES, STOCK_PASSES, plugins
from pullback.passes.base import Pass, default_of, format_option, option_name
from pullback.passes.options import describe_type, option_types
from pullback.passes.pipelines import load_pass


def passes_as_json() -> dict[str, Any]:
    """Return passes with their options, pipelines, and upstream passes, as values of JSON."""
    return {
        "passes": [_described(load_pass(name)) for name in sorted(PASSES)],
        "plugins": [_described(load_pass(name)) for name in plugins.names()],
        "pipelines": PIPELINES,
        "stock": STOCK_PASSES,
    }


def _described(pass_class: type[Pass]) -> dict[str, Any]:
    summary, _, details = (inspect.getdoc(pass_class) or "").partition("\n")
    types = option_types(pass_class)
    return {
        "name": pass_class.name,
        "summary": summary,
        "details": details.strip(),
        "options": [
            {
                "name": option_name(field),
                "type": describe_type(types[field.name]),
                "default": _default(field),
            }
            for field in dataclasses.fields(pass_class)
        ],
    }


def _default(field: dataclasses.Field[Any]) -> str | None:
    """Return the text of an option's default; None if it has none and is required."""
    default = default_of(field)
    return None if default is dataclasses.MISSING else format_option(default)


def list_passes() -> str:
    """Return the text of `--list-passes`: passes with options, pipelines, upstream passes."""
    listed = passes_as_json()
    lines = ["Passes of pullback:", *_lines(listed["passes"])]
    if listed["plugins"]:
        lines += ["", "Passes of other packages:", *_lines(listed["plugins"])]
    lines += ["", "Named pipelines:"]
    lines += [f"  {name:<38} {text}" for name, text in sorted(PIPELINES.items())]
    lines += ["", "Passes of MLIR and StableHLO (every other registered one works too):"]
    lines += [f"  {name:<38} {text}" for name, text in sorted(STOCK_PASSES.items())]
    return "\n".join(lines)


def _lines(passes: list[dict[str, Any]]) -> list[str]:
    lines = []
    for each in passes:
        lines.append(f"  {each['name']:<38} {each['summary']}")
        for option in each["options"]:
            default = option["default"]
            shown = "required" if default is None else f"default {default}"
            lines.append(f"    {option['name']:<36} {option['type']}; {shown}")
    return lines
