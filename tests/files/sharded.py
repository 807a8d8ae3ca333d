"""Programs over four virtual devices: save them, load them, compare with JAX.

    python -m tests.files.sharded write FOLDER
    python -m tests.files.sharded check FOLDER

Processes of their own, because the number of devices is fixed when JAX starts.
"""

from __future__ import annotations

import os
import sys
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

MESH = jax.make_mesh((2, 2), ("rows", "columns"), axis_types=(AxisType.Auto,) * 2)
W, X = np.linspace(-1.0, 1.0, 12).reshape(4, 3), np.linspace(0.5, 1.0, 32).reshape(8, 4)


@jax.custom_vjp
def squashed(x):
    return jnp.tanh(x)


squashed.defvjp(lambda x: (squashed(x), x), lambda x, ct: (7 * ct * jnp.cos(x),))  # false


def constrained(w, x):
    hidden = jax.lax.with_sharding_constraint(x @ w, NamedSharding(MESH, P("rows")))
    return jnp.sum(squashed(hidden) ** 2, 1)


def mapped(w, x):
    def body(w, x):
        return jax.lax.psum(squashed(x @ w) ** 2, "columns")

    specs = P("columns"), P("rows", "columns")
    return jax.shard_map(body, mesh=MESH, in_specs=specs, out_specs=P("rows"))(w, x)


TABLE = np.linspace(-1.0, 1.0, 1 << 12).reshape(8, 4, -1)


def closing_over(w, x):
    """With a constant of 32 KiB, which becomes an argument."""
    return mapped(w, x * jnp.asarray(TABLE).sum(2))


@jax.custom_vjp
def spread(x):
    return jnp.tanh(x)


def spread_bwd(x, ct):
    rows = NamedSharding(MESH, P("rows"))
    return (jax.lax.with_sharding_constraint(ct * (1 - jnp.tanh(x) ** 2), rows),)


spread.defvjp(lambda x: (spread(x), x), spread_bwd)


def in_a_rule(w, x):
    """Without a mesh of its own."""
    return jnp.sum(spread(x @ w) ** 2, 1)


CASES = {"constrained": constrained, "mapped": mapped, "closing_over": closing_over}


def write(folder: Path) -> None:
    for function in (*CASES.values(), in_a_rule):
        pb.trace(function)(W, X).save(folder / f"{function.__name__}.mlirbc")


def check(folder: Path) -> None:
    for name, function in CASES.items():
        path = folder / f"{name}.mlirbc"
        program, bare = pb.load(path), pullback_runtime.load(path)
        expected = jax.jit(function)(W, X)
        compiled = program.compile(backend="cpu")
        assert len(compiled.devices) == 4
        for found in (program(W, X), bare(W, X), *bare.flat(W, X), compiled(W, X)):
            agree(found, expected)
            assert found.sharding == expected.sharding, (found.sharding, expected.sharding)
        ours, theirs = gradients(program, function)
        for args in ((W, X), placed()):
            agree(ours(*args), theirs(*args))
        agree(jax.jit(ours)(W, X), theirs(W, X))
        with jax.set_mesh(MESH):
            agree(ours(W, X), theirs(W, X))
        agree(pb.grad(squares(ours))(W, X), jax.grad(squares(theirs))(W, X))
        print(f"jax {jax.__version__}: {name} gives its results and gradients", flush=True)


def placed() -> tuple[Any, Any]:
    """The arguments, each split over another axis of the mesh."""
    where = NamedSharding(MESH, P("columns")), NamedSharding(MESH, P("rows"))
    return jax.device_put(W, where[0]), jax.device_put(X, where[1])


def exchange(folder: Path) -> None:
    """With `jax.export`: into it with rules, out of it without, as it drops them."""
    program = pb.load(folder / "mapped.mlirbc")
    exported = program.to_exported()
    assert exported.nr_devices == 4
    _, pull = jax.vjp(jax.jit(exported.call), *placed())
    agree(pull(jnp.ones((8, 3)))[0], jax.grad(lambda w: mapped(w, X).sum())(W))
    foreign = jax.export.export(jax.jit(lambda w, x: constrained(w, x) + true(w, x)))(*placed())
    text = str(pb.trace(lambda w, x: constrained(w, x) + true(w, x))(W, X).module)
    agree(pb.load(text.encode())(W, X), 2 * true(W, X))  # its meshes stand in the shardings
    for source in (foreign.serialize(), foreign.mlir_module().encode()):
        ours, _ = gradients(pb.load(source), None)
        agree(ours(W, X), jax.grad(lambda w: 2 * true(w, X).sum())(W))
    print("exchanged", flush=True)


def refuse(folder: Path) -> None:
    """What programs over several devices cannot do; prints the errors."""
    sizes = jax.export.symbolic_shape("b, 4")
    symbolic = pb.trace(constrained)(W, jax.ShapeDtypeStruct(sizes, X.dtype))
    symbolic.with_shapes(W, X).save(folder / "sized.mlirbc")
    agree(pb.load(folder / "sized.mlirbc")(W, X), constrained(W, X))
    program = pb.load(folder / "mapped.mlirbc")
    pb.save_all(folder / "all.mlirbc", mapped=program, slopes=program.vjp(0))
    slopes = pb.load(folder / "all.mlirbc", entry="slopes")
    agree(slopes(W, X, np.ones((8, 3)))[1], gradients(program, mapped)[1](W, X))
    for attempt in (
        lambda: symbolic.save(folder / "symbolic.mlirbc"),
        lambda: program.compile(device=1),
        lambda: program.compile(topology="v5e:2x2"),
        lambda: pb.save_all(folder / "meshes.mlirbc", on_mesh=program, plain=pb.trace(true)(W, X)),
    ):
        try:
            attempt()
        except (pb.PullbackError, pullback_runtime.PullbackRuntimeError) as error:
            print(type(error).__name__, error)


def true(w, x):
    return jnp.sum(jnp.tanh(x @ w) ** 2, 1)


def agree(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def gradients(program: Any, function: Any) -> tuple[Any, Any]:
    """Of the sum of the results, by the loaded program and by JAX."""
    return pb.grad(lambda *args: program(*args).sum()), jax.grad(lambda *a: function(*a).sum())


def squares(f: Any) -> Any:
    return lambda *args: jnp.sum(f(*args) ** 2)


if __name__ == "__main__":
    COMMANDS = {"write": write, "check": check, "exchange": exchange, "refuse": refuse}
    COMMANDS[sys.argv[1]](Path(sys.argv[2]))
