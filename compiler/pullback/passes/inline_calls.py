"""The pass `inline-calls`; MLIR's own `inline` does nothing in jaxlib, silently."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pullback._jax import ir, remat
from pullback._jax.ordering import ORDERED
from pullback.ir.inline import inline_call
from pullback.ir.symbols import (
    CALL,
    callee,
    erase_unreachable,
    functions,
    is_declaration,
    is_public,
)
from pullback.passes.base import Pass, Rules


@dataclass
class _Inliner:
    """Inlines callees first, so that every copied body is final."""

    options: InlineCalls
    table: dict[str, ir.Operation]
    sizes: dict[str, int] = field(default_factory=dict)
    visiting: set[str] = field(default_factory=set)
    recursive: set[str] = field(default_factory=set)

    def visit(self, name: str) -> None:
        """Inline the calls in one function, after those in its callees."""
        function = self.table[name]
        self.visiting.add(name)
        calls, size = _calls_in(function)
        for target in map(callee, calls):
            if target in self.visiting:
                self.recursive.add(target)
            elif target in self.table and target not in self.sizes:
                self.visit(target)
        while wanted := [call for call in calls if self._wants(call)]:
            for call in wanted:
                inline_call(call, self.table[callee(call)])
            # A callee that was inlined into a loop may have calls, which are in the loop now.
            calls, size = _calls_in(function)
        self.visiting.discard(name)
        self.sizes[name] = size

    def _wants(self, call: ir.Operation) -> bool:
        target = callee(call)
        function = self.table.get(target)
        if function is None or target in self.recursive or not self._allows(function):
            return False
        if self.options.max_ops is None or self.sizes[target] <= self.options.max_ops:
            return True
        return self.options.in_loops and _is_in_loop(call)

    def _allows(self, function: ir.Operation) -> bool:
        if is_declaration(function) or len(function.regions[0].blocks) != 1:
            return False
        if is_public(function) and not self.options.public:
            return False
        attributes = function.attributes
        if remat.CHECKPOINT in attributes and not self.options.checkpoint:
            return False
        return "no_inline" not in attributes and ORDERED not in attributes


def _calls_in(function: ir.Operation) -> tuple[list[ir.Operation], int]:
    """Return the calls below a function, and how many ops it has."""
    calls: list[ir.Operation] = []
    size = -2  # neither the function itself nor its return

    def count(op: ir.Operation) -> ir.WalkResult:
        nonlocal size
        size += 1
        if op.name == CALL:
            calls.append(op)
        return ir.WalkResult.ADVANCE

    function.walk(count)
    return calls, size


def _is_in_loop(op: ir.Operation) -> bool:
    parent = op.parent
    while parent is not None and parent.operation.name != "func.func":
        if parent.operation.name == "stablehlo.while":
            return True
        parent = parent.operation.parent
    return False


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Replace calls by the bodies of the private functions that they call.

    Before: `%0 = call @square(%x)`. After: `%0 = stablehlo.multiply %x, %x`.
    Recursive functions stay calls, and so do those marked `no_inline`
    or `pullback.ordered`. Functions that are not
    referred to any more are erased; those that composites refer to stay.

    Attributes:
      max_ops: inline only callees of at most so many ops, nested ones included.
      in_loops: inline calls inside `stablehlo.while` whatever their size.
      public: also inline public functions.
      checkpoint: also inline functions marked `pullback.checkpoint`.
    """

    name: ClassVar[str] = "inline-calls"
    max_ops: int | None = None
    in_loops: bool = False
    public: bool = False
    checkpoint: bool = False

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Inline bottom-up, then erase what is not called."""
        table = functions(module)
        inliner = _Inliner(self, table)
        for name, function in table.items():
            if name not in inliner.sizes and not is_declaration(function):
                inliner.visit(name)
        erase_unreachable(module)
