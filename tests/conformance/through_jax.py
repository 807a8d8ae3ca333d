"""Programs of the corpus as functions of JAX, `program.as_jax()`, and as modules once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import pullback as pb
from tests.conformance.comparison import STAGES


class InJax:
    """A program as a function of JAX, which JAX differentiates and batches.

    It has what `comparison` asks of a program.
    """

    def __init__(self, function: Callable[..., Any], leaves: Sequence[Any]):
        self.function = function
        self.leaves = leaves

    def __call__(self, *leaves: Any) -> Any:
        return self.function(*leaves)

    def jvp(self, wrt: Sequence[int]) -> Callable[..., Any]:
        """Forward mode: `(leaves…, tangents…) -> (results, tangents of inexact results)`."""

        def function(*args: Any) -> Any:
            leaves, tangents = args[: -len(wrt)], args[-len(wrt) :]
            outs, moved = jax.jvp(self._of(leaves, wrt), [leaves[i] for i in wrt], list(tangents))
            return outs, moved

        jax.eval_shape(function, *self.leaves, *(self.leaves[i] for i in wrt))  # JAX may refuse
        return function

    def vjp(self, wrt: Sequence[int]) -> Callable[..., Any]:
        """Reverse mode: `(leaves…, cotangents of all results) -> (results, cotangents)`."""

        def function(*args: Any) -> Any:
            *leaves, cotangents = args
            outs, pull = jax.vjp(self._of(leaves, wrt), *(leaves[i] for i in wrt))
            return outs, pull([ct for ct in cotangents if ct is not None])

        outs = jax.eval_shape(self._of(self.leaves, wrt), *(self.leaves[i] for i in wrt))
        jax.eval_shape(function, *self.leaves, outs)
        return function

    def vmap(self, axis_size: int) -> Callable[..., Any]:
        return jax.vmap(self.function, axis_size=axis_size)

    def _of(self, leaves: Sequence[Any], wrt: Sequence[int]) -> Callable[..., Any]:
        """The function of some leaves, of which it gives the inexact results."""

        def function(*chosen: Any) -> list[Any]:
            full = list(leaves)
            for position, value in zip(wrt, chosen, strict=True):
                full[position] = value
            outs = self.function(*full)
            return [out for out in outs if jnp.issubdtype(out.dtype, jnp.inexact)]

        return function


def in_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """Module → JAX: what is compared are JAX's derivatives."""
    return lambda *leaves: InJax(pb.trace(function)(*leaves).as_jax(), leaves)


def in_a_module(function: Callable[..., Any]) -> Callable[..., Any]:
    """Module → JAX → module: what is compared are pullback's derivatives of the second module."""
    return lambda *leaves: pb.trace(pb.trace(function)(*leaves).as_jax())(*leaves)


WAYS = {
    "jax": (in_jax, STAGES),
    "module": (in_a_module, STAGES),
    "jet": (pb.trace, ("jet",)),
    "": (pb.trace, STAGES),
}
"""How a case becomes what is compared, and at which stages; by default it is traced once."""
