"""Residuals and rematerialization: which primal values are stored, and which recomputed.

A backward block that is not the primal block itself (another function, the body of a reverse loop,
a branch) reaches primal values through `Residuals`. Each one is, in this order:

1. *free*: known there anyway (a constant, a loop index, a value from outside, a slice of one);
2. otherwise a placeholder, settled once all of the block is known: a minimum cut of the primal
   graph, by bytes, chooses what is stored; the rest is rematerialized from it. Products, calls and
   loops are never recomputed.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pullback._jax import ir
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.dataflow import NO, YES, Sources, decided
from pullback.ir.traits import CHEAP, VIEW
from pullback_runtime.ir._erasure import erase

_INFINITE = 1 << 60
_CAST = "builtin.unrealized_conversion_cast"


def hands_on(operation: Any) -> bool:
    """Return True if each result of an op is one of its operands: a barrier without a mark."""
    return operation.name == "stablehlo.optimization_barrier" and not len(operation.attributes)


def is_view(operation: Any) -> bool:
    """Return True if an op costs nothing once its operands are there."""
    return operation.name in VIEW or hands_on(operation)


def asks_for_equality(operation: Any) -> bool:
    """Return True if an op compares computed floats for equality.

    Recomputed, they may differ in the last bit, so its result must be stored.
    """
    if operation.name != "stablehlo.compare":
        return False
    direction = build.enumerator(operation.attributes["comparison_direction"])
    numbers = list(operation.operands)
    computed_ones = build.inexact(numbers[0].type) and not any(map(_is_number, numbers))
    return direction in ("EQ", "NE") and computed_ones


def _is_number(v: Value) -> bool:
    return build.one_number(v) is not None


def inputs_of(v: Value, operation: Any) -> list[Value]:
    """Return the operands that a result of an op is computed from."""
    if hands_on(operation):
        return [operation.operands[_position(v)]]
    return list(operation.operands)


def again(v: Value, known: Mapping[Value, Value], ip: Any) -> Value:
    """Rematerialize a result of an op at `ip`; `known` maps the operands to values there."""
    operation = v.owner
    if hands_on(operation):
        return known[operation.operands[_position(v)]]
    copy = operation.clone(ip)
    for i, x in enumerate(operation.operands):
        copy.operands[i] = known[x]
    return copy.results[_position(v)]


def computed(
    v: Value,
    known: dict[Value, Value],
    given: Callable[[Value], Value | None],
    make: Callable[[Value], Value],
) -> Value:
    """Return what stands for a value: as `given`, or made from its inputs; memoize in `known`."""
    todo = [v]
    while todo:
        x = todo[-1]
        if x not in known:
            found = given(x)
            if found is None:
                missing = [y for y in inputs_of(x, x.owner.operation) if y not in known]
                if missing:
                    todo += reversed(missing)
                    continue
                found = make(x)
            known[x] = found
        todo.pop()
    return known[v]


def _position(v: Value) -> int:
    return list(v.owner.results).index(v)


class Residuals:
    """Primal values of `block` as seen from a backward block; made at the start of the latter.

    Args:
      block: the primal block.
      leaf: gives the backward value of a free primal value, or None; None if none is free but for
        constants and views of them.
      current: gives what stands for a primal value by now: what is one value is stored once.
      stores_all: all values that are needed are stored, and only views are recomputed.
    """

    def __init__(
        self,
        block: Any,
        leaf: Callable[[Value], Value | None] | None,
        current: Callable[[Value], Value],
        stores_all: bool = False,
    ) -> None:
        self.block = block
        self._again = VIEW if stores_all else CHEAP
        self._find_leaf = leaf
        self._current = current
        self._leaves: dict[Value, Value | None] = {}
        self._anchor = build.emit(_CAST, [build.scalar("i1")], ())
        self.ip = ir.InsertionPoint(self._anchor)  # dominates all that reads residuals
        self.values: dict[Value, Value] = {}
        self.placeholders: dict[Value, Any] = {}
        self.exact: set[Value] = set()  # found by `choose`
        self._free: dict[Value, bool] = {}

    def leaf(self, v: Value) -> Value | None:
        """Return the backward value of a free primal value, made once; None if it is not free."""
        if self._find_leaf is None:
            return None
        if v not in self._leaves:
            self._leaves[v] = None  # for a leaf that looks itself up while made
            self._leaves[v] = self._find_leaf(v)
        return self._leaves[v]

    def __call__(self, v: Value) -> Value:
        found = self.values.get(v)
        if found is None:
            found = self._compute(v, self.values) if self._is_free(v) else self._placeholder(v)
            self.values[v] = found
        return found

    def _is_free(self, v: Value) -> bool:
        """Return True if a value is a leaf, or a view of leaves."""
        known = self._free.get(v)
        return decided(v, self._free, self._sources) if known is None else known

    def _sources(self, v: Value) -> Sources:
        if self.leaf(v) is not None:
            return YES
        operation = None if isinstance(v, ir.BlockArgument) else v.owner.operation
        if operation is None or not is_view(operation):
            return NO
        return inputs_of(v, operation), False

    def _compute(self, v: Value, known: dict[Value, Value]) -> Value:
        """Rematerialize a value from leaves and from what is `known`; enter it there."""
        return computed(
            v, known, lambda x: self._shared(x, known), lambda x: again(x, known, self.ip)
        )

    def _shared(self, v: Value, known: dict[Value, Value]) -> Value | None:
        """Return the value of a leaf, or of a view, which the whole backward block shares."""
        found = self.leaf(v)
        if found is None and known is not self.values and self._is_free(v):
            return self(v)
        return found

    def _placeholder(self, v: Value) -> Value:
        operation = ir.Operation.create(_CAST, results=[v.type], loc=build.here.loc, ip=self.ip)
        self.placeholders[v] = operation
        return operation.result

    # --------------------------------------------------------------------------- settling

    def choose(self, compared: Iterable[Value]) -> list[Value]:
        """Return the primal values to store: a minimum cut, once no primal op is replaced any more.

        Values that a rule compares to the last bit are not rematerialized: XLA may compile the two
        computations differently.
        """
        self.exact.update(map(self._current, compared))
        if not self.placeholders:
            return []
        self._free.clear()
        self._leaves = {v: leaf for v, leaf in self._leaves.items() if leaf is not None}
        self.values = {v: x for v, x in self.values.items() if v not in self.placeholders}
        needed = dict.fromkeys(map(self._current, self.placeholders))
        needed = {v: None for v in needed if not self._is_free(v)}
        return minimum_cut(list(needed), self._producers, self._weight)

    def _producers(self, v: Value) -> list[Value] | None:
        """Return the values that `v` can be rematerialized from; None if it has to be stored."""
        if v in self.exact or isinstance(v, ir.BlockArgument):
            return None
        operation = v.owner.operation
        if operation.name not in self._again and not hands_on(operation):
            return None
        if asks_for_equality(operation):
            return None
        return [x for x in inputs_of(v, operation) if not self._is_free(x)]

    @staticmethod
    def _weight(v: Value) -> int:
        return build.size_in_bytes(v.type)

    def settle(self, stored: dict[Value, Value]) -> None:
        """Replace every placeholder by the stored value, or by a rematerialized one."""
        known = dict(stored)
        with build.inserting(self.ip):
            for v, placeholder in self.placeholders.items():
                found = self._compute(self._current(v), known)
                placeholder.result.replace_all_uses_with(found)
                erase(placeholder)
        self.placeholders.clear()
        erase(self._anchor)


def minimum_cut(
    needed: Sequence[Value],
    producers: Callable[[Value], list[Value] | None],
    weight: Callable[[Value], int],
) -> list[Value]:
    """Return the minimum cut: the cheapest set of values from which all `needed` can be computed.

    Max-flow from values that must be stored (sources) to the needed ones; each value is an edge of
    capacity `weight`. Among minimum cuts, the one nearest to the needed values wins: least is
    rematerialized.
    """
    graph = _FlowGraph()
    # Value i, in the order of discovery, is the edge from node 2 i to node 2 i + 1.
    todo, numbers = list(needed), {v: i for i, v in enumerate(needed)}
    for i in range(len(needed)):
        graph.edge(2 * i + 1, _SINK, _INFINITE)
    while todo:
        v = todo.pop()
        node = 2 * numbers[v]
        graph.edge(node, node + 1, max(weight(v), 1))
        inputs = producers(v)
        if inputs is None:
            graph.edge(_SOURCE, node, _INFINITE)
            continue
        for x in inputs:
            number = numbers.get(x)
            if number is None:
                numbers[x] = number = len(numbers)
                todo.append(x)
            graph.edge(2 * number + 1, node, _INFINITE)
    graph.run(_SOURCE, _SINK)
    reaches = graph.reaches(_SINK)
    return [v for v, i in numbers.items() if 2 * i + 1 in reaches and 2 * i not in reaches]


_SOURCE, _SINK = -1, -2


class _FlowGraph:
    """Maximum flow by Dinic's algorithm: along all shortest paths at once, while there are any.

    A rule for a tree of parameters has thousands of values, each with a path of its own. In a long
    chain these are of all lengths: so the flow starts along arbitrary paths of the graph, which is
    acyclic; shortest augmenting paths then make it a maximum.
    """

    def __init__(self) -> None:
        self.capacity: dict[int, dict[int, int]] = defaultdict(dict)

    def edge(self, a: int, b: int, capacity: int) -> None:
        self.capacity[a][b] = self.capacity[a].get(b, 0) + capacity
        self.capacity[b].setdefault(a, 0)

    def run(self, source: int, sink: int) -> None:
        self._fill_paths(source, sink, None)
        while sink in (distances := self._distances(source)):
            self._fill_paths(source, sink, distances)

    def _distances(self, source: int) -> dict[int, int]:
        """Return the distances of all nodes that can be reached from the source."""
        found = {source: 0}
        queue = deque([source])
        while queue:
            a = queue.popleft()
            for b, room in self.capacity[a].items():
                if room > 0 and b not in found:
                    found[b] = found[a] + 1
                    queue.append(b)
        return found

    def _fill_paths(self, source: int, sink: int, distances: dict[int, int] | None) -> None:
        """Send as much flow as there is capacity for along paths; drop dead ends.

        Args:
          distances: those from the source, for the shortest paths only.
        """
        ways: dict[int, list[int]] = {}
        path = [source]
        while path:
            a = path[-1]
            if a == sink:
                del path[self._fill(path) + 1 :]
                continue
            if a not in ways:
                ways[a] = [b for b, room in reversed(self.capacity[a].items()) if room > 0]
                if distances is not None:
                    nearer = distances[a] + 1
                    ways[a] = [b for b in ways[a] if distances.get(b) == nearer]
            while ways[a] and self.capacity[a][ways[a][-1]] == 0:
                ways[a].pop()
            if ways[a]:
                path.append(ways[a][-1])
            else:
                path.pop()
                if path:
                    ways[path[-1]].pop()

    def _fill(self, path: list[int]) -> int:
        """Send as much flow as fits along a path; return the index of its first saturated edge."""
        edges = list(itertools.pairwise(path))
        rooms = [self.capacity[a][b] for a, b in edges]
        flow = min(rooms)
        for a, b in edges:
            self.capacity[a][b] -= flow
            self.capacity[b][a] += flow
        return rooms.index(flow)

    def reaches(self, sink: int) -> set[int]:
        """Return the nodes with residual capacity towards the sink."""
        found = {sink}
        queue = deque([sink])
        while queue:
            b = queue.popleft()
            for a in self.capacity[b]:
                if a not in found and self.capacity[a].get(b, 0) > 0:
                    found.add(a)
                    queue.append(a)
        return found
