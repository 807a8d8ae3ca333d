"""From a Python function and example arguments to a Program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from pullback._program import Program
from pullback.frontend import link
from pullback.frontend.rules import RuleTable


def trace(
    fun: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    platforms: Sequence[str] | None = None,
) -> Callable[..., Program]:
    """A function that takes what `fun` takes and returns the Program of that call."""
    traceable = jax.jit(fun, static_argnums=static_argnums, static_argnames=static_argnames)

    def traced(*args: Any, **kwargs: Any) -> Program:
        stages = traceable.trace(*args, **kwargs)
        table = RuleTable(tuple(platforms or ("cpu",)))
        kept = table.keeper.keep(stages.jaxpr)
        module = link.lower_alone(stages.fun_name, kept, table, entry=True)
        return Program(module=module, in_tree=stages.in_tree, out_tree=stages.out_tree, rules=table)

    return traced
