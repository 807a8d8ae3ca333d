"""Trace functions: tracers, abstract arguments, settings, and jaxprs as functions to trace."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from jax._src import (
    config as _config,
    core as _core,
    linear_util as _linear_util,
    source_info_util as _source_info,
    util as _util,
)
from jax._src.interpreters import partial_eval as _pe
from jax._src.traceback_util import api_boundary as api_boundary
from jax.extend import core as _extend_core
from jax.extend.source_info_util import SourceInfo
from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)

from pullback._jax import jaxprs, reflect
from pullback.errors import LeakedValueError


def is_tracer(value: object) -> bool:
    """Return True if a value is a tracer, of a live trace or one that has ended."""
    return isinstance(value, jax.core.Tracer)


def is_variable(value: object) -> bool:
    """Return True if a value is a variable of a jaxpr, or a tracer."""
    return isinstance(value, (_extend_core.Var, jax.core.Tracer))


def is_dead_tracer(value: object) -> bool:
    """Return True if a value is a tracer while no trace is live: its trace has ended."""
    return isinstance(value, jax.core.Tracer) and _core.trace_ctx.trace is _core.eval_trace


def is_going_on(tracer: Any) -> bool:
    """Return True if the trace of a tracer is still live."""
    return tracer._trace in _core.unsafe_get_trace_stack(_core.trace_ctx.trace)


def name_of(tracer: Any) -> Any:
    """Return what identifies a tracer: its variable in a jaxpr if it has one, else its id."""
    variable = getattr(tracer, "val", None)
    return variable if isinstance(variable, _extend_core.Var) else id(tracer)


def lifted_tracers(traced: Any) -> list[Any]:
    """Return the tracers of live outer traces that a traced function closes over.

    They are leading arguments of its jaxpr. For a tracer of a trace that has ended, raise JAX's
    error, which JAX itself raises only at a call.
    """
    for value in traced._consts:
        if is_tracer(value) and not is_going_on(value):
            raise _core.escaped_tracer_error(value)
    return list(traced._consts)


def in_tree_of(traced: Any) -> Any:
    """Return the tree structure of a trace's arguments.

    JAX's public attribute for it rebuilds the arguments, from placeholders that are not arrays.
    """
    return traced._in_tree


def structs(avals: Iterable[Any]) -> list[jax.ShapeDtypeStruct]:
    """Return abstract arguments of these types, for tracing."""
    return [_struct(aval) for aval in avals]


def placed(
    traced: Any, arguments: Sequence[Any], results: Sequence[Any]
) -> tuple[tuple[jax.ShapeDtypeStruct, ...], tuple[jax.ShapeDtypeStruct, ...]]:
    """Return the types of a trace's arguments and results, with the shardings JAX compiles for.

    A committed argument keeps its sharding. The types of the others name only an abstract mesh; it
    is replaced by the mesh of a committed argument, or the one that `jax.set_mesh` has set.
    """
    types = traced._meta_tys_flat  # first those of what is lifted
    given = [_committed(type) for type in types[len(types) - len(arguments) :]]
    named = [each.mesh for each in given if isinstance(each, NamedSharding)]
    meshes = [each for each in (traced._params["ctx_mesh"], *named) if isinstance(each, Mesh)]
    by_axes = {each.abstract_mesh: each for each in meshes if not each.empty}
    ins = (_placed(*each, by_axes) for each in zip(arguments, given, strict=True))
    return tuple(ins), tuple(_placed(each, None, by_axes) for each in results)


def _committed(type: Any) -> Sharding | None:
    """Return the sharding of an argument that is committed to devices or abstract; else None."""
    return type.sharding if type.committed and isinstance(type.sharding, Sharding) else None


def _placed(aval: Any, given: Sharding | None, by_axes: dict[Any, Mesh]) -> jax.ShapeDtypeStruct:
    struct = _struct(aval)
    sharding = given or struct.sharding
    if given is None and sharding and set(sharding.mesh.axis_types) <= {AxisType.Auto}:
        sharding = None  # a type does not say how its values lie along such axes
    if isinstance(sharding, NamedSharding) and sharding.mesh in by_axes:
        sharding = sharding.update(mesh=by_axes[sharding.mesh])
    return struct.update(sharding=sharding)


def device_of(types: Iterable[Any]) -> jax.Device | None:
    """Return a device that values of these types are committed to, or None."""
    bound = filter(None, map(_with_devices, types))
    return next((device for each in bound for device in each.device_set), None)


def _with_devices(type: Any) -> Sharding | None:
    """Return the sharding of a type if it names devices, and not an abstract mesh; else None."""
    sharding = getattr(type, "sharding", None)
    return None if isinstance(getattr(sharding, "mesh", None), AbstractMesh) else sharding


def sharding_of(aval: Any) -> Any:
    """Return the sharding in a type, if it is over explicit axes of a mesh; else None."""
    sharding = getattr(aval, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.axis_names:
        return None
    kinds, spec = sharding.mesh.axis_types, sharding.spec
    is_typed = AxisType.Explicit in kinds and AxisType.Manual not in kinds
    return sharding if is_typed and not (spec.unreduced or spec.reduced) else None


def lying_as(likes: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Let values lie on an explicit mesh as others do."""
    shardings = (sharding_of(jax.typeof(like)) for like in likes)
    return [x if s is None else jax.reshard(x, s) for x, s in zip(values, shardings, strict=True)]


