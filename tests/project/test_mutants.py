"""The catalogue of mutants fits the sources; `make mutants` runs the tests on each."""

from pathlib import Path

import pytest

import pullback
from tests.mutants.catalogue import MUTANTS, Mutant

pytestmark = pytest.mark.whole

SOURCES = Path(pullback.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.file}: {m.old.split(chr(10))[0]}")
def test_each_changes_one_place(mutant: Mutant) -> None:
    assert (SOURCES / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.new != mutant.old


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 30
