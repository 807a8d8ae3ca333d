"""Taylor mode of every rule, of order 3, against forward mode applied three times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pullback.passes.manager import run_pipeline
from tests.rules import harness
from tests.rules.record import Case
from tests.rules.test_rules import close

ORDER = 3
NARROW = {"stablehlo.reduce_precision": 1e-2, "stablehlo.convert": 1e-6}
NARROW["stablehlo.dot_general-wider-result"] = 1e-6
"""Tolerances of cases that compute in narrower types than 64 bits."""

IN_ANY_ORDER = "stablehlo.reduce-in-index-order"
"""The case whose value is of the order that XLA reduces in, which it chooses for each module."""


def nested(moving: Sequence[bool], order: int) -> list[tuple[int, int]]:
    """The order of the derivative, and the position of the value, of each tangent of tangents."""
    found = [(0, i) for i in range(len(moving))]
    for _ in range(order):
        found += [(k + 1, i) for k, i in found if moving[i]]
    return found


@pytest.mark.parametrize("case", harness.all_cases(), ids=lambda case: case.name)
def test_terms_are_those_of_nested_forward_mode(case: Case) -> None:
    rng = np.random.default_rng(3)
    args = harness.sample(case, rng)
    module = harness.lower(case, args)
    for name in ("f", "f_jet", "f_nested"):
        harness.copy_function(module, name)
    order = ORDER if case.second else 1
    passes = [f"jet{{entry=f_jet order={order}}}", *["jvp{entry=f_nested}"] * order]
    run_pipeline(module, f"builtin.module({','.join(passes)})")
    assert module.operation.verify()
    moving = [harness.inexact(x) for x in args]
    rows = [
        [harness.direction(x, rng) for _ in range(order)] if m else []
        for x, m in zip(args, moving, strict=True)
    ]
    given = [[x, *row] for x, row in zip(args, rows, strict=True)]
    calls = [
        ("f_jet", [*args, *(t for row in rows for t in row)]),
        ("f_nested", [given[i][k] for k, i in nested(moving, order)]),
    ]
    found, expected = harness.Program(calls, case.rewrite or (lambda text: text)).run(module)
    outs = harness.output_shapes(module)
    floats = [harness.inexact(y) for y in outs]
    tolerance = NARROW.get(case.op, NARROW.get(case.name, max(case.tolerance, 1e-9)))
    rest = iter(found[len(outs) :])
    series = [
        [y, *(next(rest) for _ in range(order))] if m else [y]
        for y, m in zip(found, floats, strict=False)
    ]
    for (k, i), y in zip(nested(floats, order), expected, strict=True):
        if (k, case.name) == (0, IN_ANY_ORDER):
            continue
        close([series[i][k]], [y], tolerance, f"derivative {k} of result {i}")
