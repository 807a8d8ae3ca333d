"""Pallas kernels, whose derivatives are those of the loops that they stand for.

JAX differentiates some of them in forward mode, as another kernel. Here a kernel stays one where it
runs without a derivative; its derivatives compute loops, in both modes and of any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback._jax import kernels, tracing
from pullback.errors import MissingRuleError, PullbackError
from pullback.ir import locations


def as_loops(call: Any) -> Callable[..., list[Any]]:
    """Return what the one equation of `call` computes, as a function with loops over its grid."""
    (equation,) = call.eqns
    return tracing.equations_to_function(_loops(equation))


def as_call(equation: Any) -> Any:
    """Replace a kernel that is lowered to loops with a call of them; leave any other."""
    if kernels.is_emulated(equation):
        raise PullbackError(
            "cannot trace a kernel that calls of Python emulate, in their order",
            where=locations.of_equation(equation),
            do="say interpret=True in pallas_call instead, outside of force_tpu_interpret_mode",
        )
    return (
        kernels.as_call(equation, _loops(equation))
        if kernels.is_interpreted(equation)
        else equation
    )


def check_grid(error: Exception, kind: str, function: str, where: str | None) -> None:
    """Raise MissingRuleError if a rule in a kernel has asked for its place in the grid."""
    if kernels.asks_for_grid(error):
        raise MissingRuleError(
            f"the {kind} rule of `{function}` asks where in the grid of a kernel it is",
            where=where,
            do="call program_id or num_programs before it, and hand the number to the function",
        ) from None


def _loops(equation: Any) -> Any:
    try:
        return kernels.as_loops(equation)
    except kernels.RuleOfReferencesError as error:
        raise _no_loops(
            error,
            "in which `{}` takes a reference",
            "hand its value to the function that has rules, as in f(x_ref[...])",
        ) from None
    except kernels.RuleOfKernelsError as error:
        raise _no_loops(
            error,
            f"in which `{{}}` calls `{error.asked}`",
            f"call `{error.asked}` before it, and hand its value to the function that has rules",
        ) from None
    except kernels.NoLoopsError as error:
        raise _no_loops(
            error,
            "with a `{}`, which is for devices only",
            "wrap the kernel in jax.custom_vjp or jax.custom_jvp: its rule may be a kernel",
        ) from None


def _no_loops(error: kernels.NoLoopsError, what: str, do: str) -> MissingRuleError:
    return MissingRuleError(
        f"no derivative of a kernel {what.format(error.equation.primitive)}",
        where=locations.of_equation(error.equation),
        do=do,
    )
