"""Lower jaxprs to functions in a module of ours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import config as _config, core as _core
from jax._src.interpreters import mlir as _mlir
from jax.extend import backend as _backend_of_jax

from pullback._jax import (
    dimensions as _dimensions,
    func,
    ir,
    jaxprs,
    named_axes,
    scans,
)
from pullback_runtime.ir import _contexts


class Lowering:
    """Lowers functions into one module, in which they share the functions that they call.

    With symbolic dimensions, the first arguments of each are the sizes of these.

    Attributes:
      module: the one that the functions are added to.
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
        self._channels = itertools.count(_mlir.COLLECTIVE_CHANNEL_ID + 1)
        self._of_runtime = keepalives, host_callbacks
        self._platforms = tuple(platforms)
        self._contexts: dict[Any, Any] = {}

    def lower(self, name: str, closed: Any, *, entry: bool = False) -> str:
        """Lower a closed jaxpr to a function of the module, and return its symbol name."""
        options = _memories(closed.out_avals) if entry else {}
        options["in_avals"] = closed.in_avals
        if not jaxprs.CLOSED_AND_OPEN_DIFFER:
            options["out_avals"] = closed.out_avals
        context = self._context(named_axes.axis_context(closed))
        with self.module.context, ir.Location.unknown(self.module.context):
            function = _mlir.lower_jaxpr_to_fun(
                context, name, closed, [], num_const_args=0, main_function=entry, **options
            )
            _contexts.keeps(self.module.context, jaxprs.size_of_constants(closed))
            if self._dimensions:
                self._mark(function, closed)
        return str(function.sym_name.value)

    def _mark(self, function: Any, closed: Any) -> None:
        """Record the symbolic shapes of a function, and keep its new helper functions unique.

        A helper without recorded shapes must not be merged with an equal one for other dimensions.
        """
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
                all_default_mem_kind=False,  # or moves to the memory of the host are left out
                lowering_cache={},
                cached_primitive_lowerings={},
                lowering_parameters=_mlir.LoweringParameters(
                    hoist_constants_as_args=False, override_lowering_rules=scans.OVERRIDES
                ),
                shape_poly_state=_mlir.ShapePolyLoweringState(self._dimensions, self._platforms),
            )
        return self._contexts[key]


def _memories(types: Sequence[Any]) -> dict[str, Any]:
    """Return the option that notes of results in the memory of the host that they are there."""
    if all(getattr(aval, "memory_space", None) != jax.memory.Space.Host for aval in types):
        return {}
    kinds = [_core.mem_space_to_kind(aval.memory_space) for aval in types]
    return {"result_memory_kinds": [None] * len(types), "propagated_out_mem_kinds": tuple(kinds)}


def has_lowering(primitive: Any) -> bool:
    """Return True if a primitive has a lowering to StableHLO, on any platform."""
    tables = [_mlir._lowerings, *_mlir._platform_specific_lowerings.values()]
    return any(primitive in table for table in tables)


def _backend(platform: str) -> Any:
    """Return the backend of a platform, or the default one if this machine lacks such a device.

    Lowerings of some primitives read it.
    """
    try:
        return _backend_of_jax.get_backend(platform)
    except RuntimeError:
        return _backend_of_jax.get_backend()
