"""The report of benchmarks: what it says of samples, and the page that is made of it."""

from __future__ import annotations

import importlib
import json
import statistics
from pathlib import Path

import click
import pytest

pytestmark = pytest.mark.whole

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(
    p.stem for p in FOLDER.glob("*.py") if p.stem not in ("programs", "report", "rows")
)


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_a_row_has_the_median_and_the_quartiles_of_its_ratios(module):
    row = module("rows").Row("a", [1.0, 2.0, 9.0], [2.0, 2.0, 3.0], aim=1.5).summary()
    assert (row["ours"], row["theirs"], row["ratio"]) == (2.0, 2.0, 1.0)
    assert [row["low"], row["high"]] == statistics.quantiles([0.5, 1, 3], n=4, method="inclusive")[
        ::2
    ]


def test_samples_are_taken_in_turn(module):
    calls = []
    ours, theirs = module("rows").in_turn(lambda: calls.append(0), lambda: calls.append(1), 3)
    assert calls == [1, 0, 0, 1, 1, 0, 0, 1]
    assert len(ours) == len(theirs) == 3


def test_three_begin_in_turn(module):
    calls = []
    times = module("rows").in_rotation([lambda i=i: calls.append(i) for i in range(3)], 2)
    assert calls == [1, 2, 0, 2, 0, 1, 0, 1, 2]
    assert list(map(len, times)) == [2, 2, 2]


def test_the_means_are_those_of_families(module):
    rows = [{"family": f, "ratio": r} for f, r in (("a", 1), ("a", 4), ("b", 7), ("", 3), ("", 3))]
    assert module("rows").means(rows) == {"a": 2.0}


@pytest.mark.parametrize(
    ("before", "after", "mark"),
    [
        ((0.9, 1.0, 1.1), (1.2, 1.3, 1.4), "SLOWER"),
        ((0.9, 1.0, 1.1), (0.7, 0.8, 0.85), "faster"),
        ((0.9, 1.0, 1.1), (1.0, 1.3, 1.4), ""),
        ((1.0, 1.0, 1.0), (1.01, 1.01, 1.01), ""),
    ],
)
def test_what_moved_beyond_the_quartiles_is_marked(module, before, after, mark):
    line = module("report").moved("a row", before, after)
    assert line.split()[5:] == mark.split()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_has_a_section_and_leaves_out_what_nobody_wants(module, name):
    assert name in module("report").SCRIPTS
    assert list(module(name).rows(1, lambda _: False)) == []


def test_the_page_is_made_of_the_results(module):
    report = module("report")
    results = json.loads(report.RESULTS.read_text())
    assert report.PAGE.read_text() == report.text_of(results)
    assert set(SCRIPTS) <= set(results["benchmarks"]) <= set(report.SCRIPTS)


def test_what_takes_over_a_tenth_more_is_on_the_page(module):
    report = module("report")
    results = json.loads(report.RESULTS.read_text())
    for name, rows in results["benchmarks"].items():
        shown = "\n\n".join(report.parts(name, results))
        assert f"\n\n{shown}\n" in report.PAGE.read_text()
        more = [row for row in rows if row["ratio"] > 1.1]
        left = [row for row in more if f"{row['name']} {report.ratio(row)}" in shown]
        assert shown.count("**") == 2 * (len(more) - len(left))


def test_a_table_has_a_row_for_each_program_and_a_column_for_what_is_measured(module):
    numbers = {"peer": "JAX", "ratio": 1.2, "theirs": 1.0, "family": ""}
    rows = [
        {"name": "f", "ours": 1234.5, "unit": "ms", **numbers},
        {"name": "f: temporaries", "ours": 1234.5, "unit": "kB", **numbers, "ratio": 0.5},
        {"name": "g: temporaries", "ours": 12.34, "unit": "kB", **numbers, "ratio": 12.34},
    ]
    table, _ = module("report").parts("run", {"benchmarks": {"run": rows}})
    assert table.splitlines() == [
        "| | run time, ms | temporaries, MB |",
        "|---|---|---|",
        "| f | 1234, **1.20** | 1.23, 0.50 |",
        "| g |  | 0.0123, **12.3** |",
    ]


def test_what_needs_a_peer_or_a_gpu_runs_by_its_name_and_is_kept(module, tmp_path, monkeypatch):
    report, output = module("report"), tmp_path / "results.json"
    now = {}
    monkeypatch.setattr(report, "rows_of", lambda name, _: [{"name": f"{name} {now['commit']}"}])
    monkeypatch.setattr(report, "here", now.copy)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    for now["commit"], only in (("a", []), ("b", ["--only", "peers"]), ("c", [])):
        report.run.main([*only, "-o", str(output)], standalone_mode=False)
    results = json.loads(output.read_text())
    assert (results["commit"], results["apart"]) == ("c", {"peers": {"commit": "b"}})
    assert results["benchmarks"]["peers"] == [{"name": "peers b"}]
    assert results["benchmarks"]["run"] == [{"name": "run c"}]
    assert "gpu" not in results["benchmarks"]
    with pytest.raises(click.ClickException, match="JAX's default device is no GPU"):
        report.run.main(["--only", "gpu", "-o", str(output)], standalone_mode=False)


def test_results_are_written_with_one_row_a_line(module):
    results = {"commit": "abc", "benchmarks": {"run": [{"name": "a"}, {"name": "b"}], "load": []}}
    text = module("report").as_json(results)
    assert json.loads(text) == results
    assert [line for line in text.splitlines() if "name" in line] == [
        '   {"name": "a"},',
        '   {"name": "b"}',
    ]


def test_a_commit_has_one_line_in_the_history_with_the_ratios_of_its_rows(
    module, tmp_path, monkeypatch
):
    report = module("report")
    monkeypatch.setattr(report, "HISTORY", tmp_path / "history.jsonl")
    for commit, ratio in (("a", 1.0), ("b", 2.0), ("b", 0.5)):
        rows = [{"name": "f", "ratio": ratio}]
        found = {"run": rows, "peers": rows}
        report.remember({"commit": commit, "versions": {"jax": "0"}, "benchmarks": found})
    assert report.history() == [
        {"commit": "a", "jax": "0", "ratios": {"run": {"f": 1.0}, "peers": {}}},
        {"commit": "b", "jax": "0", "ratios": {"run": {"f": 0.5}, "peers": {}}},
    ]
