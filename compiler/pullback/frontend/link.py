"""Lower jaxprs of the keep step into a library of functions; copy these into other modules."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pullback import _jax
from pullback._jax import ir, jaxprs, lowering
from pullback.errors import PullbackError
from pullback.ir import locations
from pullback.ir.environment import Environment
from pullback.ir.symbols import Symbols, functions, make_private, symbol as symbol_of, text_of
from pullback.program.memo import has_hash
from pullback_runtime.ir import _module
from pullback_runtime.ir._erasure import erase

_MARK = "pullback.instead_of"


def _cannot_lower(error: Exception, closed: Any) -> PullbackError:
    """Return the error for a function that JAX cannot lower to StableHLO.

    JAX has types that are not arrays, and operations that need a device to be lowered for.
    """
    cause = str(error).partition("\n")[0] or type(error).__name__
    for equation in jaxprs.equations_in(closed) if "unhashable" in cause else ():
        for name in (name for name, value in equation.params.items() if not has_hash(value)):
            return PullbackError(
                f"JAX cannot lower `{equation.primitive.name}`: its parameter `{name}` is not "
                f"hashable ({cause})",
                where=locations.of_error(error.__cause__ or error),
                do="bind the primitive with parameters that can be hashed, such as a tuple of "
                "pairs instead of a dictionary",
            )
    return PullbackError(
        f"JAX cannot lower the function to StableHLO by itself: {cause}",
        where=locations.of_error(error.__cause__ or error),
        do="take that out of the function, or differentiate by JAX; all arguments, and what the "
        "function closes over, must be arrays, scalars or keys",
    )


class Library:
    """The functions of a module, to copy from: each is read once however often it is linked."""

    def __init__(self, module: ir.Module):
        self.module = module
        self.functions: dict[str, Any] = {}
        self.meshes: dict[str, Any] = {}
        self._references: dict[str, list[str]] = {}
        self._texts: dict[str, str] = {}
        self._last: Any = None
        self.refresh()

    def refresh(self) -> None:
        """Find what was added to the module, before what is known or after that."""
        operations, known = self.module.body.operations, self.functions
        before = itertools.takewhile(lambda op: symbol_of(op.operation) not in known, operations)
        after = [] if self._last is None else _after(self._last)
        for op in (new := [*before, *after]):
            known[name := symbol_of(op.operation)] = op
            if not isinstance(op, _jax.func.FuncOp):
                self.meshes[name] = op
        if after or self._last is None:
            self._last = new[-1].operation if new else None

    def references(self, name: str) -> list[str]:
        """Return the symbols that a function refers to, sorted by name."""
        if name not in self._references:
            self._references[name] = sorted(references(self.functions[name]))
        return self._references[name]

    def text(self, name: str) -> str:
        """Return a function as text, without its name."""
        if name not in self._texts:
            self._texts[name] = text_of(self.functions[name])
        return self._texts[name]


def _after(operation: ir.Operation) -> list[Any]:
    """Return the operations after this one in its block; the block itself lists all."""
    found = []
    while (place := ir.InsertionPoint.after(operation).ref_operation) is not None:
        found.append(place.opview)
        operation = place
    return found


class Surroundings(Protocol):
    """What functions are lowered for: a rule table has both."""

    environment: Environment
    dimensions: tuple[str, ...]


class Lowered:
    """The function of a program, and its rules, lowered into one library.

    What they have in common is lowered once.
    """

    def __init__(self, table: Surroundings, context: ir.Context | None = None):
        self._table = table
        self._context = context or _jax.context()
        self._now: tuple[Library, lowering.Lowering] | None = None

    def lower(self, symbol: str, closed: Any, *, entry: bool = False) -> LinkSource:
        """Lower a jaxpr of the keep step to a function of this name, or of one with a number."""
        library, into = self._now or self._begun()
        self._now = None  # where this fails, half a function may be in there
        try:
            found = into.lower(symbol, closed, entry=entry)
        except (AssertionError, TypeError) as error:
            raise _cannot_lower(error, closed) from error
        except NotImplementedError as error:  # JAX's own words, which name no line
            if (place := locations.of_error(error.__cause__ or error)) is not None:
                error.add_note(f"lowered for {place}")
            raise
        library.refresh()
        self._now = library, into
        return LinkSource(library, found)

    def _begun(self) -> tuple[Library, lowering.Lowering]:
        with self._context, ir.Location.unknown(self._context):
            module = ir.Module.create()
        around = self._table.environment
        return Library(module), lowering.Lowering(
            module,
            platforms=around.platforms,
            keepalives=around.keepalives,
            host_callbacks=around.host_callbacks,
            dimensions=self._table.dimensions,
        )

    def taken(self) -> ir.Module:
        """Return the module that the last function was lowered into; it is not used here again."""
        assert self._now is not None
        (library, _), self._now = self._now, None
        return library.module


@dataclass(frozen=True, eq=False)
class LinkSource:
    """A function of a library, to be copied with all that it refers to."""

    library: Library
    entry: str


def merge(target: ir.Module, module: ir.Module, symbol: str) -> str:
    """Copy `symbol` and all it refers to into `target`; equal functions there are shared."""
    return merge_source(Symbols(target), LinkSource(Library(module), symbol))


def merge_main(target: ir.Module, content: bytes, instead_of: ir.Operation) -> str:
    """Copy the entry of a module to a private function of `target`; return its name there.

    Args:
      instead_of: a function, or a call in one, that the copy will replace. The copied module may
        have functions that contain it as well, and must not share those of `target`.
    """
    instead_of.attributes[_MARK] = ir.UnitAttr.get(target.context)
    name = merge(target, _module.parse(content, target.context), "main")
    del instead_of.attributes[_MARK]
    make_private(functions(target)[name])
    return name


def merge_source(target: Symbols, source: LinkSource) -> str:
    """Copy a function of a library, and all it refers to, into the module of these symbols."""
    library, context = source.library, target.module.context
    if library.module.context != context:
        content = _module.to_bytecode(library.module)
        library = Library(_module.parse(content, context))
    with context, ir.Location.unknown(context):
        for name, mesh in library.meshes.items():
            _copy_mesh(target, name, mesh)
        return _Merge(target, library).copy(source.entry)


def _copy_mesh(target: Symbols, name: str, mesh: Any) -> None:
    """Copy a mesh under its own name: attributes refer to it by name in their text."""
    there = target.others.get(name)
    if name not in target:
        place = ir.InsertionPoint.at_block_begin(target.module.body)
        target.others[name] = mesh.operation.clone(ip=place).operation
    elif there is None or _axes(there) != _axes(mesh.operation):
        raise PullbackError(
            f"a rule and the program use different meshes under the name `{name}`",
            where=f"{mesh}",
            do="use one mesh throughout the program",
        )


def _axes(mesh: Any) -> Any:
    return mesh.attributes["mesh"]


_SYMBOL = re.compile(r'@("[^"]*"|[\w$.]+)')


class _Merge:
    def __init__(self, target: Symbols, source: Library):
        self.target = target
        self.source = source
        self.renamed: dict[str, str] = {}
        self.open: dict[str, Any] = {}  # what is being copied; the copy, if it was needed already

    def copy(self, symbol: str) -> str:
        """Return the name in the target of a function of the source, copied if it is not there."""
        if symbol in self.open and symbol not in self.renamed:  # a rule that refers to itself
            self.renamed.update(self._twins(symbol))
            if symbol not in self.renamed:
                self.open[symbol] = self._clone(symbol)
                self.renamed[symbol] = self._enter(symbol, self.open[symbol], shared=False)
        elif symbol not in self.renamed:
            self.open[symbol] = None
            for callee in self.source.references(symbol):
                self.copy(callee)
            if (early := self.open.pop(symbol)) is not None:
                rename_references(early, self.renamed)
                self.target.add(self.renamed[symbol], early, shared=True)
            elif symbol not in self.renamed:
                self.renamed[symbol] = self._place(symbol)
        return self.renamed[symbol]

    def _place(self, symbol: str) -> str:
        """Copy one function, whose callees are copied already, unless an equal one is there."""
        moved = any(self.renamed[other] != other for other in self.source.references(symbol))
        if not moved and (found := self._equal(symbol, lambda: self.source.text(symbol))):
            return found
        clone = self._clone(symbol)
        if moved:
            rename_references(clone, self.renamed)
            if found := self._equal(symbol, lambda: text_of(clone)):
                erase(clone)
                return found
        return self._enter(symbol, clone)

    def _clone(self, symbol: str) -> Any:
        function = self.source.functions[symbol].operation
        return function.clone(ip=ir.InsertionPoint(self.target.module.body)).operation

    def _enter(self, symbol: str, clone: Any, *, shared: bool = True) -> str:
        name = self.target.unique(symbol)
        clone.attributes["sym_name"] = ir.StringAttr.get(name)
        self.target.add(name, clone, shared=shared)
        return name

    def _equal(self, symbol: str, text: Callable[[], str]) -> str | None:
        """Return the name of a function in the target with the same text; None without one."""
        function = self.source.functions[symbol].operation
        return self.target.equal(symbol, function.attributes["function_type"], text)

    def _twins(self, symbol: str) -> dict[str, str]:
        """Match a recursive function, and those it refers to, with functions of the target.

        Recursive functions are the same if they are under the assumption that they are. The result
        is empty if there is no match.
        """
        for name in self.target.relatives(symbol):
            twins: dict[str, str] = {}
            if self._are_same(symbol, name, twins):
                return twins
        return {}

    def _are_same(self, symbol: str, name: str, assumed: dict[str, str]) -> bool:
        """Return True if a function of the source equals one of the target, up to symbol names."""
        known = self.renamed | assumed
        if symbol in known or symbol not in self.source.functions:
            return known.get(symbol, symbol) == name
        if (function := self.target.functions.get(name)) is None:
            return False
        assumed[symbol] = name
        text, symbols = _without_symbols(self.source.text(symbol))
        other_text, names = _without_symbols(text_of(function))
        if text != other_text:
            return False
        return all(self._are_same(*pair, assumed) for pair in zip(symbols, names, strict=True))


def identifier(name: str) -> str:
    """Convert a name to one that MLIR prints without quotes."""
    return re.sub(r"\W+", "_", name).strip("_") or "function"


def _without_symbols(text: str) -> tuple[str, list[str]]:
    """Return the text of a function with each symbol masked, and the symbols."""
    return _SYMBOL.sub("@", text), [name.strip('"') for name in _SYMBOL.findall(text)]


def references(function: Any) -> set[str]:
    """Return the symbols that a function's operations refer to."""
    found: set[str] = set()

    def note(symbol: str) -> str:
        found.add(symbol)
        return symbol

    _walk_attributes(function.operation, note)
    return found


