"""The examples agree with JAX where it can, and with finite differences where it cannot."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import runpy

import jax
import numpy as np
import pytest

import pullback as pb

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


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


def test_rules_of_kernels_are_those_that_are_derived(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "attention_kernels.py"), run_name="__main__")
    printed = capsys.readouterr().out
    errors = re.findall(r"differs by (\S+) from", printed)
    assert len(errors) == 3
    assert max(map(float, errors)) < 1e-5
    assert "kernels in the gradient of the file: 2\n" in printed
