"""JAX's own corpus once more, through files that `jax.export` writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

from tests.conformance.comparison import compare
from tests.conformance.exceptions import EXCEPTIONS, IN_FILES, explanation
from tests.conformance.harnesses import sample
from tests.files.models import of_export

SAMPLE = sample(per_primitive=1, share=0.02)


def of_file(function: Callable[..., Any]) -> Callable[..., Any]:
    """The program that is read from an export."""
    return lambda *leaves: of_export(function, *leaves)


@pytest.mark.parametrize("name", SAMPLE)
def test_equal_to_jax_or_different_for_a_known_reason(name: str) -> None:
    with jax.enable_x64(False):  # as the corpus was made
        try:
            verdicts = compare(SAMPLE[name], of_file)
        except TypeError as error:  # of JAX, when it lowers what it has traced
            pytest.skip(str(error).partition("\n")[0])
    for stage, verdict in verdicts.items():
        known = explanation(name, stage, verdict, (*EXCEPTIONS, *IN_FILES))
        assert known is not None, f"{stage}: {verdict.status}: {verdict.reason}"
