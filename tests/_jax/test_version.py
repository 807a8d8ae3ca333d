"""A JAX that nobody has tried: an error at the import, or a warning for those who try it."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from pullback._jax.version import TRY, check_version
from pullback.errors import UnsupportedJaxVersion

pytestmark = pytest.mark.whole

NEWER = ["0.13.0", "0.13.0.dev20261101", "0.13.0rc1", "1.0"]
IMPORT = """import jax
import jax._src.debugging
jax.__version__ = "0.13.0"
{more}
import pullback as pb
print(pb.grad(lambda x: x * x)(1.5))
"""


def run_import(more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {k: v for k, v in os.environ.items() if k != TRY} | {"JAX_PLATFORMS": "cpu"}
    code = IMPORT.format(more=more)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=given | environment, capture_output=True, text=True)


@pytest.mark.parametrize("version", NEWER)
def test_a_newer_jax_is_an_error_that_says_how_to_try_it(version, monkeypatch):
    monkeypatch.delenv(TRY, raising=False)
    with pytest.raises(UnsupportedJaxVersion) as raised:
        check_version(version)
    assert str(raised.value) == (
        f"pullback works with jax 0.10.2 to 0.12.x, and this is jax {version}\n"
        "  do:    pip install 'jax>=0.10.2,<0.13'; to try this one, set PULLBACK_UNTRIED_JAX=1"
    )


@pytest.mark.parametrize("version", NEWER)
def test_a_newer_jax_that_is_tried_is_a_warning(version, monkeypatch):
    monkeypatch.setenv(TRY, "1")
    with pytest.warns(UserWarning, match=f"jax {version}, which nobody has tried: compare"):
        check_version(version)


def test_an_older_jax_is_an_error_that_is_not_to_be_tried(monkeypatch):
    monkeypatch.setenv(TRY, "1")
    with pytest.raises(UnsupportedJaxVersion, match=r"this is jax 0\.9\.1\n.*<0\.13'$"):
        check_version("0.9.1")


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0", "0.12.0.1", "0.12.9"])
def test_others_are_nothing_to_speak_of(version):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version(version)


def test_the_import_is_the_error_even_where_private_names_are_gone():
    found = run_import("del jax._src.debugging.debug_effect")
    assert found.returncode == 1
    assert "UnsupportedJaxVersion: pullback works with jax 0.10.2 to 0.12.x" in found.stderr


def test_the_import_of_one_that_is_tried_warns_once():
    found = run_import("", **{TRY: "1"})
    assert found.stdout == "3.0\n", found.stderr
    assert found.stderr.count("which nobody has tried") == 1
