"""What is read of JAX is what `pullback/_jax/reads.py` lists, and the installed JAX has it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import types
from collections.abc import Iterator

import jax
import pytest

from pullback._jax import reads
from pullback._jax.holders import HOLDERS
from tests.project.test_layering import BEHIND_THE_GATE, GATES, ROOT, SOURCES, within

pytestmark = pytest.mark.whole

LISTED = {f"{module}.{name}" for module, names in reads.NAMES.items() for name in names}
OF_NAMEDTUPLES = {"_asdict", "_fields", "_make", "_replace"}
TABLE = reads.__file__


def text_of(node: ast.AST) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None  # type: ignore[attr-defined]


def called(node: ast.AST, *names: str) -> ast.Call | None:
    is_one = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in names
    return node if is_one else None  # type: ignore[return-value]


def attributes_in(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Each attribute that is read, with what it is read of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.value, node.attr
        if (call := called(node, "getattr", "hasattr")) and (name := text_of(call.args[1])):
            yield call.args[0], name


def names_in(tree: ast.AST) -> Iterator[str]:
    """The private names of JAX that a gate reads, imported or as attributes of a module."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found = f"{node.module}.{alias.name}"
                if any(within(found, each) for each in BEHIND_THE_GATE):
                    yield found
                    modules[alias.asname or alias.name] = found
        if isinstance(node, ast.Import):
            modules |= {each.name: each.name for each in node.names if each.name == "jaxlib"}
    for owner, name in attributes_in(tree):
        if ast.unparse(owner) in modules:
            yield f"{modules[ast.unparse(owner)]}.{name}"


def private_attributes_in(tree: ast.AST) -> Iterator[str]:
    """The attributes with an underscore that are read of objects which are not our own."""
    of_modules = {name.rpartition(".")[2] for name in names_in(tree)}
    for owner, name in attributes_in(tree):
        is_private = name.startswith("_") and not name.startswith("__")
        if is_private and ast.unparse(owner) not in ("self", "cls") and name not in of_modules:
            yield name


def parameters_in(tree: ast.AST) -> Iterator[str]:
    """The keys of parameters of equations that are read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and "params" in ast.unparse(node.value):
            yield from filter(None, [text_of(node.slice)])
        if (call := called(node, "get", "pop")) and "params" in ast.unparse(call.func):
            yield from filter(None, [text_of(call.args[0])])
        if isinstance(node, ast.Compare) and "params" in ast.unparse(node.comparators[0]):
            yield from filter(None, [text_of(node.left)])


def through_the_gate(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if call := called(node, "parameter"):
            yield from filter(None, [text_of(each) for each in call.args[1:]])


def variables_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if call := called(node, "variable"):
            yield from filter(None, map(text_of, call.args[1:]))


TREES = {path: ast.parse(path.read_text()) for path in SOURCES if str(path) != TABLE}
OF_GATES = [tree for path, tree in TREES.items() if path in GATES]
OUTSIDE = [path for path in TREES if path not in GATES]


def found(search) -> set[str]:
    return {each for tree in OF_GATES for each in search(tree)}


def test_names():
    private = {each for each in found(names_in) if not within(each, "jaxlib.mlir")}
    modules = {each for each in private if any(within(name, each) for name in LISTED - {each})}
    assert private - modules == LISTED


def test_attributes():
    assert found(private_attributes_in) - OF_NAMEDTUPLES == set(reads.ATTRIBUTES)


def test_parameters():
    every = found(parameters_in) | {k for tree in TREES.values() for k in through_the_gate(tree)}
    every |= {key for each in HOLDERS.values() for key in (*each.bodies, each.inlined) if key}
    assert every - reads.OURS == set(reads.PARAMETERS)


def test_variables():
    from pullback._jax.user_rules import _THUNKS

    assert found(variables_in) | {*_THUNKS.values()} == set(reads.VARIABLES)


def test_texts():
    texts = set(filter(None, (text_of(node) for tree in OF_GATES for node in ast.walk(tree))))
    private = {each for each in texts if re.fullmatch(r"jax\._src[.\w]*", each)}
    assert private <= set(reads.TEXTS) <= texts


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_read_outside_of_the_gates(path):
    assert set(parameters_in(TREES[path])) <= reads.OURS
    assert not set(private_attributes_in(TREES[path])) & set(reads.ATTRIBUTES)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_installed_jax_has_a_name(name):
    module, _, attribute = name.rpartition(".")
    what_for = reads.NAMES[module][attribute]
    if "new in 0.11" in what_for and jax.__version_info__ < (0, 11):
        pytest.skip(what_for)
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        pytest.fail(f"{name} is gone: {what_for}")


def closed_over(code: types.CodeType) -> Iterator[str]:
    yield from code.co_freevars
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from closed_over(each)


def test_functions_of_the_installed_jax_close_over_the_variables():
    modules = ("custom_derivatives", "interpreters.partial_eval", "interpreters.batching")
    names = set()
    for each in modules:
        path = importlib.import_module(f"jax._src.{each}").__file__
        with open(str(path)) as source:
            names |= set(closed_over(compile(source.read(), str(path), "exec")))
    assert set(reads.VARIABLES) <= names


@pytest.mark.parametrize(
    ("source", "search", "name"),
    [
        ("from jax._src import core as c\nc.Thing", names_in, "jax._src.core.Thing"),
        ("from jax._src import core as c\ngetattr(c, 'X', 1)", names_in, "jax._src.core.X"),
        ("from jax._src.core import Thing", names_in, "jax._src.core.Thing"),
        ("tracer._trace", private_attributes_in, "_trace"),
        ("getattr(tracer, '_trace', None)", private_attributes_in, "_trace"),
        ("equation.params['jaxpr']", parameters_in, "jaxpr"),
        ("params.get('jaxpr')", parameters_in, "jaxpr"),
        ("'jaxpr' in equation.params", parameters_in, "jaxpr"),
        ("parameter(equation, 'jaxpr')", through_the_gate, "jaxpr"),
        ("variable(f, 'fn')", variables_in, "fn"),
    ],
)
def test_the_reader_sees_each_kind_of_read(source, search, name):
    assert name in set(search(ast.parse(source)))
