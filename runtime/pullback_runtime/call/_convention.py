"""Map a caller's pytrees to a module's flat arguments, and results back, at no cost per call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from pullback_runtime._lazy_values import Recent
from pullback_runtime.call import _avals
from pullback_runtime.call._backend import put_to_keep
from pullback_runtime.call._handle import ModuleHandle
from pullback_runtime.call._meshes import on_devices_of, on_mesh_here
from pullback_runtime.call._primitive import call_module

CACHE_SIZE = 256
"""Executables kept by each convention, and in all for modules without one."""


@dataclass(frozen=True, eq=False)
class Convention:
    """How a call `executable(*args, **kwargs)` maps to a call of the module's `@main`.

    `flatten` and `unflatten` are traced together with the module, once per signature; so they
    cost a call nothing, may use JAX, and may raise for arguments that do not fit.

    Attributes:
      example: `(args, kwargs)` with a `jax.ShapeDtypeStruct` or an array for each leaf.
      flatten: from `args` and `kwargs` to the module's arguments, without the constants.
      unflatten: from the module's results to what the call returns.
      constants: leading arguments of the module that the caller does not see.
      executables: what has been compiled under it, which goes when it goes.
    """

    example: tuple[tuple[Any, ...], dict[str, Any]]
    flatten: Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]]
    unflatten: Callable[[Sequence[jax.Array]], Any]
    constants: tuple[Any, ...] = ()
    executables: Recent = field(default_factory=lambda: Recent(CACHE_SIZE), init=False, repr=False)


class Callee:
    """A module as one jitted function, under a calling convention or of flat arguments.

    With a mesh, it runs on the mesh's devices, wherever its arguments are.
    """

    def __init__(
        self,
        handle: ModuleHandle,
        donated: Sequence[int],
        convention: Convention | None,
        mesh: Mesh | None = None,
    ) -> None:
        self.handle = handle
        self._mesh = mesh
        # Copies of NumPy's arrays: on a CPU, JAX would share memory that its owner may write to.
        constants = () if convention is None else convention.constants
        self._constants = tuple(x.copy() if isinstance(x, np.ndarray) else x for x in constants)
        self._example = (handle.in_avals, {}) if convention is None else convention.example
        self._function = _function(handle, convention, mesh)
        self._function.__name__ = self._function.__qualname__ = handle.entry
        shift = 1 if self._constants else 0
        self._jit = functools.partial(jax.jit, donate_argnums=tuple(i + shift for i in donated))
        self._jitted = self._jit(self._function)

    def compile_ahead(self, device: jax.Device | None) -> Any:
        """Compile for the example's types, so that calls with these types need not compile."""
        args, kwargs = self._example
        leading = (self._constants,) if self._constants else ()
        if device is not None and self._mesh is None:
            leading, args, kwargs = _placed((leading, args, kwargs), device)
        with on_mesh_here(self._function, ((*leading, *args), kwargs)) as (function, types):
            args, kwargs = types
            return self._jit(function).lower(*args, **kwargs).compile()

    def callable(self, device: jax.Device | None) -> Callable[..., Any]:
        """Return the function to call; it moves arrays to `device`, unless that is None."""
        device = None if self._mesh is not None else device
        constants = put_to_keep(self._constants, device)
        call = functools.partial(self._jitted, constants) if constants else self._jitted
        return placing(call, device)


def placing(call: Callable[..., Any], device: jax.Device | None) -> Callable[..., Any]:
    """Wrap a function so that its arguments are moved to `device` first, unless that is None."""
    if device is None or (device == jax.devices()[0] and len(jax.devices()) == 1):
        return call

    def place_and_call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = jax.device_put((args, kwargs), device)
        return call(*args, **kwargs)

    return place_and_call


def _function(
    handle: ModuleHandle, convention: Convention | None, mesh: Mesh | None
) -> Callable[..., Any]:
    def call(*operands: Any) -> list[jax.Array]:
        return call_module(handle, *on_devices_of(mesh, operands))

    if convention is None:
        return lambda *args: tuple(call(*args))
    flatten, unflatten = convention.flatten, convention.unflatten
    if not convention.constants:
        return lambda *args, **kwargs: unflatten(call(*flatten(args, kwargs)))

    def with_constants(constants: Any, /, *args: Any, **kwargs: Any) -> Any:
        return unflatten(call(*map(_avals.physical, constants), *flatten(args, kwargs)))

    return with_constants


def _placed(tree: Any, device: jax.Device) -> Any:
    """Return the types of a tree's leaves, placed on this device."""
    sharding = jax.sharding.SingleDeviceSharding(device)

    def place(leaf: Any) -> jax.ShapeDtypeStruct:
        aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)

    return jax.tree.map(place, tree)
