"""Collectives on four virtual devices, in a process of their own."""

from __future__ import annotations

import json

import pytest

from tests.rules.processes import run_python

NAMES = (
    "all_gather",
    "all_reduce",
    "all_reduce_in_groups",
    "all_to_all",
    "async_all_gather",
    "async_all_reduce",
    "collective_broadcast",
    "collective_permute",
    "reduce_scatter",
    "shard_map",
)


@pytest.fixture(scope="module")
def differences() -> dict[str, dict[str, float]]:
    """For each collective, how far each derivative is from the reference's."""
    return json.loads(run_python("-m", "tests.rules.on_four_devices"))


@pytest.mark.whole
@pytest.mark.parametrize("name", NAMES)
def test_collective(name: str, differences: dict[str, dict[str, float]]) -> None:
    """Both modes, second order and batches agree with plain JAX on the array of all devices."""
    checks = differences[name]
    assert len(checks) == {"collective_broadcast": 1, "shard_map": 5}.get(name, 6)
    assert all(difference < 1e-12 for difference in checks.values()), checks
