"""Hoist loop-invariant values of a loop's body out of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback._jax import ir
from pullback.autodiff.registry import RULES, Op
from pullback.autodiff.residuals import again, computed, inputs_of, is_view
from pullback.ir.build import Value
from pullback.ir.dataflow import NO, YES, Sources, decided
from pullback.ir.purity import Purity
from pullback.ir.regions import block_of, blocks, captures


class Invariants:
    """Loop-invariant code motion, op by op, as a reverse loop reads results of the primal body.

    Otherwise the primal loop had to stack them, or the reverse loop to recompute them in each
    iteration. JAX hoists them out of a scan, too. Views are copied: they cost nothing where they
    are. Calls and control flow, which the reverse sweep may replace, wait until it is over.

    Args:
      op: a `stablehlo.while`.
      outside: returns the value before the loop that equals a value of the body: one that the
        body captures, or a carry that it does not change. None for others.
      functions: those of the module.
    """

    def __init__(
        self, op: Op, outside: Callable[[Value], Value | None], functions: dict[str, Any]
    ) -> None:
        self._op = op
        self._outside = outside
        self._purity = Purity(functions)
        self._is_invariant: dict[Value, bool] = {}
        self._made: dict[Value, Value] = {}
        self._is_swept = False

    def after_sweep(self) -> None:
        """Forget which values vary: the sweep is over and replaces nothing in the body any more."""
        self._is_swept = True
        self._is_invariant.clear()

    def find(self, v: Value) -> Value | None:
        """Hoist the op of a value out of the loop; return None if it varies or is a view."""
        if isinstance(v, ir.BlockArgument) or is_view(v.owner.operation):
            return None
        if not decided(v, self._is_invariant, self._sources):
            return None
        return computed(v, self._made, self._outside, self._move)

    def _sources(self, v: Value) -> Sources:
        """Return the values that have to be invariant so that `v` is and can be hoisted."""
        if self._outside(v) is not None:
            return YES
        operation = None if isinstance(v, ir.BlockArgument) else v.owner.operation
        if operation is None or self._may_be_replaced(operation):
            return NO
        if self._is_movable(operation):
            return inputs_of(v, operation), False
        self._is_invariant.update(dict.fromkeys(operation.results, False))  # control flow has many
        return NO

    def _may_be_replaced(self, operation: Any) -> bool:
        rule = None if self._is_swept else RULES.get(operation.name)
        return rule is not None and rule.family == "control"

    def _is_movable(self, operation: Any) -> bool:
        """Return True if the op is pure, directly in the body, and its regions capture nothing."""
        if len(operation.regions) and captures(operation):
            return False
        body = blocks(self._op.operation)[1]
        return block_of(operation) == body and self._purity.is_pure(operation)

    def _move(self, v: Value) -> Value:
        operation = v.owner
        if is_view(operation):
            return again(v, self._made, ir.InsertionPoint(self._op.operation))
        operation.move_before(self._op.operation)
        for i, x in enumerate(operation.operands):
            operation.operands[i] = self._made[x]
        return v
