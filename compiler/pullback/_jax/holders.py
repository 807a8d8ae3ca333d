"""List the primitives of JAX that hold jaxprs: what enters these bodies, and what may change.

Everything that walks through jaxprs reads this table. A primitive that is not in it, of a library
or a new JAX, is opaque: nothing is said of its bodies, and its own rules differentiate it.
"""

from __future__ import annotations

import functools
import itertools
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jax._src import sharding_impls as _sharding_impls

from pullback._jax import jaxprs

try:
    from jax._src import flattree as _flat_trees
except ImportError:  # JAX 0.10 counts the operands of a scan instead
    _flat_trees = None


class Holder(NamedTuple):
    """Describe the bodies of a primitive.

    Attributes:
      bodies: the parameters with bodies in which calls are looked for. Each comes with the position
        of the operand that is the first argument there, or the parameter that has it; None if it is
        not known which operands the bodies close over.
      inlined: the parameter with a body that takes all operands and gives all results. It computes
        the same as the equation, which may have derivative rules of its own.
      grows: whether operands that the bodies close over may be added.
      has_rules: whether it is a call of a function with a user's rules.
      is_structure: whether it is lowered to functions, loops and branches, which our passes
        differentiate. (JAX batches a `custom_vmap` by its rule before a program is made of it. A
        `remat_opt` is the forward rule of a `custom_vjp`, for which JAX may run the function.)
      is_discharged: whether it stays differentiable when JAX discharges mutable arrays in it.
      has_saved: whether a policy of `jax.checkpoint` looks in its bodies for values to save.
    """

    bodies: Mapping[str, int | str | None] = types.MappingProxyType({})
    inlined: str | None = None
    grows: bool = False
    has_rules: bool = False
    is_structure: bool = False
    is_discharged: bool = False
    has_saved: bool = False


_CONTROL = Holder(grows=True, is_structure=True, is_discharged=True, has_saved=True)
_CALL = Holder({"call_jaxpr": None}, "call_jaxpr", is_structure=True, is_discharged=True)
_OF_USER = Holder({"call_jaxpr": 0}, "call_jaxpr", grows=True, has_rules=True)

HOLDERS = {
    jaxprs.JITTED: _CONTROL._replace(bodies={"jaxpr": 0}, inlined="jaxpr"),
    "scan": _CONTROL._replace(bodies={"jaxpr": 0}),
    "while": _CONTROL._replace(bodies={"cond_jaxpr": 0, "body_jaxpr": "cond_nconsts"}),
    "cond": _CONTROL._replace(bodies={"branches": 1}),
    "remat2": Holder({"jaxpr": 0}, "jaxpr", grows=True, is_discharged=True),
    "closed_call": _CALL,
    "eval_jaxpr": _CALL,
    # what it closes over is whole on every device
    "shard_map": Holder({"jaxpr": 0}, is_structure=True, is_discharged=True),
    "custom_vmap_call": Holder({"call": None}, "call", is_structure=True),
    "remat_opt": Holder({"fwd_jaxpr": None}, "fwd_jaxpr", is_structure=True),
    "custom_jvp_call": _OF_USER,
    "custom_vjp_call": _OF_USER,
    "linear_call": Holder({"callee": None}, "callee"),
    "custom_linear_solve": Holder({"jaxprs": None}),
    "named_call": Holder(inlined="jaxpr"),  # ours: see linear_maps.py
    "core_call": Holder(inlined="call_jaxpr"),
    "composite": Holder(inlined="call_jaxpr"),
    "custom_partitioning": Holder(inlined="call"),
    **dict.fromkeys(
        "reduce reduce_window scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max "
        "select_and_scatter compute_on xla_metadata_call program_order pallas_call core_map "
        "mpmd_map run_scoped run_state custom_transpose_call".split(),
        Holder(),
    ),
}
"""Say what is known of the bodies of a primitive, by its name (`jaxprs.name_of`)."""

OPAQUE = Holder()

STRUCTURE = frozenset(name for name, holder in HOLDERS.items() if holder.is_structure)


def holder_of(equation: Any) -> Holder:
    """Return what is known of the bodies of an equation's primitive."""
    return HOLDERS.get(jaxprs.name_of(equation), OPAQUE)


def called_function(equation: Any) -> Any:
    """Return the jaxpr that computes the same as an equation; None if it holds no such jaxpr."""
    return equation.params.get(holder_of(equation).inlined)


def counts_of_scan(params: dict[str, Any]) -> tuple[int, int]:
    """Return how many operands of a scan its body closes over, and how many are its carry."""
    if "ft_in" not in params:
        return params["num_consts"], params["num_carry"]
    constants, carry, _ = params["ft_in"].unpack()
    return len(list(constants)), len(list(carry))


def sequence(bodies: Any) -> Sequence[Any]:
    """Return the bodies that a parameter holds, one or several, as a sequence."""
    return bodies if isinstance(bodies, tuple) else (bodies,)


def lifted_arguments(equation: Any, parameter: str, body: Any) -> list[Any]:
    """Return the leading arguments of a body that hold the values it closes over.

    They are the same in each run of the body.
    """
    opened_body, params = jaxprs.opened(body), equation.params
    names = opened_body.debug_info.arg_names
    count = len(opened_body.invars)
    if jaxprs.name_of(equation) == "scan":
        count = counts_of_scan(params)[0]
    elif parameter in ("cond_jaxpr", "body_jaxpr"):
        count = params[parameter.replace("jaxpr", "nconsts")]
    elif names is not None and len(names) == count:
        count = len(list(itertools.takewhile(operator.not_, names)))
    return list(opened_body.invars[:count])


def operands_of(equation: Any, parameter: str) -> Sequence[Any]:
    """Return the operands of the bodies in a parameter, and maybe some behind; none if unknown."""
    start = holder_of(equation).bodies.get(parameter)
    if start is None:
        return ()
    return equation.invars[equation.params[start] if isinstance(start, str) else start :]


def lifted_operands(equation: Any, parameter: str, body: Any) -> dict[Any, Any]:
    """Return the operands that a body of an equation closes over, by its variables for them."""
    operands = operands_of(equation, parameter)
    return dict(zip(lifted_arguments(equation, parameter, body), operands, strict=False))


def with_constants(
    equation: Any, new: Mapping[str, Sequence[Any]], change: Callable[[str, Any], Any]
) -> Any:
    """Return an equation with changed bodies, to which more operands are passed.

    Args:
      new: the operands by parameter, which come first in its bodies; only where `Holder.grows`.
      change: takes the name of a parameter and a body in it; returns one that takes them.
    """
    changed = jaxprs.with_bodies(equation, change)
    if not any(new.values()):
        return changed
    operands, starts = list(equation.invars), holder_of(equation).bodies
    for name, start in reversed(list(starts.items())):
        at: Any = equation.params[start] if isinstance(start, str) else start
        operands[at:at] = new.get(name, ())
    counts = [len(new.get(name, ())) for name in starts]
    params = _with_counts(jaxprs.name_of(equation), changed.params, counts)
    return changed.replace(invars=operands, params=params)


def _with_counts(name: str, params: dict[str, Any], counts: Sequence[int]) -> dict[str, Any]:
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
