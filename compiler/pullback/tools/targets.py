"""Load targets: `path/file.py:function` or `package.module:function`, and their arguments."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

import pullback
import pullback_runtime
from pullback._jax import tracing
from pullback.errors import PullbackError, UsageError, headline
from pullback.program.symbolic import SymbolicProgram
from pullback.tools.arguments import parse_arguments
from pullback_runtime import PullbackRuntimeError

# Frames in these places are not the user's.
OURS = tuple(
    os.path.dirname(str(library.__file__)) + os.sep for library in (pullback, pullback_runtime)
)
LIBRARIES = (
    *OURS,
    *(os.path.dirname(str(library.__file__)) + os.sep for library in (jax, importlib)),
    "<frozen",
)
FORM = "write `path/file.py:function` or `package.module:function`"


@dataclass(frozen=True)
class Target:
    """A function of the user's, with the arguments to trace it with."""

    spec: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def call(self, step: Callable[..., Any]) -> Any:
        """Return `step(*arguments)`; turn what the user's function raises into a UsageError."""
        with blaming(self.spec):
            return step(*self.arguments)

    def trace(self, platform: str | None = None) -> pullback.Program | SymbolicProgram:
        """Trace the function on its arguments; return the program."""
        with blaming(self.spec):
            return pullback.trace(self.function, platforms=platform)(*self.arguments)


@contextlib.contextmanager
def blaming(spec: str) -> Iterator[None]:
    """Run the body and turn what the user's code raises, a target or a rule, into a UsageError."""
    try:
        with tracing.whole_tracebacks(), naming(spec):
            yield
    except (PullbackError, PullbackRuntimeError):
        raise
    except Exception as error:
        if _is_ours(error):
            raise
        failure = _users_fault(spec, error)
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
        raise failure from error


def _users_fault(spec: str, error: Exception) -> UsageError:
    """Return the UsageError for an exception of the user's code: in tracing, a rule, or a pass."""
    notes = getattr(error, "__notes__", ())
    faulty = [note.removeprefix("in ") for note in notes if note.startswith("in the pass ")]
    if faulty:
        return UsageError(
            f"{faulty[0]} failed on `{spec}`: {headline(error)}",
            where=_user_line(error),
            do="correct the pass",
        )
    if not is_target(spec):  # a module: only a rule of --load-rules can have raised it
        return UsageError(
            f"a rule for `{spec}` failed: {headline(error)}",
            where=_user_line(error),
            do="correct the rule",
        )
    rules = [note for note in notes if note.startswith("in the ")]
    places = [place for place in (_user_line(error), *rules) if place]
    return UsageError(
        f"`{spec}` failed under tracing: {headline(error)}",
        where="; ".join(places) or None,
        do="call the function, or its gradient, under `jax.jit` with these arguments for JAX's "
        "full report",
    )


@contextlib.contextmanager
def naming(spec: str) -> Iterator[None]:
    """Run the body and name the file in errors of this package, where MLIR has a hyphen."""
    try:
        yield
    except (PullbackError, PullbackRuntimeError) as error:
        name_file(error, spec)
        raise


def name_file(error: PullbackError | PullbackRuntimeError, spec: str) -> None:
    """Replace the hyphen, MLIR's name for any text, by the name of the file in an error."""
    error.message = error.message.replace('"-":', f'"{spec}":')
    if error.where is not None and error.where.startswith("-:"):
        error.where = spec + error.where[1:]


def is_target(text: str) -> bool:
    """Return True if `text` is spelt like a target, and not like the name of an MLIR file."""
    return text.endswith(".py") or (":" in text and not Path(text).exists())


def load_target(spec: str, arguments: str | None) -> Target:
    """Import the function `spec`; its arguments come from the text or from `example_args`."""
    place, colon, name = spec.rpartition(":")
    if not (place and colon and name):
        raise UsageError(f"`{spec}` is not a target", do=FORM)
    module = load_module(place, spec)
    function = _find_function(module, name, spec)
    if arguments is not None:
        values = parse_arguments(arguments)
    else:
        values = _example_arguments(module, function, spec)
    _check_count(function, values, spec)
    return Target(spec, function, values)


def load_module(place: str, spec: str | None = None) -> ModuleType:
    """Import `path/file.py` or `package.module`, as asked for by the target `spec`, if any."""
    is_file = place.endswith(".py") or os.sep in place
    asked = f" (in the target `{spec}`)" if spec else ""
    form = FORM if spec else FORM.replace(":function", "")
    if is_file and not Path(place).is_file():
        raise UsageError(f"no file `{place}`{asked}", do=form)
    try:
        if is_file:
            return _import_file(Path(place))
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"no module `{place}`{asked}", do=form) from error
        raise _import_failed(place, error) from error
    except PullbackError:
        raise
    except Exception as error:
        raise _import_failed(place, error) from error


def _import_failed(place: str, error: Exception) -> UsageError:
    return UsageError(
        f"importing `{place}` failed: {headline(error)}",
        where=_user_line(error),
    )


def _import_file(path: Path) -> ModuleType:
    """Import a file as Python runs a script: modules beside it can be imported."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"`{path}` is not a Python file", do=FORM)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules.setdefault(path.stem, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _find_function(module: ModuleType, name: str, spec: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if callable(found):
        return found
    own = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
    if found is not None:
        raise UsageError(
            f"`{name}` in `{spec}` is of type {type(found).__name__}, not a function",
            do=f"it has {', '.join(own)}" if own else "write `def`",
        )
    close = difflib.get_close_matches(name, own, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(own) or 'none'}"
    raise UsageError(f"no function `{name}` in `{spec}`", do=hint)


def _example_arguments(
    module: ModuleType, function: Callable[..., Any], spec: str
) -> tuple[Any, ...]:
    found = getattr(function, "example_args", None)
    if found is None:
        found = getattr(module, "example_args", None)
    if found is None:
        raise UsageError(
            f"`{spec}` needs arguments, and its module defines no `example_args`",
            do="give their types, as in --args 'f32[8,128], i32[8]'",
        )
    return tuple(found() if callable(found) else found)


def _check_count(function: Callable[..., Any], arguments: tuple[Any, ...], spec: str) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins do not tell; tracing will
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        keywords = [
            each.name
            for each in signature.parameters.values()
            if each.kind is each.KEYWORD_ONLY and each.default is each.empty
        ]
        do = "give their types, separated by commas, as in --args 'f32[8,128], i32[8]'"
        if keywords:
            do = f"name a function that has {', '.join(keywords)} bound, as functools.partial does"
        raise UsageError(
            f"`{spec}` takes {signature}, and {len(arguments)} arguments were given: {error}", do=do
        ) from error


def _is_ours(error: BaseException) -> bool:
    """Return True if this package raised the error: that must not be blamed on the user."""
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    return innermost.startswith(OURS)


def _user_line(error: BaseException) -> str | None:
    """Return the deepest frame of the user's own code, as `file.py:12, in f`."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(LIBRARIES):
            return f"{frame.filename}:{frame.lineno}, in {frame.name}"
    return None
