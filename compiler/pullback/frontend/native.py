"""The native list: primitives that may be differentiated through their StableHLO lowering.

A primitive is on the list only if the derivative of what it lowers to is the derivative that JAX
gives the primitive, at every point and on every platform. Each entry says why, and
`tests/frontend/test_native.py` compares each with JAX in both modes. Not listed means kept:
slower, and right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pullback._jax import jaxprs
from pullback._jax.tangent_types import is_inexact

BATCHED_BY_JAX = "custom_vmap_call"
RECURSED = frozenset(
    {
        "jit",
        "scan",
        "while",
        "cond",
        "closed_call",
        "eval_jaxpr",
        BATCHED_BY_JAX,
        "remat_opt",
        "shard_map",
    }
)
"""Higher-order primitives whose lowering is structure that our passes differentiate.

The rule of a `custom_vmap` says how it is batched, which is done before a program is made; a
`remat_opt` is the forward rule of a `custom_vjp`, for which JAX may run the function itself."""

_ONE_OP = "one StableHLO op, whose rule is JAX's rule"
_ONE_CHLO = "one CHLO op, whose rule is JAX's formula; a file has it with its name"
_TIES = "one StableHLO op, whose rule gives each side half at a tie, as JAX does"
_STEPS = "one StableHLO op, constant between its steps: no derivative, as in JAX"
_MOVES = "moves elements and computes nothing; JAX clamps indices the way StableHLO does"
_PARTS = "slices or concatenations, which move elements only"
_EXTREMUM = "a scatter whose rule is JAX's, and finite where indices are dropped"
_SHARED = "a StableHLO reduce, whose rule gives equal elements equal shares, as JAX does"
_FIRST = (
    "a StableHLO reduce_window: the first of equal elements has the derivative, as in JAX's "
    "reverse mode; JAX's forward mode takes another one at times"
)
_SORTED = "one StableHLO op, whose rule sorts the positions as well, as JAX's rule does"
_WINDOWS = "a StableHLO reduce_window with an add, linear"
_NOTHING = "lowers to its operand"

NATIVE: dict[str, str] = {
    **dict.fromkeys(("add", "add_any", "sub", "mul", "div", "neg"), _ONE_OP),
    **dict.fromkeys(("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "cbrt"), _ONE_OP),
    **dict.fromkeys(("sin", "cos", "tan", "atan2", "abs", "rem"), _ONE_OP),
    **dict.fromkeys(("sinh", "cosh", "atan", "reduce_precision"), _ONE_OP),
    **dict.fromkeys(("real", "imag", "complex", "conv_general_dilated"), _ONE_OP),
    "fft": _ONE_OP + "; with several real dimensions it is kept",
    "conj": "the two parts, one of them negated, put together again",
    "tanh": _ONE_OP + "; with the highest accuracy it is kept, for JAX's rule is another one",
    "exp2": "exp of a multiple of the operand",
    "pow": _ONE_OP + "; with an integer exponent it is kept, for x ** 0 has derivative 0 at 0",
    **dict.fromkeys(("max", "min"), _TIES),
    **dict.fromkeys(("floor", "ceil", "round", "sign"), _STEPS),
    **dict.fromkeys(("reshape", "transpose", "broadcast_in_dim", "squeeze", "rev"), _MOVES),
    **dict.fromkeys(("slice", "dynamic_slice", "dynamic_update_slice"), _MOVES),
    **dict.fromkeys(("concatenate", "pad"), _MOVES),
    **dict.fromkeys(("split", "stack", "unstack"), _PARTS),
    "integer_pow": "products of the operand with itself; with a negative exponent it is kept",
    **dict.fromkeys(("erf", "erfc", "erf_inv", "lgamma"), _ONE_CHLO),
    "square": _ONE_CHLO,
    "select_n": "selects on predicates that have no tangent",
    "gather": "a gather that clamps, and where JAX fills, a select on the indices beside it",
    "scatter": "a scatter whose rule finds the update that stays, as JAX's does",
    "scatter-add": "a scatter with an add; clamped or dropped indices as in JAX's own transpose",
    "scatter-sub": "a scatter with a subtraction, linear",
    **dict.fromkeys(("scatter-max", "scatter-min"), _EXTREMUM),
    "sort": _SORTED + ", and so has no rules of rules without end",
    "reduce_sum": "a StableHLO reduce with an add",
    **dict.fromkeys(("reduce_max", "reduce_min"), _SHARED),
    "reduce_window": "a StableHLO reduce_window, as the tree of such steps that it is; with others "
    "in its body it is kept, and JAX has no reverse mode",
    "reduce_window_sum": _WINDOWS,
    **dict.fromkeys(("reduce_window_max", "reduce_window_min"), _FIRST),
    "dot_general": "one StableHLO op with the same contraction; casts where JAX casts",
    "convert_element_type": "one StableHLO op, linear between floats",
    "optimization_barrier": "one StableHLO op; what moves passes one of its own, as in JAX",
    "reshard": "one Shardy op, linear; kept where JAX's rule says how the cotangent lies",
    "copy": _NOTHING,
    "device_put": _NOTHING + ", annotated with the memory that it moves to if it names one",
    "name": _NOTHING,
}

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
    return len(equation.params["fft_lengths"]) <= 1 or all(map(_is_complex, _dtypes(equation)))


def _leaves_a_sum(equation: Any) -> bool:
    """Return True if an operand or result, or its cotangent, is an unreduced sum over devices."""
    specs = [atom.aval.sharding.spec for atom in (*equation.invars, *equation.outvars)]
    return any(spec.unreduced or spec.reduced for spec in specs)


def _has_native_steps(equation: Any) -> bool:
    """Return True if the functions inside compute what has tangents by native steps only."""
    steps = [step for _, body in jaxprs.bodies_of(equation) for step in body.eqns]
    return all(_is_native_step(step) for step in steps)


def _is_native_step(step: Any) -> bool:
    if not any(is_inexact(variable.aval) for variable in step.outvars):
        return True
    return _has_native_steps(step) if jaxprs.name_of(step) == "jit" else is_native(step)


ONLY: dict[str, Callable[[Any], bool]] = {
    "integer_pow": lambda equation: equation.params["y"] > 0,
    "tanh": lambda equation: equation.params["accuracy"] is not jax.lax.AccuracyMode.HIGHEST,
    "pow": lambda equation: jnp.issubdtype(equation.invars[1].aval.dtype, jnp.floating),
    "fft": _is_plain_transform,
    "reduce_window": _has_native_steps,
    "reshard": _leaves_a_sum,
}
"""For which uses an entry holds, if not for all."""


def is_native(equation: Any) -> bool:
    """Return True if this use of a primitive, with these types, is on the list."""
    name = jaxprs.name_of(equation)
    if name not in NATIVE:
        return False
    if name not in ALSO_COMPLEX and any(map(_is_complex, _dtypes(equation))):
        return False
    return name not in ONLY or ONLY[name](equation)


def _dtypes(equation: Any) -> list[Any]:
    return [atom.aval.dtype for atom in (*equation.invars, *equation.outvars)]


def _is_complex(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.complexfloating)
