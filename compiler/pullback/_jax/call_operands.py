"""Equations that hold jaxprs, such as a scan: which of their operands the jaxprs close over."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jax._src import sharding_impls as _sharding_impls

from pullback._jax import jaxprs, tracing

try:
    from jax._src import flattree as _flat_trees
except ImportError:  # JAX 0.10 counts the operands of a scan instead
    _flat_trees = None


SOLVE = "custom_linear_solve"
ONCE = frozenset({"jit", "custom_jvp_call", "custom_vjp_call", "remat2", "closed_call"})
"""Equations that call one function, once, with all of their operands."""


def calls_functions(closed: Any) -> bool:
    """Return True if a jaxpr's only equation calls functions, as `custom_linear_solve` does."""
    return next(jaxprs.jaxprs_in(closed.eqns[0].params.values()), None) is not None


class Solve(NamedTuple):
    """A `custom_linear_solve` found in a jaxpr, and the values of its operands.

    Attributes:
      call: a closed jaxpr that holds this equation alone.
      operands: the values that its functions close over, then the right-hand sides.
      depends: whether the values closed over depend on the arguments of the enclosing function.
    """

    call: Any
    operands: list[Any]
    depends: bool

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


def solves_met(closed: Any, arguments: Sequence[Any]) -> Iterator[Solve]:
    """Evaluate a jaxpr and yield its linear solves, except those in loops or branches."""
    return _solves_met(closed, arguments, [True] * len(arguments))


def _solves_met(closed: Any, arguments: Sequence[Any], given: Sequence[bool]) -> Iterator[Solve]:
    jaxpr = jaxprs.opened(closed)
    values = dict(zip(jaxpr.invars, arguments, strict=True)) | dict(jaxprs.constants_of(closed))
    moving = {var for var, moves in zip(jaxpr.invars, given, strict=True) if moves}
    last = max((i for i, each in enumerate(jaxpr.eqns) if _solves(each)), default=-1)
    for equation in jaxpr.eqns[: last + 1]:
        atoms = equation.invars
        operands = [a.val if isinstance(a, jaxprs.Literal) else values[a] for a in atoms]
        moves = [not isinstance(a, jaxprs.Literal) and a in moving for a in atoms]
        call = jaxprs.equation_alone(equation, jaxpr.debug_info)
        if jaxprs.name_of(equation) == SOLVE:
            yield Solve(call, operands, any(moves[: _closed_over(equation)]))
        elif jaxprs.name_of(equation) in ONCE:
            for _, body in jaxprs.bodies_of(equation):
                yield from _solves_met(body, operands, moves)
        values.update(zip(equation.outvars, tracing.apply(call, operands), strict=True))
        moving.update(equation.outvars if any(moves) else ())


def _solves(equation: Any) -> bool:
    inside = (each for _, body in jaxprs.bodies_of(equation) for each in jaxprs.equations_in(body))
    return any(jaxprs.name_of(each) == SOLVE for each in (equation, *inside))


def lifted_arguments(equation: Any, parameter: str, body: Any) -> list[Any]:
    """Return the leading arguments of a body that hold the values it closes over.

    They are the same in each run of the body.
    """
    opened_body, params = jaxprs.opened(body), equation.params
    names = opened_body.debug_info.arg_names
    count = len(opened_body.invars)
    if "num_consts" in params and parameter == "jaxpr":
        count = params["num_consts"]
    elif "ft_in" in params:
        count = len(list(params["ft_in"].unpack()[0]))
    elif parameter in ("cond_jaxpr", "body_jaxpr"):
        count = params[parameter.replace("jaxpr", "nconsts")]
    elif names is not None and len(names) == count:
        count = len(list(itertools.takewhile(operator.not_, names)))
    return list(opened_body.invars[:count])


def with_more_constants(name: str, params: dict[str, Any], counts: Sequence[int]) -> dict[str, Any]:
    """Return the parameters of a call after adding leading operands that its bodies close over.

    `counts` has the number added to each list of such operands; a `while` has two, the others one.
    """
    params, count = dict(params), counts[0]
    fillers = {"donated_invars": False, "in_shardings": _sharding_impls.UNSPECIFIED}
    fillers |= {"in_layouts": None}
    for each in fillers.keys() & params.keys():
        params[each] = (fillers[each],) * count + params[each]
    if name == "while":
        params["cond_nconsts"] += count
        params["body_nconsts"] += counts[1]
    elif "num_consts" in params:
        params["num_consts"] += count
        if "out_trees" in params:
            params["out_trees"] = functools.partial(_with_forwarded, params["out_trees"], count)
    elif "ft_in" in params:
        constants, carry, inputs = params["ft_in"].unpack()
        more = (_flat_trees.nones(count), constants)
        params["ft_in"] = _flat_trees.pack((more, carry, inputs))
    return params


def _with_forwarded(trees: Callable[[], Any], count: int) -> tuple[Any, Any, list[int | None]]:
    """Return `trees()` with forwarded operands renumbered for `count` more leading operands."""
    out_tree, tree, forwarded = trees()
    return out_tree, tree, [i if i is None else i + count for i in forwarded]
