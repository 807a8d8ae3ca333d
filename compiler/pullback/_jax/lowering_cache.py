"""Cache of lowered equations across modules, for those that depend on nothing in their module."""

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
    """Return the cache of lowered equations that all modules of an MLIR context share.

    JAX lowers equal equations once in each module; with this cache it lowers them once in all.
    There is one cache for each of JAX's configurations, cleared with JAX's own caches.
    """
    return {}


_contexts.forgetting(common_entries.cache_clear)


class Known(NamedTuple):
    """A key and value of one of JAX's two lowering caches of a module.

    The value is a function, or an object that has one. With `is_entry`, the cache is the one of
    equations (`lowering_cache`); otherwise that of called functions (`cached_primitive_lowerings`).
    """

    is_entry: bool
    key: Any
    found: Any

    @property
    def name(self) -> str:
        """The name that JAX gives to the function, without the number that makes it unique."""
        if self.is_entry:
            return str(self.key.primitive.name)
        return next(part for part in self.key if isinstance(part, str))

    @property
    def function(self) -> Any:
        """The function; None if the value has none."""
        function = getattr(self.found, "func", self.found)
        return function if isinstance(function, func.FuncOp) else None

    def of(self, function: Any) -> Any:
        """Return the cached value with another function in it."""
        if isinstance(self.found, func.FuncOp):
            return function
        if not hasattr(self.found, "symbol_ref"):
            return dataclasses.replace(self.found, func=function)
        symbol = ir.FlatSymbolRefAttr.get(function.sym_name.value, function.context)
        return dataclasses.replace(self.found, func=function, symbol_ref=symbol)


class Function(NamedTuple):
    """A function detached from its module, and those that it calls, by its names for them."""

    operation: Any
    callees: dict[str, Function]
    known: Known | None


class Entries(dict[Any, Any]):
    """JAX's `lowering_cache` of one module; an entry it lacks may come from the common cache.

    Attributes:
      called: JAX's `cached_primitive_lowerings`: the functions that are no equation's, by key.
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
        """Prepare to lower a function, with the common cache of JAX's current configuration."""
        self._common, self._before = common, (len(self), len(self.called))

    def _take_over(self, function: Function) -> Any:
        """Copy a detached function and its callees into this module, and into JAX's caches.

        A function that JAX inlines is not added to the module.
        """
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
        """Add the entries new since `begin` to the common cache, if they depend on nothing else.

        If lowering referred to objects outside of the module (not `alone`), none of them is added,
        and none that calls them later.
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
    """Detaches functions from a module that refer to nothing in it but functions like them."""

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
        """The entries of JAX's caches, by the name of their function in the module."""
        entries, called = self._of_module
        found = [Known(True, *each) for each in entries.items() if not each[1].inline]
        found += [Known(False, *each) for each in called.items()]
        return {each.function.sym_name.value: each for each in found if each.function is not None}

    def detached(self, operation: Any, known: Known | None) -> Function | None:
        """Return a detached copy of a function and its callees; None if one needs its module."""
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
    """Return True if an op may refer to its module, other than by calling a function."""
    name = operation.name
    if name == "stablehlo.custom_call":  # a routine of a library, unless it names functions
        return bool(len(operation.attributes.get("called_computations", ())))
    return name == "stablehlo.composite" or not name.startswith(("stablehlo.", "chlo.", "func."))


def _stands_alone(known: Known) -> bool:
    """Return True if a cached lowering is valid in other modules, and may outlive this one.

    Neither key nor value may hold arrays or a mesh. The key must determine the lowering, so floats
    are out: 0.0 and -0.0 are equal. And it must not keep objects of a user's alive.
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
    """Return True if a parameter's class, or a function, is of no user's code; not for a jaxpr."""
    module = getattr(value if callable(value) else type(value), "__module__", None) or ""
    return not jaxprs.is_jaxpr(value) and module.partition(".")[0] in _LIBRARIES


_LIBRARIES = frozenset({"builtins", "jax", "jaxlib", "ml_dtypes", "numpy"})
