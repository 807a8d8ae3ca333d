"""Large constants beside a module's ops: MLIR's resources, which share memory with an array.

A plain constant is copied into its context, for as long as that is there. A resource is not, and
nothing folds it. Only XLA cannot read one: what it compiles has plain constants in their place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pullback_runtime import _jax
from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir
from pullback_runtime.files._container import (
    STRING_SECTION,
    Truncated,
    is_bytecode,
    read_strings,
    read_varint,
    sections,
)
from pullback_runtime.ir._dtypes import element_dtype
from pullback_runtime.ir._erasure import erase

CONSTANT = "stablehlo.constant"
RESOURCE_SECTION, OFFSET_SECTION = 5, 6
BLOB = 0
ALIGNMENT = 16  # that of the buffers of Python, which MLIR reads bytecode from
_NAME = re.compile(r'dense_resource<("?)(.+?)\1>')


def attribute(name: str, array: np.ndarray, kind: Any) -> Any:
    """Make the attribute of a constant of this type that shares the array's memory."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return ir.DenseResourceElementsAttr.get_from_buffer(
        data, name, kind, alignment=ALIGNMENT, context=kind.context
    )


def constants(module: ir.Module) -> list[tuple[str, ir.Operation]]:
    """Return the constants of a module that are resources, and the name of each."""
    found = []
    for op in _jax.operations_named(module, CONSTANT):
        if (name := _name(op)) is not None:
            found.append((name, op))
    return found


def _name(op: ir.Operation) -> str | None:
    """Return the name of the resource that is a constant's value; None for a plain constant.

    The attribute is asked, because an elided plain value looks like a resource in text.
    """
    try:
        value = op.attributes["value"]
    except TypeError:  # plain complex numbers, which the bindings cannot hold
        return None
    found = None if isinstance(value, ir.DenseElementsAttr) else _NAME.match(str(value))
    return None if found is None else _jax.unescaped(found[2])


def _text(op: ir.Operation) -> str:
    return _jax.text_alone(op, large_elements_limit=16, large_resource_limit=0)


def replace(op: ir.Operation, value: Any) -> None:
    """Replace a constant by another value, and erase it."""
    op.results[0].replace_all_uses_with(value)
    erase(op)


def make_plain(module: ir.Module, data: Mapping[str, Any]) -> None:
    """Replace constants that are resources with these data by plain ones, in place."""
    for name, op in constants(module) if data else ():
        array = as_array(by_name(data, name), op)
        with ir.Location.unknown(module.context), ir.InsertionPoint(op):
            replace(op, _jax.ir_constant(array))


def by_name(data: Mapping[str, Any], name: str) -> Any:
    """Look up a resource's data; a context that had the name has appended a number to it."""
    return data[name] if name in data else data[name.rpartition("_")[0]]


def as_array(data: Any, op: ir.Operation) -> np.ndarray:
    """View the data of a constant as an array of its type; raise ModuleError if they do not fit."""
    kind = op.results[0].type
    dtype = element_dtype(kind.element_type, "a constant")
    expected = math.prod(kind.shape) * dtype.itemsize
    if data is None or len(data) != expected:
        there = "none are in the module" if data is None else f"the module has {len(data)}"
        raise ModuleError(
            f"a constant wants {expected} bytes of values, and {there}: {_text(op).strip()}",
            where=_jax.place(op),
            do="take the module as it was before large constants were left out: print it without "
            "--mlir-elide-… options, or by pullback dump --constants all, or write bytecode",
        )
    return np.frombuffer(data, dtype).reshape(kind.shape)


def read(content: bytes) -> dict[str, memoryview | None]:
    """Return the data of the resources in a module's bytecode by name, as views of the bytes.

    The data are None for a resource that is only named, because they were elided. The result is
    empty for bytes that are not whole bytecode: the parser reports those.
    """
    try:
        parts = {part.number: part for part in sections(content)} if is_bytecode(content) else {}
    except Truncated:
        return {}
    if RESOURCE_SECTION not in parts:
        return {}
    names = bytes(content[parts[STRING_SECTION].start : parts[STRING_SECTION].end])
    position = parts[RESOURCE_SECTION].start
    found: dict[str, memoryview | None] = {}
    strings = [each[:-1].decode("utf-8", "replace") for each in read_strings(names)]
    for key, size, kind in _entries(content, parts[OFFSET_SECTION]):
        if not size:
            found[strings[key]] = None
        elif kind == BLOB:
            _, at = read_varint(content, position)
            length, _ = read_varint(content, at)
            found[strings[key]] = memoryview(content)[position + size - length : position + size]
        position += size
    return found


def _entries(content: bytes, table: Any) -> Iterator[tuple[int, int, int]]:
    """Yield name, size and kind of each resource: first those of tools, then those of dialects."""
    _, position = read_varint(content, table.start)  # how many are for tools
    while position < table.end:
        _, position = read_varint(content, position)  # the tool's or the dialect's name
        count, position = read_varint(content, position)
        for _ in range(count):
            key, position = read_varint(content, position)
            size, position = read_varint(content, position)
            yield key, size, content[position]
            position += 1
