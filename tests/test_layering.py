"""The arrows of docs/architecture.md, read from the imports of each file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[1]
COMPILER = ROOT / "compiler" / "pullback"
RUNTIME = ROOT / "runtime" / "pullback_runtime"
GATE = COMPILER / "_jax"
BEHIND_THE_GATE = ("jax._src", "jax.interpreters", "jaxlib")
SOURCES = sorted([*COMPILER.rglob("*.py"), *RUNTIME.rglob("*.py")])
GATES = {*GATE.glob("*.py"), RUNTIME / "_jax.py"}


def imported_modules(source: str) -> Iterator[str]:
    """Every module that a text imports; `from jax import interpreters` counts as that module."""
    yield from modules_below(ast.parse(source))


def modules_below(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_only_the_gates_touch_private_jax(path):
    modules = imported_modules(path.read_text())
    private = {m for m in modules if any(within(m, package) for package in BEHIND_THE_GATE)}
    assert path in GATES or not private


@pytest.mark.parametrize("path", sorted(GATE.glob("*.py")), ids=name)
def test_the_gate_knows_nothing_of_the_rest(path):
    ours = {m for m in imported_modules(path.read_text()) if within(m, "pullback")}
    assert all(within(m, "pullback._jax") or within(m, "pullback.errors") for m in ours)


@pytest.mark.parametrize("path", sorted(RUNTIME.rglob("*.py")), ids=name)
def test_the_runtime_knows_nothing_of_the_compiler(path):
    assert not {m for m in imported_modules(path.read_text()) if within(m, "pullback")}


LAYERS = [COMPILER / "dialect", COMPILER / "passes", COMPILER / "rules"]


@pytest.mark.parametrize("path", [p for p in SOURCES if p.parent in LAYERS], ids=name)
def test_what_works_on_modules_knows_nothing_of_jaxprs_and_files(path):
    above = ("frontend", "artifact", "tools")
    modules = set(imported_modules(path.read_text()))
    assert not {m for m in modules for each in above if within(m, f"pullback.{each}")}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_are_absolute(path):
    assert not {m for m in imported_modules(path.read_text()) if m.startswith(".")}


REACH_UP = {
    COMPILER / name for name in ("program/handles.py", "api/program.py", "program/symbolic.py")
}
"""Where a program makes, saves or reads another one, for which everything else is needed."""


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_are_at_the_top(path):
    functions = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef))
    inside = {m for f in functions for m in modules_below(f) if m.startswith("pullback")}
    assert path in REACH_UP or not inside


ERASURE = re.compile(r"\.(erase|erase_argument|detach_from_parent)\(|\bclone\((ip=)?False\)")
COPIES_ALONE = {GATE / "lowering_cache.py", RUNTIME / "_jax.py"}
"""Where an operation is copied for a while that uses nothing from outside."""


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_ir_is_erased_in_one_place(path):
    """Elsewhere nobody knows who holds a handle to it: see `pullback_runtime._erasure`."""
    alone = path == RUNTIME / "_erasure.py" or path in COPIES_ALONE
    assert alone or not ERASURE.search(path.read_text())


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import jaxlib.mlir.ir", "jaxlib"),
        ("from jax import interpreters", "jax.interpreters"),
        ("from jax._src import core", "jax._src"),
        ("def f():\n  import pullback.passes", "pullback"),
    ],
)
def test_the_reader_sees_each_kind_of_import(source, module):
    assert any(within(found, module) for found in imported_modules(source))


def test_the_sources_are_there():
    assert set(SOURCES) >= GATES
    assert GATE / "__init__.py" in GATES
