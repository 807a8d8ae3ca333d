"""`jax.scipy.special` and `jax.scipy.stats`: derivatives beside JAX's, in memory and from files."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import pullback as pb
from tests.conformance import special_functions
from tests.conformance.comparison import EQUAL, NOTHING, STAGES, compare

NAMES = sorted(special_functions.functions())


def of_file(path: Path) -> Callable[..., Any]:
    """Reads a program from a file, which it writes first."""

    def trace(function: Callable[..., Any]) -> Callable[..., Any]:
        def read(*leaves: Any) -> pb.Program:
            pb.trace(function)(*leaves).save(path)
            return pb.load(path)

        return read

    return trace


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_from_a_file(name: str, dtype: str, tmp_path: Path) -> None:
    with jax.enable_x64(dtype == "float64"):
        case = special_functions.case(name, dtype)
        verdicts = compare(case, of_file(tmp_path / "saved.mlirbc"), (*STAGES, "second"))
    for stage, verdict in verdicts.items():
        if verdict.status not in (EQUAL, NOTHING):
            known = [k for k in special_functions.KNOWN if fnmatch.fnmatchcase(name, k.cases)]
            assert any(
                stage in k.stages and verdict.status == k.status and k.words in verdict.reason
                for k in known
            ), f"{stage}: {verdict.status}: {verdict.reason}"


WITHOUT = [
    (name, i, words)
    for pattern, where, words in special_functions.WITHOUT
    for name in fnmatch.filter(NAMES, pattern)
    for i in where
]


@pytest.mark.parametrize(("name", "i", "words"), WITHOUT)
def test_jax_does_not_differentiate_by(name: str, i: int, words: str) -> None:
    function, numbers = special_functions.call(name)
    args = special_functions.arrays(numbers, "float32")

    def of_one(x: Any) -> Any:
        return function(*args[:i], x, *args[i + 1 :])

    with pytest.raises((TypeError, ValueError), match=words):
        jax.jvp(of_one, (args[i],), (args[i],))
