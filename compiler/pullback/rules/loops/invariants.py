"""What a loop's body computes that no iteration changes: moved in front of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback._jax import ir
from pullback.autodiff.registry import RULES, Op
from pullback.autodiff.residuals import again, computed, decided, inputs_of, is_view
from pullback.ir.build import Value
from pullback.ir.purity import Purity
from pullback.ir.regions import block_of, blocks, captures


class Invariants:
    """Moves ops of a body, and what they depend on, as a reverse loop asks for their results.

    It would have to stack them, or to compute them again in each iteration. JAX hoists them out of
    a scan, too. Views are copied: they cost nothing where they are. Calls and control flow, which a
    sweep may replace, wait until it is over.

    Args:
      op: a `stablehlo.while`.
      outside: gives what stands in front of the loop for a value of the body: for one that the body
        captures, or a carry that it does not change. None for others.
      functions: those of the module.
    """

    def __init__(
        self, op: Op, outside: Callable[[Value], Value | None], functions: dict[str, Any]
    ) -> None:
        self._op = op
        self._outside = outside
        self._purity = Purity(functions)
        self._does_vary: dict[Value, bool] = {}
        self._made: dict[Value, Value] = {}
        self._is_swept = False

    def after_sweep(self) -> None:
        """Nothing in the body is replaced any more."""
        self._is_swept = True
        self._does_vary.clear()

    def find(self, v: Value) -> Value | None:
        """What the op of a value gives in front of the loop; None if it varies, or is a view."""
        if isinstance(v, ir.BlockArgument) or is_view(v.owner.operation):
            return None
        if decided(v, self._does_vary, self._decide):
            return None
        return computed(v, self._made, self._outside, self._move)

    def _decide(self, v: Value) -> Value | None:
        """Note whether a value varies; or give one of which that must be known first."""
        if self._outside(v) is not None:
            self._does_vary[v] = False
            return None
        operation = None if isinstance(v, ir.BlockArgument) else v.owner.operation
        if operation is None or self._may_be_replaced(operation):
            self._does_vary[v] = True
            return None
        inputs = inputs_of(v, operation)
        for x in inputs:
            if x not in self._does_vary:
                return x
        varies = any(self._does_vary[x] for x in inputs)
        self._does_vary[v] = varies or not self._is_movable(operation)
        return None

    def _may_be_replaced(self, operation: Any) -> bool:
        rule = None if self._is_swept else RULES.get(operation.name)
        return rule is not None and rule.family == "control"

    def _is_movable(self, operation: Any) -> bool:
        """Whether it may run where the body does not; a loop in it may be what takes the time."""
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
