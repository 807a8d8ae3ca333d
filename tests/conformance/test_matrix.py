"""The table of `make matrix`, beside what `make conformance` writes on the same page."""

from __future__ import annotations

from tests.conformance import matrix, report


def test_a_row_for_each_jax_and_a_line_for_each_failure():
    suites = {"special functions": {"cases": 7, "failed": ["test_of[gamma]"]}}
    found = {"commit": "abc", "python": "3.13.0", "suites": suites}
    lines = matrix.table({"0.11.0": found, "0.12.0": {**found, "suites": {}}}).splitlines()
    assert "| 0.11.0 | 3.13.0 |  |  | 7 |  | 1 | `abc` |" in lines
    assert "| 0.12.0 | 3.13.0 |  |  |  |  | 0 | `abc` |" in lines
    assert lines[-1] == "- jax 0.11.0: `test_of[gamma]`"


def test_a_table_takes_the_place_of_the_last_one():
    page = report.with_each_jax(report.with_each_jax("# Page\n", "one\n"), "two\n")
    assert page == "# Page\n\n## Each JAX\ntwo\n"


def test_cases_and_failures_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "RUNS", tmp_path)
    cases = "import pytest\n\ndef test_good():\n    pass\n\ndef test_bad():\n    assert 0\n"
    cases += "\ndef test_skipped():\n    pytest.skip('not here')\n"
    (tmp_path / "test_cases.py").write_text(cases)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    found = matrix.pytest((str(tmp_path / "test_cases.py"),), 0)
    assert found == {"cases": 2, "failed": ["test_bad"]}
