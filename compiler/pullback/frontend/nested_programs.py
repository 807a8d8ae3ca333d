"""A program called inside another one: its module comes along, derivative rules included.

A derivative such as `pb.grad(f)` is a program that JAX sees as one primitive. Where a function that
calls it is traced, the program's functions are copied into the new module, and its rules into the
new rule table; so the call can be differentiated like any other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pullback._jax import ir
from pullback.frontend import link
from pullback.ir import ops
from pullback.ir.modules import clone
from pullback.ir.symbols import make_private
from pullback.passes.base import NoRules
from pullback.program.handles import program_of
from pullback_runtime.call._callbacks import shift_callbacks
from pullback_runtime.call._handle import LOST_CHECKS

if TYPE_CHECKING:
    from pullback.frontend.rules.call_table import CallTable


def merger(equation: Any, rules: CallTable) -> Callable[[ir.Module], Any]:
    """Return a function that copies the module an equation calls into the one being lowered.

    It refers to the rule table weakly. JAX keeps it, a parameter of the equation, for as long as
    what the equation is lowered to, and the table holds that.
    """
    table = weakref.ref(rules)

    def merge(target: ir.Module) -> tuple[str, list[Any]]:
        rules = table()
        assert rules is not None  # it is what lowers the equation
        program = program_of(equation.params["handle"])._on(rules.environment.platforms[0])
        source, symbol = _prepared(program, rules)
        before = {op.operation for op in target.body.operations}
        name = link.merge(target, source, symbol)
        return name, [op for op in target.body.operations if op.operation not in before]

    return merge


def _prepared(program: Any, rules: CallTable) -> tuple[ir.Module, str]:
    """Return a copy of a program's module that refers to this table's rules, and its entry."""
    module = clone(program.module)
    symbol = _free_entry(module)
    if program.rules is not rules:
        _adopt_rules(module, program.rules, rules)
        shift_callbacks(module, len(rules.environment.host_callbacks))
        has_lost_checks = LOST_CHECKS in module.operation.attributes
        rules.environment = rules.environment.with_called(program.environment, has_lost_checks)
    return module, symbol


def _free_entry(module: ir.Module) -> str:
    """Make the entry a private function of another name than `main`, and return the name."""
    symbols = ir.SymbolTable(module.operation)
    entry = symbols["main"]
    name = "program"
    while name in symbols:
        name += "_"
    make_private(entry, name)
    for attributes in ("arg_attrs", "res_attrs"):
        if attributes in entry.attributes:
            del entry.attributes[attributes]
    return name


def _adopt_rules(module: ir.Module, old: Any, new: CallTable) -> None:
    """Replace the rule keys of calls with this table's; drop them if the program has no rules."""
    for call in ops.walk_calls(module):
        if (key := call.rule_key) is not None:
            call.update(rule=None if isinstance(old, NoRules) else new.adopt(old, key))
