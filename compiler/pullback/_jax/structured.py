"""Calls that hold jaxprs, such as a scan: which of their operands the jaxprs close over."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from jax._src import sharding_impls as _sharding_impls

from pullback._jax import jaxprs

try:
    from jax._src import flattree as _flat_trees
except ImportError:  # JAX 0.10 counts the operands of a scan instead
    _flat_trees = None


def calls_functions(closed: Any) -> bool:
    """Whether its one equation calls functions of the user's, as `custom_linear_solve` does."""
    return next(jaxprs.jaxprs_in(closed.eqns[0].params.values()), None) is not None


def lifted_arguments(equation: Any, parameter: str, body: Any) -> list[Any]:
    """The variables of a body for what it closes over: leading operands, the same in each run."""
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
    """Parameters of a call that takes so many constants more, for each of its operand lists."""
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
    """The trees of results and residuals of a call that has so many leading operands more."""
    out_tree, tree, forwarded = trees()
    return out_tree, tree, [i if i is None else i + count for i in forwarded]
