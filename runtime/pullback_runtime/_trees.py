"""Argument trees in JSON, and back, without running code that a file names.

A class is used on load only if its module is already imported and the class is registered with
JAX in this process: reading a tree never imports anything. Objects among its static data that JSON
cannot hold, such as functions, are written as the names by which its module, or JAX, has them.
Where the class is not there, or its static data have neither form, its place is taken by `Fields`,
a dictionary by field name. Such static data are written as text, to tell them from others of that
class.
"""

from __future__ import annotations

import contextlib
import enum
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import (
    DictKey,
    PyTreeDef,
    default_registry,
    register_pytree_with_keys,
    tree_flatten_with_path,
)

from pullback_runtime import _avals
from pullback_runtime._container import SAVE_AGAIN, ArtifactError
from pullback_runtime._jax import fields_of_dataclass
from pullback_runtime._tree_values import (
    MAX_DEPTH,
    SEQUENCES,
    Fields as Fields,
    damaged_tree,
    found_here,
    misfit,
    wrong_count,
)

LEAF = jax.tree.structure(0)
NONE = jax.tree.structure(None)
MAX_TEXT = 1000

_OF_THIS_PROCESS = re.compile(r" at 0x[0-9a-fA-F]+|(?<=') from [^>]*(?=>)")  # or of this machine
_IN_ANY_ORDER = re.compile(r"set\(|\{[^:{}]+\}")


def _flatten_fields(fields: Fields) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    keyed = [(DictKey(name), value) for name, value in fields.items()]
    return keyed, (fields.class_name, tuple(fields), fields.static_text)


def _unflatten_fields(static: tuple[Any, ...], values: Any) -> Fields:
    class_name, names, text = static
    fields = Fields(zip(names, values, strict=True))
    fields.class_name, fields.static_text = class_name, text
    return fields


register_pytree_with_keys(Fields, _flatten_fields, _unflatten_fields)


def describe(tree: PyTreeDef, *, depth: int = 0) -> Any:
    """Return the tree as JSON values: `"*"` is a leaf, null is None.

    Raises: ArtifactError for a tree that `restore` would reject.
    """
    if depth > MAX_DEPTH:
        raise ArtifactError(
            f"an argument or result is nested more than {MAX_DEPTH} deep",
            do="pass a tuple or a dictionary of parts instead of containers in containers",
        )
    if tree == LEAF:
        return "*"
    if tree == NONE:
        return None
    kind, static = tree.node_data()
    children = [describe(child, depth=depth + 1) for child in tree.children()]
    if kind in (tuple, list):
        return {"kind": kind.__name__, "children": children}
    if kind is dict and all(type(key) in (str, int) for key in static):
        return {"kind": "dict", "keys": static, "children": children}
    return _describe_class(tree, kind, static, children)


def _describe_class(tree: PyTreeDef, kind: type, static: Any, children: list[Any]) -> Any:
    described = {"kind": "class", "children": children}
    if kind is Fields:
        class_name, names, text = static
        return {**described, "class": class_name, "fields": list(names), **_text_entry(text)}
    described |= {"class": _name_of(kind), "fields": field_names(tree)}
    with contextlib.suppress(TypeError):
        return {**described, "static": _encode(static)}
    described |= _text_entry(_text_of(static))  # for where the class, or a name, is not found
    with contextlib.suppress(TypeError):
        return {**described, "static_by_name": _encode(static, kind)}
    return described


def _text_entry(text: str | None) -> dict[str, str]:
    return {} if text is None else {"static_text": text}


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _text_of(static: Any) -> str | None:
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


def field_names(tree: PyTreeDef) -> list[str]:
    """Return the names of a node's children, from JAX's key paths, or else their numbers."""
    children = tree.children()
    placeholders = [object() for _ in children]
    node = PyTreeDef.from_node_data_and_children(
        default_registry, tree.node_data(), [LEAF] * len(children)
    )
    try:
        instance = jax.tree.unflatten(node, placeholders)
        paths = tree_flatten_with_path(instance, is_leaf=lambda value: value is not instance)[0]
    except Exception:  # The class's own code may reject placeholders.
        return _numbered(children)
    return _names([path[0] for path, _ in paths])


def _names(keys: list[Any]) -> list[str]:
    """Return a name for each key, or numbers if two are the same, such as 1 and "1"."""
    names = list(map(_key_name, keys))
    return names if len(set(names)) == len(names) else _numbered(names)


def _numbered(children: Sequence[Any]) -> list[str]:
    return [str(number) for number in range(len(children))]


