"""Run time of Jacobians, and of maps that are mapped over a basis: ours against JAX, in turn.

    python benchmarks/jacobians.py [--runs 20] [--only vjp]

Both are compiled by XLA for the default backend; medians, and their ratio (ours / JAX).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import click
import derive
import jax
import jax.numpy as jnp
import numpy as np
import run

import pullback as pb

WIDTH = 256
BASIS = jnp.eye(WIDTH)


def network(x: Any, layers: int = 4) -> Any:
    for _ in range(layers):
        x = jnp.tanh(WEIGHTS @ x)
    return x


def recurrence(x: Any, steps: int = 20) -> Any:
    return jax.lax.scan(lambda c, _: (jnp.tanh(WEIGHTS @ c), None), x, None, steps)[0]


WEIGHTS = derive.array(WIDTH, WIDTH) / WIDTH**0.5

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


@click.command()
@click.option("--runs", default=20, show_default=True, help="counted runs of each")
@click.option("--only", default="", help="rows whose name contains this")
def main(runs: int, only: str) -> None:
    """Run time of Jacobians and of mapped maps, next to JAX."""
    print(f"{'':32} {'ours ms':>9} {'jax ms':>9} {'ours/jax':>9}")
    ratios, x = [], jax.device_put(derive.array(WIDTH))
    for name, (made, f) in CASES.items():
        if only not in name:
            continue
        both = {
            library.__name__: jax.jit(lambda x, m=made, f=f, lib=library: m(lib, f, x))
            for library in (pb, jax)
        }
        mine, other = (jax.tree.leaves(function(x)) for function in both.values())
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * float(abs(b).max()))
        found = run.measure(both, (x,), runs)
        ratios.append(found["pullback"] / found["jax"])
        print(f"{name:32} {found['pullback']:9.2f} {found['jax']:9.2f} {ratios[-1]:9.2f}")
    print(f"{'geometric mean':32} {'':9} {'':9} {statistics.geometric_mean(ratios):9.2f}")


if __name__ == "__main__":
    main()
