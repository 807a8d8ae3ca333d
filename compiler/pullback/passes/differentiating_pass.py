"""The base class of differentiating passes: it turns positions, which are options, into masks."""

from __future__ import annotations

from collections.abc import Sequence

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.specialized import Kind, kinds_in
from pullback.autodiff.state import Differentiation
from pullback.errors import NotDifferentiableError
from pullback.ir.build import hides_inexact
from pullback.ir.locations import user_line
from pullback.ir.masks import mask_of
from pullback.ir.symbols import leave_copy
from pullback.passes.base import Pass, Rules


class Derivative(Pass):
    """A pass that differentiates `entry`.

    Attributes:
      entry: the function to differentiate, in place.
      wrt: positions of the arguments that it is differentiated by; all inexact ones if not given.
      outs: positions of the results that are differentiated; all inexact ones if not given.
    """

    entry: str
    wrt: tuple[int, ...] | None
    outs: tuple[int, ...] | None

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Differentiate `entry` in place.

        Raises: MissingRuleError, NotDifferentiableError, NotLinearError.
        """
        leave_copy(module, self.entry)
        with _jax.working_in(module), Differentiation(module, rules) as diff:
            diff.block(self.entry)
            takes, gives = kinds_in(diff.function(self.entry))
            mask = mask_at(diff, self.entry, takes, self.wrt, "argument")
            ct_mask = mask_at(diff, self.entry, gives, self.outs, "result")
            self.differentiate(diff, mask, ct_mask)

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Differentiate `entry` in place, by the masked arguments and for the masked results."""
        raise NotImplementedError


def mask_at(
    diff: Differentiation,
    entry: str,
    kinds: Sequence[Kind],
    positions: Sequence[int] | None,
    what: str,
) -> str:
    """Return the mask of the arguments or results at these positions; of all inexact if None."""

    def refusal(message: str, do: str) -> NotDifferentiableError:
        where = user_line(diff.function(entry).location)
        return NotDifferentiableError(message, where=where, do=do)

    if positions is None:
        for i, kind in enumerate(kinds):
            if not kind.inexact and hides_inexact(kind.type):
                raise refusal(
                    f"{what} of `@{entry}` at position {i} has type {kind.type}, "
                    "in which no derivative has a place",
                    "use one argument or result of tensor type for each array in it",
                )
        return mask_of([kind.inexact for kind in kinds])
    chosen = frozenset(positions)
    if len(chosen) < len(positions):
        raise refusal(
            f"{what} of `@{entry}` named twice: {','.join(map(str, positions))}",
            "name each position once",
        )
    if list(positions) != sorted(positions):
        raise refusal(
            f"{what}s of `@{entry}` out of order: {','.join(map(str, positions))}",
            f"name them in ascending order: derivatives come in the order of the {what}s",
        )
    for i in positions:
        if not 0 <= i < len(kinds):
            raise refusal(
                f"no {what} of `@{entry}` at position {i}: there are {len(kinds)}",
                f"name positions from 0 to {len(kinds) - 1}",
            )
        if not kinds[i].inexact:
            raise refusal(
                f"{what} of `@{entry}` at position {i} has type {kinds[i].type}, "
                "which has no derivative",
                "name positions of float or complex type only",
            )
    return mask_of(i in chosen for i in range(len(kinds)))
