"""Every op of StableHLO and CHLO has a rule or a reason why not, and every rule its tests."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from pullback import _jax
from pullback.autodiff import registry
from pullback.tools import rule_table
from tests.rules import harness
from tests.rules.record import Arg

pytestmark = pytest.mark.whole

registry.load_all()
ROOT = Path(__file__).resolve().parents[2]
DIALECTS = {"StableHLO": _jax.stablehlo, "CHLO": _jax.chlo}

# Tested where their passes are: tests/passes.
CONTROL = {
    *("func.call", "stablehlo.composite", "stablehlo.while", "stablehlo.if", "stablehlo.case"),
    *(f"pullback.{name}_call" for name in ("custom_jvp", "custom_vjp", "linear")),
    "checkpoint.saved",
}
# Run by programs of their own: on four devices, in test_refusals.py, and whole meshes.
ELSEWHERE = {
    *(f"stablehlo.{name}" for name in "all_gather all_reduce all_to_all reduce_scatter".split()),
    "stablehlo.collective_broadcast",
    "stablehlo.collective_permute",
    "stablehlo.dynamic_conv",
    "stablehlo.custom_call",
    "sdy.manual_computation",
}
# An annotation, and an old name of all_reduce that XLA no longer imports.
LIT_ONLY = {"sdy.sharding_constraint", "stablehlo.cross-replica-sum"}
IMPLICIT = {op for op in registry.RULES if op.startswith("chlo.broadcast_")}  # all made alike
RECORDED = sorted(set(registry.RULES) - CONTROL - ELSEWHERE - LIT_ONLY)

# Why records of an op lack a shape that others have.
NO_SCALARS = {
    "has a dimension to act along": (
        "chlo.ragged_dot chlo.top_k stablehlo.batch_norm_grad stablehlo.batch_norm_inference "
        "stablehlo.batch_norm_training stablehlo.cholesky stablehlo.concatenate "
        "stablehlo.convolution stablehlo.dot stablehlo.dynamic_gather stablehlo.fft "
        "stablehlo.set_dimension_size stablehlo.sort stablehlo.torch_index_select "
        "stablehlo.triangular_solve"
    ),
    "prints, without indices, as no parser reads it": (
        "stablehlo.dynamic_slice stablehlo.dynamic_update_slice"
    ),
}
NO_EMPTY = {
    "divides by the number of elements": (
        "stablehlo.batch_norm_grad stablehlo.batch_norm_inference stablehlo.batch_norm_training"
    ),
    "is not run by XLA without elements": (
        "chlo.ragged_dot stablehlo.async_done stablehlo.async_start"
    ),
}


def exempt(table: dict[str, str]) -> set[str]:
    return {op for ops in table.values() for op in ops.split()}


def shapes(op: str) -> set[tuple[int, ...]]:
    """The shapes of all float and complex arguments in an op's records."""
    return {
        arg.shape
        for case in harness.all_cases()
        if case.op.strip() == op
        for arg in case.args
        if isinstance(arg, Arg) or jnp.issubdtype(np.asarray(arg).dtype, jnp.inexact)
    }


@pytest.mark.parametrize("title", DIALECTS)
def test_every_op_has_a_rule_or_a_reason(title: str) -> None:
    known = {*registry.RULES, *registry.NONDIFFERENTIABLE, *rule_table.WITHOUT_RULE}
    assert [op for op in rule_table.op_names(DIALECTS[title], title) if op not in known] == []


def test_no_op_has_both_a_rule_and_a_reason() -> None:
    known = {*registry.RULES, *registry.NONDIFFERENTIABLE}
    assert known.isdisjoint(rule_table.WITHOUT_RULE)


@pytest.mark.parametrize("op", RECORDED)
def test_every_rule_has_records_of_several_shapes(op: str) -> None:
    """Of one without elements and one without dimensions too, unless there is a reason."""
    found = shapes(op)
    assert len(found) > 1, f"{op} has records of the shapes {found} only"
    assert any(0 in shape for shape in found) != (op in exempt(NO_EMPTY))
    assert (() in found) != (op in exempt(NO_SCALARS))


def test_what_has_no_records_is_tested_elsewhere() -> None:
    files = [*Path(__file__).parent.glob("*.py"), *(ROOT / "tests" / "passes").glob("*.py")]
    text = "\n".join(path.read_text() for path in files if path.name != Path(__file__).name)
    assert [op for op in ELSEWHERE if op not in text] == []


def test_every_rule_has_a_lit_file() -> None:
    files = (ROOT / "lit_tests" / "rules").glob("*/*.mlir")
    shown = {f"{path.parent.name}.{path.stem}" for path in files}
    names = {op.replace("-", "_") for op in registry.RULES}
    assert names - shown - CONTROL - IMPLICIT == set()
