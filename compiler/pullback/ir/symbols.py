"""Symbol tables: the functions of a module by name, who calls them, and unreachable ones."""

from __future__ import annotations

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pullback._jax import ir
from pullback.ir.mlir_passes import run_stock
from pullback.ir.regions import operations
from pullback_runtime._jax import operations_named

FUNC = "func.func"
CALL = "func.call"

CALLS = {CALL: "callee", "stablehlo.composite": "decomposition"}
"""Ops that compute what a function does, and the attribute that names it."""


class Symbols:
    """The symbol table of a module, kept up to date by its users: a module may have thousands.

    A caller that adds a function to the module, or removes one, calls `add` or `remove`.

    Attributes:
      functions: every `func.func` by name.
      others: the other operations with a name, such as meshes.
    """

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.functions: dict[str, ir.Operation] = {}
        self.others: dict[str, ir.Operation] = {}
        self._relatives: dict[str, _Relatives] = defaultdict(_Relatives)
        self._unsorted: list[tuple[str, ir.Operation]] = []
        self._numbers: dict[str, int] = {}
        for operation in operations(module.body):
            if operation.name == FUNC:
                self.add(symbol(operation), operation, shared=True)
            elif "sym_name" in operation.attributes:
                self.others[symbol(operation)] = operation

    def __contains__(self, name: str) -> bool:
        return name in self.functions or name in self.others

    def add(self, name: str, function: ir.Operation, *, shared: bool = False) -> None:
        """Add a function; one that is shared does not change any more, and `equal` may find it."""
        self.functions[name] = function
        if shared:
            self._unsorted.append((name, function))

    def remove(self, name: str) -> ir.Operation:
        """Remove a function from the table and return it."""
        self._numbers.pop(_NUMBER.sub("", name), None)
        self._relatives_of(name).functions.pop(name, None)
        return self.functions.pop(name)

    def unique(self, name: str) -> str:
        """Return `name`, with a number appended if it is taken."""
        if name not in self:
            return name
        number = self._numbers.get(name, 0)
        while f"{name}_{number}" in self:
            number += 1
        self._numbers[name] = number  # those below are taken
        return f"{name}_{number}"

    def relatives(self, name: str) -> dict[str, ir.Operation]:
        """Return the shared functions whose names differ from this one by number suffixes."""
        return self._relatives_of(name).functions

    def equal(self, name: str, type: Any, text: Callable[[], str]) -> str | None:
        """Return the name of a relative with this type and this text, if there is one."""
        return self._relatives_of(name).equal(type, text)

    def _relatives_of(self, name: str) -> _Relatives:
        for each, function in self._unsorted:
            self._relatives[_base(each)].add(each, function)
        self._unsorted.clear()
        return self._relatives[_base(name)]


class _Relatives:
    """Functions whose names differ by number suffixes, by type and text.

    The text of each is read at most once, when one of its type is looked for.
    """

    def __init__(self) -> None:
        self.functions: dict[str, ir.Operation] = {}
        self._unread: dict[Any, list[str]] = defaultdict(list)
        self._names: dict[str, tuple[str, ir.Operation]] = {}

    def add(self, name: str, function: ir.Operation) -> None:
        self.functions[name] = function
        self._unread[function.attributes["function_type"]].append(name)

    def equal(self, type: Any, text: Callable[[], str]) -> str | None:
        for name in self._unread.pop(type, ()):
            if (function := self.functions.get(name)) is not None:
                read = text_of(function)
                if self._named(read) is None:
                    self._names[read] = name, function
        return self._named(text()) if self._names else None

    def _named(self, text: str) -> str | None:
        name, function = self._names.get(text, ("", None))
        return name if function is not None and self.functions.get(name) is function else None


def symbol(operation: ir.Operation) -> str:
    """Return the symbol name of an operation that has one."""
    return ir.StringAttr(operation.attributes["sym_name"]).value


def text_of(function: Any) -> str:
    """Return the text of a function, without its name."""
    text = function.operation.get_asm(
        assume_verified=True, use_local_scope=True, large_resource_limit=0
    )
    kind, _, named = text.partition("@")
    return str(kind + named.partition("(")[2])


_NUMBER = re.compile(r"_\d+$")
_NUMBERS = re.compile(r"(_\d+)+$")


