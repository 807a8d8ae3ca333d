"""The user's line that made an operation, for error messages.

Where that is a line of an installed library, the one that called the library is named as well.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
import traceback
import types
from collections.abc import Iterable, Iterator
from typing import Any

import jax

import pullback_runtime
from pullback._jax import ir, source_info
from pullback.errors import PullbackError
from pullback_runtime._jax import unescaped

# What JAX's inliner puts around a location has no name: loc(""("model.mlir":7:3)).
_FRAME = re.compile(r'"(?P<function>[^"]+)"\("(?P<file>[^"]+)":(?P<line>\d+):\d+')
_PLAIN = re.compile(r'(?<![^"]"\()"(?P<file>[^"]+)":(?P<line>\d+:\d+)')
_PRIMITIVE = re.compile(r'loc\("(?:[^"]*/)?(?P<name>\w+)"(?!:)')
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_INSIDE_RUNTIME = os.path.dirname(pullback_runtime.__file__) + os.sep
_INSIDE_JAX = os.path.dirname(jax.__file__) + os.sep

UNKNOWN = "an unknown line"
"""Stands for the line of what has none of the user's."""


def user_line(location: ir.Location) -> str | None:
    """Return the innermost line of the user's code in a location: `model.py:42, in loss`.

    None where the location names no Python line, as in a module written by hand.
    """
    return user_frame(location) or _plain_line(location)


def user_frame(location: ir.Location) -> str | None:
    """Return the innermost line of the user's code that has a function's name with it, or None.

    JAX names the function; parsers of MLIR do not.
    """
    return _described(frames_of(location))


def innermost_frame(location: ir.Location) -> source_info.Frame | None:
    """Return the file, line and function of the innermost line of the user's, or None."""
    return next(frames_of(location), None)


def primitive_of(location: ir.Location) -> str | None:
    """Return the primitive of JAX that an op was lowered or derived from, such as `log`; or None.

    A derived op has the location of its primal op.
    """
    found = _PRIMITIVE.match(str(location))
    return found and found["name"]


def frames_of(location: ir.Location) -> Iterator[source_info.Frame]:
    """Yield the frames that are neither JAX's nor pullback's, innermost first."""
    every = _FRAME.finditer(str(location))
    yield from of_users(
        (unescaped(each["file"]), int(each["line"]), unescaped(each["function"])) for each in every
    )


def of_users(frames: Iterable[source_info.Frame]) -> Iterator[source_info.Frame]:
    """Yield those of some frames that are neither JAX's nor pullback's, nor start the process."""
    for frame in frames:
        if frame[0].endswith(source_info.COMMAND_LINE):
            return
        if not frame[0].startswith((_INSIDE_JAX, _INSIDE_RUNTIME)):
            yield frame


def user_line_of(operation: Any) -> str | None:
    """Return the user's line that an operation, or an operation view, comes from."""
    return user_line(operation.operation.location)


def own_line_of(operation: Any) -> str | None:
    """Return the innermost line that made an operation and is not in an installed library."""
    return _own(frames_of(operation.operation.location))


def of_equation(equation: Any) -> str | None:
    """Return the user's line that an equation of a jaxpr comes from.

    None inside a function of JAX's own that was traced by itself; its caller then has the line.
    """
    return _described(source_info.user_frames(equation))


def own_of_equation(equation: Any) -> str | None:
    """Return the innermost line that made an equation and is not in an installed library."""
    return _own(source_info.user_frames(equation))


def called_at(place: str | None, own: str | None) -> str | None:
    """Add the user's own line to a place in a library, unless it names that line already."""
    if place is None or own is None or own in place:
        return place or own
    return f"{place}, called at {own}"


def of_tracer(tracer: Any) -> str | None:
    """Return the user's line where a traced value was made, if JAX has kept it."""
    return _described(source_info.user_frames_of(tracer))


def of_code(code: types.CodeType) -> str:
    """Return the line where a function of the user's begins."""
    return f"{_short(code.co_filename)}:{code.co_firstlineno}"


def has_line(code: types.CodeType, file: str, line: int) -> bool:
    """Return True if a line is in this code, or in that of a function in it."""
    if code.co_filename != file:
        return False
    if any(line == each for _, _, each in code.co_lines()):
        return True
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return any(has_line(each, file, line) for each in inner)


def of_error(error: BaseException) -> str | None:
    """Return the user's innermost line that an error came through; None if it came through none."""
    passed = [(f.f_code, line) for f, line in traceback.walk_tb(error.__traceback__)]
    frames = [(code.co_filename, line, code.co_qualname) for code, line in reversed(passed)]
    return _described(frame for frame in frames if source_info.is_user_file(frame[0]))


def is_raised_by_user(error: BaseException) -> bool:
    """Return True if the user's code raised an error itself, and not JAX, called by it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and source_info.is_user_file(frames[-1].f_code.co_filename)


def words_of(error: BaseException) -> str:
    """Return the type and text of an error, and the user's innermost line that it came through."""
    text, line = str(error), of_error(error)
    if isinstance(error, PullbackError):
        text, line = error.message, error.where
    said = f"{type(error).__name__}: {text}{f' ({line})' if line else ''}"
    return said.encode(errors="backslashreplace").decode()


def _described(frames: Iterable[source_info.Frame]) -> str | None:
    """Describe the innermost frame; if it is of an installed library, also the user's own one."""
    frames = iter(frames)
    if (first := next(frames, None)) is None:
        return None
    place = describe(*first)
    return place if not is_installed(first[0]) else called_at(place, _own(frames))


def _own(frames: Iterable[source_info.Frame]) -> str | None:
    own = next((frame for frame in frames if not is_installed(frame[0])), None)
    return own and describe(*own)


@functools.lru_cache(maxsize=1024)
def is_installed(file: str) -> bool:
    """Return True if a file belongs to an installed package."""
    return not _INSTALLED.isdisjoint(pathlib.PurePath(file).parts)


def describe(file: str, line: int, function: str) -> str:
    """Return a place in a program as our messages write it, relative to the working directory."""
    return f"{_short(file)}:{line}, in {function.replace('<locals>.', '')}"


def _plain_line(location: ir.Location) -> str | None:
    """Return the first bare `file:line:column`, as MLIR's parser and other frontends write it."""
    found = _PLAIN.search(str(location))
    return f"{_short(unescaped(found['file']))}:{found['line']}" if found else None


def _short(file: str) -> str:
    return _relative(file, os.getcwd()) if os.path.isabs(file) else file


@functools.lru_cache(maxsize=1024)
def _relative(file: str, directory: str) -> str:
    relative = os.path.relpath(file, directory)
    return file if relative.startswith("..") else relative
