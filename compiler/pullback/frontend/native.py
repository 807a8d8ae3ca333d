"""The native list: primitives that may be differentiated through their StableHLO lowering.

The derivative of the ops of an entry is the derivative that JAX gives the primitive, at every point
and on every platform. Each entry says why, and `tests/frontend/test_native.py` compares each with
JAX in both modes. A primitive that is not listed, or lowers to other ops, keeps JAX's rule: that is
slower, and right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pullback._jax import jaxprs
from pullback._jax.reads import parameter
from pullback._jax.tangent_types import is_inexact
from pullback.frontend.lowered_ops import Surroundings, ops_of

BATCHED_BY_JAX = "custom_vmap_call"


class Native(NamedTuple):
    """An entry of the list: the ops that a primitive may become, and why their rules agree."""

    ops: frozenset[str]
    reason: str


def _entries(reason: str, /, **ops: str) -> dict[str, Native]:
    """Return entries by primitive, each with the StableHLO ops that it may become."""
    return {
        name: Native(frozenset(f"stablehlo.{op}" for op in each.split()), reason)
        for name, each in ops.items()
    }


_ONE_OP = "a StableHLO op whose rule is JAX's rule"
_ONE_CHLO = "a CHLO op whose rule is JAX's formula; a file has it with its name"
_TIES = "a StableHLO op whose rule gives each side half at a tie, as JAX does"
_STEPS = "a StableHLO op, constant between its steps: no derivative, as in JAX"
_PLACED = "puts elements in other places, and clamps indices as JAX does"
_SCATTERED = "a scatter with an add or a subtraction, linear; drops and clamps as JAX does"
_EXTREMUM = "a scatter whose rule is JAX's, and finite where indices are dropped"
_SHARED = "a StableHLO reduce, whose rule gives equal elements equal shares, as JAX does"
_FIRST = (
    "a StableHLO reduce_window: the first of equal elements has the derivative, as in JAX's "
    "reverse mode; JAX's forward mode takes another one at times"
)
_NOTHING = "lowers to its operand"

NATIVE: dict[str, Native] = {
    **_entries(_ONE_OP, add="add", add_any="add", sub="subtract", mul="multiply", div="divide"),
    **_entries(_ONE_OP, neg="negate", abs="abs", rem="remainder", sqrt="sqrt", rsqrt="rsqrt"),
    **_entries(_ONE_OP, exp="exponential", expm1="exponential_minus_one", cbrt="cbrt"),
    **_entries(_ONE_OP, log="log", log1p="log_plus_one", sin="sine", cos="cosine", tan="tan"),
    **_entries(_ONE_OP, atan2="atan2", real="real", imag="imag", complex="complex"),
    **_entries(_ONE_OP, reduce_precision="reduce_precision"),
    **_entries(_ONE_OP + ", with casts where JAX casts", dot_general="dot_general convert"),
    **_entries(_ONE_OP, conv_general_dilated="convolution dynamic_conv"),
    **_entries(_ONE_OP + "; with several real dimensions it is kept", fft="fft"),
    **_entries(_ONE_OP + "; with the highest accuracy JAX has another one", tanh="tanh"),
    **_entries(_ONE_OP + "; with an integer exponent JAX has another one at 0", pow="power"),
    **_entries(_ONE_OP + ", linear between floats", convert_element_type="convert"),
    **_entries(_ONE_OP, optimization_barrier="optimization_barrier"),
    **{
        name: Native(frozenset({f"chlo.{name}"}), _ONE_CHLO)
        for name in ("erf", "erfc", "erf_inv", "lgamma", "square", "sinh", "cosh", "atan")
    },
    **_entries("exp of a multiple of the operand", exp2="multiply exponential"),
    **_entries("products of the operand with itself", integer_pow="multiply"),
    **_entries("the two parts, one of them negated", conj="real imag negate complex"),
    **_entries(_TIES, max="maximum", min="minimum"),
    **_entries(_STEPS, floor="floor", ceil="ceil", sign="sign"),
    **_entries(_STEPS, round="round_nearest_afz round_nearest_even"),
    **_entries("a select, whose predicate has no tangent", select_n="select"),
    **_entries(_PLACED, reshape="reshape dynamic_reshape", squeeze="reshape dynamic_reshape"),
    **_entries(
        _PLACED,
        broadcast_in_dim="",
        transpose="transpose",
        rev="reverse",
        concatenate="concatenate",
    ),
    **_entries(_PLACED, slice="slice real_dynamic_slice", split="slice real_dynamic_slice"),
    **_entries(_PLACED, dynamic_slice="dynamic_slice real_dynamic_slice"),
    **_entries(_PLACED, dynamic_update_slice="dynamic_update_slice", pad="pad dynamic_pad"),
    **_entries(_PLACED, concatenate="concatenate", stack="concatenate"),
    **_entries(_PLACED, unstack="slice real_dynamic_slice reshape dynamic_reshape"),
    **_entries(
        "a gather that clamps, and where JAX fills, a select on the indices beside it",
        gather="gather dynamic_gather select",
    ),
    **_entries(
        "a scatter whose rule finds the update that stays, as JAX's does", scatter="scatter"
    ),
    **_entries(_SCATTERED, **{"scatter-add": "scatter add", "scatter-sub": "scatter subtract"}),
    **_entries(_EXTREMUM, **{"scatter-max": "scatter maximum", "scatter-min": "scatter minimum"}),
    **_entries(
        "a StableHLO sort, whose rule sorts the positions as well, as JAX's rule does, and so has "
        "no rules of rules without end",
        sort="sort",
    ),
    **_entries("a StableHLO reduce with an add", reduce_sum="reduce add"),
    **_entries(_SHARED, reduce_max="reduce maximum", reduce_min="reduce minimum"),
    **_entries(
        "a StableHLO reduce_window, as the tree of the steps of its body; with a body that has "
        "others than native ones it is kept, and JAX has no reverse mode",
        reduce_window="reduce_window",
    ),
    **_entries("a StableHLO reduce_window with an add", reduce_window_sum="reduce_window add"),
    **_entries(_FIRST, reduce_window_max="reduce_window maximum"),
    **_entries(_FIRST, reduce_window_min="reduce_window minimum"),
    **_entries(_NOTHING, copy="", name=""),
    **_entries(_NOTHING + "; kept where JAX's rule says how the cotangent lies", reshard=""),
    **_entries(_NOTHING + ", in the memory that it names, if any", device_put=""),
}
"""The entries by primitive; annotations and `BROADCASTS` may stand beside the ops of each."""

BROADCASTS = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim"})
"""Ops that JAX may put before any other one, for an operand that is a scalar."""

ALSO_COMPLEX = frozenset(
    "add sub mul div neg reshape transpose broadcast_in_dim squeeze rev slice dynamic_slice "
    "dynamic_update_slice concatenate pad split stack unstack select_n gather scatter scatter-add "
    "scatter-sub reduce_sum reduce_window reduce_window_sum dot_general fft real imag complex conj "
    "convert_element_type exp expm1 log log1p rsqrt tan sinh cosh atan square integer_pow "
    "optimization_barrier reshard copy name device_put".split()
)
"""The entries that hold for complex numbers as well. The others expand into real parts (sin),
have another rule (sign), or other values where one of the two is not finite (sqrt, exp2) or the
second derivative nearly zero (tanh); `abs` is one op up to jax 0.11 only."""


def _is_plain_transform(equation: Any) -> bool:
    """Return True for an FFT of one dimension at most, or from complex to complex numbers.

    Of several real dimensions, some platforms transform one after the other, or symmetrize.
    """
    return len(parameter(equation, "fft_lengths")) <= 1 or all(map(_is_complex, _dtypes(equation)))


def _leaves_a_sum(equation: Any) -> bool:
    """Return True if an operand or result, or its cotangent, is an unreduced sum over devices."""
    specs = [atom.aval.sharding.spec for atom in (*equation.invars, *equation.outvars)]
    return any(spec.unreduced or spec.reduced for spec in specs)


ONLY: dict[str, Callable[[Any], bool]] = {
    "tanh": lambda equation: parameter(equation, "accuracy") is not jax.lax.AccuracyMode.HIGHEST,
    "pow": lambda equation: jnp.issubdtype(equation.invars[1].aval.dtype, jnp.floating),
    "fft": _is_plain_transform,
    "reshard": _leaves_a_sum,
}
"""For which uses an entry holds, if not for all."""


def is_native(equation: Any, debug_info: Any, surroundings: Surroundings) -> bool:
    """Return True if this use of a primitive is on the list, and lowers to ops that its entry has.

    So a version of JAX that lowers it in another way costs speed, and not a derivative.
    """
    may_become = _may_become(equation) if jaxprs.name_of(equation) in NATIVE else None
    if may_become is None:
        return False
    return ops_of(equation, debug_info, surroundings) <= may_become | BROADCASTS


def _may_become(equation: Any) -> frozenset[str] | None:
    """Return the ops of a native equation, and of the functions in it; None if one has a rule."""
    name = jaxprs.name_of(equation)
    if name == jaxprs.JITTED:
        ops = frozenset[str]()
    elif name in NATIVE and _holds(name, equation):
        ops = NATIVE[name].ops
    else:
        return None
    steps = (step for _, body in jaxprs.bodies_of(equation) for step in body.eqns)
    for step in steps:
        if any(is_inexact(variable.aval) for variable in step.outvars):
            if (inner := _may_become(step)) is None:
                return None
            ops |= inner
    return ops


def _holds(name: str, equation: Any) -> bool:
    """Return True if an entry holds for these types and parameters."""
    if name not in ALSO_COMPLEX and any(map(_is_complex, _dtypes(equation))):
        return False
    return name not in ONLY or ONLY[name](equation)


def _dtypes(equation: Any) -> list[Any]:
    return [atom.aval.dtype for atom in (*equation.invars, *equation.outvars)]


def _is_complex(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.complexfloating)
