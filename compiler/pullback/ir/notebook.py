"""Write HTML for notebooks: tables, folded parts, and modules whose symbols are links."""

from __future__ import annotations

import html
import importlib
import re
import secrets
from collections.abc import Sequence

MOST_ROWS = 200
"""Limits the rows of a module that are shown: notebooks keep what they show."""

# Colours are those of Jupyter's editor, in its light and dark themes; others show the second ones.
STYLE = """<style>
.pullback pre { margin: 0 0 0 1em; line-height: 1.3; white-space: pre; overflow-x: auto; }
.pullback table { margin: 0 0 0 1em; }
.pullback td, .pullback th { text-align: left; }
.pullback summary { cursor: pointer; }
.pullback .nv { color: var(--jp-mirror-editor-variable-color, #0a5c8a); }
.pullback .nb { color: var(--jp-mirror-editor-keyword-color, #1d3fbf); }
.pullback .k, .pullback .kc { color: var(--jp-mirror-editor-keyword-color, #8a1a7c); }
.pullback .nd { font-weight: bold; }
.pullback .s { color: var(--jp-mirror-editor-string-color, #1a6b2d); }
.pullback .m { color: var(--jp-mirror-editor-number-color, #1a6b2d); }
.pullback .kt, .pullback .c1 { color: var(--jp-mirror-editor-comment-color, #4d6470); }
</style>"""

_FUNCTION = re.compile(r"^  func\.func (?:public |private )?(@(?:[\w$.-]+|\"[^\"]*\"))")
_SYMBOL = re.compile(r'(<span class="nf">(@[^<]*)</span>)')


def page(*parts: str) -> str:
    """Return parts as one piece of HTML, with its style."""
    return f'<div class="pullback">{STYLE}{"".join(parts)}</div>'


def fold(summary: str, *parts: str, is_open: bool = False) -> str:
    """Return parts of HTML folded below a line of HTML that opens them."""
    return f"<details{' open' * is_open}><summary>{summary}</summary>{''.join(parts)}</details>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain texts."""

    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<table><thead>{row(heads, 'th')}</thead><tbody>{body}</tbody></table>"


def folded_module(text: str) -> str:
    """Return a module with a fold for each function, the first one open.

    Names of functions are links to these, such as those of rules in the calls that have them, and
    each function has a link to the first row that names it.
    """
    rows = text.splitlines()
    every = {found[1]: i for i, row in enumerate(rows) if (found := _FUNCTION.match(row))}
    starts = {name: i for name, i in every.items() if i < MOST_ROWS}
    prefix = f"pullback-{secrets.token_hex(4)}"  # an anchor is one of all outputs of a notebook
    shown, users = _linked(rows[:MOST_ROWS], starts, prefix)
    ends = [*list(starts.values())[1:], MOST_ROWS]
    parts: list[str] = []
    for (name, start), end in zip(starts.items(), ends, strict=True):
        used = f' <a href="#{users[name]}">its first use</a>' if name in users else ""
        body = "\n".join(shown[start:end])
        summary = f"<code>{html.escape(name)}</code>{used}"
        parts.append(
            fold(summary, f'<pre id="{prefix}-at-{start}">{body}</pre>', is_open=not parts)
        )
    if len(rows) > MOST_ROWS:
        parts.append(f"<p>{len(rows) - MOST_ROWS} more rows: print it</p>")
    return "".join(parts)


def _linked(
    rows: Sequence[str], starts: dict[str, int], prefix: str
) -> tuple[list[str], dict[str, str]]:
    """Return rows as HTML with links, and the anchor of the first row that uses each function."""
    lexer = importlib.import_module("pullback.ir.lexer")  # slow to import, for notebooks alone
    users: dict[str, str] = {}
    shown = []
    for i, row in enumerate(lexer.coloured_ir("\n".join(rows))):
        for span, symbol in set(_SYMBOL.findall(row)):
            name = html.unescape(symbol)
            if starts.get(name, i) != i:  # a function, and not in its own first row
                users.setdefault(name, f"{prefix}-row-{i}")
                row = row.replace(span, f'<a href="#{prefix}-at-{starts[name]}">{symbol}</a>')
        shown.append(f'<span id="{prefix}-row-{i}">{row}</span>')
    return shown, users
