"""The examples agree with JAX where it can, and with finite differences where it cannot."""

from __future__ import annotations

import importlib.util
import itertools
import pathlib
import re
import runpy

import jax
import numpy as np
import pytest

import pullback as pb

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture
def mechanics():
    with jax.enable_x64(True):
        specification = importlib.util.spec_from_file_location(
            "implicit_mechanics", EXAMPLES / "implicit_mechanics.py"
        )
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        yield module
    jax.config.update("jax_enable_x64", False)


def test_four_derivative_levels(mechanics):
    """Energy, equations of motion, implicit solver, fit: both modes and a Hessian product."""
    params, q0 = mechanics.example_args

    def loss(params):
        return mechanics.loss(params, q0, steps=3)

    direction = jax.tree.map(lambda p: 0.3 * np.ones_like(p), params)

    def along(tree):
        return sum(
            float(np.vdot(a, b))
            for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(direction), strict=True)
        )

    program = pb.trace(loss)(params)
    gradient = program.grad()
    numeric = mechanics.finite_difference(loss, params, direction)
    np.testing.assert_allclose(along(gradient(params)), numeric, rtol=1e-6)
    np.testing.assert_allclose(along(jax.grad(loss)(params)), numeric, rtol=1e-6)
    _, forward = program.jvp()(params, direction)
    np.testing.assert_allclose(forward, numeric, rtol=1e-6)
    compiled = gradient.compile()
    _, hessian = gradient.jvp()(params, direction)
    second = mechanics.finite_difference(lambda p: along(compiled(p)), params, direction)
    np.testing.assert_allclose(along(hessian), second, rtol=1e-5)


def test_readme_and_the_site_show_the_numbers_of_lost_rules(capsys):
    runpy.run_path(str(EXAMPLES / "lost_rules.py"), run_name="__main__")
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 3
    for page in ("README.md", "docs/index.md"):
        assert "\n".join(rows) in (EXAMPLES.parent / page).read_text(), page


def test_rules_of_kernels_are_those_that_are_derived(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "attention_kernels.py"), run_name="__main__")
    printed = capsys.readouterr().out
    errors = re.findall(r"differs by (\S+) from", printed)
    assert len(errors) == 3
    assert max(map(float, errors)) < 1e-5
    assert "kernels in the gradient of the file: 2\n" in printed


def test_the_entries_of_a_potential_are_its_derivatives(float64, tmp_path):
    potential = runpy.run_path(str(EXAMPLES / "forces" / "potential.py"))
    potential["save"](tmp_path / "potential.mlirbc")
    entries = pb.load(tmp_path / "potential.mlirbc").entries
    assert list(entries) == ["energy", "forces", "both", "virial", "hvp"]
    rng, energy = np.random.default_rng(0), potential["energy"]
    positions, direction = (rng.standard_normal((6, 3)) for _ in range(2))
    senders, receivers = np.asarray(list(itertools.permutations(range(6), 2)), np.int32).T
    left_over = np.zeros(18, np.int32)
    edges = *(np.append(each, left_over) for each in (senders, receivers)), np.zeros((48, 3))
    edges[2][30:] = 60.0

    def gradient(x):
        return jax.grad(energy)(x, *edges)

    def agrees(name, expected, *more):
        for x, y in zip(*map(jax.tree.leaves, (entries[name](positions, *edges, *more), expected))):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)

    agrees("energy", energy(positions, *edges))
    agrees("forces", -gradient(positions))
    agrees("both", (energy(positions, *edges), -gradient(positions)))

    def strained(strain):
        deform = np.eye(3) + strain
        return energy(positions @ deform, *edges[:2], edges[2] @ deform)

    agrees("virial", jax.grad(strained)(np.zeros((3, 3))))
    agrees("hvp", jax.jvp(gradient, (positions,), (direction,))[1], direction)


def test_the_entries_of_a_control_problem_are_its_derivatives(float64, tmp_path):
    problem = runpy.run_path(str(EXAMPLES / "optimal_control" / "problem.py"))
    problem["save"](tmp_path / "problem.mlirbc")
    entries = pb.load(tmp_path / "problem.mlirbc").entries
    names = ["objective", "gradient", "constraints", "jacobian", "hessian", "bounds", "guess"]
    assert list(entries) == names
    at_rest = np.asarray(entries["guess"]())
    multipliers = np.random.default_rng(0).standard_normal(len(entries["bounds"]()[0]))
    dense = {
        "gradient": (jax.grad(problem["objective"]), ()),
        "jacobian": (jax.jacfwd(problem["constraints"]), ()),
        "hessian": (jax.hessian(problem["lagrangian"]), (2.0, multipliers)),
    }
    for point in at_rest, at_rest + np.random.default_rng(1).standard_normal(at_rest.shape):
        for name, (derivative, more) in dense.items():
            found, pattern = np.asarray(entries[name](point, *more)), entries[name].pattern
            if pattern is not None:
                values, found = found, np.zeros(pattern.shape)
                found[pattern.rows, pattern.cols] = values
            expected = np.asarray(derivative(point, *more))
            assert np.all(np.isfinite(expected))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert entries["jacobian"].pattern.num_colors <= 6
    assert entries["hessian"].pattern.num_colors <= 2
