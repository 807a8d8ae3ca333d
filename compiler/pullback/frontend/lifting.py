"""Values around a function that its rules use: they become operands of the rules.

JAX makes those that the function itself closes over leading operands of the call, and takes the
rules to know nothing of them. But a rule that closes over the same value reads it from the trace
that the call was in, which is over when the rule is staged. It is the operand that is meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback import _jax

Positions = Mapping[Any, int]
"""Where among the operands of a call the variables are that its function closes over."""

Aliases = dict[Any, Any]
"""The variable of a trace that has ended that a variable of a staged rule stands for."""


class LeakedError(Exception):
    """A rule uses a value that is no operand of the call."""


def positions(equation: Any, aliases: Aliases) -> dict[Any, int]:
    """The variables that the function of a call closes over, as the trace knew them."""
    closed_over = equation.invars[: _jax.num_closed_over(equation)]
    return {
        aliases.get(atom, atom): position
        for position, atom in enumerate(closed_over)
        if not isinstance(atom, _jax.Literal)
    }


def lift(staged: Sequence[Any], known: Positions, results: int) -> list[tuple[Any, Aliases]]:
    """Staged rules that close over nothing, each with what its variables stand for.

    Args:
      staged: a rule whose leading arguments are the operands of the call; or two, of which the
        second is called with what the first returns after `results` results, and more.
      known: the operands that a rule may close over.

    Raises:
      LeakedError: it closes over something else of a trace that has ended.
    """
    first, *others = staged
    forward, aliases = _with_operands(first, known)
    if not others:
        return [(forward, aliases)]
    (second,) = others
    leaked = _leaked(second, known)
    if not leaked:
        return [(forward, aliases), (second, {})]
    arguments, outs = _jax.inputs_of(forward), _jax.outputs_of(forward)
    handed_on = [arguments[position] for _, _, position in leaked]
    forward = _jax.with_outputs(forward, [*outs[:results], *handed_on, *outs[results:]])
    leading = [constant for constant, _, _ in leaked]
    backward = _jax.with_arguments(second, leading, _others(second), second.eqns)
    return [(forward, aliases), (backward, {c: variable for c, variable, _ in leaked})]


def _with_operands(closed: Any, known: Positions) -> tuple[Any, Aliases]:
    leaked = _leaked(closed, known)
    if not leaked:
        return closed, {}
    arguments = _jax.inputs_of(closed)
    chosen = {constant: arguments[position] for constant, _, position in leaked}
    aliases = {arguments[position]: variable for _, variable, position in leaked}
    return _jax.with_constants(closed, _others(closed), chosen), aliases


def _leaked(closed: Any, known: Positions) -> list[tuple[Any, Any, int]]:
    """The constants that are values of an ended trace: what they stand for, and which operand."""
    found = []
    for constant, value in _jax.constants_of(closed):
        if _jax.is_tracer(value):
            variable = _jax.variable_of(value)
            if variable not in known:
                raise LeakedError
            found.append((constant, variable, known[variable]))
    return found


def _others(closed: Any) -> list[tuple[Any, Any]]:
    return [pair for pair in _jax.constants_of(closed) if not _jax.is_tracer(pair[1])]
