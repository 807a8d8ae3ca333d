"""Relax a molecule and find its vibrations by ASE, with a saved potential and without JAX.

    python examples/forces/relax.py potential.mlirbc atoms.npz [PLUGIN.so]

It needs `ase` and `pullback-runtime`; with a PJRT plug-in, no JAX. Positions, edges and
frequencies go to a file.
"""

from __future__ import annotations

import sys

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.neighborlist import primitive_neighbor_list
from ase.optimize import BFGS
from ase.vibrations.data import VibrationsData

import pullback_runtime

EDGES, CUTOFF = 48, 6.0


class Potential(Calculator):
    """ASE's interface to the entries of a file."""

    implemented_properties = ("energy", "forces")

    def __init__(self, path, **options):
        super().__init__()
        self.both, self.hvp = (
            pullback_runtime.load(path, entry=name, **options) for name in ("both", "hvp")
        )

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        energy, forces = self.both(self.atoms.positions, *edges(self.atoms))
        self.results = {"energy": float(energy), "forces": np.asarray(forces)}

    def hessian(self, atoms):
        directions = np.eye(3 * len(atoms)).reshape(-1, len(atoms), 3)
        rows = [self.hvp(atoms.positions, *edges(atoms), each) for each in directions]
        return np.reshape(rows, (len(directions), -1))


def edges(atoms):
    """The neighbours of all atoms, in arrays of a fixed length."""
    shifts = np.full((EDGES, 3), 10 * CUTOFF)
    ends = np.zeros((2, EDGES), np.int32)
    *pair, images = primitive_neighbor_list("ijS", atoms.pbc, atoms.cell, atoms.positions, CUTOFF)
    count = len(images)
    if count > EDGES:
        raise ValueError(f"{count} edges, and the potential was saved for {EDGES}")
    ends[:, :count], shifts[:count] = pair, images @ atoms.cell
    return *ends, shifts


def main(path, out, plugin=None):
    options = {"engine": "pjrt", "plugin": plugin} if plugin else {}
    rng = np.random.default_rng(1)
    octahedron = np.concatenate([np.eye(3), -np.eye(3)]) * 1.5
    atoms = Atoms("Ar6", octahedron + 0.1 * rng.standard_normal((6, 3)))
    atoms.calc = potential = Potential(path, **options)
    print(f"energy before: {atoms.get_potential_energy():.6f}")
    BFGS(atoms, logfile=None).run(fmax=1e-9, steps=500)
    print(f"energy after:  {atoms.get_potential_energy():.6f}")
    hessian = potential.hessian(atoms)
    vibrations = VibrationsData.from_2d(atoms, (hessian + hessian.T) / 2)
    print("frequencies in 1/cm:", *np.round(vibrations.get_frequencies().real[6:], 3))
    senders, receivers, shifts = edges(atoms)
    np.savez(
        out,
        positions=atoms.positions,
        senders=senders,
        receivers=receivers,
        shifts=shifts,
        masses=atoms.get_masses(),
        frequencies=vibrations.get_frequencies(),
    )
    assert "jax" not in sys.modules or plugin is None


if __name__ == "__main__":
    main(*sys.argv[1:])
