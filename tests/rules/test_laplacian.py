"""Laplacians of every rule, against Taylor mode along each coordinate direction."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.errors import MissingRuleError
from pullback.passes.manager import run_pipeline
from tests.rules import harness
from tests.rules.record import Case
from tests.rules.test_jet import NARROW
from tests.rules.test_rules import close

REFUSED = {
    f"stablehlo.{name}": why
    for name, why in {
        "tuple": "in a Laplacian",
        "get_tuple_element": "in a Laplacian",
        "async_start": "in a Laplacian",
        "async_done": "in a Laplacian",
        "set_dimension_size": "no batching rule",
    }.items()
}


def basis(args, moving):
    """For each argument that moves, its part of each row of the identity."""
    sizes = [np.size(x) if m else 0 for x, m in zip(args, moving, strict=True)]
    parts = np.split(np.eye(sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
    pairs = zip(args, moving, parts, strict=True)
    return [np.reshape(p, (len(p), *np.shape(x))).astype(x.dtype) for x, m, p in pairs if m]


@pytest.mark.parametrize(
    "case", [c for c in harness.all_cases() if c.second], ids=lambda case: case.name
)
def test_it_is_the_sum_of_second_terms(case: Case) -> None:
    args = harness.sample(case, np.random.default_rng(3))
    if case.op in REFUSED:
        module = harness.lower(case, args)
        harness.copy_function(module, "f")
        with pytest.raises(MissingRuleError, match=REFUSED[case.op]):
            run_pipeline(module, "laplacian{entry=f}")
        return
    if any(np.iscomplexobj(x) for x in args):
        pytest.skip("complex arguments have no Laplacian")
    moving = [harness.inexact(x) for x in args]
    rows = basis(args, moving)
    module = harness.lower(case, args)
    for name in ("f", "f_laplacian", "f_jet"):
        harness.copy_function(module, name)
    axes = ["none"] * len(args) + ["0", "none"] * sum(moving)
    size = sum(np.size(x) for x, m in zip(args, moving, strict=True) if m)
    passes = ["laplacian{entry=f_laplacian}", "jet{entry=f_jet order=2}"]
    passes.append(f"vmap{{entry=f_jet size={size} in-axes={','.join(axes)}}}")
    run_pipeline(module, f"builtin.module({','.join(passes)})")
    assert module.operation.verify()
    given = [t for row in rows for t in (row, np.zeros(row.shape[1:], row.dtype))]
    calls = [("f_laplacian", args), ("f_jet", [*args, *given])]
    found, expected = harness.Program(calls, case.rewrite or (lambda text: text)).run(module)
    outs = harness.output_shapes(module)
    seconds = [np.sum(t, 0) for t in expected[len(outs) + 1 :: 2]]
    tolerance = NARROW.get(case.op, NARROW.get(case.name, max(case.tolerance, 1e-9)))
    close(found[len(outs) :], seconds, tolerance, "Laplacian")