def _key_name(key: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _encode(value: Any, owner: type | None = None) -> Any:
    """Return static data of a class as JSON; raise TypeError for values without a JSON form.

    Args:
      owner: the class, if objects in modules beside it may be written by name.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (tuple, list):
        return {type(value).__name__: [_encode(item, owner) for item in value]}
    if type(value) is dict:
        items = value.items()
        return {"dict": [[_encode(key, owner), _encode(item, owner)] for key, item in items]}
    if owner is not None and isinstance(value, np.dtype):
        return {"dtype": value.name}
    if owner is not None and (name := _name_beside(value, owner)) is not None:
        return {"name": name}
    raise TypeError(type(value).__name__)


def _decode(value: Any, owner: type | None = None) -> Any:
    """Decode what `_encode` wrote; raise LookupError for a name not found beside the class."""
    if not isinstance(value, dict):
        return value
    ((kind, items),) = value.items()
    if kind == "dict":
        return {_decode(key, owner): _decode(item, owner) for key, item in items}
    if kind == "dtype":
        return _avals.dtype_named(items)
    if kind == "name":
        return _found_beside(items, owner)
    return SEQUENCES[kind](_decode(item, owner) for item in items)


def _name_beside(value: Any, owner: type) -> str | None:
    """Return the name `module:path` of an object in a module beside the class; None without one."""
    kind, module = type(value), sys.modules.get(type(value).__module__)
    if isinstance(value, enum.Enum):
        name = f"{_name_of(kind)}.{value.name}"
    elif isinstance(getattr(value, "__qualname__", None), str):
        name = f"{value.__module__}:{value.__qualname__}"
    else:  # such as the only instance of its class
        has = vars(module).items() if module else ()
        name = next((f"{kind.__module__}:{name}" for name, each in has if each is value), "")
    with contextlib.suppress(LookupError):
        return name if _found_beside(name, owner) is value else None
    return None


def _found_beside(name: str, owner: type | None) -> Any:
    """Return the object of this name, in the package of the class or of a base of it, or in JAX.

    Elsewhere, only NumPy's scalar types are found. So a file cannot name an arbitrary function that
    would be called later.

    Raises: LookupError for anything else.
    """
    found = found_here(name)
    around = {_package_of(kind.__module__) for kind in owner.__mro__} if owner else set()
    if _package_of(name.partition(":")[0]) in around - {"builtins"} | {"jax"}:
        return found
    if isinstance(found, type) and issubclass(found, np.generic):
        return found
    raise LookupError(name)


def _package_of(module_name: str) -> str:
    return module_name.partition(".")[0]


def restore(described: Any, *, depth: int = 0) -> PyTreeDef:
    """Return the tree that `describe` wrote; raise ArtifactError when it is damaged."""
    try:
        return _restore(described, depth)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged_tree(error) from error


def restore_arguments(described: Any) -> PyTreeDef:
    """Restore a tree of `(args, kwargs)`; raise ArtifactError for any other."""
    tree = restore(described)
    nodes = [(part.node_data() or (None,))[0] for part in (tree, *tree.children())]
    if nodes != [tuple, tuple, dict]:
        raise ArtifactError("the file's argument tree is damaged: no (args, kwargs)", do=SAVE_AGAIN)
    return tree


def _restore(described: Any, depth: int) -> PyTreeDef:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if described == "*":
        return LEAF
    if described is None:
        return NONE
    children = [_restore(child, depth + 1) for child in described["children"]]
    if described["kind"] in SEQUENCES:
        return _node(SEQUENCES[described["kind"]], None, children)
    if described["kind"] == "dict":
        return _restore_dict(described["keys"], children)
    return _restore_class(described, children)


def _restore_dict(keys: Any, children: list[PyTreeDef]) -> PyTreeDef:
    """Make a dictionary's tree, checking its keys: JAX trusts that they are sorted and enough."""
    if type(keys) is not list or keys != sorted(set(keys)) or len(keys) != len(children):
        raise ValueError(f"keys {keys} for {len(children)} children")
    return _node(dict, keys, children)


def _restore_class(described: dict[str, Any], children: list[PyTreeDef]) -> PyTreeDef:
    names = [str(name) for name in described["fields"]]
    if len(set(names)) != len(names) or len(names) != len(children):
        raise ValueError(f"fields {names} for {len(children)} children")
    found = _class_here(described["class"])
    if found is not None:
        # no registered class, or another one; or what its static data name is not here
        with contextlib.suppress(RuntimeError, ValueError, LookupError):
            static = _static_of(described, found)
            if found is dict:  # whose keys are not all text or numbers
                return _restore_dict(static, children)
            if _has_such_parts(found, static, children):
                tree = _node(found, static, children)
                if field_names(tree) == names:
                    return tree
    text = described.get("static_text")
    if "static" in described:
        text = _text_of(_decode(described["static"]))
    static = str(described["class"]), tuple(names), text if text is None else str(text)
    return _node(Fields, static, children)


def _static_of(described: dict[str, Any], owner: type) -> Any:
    """Return the static data of a class that is here; raise LookupError if a name is missing."""
    if "static" in described:
        return _decode(described["static"])
    return _decode(described["static_by_name"], owner)


def _has_such_parts(kind: type, static: Any, children: list[PyTreeDef]) -> bool:
    """Return False for a dataclass with other numbers of fields, which JAX would not check."""
    fields = fields_of_dataclass(kind)
    return fields is None or (isinstance(static, tuple) and fields == (len(children), len(static)))


def _node(kind: type, static: Any, children: list[PyTreeDef]) -> PyTreeDef:
    return PyTreeDef.from_node_data_and_children(default_registry, (kind, static), children)


def _class_here(name: str) -> type | None:
    """Return the class of this name if its module is imported already; otherwise None."""
    with contextlib.suppress(LookupError):
        found = found_here(name)
        return found if isinstance(found, type) else None
    return None


def has_fields(tree: PyTreeDef) -> bool:
    """Return True if somewhere in the tree `Fields` stands for a class that is not here."""
    node = tree.node_data()
    if node is not None and node[0] is Fields:
        return True
    return any(map(has_fields, tree.children()))


def flatten_call(
    in_tree: PyTreeDef, args: tuple[Any, ...], kwargs: dict[str, Any], lists: bool = False
) -> list[Any]:
    """Return the leaves of a call's arguments as `flatten_arguments` does, for `(args, kwargs)`.

    Args:
      lists: take a list or a tuple for a leaf.
    """
    leaves, tree = jax.tree.flatten((args, kwargs))
    if tree == in_tree:
        return leaves
    positional, named = in_tree.children()
    expected = positional.children()
    if len(expected) != len(args):
        raise wrong_count(len(expected), len(args))
    parts = [*zip(expected, args, strict=True), (named, kwargs)]
    names = [*(f"argument {number}" for number in range(len(args))), "keyword arguments"]
    return [
        leaf
        for part, name in zip(parts, names, strict=True)
        for leaf in _leaves_like(*part, name, lists)
    ]


def flatten_arguments(in_tree: PyTreeDef, arguments: Any) -> list[Any]:
    """Return the leaves of `arguments` in the order of `in_tree`.

    Where the tree has a class that is not here, a dictionary by field name is taken, and so is
    an instance of any class that has the same fields.

    Raises: ArgumentError naming the argument's path when the structures differ.
    """
    leaves, tree = jax.tree.flatten(arguments)
    return leaves if tree == in_tree else list(_leaves_like(in_tree, arguments, "arguments"))


def _leaves_like(tree: PyTreeDef, value: Any, path: str, lists: bool = False) -> Any:
    if tree == LEAF:
        is_list = lists and type(value) in (list, tuple)
        if not is_list and jax.tree.structure(value) != LEAF:
            raise misfit(path, "an array", type(value).__name__)
        yield value
        return
    kind, static = tree.node_data() or (type(None), ("", ()))
    parts = _parts(kind, value)
    names = list(static[1]) if kind is Fields else list(parts)
    node = _node_of(value)
    if kind is Fields:
        fits = node != LEAF and sorted(parts) == sorted(names)
        _check_static(static, node, path)
    else:  # of a class that is here the static data count, and the keys as they are
        fits = node.node_data() == tree.node_data() and node.num_leaves == len(tree.children())
    if not fits:
        raise misfit(path, _spell(tree), type(value).__name__ if node == LEAF else _spell(node))
    for name, child in zip(names, tree.children(), strict=True):
        yield from _leaves_like(child, parts[name], f"{path}.{name}", lists)


def _check_static(expected: tuple[Any, ...], node: PyTreeDef, path: str) -> None:
    """Raise ArgumentError for an instance of the saved class that has other static data."""
    class_name, _, text = expected
    kind, static = node.node_data() or (type(None), None)
    if text is None or _name_of(kind) != class_name or _text_of(static) in (None, text):
        return
    found = f"{kind.__name__} with {_text_of(static)}"
    raise misfit(path, f"{kind.__name__} with static data {text}", found)


def _node_of(value: Any) -> PyTreeDef:
    """Return the structure of one level of a value, with its children as leaves."""
    return jax.tree.structure(value, is_leaf=lambda part: part is not value)


def _parts(kind: type, value: Any) -> dict[str, Any]:
    """Return the children of a value by name."""
    if kind is Fields and isinstance(value, Mapping):
        return {str(name): part for name, part in value.items()}
    keyed = tree_flatten_with_path(value, is_leaf=lambda part: part is not value)[0]
    names = _names([path[0] for path, _ in keyed if path])
    return dict(zip(names, (part for path, part in keyed if path), strict=True))


def _spell(tree: PyTreeDef) -> str:
    """Format a container for messages: its fields' names, and any static data of its class."""
    if tree == NONE:
        return "None"
    kind, static = tree.node_data()
    if kind is Fields:
        return f"a dictionary with fields ({', '.join(static[1])})"
    if kind is dict:
        names = [key if str(key).isidentifier() else repr(key) for key in static]
        return f"dict with fields ({', '.join(names)})"
    has_static = kind not in (tuple, list) and static not in (None, ())
    beside = f" and static data {_text_of(static) or repr(static)}" if has_static else ""
    return f"{kind.__name__} with fields ({', '.join(field_names(tree))}){beside}"
