"""The pages of docs/: each is linked from the index, and each error has its line."""

from __future__ import annotations

import ast
import contextlib
import io
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import pullback
import pullback_runtime
from pullback import errors as compiler_errors
from pullback.files import errors as artifact_errors
from pullback_cli import main
from pullback_runtime import _container as container, _errors as runtime_errors

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
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


def test_the_navigation_names_every_page():
    named = set(re.findall(r"\b(\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert {page.name for page in DOCS.glob("*.md")} - named == set()


@pytest.mark.parametrize(
    "name", ["rules/composite/Inputs/acme_rules.py", "passes/vmap/Inputs/acme_batches.py"]
)
def test_the_examples_of_rules_are_those_that_lit_runs(name: str):
    example = DOCS.parent / "lit_tests" / name
    assert f"```python\n{example.read_text()}```" in (DOCS / "extending.md").read_text()


PAGES = {
    page.name: page.read_text() for page in [*sorted(DOCS.glob("*.md")), *sorted(ROOT.glob("*.md"))]
}
MADE_BY_THE_SITE = {"rules.md"}
ROOT_PAGES = {page.name for page in ROOT.glob("*.md")}


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in plain}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings(name: str):
    folder = ROOT if name in ROOT_PAGES else DOCS
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(PAGES[name])):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        page = (folder / target).resolve() if target else folder / name
        if page.name in MADE_BY_THE_SITE:  # `make docs` checks these
            continue
        assert page.exists(), link
        assert not anchor or anchor in anchors(page.read_text()), link


def test_the_reference_has_every_public_name():
    pages = "".join(page.read_text() for page in DOCS.glob("reference*.md"))
    shown = set(re.findall(r"^::: (\S+)$", pages, re.M))
    names = {f"pullback.{name}" for name in pullback.__all__}
    names |= {f"pullback_runtime.{name}" for name in pullback_runtime.__all__}
    elsewhere = {"__version__", "closure_convert", "custom_gradient", "linear_call", "testing"}
    elsewhere |= set(re.findall(r"`(\w+(?:Error|Warning|Version))`", PAGES["errors.md"]))
    assert {name for name in names - shown if name.rpartition(".")[2] not in elsewhere} == set()


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S)


@pytest.mark.parametrize("code", blocks("known_jax_faults.md"))
def test_the_examples_run(code: str, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "a page of docs", "exec"), {})


class Claims(ast.NodeTransformer):
    """Turn each expression with a comment behind it into a check of what the comment says."""

    def __init__(self, code: str):
        self.lines = code.splitlines()

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        said = self.lines[node.end_lineno - 1][node.end_col_offset :].strip()
        if not said:
            return node
        call = ast.parse(f"holds(lambda: 0, {said.removeprefix('# ')!r})").body[0]
        call.value.args[0].body = node.value
        return ast.copy_location(call, node)


def run_claims(code: str, names: dict[str, Any]) -> None:
    """Run a block; behind a line stands its value, `# raises Error: words` or `# warns Class`."""

    def holds(run: Callable[[], Any], said: str) -> None:
        how, _, rest = said.partition(" ")
        kind, _, words = rest.partition(": ")
        if how == "raises":
            with pytest.raises(Exception, match=re.escape(words) or None) as caught:
                run()
            assert kind in {each.__name__ for each in type(caught.value).__mro__}, caught.value
        elif how == "warns":
            with pytest.warns() as warned:
                run()
            assert kind in {each.category.__name__ for each in warned}
        else:
            expected = eval(said, names, {"nan": np.nan, "inf": np.inf})
            leaves = np.concatenate([np.ravel(each) for each in jax.tree.leaves(run())])
            wanted = np.concatenate([np.ravel(each) for each in jax.tree.leaves(expected)])
            np.testing.assert_allclose(leaves, wanted, rtol=1e-3, atol=1e-6)

    tree = ast.fix_missing_locations(Claims(code).visit(ast.parse(code)))
    names["holds"] = holds
    exec(compile(tree, "a page of docs", "exec"), names)


