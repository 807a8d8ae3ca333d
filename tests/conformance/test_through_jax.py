"""JAX's own corpus through `program.as_jax()`; `make as-jax` compares all of it."""

from __future__ import annotations

import jax
import pytest

from tests.conformance.comparison import FAILS, compare
from tests.conformance.exceptions import THROUGH_JAX, explanation
from tests.conformance.harnesses import sample
from tests.conformance.through_jax import WAYS

SAMPLE = sample(per_primitive=1, share=0)
CASES = [
    (name, way) for way, first in (("jax", 0), ("module", 5)) for name in list(SAMPLE)[first::12]
]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_equal_to_jax_or_different_for_a_known_reason(name: str, way: str) -> None:
    with jax.enable_x64(False):  # as the corpus was made
        verdicts = compare(SAMPLE[name], WAYS[way])
    for stage, verdict in verdicts.items():
        known = explanation(name, stage, verdict, THROUGH_JAX)
        assert known is not None, f"{stage}: {verdict.status}: {verdict.reason}"
    assert verdicts["import"].status != FAILS
