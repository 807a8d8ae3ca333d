"""`jax.shard_map` and the collectives in it, by the names of the axes of a mesh."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec, get_abstract_mesh

from pullback._jax import ir, sdy, stablehlo
from pullback.as_jax.table import Array, OpInJax, evaluates
from pullback.ir.regions import MANUAL
from pullback.rules.body_patterns import body_name

Axes = str | tuple[str, ...]
"""Axes of a mesh as the functions of `jax.lax` take them."""

_HOW = {"replica_groups", "source_target_pairs", "channel_handle", "use_global_device_ids"}
"""Attributes of collectives that say which devices take part."""


@evaluates(MANUAL)
def _manual_computation(op: OpInJax, *operands: Array) -> list[Array]:
    """Run the region on every device of a mesh, of which JAX must have as many."""
    shardings = [
        [sdy.TensorShardingAttr(a) for a in sdy.TensorShardingPerValueAttr(each).shardings]
        for each in (op.attributes["in_shardings"], op.attributes["out_shardings"])
    ]
    manual = frozenset(sdy.ManualAxesAttr(op.attributes["manual_axes"]))
    first = next(itertools.chain(*shardings), None)
    if first is None:
        raise op.refusal("without operands and results")
    in_specs, out_specs = ([_spec(op, s, manual) for s in each] for each in shardings)
    mapped = jax.shard_map(
        lambda *parts: tuple(op.regions[0](*parts)),
        mesh=_mesh(op, first.mesh_or_ref),
        in_specs=tuple(in_specs),
        out_specs=tuple(out_specs),
        axis_names=manual,
        check_vma=False,
    )
    return list(mapped(*operands))


def _mesh(op: OpInJax, reference: Any) -> Mesh | AbstractMesh:
    """Return the mesh of a sharding, which is written out or named.

    It is that of `jax.set_mesh`, if there is one, else one of JAX's first devices.
    """
    if not sdy.MeshAttr.isinstance(reference):
        reference = _named(op, ir.FlatSymbolRefAttr(reference).value)
    mesh = sdy.MeshAttr(reference)
    axes = [sdy.MeshAxisAttr(a) for a in mesh.axes]
    sizes = tuple(a.size for a in axes)
    count, devices = math.prod(sizes), jax.devices()
    if list(mesh.device_ids) not in ([], list(range(count))):
        raise op.refusal(f"on devices in an order of their own, {list(mesh.device_ids)}")
    if count > len(devices):
        raise op.refusal(f"on {count} devices: there are {len(devices)} here")
    names, around = tuple(a.name for a in axes), get_abstract_mesh()
    if around.empty:
        return Mesh(np.reshape(devices[:count], sizes), names, (AxisType.Auto,) * len(names))
    if (around.axis_names, around.axis_sizes) != (names, sizes):
        raise op.refusal(f"on axes {dict(zip(names, sizes))} inside of jax.set_mesh with others")
    if set(around.axis_types) != {AxisType.Auto}:
        raise op.refusal("inside of jax.set_mesh with axes that are not of the type Auto")
    return around


def _named(op: OpInJax, name: str) -> Any:
    root = op.operation
    while root.parent is not None:
        root = root.parent
    for each in root.regions[0].blocks[0].operations:
        if each.operation.name == "sdy.mesh" and each.attributes["sym_name"].value == name:
            return each.attributes["mesh"]
    raise op.refusal(f"on @{name}, which is no mesh of the module")


def _spec(op: OpInJax, sharding: Any, manual: frozenset[str]) -> PartitionSpec:
    """Return along which manual axes each dimension of a value is divided."""
    if list(sharding.unreduced_axes):
        raise op.refusal("with a sum over devices that is not yet done")
    dims = [sdy.DimensionShardingAttr(d) for d in sharding.dimension_shardings]
    return PartitionSpec(*(_names(op, d.axes, manual) for d in dims))


def _names(op: OpInJax, axes: Any, manual: frozenset[str]) -> tuple[str, ...] | None:
    found = [sdy.AxisRefAttr(a) for a in axes]
    if any(a.sub_axis_info is not None for a in found):
        raise op.refusal("which splits an axis of its mesh")
    return tuple(a.name for a in found if a.name in manual) or None


# ------------------------------------------------------------------------------- collectives


def _groups() -> Iterator[tuple[Axes, list[list[int]]]]:
    """Yield sets of the manual axes, the smallest first, with the devices that differ by them."""
    mesh = get_abstract_mesh()
    names, sizes = mesh.axis_names, mesh.axis_sizes
    manual = [i for i, name in enumerate(names) if name in mesh.manual_axes]
    for count in range(1, len(manual) + 1):
        for chosen in itertools.permutations(manual, count):
            axes = tuple(names[i] for i in chosen)
            yield axes[0] if count == 1 else axes, _that_differ_by(chosen, sizes)


def _that_differ_by(chosen: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Return the groups of devices of a mesh of these sizes that differ by some of its axes."""
    devices = np.arange(math.prod(sizes)).reshape(sizes)
    moved = np.moveaxis(devices, chosen, range(-len(chosen), 0))
    found: list[list[int]] = moved.reshape(-1, math.prod(sizes[i] for i in chosen)).tolist()
    return found


