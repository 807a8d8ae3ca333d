"""Compute Laplacians in one forward sweep: second-order Taylor mode, summed over directions.

With each value go the batch of its tangents, one for each element of the arguments, and its
Laplacian. Those of y = f(x) are df(x)·t for each tangent t of x, and df(x)·Δx + Σ d²f(x)·(t, t).
The sum is taken at each op, so that nothing of second order is ever as large as a batch. Both
derivatives are those of the op's jvp, whatever rule that is.

Source: R. Li et al., "A computational framework for neural network-based variational Monte Carlo
with Forward Laplacian", Nature Machine Intelligence 6, 2024.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pullback._jax import ir, stablehlo
from pullback.autodiff.batch_rules import batch_type, repeated, shifted
from pullback.autodiff.batching import Batching
from pullback.autodiff.diagonal import diagonal_results
from pullback.autodiff.effects import without_effects
from pullback.autodiff.forward import Refused, jvp_function
from pullback.autodiff.registry import Op, Row, unsupported
from pullback.autodiff.state import Differentiation
from pullback.autodiff.taylor import Series, Taylor, drop_scratch, maps_terms, scratch
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.inline import inline
from pullback.ir.masks import mask_of, masked, singles
from pullback.ir.regions import MANUAL, operations, replace_terminator, terminator
from pullback.ir.signatures import forget_results, set_signature

Flags = Sequence[bool | Refused]
Map = tuple[str, Flags]
"""The name of a linear map of tangents, and which results of an op it gives tangents of."""


class ForwardLaplacian(Taylor):
    """Sweep a block; the row of a value is the batch of its tangents, and its Laplacian."""

    suffix = "laplacian"

    def __init__(
        self, diff: Differentiation, batching: Batching, rows: Mapping[Value, Row]
    ) -> None:
        super().__init__(diff, 2, rows)
        self.batching = batching
        self.basis: dict[Value, int] = {}  # see _basis
        self.start: Value | None = None  # the number of the first direction, if not of all

    def inside(self, rows: Mapping[Value, Row]) -> ForwardLaplacian:
        """Return the frame of a region, with the rows of values that it may use."""
        return ForwardLaplacian(self.diff, self.batching, rows)

    def row_types(self, type: Any) -> list[Any]:
        """Return the types of a batch of tangents, and of a Laplacian."""
        return [batch_type(type, self.batching.size), type]

    def full(self, row: Row | None, v: Value) -> list[Value]:
        """Return the row of a value, zeros included."""
        pairs = zip(row or (None, None), self.row_types(v.type), strict=True)
        return [build.zeros(type) if t is None else t for t, type in pairs]

    def _carry(self, op: Op, inputs: list[Series], found: list[Series], order: int) -> None:
        if op.name == MANUAL:
            raise unsupported(
                op,
                "in a Laplacian",
                "write the function for whole arrays, without jax.shard_map: jax.jit divides it "
                "among devices by the shardings of its arguments",
            )
        super()._carry(op, inputs, found, order)

    def _by_rule(
        self, op: Op, inputs: list[Series], found: list[Series], order: int, top: bool
    ) -> None:
        """Emit the rows of the results of an op, by its jvp and the jvp of that."""
        for v in (*op.operands, *op.results):
            if build.info(v.type).kind == "?":
                raise unsupported(
                    op,
                    f"on a value of type {v.type} in a Laplacian",
                    "use one value of tensor type for each array in it",
                )
        values = [s[0] for s in inputs]
        rows = [[s[1], s[2]] for s in inputs]
        mask = mask_of(map(_moves, rows))
        if "1" not in mask:
            for series in found:
                series.moves = False
            return
        moving = masked(zip(values, rows, strict=True), mask)
        firsts = [self.full(row, v)[0] for v, row in moving]
        seconds = [row[1] for _, row in moving]
        name = self._alone(op)
        if op.rule.family == "control":
            self._take_values(name, mask, values, found)
            if top:
                self.replace(op, [series[0] for series in found])
        of_elements = self._of_elements(op, name, mask, values)
        if of_elements is not None:
            terms = self._by_elements(*of_elements, values, firsts, seconds)
        else:
            bent = mask_of(row[1] is not None for row in rows)
            present = [t for t in seconds if t is not None]
            terms = [
                self._of_basis(op, values, rows)
                or self._batched(self._jvp(name, mask), values, firsts),
                self._mapped(self._jvp(name, bent), values, present),
                self._bend(op, name, mask, values, firsts),
            ]
        for series, tangent, *laplacian in zip(found, *terms, strict=True):
            refused = next((t for t in (tangent, *laplacian) if isinstance(t, Refused)), None)
            if refused is not None:
                series.error = refused.error
            else:
                series.known[1:] = [tangent, functools.reduce(build.add, laplacian)]
                series.moves = _moves(series.known[1:])

    def _take_values(self, name: str, mask: str, values: list[Value], found: list[Series]) -> None:
        """Let the results of a call have the values that its rule gives, which may be others."""
        jvp, _ = jvp_function(self.diff, name, mask)
        zeros = list(map(build.zeros_like, masked(values, mask)))
        outs = inline(self.diff.function(jvp), [*values, *zeros])
        for series, v in zip(found, outs, strict=False):
            series.known[0] = v

    def _of_elements(
        self, op: Op, name: str, mask: str, values: list[Value]
    ) -> tuple[list[Map], dict[tuple[int, int], Map]] | None:
        """Return the derivatives by each operand, and by each two, if elements are kept apart.

        Then each element of a result depends on the same element of operands. None for an op where
        it does not, or of which the tangents are the op itself.
        """
        moving = masked(values, mask)
        if len(moving) > 2 or maps_terms(op.rule, op.active):
            return None
        parts = list(enumerate(singles(mask)))
        firsts = [self._jvp(name, j) for _, j in parts]
        seconds = {
            (j, k): self._second(name, first, second) for j, first in parts for k, second in parts
        }
        results = [r for r, *flags in zip(op.results, *(f for _, f in firsts)) if any(flags)]
        types = {v.type for v in (*moving, *results)}
        if len(types) > 1 or any(build.info(type).kind != "f" for type in types):
            return None
        count = len(values)
        is_diagonal = all(self._is_diagonal(each, count, "1") for each in firsts) and all(
            self._is_diagonal(each, count, last)
            for each in seconds.values()
            for last in ("10", "01")
        )
        return (firsts, seconds) if is_diagonal else None

    def _is_diagonal(self, map: Map, count: int, last: str) -> bool:
        """Return True if a map keeps elements of one of its last arguments apart, after `count`."""
        name, flags = map
        refuses = any(isinstance(flag, Refused) for flag in flags)
        return not refuses and all(diagonal_results(self.diff, name, "0" * count + last))

    def _by_elements(
        self,
        of_each: list[Map],
        of_two: dict[tuple[int, int], Map],
        values: list[Value],
        firsts: list[Value],
        seconds: list[Value | None],
    ) -> list[list[Value | None]]:
        """Return tangents and Laplacians, by derivatives that are factors of each tangent.

        Of the products of two tangents, the sum is multiplied by the second derivative.
        """
        size = self.batching.size
        tangents, laplacians = [], []
        squares: dict[tuple[int, int], Any] = {}
        for map, t, s in zip(of_each, firsts, seconds, strict=True):
            ones = build.full(build.with_shape(t.type, build.shape(t)[1:]), 1)
            factors = self._mapped(map, values, [ones])
            tangents.append([f if f is None else build.mul(repeated(f, size), t) for f in factors])
            laplacians.append([build.mul(f, s) for f in factors])
        for (j, k), map in of_two.items():
            if True in map[1]:
                pair = min(j, k), max(j, k)
                if pair not in squares:
                    squares[pair] = build.reduce_sum(build.mul(firsts[j], firsts[k]), (0,))
                square = squares[pair]
                laplacians.append(self._mapped(map, values, [build.full_like(square, 1), square]))
        return [_sums(tangents), _sums(laplacians)]

    def _of_basis(self, op: Op, values: list[Value], rows: Sequence[Row]) -> list[Value] | None:
        """Return the tangents of a product in which all of one operand is summed over.

        Where its tangents are those of the basis, they are the other operand, and zeros in the
        directions of other arguments. None for any other op.
        """
        tangents = [row[0] for row in rows if row[0] is not None]
        if (
            op.name != "stablehlo.dot_general"
            or len(tangents) != 1
            or tangents[0] not in self.basis
        ):
            return None
        mine, first = int(rows[0][0] is None), self.basis[tangents[0]]
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        dims = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
        x, other = values[mine], values[1 - mine]
        element = build.info(other.type).element
        if len(dims[mine]) < build.rank(x) or element != build.info(op.result_type).element:
            return None
        summed = [d for _, d in sorted(zip(dims[mine], dims[1 - mine], strict=True))]
        free = [d for d in range(build.rank(other)) if d not in summed]
        count = math.prod(build.shape(x))
        moved = build.permute(other, (*summed, *free))
        product = build.reshape(moved, (count, *build.shape(op.result)))
        rest = sum(math.prod(build.shape(t)[1:]) for t in self.basis) - first - count
        none = [0] * len(free)
        if rest + first:
            product = build.pad(product, 0, [first, *none], [rest, *none])
        if self.start is None:
            return [product]
        starts = [self.start, *(build.full(self.start.type, 0) for _ in free)]
        sizes = self.batching.size, *build.shape(op.result)
        return [build.dynamic_slice(product, starts, sizes)]

    def _bend(
        self, op: Op, name: str, mask: str, values: list[Value], firsts: list[Value]
    ) -> list[Any]:
        """Return the sums over directions of the second derivatives of @name, which is an op."""
        if op.rule.family == "bilinear":
            return [self._product(op, name, *firsts) if len(firsts) == 2 else None]
        second = self._second(name, mask, mask)
        return self._batched(second, values, [*firsts, *firsts], summed=True)

    def _product(self, op: Op, name: str, dx: Value, dy: Value) -> Value:
        """Return the sum over directions of the second derivatives of a product: twice dx dy."""
        if op.name == "stablehlo.dot_general":
            numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
            batch = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
            contract = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
            product = build.clone(op.operation, [dx, dy])
            product.attributes["dot_dimension_numbers"] = build.dot_dimensions(
                tuple(map(shifted, batch)), tuple((0, *shifted(dims)) for dims in contract)
            )
            found = product.result
        else:
            (found,) = self._batched((name, [True]), [], [dx, dy], summed=True)
        return build.mul(found, 2)

    # ---------------------------------------------------------------------------- functions

    def _jvp(self, name: str, mask: str) -> Map:
        """Return the name of the jvp of @name without its values, and which tangents it gives."""

        def derive() -> Map:
            diff = self.diff
            jvp, flags = jvp_function(diff, name, mask)
            new_name = diff.clone_function(jvp, f"{jvp}.map")
            block = diff.block(new_name)
            replace_terminator(block, list(terminator(block).operands)[len(flags) :])
            erase_dead_ops(block, diff.functions)
            set_signature(diff.function(new_name))
            scratch(diff).update(dict.fromkeys((jvp, new_name)))
            return new_name, flags

        found: Map = self.diff.cached(("tangents", name, mask), derive)
        return found

    def _second(self, name: str, first: str, second: str) -> Map:
        """Return the name of the second derivative of @name, and of which results it is.

        (args…, tangents at `first`…, tangents at `second`…) → tangents of tangents.
        """

        def derive() -> Map:
            jvp, flags = self._jvp(name, first)
            found, of_tangents = self._jvp(jvp, second + "0" * first.count("1"))
            return found, _placed(flags, of_tangents, False)

        found: Map = self.diff.cached(("second", name, first, second), derive)
        return found

    def _mapped(self, map: Map, values: list[Value], tangents: list[Value]) -> list[Any]:
        """Apply a linear map at these values; return a tangent, a refusal, or None per result."""
        name, flags = map
        results = inline(self.diff.function(name), [*values, *tangents]) if True in flags else []
        return _placed(flags, results)

    def _batched(
        self,
        map: Map,
        values: list[Value],
        tangents: list[Value],
        summed: bool = False,
    ) -> list[Any]:
        """Apply a linear map to a batch of tangents; sum the results over it if asked to."""
        name, flags = map
        batched = [*[False] * len(values), *[True] * len(tangents)]
        if True not in flags:
            return _placed(flags, ())
        found, _ = self.batching.function(name, batched, [not summed] * list(flags).count(True))
        self.batching.finish()
        scratch(self.diff)[found] = None
        return self._mapped((found, flags), values, tangents)


def _moves(row: Row) -> bool:
    return any(t is not None for t in row)


def _sums(terms: Sequence[Sequence[Value | None]]) -> list[Value | None]:
    """Return the sum of the terms of each result."""
    return [functools.reduce(build.add, column) for column in zip(*terms, strict=True)]


def _placed(flags: Flags, values: Sequence[Any], none: Any = None) -> list[Any]:
    """Return the values at the positions flagged; refusals stay, and `none` is elsewhere."""
    rest = iter(values)
    return [next(rest) if flag is True else flag or none for flag in flags]


# -------------------------------------------------------------------------------- the entry


def laplacian_in_place(
    diff: Differentiation, name: str, mask: str, block: int | None = None
) -> None:
    """Turn (args…) → (outs…) into (args…) → (outs…, Laplacians of inexact outs…).

    With `block`, that many directions are swept at a time: the last ones here, and those before in
    a loop that adds up what a function of a block gives.
    """
    function, body = diff.function(name), diff.block(name)
    arguments = list(body.arguments)
    size = sum(_count(a) for a in masked(arguments, mask))
    rows = block or max(size, 1)
    last = max(size - 1, 0) // rows * rows
    part = _part(diff, name, mask, rows) if last else None
    diff.in_place = name
    terms = _swept(diff, name, mask, size - last, last or None)
    outs = list(terminator(body).operands)
    if part is not None:
        with build.inserting(ir.InsertionPoint(terminator(body)), function.location):
            terms = _added(part, last, rows, arguments, terms)
    replace_terminator(body, [*outs, *terms])
    set_signature(function)
    drop_scratch(diff)


def _swept(
    diff: Differentiation, name: str, mask: str, rows: int, start: Value | int | None
) -> list[Value]:
    """Emit the sweep of a function's body; return the Laplacians of its inexact results.

    Args:
      rows: the number of directions.
      start: the number of the first one; None for that of all.
    """
    function, block = diff.function(name), diff.block(name)
    loc, first = function.location, operations(block)[0]
    arguments = masked(list(block.arguments)[: len(mask)], mask)
    frame = ForwardLaplacian(diff, Batching(diff, rows), {})
    with build.inserting(ir.InsertionPoint(first), loc):
        if isinstance(start, int):
            start = build.full(build.scalar("i32"), start)
        basis = _basis(arguments, rows, start)
    sweep = frame.inside({a: [t, None] for a, t in zip(arguments, basis, strict=True)})
    sweep.basis, sweep.start = basis, start
    found = sweep.run(block)
    outs = list(terminator(block).operands)
    with build.inserting(ir.InsertionPoint(terminator(block)), loc):
        pairs = zip(outs, found, strict=True)
        return [frame.full(row, v)[1] for v, row in pairs if build.inexact(v.type)]


def _part(diff: Differentiation, name: str, mask: str, rows: int) -> str:
    """Return the name of (args…, i) → (Laplacians…), by so many directions from i on."""
    diff.check_runs_again(diff.function(name), "a Laplacian in blocks", "each block")
    silent = without_effects(diff, name)
    if silent != name:
        scratch(diff)[silent] = None
    copy = diff.clone_function(silent, f"{name}.block")
    function, block = diff.function(copy), diff.block(copy)
    start = block.add_argument(build.scalar("i32"), function.location)
    terms = _swept(diff, copy, mask, rows, start)
    forget_results(function)
    replace_terminator(block, terms)
    erase_dead_ops(block, diff.functions)
    set_signature(function)
    return copy


def _added(
    part: str, last: int, rows: int, arguments: list[Value], terms: list[Value]
) -> list[Value]:
    """Emit a loop that adds to Laplacians what a part gives for each block before the last one."""
    loop, cond, body = build.while_([build.full(build.scalar("i32"), 0), *terms])
    with build.inserting(ir.InsertionPoint(cond)):
        build.return_([build.compare("LT", cond.arguments[0], last)])
    with build.inserting(ir.InsertionPoint(body)):
        i, *sums = body.arguments
        found = build.call(part, [*arguments, i], [v.type for v in terms]).results
        pairs = zip(sums, found, strict=True)
        build.return_([build.add(i, rows), *(build.add(*pair) for pair in pairs)])
    return list(loop.results)[1:]


def _count(v: Value) -> int:
    return math.prod(build.shape(v))


def _basis(arguments: Sequence[Value], rows: int, start: Value | None) -> dict[Value, int]:
    """Return, for each argument, its part of the identity, and which row is its first.

    The identity has a row for each element of all arguments; so many from `start` on are taken.
    """
    found, first = {}, 0
    for a in arguments:
        info = build.info(a.type)
        numbers = build.tensor((rows, _count(a)), build.element_type("i32"))
        column, row = build.add(build.iota(numbers, 1), first), build.iota(numbers, 0)
        if start is not None:
            row = build.add(row, build.broadcast_in_dim(start, build.shape(row), ()))
        ones = build.convert(build.compare("EQ", row, column), info.element)
        found[build.reshape(ones, (rows, *info.shape))] = first
        first += _count(a)
    return found
