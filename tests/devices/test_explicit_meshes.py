"""On a mesh with explicit axes, which `jax.make_mesh` makes by default, types are as with JAX."""

import ast

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, PartitionSpec as P

import pullback as pb
from pullback.files import write
from tests.devices import mesh_table
from tests.rules.processes import run_python


@pytest.mark.slow
def test_results_lie_on_an_explicit_mesh_as_with_jax():
    printed = run_python("-m", "tests.devices.explicit_meshes").split()
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
    found = ast.literal_eval(run_python("-m", "tests.devices.mesh_table", kind).splitlines()[-1])
    assert found == mesh_table.expected(kind)


def in_a_body(function, **options):
    """Call a function in the body of a `shard_map` over the one device of a mesh."""
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    x = jnp.arange(1.0, 4.0)
    return jax.shard_map(function, mesh=mesh, in_specs=P("d"), out_specs=P("d"), **options)(x)


def test_a_file_does_not_say_which_values_are_equal_on_all_devices():
    def body(x):
        write.serialize(pb.trace(lambda x: jnp.sum(x * x))(x))
        write.serialize(pb.trace(lambda x: jax.lax.psum(jnp.sum(x * x), "d"))(x))
        return x

    with pytest.raises(pb.NotPortableError, match="which they are") as caught:
        in_a_body(body)
    assert caught.value.do == "save the program of the function that calls shard_map"


@pytest.mark.parametrize(("is_checked", "verdicts"), [(True, {"doubtful"}), (False, {"ok"})])
def test_rules_in_the_body_of_a_shard_map_are_checked_where_types_allow_it(is_checked, verdicts):
    def function(x):
        return in_a_body(mesh_table.right, check_vma=is_checked) * x

    report = pb.testing.check_rules(function, jnp.float32(2))
    assert {each.verdict for each in report.findings} == verdicts
    if is_checked:
        assert "give shard_map check_vma=False" in report.findings[0].reason


def test_rules_are_checked_with_values():
    with pytest.raises(pb.PullbackError, match="check_rules needs values") as caught:
        jax.jit(lambda x: pb.testing.check_rules(mesh_table.right, x))(1.0)
    assert "outside of jax.jit" in caught.value.do
