"""Programs over several devices: a call must run on the devices of the program's mesh."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from pullback_runtime import _jax
from pullback_runtime._errors import BackendNotFoundError
from pullback_runtime.call import _backend
from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError
from pullback_runtime.ir._erasure import erase, erasing

METADATA = "mesh"
MESH = "sdy.mesh"
CONSTRAINT = "sdy.sharding_constraint"
SHARDY = "sdy."

Axes = tuple[tuple[str, int], ...]


def on_devices_of(mesh: Mesh | None, leaves: Sequence[Any]) -> list[Any]:
    """Constrain the first operand of a traced call to the mesh's devices.

    JAX looks for the devices of a jitted function in the shardings that its jaxpr names, and does
    not see the mesh inside a module. The constraint leaves the partitioning open. Where the
    caller has set a mesh, or is inside `shard_map`, JAX knows the devices already.
    """
    if mesh is None or not leaves or jax.sharding.get_abstract_mesh().axis_names:
        return list(leaves)
    first = jax.numpy.asarray(leaves[0])
    unconstrained = PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * first.ndim)
    sharding = NamedSharding(Mesh(mesh.devices, mesh.axis_names), unconstrained)
    return [jax.lax.with_sharding_constraint(first, sharding), *leaves[1:]]


@contextlib.contextmanager
def on_mesh_here(function: Callable[..., Any], types: Any) -> Iterator[tuple[Any, Any]]:
    """Give devices to the mesh of arguments that are traced, for a function to be compiled.

    The types of such arguments have the axes of a mesh and not its devices, which are then the
    first ones here; or those of `jax.set_mesh`, which JAX sees. In the body of a `shard_map` they
    are of the part on one device; the function is compiled as the body of one.

    Args:
      types: `(args, kwargs)` of the function.

    Yields the function to compile in the body of the `with`, and its `types`.
    """
    leaves = jax.tree.leaves(types)
    abstract = _jax.mesh_of([jax.typeof(leaf) for leaf in leaves])
    manual = frozenset(abstract.manual_axes)
    given = [getattr(getattr(leaf, "sharding", None), "mesh", None) for leaf in leaves]
    is_known = any(isinstance(m, Mesh) and not m.empty for m in (_jax.get_concrete_mesh(), *given))
    if abstract.empty or (is_known and not manual):
        yield function, types
        return
    kinds = [AxisType.Auto if t == AxisType.Manual else t for t in abstract.axis_types]
    mesh = here(tuple(abstract.shape.items()), None, tuple(kinds))

    def placed(leaf: Any) -> jax.ShapeDtypeStruct:
        aval = jax.typeof(leaf)
        sharding = NamedSharding(mesh, aval.sharding.spec)
        return jax.ShapeDtypeStruct(
            aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding
        )

    def in_a_body(*args: Any, **kwargs: Any) -> Any:
        body = jax.shard_map(
            lambda args, kwargs: function(*args, **kwargs),
            mesh=mesh,
            in_specs=PartitionSpec(),
            out_specs=PartitionSpec(),
            axis_names=manual,
            check_vma=False,
        )
        return body(args, kwargs)

    with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
        yield in_a_body if manual else function, jax.tree.map(placed, types)


def axes_of_mesh(mesh: Mesh | None) -> Axes:
    """Return names and sizes of a mesh's axes, which a file has in place of the devices."""
    return () if mesh is None else tuple(mesh.shape.items())


def axes_of(metadata: dict[str, Any], module: Any) -> Axes:
    """Return the axes of the mesh that a file was written for; none for one device.

    A module that pullback did not write has no metadata: its own largest mesh counts.
    """
    if not metadata:
        return max(map(_jax.mesh_axes, _meshes_in(module)), key=size, default=())
    try:
        axes = tuple((name, size) for name, size in metadata.get(METADATA, ()))
    except (TypeError, ValueError):
        axes = (("", 0),)
    if all(isinstance(name, str) and type(size) is int and size > 0 for name, size in axes):
        return axes
    raise ArtifactError("the file's metadata are damaged: mesh", do=SAVE_AGAIN)


def _meshes_in(module: Any) -> list[Any]:
    """Return the `sdy.mesh` ops of a module; those inlined in shardings only if there are none."""
    named = _named_meshes(module)
    if named or not shardings(module):
        return named
    lifted = module.operation.clone()
    _jax.run_passes(lifted, "builtin.module(sdy-lift-inlined-meshes)")
    return _named_meshes(lifted)


def _named_meshes(module: Any) -> list[Any]:
    return [op for op in module.body.operations if op.operation.name == MESH]


def shardings(module: Any) -> list[Any]:
    """Return the ops of Shardy, which say how values are partitioned over devices."""
    return _jax.operations_where(module, lambda op: op.name.startswith(SHARDY))


def drop_without_axes(module: Any) -> None:
    """Erase ops of Shardy if no mesh has axes, as `jax.export` writes for PRNG keys."""
    if any(map(_jax.mesh_axes, _named_meshes(module))):
        return
    with erasing():
        for op in shardings(module):
            if op.name == CONSTRAINT:
                op.results[0].replace_all_uses_with(op.operands[0])
            if op.name in (CONSTRAINT, MESH):
                erase(op)


def size(axes: Axes) -> int:
    """Return the number of devices of a mesh with these axes."""
    return math.prod(size for _, size in axes)


def text(axes: Axes) -> str:
    """Format axes for messages, such as `rows: 2, columns: 4`."""
    return ", ".join(f"{name}: {size}" for name, size in axes)


def here(axes: Axes, backend: str | None, types: tuple[AxisType, ...] | None = None) -> Mesh | None:
    """Make a mesh with these axes on the devices present here, as `jax.make_mesh` orders them.

    Without `types`, the axes are of the type Auto.
    """
    if not axes:
        return None
    names, sizes = zip(*axes, strict=True)
    present, wanted = _backend.devices(backend), size(axes)
    if len(present) < wanted:
        raise BackendNotFoundError(
            f"the program runs on a mesh of {wanted} devices ({text(axes)}); "
            f"here are {len(present)}",
            do="run it where there are as many; on a CPU, "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted} makes them",
        )
    types = types or (AxisType.Auto,) * len(names)
    return jax.make_mesh(sizes, names, axis_types=types, devices=present[:wanted])
