"""What the sampler of a gamma distribution may be, by the types of its arguments.

A sample is what a loop accepts, and the derivative of that loop is another number than that of the
sample by its shape parameter, which JAX knows. The loop stands in a function of its own, `@_gamma`,
also where a beta, Dirichlet, Student's t or chi-squared distribution is sampled.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

IMPLEMENTATIONS = {2: ("threefry2x32",), 4: ("rbg", "unsafe_rbg")}
"""Of random keys, by how many words they have."""

Sampler = Callable[[Any, Any], Any]
"""Of the words of a key, and the shape parameter."""


def candidates(
    platform: str, given: Sequence[jax.ShapeDtypeStruct], results: Sequence[jax.ShapeDtypeStruct]
) -> Iterator[Sampler]:
    """Samplers for one key, or for each of an array of them and one alpha for all, or for each."""
    if (len(given), len(results)) != (2, 1):
        return
    key, (sample,) = given[0], results
    *batch, words = key.shape or (0,)
    for implementation, sampler, axis in itertools.product(
        IMPLEMENTATIONS.get(words, ()),
        (jax.random.gamma, jax.random.loggamma),
        (0, None) if batch else (0,),
    ):
        shape = sample.shape[len(batch) :]
        one = functools.partial(_sample, sampler, implementation, shape, sample.dtype)
        yield functools.reduce(lambda f, _: jax.vmap(f, (0, axis)), batch, one)


def _sample(sampler: Any, implementation: str, shape: Any, dtype: Any, key: Any, alpha: Any) -> Any:
    return sampler(jax.random.wrap_key_data(key, impl=implementation), alpha, shape, dtype)
