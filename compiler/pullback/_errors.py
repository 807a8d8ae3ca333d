"""Every exception that a user of pullback can see.

An error answers three questions: what happened (`message`), where in the user's program
(`where`), and what to do about it (`do`).
"""

from __future__ import annotations

import sys
import warnings


def headline(error: BaseException) -> str:
    """The type of an exception and the first line of what it says; JAX's run to paragraphs."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class PullbackError(Exception):
    """Base of all errors of pullback: what happened, where, and what to do.

    Args:
      message: what happened, in one line.
      where: the place in the user's program, such as `model.py:42, in loss`.
      do: what the user can do about it.
    """

    def __init__(self, message: str, *, where: str | None = None, do: str | None = None):
        super().__init__(message)
        self.message = message
        self.where = where
        self.do = do

    def __str__(self) -> str:
        lines = [self.message]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.do:
            lines.append(f"  do:    {self.do}")
        return "\n".join(lines)


class UnsupportedJaxVersion(PullbackError):
    """The installed JAX is outside the range that pullback is tested with."""


class MissingRuleError(PullbackError):
    """A derivative, or a batch, that neither JAX nor pullback nor the user has a rule for."""


class LostRulesWarning(UserWarning):
    """A derivative of a program whose custom rules `jax.export` has left out."""


def warn_of_lost_rules() -> None:
    """Tells of a derivative whose rules may have been lost before we saw the program."""
    warnings.warn(
        "this differentiates what jax.export wrote, which has no custom_jvp, custom_vjp or "
        "stop_gradient any more, through its ops; save the function with pb.trace(f)(…).save, "
        "which keeps them, or export it with serialize(vjp_order=1)",
        LostRulesWarning,
        stacklevel=3,
    )


class LostOffloadWarning(UserWarning):
    """A policy of `jax.checkpoint` moves values to the host, and they stay on the device."""


def warn_of_lost_offload(policy: str, where: str | None) -> None:
    """Warn that the values which a policy offloads, such as that at `where`, are kept."""
    warnings.warn(
        f"the policy `{policy}` of a jax.checkpoint moves values to the memory of the host"
        f"{f' (at {where})' if where else ''}; pullback keeps them on the device. Derivatives are "
        "the same, and take more of its memory: choose a policy that computes these values again, "
        "such as save_only_these_names, or differentiate by JAX",
        LostOffloadWarning,
        stacklevel=3,
    )


class LateBindingWarning(UserWarning):
    """A rule reads a variable that is assigned again after the call: it has the last value."""


def warn_of_late_binding(rule: str, variable: str, assigned: str, called: str | None) -> None:
    """Warn that a rule reads the value of a variable which it is assigned after the call."""
    warnings.warn(
        f"the rule of `{rule}` reads `{variable}`, which is assigned again at {assigned}, after "
        f"the call{f' at {called}' if called else ''}: the rule is traced later, and reads the "
        "last value, as under jax.grad(jax.jit(f)). Keep the value of the call with a default "
        f"argument of the rule, `{variable}={variable}`, or make the function with the rule in a "
        "function of its own",
        LateBindingWarning,
        stacklevel=3,
    )


class LeakedValueError(MissingRuleError):
    """A rule uses a value of the function around it, which is gone when it runs."""


class DuplicateRuleError(PullbackError):
    """Two derivative rules were registered for one op."""


class NotLinearError(PullbackError):
    """A map that must be linear (a rule, or the argument of `transpose`) is not."""


class RuleResultError(PullbackError):
    """A derivative rule returned the wrong number or types of values."""


class NotDifferentiableError(PullbackError):
    """A derivative was asked for where none exists, such as with respect to an integer."""


class DerivativeTypeError(NotDifferentiableError, TypeError):
    """A gradient of a result, or with respect to an argument, whose type does not allow it."""


class ArgumentMismatchError(PullbackError, TypeError, ValueError):
    """Tangents, cotangents or argument positions that do not fit the function."""


class UsageError(PullbackError):
    """The command line was given a target, file or argument that it cannot use."""


class PipelineError(PullbackError):
    """A pass pipeline is misspelt, or one of its passes failed."""


class NestingError(PullbackError, RecursionError):
    """A program is nested so deep that a pass runs into Python's limit of recursion."""


DEEP = 20
"""The fewest levels of nesting to which a RecursionError is attributed.

With fewer, it comes from a recursion without an end, as in a rule of the user's.
"""


def nested_too_deep(depth: int, what: str, where: str | None) -> NestingError:
    """Return the error for a program of so many nested loops, branches and calls."""
    return NestingError(
        f"the program is nested {depth} deep, too deep for {what}: loops, branches and calls "
        "inside of each other",
        where=where,
        do="write it as a loop, or split it into programs of which one calls another; or call "
        f"sys.setrecursionlimit with more than {sys.getrecursionlimit()}",
    )


class VerificationError(PullbackError):
    """The module breaks a constraint of the dialect; the message starts with its label."""
