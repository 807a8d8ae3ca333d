"""Programs over several devices: a call must run on the devices of the program's mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def on_devices_of(mesh: Mesh | None, leaves: Sequence[Any]) -> list[Any]:
    """The operands of a traced call, the first one tied to the mesh's devices.

    JAX looks for the devices of a jitted function in the shardings that its jaxpr names, and does
    not see the mesh inside a module. How the operand lies on the devices is left open. Where the
    caller has set a mesh, or is inside `shard_map`, JAX knows the devices already.
    """
    if mesh is None or not leaves or jax.sharding.get_abstract_mesh().axis_names:
        return list(leaves)
    first = jax.numpy.asarray(leaves[0])
    unconstrained = PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * first.ndim)
    sharding = NamedSharding(Mesh(mesh.devices, mesh.axis_names), unconstrained)
    return [jax.lax.with_sharding_constraint(first, sharding), *leaves[1:]]
