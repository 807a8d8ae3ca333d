"""A small potential with neighbour lists, saved with its forces and second derivatives.

    JAX_ENABLE_X64=1 python examples/forces/potential.py save potential.mlirbc
    JAX_ENABLE_X64=1 python examples/forces/potential.py check atoms.npz

Atoms see each other along edges: sender, receiver, and the shift of the receiver's periodic image.
A list of edges has a fixed length; edges that are left over have a shift beyond the cutoff.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb

ATOMS, EDGES, CUTOFF = 6, 48, 6.0
RADII = np.linspace(1.0, 5.0, 8)
RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((8, 16)) / 3, RNG.standard_normal(16) / 40


@jax.custom_jvp
def length(x):
    """Lengths of vectors; the slope is zero for those of length zero, where it would be NaN."""
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


@length.defjvp
def length_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    r = length(x)
    safe = jnp.where(r == 0.0, 1.0, r)
    return r, jnp.sum(x * dx, axis=-1) / safe


def energy(positions, senders, receivers, shifts):
    """A Morse potential for each edge, and a network for each atom's surroundings."""
    r = length(positions[receivers] - positions[senders] + shifts)
    window = jnp.where(r < CUTOFF, (1.0 - (jnp.minimum(r, CUTOFF) / CUTOFF) ** 2) ** 4, 0.0)
    bonds = ((1.0 - jnp.exp(-1.2 * (r - 1.9))) ** 2 - 1.0) * window
    radial = jnp.exp(-2.0 * (r[:, None] - RADII) ** 2) * window[:, None]
    seen = jax.ops.segment_sum(radial, receivers, positions.shape[0])
    hidden, out = WEIGHTS
    return 0.5 * jnp.sum(bonds) + jnp.sum(jax.nn.silu(seen @ hidden) @ out)


def forces(positions, *edges):
    return -pb.grad(energy)(positions, *edges)


def both(positions, *edges):
    value, gradient = pb.value_and_grad(energy)(positions, *edges)
    return value, -gradient


def virial(positions, senders, receivers, shifts):
    """The derivative by a strain of the cell, at none."""

    def strained(strain):
        deform = jnp.eye(3) + strain
        return energy(positions @ deform, senders, receivers, shifts @ deform)

    return pb.grad(strained)(jnp.zeros((3, 3)))


def hvp(positions, senders, receivers, shifts, direction):
    """The second derivative times a direction."""
    gradient = lambda x: pb.grad(energy)(x, senders, receivers, shifts)  # noqa: E731
    return pb.jvp(gradient, (positions,), (direction,))[1]


def arguments():
    number = jax.ShapeDtypeStruct((EDGES,), jnp.int32)
    vectors = jax.ShapeDtypeStruct((ATOMS, 3), jnp.float64)
    return vectors, number, number, jax.ShapeDtypeStruct((EDGES, 3), jnp.float64)


def save(path):
    args = arguments()
    pb.save_all(
        path,
        energy=pb.trace(energy)(*args),
        forces=pb.trace(forces)(*args),
        both=pb.trace(both)(*args),
        virial=pb.trace(virial)(*args),
        hvp=pb.trace(hvp)(*args, args[0]),
    )


def check(path):
    """Compare a file's frequencies, by the saved derivatives, with those of JAX's Hessian."""
    atoms = dict(np.load(path))
    edges = atoms["senders"], atoms["receivers"], atoms["shifts"]
    roots = np.repeat(np.sqrt(atoms["masses"]), 3)
    second = jax.jit(jax.hessian(energy))(atoms["positions"], *edges)
    weighted = np.reshape(second, (roots.size, roots.size)) / np.outer(roots, roots)
    expected = np.sqrt(np.maximum(np.linalg.eigvalsh(weighted), 0.0))[6:]
    found = atoms["frequencies"].real[6:]
    far = np.abs(found / found[-1] - expected / expected[-1]).max()
    print(f"frequencies are apart by {far:.0e}")
    assert far < 1e-6


if __name__ == "__main__":
    assert jax.config.jax_enable_x64, "set JAX_ENABLE_X64=1"
    {"save": save, "check": check}[sys.argv[1]](sys.argv[2])
