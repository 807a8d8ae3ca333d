"""Color the columns of a sparse matrix, so that products with one vector per color have it all.

Greedy algorithms, with a set of colors as the bits of an integer; see Gebremedhin, Manne and
Pothen, "What Color Is Your Jacobian?", 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

Lists = list[list[int]]
Attempt = Callable[[Sequence[int], int], list[int] | None]
"""Colors vertices in an order; None if that takes more colors than the second argument."""


def color_columns(rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return a color of each column such that columns of one color share no row.

    A column without entries has the color -1.
    """
    of_column, of_row = _lists(cols, rows, shape[1]), _lists(rows, cols, shape[0])
    fewest = max(map(len, of_row), default=0)

    def color(order: Sequence[int], most: int) -> list[int] | None:
        used, colors = [0] * shape[0], [-1] * shape[1]
        for column in order:
            taken = 0
            for row in of_column[column]:
                taken |= used[row]
            bit = ~taken & (taken + 1)
            if bit >> most:
                return None
            for row in of_column[column]:
                used[row] |= bit
            colors[column] = bit.bit_length() - 1
        return colors

    weights = [sum(len(of_row[row]) for row in column) for column in of_column]
    return _best(color, of_column, weights, fewest)


def color_symmetric(rows: np.ndarray, cols: np.ndarray, size: int) -> np.ndarray:
    """Return a star coloring of a symmetric pattern: each entry, or its mirror, can be read.

    No two neighbors have the same color, and no path of four vertices has two colors only. A
    vertex without entries has the color -1.
    """
    beside = rows != cols
    neighbors = _lists(rows[beside], cols[beside], size)
    entries = _lists(rows, cols, size)

    def color(order: Sequence[int], most: int) -> list[int] | None:
        stars = _Stars(neighbors)
        for vertex in order:
            taken = stars.taken(vertex)
            bit = ~taken & (taken + 1)
            if bit >> most:
                return None
            stars.give(vertex, bit)
        return stars.colors

    best = _best(color, entries, list(map(len, entries)), 1)
    if max(map(len, entries), default=0) >= color_count(best):
        return best
    by_column = color_columns(rows, cols, (size, size))  # of which no two share a row: a star, too
    return by_column if color_count(by_column) < color_count(best) else best


class _Stars:
    """Hold a star coloring so far: no path of four vertices has two colors.

    Attributes:
      colors: of each vertex, -1 if it has none yet.
    """

    def __init__(self, neighbors: Lists) -> None:
        self.colors = [-1] * len(neighbors)
        self._neighbors = neighbors
        self._used = [0] * len(neighbors)  # the colors of its neighbors
        self._twice = [0] * len(neighbors)  # those of several of its neighbors
        self._blocked = [0] * len(neighbors)  # those that would close a path through it

    def taken(self, vertex: int) -> int:
        """Return the colors that the vertex may not have."""
        taken = 0
        for other in self._colored(vertex):
            taken |= 1 << self.colors[other] | self._blocked[other]
        for other in self._hubs(vertex):  # a path through the vertex, from one of them to another
            taken |= self._used[other]
        return taken

    def give(self, vertex: int, bit: int) -> None:
        """Give the vertex a color."""
        number = self.colors[vertex] = bit.bit_length() - 1
        for other in self._hubs(vertex):
            self._blocked[other] |= bit
        for other in self._colored(vertex):
            if self._used[other] & bit:
                is_known = self._twice[other] & bit
                for end in (vertex,) if is_known else self._neighbors[other]:
                    if self.colors[end] == number:
                        self._blocked[end] |= 1 << self.colors[other]
                self._twice[other] |= bit
        for other in self._neighbors[vertex]:
            if self._used[other] & bit:
                self._twice[other] |= bit
            self._used[other] |= bit

    def _colored(self, vertex: int) -> list[int]:
        return [other for other in self._neighbors[vertex] if self.colors[other] >= 0]

    def _hubs(self, vertex: int) -> list[int]:
        """Return the neighbors whose color another one has, too."""
        twice = self._twice[vertex]
        return [o for o in self._colored(vertex) if twice >> self.colors[o] & 1] if twice else []


def color_count(colors: np.ndarray) -> int:
    """Return the number of colors."""
    return int(colors.max()) + 1 if len(colors) else 0


def readable(rows: np.ndarray, cols: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Return for which entries the product of their column's color has no other one in the row."""
    count = color_count(colors)
    keys = rows.astype(np.int64) * count + colors[cols]
    _, place, times = np.unique(keys, return_inverse=True, return_counts=True)
    alone: np.ndarray = times[place] == 1
    return alone


def _best(color: Attempt, entries: Lists, weights: list[int], fewest: int) -> np.ndarray:
    """Return the colors by the best of two orders: the given one, and the largest first."""
    given = [i for i, each in enumerate(entries) if each]
    largest = sorted(given, key=weights.__getitem__, reverse=True)
    best, most = np.full(len(entries), -1, np.int32), len(given)
    for order in (largest, given):
        if (found := color(order, most)) is not None:
            best = np.asarray(found, np.int32)
            most = color_count(best) - 1
        if most < fewest:
            break
    return best


def _lists(keys: np.ndarray, values: np.ndarray, count: int) -> Lists:
    """Return the values of each key."""
    order = np.argsort(keys, kind="stable")
    ends = np.cumsum(np.bincount(keys, minlength=count)).tolist()
    ordered: list[int] = values[order].tolist()
    starts: Iterable[int] = [0, *ends]
    return [ordered[a:b] for a, b in zip(starts, ends, strict=False)]
