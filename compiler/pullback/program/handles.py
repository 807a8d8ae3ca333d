"""Handles: programs as values that `pullback_runtime.call_module` calls, and back.

How JAX's transformations of a call become programs is in `api/program_in_jax.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from pullback import _jax
from pullback._jax import ir, prng_keys
from pullback.ir.environment import Environment
from pullback.ir.modules import clone, result_types
from pullback.ir.purity import acts
from pullback.ir.symbols import functions
from pullback.passes.as_run import as_run
from pullback.program import hooks
from pullback.program.memo import once
from pullback.program.record import Interface, R, Record, with_result_types
from pullback_runtime import Halves, ModuleHandle, Transposed
from pullback_runtime._jax import operations_where
from pullback_runtime.call._handle import LOST_CHECKS
from pullback_runtime.ir import _module


@dataclass(eq=False)
class Origin:
    """The key of a handle: its program, made when it is first needed.

    JAX keeps handles in what it has traced, for as long as the traced function lives. So the
    program here is not the one that is called: it would hold that function, and neither would die.

    Attributes:
      make: gives the program, of which every operand of the handle is an argument, and every
        result an item of a tuple.
      linear: operands that the program is known to be linear in, in all of them together.
      transposed: gives the transpose in these, where it is not derived from the program.
      halves: splits the program in two, the second of which is linear in these operands, where
        that is not derived from the program either.
    """

    make: Callable[[], Any]
    linear: tuple[int, ...] = ()
    transposed: Callable[[], Transposed] | None = None
    halves: Callable[[], Halves] | None = None

    @functools.cached_property
    def program(self) -> Any:
        """The program, with the operands and results of the handle."""
        return self.make()

    def handle(
        self, around: Environment, in_avals: Any, out_avals: Any, **more: Any
    ) -> ModuleHandle:
        """Return a handle that loads the program when it is lowered.

        Making the program may add callbacks to those of what it is derived from.
        """

        @functools.cache
        def loaded() -> tuple[bytes, bytes | None]:
            module = as_run(self.program.module)
            is_own = module is not self.program.module
            return _module.prepare_own(module if is_own else clone(module))

        return ModuleHandle(
            self,
            lambda: loaded()[0],
            in_avals,
            out_avals,
            digest=lambda: loaded()[1],
            host_callbacks=around.host_callbacks,
            keepalives=around.keepalives,
            platforms=around.platforms,
            elsewhere=self.elsewhere,
            **more,
        )

    def elsewhere(self, platform: str) -> ModuleHandle | None:
        """Return the handle for another platform; None if the program cannot be made for it."""
        return _on(self.program, platform)


@once
def _on(program: Record, platform: str) -> ModuleHandle | None:
    made = program._on(platform)
    return handle_of(made) if platform in made.environment.platforms else None


def handle_of(program: Record) -> ModuleHandle:
    """Return the handle of a program; hidden constants are its leading operands."""
    hidden = tuple(jax.typeof(constant) for constant in program.constants)
    flat = _flat(program, hidden)
    around = program.environment
    return Origin(lambda: flat).handle(
        around,
        flat.in_avals,
        flat.out_avals,
        arg_names=flat.arg_paths,
        debugs=around.only_debugs,
        on_host=_module.results_on_host(functions(program.module)["main"]),
        lost_checks=LOST_CHECKS in program.module.operation.attributes,
        pure=not (around.host_callbacks and operations_where(program.module, acts)),
    )


def program_of(handle: ModuleHandle) -> Any:
    """Return the program of a handle, its rules included."""
    return origin_of(handle).program


def _flat(program: R, hidden: tuple[Any, ...]) -> R:
    """Return the program with its constants as arguments, and without what it has cached."""
    operands = tuple(map(prng_keys.physical_type, (*hidden, *program.in_avals)))
    results = tuple(map(prng_keys.physical_type, program.out_avals))
    names = (*(f"constant {i}" for i in range(len(hidden))), *program.arg_paths)

    def interface(module: ir.Module) -> Interface:
        in_tree = jax.tree.structure((tuple(range(len(operands))), {}))
        out_tree = jax.tree.structure(tuple(range(len(results))))
        of_here = Interface(in_tree, out_tree, operands, results, names)
        return with_result_types(of_here, result_types(module))

    changes: dict[str, Any] = {"interface": interface, "constants": (), "_shares_values": False}
    return dataclasses.replace(program, **changes)


def origin_of(handle: ModuleHandle) -> Origin:
    """Return the origin of a handle; make one for a handle that comes from the runtime."""
    if isinstance(handle.key, Origin):
        return handle.key
    return _adopted(handle)


_ORIGINS: weakref.WeakValueDictionary[Any, Origin] = weakref.WeakValueDictionary()


def _adopted(handle: ModuleHandle) -> Origin:
    """Return the origin of a handle that the runtime made of a module without a program.

    It lives as long as the handles of the module, which hold it.
    """
    origin = _ORIGINS.get(handle.key)
    if origin is None:
        origin = _ORIGINS[handle.key] = Origin(lambda: program_of(_read(handle).handle))
    vars(handle)["origin"] = origin
    return origin


def _read(handle: ModuleHandle) -> Any:
    """Read the program of a handle's module: its entry, and the callbacks that it numbers."""
    content = handle.load() if handle.source is None else handle.source
    program = hooks.files().of_module(_module.parse(content, _jax.context()), handle.entry)
    environment = dataclasses.replace(
        program.environment,
        host_callbacks=handle.host_callbacks,
        keepalives=handle.keepalives,
    )
    lowered = dataclasses.replace(program._lowered, environment=environment)
    return dataclasses.replace(program, _lowered=lowered)
