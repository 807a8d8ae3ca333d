"""Lowering: from a jaxpr to a function in a module of ours."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax._src import config as _config, effects as _effects, util as _util, xla_bridge as _bridge
from jax._src.interpreters import mlir as _mlir

from pullback._jax import (
    context as our_context,
    dimensions as _dimensions,
    func,
    ir,
    jaxprs,
    named_axes,
    stablehlo,
)
from pullback_runtime import _contexts


class Lowering:
    """Lowers functions into one module, each function that they have in common once.

    With symbolic dimensions, each takes the sizes of these first.

    Attributes:
      module: where the functions are.
    """

    def __init__(
        self,
        module: ir.Module,
        *,
        platforms: Sequence[str],
        keepalives: list[Any],
        host_callbacks: list[Any],
        dimensions: Sequence[str] = (),
    ) -> None:
        self.module = module
        self._dimensions = tuple(dimensions)
        self._symbols = ir.SymbolTable(module.operation)
        self._channels = _Channels()
        self._of_runtime = keepalives, host_callbacks
        self._platforms = tuple(platforms)
        self._contexts: dict[Any, Any] = {}

    def lower(self, name: str, closed: Any, *, entry: bool = False) -> str:
        """Lowers a closed jaxpr to a function of the module; returns the function's symbol."""
        ordered = list(_effects.ordered_effects.filter_in(closed.effects))
        types = {"in_avals": closed.in_avals}
        if not jaxprs.CLOSED_AND_OPEN_DIFFER:
            types["out_avals"] = closed.out_avals
        context, before = self._context(named_axes.axis_context(closed)), self._outside()
        entries, common = context.lowering_cache, self._common()
        entries.common, known = common, len(entries)
        with self.module.context, ir.Location.unknown(self.module.context):
            function = _mlir.lower_jaxpr_to_fun(
                context, name, closed, ordered, num_const_args=0, main_function=entry, **types
            )
            _contexts.keeps(self.module.context, jaxprs.size_of_constants(closed))
            if entry and ordered:
                _make_tokens_inside(function, len(ordered))
            if self._dimensions:
                self._mark(function, closed)
                return function.sym_name.value
        if self._outside() == before:
            _share(common, itertools.islice(entries.items(), known, None))
        return function.sym_name.value

    def _mark(self, function: Any, closed: Any) -> None:
        """Notes the sizes of the function; and what else was made for it is like no other."""
        _dimensions.mark(function, closed.in_avals, closed.out_avals)
        for each in self.module.body.operations:
            if isinstance(each, func.FuncOp):
                _dimensions.mark_apart(each, f"{each.sym_name.value} on {self._platforms[0]}")

    def _context(self, axis_context: Any) -> Any:
        key = axis_context, _config.trace_context()
        if key not in self._contexts:
            keepalives, host_callbacks = self._of_runtime
            self._contexts[key] = _mlir.ModuleContext(
                context=self.module.context,
                module=self.module,
                symbol_table=self._symbols,
                platforms=self._platforms,
                backend=_backend(self._platforms[0]),
                axis_context=axis_context,
                keepalives=keepalives,
                channel_iterator=self._channels,
                host_callbacks=host_callbacks,
                lowering_cache=_Entries(self.module, self._symbols),
                lowering_parameters=_mlir.LoweringParameters(hoist_constants_as_args=False),
                shape_poly_state=_mlir.ShapePolyLoweringState(self._dimensions, self._platforms),
            )
        return self._contexts[key]

    def _common(self) -> dict[Any, Any]:
        """What is known already; nothing in a context that is made for one module."""
        context = self.module.context
        shared = context == our_context() and not self._dimensions
        return _common(self._platforms, context) if shared else {}

    def _outside(self) -> tuple[int, ...]:
        """How much of what is outside of the module it refers to."""
        return *map(len, self._of_runtime), self._channels.taken


def has_lowering(primitive: Any) -> bool:
    """Whether a primitive is lowered to StableHLO, on any platform."""
    tables = [_mlir._lowerings, *_mlir._platform_specific_lowerings.values()]
    return any(primitive in table for table in tables)


def _backend(platform: str) -> Any:
    """That of a platform; any other if there is no such device: some primitives ask which it is."""
    try:
        return _bridge.get_backend(platform)
    except RuntimeError:
        return _bridge.get_backend()


