"""Ops of StableHLO and CHLO, those too that JAX never writes, as functions of JAX."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import pullback as pb
from pullback.errors import NoJaxCounterpartError
from tests.rules import harness

CASES = [c for c in harness.all_cases() if isinstance(c.function, str) and c.reference is not None]
REFUSED = {
    "stablehlo.async_done",
    "stablehlo.async_start",
    "stablehlo.set_dimension_size",
}
"""Ops that JAX has no counterpart for."""

PARTS = (
    "with indices that have no components",
    "with a body that is no sum, product, minimum, maximum or replacement",
    "with bodies other than GE or LE, and a sum",
)
"""Forms of other ops that JAX has no counterpart for."""

NO_TANGENTS = {
    "chlo.broadcast_next_after",
    "chlo.broadcast_zeta",
    "stablehlo.reduce_window-maximum_from",
    "stablehlo.reduce_window-sum_from",
}
"""Records of which JAX itself has no forward mode."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_and_tangents_are_those_of_the_reference(case):
    rng = np.random.default_rng(0)
    args = harness.sample(case, rng)
    program = pb.load(case.function.encode())
    try:
        function = program.as_jax()
    except NoJaxCounterpartError as error:
        if case.op in REFUSED or error.message.endswith(PARTS):
            return
        raise
    moving = [i for i, x in enumerate(args) if harness.inexact(x)]

    def of(f, *values):
        full = list(args)
        for i, v in zip(moving, values):
            full[i] = v
        return [x for x in jax.tree.leaves(f(*full)) if harness.inexact(x)]

    primals = [args[i] for i in moving]
    pairs = zip(of(function, *primals), of(case.reference, *primals), strict=True)
    if case.against_jax and case.name not in NO_TANGENTS:
        tangents = [harness.direction(x, rng) for x in primals]
        found, expected = (
            jax.jit(lambda p, t, f=f: jax.jvp(lambda *v: of(f, *v), p, t)[1])(primals, tangents)
            for f in (function, case.reference)
        )
        pairs = (*pairs, *zip(found, expected, strict=True))
    for x, y in pairs:
        np.testing.assert_allclose(x, y, case.tolerance, case.tolerance)
