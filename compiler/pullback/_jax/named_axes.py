"""Named axes: those of a mesh in the body of a `shard_map`, and those that a vmap maps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax._src import config as _config, core as _core, sharding_impls as _sharding_impls
from jax._src.interpreters import batching as _batching
from jax._src.lax import parallel as _parallel

from pullback._jax.reflect import has_name, held_by_jax, is_wrapped_function
from pullback._jax.user_rules import RuleOfOperands


@contextlib.contextmanager
def tracing_context_of(closed: Any, checked: bool = False) -> Iterator[None]:
    """The mesh and the axis names that a jaxpr's equations were traced under, as in shard_map.

    With `checked`, or where a type says so, JAX keeps track of which values differ by device. The
    rules of a call run when the vmaps around it are over, and may name the axes that these map.
    """
    context = _manual_context(closed)
    if context is None:
        batched = _batched_axes(closed.eqns[0].params) if len(closed.eqns) == 1 else {}
        with _core.extend_axis_env_nd(list(batched.items())):
            yield
        return
    mesh = context.cur_abstract_mesh
    names = [(name, mesh.shape[name]) for name in mesh.manual_axes]
    checked |= any(getattr(aval, "mat", None) and aval.mat.varying for aval in closed.in_avals)
    with (
        context.manager,
        _core.extend_axis_env_nd(names),
        _config._check_vma(checked),
    ):
        yield


def _batched_axes(params: dict[str, Any]) -> dict[Any, int]:
    """The named axes of the batches that JAX has made of the rules among some parameters."""
    found: dict[Any, int] = {}
    seen: set[int] = set()
    unseen = [value for value in params.values() if is_wrapped_function(value)]
    for value in unseen:  # it grows
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _batching.AxisData):
            found.update({value.name: value.size} if has_name(value) else {})
        elif is_wrapped_function(value):
            unseen.append(value.f)
            unseen += (given for _, arguments in value.transforms for given in arguments)
        elif isinstance(value, RuleOfOperands):
            unseen.append(value.rule)
        else:
            unseen += held_by_jax(value)
    return found


def axis_context(closed: Any) -> Any:
    """What JAX lowers a jaxpr under: the mesh whose axes it names, or no mesh.

    Kernels that are partitioned, such as cuDNN's attention, ask which device there is.
    """
    context = _manual_context(closed)
    if context is None:
        return _sharding_impls.ShardingContext(1, (jax.devices()[0],))
    mesh = context.cur_abstract_mesh
    return _sharding_impls.SPMDAxisContext(mesh, frozenset(mesh.manual_axes))


def _manual_context(closed: Any) -> Any:
    """What the equations of the body of a shard_map are traced in, or None.

    Zeros for what does not move are made outside of it, so not each equation tells.
    """
    contexts = (equation.ctx for equation in closed.eqns)
    return next((each for each in contexts if each.cur_abstract_mesh.manual_axes), None)


def checked_axes(equation: Any) -> tuple[str, ...]:
    """The manual axes of a `shard_map` in whose body JAX knows which values differ by device."""
    params = equation.params
    return tuple(sorted(params["newly_manual_axes"])) if params["check_vma"] else ()


def axes_checked_here() -> tuple[str, ...]:
    """The manual axes of the checked `shard_map` in whose body this runs."""
    if not _config._check_vma.value:
        return ()
    return tuple(sorted(jax.sharding.get_abstract_mesh().manual_axes))


def equal_along(aval: Any, axes: Sequence[str]) -> tuple[str, ...]:
    """The axes along which a value, and its cotangent, is the same on all devices.

    Of a value that is a sum of what devices have (`unreduced`), or has a cotangent that is
    (`reduced`), each device has a term.
    """
    kinds = getattr(aval, "mat", None)
    other = {*kinds.varying, *of_terms(aval)} if kinds else ()
    return tuple(axis for axis in axes if axis not in other)


def of_terms(aval: Any) -> tuple[str, ...]:
    """The axes along which each device has a term of a value, or of its cotangent."""
    kinds = getattr(aval, "mat", None)
    return tuple(sorted({*kinds.reduced, *kinds.unreduced})) if kinds else ()


def axes_of_vmaps(equation: Any) -> list[str]:
    """The axes an equation works along that are no axes of a mesh."""
    axes = axes_of(equation)
    if equation.primitive is _parallel.ppermute_p:  # has no effect
        axes |= set(equation.params["axis_name"])
    return sorted(map(str, axes - set(equation.ctx.cur_abstract_mesh.manual_axes)))


def axes_of(equation: Any) -> set[Any]:
    """The axes an equation works along, or one in its bodies."""
    return {each.name for each in equation.effects if isinstance(each, _core.NamedAxisEffect)}


def has_names_here() -> bool:
    """Return True if an axis has a name here: of a vmap that is going on, or of a mesh."""
    return bool(_core.get_axis_env().axis_names()) or not jax.sharding.get_abstract_mesh().empty


def is_axis_of_vmap(name: Any) -> bool:
    """Whether a vmap is going on that maps an axis of this name."""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return bool(_core.get_axis_env().axis_exists(name)) and name not in manual