def batch_type(aval: Any, axis: int | None, size: int) -> jax.ShapeDtypeStruct:
    """Return the type of a batch of arguments or results, on the devices of its items."""
    if axis is None:
        return aval
    shape = (*aval.shape[:axis], size, *aval.shape[axis:])
    weak_type, sharding = getattr(aval, "weak_type", False), _of_batch(aval, axis)
    return jax.ShapeDtypeStruct(shape, aval.dtype, weak_type=weak_type, sharding=sharding)


def _of_batch(aval: Any, axis: int) -> Sharding | None:
    """Return the sharding of a batch of items that are committed to devices; None if unknown."""
    sharding = _with_devices(aval)
    if not isinstance(sharding, NamedSharding):
        return sharding if isinstance(sharding, SingleDeviceSharding) else None
    spec = sharding.spec
    if spec.unreduced or spec.reduced:
        return None
    parts = [*spec, *[None] * (aval.ndim - len(spec))]
    return sharding.update(spec=PartitionSpec(*parts[:axis], None, *parts[axis:]))


def batch_type_along(aval: Any, axis: int | None, size: int, name: Any) -> jax.ShapeDtypeStruct:
    """Return the type of a batch sharded along a mesh axis; items stay sharded as they are."""
    sharding = sharding_of(aval)
    batch = batch_type(aval, axis, size)
    if axis is None or sharding is None:
        return batch
    spec = PartitionSpec(*sharding.spec[:axis], name, *sharding.spec[axis:])
    return batch.update(sharding=NamedSharding(sharding.mesh, spec))


def cotangents(avals: Iterable[Any]) -> list[jax.ShapeDtypeStruct]:
    """Return abstract cotangents for values of these types, for tracing.

    The cotangent of a sum over devices that is not done yet (`unreduced`) has the type of the sum.
    """
    return structs(aval.to_ct_aval() for aval in avals)


def _struct(aval: Any) -> jax.ShapeDtypeStruct:
    weak_type = getattr(aval, "weak_type", False)
    if not getattr(aval, "mat", None):
        return jax.ShapeDtypeStruct(
            aval.shape, aval.dtype, weak_type=weak_type, sharding=sharding_of(aval)
        )
    return jax.ShapeDtypeStruct(
        aval.shape,
        aval.dtype,
        weak_type=weak_type,
        sharding=aval.sharding,
        manual_axis_type=aval.mat,
    )


_ELSEWHERE = frozenset(
    {
        "abstract_mesh_context_manager",
        "axis_env_state",
        "check_vma",
        "jax_default_device",
        "mesh_context_manager",
    }
)
"""Parts of JAX's trace context that are not program settings: a caller's, or an equation's."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of JAX that affect tracing; calling them enters them again.

    A setting that was defined later has its global value.

    Attributes:
      values: of each setting.
      of_users: values of the contexts made by `jax.make_user_context`, oldest first. JAX gives
        their values and not the contexts, so they are not entered: it is an error if they differ.
      here: what `_here` returned where these are the settings; there, nothing is entered.
    """

    values: tuple[tuple[Any, Any], ...]
    of_users: tuple[Any, ...]
    here: Any = dataclasses.field(default=None, compare=False)

    def where(self, types: Iterable[Any]) -> Settings:
        """Return the settings to trace values of these types with: with 64 bits if one is so wide.

        A part of a function may run under other settings than the rest. Afterwards only
        `jax_enable_x64` can be told, by the types. What an equation records (`JaxprEqnContext`) is
        entered where the equation is evaluated.
        """
        wide = self._with_64_bits
        return wide if wide is not self and any(map(jaxprs.is_wide, types)) else self

    @functools.cached_property
    def _with_64_bits(self) -> Settings:
        values = dict(self.values)
        allowed = values[_config.explicit_x64_dtypes] == _config.ExplicitX64Mode.ALLOW
        if values[jax.enable_x64] or allowed:
            return self
        wide = tuple((values | {jax.enable_x64: True}).items())
        return dataclasses.replace(self, values=wide, here=None)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        if self.here == _here():
            yield
            return
        here = _of_users()[: len(self.of_users)]
        if here != self.of_users:
            raise _of_another_context(self.of_users, here)
        then = dict(self.values)
        with contextlib.ExitStack() as stack:
            for setting in _settings(_config.trace_context_names()):
                value = then[setting] if setting in then else setting.get_global()
                if setting.value != value:
                    stack.enter_context(_set_to(setting, value))
            yield


def settings() -> Settings:
    """Return the current settings."""
    values = ((each, each.value) for each in _settings(_config.trace_context_names()))
    return Settings(tuple(values), _of_users(), _here())


