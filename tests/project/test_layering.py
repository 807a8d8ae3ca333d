"""The arrows of docs/architecture.md, read from the imports of each file."""

from __future__ import annotations

import ast
import collections
import graphlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
COMPILER = ROOT / "compiler" / "pullback"
COMMANDS = ROOT / "compiler" / "pullback_cli"
RUNTIME = ROOT / "runtime" / "pullback_runtime"
GATE = COMPILER / "_jax"
BEHIND_THE_GATE = ("jax._src", "jax.interpreters", "jaxlib")
SOURCES = sorted([*COMPILER.rglob("*.py"), *RUNTIME.rglob("*.py")])
GATES = {*GATE.glob("*.py"), RUNTIME / "_jax.py", RUNTIME / "_mlir.py"}


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


@pytest.mark.parametrize("path", sorted(COMMANDS.rglob("*.py")), ids=name)
def test_the_commands_import_click_alone(path):
    """So help and completion come at once; `call` imports the rest by its name."""
    tops = {m.partition(".")[0] for m in imported_modules(path.read_text())}
    assert tops - sys.stdlib_module_names <= {"click", "pullback_cli"}


FLOORS = (
    {"errors"},
    {"_jax"},
    {"ir"},
    {"autodiff"},
    {"rules", "passes"},
    {"program"},
    {"frontend"},
    {"files"},
    {"api", "artifact", "dialect"},
    {"as_jax"},
    {"nans", "testing", "torch"},
    {"tools"},
)
"""Folders and files of the compiler from below: each imports what is below it."""


def folder(module: str) -> str:
    return module.split(".")[1]


def floor_of(module: str) -> int:
    return next(i for i, folders in enumerate(FLOORS) if folder(module) in folders)


def ours_in(path: Path) -> set[str]:
    """The modules of the compiler that a file imports, also for types only and in functions."""
    known = {dotted(each) for each in SOURCES}
    found = {m for m in imported_modules(path.read_text()) if m in known and within(m, "pullback")}
    return found - {dotted(path), "pullback"}


def dotted(path: Path) -> str:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])
    return module.removesuffix(".__init__")


PACKAGED = [p for p in SOURCES if COMPILER in p.parents and p.parent != COMPILER]


@pytest.mark.parametrize("path", PACKAGED, ids=name)
def test_folders_import_what_is_below_them(path):
    here = dotted(path)
    others = {m for m in ours_in(path) if folder(m) != folder(here)}
    assert not {m for m in others if floor_of(m) >= floor_of(here)}


TOOLS = ("as_jax", "nans", "testing", "tools", "torch")
"""Folders that stand on the core."""
HOOKS = {COMPILER / each for each in ("__init__.py", "_tools.py", "program/hooks.py")}
"""Files of the core that name a tool: it is imported when it is first used."""


def section(page: Path, title: str) -> str:
    return page.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


LISTED = re.findall(
    r"`(pullback[\w.]*(?:\.\*)?)`",
    "\n".join(
        line.split("|")[1]
        for line in section(ROOT / "docs" / "versions.md", "Modules for tools").splitlines()
        if line.startswith("|")
    ),
)
"""The public modules; `.*` after a package stands for all that are in it."""


def is_public(module: str) -> bool:
    packages = [each.removesuffix(".*") for each in LISTED if each.endswith(".*")]
    return module in LISTED or any(within(module, package) for package in packages)


def internals(path: Path, source: str) -> list[str]:
    """What a file of a tool imports of the core that is not public, in words."""
    known = {dotted(each) for each in SOURCES}
    found = {m for m in imported_modules(source) if m in known and within(m, "pullback")}
    ours = {m for m in found if m != "pullback" and folder(m) in ("_jax", *TOOLS)}
    prefixes = {m for m in found if any(within(other, m) and other != m for other in found)}
    return [
        f"{name(path)} imports {m}, which docs/versions.md does not list"
        for m in sorted(found - ours - prefixes)
        if not is_public(m)
    ]


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_import_public_modules_of_the_core(tool):
    files = sorted((COMPILER / tool).rglob("*.py"))
    assert files
    assert not [words for path in files for words in internals(path, path.read_text())]


def test_an_import_of_an_internal_module_is_told():
    path = COMPILER / "nans" / "search.py"
    (words,) = internals(path, "from pullback.frontend import keep\nfrom pullback.ir import ops")
    assert words == (
        "compiler/pullback/nans/search.py imports pullback.frontend.keep, "
        "which docs/versions.md does not list"
    )


