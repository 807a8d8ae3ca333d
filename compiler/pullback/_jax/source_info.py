"""Find where in the user's program something was traced."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from jax._src import source_info_util as _source_info
from jax.extend import source_info_util as _public

import pullback_runtime
from pullback._jax import hijax, holders, jaxprs

_INTERNAL = tuple(os.path.dirname(str(m.__file__)) + os.sep for m in (np, pullback_runtime))

COMMAND_LINE = os.path.join("click", "core.py")
"""Ends the path of the file that runs a command: the frames around it only start the process."""


def function_name(jaxpr: Any) -> str:
    """Return the name of the Python function that a jaxpr was traced from."""
    info = jaxprs.opened(jaxpr).debug_info
    return str(info.func_src_info).split(" ")[0]


def is_of_user(closed: Any) -> bool:
    """Return True if the only equation of a closed jaxpr may call a function that a user wrote."""
    params = jaxprs.opened(closed).eqns[0].params
    body = holders.called_function(jaxprs.opened(closed).eqns[0])
    if "const_lengths" in params:  # a custom_linear_solve
        body = params["jaxprs"].matvec
    if (prim := hijax.mapped(params.get("_prim"))) is not None:
        if "traced" not in prim.params:
            return type(prim).__module__.partition(".")[0] != "jax"
        body = prim.params["traced"].jaxpr
    if body is None:
        return True
    place = str(jaxprs.opened(body).debug_info.func_src_info).partition(" at ")[2]
    return is_user_file(place.rpartition(":")[0])


Frame = tuple[str, int, str]
"""File, line and function."""


def user_frames(equation: Any) -> Iterator[Frame]:
    """Yield the frames of the user's code that an equation comes from, innermost first."""
    return _user_frames(equation.source_info)


def user_frames_of(tracer: Any) -> Iterator[Frame]:
    """Yield the frames of the user's code that made a tracer, innermost first."""
    info = getattr(tracer, "_line_info", None)
    return iter(()) if info is None else _user_frames(info)


def _user_frames(info: Any) -> Iterator[Frame]:
    for frame in _source_info.user_frames(info.traceback):
        if frame.file_name.endswith(COMMAND_LINE):
            return
        yield frame.file_name, frame.start_line, frame.function_name


def is_user_file(name: str) -> bool:
    """Return True if a file is the user's: not of the standard library, NumPy, JAX or pullback."""
    return _source_info.is_user_filename(name) and not name.startswith(_INTERNAL)


def traceback_of(equation: Any) -> Any:
    """Return the traceback of where an equation was traced."""
    return equation.source_info.traceback


def placed(equations: Iterable[Any], place: Any) -> list[Any]:
    """Give the equations the traceback of `place`, or else the current one."""
    traceback = place.source_info.traceback or _public.current().traceback
    return [e.replace(source_info=e.source_info.replace(traceback=traceback)) for e in equations]


def frames_of(traceback: Any) -> list[tuple[Any, int]]:
    """Return the code object and instruction of each frame of a traceback, innermost first."""
    return [] if traceback is None else list(zip(*traceback.raw_frames(), strict=True))