def rename_references(operation: Any, names: dict[str, str]) -> None:
    """Replace symbols in all symbol references of the operations inside."""
    _walk_attributes(operation, lambda symbol: names.get(symbol, symbol))


_PLAIN = ("stablehlo.", "chlo.", "func.return")  # of which only these ops refer to functions
_REFERRING = frozenset({"stablehlo.composite", "stablehlo.custom_call"})
_NO_REFERENCES = frozenset(
    {"sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs"}
)


def _walk_attributes(root: Any, rename: Any) -> None:
    def visit(operation: Any) -> ir.WalkResult:
        name = operation.name
        if name.startswith(_PLAIN) and name not in _REFERRING:
            return ir.WalkResult.ADVANCE
        attributes = operation.attributes
        for name, old in list(attributes.items()):
            new = old if name in _NO_REFERENCES else _renamed(old, rename)
            if new is not old:
                attributes[name] = new
        return ir.WalkResult.ADVANCE

    root.walk(visit)


def _renamed(attribute: Any, rename: Any) -> Any:
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        new = rename(attribute.value)
        return attribute if new == attribute.value else ir.FlatSymbolRefAttr.get(new)
    if not isinstance(attribute, (ir.DictAttr, ir.ArrayAttr)) or not len(attribute):
        return attribute
    if isinstance(attribute, ir.DictAttr):
        old = {named.name: named.attr for named in attribute}
        new = {name: _renamed(value, rename) for name, value in old.items()}
        same = all(old[name] is new[name] for name in old)
        return attribute if same else ir.DictAttr.get(new)
    before = list(attribute)
    after = [_renamed(value, rename) for value in before]
    same = all(a is b for a, b in zip(after, before, strict=True))
    return attribute if same else ir.ArrayAttr.get(after)
