"""A trajectory of least effort, saved with its sparse derivatives.

    JAX_ENABLE_X64=1 python examples/optimal_control/problem.py save problem.mlirbc
    JAX_ENABLE_X64=1 python examples/optimal_control/problem.py check solution.npz

A boat goes from rest to rest around an island. At each of NODES times the unknowns are its
position, velocity and thrust, flattened to one vector; the constraints say that these fit (direct
collocation). Each is about two neighbouring times, so nearly all derivatives are zero.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb

NODES, DURATION, DRAG = 41, 8.0, 0.4
START, GOAL = np.array([0.0, 0.0, 0.0, 0.0]), np.array([4.0, 3.0, 0.0, 0.0])
ISLAND, RADIUS = np.array([2.0, 1.2]), 0.8
STEP = DURATION / (NODES - 1)


@jax.custom_jvp
def length(x):
    """Lengths of vectors; the slope is zero for those of length zero, where it would be NaN."""
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


@length.defjvp
def length_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    r = length(x)
    return r, jnp.sum(x * dx, axis=-1) / jnp.where(r == 0.0, 1.0, r)


def split(unknowns):
    """States (position and velocity) and thrusts, a row for each time."""
    nodes = unknowns.reshape(NODES, 6)
    return nodes[:, :4], nodes[:, 4:]


def objective(unknowns):
    _, thrusts = split(unknowns)
    return STEP * jnp.sum(thrusts**2)


def constraints(unknowns):
    """What is zero on a trajectory, then squared distances to the island."""
    states, thrusts = split(unknowns)
    velocities = states[:, 2:]
    drag = DRAG * length(velocities)[:, None] * velocities  # at rest, its formula has a NaN slope
    rates = jnp.concatenate([velocities, thrusts - drag], axis=1)
    defects = states[1:] - states[:-1] - STEP / 2 * (rates[1:] + rates[:-1])
    ends = jnp.concatenate([states[0] - START, states[-1] - GOAL])
    distances = jnp.sum((states[:, :2] - ISLAND) ** 2, axis=1)
    return jnp.concatenate([defects.ravel(), ends, distances])


def lagrangian(unknowns, weight, multipliers):
    """The objective times a weight, as IPOPT scales it, and the constraints times theirs."""
    return weight * objective(unknowns) + multipliers @ constraints(unknowns)


def bounds():
    """Least and greatest values of the constraints."""
    zeros, island = np.zeros(4 * NODES + 4), np.full(NODES, RADIUS**2)
    return np.append(zeros, island), np.append(zeros, np.full(NODES, np.inf))


def guess():
    """A straight line at rest."""
    along = np.linspace(0.0, 1.0, NODES)[:, None]
    return np.hstack([START + along * (GOAL - START), np.zeros((NODES, 2))]).ravel()


def save(path):
    unknowns = jax.ShapeDtypeStruct((6 * NODES,), jnp.float64)
    multipliers = jax.ShapeDtypeStruct((5 * NODES + 4,), jnp.float64)
    value, several = pb.trace(objective)(unknowns), pb.trace(constraints)(unknowns)
    pb.save_all(
        path,
        objective=value,
        gradient=value.grad(),
        constraints=several,
        jacobian=several.sparse_jacobian(),
        hessian=pb.trace(lagrangian)(unknowns, 1.0, multipliers).sparse_hessian(),
        bounds=pb.trace(bounds)(),
        guess=pb.trace(guess)(),
    )


def check(path):
    """Compare the derivatives at a solution with dense ones of JAX, and test its optimality."""
    found = np.load(path)
    unknowns, multipliers = found["unknowns"], found["multipliers"]
    jacobian = jax.jit(jax.jacfwd(constraints))(unknowns)
    hessian = jax.jit(jax.hessian(lagrangian))(unknowns, 1.0, multipliers)
    residual = jax.grad(objective)(unknowns) + multipliers @ jacobian
    for name, expected in ("jacobian", jacobian), ("hessian", hessian):
        far = np.abs(found[name] - expected).max()
        print(
            f"{name}: {np.mean(expected != 0):.1%} of it is not zero; apart from JAX's by {far:.0e}"
        )
        assert far < 1e-9
    print(f"gradient of the Lagrangian: {np.abs(residual).max():.0e}")
    assert np.abs(residual).max() < 1e-5


if __name__ == "__main__":
    assert jax.config.jax_enable_x64, "set JAX_ENABLE_X64=1"
    {"save": save, "check": check}[sys.argv[1]](sys.argv[2])
