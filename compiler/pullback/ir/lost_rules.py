"""Tell from locations which calls of a foreign module had a rule that it has lost.

JAX lowers a call of a function with `custom_jvp` or `custom_vjp` to the ops of the function. A
constant in it keeps a location with the name of the call, also where the ops have other names.
"""

from __future__ import annotations

import re

from pullback._jax import ir
from pullback.ir import ops
from pullback.ir.locations import UNKNOWN, user_line
from pullback.ir.symbols import functions
from pullback_runtime._jax import operations_named

_CALL = re.compile(r'"(?:[^"]*/)?(custom_jvp_call|custom_vjp_call):?"')


def functions_of_others(module: ir.Module) -> frozenset[str]:
    """Return the names of all functions; of none in a module that has calls with rules.

    Locations of such a module name calls that have their rules still.
    """
    has_rules = next(ops.walk_calls(module), None) is not None
    return frozenset() if has_rules else frozenset(functions(module))


def found_in(module: ir.Module, names: frozenset[str]) -> tuple[str, ...]:
    """Return the calls named by locations in these functions, such as `custom_vjp_call at a.py:3`.

    These are some of those that lost a rule: one whose function makes no constant is not named.
    """
    found: dict[str, None] = {}
    constants = (
        op
        for name, function in functions(module).items()
        if name in names
        for op in operations_named(function, "stablehlo.constant")
    )
    for op in constants:
        if named := _CALL.search(str(op.location)):
            found[f"{named[1]} at {user_line(op.location) or UNKNOWN}"] = None
    return tuple(found)
