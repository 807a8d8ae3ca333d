"""Every rule, against finite differences and against JAX, first and second order, both modes."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.passes.manager import run_pipeline
from tests.rules import harness
from tests.rules.cases_chlo import RAGGED
from tests.rules.harness import Arrays, pairing
from tests.rules.record import Case

CASES = harness.all_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def close(found: Arrays, expected: Arrays, tolerance: float, what: str) -> None:
    """Equal up to `tolerance`, relative to the largest element of each array."""
    assert len(found) == len(expected), what
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape, f"{what} {i}"
        size = max(1.0, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * size, err_msg=what)


def adjoint(left: tuple[float, float], right: tuple[float, float], what: str) -> None:
    """Two pairings that must agree."""
    scale = max(1.0, left[1], right[1])
    assert abs(left[0] - right[0]) <= 1e-9 * scale, f"{what}: {left[0]} and {right[0]}"


@each_case
def test_rule(case: Case) -> None:
    """jvp, vjp, jvp of vjp and vjp of vjp of one op."""
    numbers = harness.evaluate(case)
    if case.jax_function is not None:
        tangents, cotangents, second = harness.jax_numbers(case, numbers)
        close(numbers.tangents, tangents, case.tolerance, "jvp and JAX's")
        close(numbers.cotangents, cotangents, case.tolerance, "vjp and JAX's")
        if case.second:
            close(numbers.second_cotangents, second, case.tolerance, "jvp of vjp and JAX's")
    if case.numeric:
        close(numbers.tangents, numbers.difference, 1e-6, "jvp and finite differences")
        adjoint(
            pairing(numbers.ct, numbers.tangents),
            pairing(numbers.cotangents, numbers.v),
            "vjp is not the transpose of jvp",
        )
    if case.numeric and case.second:
        check_second_order(numbers)


def check_second_order(numbers: harness.Numbers) -> None:
    """jvp of vjp by finite differences of vjp; vjp of vjp by transposition."""
    close(
        numbers.second_cotangents,
        numbers.second_difference,
        1e-6,
        "jvp of vjp and finite differences",
    )
    adjoint(
        pairing(
            [*numbers.w_outs, *numbers.w_cts],
            [*numbers.second_outs, *numbers.second_cotangents],
        ),
        pairing(numbers.twice, [*numbers.v, *numbers.dct]),
        "vjp of vjp is not the transpose of jvp of vjp",
    )


@each_case
def test_types(case: Case) -> None:
    """Derived IR verifies for narrower element types as well."""
    args = harness.sample(case, np.random.default_rng(0))
    for dtype in case.dtypes:
        harness.derive(*harness.narrowed(case, args, dtype))


def positions(case: Case) -> list[int]:
    """The arguments that have tangents."""
    args = harness.sample(case, np.random.default_rng(0))
    return [i for i, x in enumerate(args) if harness.inexact(x)]


@pytest.mark.parametrize(
    "case", [c for c in CASES if len(positions(c)) > 1], ids=lambda case: case.name
)
def test_each_operand_alone(case: Case) -> None:
    """There are derivatives by one operand where the others are constant, of second order too."""
    args = harness.sample(case, np.random.default_rng(0))
    for i in positions(case):
        for pipeline in (f"vjp{{wrt={i}}},jvp", f"jvp{{wrt={i}}},vjp") if case.second else ():
            module = harness.lower(case, args)
            run_pipeline(module, f"builtin.module({pipeline})")
            assert module.operation.verify()


def test_derivatives_of_a_ragged_product_have_its_precision() -> None:
    text = RAGGED.replace("precision DEFAULT", "precision HIGHEST")
    for pipeline in ("jvp", "vjp"):
        module = ir.Module.parse(text, _jax.context())
        run_pipeline(module, f"builtin.module({pipeline})")
        products = [line for line in str(module).splitlines() if "stablehlo.dot_general" in line]
        assert products
        assert all("precision = [HIGHEST, HIGHEST]" in line for line in products)
