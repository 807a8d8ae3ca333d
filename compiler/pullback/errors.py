"""Every exception that a user of pullback can see.

An error answers three questions: what happened (`message`), where in the user's program
(`where`), and what to do about it (`do`).
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint


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


class LateBindingWarning(UserWarning):
    """Warns that a rule reads a variable that is assigned again after the call: its last value."""


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


class MemoryBudgetError(PullbackError):
    """Raised where no schedule of reverse mode fits into the memory that it is given."""


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
