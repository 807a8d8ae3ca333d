"""An error in the middle of a pass: it is shown, and the module that is half done goes safely."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import pullback as pb
from pullback._jax import ir
from tests.passes.programs import WS, XS, nested


def unbounded(ws, x):
    grown = lax.while_loop(lambda y: jnp.sum(y) < 30, lambda y: y * 2 + jnp.sin(y), x)
    return jnp.sum(jax.checkpoint(jax.jit(lambda x: jnp.sin(x @ ws)))(grown))


def solved(ws, x):
    matrix = ws @ ws.T + 5 * jnp.eye(4)
    return jnp.linalg.solve(matrix, x) @ jnp.sort(x) + jnp.prod(jnp.cumsum(x))


class Failure(Exception):
    pass


class Failing:
    """Counts the ops that are created, and raises at one of them."""

    def __init__(self, monkeypatch):
        self.count, self.last = 0, None
        create = ir.Operation.create

        def counted(*args, **kwargs):
            self.count += 1
            if self.count == self.last:
                raise Failure
            return create(*args, **kwargs)

        monkeypatch.setattr(ir.Operation, "create", staticmethod(counted))

    def run(self, derive, last=None):
        self.count, self.last = 0, last
        derive()


@pytest.mark.parametrize("mode", ["grad", "jvp", "linearize", "vmap"])
@pytest.mark.parametrize("f", [nested, unbounded, solved])
def test_a_pass_may_fail_at_any_op(f, mode, monkeypatch):
    """The process ended, soon or later: what was erased was used still, or used what had gone."""
    program = pb.trace(f)(WS, XS)
    options = {"in_axes": (None, 0), "axis_size": 3} if mode == "vmap" else {}

    def derive():
        getattr(program, mode)(**options)

    failing = Failing(monkeypatch)
    failing.run(derive)  # rules are staged now
    failing.run(derive)
    total = failing.count
    for last in range(1, total + 1, max(1, total // 20)):
        with pytest.raises(Failure):
            failing.run(derive, last)
        gc.collect(0)
    failing.run(derive)
    assert failing.count == total
