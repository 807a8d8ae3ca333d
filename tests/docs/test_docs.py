"""The pages of docs/: each is linked from the index, and each error has its line."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import pullback
import pullback_runtime
from pullback import errors as compiler_errors
from pullback.autodiff import registry
from pullback.autodiff.batch_rules import BATCHES
from pullback.files import errors as artifact_errors
from pullback_cli import main
from pullback_runtime import _errors as runtime_errors
from pullback_runtime.files import _container as container

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MODULES = (compiler_errors, artifact_errors, runtime_errors, container)
BASES = (compiler_errors.PullbackError, runtime_errors.PullbackRuntimeError)
CLASSES = {
    name
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, BASES)
}


PAGES = {
    page.name: page.read_text() for page in [*sorted(DOCS.glob("*.md")), *sorted(ROOT.glob("*.md"))]
}
MADE_BY_THE_SITE = {"rules.md", "passes.md"}
ROOT_PAGES = {page.name for page in ROOT.glob("*.md")}


def test_every_error_has_a_cause_an_example_and_a_remedy():
    rows = [line.split(" | ") for line in (DOCS / "errors.md").read_text().splitlines()]
    listed = {row[0].strip("| `"): row for row in rows if row[0].startswith("| `")}
    assert set(listed) == CLASSES
    assert {name for name, row in listed.items() if len(row) != 4 or not all(row)} == set()


def test_the_navigation_names_every_page():
    named = set(re.findall(r"\b(\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert {page.name for page in DOCS.glob("*.md")} - named == set()


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("extending.md", "rules/composite/Inputs/acme_rules.py"),
        ("extending.md", "passes/vmap/Inputs/acme_batches.py"),
        ("lit_test.md", "tools/derive/clipped.py"),
    ],
)
def test_a_file_on_a_page_is_one_that_lit_runs(page: str, name: str):
    file = ROOT / "lit_tests" / name
    assert f"```python\n# {file.name}\n{file.read_text()}```" in PAGES[page]


def test_each_picture_of_the_gallery_is_drawn_and_shown():
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "site" / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    shown = re.findall(r"\(images/(\S+)\)", (DOCS / "gallery.md").read_text())
    assert sorted(shown) == sorted(gallery.PICTURES)
    assert {path.name for path in (DOCS / "images").glob("gallery_*")} == set(shown)


def test_the_pictures_are_drawn_from_the_program():
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "site" / "pictures.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, draw in script.PICTURES.items():
        is_drawn = (DOCS / "site" / name).read_text() == draw()
        assert is_drawn, f"run `python docs/site/pictures.py` for {name}"


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in plain}


def test_what_pages_on_extending_import_is_public():
    versions = (DOCS / "versions.md").read_text()
    pages = "".join(
        (DOCS / f"{name}.md").read_text() for name in ("extending", "plugins", "write_a_pass")
    )
    modules = {*re.findall(r"^from (pullback\.[a-z_.]+) import", pages, re.M)} - {
        "pullback.dialect"
    }
    assert len(modules) > 5
    assert [each for each in modules if f"`{each}`" not in versions] == []


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


CLAIMS = ["api.md", *sorted(page.name for page in DOCS.glob("differences*.md"))]
"""Pages on which each section is a program of its own, and comments say what its lines give."""


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGES[page], re.S)


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
    """The blocks of a page by their headings, each with the imports of the first block."""
    imports, *_ = blocks("api.md" if page == "api.md" else "differences.md")
    for section in re.split(r"^(?=##+ )", PAGES[page], flags=re.M)[1:]:
        heading = section.splitlines()[0].lstrip("# ")
        for code in re.findall(r"```python\n(.*?)```", section, re.S):
            yield pytest.param(imports, code, id=f"{page}: {heading}")


@pytest.mark.parametrize(("imports", "code"), [each for page in CLAIMS for each in claims(page)])
def test_what_the_comments_say_holds(imports: str, code: str, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "a page of docs"}
    exec(imports, names)
    run_claims(code, names)


@pytest.mark.parametrize("name", [name for name in CLAIMS if name.startswith("differences_")])
def test_each_difference_says_what_each_does_and_what_to_do(name: str):
    for section in re.split(r"^## ", PAGES[name], flags=re.M)[1:]:
        heading, *_ = section.splitlines()
        who = re.findall(r"^- \*\*(\w+)\*\*", section, re.M)
        assert who == ["JAX", "pullback", "Do"], heading
        assert f"[{heading}]({name}#" in PAGES["differences.md"]


@pytest.mark.parametrize(
    "said", ["3.0", "raises ValueError", "raises TypeError: other", "[2.0, 2.0]"]
)
def test_a_false_claim_is_noticed(said: str):
    with pytest.raises((AssertionError, pytest.fail.Exception, ValueError)):
        run_claims(f"1.0 + 1.0  # {said}", {})


RUN = re.compile(r"```(python|sh|mlir)\n(.*?)```(?:\n\n```(text|mlir)\n(.*?)```)?", re.S)
"""A block of code, and the one behind it with what it prints."""


def printed_by_command(line: str) -> str:
    """What a command prints; the rules that it registers are forgotten."""
    registry.load_all()
    tables = (registry.RULES, registry.NONDIFFERENTIABLE, registry._ZERO_IN, BATCHES)
    with contextlib.ExitStack() as forgetting:
        for table in tables:
            forgetting.enter_context(mock.patch.dict(table))
        return CliRunner().invoke(main, shlex.split(line)[1:]).output


def printed(language: str, code: str, names: dict[str, Any]) -> str:
    """What a block of Python prints, or lines of the shell, each a `pullback` command."""
    if language == "sh":
        lines = code.replace("\\\n", " ").splitlines()
        return "".join(map(printed_by_command, lines))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "a page of docs", "exec"), names)
    return out.getvalue()


def is_shown(text: str, how: str, found: str) -> bool:
    """Text is the whole output, where `…` stands for anything; of IR, some lines are shown."""
    if how == "text":
        return re.fullmatch(re.escape(text).replace("…", ".*?"), found, re.S) is not None
    return re.search(".*?".join(map(re.escape, text.splitlines())), found, re.S) is not None


@pytest.mark.parametrize(
    "name", [page.name for page in DOCS.glob("*.md") if page.name not in CLAIMS]
)
def test_a_page_is_a_program_that_prints_what_it_shows(name: str, monkeypatch, tmp_path):
    """A block that begins with the name of a file, in a comment, is that file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    monkeypatch.setattr("pullback.testing.check.BUDGET", math.inf)
    names: dict[str, Any] = {}
    found = RUN.findall(PAGES[name])
    assert sum(how == "text" for _, _, how, _ in found) == PAGES[name].count("```text\n")
    for language, code, how, text in found:
        if file := re.match(r"(?:#|//) (\w+\.\w+)\n", code):
            assert not text, f"words between {file[1]} and the block behind it"
            (tmp_path / file[1]).write_text(code)
        elif language == "python" or text:
            output = printed(language, code, names)
            assert not text or is_shown(text, how, output), output