def foreign_attributes(sources: Iterable[str]) -> set[str]:
    """The private attributes that the files of a tool read of others than its own classes."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    read = (n for n in nodes if isinstance(n, ast.Attribute))
    read = (n for n in read if ast.unparse(n.value).split(".")[0] not in ("torch", "aten"))
    read = (n for n in read if ast.unparse(n.value) != "self")
    return {n.attr for n in read if re.match("_[^_]", n.attr) and n.attr not in own}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_read_no_private_attribute_of_the_core(tool):
    sources = [path.read_text() for path in (COMPILER / tool).rglob("*.py")]
    assert foreign_attributes(sources) <= {"_replace"}  # of named tuples


def test_a_private_attribute_of_the_core_is_told():
    own = "class Walk:\n  def _step(self, other): return self._bad, self.next._step(other)"
    assert foreign_attributes([own]) == set()
    assert foreign_attributes([own, "self._bad = program._stages.__len__()"]) == {"_stages"}


def test_each_listed_module_is_needed():
    """By a tool of ours, or by the pages on extensions."""
    files = [path for tool in TOOLS for path in (COMPILER / tool).rglob("*.py")]
    used = {m for path in files for m in imported_modules(path.read_text())}
    pages = [ROOT / "docs" / f"{each}.md" for each in ("extending", "plugins", "write_a_pass")]
    text = "\n".join(page.read_text() for page in pages)
    single = {each for each in LISTED if not each.endswith(".*")}
    assert not {each for each in single - used if f"{each} import" not in text}


def test_listed_modules_are_there_and_not_private():
    known = {dotted(each) for each in SOURCES}
    assert {each.removesuffix(".*") for each in LISTED} <= known
    assert not [each for each in LISTED if "._" in each]
    assert "pullback.autodiff.registry" in LISTED


def test_the_core_imports_no_tool():
    named = re.compile(rf'"pullback\.({"|".join(TOOLS)})\b')
    for path in SOURCES:
        if path in HOOKS or (COMPILER in path.parents and folder(dotted(path) + ".") in TOOLS):
            continue
        source = path.read_text()
        found = [m for m in imported_modules(source) if within(m, "pullback") and m.count(".")]
        assert not [f"{name(path)} imports {m}" for m in found if folder(m) in TOOLS]
        assert not named.search(source), name(path)


def test_files_import_in_no_circle():
    packages = {dotted(p) for p in PACKAGED if p.name == "__init__.py"}
    graph = {dotted(p): ours_in(p) - packages for p in PACKAGED if p.name != "__init__.py"}
    below = {m: {each for each in found if each in graph} for m, found in graph.items()}
    assert tuple(graphlib.TopologicalSorter(below).static_order())  # or a CycleError


def below_in_the_runtime() -> dict[str, set[str]]:
    """The files of the runtime that each of its files imports."""
    files = {p.stem: p for p in RUNTIME.rglob("*.py") if p.stem != "__init__"}
    found = {stem: set(imported_modules(path.read_text())) for stem, path in files.items()}
    return {
        stem: {each for each, path in files.items() if dotted(path) in modules}
        for stem, modules in found.items()
    }


def test_files_of_the_runtime_import_in_no_circle():
    assert tuple(graphlib.TopologicalSorter(below_in_the_runtime()).static_order())


def test_what_loads_and_runs_files_imports_no_jax():
    """What the package imports at once, and the engines that are not JAX's."""
    below, reached = below_in_the_runtime(), set()
    waiting = ["_first_use", "_open", "_pjrt"]
    while waiting:
        stem = waiting.pop()
        reached.add(stem)
        waiting += below[stem] - reached
    files = {path.stem: path for path in RUNTIME.rglob("_*.py")}
    modules = {stem: imported_modules(files[stem].read_text()) for stem in reached}
    with_jax = {s for s, each in modules.items() if any(re.match(r"jax(lib)?\b", m) for m in each)}
    assert not with_jax
    assert {"_container", "_portable", "_trees", "_arguments"} <= reached


def test_no_two_classes_have_one_name():
    trees = (ast.parse(path.read_text()) for path in SOURCES)
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    found = collections.Counter(node.name for node in nodes)
    assert {each for each, count in found.items() if count > 1} <= {"ArtifactError"}  # a subclass


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_are_absolute(path):
    assert not {m for m in imported_modules(path.read_text()) if m.startswith(".")}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_are_at_the_top(path):
    functions = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef))
    inside = {m for f in functions for m in modules_below(f) if m.startswith("pullback")}
    assert not inside


ERASURE = re.compile(r"\.(erase|erase_argument|detach_from_parent)\(|\bclone\((ip=)?False\)")
COPIES_ALONE = {RUNTIME / "_jax.py"}
"""Where an operation is copied for a while that uses nothing from outside."""


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_ir_is_erased_in_one_place(path):
    """Elsewhere nobody knows who holds a handle to it: see `pullback_runtime.ir._erasure`."""
    alone = path == RUNTIME / "ir" / "_erasure.py" or path in COPIES_ALONE
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
