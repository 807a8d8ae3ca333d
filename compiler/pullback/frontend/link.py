"""Lower a kept jaxpr, and link functions lowered apart into one module."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from pullback import _jax
from pullback._errors import PullbackError
from pullback._jax import ir
from pullback_runtime import _module

if TYPE_CHECKING:
    from pullback.frontend.rules import RuleTable

BEING_LINKED = "pullback.being_linked"
"""The name of a function on its way into a module; no Python function has a dot in its name."""


def lower_alone(
    symbol: str,
    closed: Any,
    table: RuleTable,
    *,
    entry: bool = False,
    name: str | None = None,
    context: ir.Context | None = None,
) -> ir.Module:
    """A fresh module that holds the function `symbol` and everything it calls."""
    context = context or _jax.context()
    with context, ir.Location.unknown(context):
        module = ir.Module.create()
        if name is not None:
            module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
    _jax.lower_into(
        module,
        symbol,
        closed,
        platforms=table.platforms,
        keepalives=table.keepalives,
        host_callbacks=table.host_callbacks,
        entry=entry,
    )
    return module


def merge(target: ir.Module, source: ir.Module, symbol: str) -> str:
    """Copies `symbol` and all it refers to into `target`; equal functions there are shared."""
    if source.context != target.context:
        source = _module.parse(_module.to_bytecode(source), target.context)
    functions = {_symbol(op): op for op in source.body.operations}
    existing = {_symbol(op): op for op in target.body.operations}
    for name, operation in functions.items():
        if not isinstance(operation, _jax.func.FuncOp):
            _copy_mesh(target, name, operation, existing)
    return _Merge(target, functions, existing).copy(symbol)


def _copy_mesh(target: ir.Module, name: str, mesh: Any, existing: dict[str, Any]) -> None:
    """Copies a mesh. Attributes refer to it by name in their text, so it must keep its name."""
    if name not in existing:
        with target.context:
            existing[name] = mesh.operation.clone(ip=ir.InsertionPoint.at_block_begin(target.body))
    elif _text(existing[name]) != _text(mesh):
        raise PullbackError(
            f"a rule and the program use different meshes under the name `{name}`",
            where=f"{mesh}",
            do="use one mesh throughout the program",
        )


_NUMBERS = re.compile(r"(_\d+)+$")


class _Merge:
    def __init__(self, target: ir.Module, functions: dict[str, Any], existing: dict[str, Any]):
        self.target = target
        self.functions = functions
        self.existing = existing
        self.renamed: dict[str, str] = {}
        self.open: set[str] = set()

    def copy(self, symbol: str) -> str:
        """The name in the target of a function of the source, copied if it is not there yet."""
        if symbol in self.open and symbol not in self.renamed:
            self.renamed[symbol] = self._free_name(symbol)  # a rule that refers to itself
            self.existing[self.renamed[symbol]] = None
        elif symbol not in self.renamed:
            function = self.functions[symbol]
            self.open.add(symbol)
            for callee in sorted(references(function)):
                self.copy(callee)
            self.renamed[symbol] = self._place(function, symbol)
        return self.renamed[symbol]

    def _place(self, function: Any, symbol: str) -> str:
        """Copies one function, whose callees are copied already, unless an equal one is there."""
        context = self.target.context
        with context, ir.Location.unknown(context):
            clone = function.operation.clone(ip=ir.InsertionPoint(self.target.body))
            clone.attributes["sym_name"] = ir.StringAttr.get(BEING_LINKED)
            rename_references(clone, self.renamed)
            name = self.renamed.get(symbol) or self._equal(clone, symbol)
            if name is not None and self.existing[name] is not None:
                clone.erase()
                return name
            name = name or self._free_name(symbol)
            clone.attributes["sym_name"] = ir.StringAttr.get(name)
        self.existing[name] = clone
        return name

    def _equal(self, clone: Any, symbol: str) -> str | None:
        """The name of a function that is there already and does the same."""
        base = _base(symbol)
        alike = {n: f for n, f in self.existing.items() if f is not None and _base(n) == base}
        text = _text(clone) if alike else ""
        return next((n for n, f in alike.items() if _text(f) == _named(text, n)), None)

    def _free_name(self, symbol: str) -> str:
        numbered = (f"{symbol}_{number}" for number in itertools.count())
        names = itertools.chain([symbol], numbered)
        return next(name for name in names if name not in self.existing)


def _base(symbol: str) -> str:
    """The name without the numbers that made it unique."""
    return _NUMBERS.sub("", symbol)


def _named(text: str, name: str) -> str:
    return text.replace(BEING_LINKED, name, 1)


def _text(function: Any) -> str:
    return function.operation.get_asm(
        assume_verified=True, use_local_scope=True, large_resource_limit=0
    )


def references(function: Any) -> set[str]:
    """The symbols that a function's operations refer to."""
    found: set[str] = set()

    def note(symbol: str) -> str:
        found.add(symbol)
        return symbol

    _walk_attributes(function.operation, note)
    return found


def rename_references(operation: Any, names: dict[str, str]) -> None:
    """Replaces symbols in all symbol references of the operations inside."""
    _walk_attributes(operation, lambda symbol: names.get(symbol, symbol))


def _walk_attributes(root: Any, rename: Any) -> None:
    def visit(operation: Any) -> ir.WalkResult:
        if operation.name == "stablehlo.constant":  # the bindings cannot read complex values
            return ir.WalkResult.ADVANCE
        attributes = operation.attributes
        for name, old in list(attributes.items()):
            new = _renamed(old, rename)
            if new is not old:
                attributes[name] = new
        return ir.WalkResult.ADVANCE

    root.walk(visit)


def _renamed(attribute: Any, rename: Any) -> Any:
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        new = rename(attribute.value)
        return attribute if new == attribute.value else ir.FlatSymbolRefAttr.get(new)
    if isinstance(attribute, ir.DictAttr):
        old = {named.name: named.attr for named in attribute}
        new = {name: _renamed(value, rename) for name, value in old.items()}
        same = all(old[name] is new[name] for name in old)
        return attribute if same else ir.DictAttr.get(new)
    return attribute


def _symbol(operation: Any) -> str:
    return ir.StringAttr(operation.attributes["sym_name"]).value
