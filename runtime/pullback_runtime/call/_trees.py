"""Flatten and rebuild the trees of arguments that a file describes, with JAX and without it.

A function tells what is a container, and takes it apart: `node_of` here knows tuples, lists,
dictionaries, None and named tuples; that of `_jax_trees` all classes that are registered with JAX.
For an instance of any other class stands a dictionary by field name, `Fields`.
"""

from __future__ import annotations

import contextlib
import enum
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pullback_runtime._errors import ArgumentError
from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError

MAX_DEPTH = 200
MAX_TEXT = 1000
SEQUENCES = {"tuple": tuple, "list": list}

_OF_THIS_PROCESS = re.compile(r" at 0x[0-9a-fA-F]+|(?<=') from [^>]*(?=>)")  # or of this machine
_IN_ANY_ORDER = re.compile(r"set\(|\{[^:{}]+\}")


class Fields(dict[str, Any]):
    """A dictionary by field name that stands for an instance of a class that is not here.

    Unlike a plain dictionary it keeps the order of the fields, which is that of the leaves.
    """

    class_name: str = ""
    static_text: str | None = None


class Node(NamedTuple):
    """Describe a container: its class, its children and their names, and its static data.

    The names are positions, keys or fields. The children of a tree are trees; those of a value are
    values. The static data are what JAX calls a node's: of a dictionary its keys, of `Fields` the
    name of the class, the names, and the static data as text.
    """

    kind: type
    names: Sequence[Any]
    children: Sequence[Any]
    static: Any = None


LEAF = "*"
NONE = Node(types.NoneType, (), ())


def restore(
    described: Any, class_node: Callable[[Any, list[str], list[Any]], Node] | None = None
) -> Any:
    """Return the tree that a file describes in JSON: a `Node` or `LEAF`.

    Args:
      class_node: makes the node of a class of what describes it, the names and the children; by
        default one of `Fields`.

    Raises: ArtifactError when it is damaged.
    """
    try:
        return _restore(described, class_node or _fields_node, 0)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"the file's argument tree is damaged: {type(error).__name__}: {error}", do=SAVE_AGAIN
        ) from error


def restore_arguments(
    described: Any, class_node: Callable[[Any, list[str], list[Any]], Node] | None = None
) -> Node:
    """Restore a tree of `(args, kwargs)`; raise ArtifactError for any other."""
    tree = restore(described, class_node)
    parts = () if tree == LEAF else (tree, *tree.children)
    if [None if part == LEAF else part.kind for part in parts] != [tuple, tuple, dict]:
        raise ArtifactError("the file's argument tree is damaged: no (args, kwargs)", do=SAVE_AGAIN)
    return tree


