"""The user's line behind an operation, for error messages."""

from __future__ import annotations

import functools
import os
import re
import traceback
import types
from typing import Any

import jax

from pullback._jax import ir, source_info

# What JAX's inliner puts around a location has no name: loc(""("model.mlir":7:3)).
_FRAME = re.compile(r'"(?P<function>[^"]+)"\("(?P<file>[^"]+)":(?P<line>\d+):\d+')
_PLAIN = re.compile(r'(?<![^"]"\()"(?P<file>[^"]+)":(?P<line>\d+:\d+)')
_INSIDE_JAX = os.path.dirname(jax.__file__) + os.sep


def user_line(location: ir.Location) -> str | None:
    """The innermost line of the user's code in a location: `model.py:42, in loss`.

    None where the location names no Python line, as in a module written by hand.
    """
    return user_frame(location) or _plain_line(location)


def user_frame(location: ir.Location) -> str | None:
    """The same where it names the function around that line, as JAX does, and parsers do not."""
    for frame in _FRAME.finditer(str(location)):
        if not frame["file"].startswith(_INSIDE_JAX):
            return describe(frame["file"], int(frame["line"]), frame["function"])
    return None


def user_line_of(operation: Any) -> str | None:
    """The user's line that an operation, or an operation view, comes from."""
    return user_line(operation.operation.location)


def of_equation(equation: Any) -> str | None:
    """The user's line that an equation of a jaxpr comes from.

    None inside a function of JAX's own that was traced by itself; its caller then has the line.
    """
    frame = source_info.user_frame(equation)
    return None if frame is None else describe(*frame)


def of_tracer(tracer: Any) -> str | None:
    """The user's line where a value of a trace was made, if JAX has kept it."""
    frame = source_info.user_frame_of(tracer)
    return None if frame is None else describe(*frame)


def of_code(code: types.CodeType) -> str:
    """The line where a function of the user's begins."""
    return f"{_short(code.co_filename)}:{code.co_firstlineno}"


def of_error(error: BaseException) -> str | None:
    """The user's innermost line that an error came through; None if it came through none."""
    frames = traceback.walk_tb(error.__traceback__)
    users = [each for each in frames if source_info.is_user_file(each[0].f_code.co_filename)]
    if not users:
        return None
    frame, line = users[-1]
    return describe(frame.f_code.co_filename, line, frame.f_code.co_qualname)


def describe(file: str, line: int, function: str) -> str:
    """A place in a program as our messages write it, relative to the working directory."""
    return f"{_short(file)}:{line}, in {function.replace('<locals>.', '')}"


def _plain_line(location: ir.Location) -> str | None:
    """The first bare `file:line:column`: MLIR's parser, and other frontends, put these on ops."""
    found = _PLAIN.search(str(location))
    return f"{_short(found['file'])}:{found['line']}" if found else None


def _short(file: str) -> str:
    return _relative(file, os.getcwd()) if os.path.isabs(file) else file


@functools.lru_cache(maxsize=1024)
def _relative(file: str, directory: str) -> str:
    relative = os.path.relpath(file, directory)
    return file if relative.startswith("..") else relative
