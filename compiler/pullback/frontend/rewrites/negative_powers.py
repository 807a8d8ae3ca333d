"""`x ** -n` as a function with a rule of its own.

JAX's rule, `-n x ** -(n + 1)`, would need another power for each order, and those of a saved
program would never end. That of the quotient `1 / x ** n` holds the factors `x ** -2n` and
`x ** (n - 1)`, of which one overflows long before their product, or is zero.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax import lax

from pullback._jax import equations_as_calls, jaxprs
from pullback._jax.reads import parameter


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def reciprocal_power(x: jax.Array, n: int) -> jax.Array:
    """Return 1 / x ** n, as JAX lowers `x ** -n`."""
    return lax.div(lax.full_like(x, 1), lax.integer_pow(x, n))


@reciprocal_power.defjvp
def _reciprocal_power_jvp(n: int, primals: Any, tangents: Any) -> Any:
    """Compute dy = -n y / x dx."""
    (x,), (dx,) = primals, tangents
    y = reciprocal_power(x, n)
    return y, lax.mul(dx, lax.mul(lax.full_like(x, -n), lax.div(y, x)))


def is_negative_power(equation: Any) -> bool:
    return jaxprs.name_of(equation) == "integer_pow" and parameter(equation, "y") < 0


def with_a_rule(equation: Any, debug_info: Any) -> Any:
    """Replace the equation of a negative power with a call of `reciprocal_power`."""
    return equations_as_calls.as_call(
        equation, reciprocal_power, debug_info, -parameter(equation, "y")
    )
