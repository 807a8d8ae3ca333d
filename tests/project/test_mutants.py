"""The catalogue of mutants fits the sources; `make mutants` runs the tests on each."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import pullback
from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.places import Places, StaleError

pytestmark = pytest.mark.whole

SOURCES = Path(pullback.__file__).parent
TESTS = Path(__file__).parents[1]

MODULE = """
def scaled(x):
    \"\"\"Return 2 * x.\"\"\"
    factor = 2
    return factor * x


class Rule:
    def jvp(self, t):
        return self.scale * f(t, sign=-1)


HALF = 1 / 2
"""


@functools.cache
def places() -> Places:
    return Places(SOURCES)


@functools.cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS.parent / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.where} {m.old.split(chr(10))[0]}")
def test_each_changes_one_place(mutant: Mutant) -> None:
    place = places().find(mutant)
    text = (SOURCES / place.path).read_text()
    before, after = ast.parse(text), ast.parse(place.mutated(text, mutant.new))
    assert ast.dump(before) != ast.dump(after)


@pytest.mark.parametrize("test", sorted({test for mutant in MUTANTS for test in mutant.tests}))
def test_each_names_tests_that_are_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert not name or name.split("[")[0] in names_in(file)


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 200


def mutated(tmp_path: Path, where: str, old: str, new: str, text: str = MODULE) -> str:
    (tmp_path / "rules").mkdir(exist_ok=True)
    path = tmp_path / "rules" / "scale.py"
    path.write_text(text)
    place = Places(tmp_path).find(Mutant(where, old, new, ()))
    assert tmp_path / place.path == path
    return place.mutated(text, new)


@pytest.mark.parametrize(
    ("where", "old", "new", "found", "replaced"),
    [
        ("rules.scale:scaled", "factor * x", "x", "factor * x", "(x)"),
        ("elsewhere:scaled", "factor*x", "x", "factor * x", "(x)"),
        (
            "rules.scale:scaled",
            "factor = 2",
            "a = 1\nfactor = a",
            "factor = 2",
            "a = 1\n    factor = a",
        ),
        ("rules.scale:scaled", "return ...", "pass", "return factor * x", "pass"),
        ("rules.scale:Rule.jvp", "sign=-1", "sign=1", "sign=-1", "sign=1"),
        ("rules.scale:", "1 / 2", "2", "1 / 2", "(2)"),
    ],
)
def test_a_place_is_found_by_function_and_syntax(
    tmp_path: Path, where: str, old: str, new: str, found: str, replaced: str
) -> None:
    assert mutated(tmp_path, where, old, new) == MODULE.replace(found, replaced)
    other = MODULE.replace("Return 2 * x.", "Say it in other words: é.").replace("HALF", "ONE_HALF")
    assert mutated(tmp_path, where, old, new, other) == other.replace(found, replaced)


@pytest.mark.parametrize(
    ("where", "old", "words"),
    [
        ("rules.scale:scaled", "factor * y", "has no `factor * y`; most like it is `factor * x`"),
        (
            "rules.scale:double",
            "factor * x",
            "is in rules.scale:scaled, and not in rules.scale:double",
        ),
        ("rules.scale:double", "factor * y", "there is no rules.scale:double"),
        ("rules.scale:scaled", "factor", "has 2 times `factor`"),
    ],
)
def test_what_is_stale_is_named(tmp_path: Path, where: str, old: str, words: str) -> None:
    with pytest.raises(StaleError) as error:
        mutated(tmp_path, where, old, "x")
    assert words in str(error.value)
