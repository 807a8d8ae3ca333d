"""Named axes: those of a mesh in the body of a `shard_map`, and those that a vmap maps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import config as _config, core as _core, sharding_impls as _sharding_impls
from jax._src.interpreters import batching as _batching

from pullback._jax.reflect import has_name, is_wrapped_function, variable
from pullback._jax.user_rules import RuleOfOperands, in_layer


@contextlib.contextmanager
def tracing_context_of(closed: Any, checked: bool = False) -> Iterator[None]:
    """Enter the mesh and the axis names that a jaxpr's equations were traced under.

    With `checked`, or where a type says so, JAX tracks which values of a `shard_map` vary by
    device. For a call with custom rules, the axes of the vmaps around it are named again: its rules
    run later, and may name them.
    """
    context = _manual_context(closed)
    if context is None:
        batched = _batched_axes(closed.eqns[0].params) if len(closed.eqns) == 1 else {}
        with _core.extend_axis_env_nd(list(batched.items())):
            yield
        return
    mesh = context.cur_abstract_mesh
    names = [(name, mesh.shape[name]) for name in mesh.manual_axes]
    checked |= varies(closed)
    with (
        context.manager,
        _core.extend_axis_env_nd(names),
        _config._check_vma(checked),
    ):
        yield


def varies(closed: Any) -> bool:
    """Return True if an operand's type says that it varies over the devices of a `shard_map`."""
    return any(getattr(aval, "mat", None) and aval.mat.varying for aval in closed.in_avals)


def mesh_unset_in_bodies(closed: Any) -> contextlib.AbstractContextManager[Any]:
    """Leave the mesh of `jax.set_mesh` if a jaxpr is of the body of a `shard_map`."""
    if _manual_context(closed) is None:
        return contextlib.nullcontext()
    return jax.set_mesh(jax.sharding.Mesh(np.empty((), object), ()))


def _batched_axes(params: dict[str, Any]) -> dict[Any, int]:
    """Return names and sizes of the vmapped axes found in the rules among some parameters."""
    found: dict[Any, int] = {}
    unseen = [value for value in params.values() if is_wrapped_function(value)]
    for value in unseen:  # it grows
        if isinstance(value, _batching.AxisData):
            found.update({value.name: value.size} if has_name(value) else {})
        elif is_wrapped_function(value):
            unseen.append(value.f)
            unseen += (given for _, arguments in value.transforms for given in arguments)
        elif isinstance(value, RuleOfOperands):
            unseen.append(value.rule)
        else:
            held = in_layer(value), variable(value, "axis_data")
            unseen += [each for each in held if each is not None]
    return found


def axis_context(closed: Any) -> Any:
    """Return the axis context to lower a jaxpr in: the mesh whose axes it names, or one device.

    Partitioned kernels, such as cuDNN's attention, query which device that is.
    """
    context = _manual_context(closed)
    if context is None:
        return _sharding_impls.ShardingContext(1, (jax.devices()[0],))
    mesh = context.cur_abstract_mesh
    return _sharding_impls.SPMDAxisContext(mesh, frozenset(mesh.manual_axes))


def _manual_context(closed: Any) -> Any:
    """Return the context that a `shard_map`'s body was traced in; None for other jaxprs.

    Zeros are instantiated outside of the `shard_map`, so not every equation has that context.
    """
    contexts = (equation.ctx for equation in closed.eqns)
    return next((each for each in contexts if each.cur_abstract_mesh.manual_axes), None)


def checked_axes(equation: Any) -> tuple[str, ...]:
    """Return the manual axes of a `shard_map` with `check_vma`; none without it."""
    params = equation.params
    return tuple(sorted(params["newly_manual_axes"])) if params["check_vma"] else ()


def axes_checked_here() -> tuple[str, ...]:
    """Return the manual axes of the `shard_map` with `check_vma` in whose body this is traced."""
    if not _config._check_vma.value:
        return ()
    return tuple(sorted(jax.sharding.get_abstract_mesh().manual_axes))


def equal_along(aval: Any, axes: Sequence[str]) -> tuple[str, ...]:
    """Return the axes along which a value and its cotangent are the same on all devices.

    Axes where the value varies are out, and those where it is a sum over devices that is not done
    yet (`unreduced`), or where its cotangent is one (`reduced`).
    """
    kinds = getattr(aval, "mat", None)
    other = {*kinds.varying, *of_terms(aval)} if kinds else ()
    return tuple(axis for axis in axes if axis not in other)


def of_terms(aval: Any) -> tuple[str, ...]:
    """Return the axes along which a value or its cotangent is a sum over devices, not done yet."""
    kinds = getattr(aval, "mat", None)
    return tuple(sorted({*kinds.reduced, *kinds.unreduced})) if kinds else ()


def axes_of_vmaps(equation: Any) -> list[str]:
    """Return the names of the vmapped axes, not axes of a mesh, that an equation works along."""
    axes = axes_of(equation)
    if equation.primitive is jax.lax.ppermute_p:  # has no effect
        axes |= set(equation.params["axis_name"])
    return sorted(map(str, axes - set(equation.ctx.cur_abstract_mesh.manual_axes)))


def axes_of(equation: Any) -> set[Any]:
    """Return the named axes that an equation, or one in its bodies, works along."""
    return {each.name for each in equation.effects if isinstance(each, _core.NamedAxisEffect)}


def has_names_here() -> bool:
    """Return True if there is a named axis here, of an enclosing vmap or of a mesh."""
    return bool(_core.get_axis_env().axis_names()) or not jax.sharding.get_abstract_mesh().empty


def is_axis_of_vmap(name: Any) -> bool:
    """Return True if an enclosing vmap maps an axis of this name."""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return bool(_core.get_axis_env().axis_exists(name)) and name not in manual
