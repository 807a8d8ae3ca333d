"""The table from ops to functions of JAX, and what such a function is given: an `OpInJax`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pullback._jax import ir
from pullback.errors import NoJaxCounterpartError
from pullback.ir import build
from pullback.ir.locations import user_line_of
from pullback.ir.ops import composite_name
from pullback.ir.purity import target_of
from pullback.ir.regions import SHARDINGS, operands_of, results_of
from pullback_runtime.ir._dtypes import element_dtype

Array = Any
Flat = Callable[..., list[Array]]
"""A function of arrays that returns a list of arrays."""

IGNORED = frozenset({*SHARDINGS, "mhlo.frontend_attributes", "operand_layout", "result_layout"})
"""Attributes that say how an op runs, and not what its results are."""

LOOKED_AT = frozenset({"chlo", "mhlo", "pullback", "stablehlo"})
"""Dialects whose discardable attributes may change a result; XLA drops those of others."""


class _Read:
    """The attributes of an op, and which of them were asked for."""

    def __init__(self, operation: Any) -> None:
        self._attributes = operation.attributes
        self.names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        self.names.add(name)
        return name in self._attributes

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return self._attributes[name]


@dataclasses.dataclass(frozen=True)
class OpInJax:
    """An op that is evaluated: its attributes, and its regions as functions of JAX.

    Attributes:
      operation: the op in the module.
      functions: the functions of the module as functions of JAX, an `Evaluation`.
      regions: each region as a function of the arguments of its block, a `Region`.
      attributes: an attribute by name; one that nobody reads is refused.
    """

    operation: Any
    functions: Any
    regions: Sequence[Any]
    attributes: _Read

    @property
    def name(self) -> str:
        return str(self.operation.name)

    @property
    def operands(self) -> list[Any]:
        """The operands as values of MLIR, for what is known of them."""
        return operands_of(self.operation)

    @property
    def dtypes(self) -> list[np.dtype]:
        """The dtypes of the results."""
        return [dtype_of(r.type) for r in results_of(self.operation)]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the first result."""
        return self.dtypes[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return build.shape_of(results_of(self.operation)[0].type)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is an array of integers."""
        return build.integers(self.attributes[name])

    def number(self, name: str) -> int:
        """Return an attribute that is an integer."""
        return build.number(self, name)

    def flag(self, name: str) -> bool:
        """Return an attribute that is a bool; False if it is absent."""
        return build.flag(self, name)

    def word(self, name: str) -> str:
        """Return an attribute that is an enumerator or a string; an empty text if it is absent."""
        if name not in self.attributes:
            return ""
        attribute = self.attributes[name]
        if isinstance(attribute, ir.StringAttr):
            return str(attribute.value)
        return build.enumerator(attribute)

    def refusal(self, what: str = "") -> NoJaxCounterpartError:
        """Return the error for this op, because of what it says or is."""
        return refusal(self.operation, what)

    def check_attributes(self) -> None:
        """Raise NoJaxCounterpartError for an unread attribute that may change a result."""
        names = set(_names(self.operation))
        for name in sorted(names - self.attributes.names - IGNORED):
            dialect, dot, _ = name.partition(".")
            if not dot or dialect in LOOKED_AT:
                raise self.refusal(f"with the attribute {name}")


def _names(operation: Any) -> Iterator[str]:
    if operation.name == "stablehlo.constant":  # JAX's bindings cannot read some of the values
        return iter(("value",))
    return iter([each if isinstance(each, str) else each.name for each in operation.attributes])


def refusal(operation: Any, what: str = "") -> NoJaxCounterpartError:
    """Return the error for an op that has no counterpart in JAX, with the user's line."""
    target = target_of(operation.operation) or composite_name(operation.operation)
    name = f"{operation.name}{f' @{target}' if target else ''}"
    return NoJaxCounterpartError(
        f"JAX has no primitive for {name}{what and ' '}{what}",
        where=user_line_of(operation),
        do="call the program itself, which JAX takes as one primitive",
    )


Lowering = Callable[..., Any]
"""(op, *operands) -> the result, or a list of results."""

OPS: dict[str, Lowering] = {}
"""Maps the name of an op to the function that evaluates it by JAX."""


def evaluates(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a function of (op, *operands) for these ops."""

    def register(lowering: Lowering) -> Lowering:
        OPS.update(dict.fromkeys(names, lowering))
        return lowering

    return register


def register(lowerings: Mapping[str, Lowering]) -> None:
    """Register functions of (op, *operands) by the names of ops."""
    OPS.update(lowerings)


def plain(function: Callable[..., Any]) -> Lowering:
    """Return the lowering of an op that is this function of its operands."""
    return lambda op, *operands: function(*operands)


def dtype_of(type: Any) -> np.dtype:
    """Return the dtype of a tensor type."""
    return element_dtype(build.info(type).element, "an op of the program")


def aval_of(type: Any) -> jax.ShapeDtypeStruct:
    """Return shape and dtype of a tensor type."""
    return jax.ShapeDtypeStruct(build.shape_of(type), dtype_of(type))