@functools.lru_cache
def _base(name: str) -> str:
    """Return the name without the number suffixes that made it unique."""
    return _NUMBERS.sub("", name)


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """Return the functions of a module by name, in its order."""
    return {symbol(op): op for op in operations(module.body) if op.name == FUNC}


def is_public(function: ir.Operation) -> bool:
    """Return True if code outside the module may call this function."""
    attributes = function.attributes
    if "sym_visibility" not in attributes:
        return True
    return ir.StringAttr(attributes["sym_visibility"]).value == "public"


def make_public(function: Any, name: str | None = None) -> None:
    """Make a function public, under another name if one is given."""
    _declare(function, name, "public")


def make_private(function: Any, name: str | None = None) -> None:
    """Make a function private, under another name if one is given."""
    _declare(function, name, "private")


def _declare(function: Any, name: str | None, visibility: str) -> None:
    context, attributes = function.context, function.attributes
    attributes["sym_visibility"] = ir.StringAttr.get(visibility, context)
    if name is not None:
        attributes["sym_name"] = ir.StringAttr.get(name, context)


def is_declaration(function: ir.Operation) -> bool:
    """Return True if the function has no body."""
    return len(function.regions[0].blocks) == 0


def callee(call: ir.Operation) -> str:
    """Return the name of the function that a `func.call` calls."""
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def called(operation: ir.Operation) -> str | None:
    """Return the name of the function that computes the results of an op, if it is a call."""
    attribute = CALLS.get(operation.name)
    return attribute and ir.FlatSymbolRefAttr(operation.attributes[attribute]).value


def search(
    root: Any, wanted: Callable[[Any], Any], through: Callable[[Any], Any] = called
) -> tuple[Any | None, list[str]]:
    """Return an op at or below `root` that is wanted, or None, and the functions called before it.

    Each function is named once, and only if `through` holds for a call of it.
    """
    found, names = None, dict[str, None]()

    def visit(each: Any) -> Any:  # raises nothing: MLIR would make a RuntimeError of it
        nonlocal found
        if (name := called(each)) is not None and through(each):
            names[name] = None
        found = each if wanted(each) else None
        return ir.WalkResult.ADVANCE if found is None else ir.WalkResult.INTERRUPT

    root.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found, list(names)


def leave_copy(module: ir.Module, entry: str) -> None:
    """Leave callers of `entry` a private copy of it, before a pass rewrites it in place.

    A rule function may call the function that it is a rule of. An entry that calls itself gets no
    copy: the pass reports the recursion.
    """
    if len(module.body.operations) == 1:
        return
    known = functions(module)
    calls = operations_named(module, *CALLS)
    if entry not in known or not any(entry in names_in(op) for op in calls):
        return
    if _calls_itself(known, entry):
        return
    numbered = (f"{entry}.primal_{i}" for i in itertools.count())
    taken = ir.SymbolTable(module.operation)
    name = next(n for n in itertools.chain([f"{entry}.primal"], numbered) if n not in taken)
    copy = known[entry].clone(ir.InsertionPoint(module.body))
    make_private(copy, name)
    with module.context:
        ir.SymbolTable.replace_all_symbol_uses(entry, name, module.operation)


def names_in(operation: ir.Operation) -> list[str | None]:
    """Return the functions that a call names: its callee, and those of its rules."""
    name = "composite_attributes"
    attributes = ir.DictAttr(operation.attributes[name]) if name in operation.attributes else ()
    values = (attribute.attr for attribute in attributes)
    symbols = (value for value in values if isinstance(value, ir.FlatSymbolRefAttr))
    return [called(operation), *(symbol.value for symbol in symbols)]


def _calls_itself(known: dict[str, ir.Operation], entry: str) -> bool:
    seen, pending = set[str | None](), [known[entry]]
    while pending:
        function = pending.pop()
        names = search(function, lambda op: False)[1]
        pending += [known[name] for name in names if name in known and name not in seen]
        seen.update(names)
    return entry in seen


def erase_unreachable(module: ir.Module) -> None:
    """Erase private functions that no public one refers to, by calls or by attributes.

    MLIR's `symbol-dce` also follows the references inside `composite_attributes`.
    """
    run_stock(module, "symbol-dce")