def _here() -> Any:
    """Return all that settings are read from, and what JAX keys traces by besides."""
    return jax.default_prng_impl.value, _config.trace_context()


def _set_to(setting: Any, value: Any) -> contextlib.AbstractContextManager[None]:
    is_option = isinstance(setting, _config.State)
    return setting(value) if is_option else _config.UserContext(setting, value)


@functools.lru_cache(maxsize=1)
def _settings(names: tuple[str, ...]) -> list[Any]:
    """Return JAX's settings of these names: options, and variables of its module.

    The default PRNG is added: JAX itself does not trace anew when it changes.
    """
    known = {**vars(_config), **_config.config_states}
    chosen = (known[name] for name in names if name in known and name not in _ELSEWHERE)
    return [jax.default_prng_impl, *chosen]


_OF_USERS = "user_context"  # the one name of all that users make


def _of_users() -> tuple[Any, ...]:
    """Return the current values of the contexts made by `jax.make_user_context`."""
    pairs = zip(_config.trace_context_names(), _config.trace_context(), strict=True)
    return tuple(value for name, value in pairs if name == _OF_USERS)


def _of_another_context(then: tuple[Any, ...], here: tuple[Any, ...]) -> LeakedValueError:
    changed = [(a, b) for a, b in zip(then, here, strict=True) if a != b]
    was, now = (", ".join(map(repr, each)) for each in zip(*changed, strict=True))
    return LeakedValueError(
        f"this program was traced where a context made by jax.make_user_context was {was}, which "
        f"its rules and batches may read, but here it is {now}",
        do="differentiate, map or save the program where the context has that value, or trace the "
        "program again here",
    )


@_util.cache()
def known() -> dict[Any, Any]:
    """Return the cache of traces that any program may use.

    There is one for each of JAX's configurations; they are cleared with JAX's own caches.
    """
    return {}


_MOST = 1024  # traces that are kept for other programs


def remember(key: Any, traced: Any) -> None:
    """Put a trace into the cache `known`, which is cleared first if it is full."""
    if len(known()) >= _MOST:
        known().clear()
    known()[key] = traced


def whole_tracebacks() -> contextlib.AbstractContextManager[Any]:
    """Run the body with unfiltered tracebacks: exceptions keep frames that JAX would hide."""
    return _config.traceback_filtering("off")


def apply(closed: Any, operands: Sequence[Any]) -> list[Any]:
    """Evaluate a closed jaxpr in the current trace."""
    return jax.core.eval_jaxpr(jaxprs.opened(closed), closed.consts, *operands)


def traced(function: Callable[..., Any], *arguments: Any) -> Any:
    """Trace a function of ours for pytrees of abstract arguments, and return its closed jaxpr.

    The result is that of `jax.make_jaxpr`, without the overhead of `jax.jit`, which takes longer
    than tracing a small function.
    """
    structs, tree = jax.tree.flatten(arguments)

    def flat(*values: Any) -> list[Any]:
        return jax.tree.leaves(function(*jax.tree.unflatten(tree, values)))

    info = _extend_core.DebugInfo("jit", function.__qualname__, None, None)
    wrapped = _linear_util.wrap_init(flat, debug_info=info)
    jaxpr, _, constants = _pe.trace_to_jaxpr_dynamic(
        wrapped, [*map(_core.shaped_abstractify, structs)]
    )
    return jaxprs.closed_with(jaxpr, constants)


def equations_to_function(closed: Any, own_lines: bool = False) -> Callable[..., list[Any]]:
    """Return a function that evaluates a closed jaxpr, equation by equation.

    Equations traced by it have the source line of the equation evaluated, or with `own_lines` the
    line of the Python code that runs: that of a user's rule.
    """
    if not own_lines:
        return _extend_core.jaxpr_as_fun(closed)
    jaxpr = jaxprs.opened(closed)
    jaxpr = jaxprs.replaced(jaxpr, eqns=list(map(_with_own_lines, jaxpr.eqns)))
    return functools.partial(jax.core.eval_jaxpr, jaxpr, closed.consts, propagate_source_info=False)


def _with_own_lines(equation: Any) -> Any:
    """Let the backward rule of a call be traced with its own source lines, not that of the call."""
    if "bwd" not in equation.params:
        return equation
    bwd = equation.params["bwd"]
    wrapped = reflect.is_wrapped_function(bwd)
    run = bwd.call_wrapped if wrapped else bwd

    def with_own_lines(*args: Any) -> Any:
        with _no_line():
            return run(*args)

    if wrapped:
        rule = _linear_util.wrap_init(with_own_lines, debug_info=bwd.debug_info)
    else:
        rule = functools.wraps(bwd)(with_own_lines)
    return equation.replace(params={**equation.params, "bwd": rule})


@contextlib.contextmanager
def _no_line() -> Iterator[None]:
    """Run the body without a source line set: equations get that of the Python code that runs."""
    here = _source_info._source_info_context
    outer, here.context = here.context, SourceInfo(None, here.context.name_stack)
    try:
        yield
    finally:
        here.context = outer
