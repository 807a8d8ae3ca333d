"""Passes that edit the entry of a module: operands in another order, fewer results, other types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pullback import _jax
from pullback._jax import ir
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.dataflow import CONTROL
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.modules import drop_function, entry_of, take_entry
from pullback.ir.purity import Purity, is_used
from pullback.ir.regions import replace_terminator, terminator
from pullback.ir.signatures import keep_arguments, keep_results, set_signature
from pullback.ir.symbols import functions, is_public
from pullback.passes.base import Pass, Rules
from pullback_runtime.ir._erasure import erase


@dataclass(frozen=True)
class ReorderOperands(Pass):
    """Put the operand at `order[i]` of the entry at position i; others go."""

    name: ClassVar[str] = "reorder-operands"
    order: tuple[int, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Change the entry in place."""
        function, block = entry_of(module)
        if self.order != tuple(range(len(block.arguments))):
            keep_arguments(function, self.order)


@dataclass(frozen=True)
class SelectResults(Pass):
    """Let the entry return the results at these positions only, in this order."""

    name: ClassVar[str] = "select-results"
    order: tuple[int, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Change the entry in place, and erase what was only needed for other results."""
        function, block = entry_of(module)
        results = list(terminator(block).operands)
        if self.order == tuple(range(len(results))):
            return
        keep_results(function, self.order)
        kept = frozenset(self.order)
        dropped = [v for i, v in enumerate(results) if i not in kept]
        table = functions(module)
        if not _erase_producers(dropped, Purity(table)):
            erase_dead_ops(block, table)


@dataclass(frozen=True)
class ConvertResults(Pass):
    """Convert the results of the entry to these element types; of complex ones the real part."""

    name: ClassVar[str] = "convert-results"
    elements: tuple[str, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Change the entry in place."""
        function, block = entry_of(module)
        end = terminator(block)
        with _jax.working_in(module), build.inserting(ir.InsertionPoint(end), end.location):
            types = map(build.element_type, self.elements)
            pairs = zip(end.operands, types, strict=True)
            results = [build.converted(v, build.with_element(v.type, e)) for v, e in pairs]
        replace_terminator(block, results)
        set_signature(function)


@dataclass(frozen=True)
class Half(Pass):
    """Make one of the two functions that a splitting pass leaves `@main`; erase the other.

    Attributes:
      second: take the second one. It is public, unlike a user's rule of the name `@main.bwd`, and
        unlike the functions that JAX leaves public its name begins with `main.`.
      last: the order of its last operands, those that are not residuals.
    """

    name: ClassVar[str] = "half"
    second: bool = False
    last: tuple[int, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Change the module in place."""
        public = (name for name, each in functions(module).items() if is_public(each))
        (name,) = filter(re.compile(r"main\.").match, public)
        if not self.second:
            drop_function(module, name)
            return
        take_entry(module, name)
        count = len(entry_of(module)[1].arguments) - len(self.last)
        ReorderOperands((*range(count), *(count + i for i in self.last))).run(module, rules)


def _erase_producers(values: list[Value], purity: Purity) -> bool:
    """Erase the plain ops that only these values needed; return False if others may be dead too."""
    todo, complete = dict.fromkeys(values), True  # a set in order: no value is erased twice
    while todo:
        value, _ = todo.popitem()
        if isinstance(value, ir.BlockArgument) or is_used(value):
            continue
        op = value.owner
        if op.name in CONTROL:  # it can be dead in part
            complete = False
        if op.name in CONTROL or any(map(is_used, op.results)) or not purity.is_pure(op):
            continue
        operands = list(op.operands)
        for result in op.results:
            todo.pop(result, None)
        erase(op)
        todo.update(dict.fromkeys(operands))
    return complete
