"""A lexer of MLIR for Pygments, which has none, and IR as lines of HTML."""

from __future__ import annotations

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import RegexLexer, bygroups
from pygments.lexers import PythonLexer
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    String,
    Text,
)

_NESTED = r"(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*"


class MLIRLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """The tokens of MLIR's textual form, for the dialects that programs are made of."""

    name = "MLIR"
    aliases = ("mlir",)
    filenames = ("*.mlir",)
    tokens = {  # noqa: RUF012 -- Pygments' own form
        "root": [
            (r"//.*", Comment.Single),
            (r"(?<=\s)loc\(.*\)", Comment),
            (r'"pullback\.[\w.]+"|pullback\.\w+', Name.Decorator),
            (r'"(?:\\.|[^"\\])*"', String),
            (r"%[\w$.-]+(?:#\d+)?", Name.Variable),
            (r"@(?:[\w$.-]+|\"[^\"]*\")", Name.Function),
            (r"\^\w+", Name.Label),
            (r"[#!][\w.$-]+", Name.Constant),
            (rf"(?:tensor|tuple|memref|vector|complex)<{_NESTED}>", Keyword.Type),
            (r"(?:[su]?i\d+|bf16|tf32|f\d+\w*|index|none)\b", Keyword.Type),
            (r"(?:module|return|call|cond|do|public|private)\b(?!\s*=)", Keyword),
            (r"dense(?:_resource)?(?=<)|(?:true|false|unit)\b", Keyword.Constant),
            (r"[a-z_]\w*(?:\.[a-z_]\w*)+", Name.Builtin),
            (r"([A-Za-z_][\w.]*)(\s*)(=)", bygroups(Name.Attribute, Text, Text)),
            (r"-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)", Number),
            (r"[A-Za-z_]\w*", Name),
            (r"[^\w%@^#!\"/-]+|.", Text),
        ]
    }


def coloured_ir(text: str) -> list[str]:
    """Return the lines of a module as HTML, with a `span` of Pygments' short class for a token."""
    return _lines(MLIRLexer(stripnl=False), text)


def coloured_python(text: str) -> list[str]:
    """Return the lines of a Python file as HTML."""
    return _lines(PythonLexer(stripnl=False), text)


def _lines(lexer: RegexLexer, text: str) -> list[str]:
    return highlight(text, lexer, HtmlFormatter(nowrap=True)).removesuffix("\n").split("\n")
