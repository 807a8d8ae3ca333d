"""The list of passes that people read."""

from __future__ import annotations

import dataclasses
import inspect

from pullback.passes import PASSES, PIPELINES, STOCK_PASSES
from pullback.passes.base import Pass, default_of, format_option, option_name
from pullback.passes.options import describe_type, option_types
from pullback.passes.pipelines import load_pass


def list_passes() -> str:
    """Return the text of `--list-passes`: our passes with options, pipelines, stock passes."""
    lines = ["Passes of pullback:"]
    for name in sorted(PASSES):
        lines += _describe_pass(load_pass(name))
    lines += ["", "Named pipelines:"]
    lines += [f"  {name:<38} {text}" for name, text in sorted(PIPELINES.items())]
    lines += ["", "Passes of MLIR and StableHLO (every other registered one works too):"]
    lines += [f"  {name:<38} {text}" for name, text in sorted(STOCK_PASSES.items())]
    return "\n".join(lines)


def _describe_pass(pass_class: type[Pass]) -> list[str]:
    summary = inspect.getdoc(pass_class) or ""
    lines = [f"  {pass_class.name:<38} {summary.partition(chr(10))[0]}"]
    types = option_types(pass_class)
    for field in dataclasses.fields(pass_class):
        default = default_of(field)
        shown = (
            "required" if default is dataclasses.MISSING else f"default {format_option(default)}"
        )
        lines.append(f"    {option_name(field):<36} {describe_type(types[field.name])}; {shown}")
    return lines
