"""Colour IR for a terminal."""

from __future__ import annotations

from pygments.token import Comment, Keyword, Name, String
from rich.text import Text

from pullback.ir.lexer import MLIRLexer

STYLES = {
    Comment: "dim",
    String: "green",
    Name.Function: "bold magenta",
    Name.Variable: "cyan",
    Name.Decorator: "bold yellow",
    Name.Builtin: "blue",
    Keyword.Type: "dim cyan",
}


def coloured(text: str) -> Text:
    """Return text with a style for each token, or for the kind of tokens that it is one of."""
    parts = []
    for kind, part in MLIRLexer(stripnl=False, ensurenl=False).get_tokens(text):
        parts.append((part, STYLES.get(kind) or STYLES.get(kind.parent) or ""))
    return Text.assemble(*parts)
