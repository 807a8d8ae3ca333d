"""Large constants of a module as hidden leading arguments of `@main`, outside MLIR and XLA.

A constant inside a module is copied by each step that touches the module: contexts keep it, XLA
folds and embeds it. As an argument it is one array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.dtypes import canonicalize_dtype

from pullback_runtime._jax import element_type, ir, operations_named, text_alone
from pullback_runtime.files import _bytecode_constants, _container, _mmap
from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError
from pullback_runtime.ir import _contexts, _resources
from pullback_runtime.ir._dtypes import scalar_type
from pullback_runtime.ir._erasure import erase, erase_arguments, erasing
from pullback_runtime.ir._resources import CONSTANT

SMALLEST_BYTES = 1 << 14
METADATA = "constants"

# Bytes per element. The bindings cannot read bfloat16 and complex data, and JAX makes 64-bit
# arrays 32-bit by default: constants of these types stay in the module.
HOISTED_TYPES = {
    "f32": 4,
    "f16": 2,
    "i1": 1,
    "i8": 1,
    "ui8": 1,
    "i16": 2,
    "ui16": 2,
    "i32": 4,
    "ui32": 4,
}


def hoist(module: ir.Module, entry: str = "main") -> tuple[np.ndarray, ...]:
    """Turn the large constants in the entry's body into leading arguments; return their data."""
    symbols = ir.SymbolTable(module.operation)
    if entry not in symbols or not len(symbols[entry].regions[0].blocks):
        return ()
    function = symbols[entry]
    operations = function.regions[0].blocks[0].operations
    return _to_arguments(
        function, [(op, array) for op in operations if (array := large_array(op)) is not None]
    )


def _to_arguments(
    function: Any, constants: Sequence[tuple[Any, np.ndarray]]
) -> tuple[np.ndarray, ...]:
    """Turn these constants of the body into leading arguments; return their arrays."""
    if not constants:
        return ()
    block = function.regions[0].blocks[0]
    with ir.Location.unknown(function.context):
        old = list(block.arguments)
        with erasing():
            for op, _ in constants:
                result = op.operation.results[0]
                result.replace_all_uses_with(block.add_argument(result.type, op.location))
                erase(op)
        _move_to_the_end(block, old)
        _update_type(function, block, leading=len(constants))
    return tuple(array for _, array in constants)


def large_array(op: Any) -> np.ndarray | None:
    """Copy the data of a constant; None if it is small, or the bindings cannot read it."""
    if op.operation.name != CONSTANT:
        return None
    kind = op.operation.results[0].type
    if str(kind.element_type) not in HOISTED_TYPES:
        return None
    value = op.operation.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr) or value.is_splat:
        return None
    if len(value) * HOISTED_TYPES[str(kind.element_type)] < SMALLEST_BYTES:
        return None
    return np.array(value)


def _move_to_the_end(block: ir.Block, arguments: Sequence[ir.Value]) -> None:
    """Move arguments after the new ones, which the bindings can only append to a block."""
    for argument in arguments:
        argument.replace_all_uses_with(block.add_argument(argument.type, argument.location))
    erase_arguments(block, range(len(arguments)))


def _update_type(function: Any, block: ir.Block, leading: int) -> None:
    inputs = [argument.type for argument in block.arguments]
    attributes = function.attributes
    kind = ir.FunctionType.get(inputs, function.type.results)
    attributes["function_type"] = ir.TypeAttr.get(kind)
    if "arg_attrs" in attributes:
        kept = list(attributes["arg_attrs"])
        attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get()] * leading + kept)


# Files of ours say which constants these are, and their data never enter MLIR.


class AmbiguousStub(Exception):
    """A stub is not unique: another constant of the module has the same bytes."""


@dataclass(frozen=True)
class Stub:
    """The splat that stands in the module for a large constant, and its bytes in a file."""

    text: str
    data: bytes

    @staticmethod
    def of(kind: Any, dtype: np.dtype, number: int) -> Stub | None:
        """Return the stub with this number as value; None if the dtype cannot hold the number."""
        width = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        if number >= 256**width or not _fills_bytes(dtype):
            return None
        data = number.to_bytes(width, "little")
        literal = str(number) if dtype.kind in "iu" else f"0x{number:0{2 * width}X}"
        if dtype.kind == "i" and number >= 256**width // 2:
            literal = str(number - 256**width)
        if dtype.kind == "c":
            literal, data = f"({literal},{literal})", data * 2
        return Stub(f"dense<{literal}> : {kind}", data)


def _fills_bytes(dtype: np.dtype) -> bool:
    """Return True if elements take whole bytes in MLIR, unlike bool and 2-, 4- and 6-bit types."""
    return dtype.itemsize > 1 or dtype.name in ("int8", "uint8") or dtype.name.startswith("float8")


@dataclass(frozen=True)
class StoredConstant:
    """A constant that was left out when the module was parsed, and the data of its stub."""

    data: bytes
    array: np.ndarray

    def stub(self, context: ir.Context) -> str:
        """Spell the splat in its place: by its type, since MLIR must not parse a file's text."""
        dtype = self.array.dtype
        with ir.Location.unknown(context):
            kind = ir.RankedTensorType.get(self.array.shape, element_type(dtype))
        width = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        stub = Stub.of(kind, dtype, int.from_bytes(self.data[:width], "little"))
        if stub is None or stub.data != self.data:
            raise ArtifactError("the file's metadata name other constants", do=SAVE_AGAIN)
        return stub.text


