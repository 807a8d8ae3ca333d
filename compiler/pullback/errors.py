"""Every exception that a user of pullback can see.

An error answers three questions: what happened (`message`), where in the user's program
(`where`), and what to do about it (`do`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
import warnings
from importlib.metadata import EntryPoint

import jax

import pullback_runtime

_BETWEEN = tuple(
    os.path.dirname(str(each)) + os.sep
    for each in (__file__, pullback_runtime.__file__, jax.__file__)
) + (functools.__file__, contextlib.__file__)
"""The files between a user's line and what it runs of ours."""


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that is neither ours nor JAX's.

    A warning at a line of ours would be shown once in a process, whatever it is about.
    """
    frame: types.FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def headline(error: BaseException) -> str:
    """Return an exception's type and the first line of its message; JAX's run to paragraphs."""
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
    """Raised by `import pullback` where JAX is outside the range that it is tested with."""


class MissingRuleError(PullbackError):
    """Raised where a derivative, or a batch, needs a rule that neither JAX nor pullback has."""


class LostRulesWarning(UserWarning):
    """Warns of a derivative of a program whose custom rules `jax.export` has left out."""


def warn_of_lost_rules() -> None:
    """Warn of a derivative of a program that may have lost its rules before we saw it."""
    warn_user(
        "this differentiates what jax.export wrote, which has no custom_jvp, custom_vjp or "
        "stop_gradient any more, through its ops; save the function with pb.trace(f)(…).save, "
        "which keeps them, or export it with serialize(vjp_order=…) for so many derivatives",
        LostRulesWarning,
    )


class LostOffloadWarning(UserWarning):
    """Warns that what a policy of `jax.checkpoint` moves to the host stays on the device."""


def warn_of_lost_offload(policy: str, where: str | None) -> None:
    """Warn that values which a policy offloads, such as the one at `where`, stay on the device."""
    warn_user(
        f"the policy `{policy}` of a jax.checkpoint moves values to the memory of the host"
        f"{f' (at {where})' if where else ''}; pullback keeps them on the device. Derivatives are "
        "the same, and take more of its memory: choose a policy that computes these values again, "
        "such as save_only_these_names, or differentiate by JAX",
        LostOffloadWarning,
    )


class LateBindingWarning(UserWarning):
    """Warns that a rule reads a variable that is assigned again after the call: its last value."""


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


class LeakedValueError(MissingRuleError):
    """Raised where a rule uses a value of the function around it that is gone when it runs."""


class DuplicateRuleError(PullbackError):
    """Raised where two derivative rules are registered for one op."""


class NotLinearError(PullbackError):
    """Raised where a map must be linear (a rule, or the argument of `transpose`) and is not."""


class RuleResultError(PullbackError):
    """Raised where a derivative rule returns the wrong number or types of values."""


class WrongRuleError(PullbackError):
    """Raised by `testing.check_rules` where a rule is not the derivative of its function."""


class NotDifferentiableError(PullbackError):
    """Raised where a derivative is asked for that does not exist, such as by an integer."""


class DerivativeTypeError(NotDifferentiableError, TypeError):
    """Raised for a gradient of a result, or by an argument, whose type does not allow it."""


class ArgumentMismatchError(PullbackError, TypeError, ValueError):
    """Raised where tangents, cotangents or argument positions do not fit the function."""


class UsageError(PullbackError):
    """Raised where the command line is given what it cannot use: a target, file or argument."""


class PipelineError(PullbackError):
    """Raised where a pass pipeline is misspelt, or one of its passes fails."""


class PluginError(PullbackError):
    """Raised where passes or rules of another package cannot be imported, or clash with others."""

    @classmethod
    def of_entry_point(cls, point: EntryPoint, what: str, error: Exception) -> PluginError:
        """Return the error for an entry point that cannot be imported."""
        return cls(
            f"the {what} {point.name!r} of an installed package cannot be imported: "
            f"{headline(error)}",
            where=origin(point),
            do="repair that package, or uninstall it",
        )


def origin(point: EntryPoint) -> str:
    """Return where an entry point comes from: `acme-passes 1.2 (acme.passes:Tidy)`."""
    package = "" if point.dist is None else f"{point.dist.name} {point.dist.version} "
    return f"{package}({point.value})"


class NestingError(PullbackError, RecursionError):
    """Raised where a program is nested so deep that a pass runs into Python's recursion limit."""


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


class NoJaxCounterpartError(PullbackError):
    """Raised by `program.as_jax` for an op, or what it says, that JAX has no primitive for."""


class VerificationError(PullbackError):
    """Raised where a module breaks a constraint of the dialect; the message has its label first."""
