"""The version, the public address and the way to install stand in one place each."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests import release

ROOT = Path(__file__).parents[2]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]


def test_one_address_is_in_all_metadata():
    runtime = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]["urls"]
    assert {**runtime, "Documentation": ""} == {**URLS, "Documentation": ""}
    assert f'repository-code: "{URLS["Source"]}"' in (ROOT / "CITATION.cff").read_text()


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
