"""Programs that are traced with arrays on several devices compile for these devices."""

import pytest

from tests.rules.processes import run_python


@pytest.mark.slow
def test_programs_compile_for_the_devices_of_their_arguments():
    cases, _, refusals = run_python("-m", "tests.devices.compiled_on_devices").partition(
        "some_devices\n"
    )
    assert cases.split() == [
        "programs",
        "derivatives",
        "halves",
        "batches",
        "files",
        "abstract_arguments",
        "mesh_that_is_set",
        "inside_shard_map",
        "several_arguments",
        "devices_by_name",
        "one_device",
    ]
    assert refusals == (
        "the program runs on a mesh of 8 devices (d: 8); here are 4\n"
        "  do:    run it where there are as many; on a CPU, "
        "XLA_FLAGS=--xla_force_host_platform_device_count=8 makes them\n"
    )
