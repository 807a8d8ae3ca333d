"""JAX's own corpus through `program.as_jax()`, and in Taylor mode, of which `make` takes all."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.conformance.comparison import DIFFERS, EQUAL, FAILS, compare
from tests.conformance.exceptions import OF_WAYS, explanation
from tests.conformance.harnesses import Case, sample
from tests.conformance.through_jax import WAYS

SAMPLE = sample(per_primitive=1, share=0)
CASES = [
    (name, way)
    for way, first in (("jax", 0), ("module", 5), ("jet", 2))
    for name in list(SAMPLE)[first::12]
]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_equal_to_jax_or_different_for_a_known_reason(name: str, way: str) -> None:
    with jax.enable_x64(False):  # as the corpus was made
        verdicts = compare(SAMPLE[name], *WAYS[way])
    for stage, verdict in verdicts.items():
        known = explanation(name, stage, verdict, OF_WAYS[way])
        assert known is not None, f"{stage}: {verdict.status}: {verdict.reason}"
    assert way == "jet" or verdicts["import"].status != FAILS


def test_taylor_mode_is_compared_in_64_bits_where_narrow_types_round():
    cases = sample(per_primitive=9, share=0)
    with jax.enable_x64(False):
        verdict = compare(cases["log_shape_float16_20_20_"], *WAYS["jet"])["jet"]
    assert verdict.status == EQUAL
    assert verdict.reason.startswith("in 64 bits; ")


def test_a_difference_in_taylor_mode_is_seen():
    @jax.custom_jvp
    def changing(x):
        return x * x

    asked = []

    @changing.defjvp
    def _(primals, tangents):
        asked.append(primals)
        return changing(*primals), tangents[0] * primals[0] * len(asked)

    case = Case("changing", "mul", changing, lambda: (np.float32([1, 2]),))
    assert compare(case, *WAYS["jet"])["jet"].status == DIFFERS
