"""Passes of other packages: entry points of the group `pullback.passes`, and loaded modules.

An entry point is named as its pass: `my-pass = "package.module:Class"`. It is imported when its
pass is asked for.
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from pullback.errors import PluginError, origin
from pullback.passes import PASSES, PIPELINES, STOCK_PASSES
from pullback.passes.base import Pass

GROUP = "pullback.passes"

_LOADED: dict[str, type[Pass]] = {}


@functools.cache
def installed() -> dict[str, EntryPoint]:
    """Return the passes of installed packages, by name.

    Raises:
      PluginError: two have one name, or one has the name of a pass of ours or of MLIR.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in found and found[point.name] != point:
            _refuse_second(point.name, origin(found[point.name]), origin(point))
        _refuse_taken(point.name, origin(point))
        found[point.name] = point
    return found


def names() -> list[str]:
    """Return the names of all passes of other packages."""
    return sorted({*installed(), *_LOADED})


def load(name: str) -> type[Pass]:
    """Return the class of a pass of another package, imported if need be.

    Raises:
      PluginError: it cannot be imported, or is not a pass of this name.
    """
    if name in _LOADED:
        return _LOADED[name]
    point = installed()[name]
    try:
        found = point.load()
    except Exception as error:
        raise PluginError.of_entry_point(point, "pass", error) from error
    if not _is_pass(found) or found.name != name:
        raise PluginError(
            f"the entry point {name!r} is no pass of this name",
            where=origin(point),
            do=f"name a subclass of {Pass.__module__}.Pass whose `name` is {name!r}",
        )
    return found


def add(module: ModuleType, place: str) -> None:
    """Add the passes that a module defines: its classes that are passes with a name.

    Raises:
      PluginError: there is none, or one has the name of another pass.
    """
    own = [each for each in vars(module).values() if _is_pass(each)]
    found = {each.name: each for each in own if each.__module__ == module.__name__ and each.name}
    if not found:
        raise PluginError(
            f"`{place}` defines no pass",
            do=f"write a subclass of {Pass.__module__}.Pass that has a `name`: docs/plugins.md",
        )
    for name in found:
        _refuse_taken(name, place)
        if name in installed():
            _refuse_second(name, origin(installed()[name]), place)
        if name in _LOADED:
            _refuse_second(name, _LOADED[name].__module__, place)
    _LOADED.update(found)


def _is_pass(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Pass)


def _refuse_taken(name: str, place: str) -> None:
    for known, owner in ((PASSES, "pullback"), (PIPELINES, "pullback"), (STOCK_PASSES, "MLIR")):
        if name in known:
            _refuse_second(name, owner, place)


def _refuse_second(name: str, one: str, other: str) -> None:
    raise PluginError(
        f"two passes are named {name!r}",
        where=f"{one} and {other}",
        do="rename one of them, or leave it out",
    )
