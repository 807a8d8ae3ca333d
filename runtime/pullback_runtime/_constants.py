"""Large constants of a module as hidden leading arguments of `@main`, outside MLIR and XLA.

A constant inside a module is copied by each step that touches the module: contexts keep it, XLA
folds and embeds it. As an argument it is one array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.dtypes import canonicalize_dtype

from pullback_runtime import _bytecode_constants, _container, _contexts, _mmap, _resources
from pullback_runtime._container import SAVE_AGAIN, ArtifactError
from pullback_runtime._dtypes import scalar_type
from pullback_runtime._erasure import erase, erase_arguments, erasing
from pullback_runtime._jax import ir, operations_named, text_alone
from pullback_runtime._resources import CONSTANT

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
    """Turns the large constants in the entry's body into its leading arguments, in place."""
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
    """Turns these constants of the function's body into its leading arguments; their arrays."""
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
    """A copy of the constant's data; None where it is small or the bindings cannot read it."""
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
    """A block takes new arguments at its end only, so the old ones are made anew behind them."""
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
    """Other constants of the module have the bytes of a stub."""


@dataclass(frozen=True)
class Stub:
    """The splat that stands in the module for a large constant, and its bytes in a file."""

    text: str
    data: bytes

    @staticmethod
    def of(kind: Any, dtype: np.dtype, number: int) -> Stub | None:
        """The stub with this number; None where the type has no so large number."""
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
    """Whether elements take whole bytes in MLIR: not bool and the types of 2, 4 and 6 bits."""
    return dtype.itemsize > 1 or dtype.name in ("int8", "uint8") or dtype.name.startswith("float8")


@dataclass(frozen=True)
class Stored:
    """A constant that was left out when the module was parsed, and the splat in its place."""

    stub: str
    array: np.ndarray


def parse_constant(text: str) -> Any:
    """The operation of a constant, at no place yet."""
    return ir.Operation.parse(f"%0 = {CONSTANT} {text}")


def value_of(op: Any) -> Any:
    """What is equal for constants of one value: the attribute, or the text of complex numbers.

    The bindings cannot hold an attribute of these.
    """
    try:
        return op.attributes["value"]
    except TypeError:
        return text_alone(op, large_elements_limit=16).partition(f"{CONSTANT} ")[2].strip()


def value_of_text(text: str, context: ir.Context) -> Any:
    """The same of a constant that is written like this."""
    with ir.Location.unknown(context):
        try:
            return ir.Attribute.parse(text)
        except TypeError:
            return value_of(parse_constant(text))


def describe(stub: Stub, array: np.ndarray) -> list[Any]:
    """What the metadata say of a constant; the last item will be the number of its attribute."""
    token = f"@{stub.data[:8].hex():>16}@"
    return [array.dtype.name, list(array.shape), stub.text, stub.data.hex(), token]


def put_in(content: bytes, stored: Sequence[tuple[Stub, np.ndarray]]) -> list[Any]:
    """The file, as a row of buffers, with the data of each array in the place of its stub.

    Raises: AmbiguousStub when that place is not clear.
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


def take_out(content: Any, described: Any) -> tuple[bytes, list[Stored]]:
    """The file with stubs for its large constants, and their arrays.

    64-bit constants stay where JAX would make them 32-bit.

    Raises: ArtifactError when the metadata do not describe the file.
    """
    tables = _bytecode_constants.read_tables(content)
    wanted = {int(entry) for *_, entry in described}
    found = {blob.entry: blob for blob in _bytecode_constants.blobs(content, tables, wanted)}
    dtypes = {name: scalar_type(name) for name, *_ in described}
    narrowed = {name for name, dtype in dtypes.items() if canonicalize_dtype(dtype) != dtype}
    stubs, stored = {}, []
    for name, shape, text, data, entry in described:
        dtype, blob = dtypes[name], found.get(int(entry))
        if blob is None or blob.end - blob.start != math.prod(shape) * dtype.itemsize:
            raise ArtifactError("the file's metadata name other constants", do=SAVE_AGAIN)
        if name not in narrowed:
            stubs[blob] = bytes.fromhex(data)
            array = _mmap.read_array(content, blob.start, dtype, tuple(shape))
            stored.append(Stored(text, array))
    return b"".join(_bytecode_constants.replace(content, tables, stubs)), stored


def hoist_stored(
    module: ir.Module, stored: Sequence[Stored], entries: Iterable[str]
) -> tuple[np.ndarray, ...]:
    """Turns the stubs in each entry into its leading arguments; their arrays, in this order.

    The stubs in other functions, which are rules, and in regions become resources.
    """
    waiting = {value_of_text(each.stub, module.context): each.array for each in stored}
    symbols = ir.SymbolTable(module.operation)
    of_entries: dict[Any, list[Any]] = {symbols[name].operation: [] for name in sorted({*entries})}
    others: list[Any] = []
    for op in operations_named(module, CONSTANT):
        if (array := waiting.get(value_of(op))) is not None:
            of_entries.get(op.parent, others).append((op, array))
    first, *further = [_to_arguments(entry.opview, found) for entry, found in of_entries.items()]
    for op, array in others:
        op.attributes["value"] = _resource(array, op.results[0].type)
    identities = [list(map(id, arrays)) for arrays in (first, *further)]
    found = {*identities[0], *(id(array) for _, array in others)}
    if identities.count(identities[0]) != len(identities) or len(found) != len(stored):
        raise ArtifactError("the file's metadata name other constants", do=SAVE_AGAIN)
    return first


def _resource(array: np.ndarray, kind: Any) -> Any:
    """One resource for equal arrays: a context keeps each as long as it is there itself."""
    name = f"constant_{_container.fold(array)[:32]}"
    known = _resources_of(kind)
    if name not in known:
        known[name] = _resources.attribute(name, array, kind)
        _contexts.keeps(kind.context, array.nbytes)
    return known[name]


@_contexts.cached
def _resources_of(kind: Any) -> dict[str, Any]:
    """The resources of a type that there are in its context, by name."""
    return {}
