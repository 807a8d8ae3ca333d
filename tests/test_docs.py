"""The pages of docs/: each is linked from the index, and each error has its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pullback import _errors as compiler_errors
from pullback.artifact import errors as artifact_errors
from pullback_runtime import _container as container, _errors as runtime_errors

DOCS = Path(__file__).parents[1] / "docs"
MODULES = (compiler_errors, artifact_errors, runtime_errors, container)
BASES = (compiler_errors.PullbackError, runtime_errors.PullbackRuntimeError)
CLASSES = {
    name
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, BASES)
}


def test_every_error_has_a_cause_an_example_and_a_remedy():
    rows = [line.split(" | ") for line in (DOCS / "errors.md").read_text().splitlines()]
    listed = {row[0].strip("| `"): row for row in rows if row[0].startswith("| `")}
    assert set(listed) == CLASSES
    assert {name for name, row in listed.items() if len(row) != 4 or not all(row)} == set()


def test_the_index_names_every_page():
    linked = set(re.findall(r"\]\((\w+\.md)\)", (DOCS / "index.md").read_text()))
    assert linked == {page.name for page in DOCS.glob("*.md")} - {"index.md"}


@pytest.mark.parametrize(
    "name", ["rules/composite/Inputs/acme_rules.py", "passes/vmap/Inputs/acme_batches.py"]
)
def test_the_examples_of_rules_are_those_that_lit_runs(name: str):
    example = DOCS.parent / "lit_tests" / name
    assert f"```python\n{example.read_text()}```" in (DOCS / "extending.md").read_text()


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_to_files(page: Path):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (DOCS / link).exists()] == []


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S)


@pytest.mark.parametrize("code", [*blocks("api.md"), *blocks("known_jax_faults.md")])
def test_the_examples_run(code: str, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "a page of docs", "exec"), {})


def test_the_tutorial_is_one_program_that_prints_what_it_shows(capsys, monkeypatch, tmp_path):
    page = (DOCS / "tutorial.md").read_text()
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.S))
    exec(compile(code, "tutorial.md", "exec"), {})
    printed = capsys.readouterr().out
    every = re.findall(r"```python\n[^`]*```\n\n```(?:mlir)?\n(.*?)```", page, re.S)
    assert len(every) == code.count("print(") > 0
    for shown in every:
        place = 0
        for line in shown.splitlines():
            assert line in printed[place:], line
            place = printed.index(line, place) + len(line)
