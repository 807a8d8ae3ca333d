"""What a derivative rule says that refuses: one that raises, on purpose, when it is asked."""

from __future__ import annotations

import contextlib
import contextvars
import dis
import os
from collections.abc import Iterator
from types import TracebackType

import jax

from pullback import _locations
from pullback._errors import LeakedValueError, PullbackError

_RAISE = dis.opmap["RAISE_VARARGS"]
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_INTERNAL = (os.path.dirname(jax.__file__) + os.sep, _OURS)

_any: contextvars.ContextVar[bool] = contextvars.ContextVar("any", default=False)


@contextlib.contextmanager
def of_any_kind() -> Iterator[None]:
    """For a while, what goes wrong in a rule is a refusal as well."""
    token = _any.set(True)
    try:
        yield
    finally:
        _any.reset(token)


def words(error: BaseException) -> str | None:
    """The type, text and line of an exception that a rule raised on purpose; None for any other.

    On purpose means by a `raise` or `assert` in code outside of JAX. What goes wrong on the way is
    no refusal: a misspelt name, a step that JAX cannot trace. An error of ours never is one.
    """
    places = list(_places(error.__traceback__))
    return _words(error, places) if places and _is_on_purpose(places[-1]) else None


def to_write_down(error: BaseException) -> str | None:
    """The same, also for what goes wrong, while `of_any_kind`: a value that is not there, too."""
    if isinstance(error, LeakedValueError) and _any.get():
        return f"{type(error).__name__}: {error.message} ({error.where})"
    places = list(_places(error.__traceback__)) if _any.get() else []
    return _words(error, places) if places else words(error)


def _words(error: BaseException, places: list[TracebackType]) -> str | None:
    if isinstance(error, PullbackError):
        return None
    place = next(filter(_is_outside, reversed(places)), places[-1])
    code = place.tb_frame.f_code
    line = _locations.describe(code.co_filename, place.tb_lineno, code.co_qualname)
    said = f"{type(error).__name__}: {error} ({line})"
    return said.encode(errors="backslashreplace").decode()


def _places(place: TracebackType | None) -> Iterator[TracebackType]:
    while place is not None:
        yield place
        place = place.tb_next


def _is_outside(place: TracebackType) -> bool:
    return not place.tb_frame.f_code.co_filename.startswith(_INTERNAL)


def _is_on_purpose(place: TracebackType) -> bool:
    return _is_outside(place) and place.tb_frame.f_code.co_code[place.tb_lasti] == _RAISE
