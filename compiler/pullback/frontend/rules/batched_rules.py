"""Rules of calls that `jax.vmap` has batched inside the traced function.

`jax.vmap` batches a function and its rules apart, so a rule may give its results with the batch
along other axes than the function does. A traced call keeps the axes of its function only, and JAX
then takes what a rule gives for something that lies along these: its derivatives under `jax.jit`
are those of a transpose (docs/known_jax_faults.md). Here, results of rules are moved to the axes of
their function. These are known where the shapes leave one possibility, where the rule computes the
value as its function does, or by what the function's equations do to the axes of its arguments;
anything else is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from pullback._jax import batch_axes, holders, tracing, user_rules
from pullback.errors import RuleResultError
from pullback.frontend.rules.result_layouts import same_layouts
from pullback.ir import locations
from pullback.program import argument_leaves

if TYPE_CHECKING:
    from pullback.frontend.rules.kept_call import KeptCall


class Axes(NamedTuple):
    """Positions of an array's batch axes, the outermost first; None where items share the array."""

    of_rule: tuple[int | None, ...]
    of_function: tuple[int | None, ...]
    sizes: tuple[int, ...]

    def to_function(self, value: Any) -> Any:
        """Return a result of the rule as the function has it."""
        return _moved(value, self.of_rule, self.of_function, self.sizes)

    def to_rule(self, value: Any) -> Any:
        """Return a cotangent of the function's result as the backward rule takes it."""
        return _moved(value, self.of_function, self.of_rule, self.sizes)


Move = Callable[[Any], Any]
"""A change of the axes of one value."""


def axes_of_results(rule: KeptCall, values: Any) -> list[Axes] | None:
    """Return where the results of a rule and of its function have the batch axes.

    None where both are the same, as they are for calls that were not batched.

    Args:
      rule: of a user's call; its forward rule has just been traced.
      values: the closed jaxpr of that rule, whose first results are those of the call.

    Raises:
      RuleResultError: it cannot be told along which axes the function has its results.
    """
    batches = user_rules.batches_of_rule(rule.call.eqns[0])
    if not batches:
        return None
    sizes = tuple(batch.size for batch in batches)
    results = rule.call.out_avals
    places = [_places([b.out_axes[i] for b in batches]) for i in range(len(results))]
    found = [
        [Axes(place, other, sizes) for other in _candidates(aval.shape, given.shape, place, sizes)]
        for aval, given, place in zip(results, values.out_avals, places, strict=False)
    ]
    if any(len(each) != 1 for each in found):
        function = holders.called_function(rule.call.eqns[0])
        same = same_layouts(function, values, rule.closed_over)
        possible = [_possible_axes(function, b, batches[:k]) for k, b in enumerate(batches)]
        for i, each in enumerate(found):
            if same[i]:
                found[i] = [Axes(places[i], places[i], sizes)]
            elif len(each) > 1:
                found[i] = _distinct(each, [of[i] for of in possible], results[i].shape)
                if len(found[i]) != 1:
                    raise _cannot_tell(rule, results[i])
    if any(not each for each in found):  # whatever the axes, the shapes misfit
        return None
    axes = [each[0] for each in found]
    return None if all(each.of_rule == each.of_function for each in axes) else axes


def _possible_axes(
    function: Any, batch: user_rules.BatchOfRule, outer: Sequence[user_rules.BatchOfRule]
) -> batch_axes.Found:
    """Return where each result of a call's function may have one of its batches."""
    size = batch.size
    if batch.name is not None or not isinstance(size, int) or size < 2:
        return [None] * len(function.out_avals)
    count = len(batch.in_axes)
    axes = [[each.in_axes[i - count] for each in (*outer, batch)] for i in range(count)]
    return batch_axes.axes_of_results(function, [_places(each)[-1] for each in axes], size)


def _distinct(
    candidates: Sequence[Axes], possible: Sequence[batch_axes.Places | None], shape: Sequence[int]
) -> list[Axes]:
    """Return the candidates that are possible; of those that give the same array, one."""
    found = {}
    for each in candidates:
        pairs = zip(each.of_function, possible, strict=True)
        if all(known is None or place in known for place, known in pairs):
            place_and_size = zip(each.of_function, each.sizes, strict=True)
            order = [
                place if place is None else sum(n != 1 for n in shape[:place])
                for place, size in place_and_size
                if size != 1
            ]
            found[tuple(order)] = each
    return list(found.values())