class _Channels:
    """Numbers for collectives, which tell those of one module apart."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> _Channels:
        return self

    def __next__(self) -> int:
        self.taken += 1
        return _mlir.COLLECTIVE_CHANNEL_ID + self.taken


_MOST = 4096  # entries that are kept for other modules


@_util.cache()
def _common(platforms: tuple[str, ...], context: ir.Context) -> dict[Any, Any]:
    """What equations lower to in any module of a context, where that refers to none of it.

    JAX lowers equal equations of one module once; so it is here for all modules. There is one for
    each of JAX's configurations, and they go with JAX's own caches.
    """
    return {}


_contexts.forgetting(_common.cache_clear)


class _Entries(dict[Any, Any]):
    """What equations lower to in one module: what it has no entry for may be among the common ones.

    Attributes:
      common: those of the configuration at hand.
    """

    def __init__(self, module: ir.Module, symbols: ir.SymbolTable) -> None:
        super().__init__()
        self._module = module
        self._symbols = symbols
        self.common: dict[Any, Any] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self and key in self.common:
            self[key] = self._taken_over(self.common[key])
        return super().get(key, default)

    def _taken_over(self, entry: Any) -> Any:
        """The entry; one that is called and not inlined, as a function of this module."""
        if entry.inline:
            return entry
        function = entry.func.operation.clone(ir.InsertionPoint(self._module.body))
        self._symbols.insert(function)
        return dataclasses.replace(entry, func=function.opview)


def _share(common: dict[Any, Any], entries: Iterable[tuple[Any, Any]]) -> None:
    for key, entry in entries:
        if key not in common and _stands_alone(key, entry):
            common[key] = entry if entry.inline else _detached(key.primitive.name, entry)
    if len(common) > _MOST:
        common.clear()


def _detached(name: str, entry: Any) -> Any:
    """The entry with a copy of its function, that is in no module and has its first name."""
    function = entry.func.operation.clone(False)
    function.attributes["sym_name"] = ir.StringAttr.get(name, function.context)
    return dataclasses.replace(entry, func=function.opview)


def _stands_alone(key: Any, entry: Any) -> bool:
    """Whether nothing of its module is meant in an entry: no function, and no mesh.

    And whether its key is all that it depends on, for of two floats that are equal, one may be
    -0.0; and holds nothing of a user's, which would live as long.
    """
    if entry.const_args or not key.eqn_ctx.cur_abstract_mesh.empty:
        return False
    if any(isinstance(each, (float, complex)) for each in jax.tree.leaves(key.params)):
        return False
    if not all(map(_is_nobodys, jax.tree.leaves(key.params, is_leaf=_is_no_container))):
        return False
    alone = True

    def visit(operation: Any) -> Any:
        nonlocal alone
        name = operation.name
        alone = name.startswith(("stablehlo.", "chlo.", "func.")) and name not in _REFERRING
        if name == "stablehlo.custom_call":  # a routine of a library, unless it names functions
            alone = not len(operation.attributes.get("called_computations", ()))
        return ir.WalkResult.ADVANCE if alone else ir.WalkResult.INTERRUPT

    entry.func.operation.walk(visit)
    return alone


_REFERRING = frozenset({"func.call", "stablehlo.composite"})


def _is_no_container(value: Any) -> bool:
    return type(value) not in (tuple, list, dict)


def _is_nobodys(value: Any) -> bool:
    """Whether a parameter is of a class, or a function, of JAX's or Python's; and no jaxpr."""
    module = getattr(value if callable(value) else type(value), "__module__", None) or ""
    return not jaxprs.is_jaxpr(value) and module.partition(".")[0] in _LIBRARIES


_LIBRARIES = frozenset({"builtins", "jax", "jaxlib", "ml_dtypes", "numpy"})


def _make_tokens_inside(function: Any, count: int) -> None:
    """The order of effects as a matter of the function's own: no token crosses its border."""
    block = function.entry_block
    for _ in range(count):
        with ir.InsertionPoint.at_block_begin(block):
            token = stablehlo.create_token()
        block.arguments[0].replace_all_uses_with(token)
        block.erase_argument(0)
    (returned,) = (op for op in block.operations if op.operation.name == "func.return")
    values = list(returned.operands)[count:]
    with ir.InsertionPoint(returned):
        func.ReturnOp(values)
    returned.operation.erase()
    kinds = [argument.type for argument in block.arguments], [value.type for value in values]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            kept = list(ir.ArrayAttr(function.attributes[name]))[count:]
            function.attributes[name] = ir.ArrayAttr.get(kept)
