"""What equations lower to, kept for other modules where it refers to none of its own."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import jax
from jax._src import util as _util

from pullback._jax import func, ir, jaxprs
from pullback_runtime import _contexts
from pullback_runtime._jax import operations_where

_MOST = 4096  # entries that are kept for other modules


@_util.cache()
def common_entries(platforms: tuple[str, ...], context: ir.Context) -> dict[Any, Any]:
    """What equations lower to in any module of a context, where that refers to none of it.

    JAX lowers equal equations of one module once; so it is here for all modules. There is one for
    each of JAX's configurations, and they go with JAX's own caches.
    """
    return {}


_contexts.forgetting(common_entries.cache_clear)


class Known(NamedTuple):
    """By what JAX finds a function in a module, and what it finds; as an entry, or else as called.

    What it finds is the function, or has it.
    """

    is_entry: bool
    key: Any
    found: Any

    @property
    def name(self) -> str:
        """What JAX calls the function, but for a number."""
        if self.is_entry:
            return str(self.key.primitive.name)
        return next(part for part in self.key if isinstance(part, str))

    @property
    def function(self) -> Any:
        """The function; None if JAX finds something else."""
        function = getattr(self.found, "func", self.found)
        return function if isinstance(function, func.FuncOp) else None

    def of(self, function: Any) -> Any:
        """The same to find, for another function."""
        if isinstance(self.found, func.FuncOp):
            return function
        if not hasattr(self.found, "symbol_ref"):
            return dataclasses.replace(self.found, func=function)
        symbol = ir.FlatSymbolRefAttr.get(function.sym_name.value, function.context)
        return dataclasses.replace(self.found, func=function, symbol_ref=symbol)


class Function(NamedTuple):
    """A function that is in no module, and those that it calls, by its names for them."""

    operation: Any
    callees: dict[str, Function]
    known: Known | None


class Entries(dict[Any, Any]):
    """What equations lower to in one module: what it has no entry for may be among the common ones.

    Attributes:
      called: by JAX's keys, the functions of the module that are no equation's.
    """

    def __init__(self, module: ir.Module, symbols: ir.SymbolTable) -> None:
        super().__init__()
        self._module = module
        self._symbols = symbols
        self._common: dict[Any, Function] | None = None
        self._before = 0, 0
        self._apart: set[Any] = set()  # keys of what refers to what is outside of the module
        self.called: dict[Any, Any] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        if self._common is not None and key not in self and key in self._common:
            self._take_over(self._common[key])
        return super().get(key, default)

    def begin(self, common: dict[Any, Function] | None) -> None:
        """Before a function is lowered, with the common entries of the configuration at hand."""
        self._common, self._before = common, (len(self), len(self.called))

    def _take_over(self, function: Function) -> Any:
        """A function of this module, or one that is inlined, which JAX finds from now on."""
        known, inline = function.known, False
        if known is not None:
            table = self if known.is_entry else self.called
            if known.key in table:
                return known._replace(found=table[known.key]).function
            inline = known.is_entry and known.found.inline
        copy = function.operation.clone(not inline and ir.InsertionPoint(self._module.body))
        if not inline:
            self._symbols.insert(copy)
        if known is not None:
            table[known.key] = known.of(copy.opview)
        names = {name: self._take_over(each).sym_name for name, each in function.callees.items()}
        for call in _calls_in(copy):
            name = names[_callee(call)].value
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(name, copy.context)
        return copy.opview

    def share(self, alone: bool) -> None:
        """Adds what stands alone to the common entries, of what is new since `begin`.

        That is nothing, nor what calls it later, if it refers to what is outside of the module.
        """
        common, (entries, called) = self._common, self._before
        if not alone:
            self._apart.update(itertools.islice(self, entries, None))
            self._apart.update(itertools.islice(self.called, called, None))
        if not alone or common is None:
            return
        detaching = _Detaching(self._symbols, self, self.called, self._apart)
        for each in itertools.islice(self.items(), entries, None):
            known = Known(True, *each)
            if known.key not in common and _stands_alone(known):
                function = detaching.detached(known.function.operation, known)
                if function is not None:
                    common[known.key] = function
        if len(common) > _MOST:
            common.clear()


class _Detaching:
    """Takes functions out of a module, those that mean nothing in it but others of these."""

    def __init__(
        self,
        symbols: ir.SymbolTable,
        entries: Mapping[Any, Any],
        called: Mapping[Any, Any],
        apart: Container[Any],
    ) -> None:
        self._symbols = symbols
        self._of_module = entries, called
        self._apart = apart
        self._done: dict[str, Function | None] = {}

    @functools.cached_property
    def _known(self) -> dict[str, Known]:
        """What JAX finds in the module, by the name that it has there."""
        entries, called = self._of_module
        found = [Known(True, *each) for each in entries.items() if not each[1].inline]
        found += [Known(False, *each) for each in called.items()]
        return {each.function.sym_name.value: each for each in found if each.function is not None}

    def detached(self, operation: Any, known: Known | None) -> Function | None:
        """A function, and those that it calls; None if one of them means more of its module."""
        if operations_where(operation, _refers):
            return None
        callees: dict[str, Function] = {}
        for name in dict.fromkeys(map(_callee, _calls_in(operation))):
            callee = self._callee(name)
            if callee is None:
                return None
            callees[name] = callee
        copy = operation.clone(False)
        if known is not None:
            copy.attributes["sym_name"] = ir.StringAttr.get(known.name, copy.context)
            known = known._replace(found=known.of(copy.opview))  # which keeps no module
        return Function(copy, callees, known)

    def _callee(self, name: str) -> Function | None:
        if name not in self._done:
            known = self._known.get(name)
            alone = name in self._symbols and (
                known is None or (known.key not in self._apart and _stands_alone(known))
            )
            operation = self._symbols[name].operation if alone else None
            self._done[name] = self.detached(operation, known) if alone else None
        return self._done[name]


def _calls_in(function: Any) -> list[Any]:
    return operations_where(function, lambda operation: operation.name == "func.call")


def _callee(call: Any) -> str:
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)


def _refers(operation: Any) -> bool:
    """Whether an op means something of its module, other than a function that it calls."""
    name = operation.name
    if name == "stablehlo.custom_call":  # a routine of a library, unless it names functions
        return bool(len(operation.attributes.get("called_computations", ())))
    return name == "stablehlo.composite" or not name.startswith(("stablehlo.", "chlo.", "func."))


def _stands_alone(known: Known) -> bool:
    """Whether what JAX finds means nothing of its module but functions, and the key nothing else.

    Not a mesh, say, nor arrays. And whether the key of an entry is all that it depends on, for of
    two floats that are equal, one may be -0.0; and holds nothing of a user's, which would live as
    long.
    """
    if not known.is_entry:
        return not getattr(known.found, "const_args_and_avals", None)
    if known.found.const_args or not known.key.eqn_ctx.cur_abstract_mesh.empty:
        return False
    params = known.key.params
    if any(isinstance(each, (float, complex)) for each in jax.tree.leaves(params)):
        return False
    return all(map(_is_nobodys, jax.tree.leaves(params, is_leaf=_is_no_container)))


def _is_no_container(value: Any) -> bool:
    return type(value) not in (tuple, list, dict)


def _is_nobodys(value: Any) -> bool:
    """Whether a parameter is of a class, or a function, of JAX's or Python's; and no jaxpr."""
    module = getattr(value if callable(value) else type(value), "__module__", None) or ""
    return not jaxprs.is_jaxpr(value) and module.partition(".")[0] in _LIBRARIES


_LIBRARIES = frozenset({"builtins", "jax", "jaxlib", "ml_dtypes", "numpy"})
