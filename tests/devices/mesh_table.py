"""The table of meshes: all that pullback makes of a function, on each kind of mesh, beside JAX.

    python -m tests.devices.mesh_table KIND

prints the outcome of each cell of a kind. It is a process of its own, because the number of devices
is fixed when JAX starts; `tests.files.distributed` runs the same on two processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    )

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import pullback as pb
from pullback_runtime import PullbackRuntimeError

W, X = np.linspace(-1, 1, 12).reshape(4, 3), np.linspace(0.5, 1, 32).reshape(8, 4)
KINDS = ("auto", "explicit", "set", "manual")
"""Types of axes; `set` is explicit under `jax.set_mesh`, `manual` in the body of a `shard_map`."""

AS_JAX, FAILS_AS_JAX = "as JAX, or better", "raises what JAX raises"
NEEDS_VALUES = "PullbackError: {} needs values, and is called while JAX traces"
NEEDS_ALL = "PullbackError: {} needs all values of its arguments, and other processes have a part"


@jax.custom_jvp
def bent(x):
    return jnp.tanh(x)


bent.defjvp(
    lambda primals, tangents: (bent(*primals), 3 * tangents[0] * jnp.cos(*primals))
)  # false


@jax.custom_vjp
def right(x):
    return jnp.tanh(x)


right.defvjp(lambda x: (right(x), x), lambda x, ct: (ct * (1 - jnp.tanh(x) ** 2),))


def loss(w, x):
    return jnp.sum(bent(x @ w) ** 2)


def of_one(w, x):
    return loss(w, x[None])


def root(w, x):
    return jnp.sum(jnp.sqrt(bent(x @ w) * 0))


CELLS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {}


def cell(expected: Callable[..., Any] | None) -> Callable[..., Any]:
    """A cell: what ours makes of the arguments, and what JAX does; None where it has no such."""

    def register(ours: Callable[..., Any]) -> Callable[..., Any]:
        CELLS[ours.__name__] = ours, expected
        return ours

    return register


gradient = jax.grad(loss)


@cell(jax.grad(loss, (0, 1)))
def grad(w, x):
    return pb.grad(loss, (0, 1))(w, x)


@cell(lambda w, x: jax.jvp(loss, (w, x), (w, x)))
def jvp(w, x):
    return pb.jvp(loss, (w, x), (w, x))


@cell(jax.hessian(loss))
def hessian(w, x):
    return pb.hessian(loss)(w, x)


@cell(jax.vmap(jax.grad(of_one), (None, 0)))
def vmap(w, x):
    return jax.vmap(pb.grad(of_one), (None, 0))(w, x)


@cell(jax.vmap(jax.grad(of_one), (None, 0)))
def per_example(w, x):
    return pb.vmap(pb.grad(of_one), (None, 0))(w, x)


@cell(gradient)
def compile(w, x):
    return pb.trace(loss)(w, x).grad().compile()(w, x)


@cell(gradient)
def file(w, x):
    with tempfile.TemporaryDirectory() as folder:
        pb.trace(loss)(w, x).save(Path(folder, "loss.mlirbc"))
        return pb.load(Path(folder, "loss.mlirbc")).grad()(w, x)


@cell(gradient)
def memory(w, x):
    return pb.grad(loss, memory="1MB")(w, x)


@cell(gradient)
def as_jax(w, x):
    return pb.trace(loss)(w, x).grad().as_jax()(w, x)


@cell(gradient)
def grad_of_as_jax(w, x):
    return jax.grad(pb.trace(loss)(w, x).as_jax())(w, x)


@cell(None)
def check_rules(w, x):
    report = pb.testing.check_rules(lambda w, x: jnp.sum(right(x @ w)), w, x)
    assert {each.check for each in report.findings} >= {"vjp", "value", "batch"}, report
    assert {each.verdict for each in report.findings} == {"ok"}, report


@cell(None)
def find_nan(w, x):
    assert pb.find_nan(pb.grad(loss))(w, x) is None
    assert "made by" in str(pb.find_nan(pb.grad(root))(w, x))


@cell(lambda w, x: jax.vjp(loss, w, x)[1](_seed(x)))
def split(w, x):
    forward, backward = pb.trace(loss)(w, x).split_vjp((0, 1))
    return backward(forward(w, x)[1], _seed(x))


@cell(lambda w, x: jax.vjp(loss, w, x)[1](_seed(x)))
def vjp(w, x):
    return pb.vjp(loss, w, x)[1](_seed(x))


def _seed(x: Any) -> Any:
    """A cotangent of the loss, which varies over devices as the loss does."""
    return 0 * jnp.sum(x) + 2.0


def expected(kind: str, processes: int = 1) -> dict[tuple[str, bool], str]:
    """The outcome of each cell of a kind of mesh: of a name, under `jax.jit` or not."""
    cells = ((name, is_jitted) for name in CELLS for is_jitted in (False, True))
    return {cell: _expected(kind, *cell, processes) for cell in cells}


def _expected(kind: str, name: str, is_jitted: bool, processes: int) -> str:
    if name in ("find_nan", "check_rules"):
        full = "testing.check_rules" if name == "check_rules" else name
        if is_jitted or kind == "manual":
            return NEEDS_VALUES.format(full)
        return AS_JAX if processes == 1 else NEEDS_ALL.format(full)
    if name == "grad_of_as_jax" and kind == "explicit" and not is_jitted:
        return FAILS_AS_JAX  # it is JAX that differentiates
    return AS_JAX


def arguments(kind: str) -> tuple[Any, Any, Any]:
    """The mesh, and the arguments on it; in the body of a shard_map each device has weights."""
    axes = AxisType.Auto if kind == "auto" else AxisType.Explicit
    mesh = jax.make_mesh((4,), ("d",), axis_types=(axes,))

    def on_mesh(values: np.ndarray, spec: Any) -> Any:
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

    each = np.concatenate([W, W, W, W]) if kind == "manual" else W
    return mesh, on_mesh(each, P("d") if kind == "manual" else P()), on_mesh(X, P("d"))


def outcomes(kind: str) -> Iterator[tuple[str, bool, str]]:
    """Run all cells of a kind of mesh: yield name, whether it is under `jax.jit`, and outcome."""
    with jax.enable_x64(True):
        mesh, w, x = arguments(kind)

    def on_mesh(function: Callable[..., Any], is_jitted: bool) -> Any:
        function = jax.jit(function) if is_jitted else function
        if kind != "manual":
            return function(w, x)
        body = lambda w, x: jax.tree.map(lambda y: y[None], function(w, x))  # noqa: E731
        return jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"))(w, x)

    around = jax.set_mesh(mesh) if kind == "set" else contextlib.nullcontext()
    with jax.enable_x64(True), around:
        for name, (ours, theirs) in CELLS.items():
            for is_jitted in (False, True):
                yield name, is_jitted, _outcome(on_mesh, ours, theirs, is_jitted)


def _outcome(on_mesh: Any, ours: Any, theirs: Any, is_jitted: bool) -> str:
    wanted, failure = None, None
    try:
        wanted = on_mesh(theirs, is_jitted) if theirs else None
    except ValueError as error:
        failure = str(error)
    try:
        found = on_mesh(ours, is_jitted)
    except (pb.PullbackError, PullbackRuntimeError) as error:
        return f"{type(error).__name__}: {error.message}"
    except ValueError as error:
        return FAILS_AS_JAX if str(error) == failure else f"{type(error).__name__}: {error}"
    if failure:
        jax.tree.map(_is_equal, found, theirs(W, X))
        return AS_JAX
    jax.tree.map(_is_equal, found, wanted)
    types = [list(map(jax.typeof, jax.tree.leaves(each))) for each in (found, wanted)]
    return AS_JAX if types[0] == types[1] else f"of the types {types[0]}, not {types[1]}"


def _is_equal(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(_whole(found), _whole(wanted), rtol=1e-9, atol=1e-12)


def _whole(x: jax.Array) -> Any:
    return x if x.is_fully_addressable else multihost_utils.process_allgather(x, tiled=True)


def main() -> None:
    (kind,) = sys.argv[1:]
    print({(name, is_jitted): outcome for name, is_jitted, outcome in outcomes(kind)})


if __name__ == "__main__":
    sys.exit(main())