def claims(page: str) -> Iterator[Any]:
    """The blocks of a page by their headings, each with the imports that the first block has."""
    imports, *_ = blocks(page)
    for section in re.split(r"^(?=##+ )", (DOCS / page).read_text(), flags=re.M)[1:]:
        heading = section.splitlines()[0].lstrip("# ")
        for code in re.findall(r"```python\n(.*?)```", section, re.S):
            yield pytest.param(imports, code, id=f"{page}: {heading}")


@pytest.mark.parametrize(("imports", "code"), [*claims("api.md"), *claims("differences.md")])
def test_what_the_comments_say_holds(imports: str, code: str, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "a page of docs"}
    exec(imports, names)
    run_claims(code, names)


def test_each_difference_says_what_each_does_and_what_to_do():
    page = (DOCS / "differences.md").read_text()
    for section in re.split(r"^### ", page, flags=re.M)[1:]:
        who = re.findall(r"^- \*\*(\w+)\*\*", section, re.M)
        assert who == ["JAX", "pullback", "Do"], section.splitlines()[0]


@pytest.mark.parametrize(
    "said", ["3.0", "raises ValueError", "raises TypeError: other", "[2.0, 2.0]"]
)
def test_a_false_claim_is_noticed(said: str):
    with pytest.raises((AssertionError, pytest.fail.Exception, ValueError)):
        run_claims(f"1.0 + 1.0  # {said}", {})


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


def test_the_page_on_forces_is_one_program(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / "forces.md").read_text(), re.S))
    names: dict[str, Any] = {}
    exec(compile(code, "forces.md", "exec"), names)
    assert names["forces"](names["positions"]).shape == (4, 3)
    assert (tmp_path / "potential.mlirbc").exists()


def printed(language: str, code: str, names: dict[str, Any], output: str = "stdout") -> str:
    """What a block of Python prints, or a `pullback` command; its errors too as `output`."""
    if language == "sh":
        return getattr(CliRunner().invoke(main, shlex.split(code)[1:]), output)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "a page of docs", "exec"), names)
    return out.getvalue()


def test_the_section_on_entries_prints_what_it_shows(monkeypatch, tmp_path):
    page = (DOCS / "artifact.md").read_text()
    section = page.partition("## Several entries\n")[2].partition("\n## ")[0]
    model, *_ = re.findall(r"```python\n(.*?)```", section, re.S)
    (tmp_path / "model.py").write_text(model)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    names = {"pb": pullback, "pullback_runtime": pullback_runtime, "Path": Path}
    shown = re.findall(r"```(python|sh)\n([^`]*)```\n\n```text\n(.*?)```", section, re.S)
    assert [language for language, *_ in shown] == ["python", "python", "sh"]
    for language, code, text in shown:
        steps = code.splitlines() if language == "sh" else [code]
        found = "".join(printed(language, step, names, output="output") for step in steps)
        assert re.fullmatch(re.escape(text).replace("…", ".*?"), found, re.S), found


PRINTED = ["find_nan.md", "memory.md", "checking.md", "without_jax.md", "as_jax.md"]


@pytest.mark.parametrize("name", PRINTED)
def test_a_page_with_a_model_prints_what_it_shows(name, monkeypatch, tmp_path):
    page = (DOCS / name).read_text()
    model, *_ = blocks(name)
    (tmp_path / "model.py").write_text(model)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    monkeypatch.setattr("pullback.testing.check.BUDGET", math.inf)
    names = {"jax": jax, "jnp": jax.numpy, "pb": pullback}
    shown = re.findall(r"```(python|sh)\n([^`]*)```\n\n```text\n(.*?)```", page, re.S)
    assert len(shown) == page.count("```text")
    for language, code, text in shown:
        assert printed(language, code, names) == text
