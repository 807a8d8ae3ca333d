"""The version, the public address and the way to install stand in one place each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pullback_runtime import _install
from tests import release

ROOT = Path(__file__).parents[2]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]


def test_one_address_is_in_all_metadata():
    runtime = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]["urls"]
    assert {**runtime, "Documentation": ""} == {**URLS, "Documentation": ""}
    assert f'repository-code: "{URLS["Source"]}"' in (ROOT / "CITATION.cff").read_text()
    assert _install.SOURCE in (None, URLS["Source"])


NAMED = re.compile(r"pip install( -\S+)* ['\"]?pullback\b|\bpullback(-runtime)?\[[a-z]")
"""A line that installs a distribution by its name, or names an extra of one."""

ELSEWHERE = re.compile(r"git\+https|\./runtime\[|not on PyPI|pip install (-q )?['\"]?\.")
"""A line that installs from a repository or a checkout, or says that PyPI has no package."""


def lines_of_users() -> Iterator[tuple[str, str]]:
    """Each line of sources, pages and recipes, with its place; not of tests and builds."""
    folders = (".github", "benchmarks", "compiler", "docs", "examples", "packaging", "runtime")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))]
    for path in (*files, ROOT / "README.md", ROOT / "Makefile"):
        if any(part == "build" or part.endswith(".egg-info") for part in path.parts):
            continue
        if path.suffix in (".py", ".md", ".yml", ".yaml", "") and path.is_file():
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield f"{path.relative_to(ROOT)}:{number}", line


def test_pages_and_errors_say_where_to_install_from():
    """From the repository, until `SOURCE` is None; then from PyPI alone."""
    registered = _install.SOURCE is None
    pattern = ELSEWHERE if registered else NAMED
    found = [
        place
        for place, line in lines_of_users()
        if pattern.search(line)
        and (registered or not re.search(r"git\+https|requirement\(", line))
        and not place.startswith(("runtime/pullback_runtime/_install.py", "docs/releasing.md"))
    ]
    assert found == []


def test_a_requirement_is_the_name_alone_once_it_is_registered(monkeypatch):
    assert _install.requirement("pullback") == f'"pullback @ git+{URLS["Source"]}"'
    assert _install.requirement("pullback-runtime", "jax") == (
        f'"pullback-runtime[jax] @ git+{URLS["Source"]}#subdirectory=runtime"'
    )
    monkeypatch.setattr(_install, "SOURCE", None)
    assert _install.requirement("pullback-runtime", "jax") == '"pullback-runtime[jax]"'


@pytest.mark.parametrize("printed", ["nothing", "example\npullback 0.2.0, with jax 0.12.0"])
def test_expect_ends_the_check_where_the_text_is_not_there(printed):
    with pytest.raises(SystemExit, match=r"expected '\^pullback' in"):
        release.expect(printed, r"^pullback")


def test_workflows_have_no_logic_but_calls_of_make():
    """A shell line of a workflow is one make, or .ci/run: so all of it can be run by hand."""
    files = sorted((ROOT / ".github/workflows").glob("*.yml"))
    lines = [line for path in files for line in re.findall(r"run: (.*)", path.read_text())]
    commands = [line for line in lines if not line.startswith("{shell")]
    assert len(commands) > 6
    assert all(re.match(r"make [a-z$]|\.ci/run$", line) for line in commands), commands
