"""Functions with a rule for forward mode beside that for reverse mode, as a call that JAX knows.

JAX's `custom_jvp` and `custom_vjp` functions have one rule, for both modes or for one. A primitive
of `jax.experimental.hijax` has methods for each. Here these call two functions of JAX, of which
each has one of the rules, so that JAX checks what rules give, as it always does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental import hijax as _hijax
from jax.interpreters import ad as _ad
from jax.tree_util import Partial

from pullback._jax import derivatives

_Primitive: Any = getattr(_hijax, "HiPrim", None) or _hijax.VJPHiPrimitive  # jax 0.12, and 0.10

Flat = Callable[..., tuple[Any, ...]]
"""Takes arrays, and returns arrays."""


class BothRules(_Primitive):  # type: ignore[misc]
    """A call of a function with both rules, on arrays.

    Args:
      function: the function, without its rules.
      forward: the same with its `jvp` rule, and `backward` with `fwd` and `bwd`.
      operands: those of the call; only their types count.
      out_avals: the types of the results.
      more: `name`, that of the function; `rules`, the functions of the user's; and whether these
        see `symbolic_zeros`.
    """

    def __init__(
        self,
        function: Flat,
        forward: Flat,
        backward: Flat,
        operands: Sequence[Any],
        out_avals: Sequence[Any],
        **more: Any,
    ) -> None:
        self.in_avals, self.out_aval = tuple(map(jax.typeof, operands)), tuple(out_avals)
        self.params = {"function": function, "forward": forward, "backward": backward, **more}
        self.more = more
        super().__init__()

    @property
    def fun_name(self) -> str:
        """The name of the function, as of other calls of this kind."""
        return str(self.more["name"])

    def expand(self, *args: Any) -> tuple[Any, ...]:
        return self.params["function"](*args)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        nonzero = [not derivatives.is_zero(t) for t in tangents]
        chosen, values = _restricted(self.params["forward"], nonzero, primals)
        return jax.jvp(chosen, values, [t for n, t in zip(nonzero, tangents, strict=True) if n])

    def lin(self, nonzero: Sequence[bool], *args: Any) -> tuple[Any, Any]:
        chosen, values = _restricted(self.params["forward"], nonzero, args)
        outs, linear = jax.linearize(chosen, *values)
        return outs, Partial(_push, tuple(nonzero), linear)

    def linearized(self, push: Any, *tangents: Any) -> tuple[Any, ...]:
        return push(*map(_instantiated, tangents))

    def vjp_fwd(self, nonzero: Sequence[bool], *args: Any) -> tuple[Any, Any]:
        chosen, values = _restricted(self.params["backward"], nonzero, args)
        outs, pull = jax.vjp(chosen, *values)
        return outs, Partial(_pull, tuple(nonzero), pull)

    def vjp_bwd_retval(self, pull: Any, cts: Sequence[Any]) -> tuple[Any, ...]:
        found = pull(tuple(map(_instantiated, cts)))
        zeros = (_ad.Zero(aval.to_ct_aval()) for aval in self.in_avals)
        return tuple(zero if ct is None else ct for ct, zero in zip(found, zeros, strict=True))

    def batch(self, axis: Any, args: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
        """Return the results of the batched call, and their batch axes.

        The batch axis of all results is 0 if any operand has one, and None otherwise.
        """
        if all(dim is None for dim in dims):
            return self(*args), (None,) * len(self.out_aval)
        spmd = axis.spmd_name or axis.explicit_mesh_axis
        names = {"axis_name": axis.name, "spmd_axis_name": spmd}
        mapped = functools.partial(jax.vmap, in_axes=tuple(dims), axis_size=axis.size, **names)
        given = self.params
        function, forward = mapped(given["function"]), mapped(given["forward"])
        out_avals = jax.make_jaxpr(function)(*args).out_avals
        new = BothRules(function, forward, mapped(given["backward"]), args, out_avals, **self.more)
        return new(*args), (0,) * len(new.out_aval)


def _restricted(
    function: Flat, nonzero: Sequence[bool], args: Sequence[Any]
) -> tuple[Flat, list[Any]]:
    """Return a function of the flagged arguments alone, and these; the others are constants."""

    def chosen(*values: Any) -> tuple[Any, ...]:
        rest = iter(values)
        return function(*(next(rest) if n else v for n, v in zip(nonzero, args, strict=True)))

    return chosen, [v for n, v in zip(nonzero, args, strict=True) if n]


def _push(nonzero: Sequence[bool], linear: Any, *tangents: Any) -> Any:
    return linear(*(t for n, t in zip(nonzero, tangents, strict=True) if n))


def _pull(nonzero: Sequence[bool], pull: Any, cts: Any) -> list[Any]:
    found = iter(pull(cts))
    return [next(found) if n else None for n in nonzero]


def _instantiated(tangent: Any) -> Any:
    """Return a tangent or cotangent as an array: a symbolic zero becomes an array of zeros."""
    if not derivatives.is_zero(tangent):
        return tangent
    return _ad.instantiate_zeros(_ad.Zero(tangent.aval))
