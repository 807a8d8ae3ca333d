"""Write the trees of JAX as JSON, and read them, without running code that a file names.

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
import sys
import types
from collections.abc import Sequence
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

from pullback_runtime._jax import fields_of_dataclass
from pullback_runtime.call import _avals, _trees
from pullback_runtime.call._trees import (
    MAX_DEPTH,
    SEQUENCES,
    Fields as Fields,
    Node,
    dict_node,
    fields_node,
    filled_fields,
    found_here,
    name_of,
    text_of,
)
from pullback_runtime.files._container import ArtifactError

LEAF = jax.tree.structure(0)
NONE = jax.tree.structure(None)


def _flatten_fields(fields: Fields) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    keyed = [(DictKey(name), value) for name, value in fields.items()]
    return keyed, (fields.class_name, tuple(fields), fields.static_text)


register_pytree_with_keys(Fields, _flatten_fields, filled_fields)


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
    described |= {"class": name_of(kind), "fields": field_names(tree)}
    with contextlib.suppress(TypeError):
        return {**described, "static": _encode(static)}
    described |= _text_entry(text_of(static))  # for where the class, or a name, is not found
    with contextlib.suppress(TypeError):
        return {**described, "static_by_name": _encode(static, kind)}
    return described


def _text_entry(text: str | None) -> dict[str, str]:
    return {} if text is None else {"static_text": text}


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
        name = f"{name_of(kind)}.{value.name}"
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


def restore(described: Any) -> PyTreeDef:
    """Return the tree that `describe` wrote; raise ArtifactError when it is damaged."""
    return _to_jax(_trees.restore(described, _class_node))


def restore_arguments(described: Any) -> PyTreeDef:
    """Restore a tree of `(args, kwargs)`; raise ArtifactError for any other."""
    return _to_jax(_trees.restore_arguments(described, _class_node))


def _class_node(described: dict[str, Any], names: list[str], children: list[Any]) -> Node:
    found = _class_here(described["class"])
    if found is not None:
        # no registered class, or another one; or what its static data name is not here
        with contextlib.suppress(RuntimeError, ValueError, LookupError):
            static = _static_of(described, found)
            if found is dict:  # whose keys are not all text or numbers
                return dict_node(static, children)
            alone = [LEAF] * len(children)
            has_parts = _has_such_parts(found, static, len(children))
            if has_parts and field_names(_node(found, static, alone)) == names:
                return Node(found, names, children, static)
    text = described.get("static_text")
    if "static" in described:
        text = text_of(_decode(described["static"]))
    return fields_node(described["class"], names, children, text)


def _static_of(described: dict[str, Any], owner: type) -> Any:
    """Return the static data of a class that is here; raise LookupError if a name is missing."""
    if "static" in described:
        return _decode(described["static"])
    return _decode(described["static_by_name"], owner)


def _has_such_parts(kind: type, static: Any, count: int) -> bool:
    """Return False for a dataclass with other numbers of fields, which JAX would not check."""
    fields = fields_of_dataclass(kind)
    return fields is None or (isinstance(static, tuple) and fields == (count, len(static)))


def _node(kind: type, static: Any, children: list[PyTreeDef]) -> PyTreeDef:
    return PyTreeDef.from_node_data_and_children(default_registry, (kind, static), children)


def _to_jax(tree: Any) -> PyTreeDef:
    if tree == _trees.LEAF:
        return LEAF
    if tree.kind is types.NoneType:
        return NONE
    return _node(tree.kind, tree.static, list(map(_to_jax, tree.children)))


def _of_jax(tree: PyTreeDef) -> Any:
    if tree == LEAF:
        return _trees.LEAF
    kind, static = tree.node_data()
    names = static if kind is dict else static[1] if kind is Fields else field_names(tree)
    return Node(kind, names, list(map(_of_jax, tree.children())), static)


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
    """Return the leaves of a call's arguments as `_trees.flatten_call` does, for a tree of JAX.

    Args:
      lists: take a list or a tuple for a leaf.

    Raises: ArgumentError naming the argument's path when the structures differ.
    """
    leaves, tree = jax.tree.flatten((args, kwargs))
    if tree == in_tree:
        return leaves
    return _trees.flatten_call(_of_jax(in_tree), args, kwargs, _node_of, lists)


def flatten_arguments(in_tree: PyTreeDef, arguments: Any) -> list[Any]:
    """Return the leaves of `arguments`, as `flatten_call` does for those of a call."""
    leaves, tree = jax.tree.flatten(arguments)
    if tree == in_tree:
        return leaves
    return list(_trees.leaves_like(_of_jax(in_tree), arguments, "arguments", _node_of, False))


def _node_of(value: Any) -> Node | None:
    """Take apart one level of a value of a class that is registered with JAX; None for a leaf."""
    keyed, tree = tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    if tree == LEAF:
        return None
    kind, static = tree.node_data()
    names = static if kind is dict else _names([path[0] for path, _ in keyed])
    return Node(kind, names, [part for _, part in keyed], static)