def parse_constant(text: str) -> Any:
    """Parse a constant to an operation that is in no block."""
    return ir.Operation.parse(f"%0 = {CONSTANT} {text}")


def value_of(op: Any) -> Any:
    """Return a key that is equal for constants of equal value: the attribute that it has.

    For complex numbers it is the text, because the bindings cannot hold their attribute.
    """
    try:
        return op.attributes["value"]
    except TypeError:
        return text_alone(op, large_elements_limit=16).partition(f"{CONSTANT} ")[2].strip()


def value_of_text(text: str, context: ir.Context) -> Any:
    """Return the key that `value_of` gives for a constant with this value as text."""
    with ir.Location.unknown(context):
        try:
            return ir.Attribute.parse(text)
        except TypeError:
            return value_of(parse_constant(text))


def describe(stub: Stub, array: np.ndarray) -> list[Any]:
    """Describe a constant for the metadata; `put_in` makes the last item its attribute number."""
    token = f"@{stub.data[:8].hex():>16}@"
    return [array.dtype.name, list(array.shape), stub.text, stub.data.hex(), token]


def put_in(content: bytes, stored: Sequence[tuple[Stub, np.ndarray]]) -> list[Any]:
    """Replace each stub in a file by its array's data; return the file as a list of buffers.

    Raises: AmbiguousStub when a stub's bytes do not occur exactly once.
    """
    if not stored:
        return [content]
    tables = _bytecode_constants.read_tables(content)
    found = list(_bytecode_constants.blobs(content, tables))
    places = {}
    for stub, array in stored:
        matching = [blob for blob in found if content[blob.start : blob.end] == stub.data]
        if len(matching) != 1:
            raise AmbiguousStub(stub.text)
        (blob,) = matching
        places[blob] = _bytecode_constants.as_bytes(array)
        token = describe(stub, array)[-1].encode()
        content = content.replace(token, str(blob.entry).rjust(len(token)).encode())
    return _bytecode_constants.replace(content, tables, places)


def take_out(content: Any, described: Any) -> tuple[bytes, list[StoredConstant]]:
    """Replace the large constants of a file by stubs; return the new file and the arrays.

    64-bit constants stay where JAX would make them 32-bit.

    Raises: ArtifactError when the metadata do not describe the file.
    """
    tables = _bytecode_constants.read_tables(content)
    wanted = {int(entry) for *_, entry in described}
    found = {blob.entry: blob for blob in _bytecode_constants.blobs(content, tables, wanted)}
    dtypes = {name: scalar_type(name) for name, *_ in described}
    narrowed = {name for name, dtype in dtypes.items() if canonicalize_dtype(dtype) != dtype}
    stubs, stored = {}, []
    for name, shape, _, data, entry in described:
        dtype, blob = dtypes[name], found.get(int(entry))
        if blob is None or blob.end - blob.start != math.prod(shape) * dtype.itemsize:
            raise ArtifactError("the file's metadata name other constants", do=SAVE_AGAIN)
        if name not in narrowed:
            stubs[blob] = bytes.fromhex(data)
            array = _mmap.read_array(content, blob.start, dtype, tuple(shape))
            stored.append(StoredConstant(stubs[blob], array))
    return b"".join(_bytecode_constants.replace(content, tables, stubs)), stored


def hoist_stored(
    module: ir.Module, stored: Sequence[StoredConstant], entries: Iterable[str]
) -> dict[str, tuple[np.ndarray, ...]]:
    """Turn the stubs in each entry's body into leading arguments; return their arrays in order.

    Stubs in regions and in other functions, which are rules, become resources.
    """
    context = module.context
    waiting = {value_of_text(each.stub(context), context): each.array for each in stored}
    symbols = ir.SymbolTable(module.operation)
    of_entries: dict[Any, list[Any]] = {symbols[name].operation: [] for name in entries}
    others: list[Any] = []
    for op in operations_named(module, CONSTANT):
        if (array := waiting.get(value_of(op))) is not None:
            of_entries.get(op.parent, others).append((op, array))
    hoisted = {
        entry.opview.name.value: _to_arguments(entry.opview, found)
        for entry, found in of_entries.items()
    }
    for op, array in others:
        op.attributes["value"] = _resource(array, op.results[0].type)
    found = [*itertools.chain(*hoisted.values()), *(array for _, array in others)]
    if len({*map(id, found)}) != len(stored):
        raise ArtifactError("the file's metadata name other constants", do=SAVE_AGAIN)
    return hoisted


def _resource(array: np.ndarray, kind: Any) -> Any:
    """Return a resource for an array, the same for equal arrays: contexts never free one."""
    name = f"constant_{_container.fold(array)[:32]}"
    known = _resources_of(kind)
    if name not in known:
        known[name] = _resources.attribute(name, array, kind)
        _contexts.keeps(kind.context, array.nbytes)
    return known[name]


@_contexts.cached
def _resources_of(kind: Any) -> dict[str, Any]:
    """Return the resources of a type in its context by name, a dictionary to be filled in."""
    return {}