def _groups_of(op: OpInJax) -> list[list[int]]:
    """Return the groups of devices of a collective: listed, or told by axes, as JAX 0.12 does."""
    op.attributes.names.update(_HOW)
    given = op.attributes["replica_groups"]
    if isinstance(given, ir.DenseIntElementsAttr):
        return [[int(device) for device in group] for group in np.asarray(given)]
    by_axes = stablehlo.ReplicaGroupMeshAxesAttr(given)
    mesh = stablehlo.MeshAttr(by_axes.mesh)
    axes = [stablehlo.MeshAxisAttr(a) for a in mesh.axes]
    refs = [stablehlo.AxisRefAttr(a) for a in by_axes.axes]
    if mesh.device_ids or any(ref.sub_axis_info is not None for ref in refs):
        raise op.refusal(f"between the devices {given}")
    names = [a.name for a in axes]
    return _that_differ_by([names.index(ref.name) for ref in refs], [a.size for a in axes])


def _joined(op: OpInJax, function: Callable[..., Array], operands: Sequence[Array]) -> list[Array]:
    """Apply a collective of JAX along the axes of the mesh, or groups of parts of one.

    Between one device and itself nothing happens: JAX lowers a mesh of one device to no mesh.
    """
    given = _groups_of(op)
    if all(len(group) == 1 for group in given):
        return list(operands)
    along = _along(op, given)
    return [function(x, **along) for x in operands]


def _along(op: OpInJax, given: list[list[int]]) -> dict[str, Any]:
    known = list(_groups())
    for axes, groups in known:
        if sorted(groups) == sorted(given):
            return {"axis_name": axes}
    if len(known) == 1 and len(known[0][1]) == 1:
        return {"axis_name": known[0][0], "axis_index_groups": given}
    raise op.refusal(f"between the devices {given}, which no axes of a shard_map around it join")


@evaluates("stablehlo.all_reduce")
def _all_reduce(op: OpInJax, *operands: Array) -> list[Array]:
    known = {"add": lax.psum, "maximum": lax.pmax, "minimum": lax.pmin}
    reduce = known.get(body_name(op.operation.regions[0]).removeprefix("stablehlo."))
    if reduce is None or any(x.dtype == bool for x in operands):
        raise op.refusal("with a body other than a sum, maximum or minimum of numbers")
    return _joined(op, reduce, operands)


@evaluates("stablehlo.all_gather")
def _all_gather(op: OpInJax, *operands: Array) -> list[Array]:
    dim = op.number("all_gather_dim")
    return _joined(op, functools.partial(lax.all_gather, axis=dim, tiled=True), operands)


@evaluates("stablehlo.reduce_scatter")
def _reduce_scatter(op: OpInJax, x: Array) -> list[Array]:
    if body_name(op.operation.regions[0]) != "stablehlo.add" or x.dtype == bool:
        raise op.refusal("with a body other than a sum of numbers")
    dim = op.number("scatter_dimension")
    scatter = functools.partial(lax.psum_scatter, scatter_dimension=dim, tiled=True)
    return _joined(op, scatter, [x])


@evaluates("stablehlo.all_to_all")
def _all_to_all(op: OpInJax, *operands: Array) -> list[Array]:
    op.attributes.names.add("split_count")
    split, concat = op.number("split_dimension"), op.number("concat_dimension")
    exchange = functools.partial(lax.all_to_all, split_axis=split, concat_axis=concat, tiled=True)
    return _joined(op, exchange, operands)


@evaluates("stablehlo.collective_permute")
def _collective_permute(op: OpInJax, x: Array) -> Array:
    """Send along the fewest axes for which all groups of devices do the same."""
    op.attributes.names.update(_HOW)
    pairs = np.asarray(ir.DenseIntElementsAttr(op.attributes["source_target_pairs"])).tolist()
    for axes, groups in _groups():
        sent = {_within(group, pairs) for group in groups}
        if len(sent) == 1 and sum(map(len, sent)) * len(groups) == len(pairs):
            return lax.ppermute(x, axes, *sent)
    raise op.refusal(f"between the devices {pairs}, which no axes of a shard_map around it join")


def _within(group: list[int], pairs: list[list[int]]) -> tuple[tuple[int, int], ...]:
    """Return the pairs inside of a group of devices, by positions in the group."""
    inside = [pair for pair in pairs if set(pair) <= set(group)]
    return tuple(sorted((group.index(a), group.index(b)) for a, b in inside))


@evaluates("stablehlo.partition_id")
def _partition_id(op: OpInJax) -> Array:
    """Return the position of the device in the mesh."""
    mesh = get_abstract_mesh()
    if not mesh.axis_names or set(mesh.axis_names) != set(mesh.manual_axes):
        raise op.refusal("outside of a shard_map over all axes of its mesh")
    return lax.convert_element_type(lax.axis_index(mesh.axis_names), op.dtype)
