"""Devices of hardware that is not here, to compile for ahead of time."""

from __future__ import annotations

import importlib.util

import jax
from jax.experimental import topologies

from pullback_runtime._errors import BackendNotFoundError


def topology_device(name: str) -> jax.Device:
    """Return the first device of a TPU topology such as "v5e:2x2"."""
    if importlib.util.find_spec("libtpu") is None:
        raise BackendNotFoundError(
            f"cannot compile for {name!r}: libtpu is not installed",
            where=f"compile(topology={name!r})",
            do="pip install libtpu (no TPU is needed to compile for one)",
        )
    try:
        return topologies.get_topology_desc(name, platform="tpu").devices[0]
    except Exception as error:  # libtpu reports an unknown name in several ways
        raise BackendNotFoundError(
            f"no TPU topology {name!r}: {error}",
            where=f"compile(topology={name!r})",
            do='name the chip and its grid, such as "v5e:2x2" or "v4:2x2x1"',
        ) from error
