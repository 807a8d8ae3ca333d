"""Draw what is lost and what is kept when `examples/norm.py` is lowered.

`python docs/site/picture.py` writes `docs/site/lost_and_kept.svg`, and a test compares. The lines
are those of the file and of its modules, without types and attributes; the gradients are what the
modules give.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from html import escape
from pathlib import Path

import jax

import pullback as pb

PICTURE = Path(__file__).parent / "lost_and_kept.svg"
EXAMPLE = Path(__file__).parents[2] / "examples" / "norm.py"

WIDTH, LINE, LEFT, RIGHT = 960, 18, 20, 440
STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: #1f2328; white-space: pre; }
.title { font: bold 14px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
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


def picture() -> str:
    """Return the SVG."""
    spec = importlib.util.spec_from_file_location("norm", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    x = example.example_args[0]
    lowered = jax.jit(example.energy).lower(x).as_text()
    kept = pb.trace(example.energy)(x).stage_rules()
    lost = [_gradient("its gradient", pb.load(lowered.encode()).grad()(x))]
    ours = [_gradient("its gradient", kept.grad()(x))]

    python = [
        *_source(example.norm.fun, "function"),
        *_source(example.norm_jvp, "rule"),
        *_source(example.energy, "code"),
        ("x = jnp.zeros(3)", "code"),
        _gradient("jax.grad(energy)(x)", jax.grad(example.energy)(x)),
    ]
    top, y = _panel(
        RIGHT, 20, "jax.jit(energy).lower(x): the rule is lost", _module(lowered) + lost
    )
    below, end = _panel(
        RIGHT, y + 20, "pullback.trace(energy)(x): it stands beside its call", _module(kept) + ours
    )
    legend = [("a function", "function"), ("its derivative rule", "rule")]
    space = (end - 60) // LINE - len(python) - len(legend)
    python += [("", "code")] * space + legend
    left, _ = _panel(LEFT, 20, "examples/norm.py", python)
    arrows = [_arrow((20 + y) / 2 + 12), _arrow((y + end) / 2 + 22)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {end + 20}" role="img">',
            "<title>What is lost and what is kept when a function is lowered</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="sheet" width="{WIDTH}" height="{end + 20}" rx="8"/>',
            *(part for panel in (left, top, below, arrows) for part in panel),
            "</svg>\n",
        ]
    )


def _panel(x: int, y: int, title: str, lines: list[Line]) -> tuple[list[str], int]:
    """Return the parts of a box of lines under a title, and where it ends."""
    width = (RIGHT - 50 if x == LEFT else WIDTH - 20) - x
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


def _arrow(y: float) -> str:
    return f'<path class="arrow" d="M{RIGHT - 44},{y} h34 m-7,-5 l7,5 l-7,5"/>'


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
    PICTURE.write_text(picture())
