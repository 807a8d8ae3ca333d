"""Programs that are traced with arrays on several devices compile for these devices."""

import pytest

from tests.rules.processes import run_python


@pytest.mark.slow
def test_programs_compile_for_the_devices_of_their_arguments():
    cases, _, refusals = run_python("-m", "tests.compiled_on_devices").partition("some_devices\n")
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
        "the types of @main name a mesh by its axes alone: its devices are not known\n"
        "  where: in pullback_runtime.compile\n"
        "  do:    compile it where the mesh is set, `with jax.set_mesh(mesh):`, or trace with "
        "arrays that lie on the mesh\n"
    )
