"""Analysis of a `stablehlo.while`: its carries, its counter, its trip count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback._jax import ir, primitives, remat
from pullback.ir import build, ops
from pullback.ir.build import Value
from pullback.ir.regions import blocks, terminator

UNBOUNDED_SLOTS = 33
"""Bounds the states that reverse mode keeps of a loop whose trip count, of 32 bits, is unknown."""


@dataclass(frozen=True)
class Counter:
    """A carry that counts: start, start + step, …, in its type; the condition need not read it."""

    index: int
    start: int
    step: int


@dataclass(frozen=True)
class Loop:
    """Facts of a loop that reverse mode needs.

    `counter` is the one that the condition compares, or another carry that counts, if there is
    one. `bound` is the upper bound of the trip count that an attribute states.
    """

    cond: Any
    body: Any
    inits: list[Value]
    yields: list[Value]
    counters: list[Counter]
    counter: Counter | None
    trip_count: int | None
    bound: int | None

    @property
    def slots(self) -> int | None:
        """An upper bound of the trip count; None if none is known."""
        return self.bound if self.trip_count is None else self.trip_count

    def is_invariant(self, index: int) -> bool:
        return self.yields[index] == self.body.arguments[index]


def read_loop(operation: Any) -> Loop:
    """Read the inits and yields of a loop, and its counter and trip count if they are constant."""
    cond, body = blocks(operation)
    inits, yields = list(operation.operands), list(terminator(body).operands)
    counter, trip_count = _count(cond, body, inits, yields)
    known = (_counter(body, inits, yields, i) for i in range(len(inits)))
    counters = [each for each in known if each is not None]
    bound = None
    if primitives.MAX_TRIP_COUNT in operation.attributes:
        bound = ir.IntegerAttr(operation.attributes[primitives.MAX_TRIP_COUNT]).value
    counter = counter or _plainest(counters)
    return Loop(cond, body, inits, yields, counters, counter, trip_count, bound)


def integer_constant(v: Value) -> int | None:
    """Return the value of a scalar integer constant, seen through conversions; else None."""
    t = build.info(v.type)
    if isinstance(v, ir.BlockArgument) or t.kind != "i":
        return None
    operation = v.owner
    if operation.name == "stablehlo.convert":
        value = integer_constant(operation.operands[0])
        return value if value is not None and build.holds(v.type, value) else None
    if operation.name != "stablehlo.constant" or t.shape != ():
        return None
    element = ir.DenseElementsAttr(operation.attributes["value"]).get_splat_value()
    return ir.IntegerAttr(element).value


_COUNTED = {
    # direction: trip count of (start, limit, step), when the counter is on the left
    "LT": lambda a, b, s: max(0, -(-(b - a) // s)) if s > 0 else None,
    "LE": lambda a, b, s: max(0, (b - a) // s + 1) if s > 0 else None,
    "GT": lambda a, b, s: max(0, -(-(a - b) // -s)) if s < 0 else None,
    "GE": lambda a, b, s: max(0, (a - b) // -s + 1) if s < 0 else None,
}
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def _count(
    cond: Any, body: Any, inits: list[Value], yields: list[Value]
) -> tuple[Counter | None, int | None]:
    predicate = terminator(cond).operands[0]
    if not build.is_result_of(predicate, "stablehlo.compare"):
        return None, None
    compare = predicate.owner
    direction = build.enumerator(compare.attributes["comparison_direction"])
    left, right = compare.operands
    arguments = list(cond.arguments)
    if left not in arguments or _counter(body, inits, yields, arguments.index(left)) is None:
        left, right, direction = right, left, _MIRRORED.get(direction, direction)
    if left not in arguments:
        return None, None
    counter = _counter(body, inits, yields, arguments.index(left))
    limit = _invariant_constant(right, arguments, inits, yields, body)
    if counter is None or limit is None or direction not in _COUNTED:
        return counter, None
    count = _COUNTED[direction](counter.start, limit, counter.step)
    if count is None or not build.holds(left.type, counter.start + count * counter.step):
        return counter, None  # it does not end, or only after it has wrapped around
    return counter, count


def _counter(body: Any, inits: list[Value], yields: list[Value], index: int) -> Counter | None:
    v = _unmarked(yields[index])
    start = integer_constant(inits[index])
    if start is None or isinstance(v, ir.BlockArgument):
        return None
    operation = v.owner
    if operation.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    x, y = operation.operands
    argument = body.arguments[index]
    if operation.name == "stablehlo.add" and y == argument:
        x, y = y, x
    step = integer_constant(y)
    if x != argument or not step:
        return None
    return Counter(index, start, step if operation.name == "stablehlo.add" else -step)


def _unmarked(v: Value) -> Value:
    """Return the value below the marks by which a checkpoint policy has it saved."""
    while not isinstance(v, ir.BlockArgument):
        operation = v.owner.operation
        if ops.composite_name(operation) != remat.SAVED:
            break
        v = operation.operands[0]
    return v


def _plainest(counters: list[Counter]) -> Counter | None:
    """Return a counter that is the number of iterations, if there is one, else the first one."""
    plain = (counter for counter in counters if (counter.start, counter.step) == (0, 1))
    return next(plain, counters[0] if counters else None)


def _invariant_constant(
    v: Value, arguments: list[Value], inits: list[Value], yields: list[Value], body: Any
) -> int | None:
    if v in arguments:
        index = arguments.index(v)
        return integer_constant(inits[index]) if yields[index] == body.arguments[index] else None
    return integer_constant(v)
