"""Carry the coefficients of a power series along a curve through each op: Taylor mode.

Along a curve x(t), a value has coefficients: the k-th is its k-th derivative by t over k!. A linear
op maps each by itself, and a product is a sum of products. Any other op obeys y' = jvp(x, x'): the
coefficients of y are those of the ops of its jvp, one order lower. That holds for each rule,
whatever it says. These coefficients are emitted only as they are asked for, and equal ops share
them. So where a jvp computes y again, as that of exp(x) does, it refers to the coefficients of y
that are known by then: a series costs K² products, and not 2^K.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pullback._jax import ir
from pullback._jax.ordering import ORDERED
from pullback.autodiff.activity import active_results
from pullback.autodiff.checks import check_body, check_known
from pullback.autodiff.forward import Forward, Refused, jvp_function
from pullback.autodiff.registry import RULES, Op, Row, Rule, by_its_parts, distributed
from pullback.autodiff.state import Differentiation, call
from pullback.errors import MissingRuleError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.masks import mask_of, masked
from pullback.ir.purity import acts
from pullback.ir.regions import (
    captured_elements,
    latest,
    operands_of,
    operations,
    replace_terminator,
    results_of,
    terminator,
)
from pullback.ir.signatures import set_signature
from pullback.ir.symbols import CALL, callee
from pullback_runtime.ir._erasure import retire


class Series:
    """Hold the coefficients of a value: `series[0]` is the value, and `series[k]` is None if zero.

    Args:
      value: the value.
      find: emits the k-th coefficient, once; those below are known then.
      row: the coefficients that are known.

    Attributes:
      moves: False for a constant.
      error: why a rule cannot be had, which is an error where something uses the coefficients.
    """

    def __init__(
        self, value: Value, find: Callable[[int], Value | None] | None = None, row: Row = ()
    ) -> None:
        self.known: list[Any] = [value, *row]
        self.find = find
        self.moves = True
        self.error: Exception | None = None

    def __getitem__(self, k: int) -> Any:
        while k >= len(self.known):
            self.known.append(self.find and self.find(len(self.known)))
        return self.known[k]

    @property
    def order(self) -> float:
        """Return the number of coefficients that are known; infinity for a constant."""
        return len(self.known) - 1 if self.moves else math.inf

    def row(self, order: int) -> list[Any]:
        """Return the first coefficients."""
        return [self[k] for k in range(1, order + 1)]

    @cached_property
    def derivative(self) -> Series:
        """Return the series of the derivative along the curve."""
        return Series(self._slope, lambda k: build.mul(self[k + 1], k + 1))

    @cached_property
    def shifted(self) -> Series:
        """Return the coefficients from the first on, as a series."""
        return Series(self._slope, lambda k: self[k + 1])

    @property
    def _slope(self) -> Value:
        return build.instantiate(self[1], self[0])


def constant(value: Value) -> Series:
    """Return the series of a value that does not depend on the curve."""
    series = Series(value)
    series.moves = False
    return series


class Taylor:
    """Sweep a block in Taylor mode; rules of control flow see this as their frame.

    Args:
      width: the order of the last coefficient.
      rows: the coefficients of the values that depend on the curve.
    """

    linear = False
    record = Op
    suffix = "jet"

    def __init__(self, diff: Differentiation, width: int, rows: Mapping[Value, Row]) -> None:
        self.diff = diff
        self.width = width
        self.series = {v: Series(v, None, row) for v, row in rows.items()}
        self._shared: dict[Any, list[Series]] = {}  # by what an op without regions computes
        self._replaced: dict[Value, Value] = {}
        self._pending: list[Any] = []

    def primal(self, v: Value) -> Value:
        return v

    def replace(self, op: Op, new: Sequence[Value]) -> None:
        """Replace the results of an op once the sweep is done, as forward mode does."""
        self._replaced.update(zip(op.results, new, strict=True))
        self._pending.append(op.operation)

    # ------------------------------------------------------------------------------- blocks

    def run(self, block: Any) -> list[Row | None]:
        """Emit coefficients after the ops of a block; return those of what it returns."""
        sequence = operations(block)
        with build.inserting(None):
            for operation, following in itertools.pairwise(sequence):
                build.here.ip = ir.InsertionPoint(following)
                build.here.loc = operation.location
                inputs = [self.series.get(v) or constant(v) for v in _inputs(operation)]
                found = self._visit(operation, inputs, self.width, True)
                for r, series in zip(results_of(operation), found, strict=True):
                    if series.moves:
                        self.series[r] = series
                        if series.error is None:
                            series.row(self.width)
        rows = [self._row_of(v) for v in sequence[-1].operands]
        for old in self._replaced:
            old.replace_all_uses_with(latest(old, self._replaced))
        for operation in self._pending:
            retire(operation)
        return rows

    def _row_of(self, v: Value) -> Row | None:
        series = self.series.get(v)
        if series is None:
            return None
        if series.error is not None:
            raise series.error
        return [t if t is None else latest(t, self._replaced) for t in series.row(self.width)]

    def inside(self, rows: Mapping[Value, Row]) -> Taylor:
        """Return the frame of a region, with the coefficients of values that it may use."""
        return Taylor(self.diff, self.width, rows)

    rows = run

    def row_types(self, type: Any) -> list[Any]:
        """Return the types of the coefficients of a value."""
        return [type] * self.width

    def full(self, row: Row | None, v: Value) -> list[Value]:
        """Return all coefficients of a value, zeros included."""
        return [build.instantiate(t, v) for t in row or [None] * self.width]

    def through(self, op: Op, name: str, rows: Sequence[Row | None]) -> list[Row | None]:
        """Return the coefficients of an op that calls @name on its operands."""
        derived, flags = self.function(name, mask_of(op.active))
        pairs = zip(rows, op.operands, strict=True)
        terms = [t for row, v in pairs if row is not None for t in self.full(row, v)]
        results = call(self.diff, derived, [*op.operands, *terms])
        self.replace(op, results[: len(flags)])
        return distributed(flags, results[len(flags) :], self.width)

    def function(self, name: str, mask: str) -> tuple[str, list[bool]]:
        """Return the name of @name with coefficients, and which results have them.

        (args…, coefficients of masked args…) → (outs…, coefficients of flagged outs…).
        """

        def derive() -> tuple[str, list[bool]]:
            diff = self.diff
            new_name = diff.clone_function(name, f"{name}.{self.suffix}")
            function, block = diff.function(new_name), diff.block(new_name)
            found = self.inside(self.arguments(block, mask)).run(block)
            outs = list(terminator(block).operands)
            with build.inserting(ir.InsertionPoint(terminator(block)), function.location):
                pairs = zip(found, outs, strict=True)
                terms = [t for row, v in pairs if row is not None for t in self.full(row, v)]
            replace_terminator(block, [*outs, *terms])
            set_signature(function)
            return new_name, [row is not None for row in found]

        return self.diff.cached((self.suffix, name, mask, self.width), derive)

    def arguments(self, block: Any, mask: str) -> dict[Value, list[Value]]:
        """Add arguments for the coefficients of the masked ones, and return them."""
        loc = block.owner.location
        return {
            a: [block.add_argument(type, loc) for type in self.row_types(a.type)]
            for a in masked(list(block.arguments), mask)
        }

    # ---------------------------------------------------------------------------------- ops

    def _visit(self, operation: Any, inputs: list[Series], order: int, top: bool) -> list[Series]:
        """Return the series of the results of an op.

        Args:
          order: how many coefficients will be asked, most often.
          top: the op is one of the block, and not one of a rule that was applied.
        """
        key = _key(operation, inputs)
        if key is not None and key in self._shared:
            return self._shared[key]
        operands, results = _inputs(operation), results_of(operation)
        active = {v for v, s in zip(operands, inputs, strict=True) if s.moves}
        rule = RULES.get(operation.name)
        if rule is None:
            check_known(operation, operation.name, active)
        elif not rule.regions:
            check_body(operation, rule, active)
            operands = operands_of(operation)
        found = list(map(constant, results))
        if key is not None:
            self._shared[key] = found
        flags = [s.moves for s in inputs[: len(operands)]]
        if rule is None or True not in flags:
            return found
        op = Op(operation, operands, results, flags, rule, self)
        if rule.variant is not None:
            op.rule = rule.variant(op)
        moving = active_results(op)
        error = next((s.error for s in inputs if s.error is not None), None)
        for series in found:
            series.moves = series[0] in moving
            series.error = error
        if error is None and moving:
            self._enter(op, inputs, found, order, top)
        return found

    def _enter(
        self, op: Op, inputs: list[Series], found: list[Series], order: int, top: bool
    ) -> None:
        """Tell the series of the results of an op how to find their coefficients.

        Args:
          inputs: the series of its operands, and of captures that its rule does not look at.
        """
        rule, count = op.rule, len(op.operands)
        if rule.carry is not None:
            self._carry(op, inputs[:count], found, order)
        elif rule.expand is not None and len(inputs) == count:
            outs = self._apply(self.diff.block(self._expanded(op)), inputs, order)
            for series, out in zip(found, outs, strict=True):
                series.find = out.__getitem__
        else:
            self._by_rule(op, inputs, found, order, top)

    def _by_rule(
        self, op: Op, inputs: list[Series], found: list[Series], order: int, top: bool
    ) -> None:
        if op.rule.series is not None:
            found[0].find = op.rule.series(op, inputs, found[0])
        elif maps_terms(op.rule, op.active):
            _by_terms(op, inputs[: len(op.operands)], found)
        else:
            self._by_jvp(op, inputs, found, order, top)

    def _by_jvp(
        self, op: Op, inputs: list[Series], found: list[Series], order: int, top: bool
    ) -> None:
        """Find coefficients as those of the rule's jvp along the curve, one order lower.

        Where the jvp is linear in the tangents, and depends on nothing else that moves, it maps
        each coefficient by itself.
        """
        diff, count = self.diff, len(found)
        name, flags = jvp_function(diff, self._alone(op), mask_of(s.moves for s in inputs))
        scratch(diff)[name] = None
        moving = [s for s in inputs if s.moves]
        slopes: list[Any] = []
        known, bends = 0, False

        def apply(order: int) -> list[Series]:
            nonlocal known, bends
            known, bends = order, order > 1 and self._bends(op, inputs, name)
            given = [s.derivative if bends else s.shifted for s in moving]
            outs = self._apply(diff.block(name), [*inputs, *given], order - 1)
            rest = iter(outs[count:])
            slopes[:] = [next(rest) if flag is True else None for flag in flags]
            return outs[:count]

        def term(i: int, k: int) -> Value | None:
            if k > known:
                apply(k)
            found = slopes[i] and slopes[i][k - 1]
            return build.mul(found, 1 / k) if bends and k > 1 else found

        for i, (series, flag) in enumerate(zip(found, flags, strict=True)):
            series.find = functools.partial(term, i)
            if isinstance(flag, Refused):
                series.error = flag.error
            elif not flag:
                series.moves = False
        if op.rule.family != "control" or any(s.order < 1 for s in moving):
            return
        if top:  # the rule may call the function itself, and give another value for it
            copy = op.operation.clone(build.here.ip).operation
            for series, r in zip(found, copy.results, strict=True):
                series.known[0] = r
        primals = [out[0] for out in apply(order)]
        for series, v in zip(found, primals, strict=True):
            series.known[0] = v
        if top:
            self.replace(op, primals)

    def _bends(self, op: Op, inputs: Sequence[Series], jvp: str) -> bool:
        """Return True if the jvp of an op depends on its operands, if these move."""
        moves = [s.moves for s in inputs]
        mask = mask_of([*moves, *[False] * sum(moves)])
        try:
            flags = self.diff.function_activity(jvp, mask, Forward(self.diff, {}))
        except MissingRuleError:
            return True
        return any(flags[len(op.results) :])

    def _carry(self, op: Op, inputs: list[Series], found: list[Series], order: int) -> None:
        """Let an op of control flow carry the coefficients of its operands.

        Where its operands depend on its own results, as in the rule of an implicit function, a copy
        carries as many as are known.
        """
        rows: list[Any] = []
        carried = 0

        rule: Any = op.rule

        def rows_of(width: int) -> list[Row | None]:
            return [s.row(width) if s.moves else None for s in inputs]

        def carry(op: Op, width: int, given: list[Row | None]) -> None:
            nonlocal carried
            carried = width
            frame = op.frame = self.inside({})
            frame.width = width
            rows[:] = rule.carry(op, given)
            self._replaced.update(frame._replaced)
            self._pending.extend(frame._pending)

        def term(i: int, k: int) -> Value | None:
            if k > carried:
                known = min(s.order for s in inputs)
                width = max(k, int(min(order, known)))
                terms = rows_of(width)  # these are emitted before the copy that uses them
                copy = op.operation.clone(build.here.ip).operation
                again = Op(copy, op.operands, results_of(copy), op.active, op.rule, self)
                carry(again, width, terms)
            return rows[i] and rows[i][k - 1]

        for i, series in enumerate(found):
            series.find = functools.partial(term, i)
        if all(s.order >= order for s in inputs):
            carry(op, order, rows_of(order))
            for series in found:
                series.known[0] = latest(series[0], self._replaced)

    # ---------------------------------------------------------------------------- functions

    def _apply(self, block: Any, inputs: list[Series], order: int) -> list[Series]:
        """Emit the ops of a function; return the series of its results.

        With order 0, only the values are right.
        """
        series = dict(zip(block.arguments, inputs, strict=True))
        *steps, end = operations(block)
        for operation in steps:
            given = [series[v] for v in _inputs(operation)]
            found = self._shared.get(_key(operation, given))
            if found is None and order and _is_plain_call(operation, self.diff):
                found = self._apply(self.diff.block(callee(operation)), given, order)
            if found is None:
                build.here.loc = operation.location
                copy = _copied(operation, given)
                if order:
                    found = self._visit(copy, given, order, False)
                else:
                    found = list(map(constant, results_of(copy)))
            series.update(zip(results_of(operation), found, strict=True))
        return [series[v] for v in end.operands]

    def _alone(self, op: Op) -> str:
        """Return the name of a function that is one op, and takes its operands and captures.

        Operands that are constants are so in the function, too: rules look for them.
        """
        operands = _inputs(op.operation)
        fixed = {v for v in operands if _is_fixed(v)}

        def fill(arguments: Sequence[Value]) -> Sequence[Value]:
            pairs = zip(operands, arguments, strict=True)
            values = [constant(_fixed(v) if v in fixed else a) for v, a in pairs]
            return results_of(_copied(op.operation, values))

        given = [v if v in fixed else v.type for v in operands]
        return self._function(op, "alone", operands, given, fill)

    def _expanded(self, op: Op) -> str:
        """Return the name of a function of the ops that an op stands for."""
        types = [v.type for v in op.operands]
        expand: Any = op.rule.expand
        fill = functools.partial(expand, op)
        return self._function(op, "expanded", op.operands, types, fill)

    def _function(
        self,
        op: Op,
        kind: str,
        operands: Sequence[Value],
        given: Sequence[Any],
        fill: Callable[[Sequence[Value]], Sequence[Value]],
    ) -> str:
        diff, types = self.diff, [v.type for v in operands]

        def make() -> str:
            loc = op.operation.location
            name, block = diff.add_function(f"{op.name}.{kind}", types, [], loc)
            with build.inserting(ir.InsertionPoint(block), loc):
                build.emit("func.return", (), list(fill(list(block.arguments))))
            set_signature(diff.function(name))
            scratch(diff)[name] = None
            return name

        what = _key(op.operation, list(map(constant, given))) or op.operation
        alike = tuple(map(operands.index, operands))  # x * x is no function of two arguments
        return str(diff.cached((kind, op.name, what, alike), make))


def scratch(diff: Differentiation) -> dict[str, None]:
    """Return the names of functions that nothing calls when Taylor mode is done."""
    return diff.cached(("scratch", "of Taylor mode"), dict)


def drop_scratch(diff: Differentiation) -> None:
    """Erase these functions."""
    for each in scratch(diff):
        diff.drop_function(each)


_SPREADING = "stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"


def _is_fixed(v: Value) -> bool:
    """Return True for a constant, or a broadcast of one."""
    while build.is_result_of(v, *_SPREADING):
        v = v.owner.operands[0]
    return build.is_constant(v)


def _fixed(v: Value) -> Value:
    """Emit a copy of a constant, or of a broadcast of one."""
    copied = [_fixed(each) for each in v.owner.operands]
    return build.clone(v.owner, copied).result


def _inputs(operation: Any) -> list[Value]:
    """Return the operands of an op, and the values that its regions capture."""
    return [
        *operands_of(operation),
        *(captured_elements(operation) if len(operation.regions) else ()),
    ]


def _key(operation: Any, inputs: Sequence[Series]) -> Any:
    """Return what an op computes, as a key; None if it has regions, or an effect."""
    if len(operation.regions) or acts(operation):
        return None
    try:
        attributes = tuple(operation.attributes.items())
    except TypeError:  # the bindings do not read complex constants
        return None
    types = tuple(r.type for r in results_of(operation))
    return operation.name, attributes, types, tuple(s if s.moves else s[0] for s in inputs)


def _is_plain_call(operation: Any, diff: Differentiation) -> bool:
    return operation.name == CALL and ORDERED not in diff.function(callee(operation)).attributes


def _copied(operation: Any, inputs: Sequence[Series]) -> Any:
    """Emit a copy of an op on the values of other series, one for each operand and capture.

    Regions tell values apart that they use, so that these have series of their own.
    """
    copy = operation.clone(build.here.ip).operation
    used: set[Value] = set()
    values: list[Value] = []
    for series in inputs:
        now = series[0]
        if len(operation.regions) and series.moves and now in used:
            with build.inserting(ir.InsertionPoint(copy)):
                now = build.emit1("stablehlo.reshape", now.type, [now])
        values.append(now)
        used.add(now)
    count = len(copy.operands)
    captured = dict(zip(_inputs(operation)[count:], values[count:], strict=True))

    def move(each: Any) -> Any:
        for i, v in enumerate(list(each.operands)):
            if v in captured:
                each.operands[i] = captured[v]
        return ir.WalkResult.ADVANCE

    if captured:
        copy.walk(move)
    for i, v in enumerate(values[:count]):
        copy.operands[i] = v
    return copy


def maps_terms(rule: Rule, active: Sequence[bool]) -> bool:
    """Return True if the jvp of a rule is a linear map of tangents, to be emitted for each."""
    if rule.family == "control" or rule.linear is by_its_parts or rule.name == "stablehlo.sort":
        return False
    return rule.linear(active)


def _by_terms(op: Op, inputs: Sequence[Series], found: Sequence[Series]) -> None:
    """Find coefficients of a linear op by the op itself, on those of its operands."""
    emitted: list[Row] = []

    def term(i: int, k: int) -> Value | None:
        while len(emitted) < k:
            terms = [s[len(emitted) + 1] for s in inputs]
            moves = any(t is not None for t in terms)
            emitted.append(op.rule.jvp(op, terms) if moves else [None] * len(found))
        return emitted[k - 1][i]

    for i, series in enumerate(found):
        series.find = functools.partial(term, i)


def taylor_in_place(
    diff: Differentiation, name: str, mask: str, order: int, factorial_scaled: bool
) -> None:
    """Turn (args…) → (outs…) into (args…, terms…) → (outs…, terms of inexact outs…).

    The k-th term is a derivative, which is k! times the coefficient, or the coefficient itself.
    """
    function, block = diff.function(name), diff.block(name)
    loc, start = function.location, operations(block)[0]

    def scaled(v: Value, row: Row | None, invert: bool) -> list[Value]:
        terms = [build.instantiate(t, v) for t in row or [None] * order]
        if not factorial_scaled:
            return terms
        factors = [math.factorial(k) for k in range(1, order + 1)]
        pairs = zip(terms, factors, strict=True)
        return [t if n == 1 else build.mul(t, 1 / n if invert else n) for t, n in pairs]

    frame = Taylor(diff, order, {})
    given = frame.arguments(block, mask)
    with build.inserting(ir.InsertionPoint(start), loc):
        rows = {v: scaled(v, row, True) for v, row in given.items()}
    found = frame.inside(rows).run(block)
    outs = list(terminator(block).operands)
    with build.inserting(ir.InsertionPoint(terminator(block)), loc):
        pairs = zip(outs, found, strict=True)
        terms = [t for v, row in pairs if build.inexact(v.type) for t in scaled(v, row, False)]
    replace_terminator(block, [*outs, *terms])
    set_signature(function)
    drop_scratch(diff)
