"""Reachability: the calls with rules that derivatives of a program differentiate, and by what.

A derivative goes through what a program calls and through rules, of any order. It does not enter
the function of a call that has rules of its own, but to transpose it, nor reach a call none of
whose operands depends on what can be perturbed.

Reachability is a worklist by depth of rules, over the call graph; perturbation is a forward
dataflow analysis of each function on it (`ir/dependence.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pullback._jax import ir
from pullback.ir import ops
from pullback.ir.build import Value, hides_inexact, inexact
from pullback.ir.dependence import Dependence
from pullback.ir.masks import mask_of
from pullback.ir.symbols import CALLS, called, functions, is_declaration, is_public
from pullback_runtime._jax import operations_named


class Meeting(NamedTuple):
    """A call that a derivative can reach.

    Attributes:
      call: a view of the op.
      mask: the inexact operands that can be perturbed, of those that rules are for.
      depth: what rules it has come by: 0 if by none, odd if by one that can be transposed, even
        if by a transpose.
      in_rules: the same, of what rules make; None if only the program makes it.
      transposed: the call is only reached where a function around it is transposed.
    """

    call: Any
    mask: str
    depth: int
    in_rules: int | None
    transposed: bool

    def order(self, rule: str) -> int:
        """Return the order of the first derivative that needs a rule, named as in a call."""
        return order_of(rule, self.depth)


def order_of(rule: str, depth: int) -> int:
    """Return the order of the first derivative that needs a rule of a call at this depth.

    A derivative may transpose at once what a rule calls, as reverse mode does with a jvp rule. To
    transpose what a transpose calls takes another one, and so does to differentiate anything again.
    """
    return (depth if rule.startswith("transpose") else depth + 1) // 2 + 1


def met_in(module: ir.Module) -> list[Meeting]:
    """Return the calls that derivatives of a module, as it is, can reach."""
    return Meetings(functions(module)).now()


def have_rules(met: Iterable[Meeting], order: int | None = None) -> bool:
    """Return True if each call that a derivative up to this order, or any, reaches has rules."""
    wanted = (each for each in met if order is None or each.order("jvp") <= order)
    return all(each.call.symbols for each in wanted if not each.transposed)


class Meetings:
    """The calls that derivatives of a module can reach, while it gets more rules.

    Args:
      functions: those of the module by name, of which there may be more later.
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._found: dict[str, list[tuple[str | None, Any]]] = {}
        self._moving = _Perturbation(functions)
        self._linear = _Perturbation(functions)  # by the tangents, or cotangents, of rules
        self._rule_functions: set[str] = set()  # of which that is known
        self._roots: set[str] = set()  # whose arguments are perturbed

    def now(self) -> list[Meeting]:
        """Return all such calls, if public functions are differentiated by all their arguments."""
        differentiated: dict[str, int] = {}
        computed: dict[str, int] = {}
        in_rules: dict[str, int] = {}
        public = [n for n, f in self._functions.items() if is_public(f) and not is_declaration(f)]
        seen: set[str] = set()
        at: dict[int, list[str]] = {0: public}
        while at:
            depth = min(at)
            new = [name for name in dict.fromkeys(at.pop(depth)) if name not in seen]
            seen.update(new)
            self._perturb(new)
            entered = self._closure(new, self._entered)
            below = self._closure(entered, self._computed)
            differentiated = dict.fromkeys(entered, depth) | differentiated
            computed = dict.fromkeys(below, depth) | computed
            if depth:
                in_rules = dict.fromkeys(below, depth) | in_rules
            for rule, name in [*self._rules(below), *self._transposed(below)]:
                if name not in seen:
                    at.setdefault(_next(rule, depth), []).append(name)
        return [
            Meeting(call, mask, depth, in_rules.get(name), name not in differentiated)
            for name, depth in (computed | differentiated).items()
            for call in self._calls(name)
            if "1" in (mask := self._perturbed(call))
        ]

    def _perturb(self, names: Iterable[str]) -> None:
        """Mark all arguments of these functions, of a program or of rules, as perturbed."""
        for name in names:
            if name not in self._roots:
                self._roots.add(name)
                for block in self._functions[name].regions[0].blocks:
                    self._moving.spread(block, filter(_can_move, block.arguments))

    def _perturbed(self, call: Any) -> str:
        own, moving = call.closed_over, self._moving.everywhere
        operands = [(i, v) for i, v in enumerate(call.operands) if inexact(v.type)]
        return mask_of(i >= own and v in moving for i, v in operands)

    def _closure(
        self, names: Iterable[str], leads_to: Callable[[str], Iterable[str | None]]
    ) -> list[str]:
        """Return the transitive closure of `names` under `leads_to`, each function once."""
        found = list(names)
        seen = set[str | None](found)
        for name in found:  # it grows
            new = [n for n in dict.fromkeys(leads_to(name)) if n is not None and n not in seen]
            found += [n for n in new if n in self._functions]
            seen.update(new)
        return found

    def _computed(self, name: str) -> list[str | None]:
        return [function for function, _ in self._in(name)]

    def _entered(self, name: str) -> list[str | None]:
        return [function for function, view in self._in(name) if view is None or _is_entered(view)]

    def _rules(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the rules of calls in these functions: their names in a call, and functions."""
        calls = (view for name in names for view in self._calls(name))
        rules = {rule: view for view in calls for rule in view.symbols.items()}
        found = {(rule, n): view for (rule, n), view in rules.items() if n in self._functions}
        for (rule, name), view in found.items():
            self._mark_linear(view, rule, name)
        return list(found)

    def _mark_linear(self, view: Any, rule: str, name: str) -> None:
        """Mark what in a rule depends on its tangents or cotangents: its last arguments."""
        if name in self._rule_functions or is_declaration(self._functions[name]):
            return
        self._rule_functions.add(name)
        block, kind = self._functions[name].regions[0].blocks[0], rule.partition(".")[0]
        arguments, count = list(block.arguments), 0
        if kind == "jvp":
            count = len(arguments) - len(view.operands)
        elif kind != "fwd":
            count = len(ops.inexact_positions(view.results))
        self._linear.spread(block, arguments[len(arguments) - count :])

    def _transposed(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the functions of calls in rules that reverse mode transposes for want of a rule.

        What they compute of operands that are not tangents is then part of the derivative, and the
        next derivative differentiates it.
        """
        linear = self._linear.everywhere
        return [
            ("transpose", view.decomposition)
            for name in names
            for view in self._calls(name)
            if not any(rule.startswith(("transpose", "bwd")) for rule in view.symbols)
            and view.decomposition in self._functions
            and 0 < sum(v in linear for v in view.operands) < len(view.operands)
        ]

    def _calls(self, name: str) -> list[Any]:
        """Return the calls in a function that have rules of their own."""
        return [view for _, view in self._in(name) if view is not None]

    def _in(self, name: str) -> list[tuple[str | None, Any]]:
        """Return what a function calls, each with a view of the call if it has rules of its own."""
        if name not in self._found:
            found = operations_named(self._functions[name], *CALLS)
            self._found[name] = [(called(op), ops.view(op)) for op in found]
        return self._found[name]


class _Perturbation(Dependence):
    """An analysis of what may be perturbed: of a call with rules, all results if any operand is.

    The rules decide, not what the call computes.
    """

    def operation(self, operation: Any, facts: dict[Value, bool]) -> list[bool]:
        found = super().operation(operation, facts)
        if ops.view(operation) is None:
            return found
        return [any(v in facts for v in operation.operands)] * len(found)


def _next(rule: str, depth: int) -> int:
    """Return the depth of what a rule of a call at this depth calls."""
    is_odd = depth % 2 == 1
    return depth + (1 if rule.startswith("transpose") == is_odd else 2)


def _is_entered(view: Any) -> bool:
    """Return True if the function of a call is itself differentiated, in spite of its rules.

    That of a linear call is, by its residuals; another one is if it closes over values.
    """
    return isinstance(view, ops.LinearCall) or view.closed_over > 0


def _can_move(v: Value) -> bool:
    return inexact(v.type) or hides_inexact(v.type)
