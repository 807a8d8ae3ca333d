"""Records of elementwise ops, shapes, reductions and products."""

from __future__ import annotations

from jax import lax

from tests.rules.record import Case, real

CASES = [
    Case("stablehlo.sine", lambda *xs: [lax.sin(x) for x in xs], [real(2, 3), real(), real(0, 2)]),
]
