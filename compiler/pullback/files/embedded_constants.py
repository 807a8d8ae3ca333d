"""Embed large constants, which are hidden arguments of a traced program, in a file's module.

Their bytes go from the arrays into the file and never enter MLIR, which would copy them several
times: the module that is serialized has a small stub for each.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pullback._jax import ir, prng_keys
from pullback._jax.tangent_types import is_inexact
from pullback.frontend import link
from pullback.frontend.hoist_constants import hoist
from pullback.ir.signatures import drop_arguments
from pullback_runtime import _jax as runtime_jax
from pullback_runtime._jax import operations_named
from pullback_runtime.files import _bytecode_constants, _constants
from pullback_runtime.files._constants import Stub
from pullback_runtime.ir import _module, _resources
from pullback_runtime.ir._erasure import erasing

FIRST_STUB = 0x5A
COMPARED_BYTES = 1 << 16


class Held:
    """Large constants of rules, as resources of an MLIR context in which a file is prepared.

    Attributes:
      context: where the modules are.
      arrays: the data of each resource, by its name.
    """

    def __init__(self, context: ir.Context):
        self.context = context
        self.arrays: dict[str, Any] = {}
        self._attributes: dict[str, ir.Attribute] = {}

    def copy(self, module: ir.Module) -> ir.Module:
        """Copy a module into this context, with its large constants as resources.

        Modules share equal ones, so that equal functions with these are equal as text.
        """
        bytecode = _module.to_bytecode(module)
        data = _resources.read(bytecode)
        copy = _module.parse(bytecode, self.context)
        for name, op in _resources.constants(copy) if data else ():
            array = _resources.as_array(_resources.by_name(data, name), op)
            make = functools.partial(op.attributes.__getitem__, "value")
            op.attributes["value"] = self._resource(array, name, make)
        for op in operations_named(copy, _resources.CONSTANT):
            plain = _constants.large_array(op)
            if plain is not None and is_inexact(plain):
                op.attributes["value"] = self._new_resource(plain, op.results[0].type)
        return copy

    def _new_resource(self, array: Any, kind: Any) -> ir.Attribute:
        name = f"held_{len(self.arrays)}"
        make = functools.partial(_resources.attribute, name, np.asarray(array), kind)
        return self._resource(array, name, make)

    def _resource(self, array: Any, name: str, make: Callable[[], Any]) -> ir.Attribute:
        """Return the attribute of the resource with an array's data; a new one has this name."""
        known = next((n for n, other in self.arrays.items() if _equal(array, other)), name)
        if known not in self.arrays:
            self.arrays[known], self._attributes[known] = array, make()
        return self._attributes[known]

    def lowering_of(self, table: Any) -> Callable[[str, Any], link.LinkSource]:
        """Return a function that lowers rules of a table, with large constants held here.

        It is used in place of the table's own `lowered.lower`.
        """
        return functools.partial(self._lower, link.Lowered(table, self.context))

    def _lower(self, lowered: link.Lowered, symbol: str, closed: Any) -> link.LinkSource:
        hoisted, arrays = hoist(closed)
        source = lowered.lower(symbol, hoisted)
        function = source.library.functions[source.entry]
        block = function.regions[0].blocks[0]
        with ir.Location.unknown(self.context), ir.InsertionPoint.at_block_begin(block):
            arguments = list(block.arguments)[: len(arrays)]
            for argument, array in zip(arguments, arrays, strict=True):
                argument.replace_all_uses_with(
                    self._constant(prng_keys.physical(array), argument.type)
                )
            drop_arguments(function, arguments)
        return source

    def _constant(self, array: Any, kind: Any) -> ir.Value:
        if array.nbytes < _constants.SMALLEST_BYTES or not is_inexact(array):
            return _constant(array, None)
        attributes = {"value": self._new_resource(array, kind)}
        return ir.Operation.create(_resources.CONSTANT, [kind], attributes=attributes).results[0]


