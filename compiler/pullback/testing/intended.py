"""Mark rules that are not the derivative of their function, on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax

Rule = TypeVar("Rule", bound=Callable[..., Any])

MARK = "_pullback_intended"


def intended(rule: Rule) -> Rule:
    """Mark a rule that is deliberately not the derivative, such as one that clips.

    `check_rules` and `pullback check` then leave out what compares it with a derivative:
    differences, linearity, and second order. They still check values, types, shapes and batches.

    ```python
    clipped.defvjp(fwd, pb.testing.intended(bwd))
    ```

    Args:
      rule: a `jvp`, `fwd`, `bwd` or transpose function; or the `custom_jvp` or `custom_vjp`
        function with its rules, all of which are marked.

    Returns:
      The same rule.
    """
    marked = [rule]
    if isinstance(rule, (jax.custom_jvp, jax.custom_vjp)):
        marked = [f for name in ("jvp", "fwd", "bwd") if (f := getattr(rule, name, None))]
    for each in marked:
        setattr(each, MARK, True)
    return rule


def is_intended(rule: Any) -> bool:
    """Return True if a rule is marked."""
    return bool(getattr(rule, MARK, False))
