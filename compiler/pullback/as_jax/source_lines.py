"""Give the equations of JAX the lines of the user's program that ops of a module have.

JAX takes the lines of an equation from the Python frames in which it is made. So the equations of
an op are made in frames that have the files, lines and functions of its location.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from pullback.ir.locations import frames_of

_CALL = (lambda call: call()).__code__
_COUNT = len(_CALL.co_code) // 2
_ONE_LINE = b"".join(bytes([0xD0 + min(8, _COUNT - i) - 1, 0, 0]) for i in range(0, _COUNT, 8))
"""Says that all instructions, eight an entry, are of column 0 of one line.

`InternalDocs/code_objects.md` in CPython's sources has the format.
"""


def at(location: Any, call: Callable[[], Any]) -> Any:
    """Return what a function returns, called in the frames of a location."""
    for frame in frames_of(location):
        call = functools.partial(_frame(*frame), call)
    return call()


@functools.lru_cache(maxsize=4096)
def _frame(file: str, line: int, function: str) -> Callable[..., Any]:
    """Return a function that calls its argument in a frame of this place."""
    code = _CALL.replace(
        co_filename=file,
        co_firstlineno=line,
        co_linetable=_ONE_LINE,
        co_name=function.rpartition(".")[2],
        co_qualname=function,
    )
    return types.FunctionType(code, {})