@dataclass(frozen=True)
class Embedding:
    """The large constants of programs, each value once; those with a stub stay out of the module.

    `values` may be JAX arrays, which are converted to NumPy's on use. `places` has, for each hidden
    argument of each entry, the position of its value; `held` has it for each resource, by name.
    """

    values: tuple[Any, ...]
    stubs: tuple[Stub | None, ...]
    places: Mapping[str, Sequence[int]]
    held: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(
        hidden: Mapping[str, Sequence[Any]],
        module: ir.Module,
        held: Mapping[str, Any] | None = None,
    ) -> Embedding:
        """Choose a stub for each large constant, unlike any constant of the module.

        Args:
          hidden: by entry, the values of its leading arguments.
        """
        held = held or {}
        given = [*map(prng_keys.physical, itertools.chain(*hidden.values()))]
        values, found = _distinct([*given, *held.values()])
        places = iter(found)
        constants = operations_named(module, _resources.CONSTANT) if values else []
        taken = set(map(_constants.value_of, constants))
        whole = [data for op in constants if (data := _constants.large_array(op)) is not None]
        numbers = itertools.count(FIRST_STUB)
        with ir.Location.unknown(module.context):
            stubs = tuple(
                None if _is_in(value, whole) else _stub(value, taken, numbers) for value in values
            )
        of_entries = {
            entry: tuple(itertools.islice(places, len(each))) for entry, each in hidden.items()
        }
        return Embedding(tuple(values), stubs, of_entries, dict(zip(held, places, strict=True)))

    def without_stubs(self) -> Embedding:
        """Return a copy that puts all constants into the module, and uses no stubs."""
        return replace(self, stubs=(None,) * len(self.values))

    def stored(self) -> list[tuple[Stub, np.ndarray]]:
        """Return the constants that a file holds in place of stubs, with these."""
        pairs = zip(self.stubs, self.values, strict=True)
        return [(stub, np.asarray(value)) for stub, value in pairs if stub is not None]

    def describe(self) -> list[Any]:
        """Return what a loader has to know of the constants with stubs."""
        return [_constants.describe(*pair) for pair in self.stored()]

    def embed(self, module: ir.Module) -> None:
        """Replace the leading arguments of the entries with constants, in place.

        Entries pass these on to the functions that use them, so each is stored once.
        """
        symbols = ir.SymbolTable(module.operation)
        for entry, places in self.places.items():
            if places:
                self._embed(symbols[entry], places)
        with erasing():
            for name, op in _resources.constants(module) if self.held else ():
                place = self.held[name]
                with ir.Location.unknown(module.context), ir.InsertionPoint(op):
                    _resources.replace(op, _constant(self.values[place], self.stubs[place]))

    def _embed(self, function: Any, places: Sequence[int]) -> None:
        block = function.regions[0].blocks[0]
        with ir.Location.unknown(function.context), ir.InsertionPoint.at_block_begin(block):
            arguments = list(block.arguments)[: len(places)]
            made = {place: _constant(self.values[place], self.stubs[place]) for place in {*places}}
            for argument, place in zip(arguments, places, strict=True):
                argument.replace_all_uses_with(made[place])
            drop_arguments(function, arguments)


def _distinct(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the distinct values, and for each given one its position among them."""
    distinct: list[Any] = []
    places = []
    for value in values:
        equal = (place for place, other in enumerate(distinct) if _equal(value, other))
        place = next(equal, len(distinct))
        places.append(place)
        distinct += [value] if place == len(distinct) else []
    return distinct, places


def _equal(value: Any, other: Any) -> bool:
    """Return True if two arrays have equal bytes, comparing block by block to stop early."""
    if value is other:
        return True
    if (value.shape, value.dtype) != (other.shape, other.dtype):
        return False
    first, second = (_bytecode_constants.as_bytes(np.asarray(array)) for array in (value, other))
    starts = range(0, len(first), COMPARED_BYTES)
    pairs = ((first[at : at + COMPARED_BYTES], second[at : at + COMPARED_BYTES]) for at in starts)
    return all(bytes(one) == bytes(two) for one, two in pairs)


def _constant(value: Any, stub: Stub | None) -> ir.Value:
    if stub is None:
        return runtime_jax.ir_constant(np.asarray(value))
    constant = _constants.parse_constant(stub.text)
    ir.InsertionPoint.current.insert(constant)
    return constant.results[0]


def _is_in(value: Any, whole: Sequence[np.ndarray]) -> bool:
    """Return True if a constant of the module has these data already: it needs no second one."""
    return any(_equal(value, other) for other in whole)


def _stub(value: Any, taken: set[Any], numbers: Iterator[int]) -> Stub | None:
    """Return a stub that the module lacks; None for small arrays, and types without a stub."""
    if value.nbytes < _constants.SMALLEST_BYTES:
        return None
    kind = ir.RankedTensorType.get(value.shape, runtime_jax.element_type(value.dtype))
    for number in numbers:
        stub = Stub.of(kind, value.dtype, number)
        if stub is None or _constants.value_of_text(stub.text, kind.context) not in taken:
            return stub
    return None
