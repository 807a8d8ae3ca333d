"""A function with a rule, its derivatives by the rule, and its values in 64 bits."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pullback
from pullback._jax import jaxprs, retype, tracing
from pullback._jax.tangent_types import is_inexact
from pullback.testing.slopes import Slope, along

ITERATE = frozenset({"while", *retype.TYPED[:3]})
"""Primitives whose results may hold an error of the user's own choice: that of a stop test."""

NARROW = 1e-4
"""The precision of types whose rounding may hide that a rule is wrong."""

Function = Callable[..., list[Any]]
Operands = list[Any]
Derivative = Callable[[Operands, Operands], tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Subject:
    """A function whose derivative by its rule is compared with its slopes.

    Attributes:
      function: of all operands; returns the results that have tangents. JAX's transformations of
        it take the rule.
      moved: the positions of the operands that it is differentiated by.
      names: of the operands.
      results: of the results.
      example: operands to trace it with.
      modes: 'jvp', 'vjp' or both: those in which the rule can be taken.
      runs: the function, compiled, where it is already.
      composite: the function as a call of a composite, whose registered rule has a forward mode of
        its own: JAX's transformations of `function` take the transposed reverse mode for that.
    """

    function: Function
    moved: tuple[int, ...]
    names: tuple[str, ...]
    results: tuple[str, ...]
    example: Operands
    modes: tuple[str, ...]
    runs: Function | None = None
    composite: Function | None = None

    @functools.cached_property
    def closed(self) -> Any:
        """The function as a jaxpr."""
        return jax.make_jaxpr(self.function)(*self.example)

    @functools.cached_property
    def iterates(self) -> bool:
        """True if it may stop at a tolerance, so that its values are not smooth."""
        return any(jaxprs.name_of(each) in ITERATE for each in jaxprs.equations_in(self.closed))

    @functools.cached_property
    def has_loops(self) -> bool:
        """True if it may iterate until it converges, which it need not do far from examples."""
        names = {jaxprs.name_of(each) for each in jaxprs.equations_in(self.closed)}
        return bool(names & {"scan", *ITERATE})

    @functools.cached_property
    def _types(self) -> list[Any]:
        equations = jaxprs.equations_in(self.closed)
        atoms = itertools.chain(
            jaxprs.inputs_of(self.closed), *((*each.invars, *each.outvars) for each in equations)
        )
        types = {atom.aval.dtype for atom in atoms if is_inexact(atom.aval)}
        return [jnp.finfo(each) for each in types]

    @functools.cached_property
    def epsilon(self) -> float:
        """The precision of the narrowest float type that it computes with."""
        return max((float(each.eps) for each in self._types), default=0.0)

    @functools.cached_property
    def most(self) -> float:
        """The largest number that all float types that it computes with can hold."""
        return min((float(each.max) for each in self._types), default=np.inf)

    @functools.cached_property
    def plain(self) -> Function:
        """The function, compiled."""
        return self.runs or compiled(self.function)

    @functools.cached_property
    def push(self) -> Derivative:
        """The rule in forward mode: `(operands, tangents) -> (results, tangents)`."""
        return compiled(self.pushed)

    @functools.cached_property
    def pull(self) -> Derivative:
        """The rule in reverse mode: `(operands, cotangents) -> (results, cotangents)`."""
        return compiled(self.pulled)

    @functools.cached_property
    def exact_push(self) -> Derivative | None:
        """The rule in forward mode, in 64 bits; None unless it is narrow and can be widened."""
        return self._exactly(self.pushed)

    @functools.cached_property
    def exact_pull(self) -> Derivative | None:
        """The rule in reverse mode, as `exact_push`."""
        return self._exactly(self.pulled)

    def _exactly(self, derivative: Derivative) -> Derivative | None:
        if self.epsilon < NARROW:
            return None
        kept: list[Any] = []

        def run(operands: Operands, directions: Operands) -> tuple[Any, Any]:
            if not kept:
                closed, shapes = jax.make_jaxpr(derivative, return_shape=True)(operands, directions)
                wide = compiled(functools.partial(_in_64_bits, closed))
                kept.extend((wide, jax.tree.structure(shapes)))
            wide, tree = kept
            with jax.enable_x64(True):
                found = wide(*map(_widened, jax.tree.leaves((operands, directions))))
            results: tuple[Any, Any] = tree.unflatten(found)
            return results

        return run

    def pushed(self, operands: Operands, tangents: Operands) -> tuple[Any, Any]:
        """Compute what `push` does, for JAX to transform."""
        if self.composite is not None:
            given = dict(zip(self.moved, tangents, strict=True))
            none = (jnp.zeros_like(x) if is_inexact(x) else None for x in operands)
            every = [given.get(i, t) for i, t in enumerate(none)]
            return pullback.jvp(self.composite, operands, every)
        primals = tuple(operands[i] for i in self.moved)
        tangents = tracing.lying_as(primals, tangents)
        return jax.jvp(self._restricted(operands), primals, tuple(tangents))

    def pulled(self, operands: Operands, cotangents: Operands) -> tuple[Any, Any]:
        """Compute what `pull` does, for JAX to transform."""
        primals = [operands[i] for i in self.moved]
        results, pull = jax.vjp(self._restricted(operands), *primals)
        return results, list(pull(tracing.lying_as(results, cotangents)))

    def _restricted(self, operands: Operands) -> Function:
        def restricted(*values: Any) -> list[Any]:
            given = dict(zip(self.moved, values, strict=True))
            return self.function(*(given.get(i, value) for i, value in enumerate(operands)))

        return restricted

    @functools.cached_property
    def _exact(self) -> tuple[Function, float, int]:
        """The function in 64 bits if it can be, the precision, and the bytes of a real number."""
        try:
            with jax.enable_x64(True):
                wide = compiled(functools.partial(_in_64_bits, self.closed))
                wide(*map(_widened, self.example))
        except Exception:
            size = 2 if self.epsilon > NARROW else 4
            return self.plain, self.epsilon, 8 if self.epsilon < 1e-10 else size
        return wide, float(np.finfo(np.float64).eps), 8

    def slopes(self, operands: Operands, position: int, tangent: Any) -> list[Slope]:
        """Return the slopes of the results by one operand in a direction, without the rule."""
        function, epsilon, size = self._exact
        is_wide = size == 8
        values = [*map(_widened, operands)] if is_wide else [*operands]
        start = np.asarray(values[position])
        step = np.asarray(tangent).astype(start.dtype)
        scale = scale_of(operands[position])

        def run(distance: float) -> list[Any]:
            values[position] = (start + distance * step).astype(start.dtype)
            return function(*values)

        with jax.enable_x64(is_wide or jax.config.jax_enable_x64):
            neighbour = self.epsilon / scale_of(tangent) if is_wide else 0.0
            return along(run, epsilon, size, scale, neighbour)

    def derivative(self, mode: str, directions: Operands) -> Subject:
        """Return the derivative by the rule as a function of its own, to be checked in turn.

        Args:
          mode: 'jvp' or 'vjp'.
          directions: tangents or cotangents, which are further operands.
        """
        count = len(self.example)

        def by(taken: Derivative) -> Function:
            return lambda *operands: inexact(taken([*operands[:count]], [*operands[count:]])[1])

        raw: Derivative = self.pushed if mode == "jvp" else self.pulled
        runs: Derivative = self.push if mode == "jvp" else self.pull
        of = "the tangent of " if mode == "jvp" else "the cotangent of "
        names = self.results if mode == "jvp" else [self.names[i] for i in self.moved]
        return replace(
            self,
            function=by(raw),
            names=(*self.names, *(f"direction {i}" for i in range(len(directions)))),
            results=tuple(of + name for name in names),
            example=[*self.example, *directions],
            modes=(mode,),
            runs=by(runs),
            composite=None,
        )


OPTIONS = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""Make XLA compile in a third of the time: what is compiled runs a few times."""


@functools.cache
def _options() -> dict[str, Any]:
    """Return the options if this version of XLA has them."""
    try:
        jax.jit(lambda x: x, compiler_options=OPTIONS)(0.0)
    except Exception:
        return {}
    return OPTIONS


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as `jax.jit` does, compiled in little time."""
    return jax.jit(function, compiler_options=_options())


def _in_64_bits(closed: Any, *operands: Any) -> list[Any]:
    return retype.evaluate(closed, operands)


def _widened(value: Any) -> Any:
    if not is_inexact(value):
        return value
    return np.asarray(value).astype(retype.wide(value.dtype))


def inexact(values: Any) -> list[Any]:
    """Return the values that have tangents."""
    return [value for value in jax.tree.leaves(values) if is_inexact(value)]


def scale_of(value: Any) -> float:
    """Return the largest absolute value; 1 for zeros."""
    finite = np.abs(np.asarray(value)).astype(np.float64)
    return float(np.max(finite[np.isfinite(finite)], initial=0.0)) or 1.0


def described(values: Sequence[Any], names: Sequence[str], most: int = 4) -> str:
    """Return names and values of operands in short: `x=[0.5, 1, …]`."""
    return ", ".join(
        f"{name}={_short(value, most)}" for name, value in zip(names, values, strict=False)
    )


def _short(value: Any, most: int) -> str:
    if not hasattr(value, "dtype") or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return "a key"
    array = np.asarray(value)
    numbers = [f"{each:.4g}" for each in array.ravel()[:most].tolist()]
    if array.ndim == 0:
        return numbers[0]
    return f"[{', '.join(numbers)}{', …' if array.size > most else ''}]"
