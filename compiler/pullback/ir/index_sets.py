"""Number sets of indices, the facts of a sparsity analysis."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from pullback.errors import PullbackError

Ids = np.ndarray
"""Hold the number of a set for each element of a value; 0 is the empty set."""

MOST_MEMBERS = 1 << 26
"""Bound the members of all sets together, of eight bytes each."""


def distinct(keys: np.ndarray) -> np.ndarray:
    """Return the distinct integers, sorted. `np.unique` hashes them, which is ten times slower."""
    keys = np.sort(keys)
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys


class IndexSets:
    """Make sets of integers from 0 to `size` - 1 once, and number them.

    Set 0 is empty, and set 1 + i has the member i alone. A union that equals one of its operands
    has the number of that operand; so a fixpoint is one of numbers.
    """

    def __init__(self, size: int) -> None:
        self.size = max(size, 1)
        self._keys = np.arange(size, dtype=np.int64) + self.size  # number * size + member, sorted
        self._starts = np.concatenate([[0], np.arange(size + 1)]).astype(np.int64)

    def members(self, ids: Ids) -> tuple[np.ndarray, np.ndarray]:
        """Return the members of sets, one after the other, and the position of the set of each."""
        first, count = self._starts[ids], self._sizes(ids)
        total = int(count.sum())
        if total > MOST_MEMBERS:
            raise PullbackError(
                f"the pattern has more than {MOST_MEMBERS:,} non-zeros on the way to the result",
                do="take the dense derivative, pb.jacfwd, pb.jacrev or pb.hessian",
            )
        owners = np.repeat(np.arange(len(ids)), count)
        offsets = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
        return self._keys[first[owners] + offsets] % self.size, owners

    def union(self, x: Ids, y: Ids) -> Ids:
        """Return the union of the sets at each place of two arrays that broadcast."""
        x, y = np.broadcast_arrays(x, y)
        found = np.where(x == 0, y, x)
        both = (x != y) & (x != 0) & (y != 0)
        if both.any():
            low, high = np.minimum(x[both], y[both]), np.maximum(x[both], y[both])
            pairs, place = np.unique(low * len(self._starts) + high, return_inverse=True)
            low, high = pairs // len(self._starts), pairs % len(self._starts)
            found[both] = self._of_pairs(low, high)[place]
        return found

    def union_along(self, ids: Ids, dims: Collection[int]) -> Ids:
        """Return the union along some dimensions, which have size 1 then."""
        kept = tuple(1 if d in dims else n for d, n in enumerate(ids.shape))
        order = sorted(range(ids.ndim), key=lambda d: d in dims)
        rows = ids.transpose(order).reshape(math.prod(kept), -1)
        place = None
        if len(rows) > 1 < rows.shape[1]:  # sets that are equal get one number
            rows, place = np.unique(rows, axis=0, return_inverse=True)
        groups = np.repeat(np.arange(len(rows)), rows.shape[1])
        found = self.grouped(groups, rows.ravel(), len(rows))
        return (found if place is None else found[place.ravel()]).reshape(kept)

    def grouped(self, groups: np.ndarray, ids: Ids, count: int) -> Ids:
        """Return the union of the sets of each group, of which there are `count`."""
        used = ids != 0
        pairs = distinct(groups[used].astype(np.int64) * len(self._starts) + ids[used])
        groups, ids = pairs // len(self._starts), pairs % len(self._starts)
        found = np.zeros(count, np.int64)
        found[groups] = ids
        many = np.bincount(groups, minlength=count)[groups] > 1
        if many.any():
            numbers, owners = np.unique(groups[many], return_inverse=True)
            found[numbers] = self._of_groups(owners, ids[many], len(numbers))
        return found

    def _sizes(self, ids: Ids) -> np.ndarray:
        return self._starts[ids + 1] - self._starts[ids]

    def _of_pairs(self, x: Ids, y: Ids) -> Ids:
        """Return the unions of pairs of different sets; a set in the other costs its own size."""
        is_smaller = self._sizes(x) <= self._sizes(y)
        small, large = np.where(is_smaller, x, y), np.where(is_smaller, y, x)
        members, owners = self.members(small)
        keys = large[owners] * self.size + members
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_new = np.zeros(len(small), bool)
        is_new[owners[self._keys[place] != keys]] = True
        rest = np.flatnonzero(is_new)
        if len(rest):
            owners = np.tile(np.arange(len(rest)), 2)
            both = np.concatenate([small[rest], large[rest]])
            large[rest] = self._of_groups(owners, both, len(rest))
        return large

    def _of_groups(self, groups: np.ndarray, ids: Ids, count: int) -> Ids:
        """Return the unions of groups of different sets, none of them empty."""
        members, owners = self.members(ids)
        keys = groups[owners] * self.size + members
        if count * self.size <= 8 * len(keys):  # takes less time than to sort
            present = np.zeros(count * self.size, bool)
            present[keys] = True
            keys = np.flatnonzero(present)
        else:
            keys = distinct(keys)
        sizes = np.bincount(keys // self.size, minlength=count)
        found = np.zeros(count, np.int64)
        whole = self._sizes(ids) == sizes[groups]
        found[groups[whole]] = ids[whole]
        is_new = found == 0
        new = is_new[keys // self.size]
        first = len(self._starts) - 1
        found[is_new] = first + np.arange(int(is_new.sum()))
        kept = keys[new]
        self._keys = np.concatenate(
            [self._keys, found[kept // self.size] * self.size + kept % self.size]
        )
        ends = self._starts[-1] + np.cumsum(sizes[is_new])
        self._starts = np.concatenate([self._starts, ends])
        return found
