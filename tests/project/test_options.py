"""The options of these tests, and the targets of the Makefile that give them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import layers
from tests.work import layers_of

ROOT = Path(__file__).parents[2]
RULES = ["tests/rules/test_rules.py", "tests/passes/test_vmap.py"]
CASES = """
import pytest

from tests.rules.record import Case

@pytest.mark.parametrize("number", range(7))
def test_thinned(number):
    pass

@pytest.mark.whole
@pytest.mark.parametrize("number", range(7))
def test_whole(number):
    pass

OPS = ["acme.a", "acme.a", "acme.b", "acme.b", "acme.b", "acme.c"]

@pytest.mark.parametrize("case", [Case(op, abs, [], str(i)) for i, op in enumerate(OPS)])
def test_ops(case):
    print("ran", case.name)

def test_alone():
    pass
"""


def pytest_of(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def collected(*arguments: str | Path) -> list[str]:
    done = pytest_of("--collect-only", *arguments)
    assert done.returncode == 0, done.stdout
    return [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """Tests that take the options of ours."""
    folder = tmp_path_factory.mktemp("thinned")
    (folder / "test_cases.py").write_text(CASES)
    conftest = "from tests.conftest import pytest_addoption, pytest_collection_modifyitems\n"
    (folder / "conftest.py").write_text(f"{conftest}from tests.conftest import pytest_configure\n")
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath={ROOT}\nmarkers=whole: all cases\n")
    return folder / "test_cases.py"


def test_one_in_n_cases_of_each_test_runs_and_the_first_of_each_op(module):
    names = collected("--thin=3", module)
    assert [name for name in names if "thinned" in name] == [
        f"test_thinned[{number}]" for number in (0, 3, 6)
    ]
    assert sum("whole" in name for name in names) == 7
    cases = pytest_of("-s", "--thin=4", module).stdout
    assert [line[-8:] for line in cases.splitlines() if "ran acme" in line] == [
        "acme.a-0",
        "acme.b-2",
        "acme.b-4",
        "acme.c-5",
    ]
    assert "test_alone" in names


def test_tests_about_jax_are_not_thinned():
    about_jax = "tests/frontend/test_native.py"
    assert collected("--thin=1000", about_jax) == collected(about_jax)


def test_the_tests_of_one_op():
    names = collected("--op=stablehlo.sine", *RULES)
    assert {"test_rule[stablehlo.sine]", "test_types[stablehlo.sine]"} <= set(names)
    assert "test_a_batch_is_what_each_item_is[stablehlo.sine]" in names
    assert "test_a_batch_of_derivatives_is_what_each_item_has[stablehlo.sine]" in names
    assert not any("cosine" in name for name in names)


def test_an_op_that_has_no_tests_is_an_error_that_names_those_that_have():
    done = pytest_of("--op=stablehlo.sin", RULES[0])
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        "no tests of the op 'stablehlo.sin': did you mean stablehlo.sine or stablehlo.sign"
        in done.stderr
    )
    assert "there are: chlo.acos chlo.acosh" in done.stderr


def test_layers_are_functions_of_ours_that_are_called():
    found = layers.first_gradient()
    assert (Path("pullback/api/transforms.py"), "grad") in found.functions
    assert Path("pullback/passes/vjp.py") in found.files
    assert all(file.parts[0] in ("pullback", "pullback_runtime") for file in found.files)
    assert len(found.functions) <= found.calls
    assert not layers_of(lambda: None).functions
