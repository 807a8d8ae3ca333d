"""Flatten and rebuild the trees that a file describes, without JAX and its registry of classes.

What is a container is told by Python's types: tuples, lists, dictionaries, None and named tuples.
For an instance of any other class stands a dictionary by field name, `Fields`. The words of errors
are those of `_trees`, which does the same with JAX.
"""

from __future__ import annotations

import contextlib
import enum
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback_runtime._container import SAVE_AGAIN, ArtifactError
from pullback_runtime._errors import ArgumentError

MAX_DEPTH = 200
SEQUENCES = {"tuple": tuple, "list": list}
LEAF = "*"


class Fields(dict[str, Any]):
    """A dictionary by field name that stands for an instance of a class that is not here.

    Unlike a plain dictionary it keeps the order of the fields, which is that of the leaves.
    """

    class_name: str = ""
    static_text: str | None = None


def checked(described: Any) -> Any:
    """Return a described tree; raise ArtifactError when it is damaged."""
    try:
        _check(described, 0)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged_tree(error) from error
    return described


def _check(described: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if described in (LEAF, None):
        return
    children, names = described["children"], _names(described)
    if len(names) != len(children) or len({*names}) != len(names):
        raise ValueError(f"fields {names} for {len(children)} children")
    for child in children:
        _check(child, depth + 1)


def damaged_tree(error: Exception) -> ArtifactError:
    """Return the error for a described tree that cannot be read."""
    return ArtifactError(
        f"the file's argument tree is damaged: {type(error).__name__}: {error}", do=SAVE_AGAIN
    )


def paths(described: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each leaf, such as `['w'][0]`; that of a field is `.name`."""
    if described == LEAF:
        yield path
    elif described is not None:
        for name, child in zip(_names(described), described["children"], strict=True):
            yield from paths(child, path + _step(described["kind"], name))


def _step(kind: str, name: Any) -> str:
    return f".{name}" if kind == "class" else f"[{name!r}]"


def _names(described: Any) -> list[Any]:
    """Return the names of a node's children: positions, keys or fields."""
    kind = described["kind"]
    if kind in SEQUENCES:
        return list(range(len(described["children"])))
    return list(described["keys"] if kind == "dict" else map(str, described["fields"]))


def flatten_values(described: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the leaves of a call's arguments in the order of a described `(args, kwargs)`.

    Raises: ArgumentError naming the argument's path when the structures differ.
    """
    positional, named = described["children"]
    expected = positional["children"]
    if len(expected) != len(args):
        raise wrong_count(len(expected), len(args))
    leaves: list[Any] = []
    for number, (child, value) in enumerate(zip(expected, args, strict=True)):
        leaves += _leaves(child, value, f"argument {number}")
    return [*leaves, *_leaves(named, kwargs, "keyword arguments")]


def _leaves(described: Any, value: Any, path: str) -> Iterator[Any]:
    parts = _parts(value)
    if described == LEAF:
        if parts is not None and type(value) not in (list, tuple):  # these may be of numbers
            raise misfit(path, "an array", type(value).__name__)
        yield value
        return
    if not _fits(described, value, parts):
        got = type(value).__name__ if parts is None else _spell_value(value, parts)
        raise misfit(path, _spell(described), got)
    if described is None or parts is None:
        return
    for name, child in zip(_names(described), described["children"], strict=True):
        yield from _leaves(child, parts[name], f"{path}.{name}")


def _fits(described: Any, value: Any, parts: dict[Any, Any] | None) -> bool:
    if described is None or parts is None:
        return described is None and value is None
    if described["kind"] == "class":
        return type(value) not in (tuple, list) and parts.keys() == {*_names(described)}
    kind = {**SEQUENCES, "dict": dict}[described["kind"]]
    return type(value) is kind and parts.keys() == {*_names(described)}


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return the children of a container by name; None for a leaf."""
    if value is None:
        return {}
    if type(value) in (tuple, list):
        return dict(enumerate(value))
    if isinstance(value, dict):
        return dict(value)
    return dict(value._asdict()) if _is_named_tuple(type(value)) else None


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def unflatten_values(described: Any, leaves: Iterator[Any]) -> Any:
    """Build what a call returns from its leaves; a named tuple that is imported is one again."""
    if described == LEAF:
        return next(leaves)
    if described is None:
        return None
    parts = [unflatten_values(child, leaves) for child in described["children"]]
    kind, names = described["kind"], _names(described)
    if kind in SEQUENCES:
        return SEQUENCES[kind](parts)
    if kind == "dict":
        return dict(zip(names, parts, strict=True))
    with contextlib.suppress(LookupError):
        found = found_here(described["class"])
        if _is_named_tuple(found) and list(found._fields) == names:
            return found(*parts)
    fields = Fields(zip(names, parts, strict=True))
    fields.class_name, fields.static_text = described["class"], described.get("static_text")
    return fields


def _spell(described: Any) -> str:
    if described is None:
        return "None"
    if described["kind"] == "class":
        return f"a dictionary with fields ({', '.join(_names(described))})"
    return _spell_node(described["kind"], _names(described))


def _spell_value(value: Any, parts: Mapping[Any, Any]) -> str:
    if value is None:
        return "None"
    if isinstance(value, Fields):
        return f"a dictionary with fields ({', '.join(parts)})"
    names = sorted(parts, key=str) if type(value) is dict else list(parts)
    return _spell_node(type(value).__name__, names)


def _spell_node(kind: str, names: Sequence[Any]) -> str:
    if kind == "dict":
        names = [name if str(name).isidentifier() else repr(name) for name in names]
    return f"{kind} with fields ({', '.join(map(str, names))})"


def found_here(name: str) -> Any:
    """Return the object named `module:path` if its module is imported, without running code.

    Raises: LookupError when there is none.
    """
    module_name, _, path = str(name).partition(":")
    found: Any = sys.modules[module_name]
    for part in path.split("."):
        if isinstance(found, enum.EnumMeta):
            found = found.__members__[part]
        elif isinstance(found, types.ModuleType | type):
            found = object.__getattribute__(found, "__dict__")[part]
        else:
            raise LookupError(name)
    return found


def wrong_count(expected: int, given: int) -> ArgumentError:
    """Return the error for a call with another number of positional arguments."""
    return ArgumentError(
        f"{expected} positional arguments are expected, and {given} were given",
        do="pass the trees that the program was saved with; "
        "`pullback_runtime.load(file).flat(*leaves)` takes their leaves",
    )


def misfit(path: str, expected: str, got: str) -> ArgumentError:
    """Return the error for an argument that is another container than the program was saved with.

    Args:
      path: names the argument.
    """
    return ArgumentError(
        f"the arguments have the wrong structure: expected {expected}, got {got}",
        where=path,
        do="pass the containers that the program was saved with; a dictionary by field name stands "
        "for an instance of a class",
    )
