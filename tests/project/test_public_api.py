"""The public surface: re-exports and nothing else, each name documented."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

PACKAGES = ("pullback", "pullback_runtime")
TYPES = "TYPE_CHECKING"
NOT_EXPORTS = ("typing", "pullback_runtime._first_use", "pullback._first_use")


def init_tree(package: str) -> ast.Module:
    return ast.parse(Path(str(importlib.import_module(package).__file__)).read_text())


def statements_of(package: str) -> list[ast.stmt]:
    """The statements of an `__init__`, with those for type checkers: names imported when used."""
    body = init_tree(package).body
    for_types = [n for n in body if isinstance(n, ast.If) and ast.unparse(n.test) == TYPES]
    return [n for n in body if n not in for_types] + [n for each in for_types for n in each.body]


def imports_of(package: str) -> list[ast.ImportFrom]:
    imports = [node for node in statements_of(package) if isinstance(node, ast.ImportFrom)]
    return [node for node in imports if node.module not in NOT_EXPORTS]


def exported(package: str) -> list[str]:
    """The names that an `__init__` marks as public by `x as x`."""
    imports = imports_of(package)
    names = [a.asname for node in imports for a in node.names if a.asname and a.asname == a.name]
    return [name for name in names if name != "__version__"]


EXPORTED = [(package, name) for package in PACKAGES for name in exported(package)]


@pytest.mark.parametrize("package", PACKAGES)
def test_init_has_no_logic(package):
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
    statements = statements_of(package)
    assert {type(node) for node in statements} <= set(allowed)
    assigned = [ast.unparse(n.targets[0]) for n in statements if isinstance(n, ast.Assign)]
    assert assigned == ["__all__"]


@pytest.mark.parametrize("package", PACKAGES)
def test_each_import_is_an_export(package):
    imports = imports_of(package)
    aliases = [a for node in imports if node.module != "__future__" for a in node.names]
    assert [a.name for a in aliases if a.asname != a.name] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_all_agrees_with_the_exports(package):
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(["__version__", *exported(package)])


@pytest.mark.parametrize(("package", "name"), EXPORTED)
def test_each_public_name_is_documented(package, name):
    found = getattr(importlib.import_module(package), name)
    assert not name.startswith("_")
    if not inspect.ismodule(found):
        assert (inspect.getdoc(found) or "").strip(), f"{package}.{name} has no docstring"


def test_there_is_a_public_surface():
    assert {("pullback", "trace"), ("pullback_runtime", "compile")} <= set(EXPORTED)


SOURCES = [
    path
    for package in PACKAGES
    for path in sorted(Path(str(importlib.import_module(package).__file__)).parent.rglob("*.py"))
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-3:]))
def test_each_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text()))
