"""Warn at the user's line."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Sequence

from pullback._jax.source_info import is_user_file
from pullback.errors import LateBindingWarning, LostRulesWarning


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line of the user's.

    Python shows a warning once for each line: at a line of ours, the first one of a process alone.
    """
    frame: types.FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def warn_of_lost_rules(calls: Sequence[str] = ()) -> None:
    """Warn of a derivative of a program that may have lost its rules before we saw it.

    Args:
      calls: those that are known to have lost one.
    """
    known = f" ({', '.join(calls)})" if calls else ""
    warn_user(
        "this differentiates what jax.export or jax.jit(f).lower wrote, which has no custom_jvp, "
        f"custom_vjp or stop_gradient any more{known}, through its ops; save "
        "the function with pb.trace(f)(…).save, which keeps them, or export it with "
        "serialize(vjp_order=…) for so many derivatives; "
        "pb.load(…, rules=…) gives functions that the file calls their rules",
        LostRulesWarning,
    )


def warn_of_late_binding(rule: str, variable: str, assigned: str, called: str | None) -> None:
    """Warn that a rule reads the value that a variable is assigned after the call."""
    warn_user(
        f"the rule of `{rule}` reads `{variable}`, which is assigned again at {assigned}, after "
        f"the call{f' at {called}' if called else ''}: the rule is traced later, and reads the "
        "last value, as under jax.grad(jax.jit(f)). Keep the value of the call with a default "
        f"argument of the rule, `{variable}={variable}`, or make the function with the rule in a "
        "function of its own",
        LateBindingWarning,
    )