def _restore(described: Any, class_node: Callable[..., Node], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if described == LEAF:
        return LEAF
    if described is None:
        return NONE
    children = [_restore(child, class_node, depth + 1) for child in described["children"]]
    if described["kind"] in SEQUENCES:
        return Node(SEQUENCES[described["kind"]], range(len(children)), children)
    if described["kind"] == "dict":
        return dict_node(described["keys"], children)
    names = [str(name) for name in described["fields"]]
    if len(set(names)) != len(names) or len(names) != len(children):
        raise ValueError(f"fields {names} for {len(children)} children")
    return class_node(described, names, children)


def dict_node(keys: Any, children: list[Any]) -> Node:
    """Make a dictionary's node, checking its keys: JAX trusts that they are sorted and enough."""
    if type(keys) is not list or keys != sorted(set(keys)) or len(keys) != len(children):
        raise ValueError(f"keys {keys} for {len(children)} children")
    return Node(dict, keys, children, keys)


def _fields_node(described: Any, names: list[str], children: list[Any]) -> Node:
    return fields_node(described["class"], names, children, described.get("static_text"))


def fields_node(class_name: Any, names: list[str], children: list[Any], text: Any) -> Node:
    """Make the node for an instance of a class that is not here, with its static data as text."""
    static = str(class_name), tuple(names), text if text is None else str(text)
    return Node(Fields, names, children, static)


def paths(tree: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each leaf, such as `['w'][0]`; that of a field is `.name`."""
    if tree == LEAF:
        yield path
        return
    by_item = tree.kind in (tuple, list, dict)
    for name, child in zip(tree.names, tree.children, strict=True):
        yield from paths(child, path + (f"[{name!r}]" if by_item else f".{name}"))


def node_of(value: Any) -> Node | None:
    """Take apart one level of a value, by Python's types; None for a leaf."""
    if value is None:
        return NONE
    kind = type(value)
    if kind in (tuple, list):
        return Node(kind, range(len(value)), value)
    if isinstance(value, dict):
        keys = list(value)
        if kind is dict:
            try:
                keys.sort()
            except TypeError:
                keys.sort(key=str)
        return Node(kind, keys, [value[key] for key in keys], keys if kind is dict else None)
    return Node(kind, value._fields, value) if _is_named_tuple(kind) else None


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def flatten_call(
    in_tree: Node,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    node_of: Callable[[Any], Node | None] = node_of,
    lists: bool = True,
) -> list[Any]:
    """Return the leaves of a call's arguments in the order of a tree of `(args, kwargs)`.

    Where the tree has a class that is not here, a dictionary by field name is taken, and so is
    an instance of any class that has the same fields.

    Args:
      node_of: takes apart one level of a value; None for a leaf.
      lists: take a list or a tuple for a leaf.

    Raises: ArgumentError naming the argument's path when the structures differ.
    """
    positional, named = in_tree.children
    expected = positional.children
    if len(expected) != len(args):
        raise ArgumentError(
            f"{len(expected)} positional arguments are expected, and {len(args)} were given",
            do="pass the trees that the program was saved with; "
            "`pullback_runtime.load(file).flat(*leaves)` takes their leaves",
        )
    leaves: list[Any] = []
    for number, (tree, value) in enumerate(zip(expected, args, strict=True)):
        leaves += leaves_like(tree, value, f"argument {number}", node_of, lists)
    return [*leaves, *leaves_like(named, kwargs, "keyword arguments", node_of, lists)]


def leaves_like(
    tree: Any, value: Any, path: str, node_of: Callable[[Any], Node | None], lists: bool
) -> Iterator[Any]:
    """Yield the leaves of the value at `path` in the order of a tree, as `flatten_call` says."""
    node = node_of(value)
    if tree == LEAF:
        if node is not None and not (lists and type(value) in (list, tuple)):
            raise _misfit(path, "an array", type(value).__name__)
        yield value
        return
    if node is None:
        raise _misfit(path, _spell(tree), type(value).__name__)
    parts = node.children
    if tree.kind is Fields:
        _check_static(tree.static, node, path)
        found = dict(zip(map(str, node.names), parts, strict=True))
        fits = sorted(found) == sorted(tree.names)
        parts = [found.get(name) for name in tree.names]
    else:  # of a class that is here the static data count, and the keys as they are
        fits = (node.kind, node.static) == (tree.kind, tree.static)
    if not fits or len(parts) != len(tree.children):
        raise _misfit(path, _spell(tree), _spell(node))
    for name, child, part in zip(tree.names, tree.children, parts, strict=True):
        yield from leaves_like(child, part, f"{path}.{name}", node_of, lists)


def _check_static(expected: tuple[Any, ...], node: Node, path: str) -> None:
    """Raise ArgumentError for an instance of the saved class that has other static data."""
    class_name, _, text = expected
    if text is None or name_of(node.kind) != class_name or text_of(node.static) in (None, text):
        return
    found = f"{node.kind.__name__} with {text_of(node.static)}"
    raise _misfit(path, f"{node.kind.__name__} with static data {text}", found)


def _misfit(path: str, expected: str, got: str) -> ArgumentError:
    return ArgumentError(
        f"the arguments have the wrong structure: expected {expected}, got {got}",
        where=path,
        do="pass the containers that the program was saved with; a dictionary by field name stands "
        "for an instance of a class",
    )


def _spell(node: Node) -> str:
    """Format a container for messages: its fields' names, and any static data of its class."""
    kind, names = node.kind, [*map(str, node.names)]
    if kind is types.NoneType:
        return "None"
    if kind is Fields:
        return f"a dictionary with fields ({', '.join(names)})"
    if kind is dict:
        names = [name if str(name).isidentifier() else repr(name) for name in node.names]
    has_static = kind not in (tuple, list, dict) and node.static not in (None, ())
    beside = f" and static data {text_of(node.static) or repr(node.static)}" if has_static else ""
    return f"{kind.__name__} with fields ({', '.join(names)}){beside}"


def unflatten(tree: Any, leaves: Iterator[Any]) -> Any:
    """Build what a call returns from its leaves; a named tuple that is imported is one again."""
    if tree == LEAF:
        return next(leaves)
    if tree == NONE:
        return None
    parts = [unflatten(child, leaves) for child in tree.children]
    if tree.kind in (tuple, list):
        return tree.kind(parts)
    if tree.kind is dict:
        return dict(zip(tree.names, parts, strict=True))
    class_name, names, _ = tree.static
    with contextlib.suppress(LookupError):
        found = found_here(class_name)
        if _is_named_tuple(found) and found._fields == names:
            return found(*parts)
    return filled_fields(tree.static, parts)


def filled_fields(static: tuple[Any, ...], values: Any) -> Fields:
    """Make a dictionary by field name of the static data of its node and its values."""
    class_name, names, text = static
    fields = Fields(zip(names, values, strict=True))
    fields.class_name, fields.static_text = class_name, text
    return fields


def name_of(kind: type) -> str:
    """Return the name of a class as a file has it, for `found_here`."""
    return f"{kind.__module__}:{kind.__qualname__}"


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


def text_of(static: Any) -> str | None:
    """Return static data as text, the same in every process; None if that is not certain."""
    try:
        text = _OF_THIS_PROCESS.sub("", _spelled(static))
    except Exception:  # the class's own code
        return None
    return None if _IN_ANY_ORDER.search(text) else text[:MAX_TEXT]


def _spelled(static: Any) -> str:
    """Return the `repr` of a value, with the items of dictionaries sorted."""
    if type(static) is dict:
        items = (f"{_spelled(key)}: {_spelled(item)}" for key, item in static.items())
        return f"{{{', '.join(sorted(items))}}}"
    if type(static) is list:
        return f"[{', '.join(map(_spelled, static))}]"
    if type(static) is tuple:
        return f"({', '.join(map(_spelled, static))}{',' if len(static) == 1 else ''})"
    return repr(static)
