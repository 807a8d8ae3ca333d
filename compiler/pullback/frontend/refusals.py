"""What a derivative rule says that refuses: one that raises, on purpose, when it is asked."""

from __future__ import annotations

import dis
import os
from types import TracebackType

import jax

from pullback._errors import PullbackError
from pullback.frontend import locations

_RAISE = dis.opmap["RAISE_VARARGS"]
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_INTERNAL = (os.path.dirname(jax.__file__) + os.sep, _OURS)


def words(error: BaseException) -> str | None:
    """The type, text and line of an exception that a rule raised on purpose; None for any other.

    On purpose means by a `raise` or `assert` in code outside of JAX. What goes wrong on the way is
    no refusal: a misspelt name, a step that JAX cannot trace, an error of ours.
    """
    place = _innermost(error.__traceback__)
    if place is None or isinstance(error, PullbackError):
        return None
    code = place.tb_frame.f_code
    if code.co_filename.startswith(_INTERNAL) or code.co_code[place.tb_lasti] != _RAISE:
        return None
    line = locations.describe(code.co_filename, place.tb_lineno, code.co_qualname)
    said = f"{type(error).__name__}: {error} ({line})"
    return said.encode(errors="backslashreplace").decode()


def _innermost(place: TracebackType | None) -> TracebackType | None:
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place
