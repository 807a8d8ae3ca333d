"""`make jax-tests`: what it makes of a log, and what it puts into a test file."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.jax_suite import functions, results
from tests.jax_suite.__main__ import run, run_and_report
from tests.jax_suite.catalogue import KNOWN, RUNS, Known, Run
from tests.jax_suite.functions import DERIVATIVES, MAPS
from tests.jax_suite.results import FAILED, PASSED, SKIPPED, UNFINISHED, Outcome
from tests.work import layers_of


def written(log: Path, *records: dict[str, object]) -> dict[str, Outcome]:
    for record in records:
        results.write(log, record)
    return results.read(log)


def ended(test: str, outcome: str, words: str = "", calls: int = 0) -> dict[str, object]:
    return {"test": test, "outcome": outcome, "words": words, "calls": calls}


def test_a_test_that_ends_its_process_has_failed(tmp_path: Path):
    log = tmp_path / "log"
    assert results.read(log) == {}
    found = written(log, {"begin": "a"}, ended("a", PASSED, calls=2), {"begin": "b"})
    assert found == {"a": Outcome(PASSED, "", 2), "b": Outcome(FAILED, UNFINISHED)}


def test_a_test_fails_with_any_of_its_parts(tmp_path: Path):
    parts = [ended("a", PASSED), ended("a", FAILED, "E   one"), ended("a", FAILED, "E   two")]
    found = written(tmp_path / "log", {"begin": "a"}, *parts)
    assert found["a"].status == FAILED
    assert found["a"].words.split() == ["E", "one", "E", "two"]
    assert found["a"].last_line() == "E   two"


def test_failures_are_held_against_the_catalogue(monkeypatch: pytest.MonkeyPatch):
    expected = Known("f.py::*::test_b", "JAX refuses", "not raised")
    mended = Known("f.py::*::test_a", "was wrong")
    elsewhere = Known("f.py::*::test_c", "of another mode", modes=(MAPS,))
    monkeypatch.setattr(results, "KNOWN", (expected, mended, elsewhere))
    outcomes = {
        "f.py::T::test_a": Outcome(PASSED, "", 1),
        "f.py::T::test_b": Outcome(FAILED, "E   TypeError not raised"),
        "f.py::U::test_b": Outcome(FAILED, "E   not equal"),
        "f.py::T::test_c": Outcome(FAILED, UNFINISHED),
        "f.py::T::test_d": Outcome(SKIPPED, ""),
    }
    found = results.judge(outcomes, DERIVATIVES)
    counts = "1 passed (1 with a call of ours), 2 failed, 1 known, 0 by JAX too, 1 skipped"
    assert found.counts() == counts
    assert set(found.failed) == {"f.py::U::test_b", "f.py::T::test_c"}
    assert found.known == {"f.py::T::test_b": expected}
    assert found.passing == [mended]


def test_what_fails_with_jax_as_well_is_not_ours():
    outcomes = {f"f.py::{name}": Outcome(FAILED, "E   ours") for name in "abc"}
    found = results.judge(outcomes, DERIVATIVES)
    found = found.beside({"f.py::a": Outcome(PASSED), "f.py::b": Outcome(FAILED, "E   JAX's")})
    assert set(found.failed) == {"f.py::a", "f.py::c"}
    assert found.by_jax == {"f.py::b": Outcome(FAILED, "E   ours")}


def test_what_is_known_is_of_files_that_run():
    planned = {(planned.file, planned.mode) for planned in RUNS}
    for known in KNOWN:
        file = known.tests.split("::")[0]
        assert {(file, mode) for mode in known.modes} <= planned


def test_a_file_has_ours_under_every_name_and_jax_keeps_its_own():
    module = types.ModuleType("test_file")
    module.__dict__.update(jax=jax, gradient=jax.grad, other=jax.jit)
    functions.put_into(module, DERIVATIVES)
    functions.calls.clear()
    assert module.jax.grad(module.gradient(module.jax.numpy.sin))(0.0) == 0.0
    assert functions.calls["ours"] > 0
    assert jax.grad is not module.gradient is module.jax.grad
    assert module.other is jax.jit


def test_jax_differentiates_what_cannot_be_traced():
    functions.calls.clear()
    branch = functions.OURS[DERIVATIVES]["grad"](lambda x: x * x if x > 0 else -x)
    assert branch(3.0) == 6.0
    assert functions.calls["by JAX"] == 1


def test_a_batch_is_made_in_the_ir():
    def runs_our_pass(call: Callable[[], object]) -> bool:
        return "VMap.run" in {name for _, name in layers_of(call).functions}

    xs = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    product = functions.mapped(lambda w, x: w * x, in_axes=[None, -1], out_axes=1)
    assert runs_our_pass(lambda: np.testing.assert_allclose(product(2.0, xs), 2 * xs))
    assert not runs_our_pass(lambda: jax.jit(product)(2.0, xs))  # but JAX's
    assert jax.jit(product)(2.0, xs).shape == (2, 3)


FILE = """
import os
import jax

def test_one(): assert jax.grad(jax.numpy.sin)(0.0) == 1
def test_two(): os._exit(3)
def test_three(): assert jax.grad(jax.numpy.sin)(0.0) == 2
"""


@pytest.mark.slow
def test_a_run_goes_on_behind_a_crash(tmp_path: Path):
    (tmp_path / "some_test.py").write_text(FILE)
    assert run(Run("some_test.py"), tmp_path, tmp_path / "log") == ""
    found = results.read(tmp_path / "log")
    assert [outcome.status for outcome in found.values()] == [PASSED, FAILED, FAILED]
    assert [outcome.calls for outcome in found.values()] == [1, 0, 1]
    assert run(Run("none.py"), tmp_path, tmp_path / "none").startswith("pytest ended with 4")


OF_BOTH = """
import jax

def test_of_jax(): assert jax.grad(jax.numpy.sin)(0.0) == 2
def test_of_ours(): assert "Push" not in repr(jax.linearize(jax.numpy.sin, 0.0)[1])
"""


@pytest.mark.slow
def test_what_fails_is_run_again_without_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "some_test.py").write_text(OF_BOTH)
    assert not run_and_report(Run("some_test.py"), tmp_path)
    said = capsys.readouterr().out
    assert "1 failed, 0 known, 1 by JAX too" in said
    assert "FAILED some_test.py::test_of_ours" in said
    assert "fails with JAX's own too: some_test.py::test_of_jax" in said