def _places(axes: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return positions in the whole array for axes that are counted in the items of outer ones."""
    found: list[int | None] = []
    for axis in reversed(axes):
        if axis is not None:
            found = [place if place is None or place < axis else place + 1 for place in found]
        found.append(axis)
    return tuple(reversed(found))


def _candidates(
    wanted: Sequence[int],
    given: Sequence[int],
    places: tuple[int | None, ...],
    sizes: tuple[int, ...],
) -> Iterator[tuple[int | None, ...]]:
    """Yield the places of the batch axes with which a rule's result has the function's shape."""
    item = [size for place, size in enumerate(given) if place not in places]
    number = len(wanted) - len(item)
    for layers in itertools.combinations(range(len(sizes)), max(number, 0)):
        if any(place is not None and i not in layers for i, place in enumerate(places)):
            continue
        for chosen in itertools.permutations(range(len(wanted)), number):
            left = [size for place, size in enumerate(wanted) if place not in chosen]
            batch = [wanted[place] for place in chosen]
            if left == item and batch == [sizes[layer] for layer in layers]:
                at = dict(zip(layers, chosen, strict=True))
                yield tuple(at.get(layer) for layer in range(len(sizes)))


def _moved(
    value: Any,
    old: Sequence[int | None],
    new: Sequence[int | None],
    sizes: Sequence[int],
) -> Any:
    """Return an array with its batch axes elsewhere; repeated along those that it lacks."""
    pairs = list(zip(old, new, sizes, strict=True))
    added = [size for a, b, size in pairs if a is None and b is not None]
    value = jax.numpy.broadcast_to(value, (*added, *value.shape))
    front = iter(range(len(added)))
    places = [
        (next(front) if a is None else a + len(added), b) for a, b, _ in pairs if b is not None
    ]
    return jax.numpy.moveaxis(value, [a for a, _ in places], [b for _, b in places])


def moved(closed: Any, moves: Sequence[Move]) -> Any:
    """Return a closed jaxpr with its first results moved, each by one of the moves."""

    def function(*values: Any) -> list[Any]:
        found = tracing.apply(closed, values)
        return [*(move(v) for move, v in zip(moves, found)), *found[len(moves) :]]

    return tracing.traced(function, *tracing.structs(closed.in_avals))


def check_results_of_items(rule: KeptCall, axes: Sequence[Axes] | None) -> None:
    """Refuse a forward rule that gives all items one result, where the function gives each its own.

    Args:
      axes: what `axes_of_results` returned.

    Raises:
      RuleResultError: there is such a result.
    """
    for i, found in enumerate(axes or ()):
        pairs = zip(found.of_rule, found.of_function, strict=True)
        if i in rule.inexact_results and any(a is None and b is not None for a, b in pairs):
            raise _gives_all(rule, i)


Shared = Sequence[tuple[user_rules.BatchOfRule, list[int]]]
"""Each batch of a call, with the results with cotangents that all of its items share."""


def shared_results(rule: KeptCall, given: Sequence[int]) -> Shared:
    """Return the batches of a call whose forward rule has been traced; none if it is no batch.

    Of the results, those at `given` have cotangents.
    """
    batches = user_rules.batches_of_rule(rule.call.eqns[0])
    return [(b, [i for i in given if b.out_axes[i] is None]) for b in batches]


def check_shared_arguments(rule: KeptCall, batches: Shared) -> None:
    """Refuse a backward rule if items of a batch share a result and an argument of its function.

    `jax.vmap` sums what the rules of all items return for the argument, and each of these is given
    the cotangent of the result from all items. JAX raises in this case from 0.12 on, when it traces
    the rule.

    Raises:
      RuleResultError: there are such a result and argument.
    """
    count = len(rule.call.in_avals)
    for batch, shared in batches:
        ins = dict(zip(range(count - len(batch.in_axes), count), batch.in_axes))
        arguments = [i for i in rule.inexact if ins.get(i, 0) is None]
        if shared and arguments:
            raise _counted_for_each(rule, shared[0], f", and so is its argument {arguments[0]}")


def check_shared_results(rule: KeptCall, batches: Shared, needed: Mapping[int, bool]) -> None:
    """Refuse a backward rule that makes anything of the cotangent of a shared result.

    The cotangent of a result that all items of a batch share is that of all items together. The
    rule of each item is given the whole.

    Args:
      needed: by result, whether cotangents that the rule returns depend on that of the result.

    Raises:
      RuleResultError: there is such a result.
    """
    for _, shared in batches:
        for i in shared:
            if needed[i]:
                raise _counted_for_each(rule, i)


def _counted_for_each(rule: KeptCall, result: int, why: str = "") -> RuleResultError:
    own = locations.own_of_equation(rule.call.eqns[0])
    return RuleResultError(
        f"result {result} of `{rule.key}` is the same for all items of a jax.vmap{why}: the "
        "cotangent of that result would be counted once for each item",
        where=locations.called_at(rule.places, own),
        do="batch the whole function instead, with pb.vmap(f) or pb.trace(f)(…).vmap(); or, for "
        "items on devices, map them with jax.shard_map",
    )


def _gives_all(rule: KeptCall, result: int) -> RuleResultError:
    return RuleResultError(
        f"the fwd rule of `{rule.key}` gives all items of a jax.vmap the same result {result}, "
        "where its function gives each its own",
        where=rule.places,
        do="let the result depend on the same arguments in the function and in its rule; or batch "
        "the whole function instead, with pb.vmap(f) or pb.trace(f)(…).vmap()",
    )


def _cannot_tell(rule: KeptCall, aval: Any) -> RuleResultError:
    return RuleResultError(
        f"jax.vmap has batched `{rule.key}` and its rule apart, and which axis of the result "
        f"{argument_leaves.spell(aval)} is the batch cannot be told: several have as many items",
        where=rule.places,
        do="let the rule compute the value as its function does, `y = f(x)`; leave out `axis_name` "
        "of jax.vmap if nothing names it; or batch the whole function instead, with pb.vmap(f) or "
        "pb.trace(f)(…).vmap()",
    )
