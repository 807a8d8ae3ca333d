"""Draw the pictures of the documentation from `examples/norm.py` and its modules.

`python docs/site/pictures.py` writes them, and a test compares. Lines are those of the file, of its
jaxprs and of its modules, without types and attributes; gradients are what the modules give.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import jax
from click.testing import CliRunner

import pullback as pb
from pullback_cli import main

FOLDER = Path(__file__).parent
EXAMPLE = FOLDER.parents[1] / "examples" / "norm.py"

WIDTH, LINE, MARGIN = 960, 18, 20
STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: #1f2328; white-space: pre; }
.title { font: bold 14px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
.label { font: italic 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #57606a; }
.sheet { fill: #ffffff; }
.panel { fill: #f6f8fa; stroke: #d0d7de; }
.function { fill: #d5e8ff; }
.rule { fill: #ffe0b2; }
.nan { fill: #b3261e; font-weight: bold; }
.number { fill: #1a6b34; font-weight: bold; }
.arrow { stroke: #57606a; stroke-width: 1.5; fill: none; }
"""

Line = tuple[str, str]
"""A line of text, and the class of the stripe behind it, or of the text."""


@functools.cache
def _example() -> Any:
    spec = importlib.util.spec_from_file_location("norm", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lost_and_kept() -> str:
    """Return the picture of a function, its module by JAX, and its module by pullback."""
    example = _example()
    x = example.example_args[0]
    lowered = jax.jit(example.energy).lower(x).as_text()
    kept = pb.trace(example.energy)(x).stage_rules()
    lost = [_gradient("its gradient", pb.load(lowered.encode()).grad()(x))]
    ours = [_gradient("its gradient", kept.grad()(x))]

    right, width = 440, WIDTH - 440 - MARGIN
    python = [
        *_source(example.norm.fun, "function"),
        *_source(example.norm_jvp, "rule"),
        *_source(example.energy, "code"),
        ("x = jnp.zeros(3)", "code"),
        _gradient("jax.grad(energy)(x)", jax.grad(example.energy)(x)),
    ]
    title = "jax.jit(energy).lower(x): the rule is lost"
    top, y = _panel(right, 20, width, title, _module(lowered) + lost)
    title = "pullback.trace(energy)(x): it stands beside its call"
    below, end = _panel(right, y + 20, width, title, _module(kept) + ours)
    legend = [("a function", "function"), ("its derivative rule", "rule")]
    space = (end - 60) // LINE - len(python) - len(legend)
    python += [("", "code")] * space + legend
    left, _ = _panel(MARGIN, 20, right - 50 - MARGIN, "examples/norm.py", python)
    arrows = [_right(right - 44, (20 + y) / 2 + 12), _right(right - 44, (y + end) / 2 + 22)]
    return _svg(
        "What is lost and what is kept when a function is lowered",
        end,
        *left,
        *top,
        *below,
        *arrows,
    )


def way_of_a_rule() -> str:
    """Return the picture of what becomes of a function and its rule, from Python to XLA."""
    example = _example()
    right, width = 540, 380
    rule = [line for line in _source(example.norm_jvp, "rule") if line[0]]
    energy = [line for line in _source(example.energy, "code") if line[0]]
    left = [
        ("Python", "", [*rule[:2], ("    …", "rule"), *energy]),
        ("jaxpr of JAX", "trace", _shown(r"custom_jvp_call|jvp=", "dump", "--stage", "jaxpr")),
        ("jaxpr that has keys", "keep", _shown(r"jvp_call|key=", "dump", "--stage", "kept")),
        ("module", "link", _shown(r"main|jvp_call|rule =|@norm\(", "dump", "--stage", "program")),
    ]
    parts: list[str] = []
    tops, ends, y = [], [], 20
    for title, step, lines in left:
        made, end = _panel(MARGIN, y, width, title, lines)
        if step:
            parts += [_down(MARGIN + 250, y - 12), _label(MARGIN + 264, y + 8, step)]
        parts += made
        tops.append(y + 24)
        ends.append(end)
        y = end + 22
    start = (tops[-1] + ends[-1]) // 2

    table = [("norm: norm_jvp", "rule"), ("traced and lowered when a pass asks", "code")]
    made, end = _panel(right, tops[1] - 24, width, "rule table", table)
    parts += [*made, _line(MARGIN + width, tops[2] + 10, right, end - 30)]
    for title, step, lines in (
        (
            "derivative: a module",
            "vjp, jvp, vmap",
            _shown(r"main|norm|comp|div", "derive", "--grad"),
        ),
        (
            "file: all rules are in it",
            "save",
            _shown(r"main|norm|composite", "dump", "--rules")[:5],
        ),
        ("StableHLO for XLA", "lower", _shown(r"main|norm", "dump", "--stage", "stablehlo")),
    ):
        if step.startswith("vjp"):
            parts += [_down(right + 250, end + 10), _label(right + 264, end + 30, "the rule")]
        made, bottom = _panel(right, end + 22, width, title, lines)
        middle = (end + 46 + bottom) // 2
        parts += [*made, _line(MARGIN + width, start, right, middle)]
        beside = middle - 8 if middle < start else middle + 20
        parts.append(_label(right - 8, beside, step, "end"))
        end = bottom
    return _svg("The way of a rule, from Python to a file", max(end, ends[-1]), *parts)


PICTURES = {"lost_and_kept.svg": lost_and_kept, "way_of_a_rule.svg": way_of_a_rule}


def _shown(pattern: str, command: str, *options: str) -> list[Line]:
    """Return the lines of a command's output that have a pattern, without types."""
    text = CliRunner().invoke(main, [command, f"{EXAMPLE}:energy", *options]).output
    lines = [line for line, _ in _module(text)] if "func" in text else text.splitlines()
    return [(line, _kind(line)) for line in lines if re.search(pattern, line)]


def _kind(line: str) -> str:
    return "rule" if re.search(r"jvp\b|rule =|key=|compare|divide", line) else "code"


def _svg(title: str, end: float, *parts: str) -> str:
    height = end + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="sheet" width="{WIDTH}" height="{height}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _panel(x: int, y: int, width: int, title: str, lines: list[Line]) -> tuple[list[str], int]:
    """Return the parts of a box of lines under a title, and where it ends."""
    top, height = y + 24, LINE * len(lines) + 16
    parts = [
        f'<text class="title" x="{x}" y="{y + 14}">{escape(title)}</text>',
        f'<rect class="panel" x="{x}" y="{top}" width="{width}" height="{height}" rx="6"/>',
    ]
    for i, (text, kind) in enumerate(lines):
        place = top + 8 + LINE * i
        if kind in ("function", "rule"):
            size = f'width="{width - 2}" height="{LINE}"'
            parts.append(f'<rect class="{kind}" x="{x + 1}" y="{place}" {size}/>')
            kind = "code"
        parts.append(f'<text class="{kind}" x="{x + 10}" y="{place + 13}">{escape(text)}</text>')
    return parts, top + height


def _down(x: float, y: float) -> str:
    return f'<path class="arrow" d="M{x},{y} v26 m-5,-7 l5,7 l5,-7"/>'


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (x + to_x) / 2
    curve = f"M{x},{y} C{middle},{y} {middle},{to_y} {to_x - 4},{to_y}"
    return f'<path class="arrow" d="{curve} m-7,-5 l7,5 l-7,5"/>'


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="label" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _right(x: float, y: float) -> str:
    return f'<path class="arrow" d="M{x},{y} h34 m-7,-5 l7,5 l-7,5"/>'


def _gradient(what: str, value: jax.Array) -> Line:
    return f"{what} = {value}", "nan" if jax.numpy.isnan(value).any() else "number"


def _source(function: Callable, kind: str) -> list[Line]:
    return [*((line, kind) for line in inspect.getsource(function).splitlines()), ("", "code")]


def _module(module: pb.Program | str) -> list[Line]:
    """Return the functions of a module without types and attributes."""
    lines: list[Line] = []
    kind = ""
    for line in str(module).splitlines()[1:]:
        text = re.sub(r": tensor<\S*>| (->|: \(|: tensor).*(?=$)", "", line.removeprefix("  "))
        text = re.sub(
            r", (contracting_dims|precision|FLOAT).*|func\.|stablehlo\.|public ", "", text
        )
        text = re.sub(r"dense<(\d\.\d)0*e\+00>", r"\1", text.replace("private ", "")).rstrip()
        if text.startswith("func"):
            text = text.removesuffix(" {") + " {"
            kind = {"@norm": "function", "@norm.jvp": "rule"}.get(text.split("(")[0][5:], "")
        called, _, attributes = text.partition(" {composite_attributes = {")
        of_norm = "function" if re.search("dot_general|sqrt", text) else "code"
        lines.append((called, kind or of_norm))
        if attributes:
            lines.append(("      " + attributes.replace("}", ""), "rule"))
    return [line for line in lines if line[0] not in ("", "}")]


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw())
