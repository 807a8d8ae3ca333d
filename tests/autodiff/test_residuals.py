"""The choice of residuals: the cheapest set of values, also where there are thousands."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings, strategies

from pullback.autodiff.residuals import minimum_cut
from tests.work import lines_run

Inputs = list[list[int] | None]


def suffices(needed: set[int], stored: set[int], inputs: Inputs) -> bool:
    """Whether all that is needed is stored, or can be computed from what is."""
    known: list[bool] = []
    for v, sources in enumerate(inputs):
        known.append(v in stored or (sources is not None and all(known[x] for x in sources)))
    return all(known[v] for v in needed)


@strategies.composite
def graphs(draw: Callable[..., object]) -> tuple[list[int], Inputs, list[int]]:
    """Values with what they cost to store, the earlier ones that they need, and some of them."""
    count = draw(strategies.integers(1, 8))
    values = range(count)
    costs = draw(strategies.lists(strategies.integers(1, 5), min_size=count, max_size=count))
    earlier = [
        strategies.none() | strategies.lists(strategies.sampled_from(range(i)), unique=True)
        if i
        else strategies.none()
        for i in values
    ]
    inputs = [draw(each) for each in earlier]
    return costs, inputs, draw(strategies.lists(strategies.sampled_from(values), unique=True))


@given(graphs())
@example(([3, 3, 3], [None, [0], [0, 1]], [1, 2]))  # by paths, of which one has to give way
@settings(max_examples=200, deadline=None)
def test_what_is_stored_suffices_and_costs_least(graph):
    costs, inputs, needed = graph
    found = minimum_cut(needed, inputs.__getitem__, costs.__getitem__)
    assert suffices(set(needed), set(found), inputs)
    subsets = itertools.product([False, True], repeat=len(costs))
    chosen = [{v for v, is_one in enumerate(flags) if is_one} for flags in subsets]
    prices = [sum(map(costs.__getitem__, c)) for c in chosen if suffices(set(needed), c, inputs)]
    assert sum(map(costs.__getitem__, found)) == min(prices)


def test_parts_of_the_values_of_a_chain_are_chosen_in_one_search():
    """The path to each is longer than that to the one before: the work is that of their lengths."""
    count, found = 100, []
    inputs = [None, *([v] for v in range(count - 1)), *([v] for v in range(count))]
    costs = [2 * count] * count + [1] * count

    def choose():
        found.extend(minimum_cut(range(count, 2 * count), inputs.__getitem__, costs.__getitem__))

    assert lines_run(choose) < 6 * count**2
    assert sorted(found) == [*range(count, 2 * count)]


@pytest.mark.parametrize("length", [1, 5])
def test_values_of_many_parameters_are_chosen_in_few_searches(length):
    """Each has a path of its own, of `length` steps: twice as many are twice the work."""

    def choose(paths):
        inputs = [[v - 1] if v % length else None for v in range(paths * length)]
        costs = [10 - v % length for v in range(paths * length)]
        found = minimum_cut(range(paths * length), inputs.__getitem__, costs.__getitem__)
        assert len(found) == paths

    fewer, more = (lines_run(lambda n=n: choose(n)) for n in (100, 200))
    assert more < 2.2 * fewer
