"""On a mesh with explicit axes, which `jax.make_mesh` makes by default, types are as with JAX."""

import ast

import pytest

from tests import mesh_table
from tests.rules.processes import run_python


@pytest.mark.slow
def test_results_lie_on_an_explicit_mesh_as_with_jax():
    printed = run_python("-m", "tests.explicit_meshes").split()
    assert printed == [
        "gradients",
        "under_jit",
        "types",
        "in_a_loop",
        "of_gradients",
        "forward_mode",
        "pullbacks",
        "linear_maps",
        "jacobians",
        "batches",
        "functions",
        "sums_left_to_do",
        "elsewhere",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", mesh_table.KINDS)
def test_the_table_of_meshes(kind):
    """All kinds of derivatives and programs, called eagerly and under `jax.jit`."""
    found = ast.literal_eval(run_python("-m", "tests.mesh_table", kind).splitlines()[-1])
    assert found == mesh_table.expected(kind)
