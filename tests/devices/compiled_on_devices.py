"""What is traced with arrays on several devices is compiled for these devices, as with JAX.

    python -m tests.devices.compiled_on_devices

prints the names of the cases in which devices and values agree. It is a process of its own, because
the number of devices is fixed when JAX starts.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
)

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import pullback as pb
import pullback_runtime

jax.config.update("jax_enable_x64", True)

VALUES = np.linspace(-1, 1, 8)
CASES: dict[str, Callable[[Any], None]] = {}


def case(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """A case: it raises where something compiled on a mesh is not as with JAX."""
    CASES[function.__name__] = function
    return function


@jax.custom_vjp
def squashed(x):
    return jnp.tanh(x)


squashed.defvjp(lambda x: (squashed(x), x), lambda x, ct: (7 * ct * jnp.cos(x),))  # false


def loss(x):
    return jnp.sum(squashed(x) ** 2)


def linear(x):
    return 3 * x[::-1]


ALONG = P("d")


def on(mesh: Any, values: Any = VALUES, spec: Any = ALONG) -> Any:
    return jax.device_put(values, NamedSharding(mesh, spec))


def is_as_jax(executable: Any, function: Any, *args: Any) -> None:
    """The executable gives what the function gives, compiled for the devices of its arguments."""
    expected = jax.jit(function)
    devices = expected.trace(*args).lower().compile().runtime_executable().local_devices()
    assert executable.devices == tuple(devices), (executable, devices)
    assert "num_partitions=4" in executable.hlo() or len(devices) < 4
    agree(executable(*args), expected(*args))


def agree(ours: Any, expected: Any) -> None:
    for found, wanted in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@case
def programs(mesh):
    x = on(mesh)
    executable = pb.trace(loss)(x).compile()
    is_as_jax(executable, loss, x)
    agree(executable(VALUES), loss(VALUES))
    again = on(jax.make_mesh((4,), ("d",), axis_types=mesh.axis_types))
    agree(executable(again), loss(VALUES))  # elsewhere than it was traced
    is_as_jax(pb.trace(loss)(again).compile(), loss, again)


@case
def derivatives(mesh):
    x, v = on(mesh), on(mesh, VALUES**2)
    program = pb.trace(loss)(x)
    is_as_jax(program.grad().compile(), jax.grad(loss), x)
    is_as_jax(program.value_and_grad().compile(), jax.value_and_grad(loss), x)
    pulled = program.vjp().compile()
    is_as_jax(pulled, lambda x, ct: (loss(x), (ct * jax.grad(loss)(x),)), x, 2.0)
    moved = pb.trace(lambda x: jnp.sin(x) ** 2)(x).jvp().compile()
    is_as_jax(moved, lambda x, v: jax.jvp(lambda x: jnp.sin(x) ** 2, (x,), (v,)), x, v)
    transposed = pb.trace(linear)(x).transpose()
    agree(transposed.compile()(v), jax.linear_transpose(linear, x)(v))


@case
def halves(mesh):
    x, v = on(mesh), on(mesh, VALUES**2)
    forward, backward = pb.trace(jnp.sin)(x).split_vjp()
    out, residuals = forward.compile()(x)
    agree(out, jnp.sin(x))
    agree(backward.compile()(residuals, v), jax.vjp(jnp.sin, x)[1](v))
    if mesh.axis_types == (AxisType.Explicit,):  # of others, the type of v does not tell
        assert forward.compile().devices == backward.compile().devices == tuple(mesh.devices)
    forward, tangent = pb.trace(jnp.sin)(x).linearize()
    agree(tangent.compile()(forward.compile()(x)[1], v), jax.jvp(jnp.sin, (x,), (v,))[1])


@case
def batches(mesh):
    x, rows = on(mesh), on(mesh, np.stack([VALUES, VALUES**3, VALUES**2]), P(None, "d"))
    batched = pb.trace(loss)(x).grad().vmap(axis_size=3)
    is_as_jax(batched.compile(), jax.vmap(jax.grad(loss)), rows)
    columns = pb.trace(loss)(x).vmap(in_axes=1, axis_size=3).compile()
    is_as_jax(columns, jax.vmap(loss, 1), on(mesh, np.asarray(rows).T))
    agree(pb.trace(loss)(x).vmap()(rows), jax.vmap(loss)(rows))


@case
def files(mesh):
    x = on(mesh)
    for program in (pb.trace(loss)(x), pb.trace(loss)(x).grad()):
        with tempfile.TemporaryDirectory() as folder:
            program.save(Path(folder, "program.pullback"))
            loaded = pb.load(Path(folder, "program.pullback"))
        executable = loaded.compile()
        assert executable.devices == (jax.devices()[0],)  # a file knows of no devices
        for argument in (x, VALUES):
            agree((loaded(argument), executable(argument)), (program(x), program(x)))
        agree(loaded.vjp().compile()(x, program(x)), program.vjp()(x, program(x)))


@case
def abstract_arguments(mesh):
    x = on(mesh)
    struct = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    is_as_jax(pb.trace(loss)(struct).compile(), loss, x)
    lowered = jax.jit(pb.trace(loss)(x)).lower(struct)
    agree(lowered.compile()(x), loss(VALUES))
    of_program = jax.jit(lambda x: loss(x)).lower(*pb.trace(loss)(x).in_avals)
    agree(of_program.compile()(x), loss(VALUES))
    assert pb.trace(loss)(x).to_exported().nr_devices == 4


@case
def mesh_that_is_set(mesh):
    with jax.set_mesh(mesh):
        x = on(mesh)
        inside, of_numpy = pb.trace(loss)(x), pb.trace(loss)(VALUES)
        is_as_jax(inside.compile(), loss, x)
        is_as_jax(of_numpy.grad().compile(), jax.grad(loss), VALUES)
    is_as_jax(inside.compile(), loss, x)
    is_as_jax(inside.grad().compile(), jax.grad(loss), x)


@case
def inside_shard_map(mesh):
    def total(x):
        return jax.lax.psum(jnp.sum(squashed(x) ** 2), "d")

    x = on(mesh)
    mapped = jax.shard_map(total, mesh=mesh, in_specs=P("d"), out_specs=P())
    is_as_jax(pb.trace(mapped)(x).compile(), mapped, x)
    is_as_jax(pb.trace(mapped)(x).grad().compile(), jax.grad(mapped), x)


@case
def several_arguments(mesh):
    """Of which some are on the mesh, and some nowhere; trees, keys and large constants."""
    table = on(mesh, np.linspace(-1, 1, 1 << 13))

    def function(tree, scale, key):
        noise = jax.random.normal(key, (8,))
        return jnp.sum(squashed(tree["x"]) * noise * scale) + jnp.sum(table**2)

    args = {"x": on(mesh)}, 3.0, jax.device_put(jax.random.key(0), NamedSharding(mesh, P()))
    is_as_jax(pb.trace(function)(*args).compile(), function, *args)
    is_as_jax(pb.trace(function)(*args).grad().compile(), jax.grad(function), *args)


@case
def devices_by_name(mesh):
    """One device that is named takes what lies elsewhere."""
    x, program = on(mesh), pb.trace(loss)(on(mesh)).grad()
    for device, options in ((0, {"backend": "cpu"}), (1, {"device": 1})):
        executable = program.compile(**options)
        assert executable.devices == (jax.devices()[device],)
        agree(executable(x), jax.grad(loss)(VALUES))


@case
def one_device(mesh):
    """An array that is bound to another device than JAX's first one."""
    x = jax.device_put(VALUES, jax.devices()[2])
    is_as_jax(pb.trace(loss)(x).compile(), loss, x)
    is_as_jax(pb.trace(loss)(x).grad().compile(), jax.grad(loss), x)


