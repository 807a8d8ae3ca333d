"""Find the place that a mutant changes by function and syntax, whatever its file and layout."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import Mutant

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LAYOUT = frozenset({"ctx", "kind", "type_comment"})


class StaleError(LookupError):
    """The sources have no place for a mutant, or several; the message says what changed."""


@dataclass(frozen=True)
class Scope:
    """A function, class or module: its syntax without that of the functions and classes in it."""

    module: str
    name: str
    path: Path
    nodes: tuple[ast.AST, ...]

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def matching(self, patterns: list[ast.AST]) -> list[ast.AST]:
        """Return the nodes that match one of these."""
        return [node for node in self.nodes if any(_matches(each, node) for each in patterns)]


@dataclass(frozen=True)
class Place:
    """What a mutant changes: a node of a file, whose path is relative to the sources."""

    path: Path
    node: ast.AST

    def mutated(self, text: str, new: str) -> str:
        """Return the text of the file with `new` there."""
        node = self.node
        lines = text.encode().splitlines(keepends=True)
        before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
        after = lines[node.end_lineno - 1][node.end_col_offset :]
        after += b"".join(lines[node.end_lineno :])
        if isinstance(node, ast.expr) and _is_expression(new):
            new = f"({new})"
        else:
            new = textwrap.indent(new, " " * node.col_offset).lstrip()
        return before.decode() + new + after.decode()


class Places:
    """The functions of all modules in a folder."""

    def __init__(self, sources: Path) -> None:
        self._scopes = [
            scope for path in sorted(sources.rglob("*.py")) for scope in _scopes(sources, path)
        ]

    def find(self, mutant: Mutant) -> Place:
        """Return the place that a mutant changes.

        A function that is not in its module is looked up in all others.

        Raises:
          StaleError: there is no such function, or it has no such expression or several.
        """
        module, name = mutant.where.split(":")
        patterns = _patterns(mutant.old)
        named = [scope for scope in self._scopes if scope.name == name]
        here = [scope for scope in named if scope.module == module]
        found = [(scope, node) for scope in here or named for node in scope.matching(patterns)]
        if len(found) != 1:
            raise StaleError(self._stale(mutant, here or named, patterns, len(found)))
        scope, node = found[0]
        return Place(scope.path, node)

    def _stale(
        self, mutant: Mutant, named: list[Scope], patterns: list[ast.AST], count: int
    ) -> str:
        if count:
            return (
                f"{mutant.where} has {count} times `{mutant.old}`: take more of what is around it"
            )
        elsewhere = [str(scope) for scope in self._scopes if scope.matching(patterns)]
        if elsewhere:
            what = f"`{mutant.old}` is in {', '.join(elsewhere[:3])}"
            return f"{what}, and not in {mutant.where}: was that renamed?"
        if not named:
            return f"there is no {mutant.where}, and `{mutant.old}` is nowhere"
        kinds = tuple(map(type, patterns))
        here = [ast.unparse(n) for scope in named for n in scope.nodes if isinstance(n, kinds)]
        like = difflib.get_close_matches(mutant.old, here, n=1, cutoff=0)
        hint = f"; most like it is `{like[0]}`" if like else ""
        return f"{mutant.where} has no `{mutant.old}`{hint}"


def _scopes(sources: Path, path: Path) -> Iterator[Scope]:
    relative = path.relative_to(sources)
    module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
    pending: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text()))]
    while pending:
        name, definition = pending.pop()
        nodes, inside = [], [definition]
        while inside:
            for node in ast.iter_child_nodes(inside.pop()):
                nodes.append(node)
                if isinstance(node, _DEFINITIONS):
                    pending.append((f"{name}.{node.name}".lstrip("."), node))
                    inside.append(ast.Module(node.decorator_list, []))
                elif not isinstance(node, ast.JoinedStr):  # Python 3.11 gives no positions there
                    inside.append(node)
        yield Scope(module, name, relative, tuple(nodes))


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def _patterns(text: str) -> list[ast.AST]:
    """Parse an expression or a statement; `name=value` may be a keyword of a call, too."""
    if _is_expression(text):
        return [ast.parse(text, mode="eval").body]
    [statement] = ast.parse(text).body
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [statement, ast.keyword(name, value)]
    return [statement]


def _matches(pattern: object, found: object) -> bool:
    """Return True for equal syntax; `...` matches any expression."""
    if isinstance(pattern, ast.Constant) and pattern.value is ...:
        return isinstance(found, ast.expr)
    if isinstance(pattern, ast.AST):
        return type(pattern) is type(found) and all(
            _matches(getattr(pattern, field), getattr(found, field))
            for field in pattern._fields
            if field not in _LAYOUT
        )
    if isinstance(pattern, list):
        return (
            isinstance(found, list)
            and len(pattern) == len(found)
            and all(map(_matches, pattern, found))
        )
    return type(pattern) is type(found) and pattern == found
