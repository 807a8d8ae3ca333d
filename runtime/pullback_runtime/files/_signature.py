"""Read types, trees and rules of a saved program from its metadata, without MLIR."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback_runtime.call import _trees
from pullback_runtime.files import _pattern
from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError
from pullback_runtime.files._reading import refusing_damage
from pullback_runtime.files._variants import are_names
from pullback_runtime.ir._dtypes import scalar_type

METADATA = "signature"
WORDS_OF_KEYS = {"key<fry>": 2, "key<rbg>": 4, "key<urbg>": 4}
"""The uint32 words of each kind of random keys."""

_TYPE = re.compile(r"([\w<>]+)\[([\d,]*)\]")


class ArrayType(NamedTuple):
    """Shape and dtype of an argument or a result, and its name where it is a random key."""

    shape: tuple[int, ...]
    dtype: np.dtype
    spelled: str


@dataclass(frozen=True)
class FileSignature:
    """Hold the types of a program's arguments and results: leaves in order, and their trees."""

    arg_names: tuple[str, ...]
    in_avals: tuple[ArrayType, ...]
    out_avals: tuple[ArrayType, ...]
    in_tree: Any
    out_tree: Any
    entry: str = "main"


def of_metadata(metadata: dict[str, Any]) -> FileSignature:
    """Return the signature that a save wrote.

    Raises: ArtifactError for damaged metadata, and for those of older files, without types.
    """
    ins, outs = _types_of(metadata)
    names = metadata.get("arguments")
    in_tree = _trees.restore_arguments(metadata.get("in_tree"))
    out_tree = _trees.restore(metadata.get("out_tree"))
    counts = [len(list(_trees.paths(tree))) for tree in (in_tree, out_tree)]
    if not are_names(names) or counts != [len(ins), len(outs)] or len(names) != len(ins):
        raise ArtifactError(
            "the file's metadata are damaged: names, trees and types of other numbers of arguments",
            do=SAVE_AGAIN,
        )
    return FileSignature(tuple(names), ins, outs, in_tree, out_tree)


def _types_of(metadata: dict[str, Any]) -> tuple[tuple[ArrayType, ...], tuple[ArrayType, ...]]:
    try:
        ins, outs = _spelled(metadata)
        return tuple(map(read_type, ins)), tuple(map(read_type, outs))
    except (TypeError, ValueError) as error:
        raise ArtifactError(
            f"the file's argument types are damaged: {error}", do=SAVE_AGAIN
        ) from error


def _spelled(metadata: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the types of arguments and of results, as a save wrote them."""
    described = metadata.get(METADATA)
    if described is None and "in_avals" in metadata:  # files of earlier versions
        pairs = metadata["in_avals"], metadata["out_avals"]
        described = [[f"{n}[{','.join(map(str, s))}]" for n, s in side] for side in pairs]
    if described is None:
        raise ArtifactError(
            "the file does not say the types of its arguments, which JAX reads from its module",
            do='load it with engine="jax", or save it again: pullback.load(file).save(file)',
        )
    ins, outs = described
    return ins, outs


@functools.cache
def read_type(text: str) -> ArrayType:
    """Parse a type such as `float32[8,128]`; a random key has the type of its words.

    Raises: ValueError for anything else; ModuleError for a dtype that needs `ml_dtypes`.
    """
    found = _TYPE.fullmatch(text)
    if found is None:
        raise ValueError(repr(text))
    name, sizes = found.groups()
    shape = tuple(int(size) for size in sizes.split(",") if size)
    if name in WORDS_OF_KEYS:
        return ArrayType((*shape, WORDS_OF_KEYS[name]), np.dtype("uint32"), text)
    if name == "float0":  # tangents of integers, which have no values
        return ArrayType(shape, np.dtype(bool), text)
    try:
        return ArrayType(shape, scalar_type(name), text)
    except KeyError:
        raise ValueError(f"no dtype {name!r}") from None


def text_of(metadata: dict[str, Any], entries: Sequence[str] = ()) -> str:
    """Return what the metadata of a file say of a program, a line for each fact.

    Args:
      entries: the names of all programs of the file.
    """
    with refusing_damage():
        return "\n".join(f"{label:12}{text}" for label, text in _rows(metadata, entries))


def _rows(metadata: dict[str, Any], entries: Sequence[str]) -> Iterator[tuple[str, str]]:
    ins, outs = _spelled(metadata)
    if len(entries) > 1:
        yield "entries", ", ".join(entries)
    yield "platforms", ", ".join(metadata.get("platforms", ()))
    names = metadata.get("arguments") or [str(number) for number in range(len(ins))]
    yield from (("argument", f"{name}: {kind}") for name, kind in zip(names, ins, strict=True))
    numbered = [f"result[{number}]" for number in range(len(outs))]
    has_tree = "out_tree" in metadata
    paths = _trees.paths(_trees.restore(metadata["out_tree"]), "result") if has_tree else numbered
    yield from (("result", f"{path}: {kind}") for path, kind in zip(paths, outs, strict=True))
    if (pattern := _pattern.of_metadata(metadata)) is not None:
        yield "pattern", str(pattern)
    for rule in metadata.get("rules", ()):
        names = ", ".join(rule["rules"]) or "none in the file"
        yield "rule", f"{rule['op']} @{rule['function']}: {names}"