def refusals(mesh: Any) -> None:
    """Of a mesh whose devices nothing tells: the first ones here, where there are as many."""

    def of_types(mesh: Any) -> Any:
        struct = jax.ShapeDtypeStruct((8,), float, sharding=NamedSharding(mesh, P("d")))
        return pb.trace(loss)(struct)

    program = of_types(mesh.abstract_mesh)
    assert program.compile().devices == tuple(jax.devices())
    agree(program.compile()(on(mesh)), loss(VALUES))
    try:
        of_types(jax.sharding.AbstractMesh((8,), ("d",), mesh.axis_types)).compile()
    except pullback_runtime.BackendNotFoundError as error:
        print(error)
    for each in (mesh, jax.make_mesh((4,), ("d",), axis_types=mesh.axis_types)):
        with jax.set_mesh(each):
            executable = program.compile()
            assert executable.devices == tuple(each.devices.flat)
            agree(executable(on(each)), loss(VALUES))


def main() -> None:
    all_devices, kinds = np.array(jax.devices()), (AxisType.Explicit, AxisType.Auto)
    for name, function in CASES.items():
        for kind in kinds:
            function(jax.sharding.Mesh(all_devices[[2, 0, 3, 1]], ("d",), axis_types=(kind,)))
        print(name)
    two = jax.sharding.Mesh(all_devices[[3, 1]], ("d",), axis_types=kinds[:1])
    programs_of_two(two)
    refusals(jax.sharding.Mesh(all_devices[[2, 0, 3, 1]], ("d",), axis_types=kinds[:1]))


def programs_of_two(mesh: Any) -> None:
    """Some of the devices that are here."""
    for function in (derivatives, halves, batches, several_arguments):
        function(mesh)
    print("some_devices")


if __name__ == "__main__":
    sys.exit(main())
