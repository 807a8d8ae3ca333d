"""Run time of Jacobians, and of linear maps under `jax.vmap`, beside JAX's.

    python benchmarks/jacobians.py [--runs 20] [--only vjp]

Both are compiled by XLA for the default backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import programs
import run
from rows import Row, Wanted, benchmark, in_turn

import pullback as pb

WIDTH = 256
BASIS = jnp.eye(WIDTH)


def network(x: Any, layers: int = 4) -> Any:
    for _ in range(layers):
        x = jnp.tanh(WEIGHTS @ x)
    return x


def recurrence(x: Any, steps: int = 20) -> Any:
    return jax.lax.scan(lambda c, _: (jnp.tanh(WEIGHTS @ c), None), x, None, steps)[0]


WEIGHTS = programs.array(WIDTH, WIDTH) / WIDTH**0.5

MAPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap of a vjp": lambda library, f, x: jax.vmap(library.vjp(f, x)[1])(BASIS),
    "vmap of a linearize": lambda library, f, x: jax.vmap(library.linearize(f, x)[1])(BASIS),
    "vmap of a jvp": lambda library, f, x: jax.vmap(
        lambda t: library.jvp(f, (x,), (t,)), out_axes=(None, -1)
    )(BASIS),
    "jacrev": lambda library, f, x: library.jacrev(f)(x),
    "jacfwd": lambda library, f, x: library.jacfwd(f)(x),
    "hessian of the sum": lambda library, f, x: library.hessian(lambda x: jnp.sum(f(x)))(x),
}
CASES = {
    f"{name}, {f.__name__}": (made, f) for f in (network, recurrence) for name, made in MAPS.items()
}


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    x = jax.device_put(programs.array(WIDTH))
    for name, (made, f) in CASES.items():
        if not wanted(name):
            continue
        ours, theirs = (
            jax.jit(lambda x, m=made, f=f, lib=library: m(lib, f, x)) for library in (pb, jax)
        )
        run.checked(ours(x), theirs(x))
        times = in_turn(
            lambda: jax.block_until_ready(ours(x)),  # noqa: B023
            lambda: jax.block_until_ready(theirs(x)),  # noqa: B023
            runs,
        )
        yield Row(name, *times, family="Jacobians")


if __name__ == "__main__":
    benchmark(rows, runs=20)()
