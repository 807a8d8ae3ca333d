"""Find the batch axis of values of a function that `jax.vmap` has batched.

Sizes do not tell it where several axes have as many items. But JAX's batching rules do not know
the number of items, so each equation is typed again for another one, which no axis has: the batch
axis is the one that gets this size. A value that does not come of batched arguments may be part of
the batch still, so of each value a set of possible axes is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from pullback._jax import holders, jaxprs, tracing

Places = frozenset[int | None]
"""Axes one of which holds the batch, alone or as its leading factor; None is for no batch."""

Found = list[Places | None]
"""Holds the places of each value; None where nothing is known of them."""

_MANY, _MORE = 2**31 - 19, 2**31 - 1  # primes, which no axis has as its size
_MOST = 256  # how often one equation is typed
_NOWHERE: Places = frozenset({None})

_SIZES = frozenset({"limit_indices", "shape", "slice_sizes"})
"""Parameters that have the sizes of axes."""

_GROUPS = frozenset({"batch_group_count", "feature_group_count"})
"""Parameters of a convolution that may have the number of items as a factor."""


def axes_of_results(function: Any, arguments: Sequence[int | None], size: int) -> Found:
    """Return where each result of a batched function may have the batch; the true axis is included.

    Collectives make an axis of other values of the batch, so there must be none along it.

    Args:
      function: its closed jaxpr.
      arguments: the batch axes of its last arguments; those of the others are not known.
      size: the number of items, at least 2.
    """
    known = [frozenset({axis}) for axis in arguments]
    avals = function.in_avals[: len(function.in_avals) - len(known)]
    batch = _Batch(size)
    return batch.results(function, [*map(batch.anywhere, avals), *known])


class _Batch:
    """Places of a batch with so many items in the values of a jaxpr."""

    def __init__(self, size: int) -> None:
        self._size = size

    def anywhere(self, aval: Any) -> Places:
        """Return the places that a value of this type may have."""
        return _NOWHERE.union(self._with_size(getattr(aval, "shape", ())))

    def _with_size(self, shape: Sequence[Any]) -> Iterator[int]:
        return (place for place, size in enumerate(shape) if size == self._size)

    def results(self, closed: Any, arguments: Sequence[Places | None]) -> Found:
        """Return the places of the results of a jaxpr for those of its arguments."""
        jaxpr = jaxprs.opened(closed)
        of: dict[Any, Places | None] = {v: self.anywhere(v.aval) for v in jaxpr.constvars}
        of |= zip(jaxpr.invars, arguments, strict=True)

        def read(atom: Any) -> Places | None:
            return self.anywhere(atom.aval) if isinstance(atom, jaxprs.Literal) else of[atom]

        for equation in jaxpr.eqns:
            found = self._equation(equation, [*map(read, equation.invars)])
            for var, places in zip(equation.outvars, found, strict=True):
                of[var] = places if getattr(var.aval, "shape", None) else _NOWHERE
        return [*map(read, jaxpr.outvars)]

    def _equation(self, equation: Any, operands: Found) -> Found:
        known = [each for each in operands if each is not None]
        if len(known) < len(operands):
            return [None] * len(equation.outvars)
        name, params = jaxprs.name_of(equation), equation.params
        if (body := holders.called_function(equation)) is not None:
            return self.results(body, operands)
        if name == "scan":
            return self._scan(equation, known)
        if name == "while":
            rest, count = known[params["cond_nconsts"] :], params["body_nconsts"]
            return self._loop(params["body_jaxpr"], rest[:count], rest[count:], [])
        if name == "cond":
            found = [self.results(each, known[1:]) for each in params["branches"]]
            return [_common(*each) for each in zip(*found, strict=True)]
        if name == "custom_linear_solve":  # the solutions lie as the right sides do
            return operands[-len(equation.outvars) :]
        if name == "reshape":
            return [self._reshaped(equation, known[0])]
        return self._typed_again(equation, known)

    def _loop(
        self, body: Any, fixed: Sequence[Places], given: Sequence[Places], rows: Sequence[Places]
    ) -> Found:
        """Return the places of a loop body's results, for a carry whose places stay the same."""
        carry: Found = list(given)
        while True:
            found = self.results(body, [*fixed, *carry, *rows])
            kept = [_common(*each) for each in zip(carry, found, strict=False)]
            if kept == carry:
                return [*kept, *found[len(kept) :]]
            carry = kept

    def _scan(self, equation: Any, operands: list[Places]) -> Found:
        body = equation.params["jaxpr"]
        fixed, count = holders.counts_of_scan(equation.params)
        rows = [_shifted(each, -1) for each in operands[fixed + count :]]
        if not all(rows):  # a loop over the items
            return [None] * len(equation.outvars)
        carry = operands[fixed : fixed + count]
        found = self._loop(body, operands[:fixed], carry, rows)
        return [*found[:count], *(each and _shifted(each, 1) for each in found[count:])]

    def _reshaped(self, equation: Any, operand: Places) -> Places | None:
        """Return the axes after whose batch a reshaped array has as many elements as before."""
        before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
        order = equation.params["dimensions"] or range(len(before))  # it may transpose first
        found: set[int | None] = set()
        for place in operand:
            if place is None:
                found.add(None)
                continue
            own = math.prod(before[i] for i in order[order.index(place) :])
            places = [i for i, n in enumerate(after) if math.prod(after[i:]) == own and n != 1]
            if len(places) != 1 or self._of(after[places[0]], 1) is None:
                return None
            found.add(places[0])
        return frozenset(found)

    def _typed_again(self, equation: Any, operands: list[Places]) -> Found:
        """Return the places with which an equation has the right types for another size."""
        outs, variants = equation.outvars, list(self._variants(equation.params))
        of = dict(zip(map(id, equation.invars), operands, strict=True))
        if all(each == _NOWHERE for each in operands) and len(variants) == 1:
            return [_NOWHERE] * len(outs)
        if math.prod(map(len, of.values())) * len(variants) > _MOST:
            return [None] * len(outs)
        found: list[set[int | None]] = [set() for _ in outs]
        for places in itertools.product(*of.values()):
            batched = {v: place for v, place in zip(of, places, strict=True) if place is not None}
            tried = [self._try(equation, batched, params) for params in variants]
            results = [each for each in tried if each is not None]
            if batched and results:
                results = [each for each in results if any(p is not None for p in each)]
                if not results:  # items are combined, or the types do not depend on operands
                    return [None] * len(outs)
            for each in results:
                for known, place in zip(found, each, strict=True):
                    known.add(place)
        return [frozenset(each) or None for each in found]

    def _of(self, size: int, items: int) -> int | None:
        """Return the size of an axis for another number of items, or None if none are in it."""
        return None if size % self._size else size // self._size * items

    def _variants(self, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the parameters of an equation, then those with another size of one axis."""
        yield params
        for name in _SIZES & params.keys():
            sizes = params[name]
            for i in self._with_size(sizes or ()):
                yield {**params, name: (*sizes[:i], _MANY, *sizes[i + 1 :])}
        for name in _GROUPS & params.keys():
            if (groups := self._of(params[name], _MANY)) is not None:
                yield {**params, name: groups}

    def _try(
        self, equation: Any, batched: dict[int, int], params: dict[str, Any]
    ) -> list[int | None] | None:
        """Return the places of an equation's results, or None if they cannot be for these."""
        shapes = self._shapes(equation, dict.fromkeys(batched, _MANY), batched, params)
        if shapes is None:
            return None
        found: list[int | None] = []
        for var, shape in zip(equation.outvars, shapes, strict=True):
            pairs = enumerate(zip(var.aval.shape, shape, strict=True))
            changed = [(i, *sizes) for i, sizes in pairs if sizes[0] != sizes[1]]
            if len(changed) > 1 or any(self._of(old, _MANY) != new for _, old, new in changed):
                return None
            found.append(changed[0][0] if changed else None)
        for var in batched if len(batched) > 1 else ():  # are its items combined with the others'?
            items = dict.fromkeys(batched, _MANY) | {var: _MORE}
            apart = self._shapes(equation, items, batched, params)
            if apart is not None and all(n % _MORE for shape in apart for n in shape):
                return None
        return found

    def _shapes(
        self, equation: Any, items: dict[int, int], places: dict[int, int], params: dict[str, Any]
    ) -> list[tuple[int, ...]] | None:
        """Return the shapes of an equation's results for so many items in operands, or None."""

        def struct(atom: Any) -> jax.ShapeDtypeStruct:
            shape = list(atom.aval.shape)
            if id(atom) in places:
                place = places[id(atom)]
                shape[place] = self._of(shape[place], items[id(atom)])
            return jax.ShapeDtypeStruct(shape, atom.aval.dtype)

        try:
            with equation.ctx.manager:
                closed = tracing.traced(
                    lambda *values: equation.primitive.bind(*values, **params),
                    *map(struct, equation.invars),
                )
            return [aval.shape for aval in closed.out_avals]
        except Exception:  # each rule has its own for a misfit
            return None


def _shifted(places: Places, by: int) -> Places:
    shifted = (None if place is None else place + by for place in places)
    return frozenset(place for place in shifted if place is None or place >= 0)


def _common(*places: Places | None) -> Places | None:
    known = [each for each in places if each is not None]
    return (frozenset.intersection(*known) or None) if len(known) == len(places) else None
