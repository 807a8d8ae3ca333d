"""Run one program and its file on one process and on two, of eight virtual devices in all.

    python -m tests.files.distributed

Arguments are sharded over all devices. The numbers and the shardings of the results must be those
of one process: XLA partitions what it is given, and one process may read only its own devices.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.devices import mesh_table

DEVICES = 8
RULE_FACTOR = 3.0
"""Scales the rule, which is false by it: a derivative that loses the rule differs."""


def main() -> int:
    """Compare what one process prints with what each of two prints; return how many differ."""
    with tempfile.TemporaryDirectory() as folder:
        (one,) = _printed(1, folder)
        both = _printed(2, folder)
    faults = _table()
    for name, expected in one.items():
        good = all(_is_close(found.get(name), expected) for found in both)
        faults += not good
        print(f"{'equal' if good else 'DIFFERENT'}: {name}: {expected}", *([] if good else both))
    return faults or not one


def _table() -> int:
    """Run the table of meshes on two processes; return in how many kinds a cell differs."""
    faults = 0
    for kind in mesh_table.KINDS:
        expected = [[*cell, outcome] for cell, outcome in mesh_table.expected(kind, 2).items()]
        for found in _printed(2, "", kind, devices=4):
            wrong = [each for each in found if each not in expected] or len(found) != len(expected)
            faults += bool(wrong)
            print(f"{'DIFFERENT' if wrong else 'as with JAX'}: {kind} mesh: {wrong or len(found)}")
    return faults


def _printed(count: int, folder: str, kind: str = "", devices: int = DEVICES) -> list[Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"--xla_force_host_platform_device_count={devices // count}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(count), str(i), str(port), folder, kind],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]
    ends = [process.communicate(timeout=600)[0] for process in processes]
    assert not any(process.returncode for process in processes), ends
    return [json.loads(each.splitlines()[-1]) for each in ends]


def _is_close(found: Any, expected: Any) -> bool:
    if not found or len(found) != len(expected):
        return False
    pairs = zip(found, expected, strict=True)
    return all(a[1] == b[1] and abs(a[0] - b[0]) <= 1e-5 * abs(b[0]) for a, b in pairs)


def run(count: int, number: int, port: str, folder: str, kind: str) -> None:
    """Be one of the processes: print the sum of squares and the sharding of each result.

    With a kind of mesh, print the outcomes of its cells in the table instead.
    """
    import jax
    from jax.experimental import multihost_utils

    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", count, number)
    if kind:
        print(json.dumps([*mesh_table.outcomes(kind)]))
        return
    found = {}
    for name, make in _derivatives(Path(folder, f"{count}.mlirbc"), number):
        leaves = jax.tree.leaves(make())
        whole = [multihost_utils.process_allgather(leaf, tiled=True) for leaf in leaves]
        pairs = zip(whole, leaves, strict=True)
        found[name] = [(float((x**2).sum()), str(leaf.sharding.spec)) for x, leaf in pairs]
    print(json.dumps(found))


def _derivatives(file: Path, number: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what to compute, by name; in memory, then from a file of the first process."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import NamedSharding, PartitionSpec as P

    import pullback as pb
    import pullback_runtime

    mesh = jax.make_mesh((DEVICES,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    rng = np.random.default_rng(0)

    def sharded(*shape: int) -> Any:
        values = rng.standard_normal(shape).astype(np.float32)
        return jax.make_array_from_callback(
            shape, NamedSharding(mesh, P("i")), lambda index: values[index]
        )

    w, x, v, xs = sharded(16, 16), sharded(16), sharded(16), sharded(8, 16)

    @jax.custom_vjp
    def bent(x):
        return jnp.tanh(x)

    bent.defvjp(
        lambda x: (jnp.tanh(x), x), lambda x, ct: (RULE_FACTOR * ct * (1 - jnp.tanh(x) ** 2),)
    )

    def energy(w, x):
        return jnp.sum(jnp.sin(bent(w @ x)))

    def of(where: str, program: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
        yield f"{where}: value", lambda: program(w, x)
        yield f"{where}: gradient", lambda: program.grad((0, 1))(w, x)
        yield f"{where}: compiled gradient", lambda: program.grad((0, 1)).compile()(w, x)
        yield f"{where}: Hessian-vector product", lambda: program.grad(1).jvp(1)(w, x, v)
        yield f"{where}: batch", lambda: program.grad(1).vmap((None, 0))(w, xs)

    program = pb.trace(energy)(w, x)
    yield from of("memory", program)
    yield "memory: jit of vmap", lambda: jax.jit(jax.vmap(pb.grad(energy), (None, 0)))(w, xs)
    if number == 0:
        program.save(file)
    multihost_utils.sync_global_devices("saved")
    yield from of("file", pb.load(file))
    yield "runtime: value", lambda: pullback_runtime.load(file)(w, x)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    run(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
