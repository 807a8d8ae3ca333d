"""Parse argument types of the command line: `f32[8,128], {w: f32[4], b: f32[]}, 3`.

arguments := argument (',' argument)*
argument  := type | number | True | False | tuple | list | dict
type      := dtype ('[' (size (',' size)*)? ']')?     f32[8,128]   i32[]   bool   key<rbg>[2]
size      := int | name                               a name is a symbolic dimension
tuple     := '(' arguments? ')'
list      := '[' arguments? ']'
dict      := '{' (name ':' argument (',' name ':' argument)*)? '}'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from pullback.errors import UsageError
from pullback_runtime.call import _avals

DTYPES = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (4, 8, 16, 32, 64)},
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "bool": "bool",
    "pred": "bool",
    **{name: name for kind in _avals.KEY_IMPLEMENTATIONS if (name := f"key<{kind}>")},
}
KEY = "key"
"""Random keys of the implementation that JAX takes by default."""
WIDE_DTYPES = ("float64", "int64", "uint64", "complex128")
CONSTANTS = {"True": True, "False": False}
TOKEN = re.compile(
    r"\s*(?:(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*(?:<\w*>)?)|(?P<mark>[\[\](){},:]))"
)


def parse_arguments(text: str) -> tuple[Any, ...]:
    """Return one `jax.ShapeDtypeStruct`, Python scalar or container of them per argument."""
    parser = _TypeParser(text)
    try:
        return tuple(parser.items("", parser.argument))
    except RecursionError:
        parser.fail("too many brackets inside one another")


class _TypeParser:
    """A recursive-descent parser; `index` is the token that comes next."""

    def __init__(self, text: str):
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        self.index = 0
        self.scope = jax.export.SymbolicScope()  # a symbol is one size in all arguments
        self._tokenize()

    def _tokenize(self) -> None:
        end = len(self.text.rstrip())
        position = 0
        while position < end:
            match = TOKEN.match(self.text, position)
            if match is None:
                place = position + len(self.text[position:]) - len(self.text[position:].lstrip())
                self.fail(f"unexpected character {self.text[place]!r}", place)
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()
        self.tokens.append(("end", "", end))

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        if position is None:
            position = self.tokens[self.index][2]
        raise UsageError(
            f"--args: {message}\n    {self.text}\n    {' ' * position}^",
            do="write types such as 'f32[8,128], i32[], (bf16[4], bool[2]), {w: f32[3]}'",
        )

    @property
    def token(self) -> str:
        return self.tokens[self.index][1]

    def take(self, wanted: str) -> None:
        if self.token != wanted:
            self.fail(f"expected {wanted!r}, found {self.token or 'the end'!r}")
        self.index += 1

    def items(self, closing: str, item: Callable[[], Any]) -> list[Any]:
        """Parse items between commas up to and including the mark `closing`; '' is the end."""
        found = []
        while self.token != closing:
            found.append(item())
            if self.token != closing:
                self.take(",")
        if closing:
            self.take(closing)
        return found

    def argument(self) -> Any:
        kind, token, position = self.tokens[self.index]
        self.index += 1
        if kind == "number":
            return float(token) if set(token) & set(".eE") else int(token)
        if token in CONSTANTS:
            return CONSTANTS[token]
        if kind == "name":
            return self.array_type(token, position)
        if token == "(":
            return tuple(self.items(")", self.argument))
        if token == "[":
            return self.items("]", self.argument)
        if token != "{":
            self.fail(f"expected an argument, found {token or 'the end'!r}", position)
        return dict(self.items("}", self.entry))

    def entry(self) -> tuple[str, Any]:
        kind, name, _ = self.tokens[self.index]
        if kind != "name":
            self.fail(f"expected a name, found {name or 'the end'!r}")
        self.index += 1
        self.take(":")
        return name, self.argument()

    def array_type(self, name: str, position: int) -> jax.ShapeDtypeStruct:
        dtype = DTYPES.get(name, name if name in DTYPES.values() else None)
        if name == KEY:
            dtype = jax.eval_shape(lambda: jax.random.key(0)).dtype.name
        if dtype is None:
            self.fail(f"no dtype {name!r}; there are {', '.join((*DTYPES, KEY))}", position)
        if dtype in WIDE_DTYPES and not jax.config.jax_enable_x64:
            self.fail(f"{name} needs 64-bit types: set JAX_ENABLE_X64=1", position)
        shape: list[Any] = []
        if self.token == "[":
            self.take("[")
            shape = self.items("]", self.dimension)
        return jax.ShapeDtypeStruct(tuple(shape), _avals.dtype_named(dtype))

    def dimension(self) -> Any:
        kind, token, _ = self.tokens[self.index]
        if kind != "name" and not token.isdigit():
            self.fail(f"expected a dimension, found {token or 'the end'!r}")
        self.index += 1
        if kind != "name":
            return int(token)
        return jax.export.symbolic_shape(token, scope=self.scope)[0]


def random_array(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return standard normal numbers; integers from 0 to 3; coin flips for bool."""
    dtype = jnp.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.bool_):
        return generator.integers(0, 2, shape).astype(bool)
    if jnp.issubdtype(dtype, jnp.integer):
        return generator.integers(0, 4, shape).astype(dtype)
    values = generator.standard_normal(shape)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        values = values + 1j * generator.standard_normal(shape)
    return np.asarray(values).astype(dtype)
