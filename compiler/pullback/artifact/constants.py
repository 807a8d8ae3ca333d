"""Large constants: hidden arguments of a traced program, data of the module in a file.

Their bytes go from the arrays into the file and never enter MLIR, which would copy them several
times: the module that is serialised has a small stub for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback import _jax
from pullback._jax import ir
from pullback.artifact import high_level
from pullback_runtime import _blobs, _constants
from pullback_runtime import _jax as runtime_jax
from pullback_runtime._constants import Stub

FIRST_STUB = 0x5A
COMPARED_BYTES = 1 << 16


@dataclass(frozen=True)
class Embedding:
    """A program's hidden constants, each value once; those with a stub stay out of the module.

    `values` may be arrays of JAX, which are seen as NumPy's where they are used. `places` has the
    position of its value for each hidden argument.
    """

    values: tuple[Any, ...]
    stubs: tuple[Stub | None, ...]
    places: tuple[int, ...]

    @staticmethod
    def of(hidden: Sequence[Any], module: ir.Module) -> Embedding:
        """Chooses a stub for each large constant, unlike any constant of the module."""
        values, places = _distinct([_jax.physical(value) for value in hidden])
        constants = high_level.find(module, _is_constant) if values else []
        taken = set(map(_constants.value_text, constants))
        whole = [data for op in constants if (data := _constants.large_array(op)) is not None]
        numbers = itertools.count(FIRST_STUB)
        with ir.Location.unknown(module.context):
            stubs = tuple(
                None if _is_in(value, whole) else _stub(value, taken, numbers) for value in values
            )
        return Embedding(tuple(values), stubs, tuple(places))

    def without_stubs(self) -> Embedding:
        """The same with all constants in the module."""
        return Embedding(self.values, (None,) * len(self.values), self.places)

    def stored(self) -> list[tuple[Stub, np.ndarray]]:
        """The constants that a file holds in the place of a stub."""
        pairs = zip(self.stubs, self.values, strict=True)
        return [(stub, np.asarray(value)) for stub, value in pairs if stub is not None]

    def describe(self) -> list[Any]:
        """What a loader has to know of them."""
        return [_constants.describe(*pair) for pair in self.stored()]

    def embed(self, module: ir.Module, entries: Iterable[str]) -> None:
        """Turns the leading arguments of the entries into constants, in place.

        They hand them on to the functions that use them, so each is stored once.
        """
        symbols = ir.SymbolTable(module.operation)
        for entry in entries if self.values else ():
            self._embed(symbols[entry])

    def _embed(self, function: Any) -> None:
        block = function.regions[0].blocks[0]
        with ir.Location.unknown(function.context), ir.InsertionPoint.at_block_begin(block):
            arguments = list(block.arguments)[: len(self.places)]
            made = [_constant(*pair) for pair in zip(self.values, self.stubs, strict=True)]
            for argument, place in zip(arguments, self.places, strict=True):
                argument.replace_all_uses_with(made[place])
            drop_arguments(function, len(self.places))


def _distinct(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The values without repetitions, and for each given one its place among them."""
    distinct: list[Any] = []
    places = []
    for value in values:
        equal = (place for place, other in enumerate(distinct) if _equal(value, other))
        place = next(equal, len(distinct))
        places.append(place)
        distinct += [value] if place == len(distinct) else []
    return distinct, places


def _equal(value: Any, other: Any) -> bool:
    """Whether two arrays have the same bytes; most that differ do so early."""
    if (value.shape, value.dtype) != (other.shape, other.dtype):
        return False
    first, second = (_blobs.as_bytes(np.asarray(array)) for array in (value, other))
    starts = range(0, len(first), COMPARED_BYTES)
    pairs = ((first[at : at + COMPARED_BYTES], second[at : at + COMPARED_BYTES]) for at in starts)
    return value is other or all(bytes(one) == bytes(two) for one, two in pairs)


def _constant(value: Any, stub: Stub | None) -> ir.Value:
    if stub is None:
        return runtime_jax.mlir.ir_constant(np.asarray(value))
    constant = _constants.parse_constant(stub.text)
    ir.InsertionPoint.current.insert(constant)
    return constant.results[0]


def _is_constant(op: ir.Operation) -> bool:
    return op.name == _constants.CONSTANT


def _is_in(value: Any, whole: Sequence[np.ndarray]) -> bool:
    """Whether a function of the module holds these data already: the file will, once."""
    return any(_equal(value, other) for other in whole)


def _stub(value: Any, taken: set[str], numbers: Iterator[int]) -> Stub | None:
    """A stub that the module does not hold; None for small arrays, and types without one."""
    if value.nbytes < _constants.SMALLEST_BYTES:
        return None
    kind = ir.RankedTensorType.get(value.shape, runtime_jax.element_type(value.dtype))
    for number in numbers:
        stub = Stub.of(kind, value.dtype, number)
        if stub is None or _constants.normal_text(stub.text, kind.context) not in taken:
            return stub
    return None


def drop_arguments(function: Any, count: int) -> None:
    """Removes the leading arguments, which nothing uses, from a function's type and body."""
    block = function.regions[0].blocks[0]
    for _ in range(count):
        block.erase_argument(0)
    attributes, kind = function.attributes, function.type
    new = ir.FunctionType.get(kind.inputs[count:], kind.results)
    attributes["function_type"] = ir.TypeAttr.get(new)
    if "arg_attrs" in attributes:
        attributes["arg_attrs"] = ir.ArrayAttr.get(list(attributes["arg_attrs"])[count:])
