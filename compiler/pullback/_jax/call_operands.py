"""Equations that hold jaxprs, such as a scan: which of their operands the jaxprs close over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from pullback._jax import holders, jaxprs, tracing
from pullback._jax.tangent_types import is_inexact

SOLVE = "custom_linear_solve"


class Solve(NamedTuple):
    """A `custom_linear_solve`, and the values of its operands.

    Attributes:
      call: a closed jaxpr that holds this equation alone.
      operands: the values that its functions close over, then the right-hand sides.
    """

    call: Any
    operands: list[Any]

    @property
    def equation(self) -> Any:
        return self.call.eqns[0]

    @property
    def closed_over(self) -> list[Any]:
        return self.operands[: _closed_over(self.equation)]

    @property
    def right(self) -> list[Any]:
        return self.operands[_closed_over(self.equation) :]

    @property
    def has_transpose(self) -> bool:
        return self.equation.params["jaxprs"].transpose_solve is not None

    def matvec(self, unknown: Sequence[Any]) -> list[Any]:
        """Apply the linear operator of the solve to a candidate solution."""
        counts, functions = self.equation.params["const_lengths"], self.equation.params["jaxprs"]
        return tracing.apply(functions.matvec, [*self.operands[: counts.matvec], *unknown])


def _closed_over(solve: Any) -> int:
    """Return the number of leading operands of a linear solve that its functions close over."""
    return sum(solve.params["const_lengths"])


def right_sides(equation: Any) -> range:
    """Return the positions of a linear solve's right-hand sides; none for other equations."""
    count = len(equation.invars)
    return range(_closed_over(equation) if jaxprs.name_of(equation) == SOLVE else count, count)


class Met(NamedTuple):
    """A rule-carrying call that the evaluation of a jaxpr has reached.

    Attributes:
      key: of its rule.
      operands: their values.
      moves: for each, whether it depends on arguments of the program that have tangents.
    """

    key: str
    operands: list[Any]
    moves: list[bool]


def calls_met(kept: Any, arguments: Sequence[Any], moves: Sequence[bool]) -> Iterator[Met]:
    """Evaluate a jaxpr of the keep step and yield the rule-carrying calls reached, callers first.

    Of a loop it is the first iteration, and of branches the one that is taken. The body of a
    `shard_map` is left out.
    """
    jaxpr = jaxprs.opened(kept)
    values = dict(zip(jaxpr.invars, arguments, strict=True)) | dict(jaxprs.constants_of(kept))
    moving = {var for var, each in zip(jaxpr.invars, moves, strict=True) if each}
    last = max((i for i, each in enumerate(jaxpr.eqns) if _is_or_has_kept(each)), default=-1)
    for equation in jaxpr.eqns[: last + 1]:
        atoms = equation.invars
        operands = [_literal(a) if isinstance(a, jaxprs.Literal) else values[a] for a in atoms]
        moved = [not isinstance(a, jaxprs.Literal) and a in moving for a in atoms]
        if _is_kept(equation):
            yield Met(equation.params["key"], operands, moved)
        if _is_or_has_kept(equation):
            for body, *entered in _entered(equation, operands, moved):
                yield from calls_met(body, *entered)
        call = jaxprs.equation_alone(equation, jaxpr.debug_info)
        values.update(zip(equation.outvars, tracing.apply(call, operands), strict=True))
        if any(moved) and not str(equation.params.get("key")).startswith("stop_gradient"):
            moving.update(var for var in equation.outvars if is_inexact(var.aval))


def _literal(atom: Any) -> Any:
    return jnp.asarray(atom.val, atom.aval.dtype)


def _is_or_has_kept(equation: Any) -> bool:
    inside = (each for _, body in jaxprs.bodies_of(equation) for each in jaxprs.equations_in(body))
    return any(map(_is_kept, (equation, *inside)))


def _is_kept(equation: Any) -> bool:
    return {"key", "notes"} <= equation.params.keys()


def _entered(
    equation: Any, operands: list[Any], moves: list[bool]
) -> Iterator[tuple[Any, list[Any], list[bool]]]:
    """Yield the bodies that an equation runs, with their first operands."""
    name, params = jaxprs.name_of(equation), equation.params
    if name == "scan":
        carried = sum(holders.counts_of_scan(params))
        place = -1 if params["reverse"] else 0
        if params["length"]:
            items = [each[place] for each in operands[carried:]]
            yield params["jaxpr"], [*operands[:carried], *items], moves
    elif name == "while":
        first, second = params["cond_nconsts"], params["body_nconsts"]
        state = slice(first + second, None)
        going = tracing.apply(params["cond_jaxpr"], [*operands[:first], *operands[state]])[0]
        if going:
            both = [*range(first, first + second), *range(first + second, len(operands))]
            yield params["body_jaxpr"], [operands[i] for i in both], [moves[i] for i in both]
    elif name == "cond":
        index = min(max(int(operands[0]), 0), len(params["branches"]) - 1)
        yield params["branches"][index], operands[1:], moves[1:]
    elif name != "shard_map":  # its body has other shapes
        bodies = [body for _, body in jaxprs.bodies_of(equation)]
        if len(bodies) == 1 and len(jaxprs.inputs_of(bodies[0])) == len(operands):
            yield bodies[0], operands, moves
