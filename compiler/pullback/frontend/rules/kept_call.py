"""A rule-carrying call, what passes query of its rules, and the errors that these cause."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

from pullback._jax import call_operands, hijax, named_axes, tracing, user_rules
from pullback._jax.tangent_types import is_inexact
from pullback.errors import LeakedValueError, MissingRuleError, headline
from pullback.frontend.closures import reflect
from pullback.frontend.rules import leaked_values
from pullback.ir import locations, masks
from pullback.ir.ops import SEES_ZEROS

USERS = frozenset({"custom_jvp_call", "custom_vjp_call", "call_hi_primitive"})
"""Calls whose rules a user has written."""

STOPS = frozenset({"stop_gradient"})
"""Primitives that are there to have no derivative."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """A rule for a batch of calls: which operands have the batch axis, and its size."""

    rule: KeptCall
    flags: tuple[bool, ...]
    size: int


@dataclasses.dataclass(frozen=True)
class KeptCall:
    """Hold a rule-carrying call: what it computes, and the original call with its derivatives."""

    key: str
    op: str
    primitive: str
    call: Any
    decomposition: Any
    num_residuals: int | None
    where: str
    settings: tracing.Settings
    generation: int = 0
    checked_axes: tuple[str, ...] = ()
    policy: Callable[..., Any] | None = None
    closed_over: int = 0
    literals: tuple[tuple[int, Any], ...] = ()
    batch: Batch | None = None
    transpose_only: str | None = None

    @contextlib.contextmanager
    def as_called(self) -> Iterator[None]:
        """Run the body under what held at the call: JAX's settings, equation notes, named axes."""
        checked = bool(self.checked_axes)
        with (
            self.settings(),
            self.call.eqns[0].ctx.manager,
            named_axes.tracing_context_of(self.call, checked),
        ):
            yield

    @functools.cached_property
    def inexact(self) -> list[int]:
        """The positions of the operands that have tangents."""
        return [i for i, aval in enumerate(self.call.in_avals) if is_inexact(aval)]

    @property
    def inexact_results(self) -> list[int]:
        """The positions of the results that have cotangents."""
        return [i for i, aval in enumerate(self.call.out_avals) if is_inexact(aval)]

    @property
    def notes(self) -> tuple[tuple[str, int | str], ...]:
        """The attributes of a call that are not about functions."""
        found: list[tuple[str, int | str]] = []
        if self.num_residuals is not None:
            found.append(("num_residuals", self.num_residuals))
        elif "0" in self.own_mask:
            found.append(("closed_over", self.closed_over))
        if self.transpose_only is not None:
            found.append(("transpose_only", self.transpose_only))
        if self.sees_zeros:
            found.append((SEES_ZEROS, 1))
        return tuple(found)

    @property
    def own_mask(self) -> str:
        """The mask of the inexact operands, but for those that the function closes over."""
        return masks.behind(self.inexact, self.closed_over)

    @property
    def single_masks(self) -> list[str]:
        """The masks in which one of these operands is perturbed."""
        return masks.singles(self.own_mask)

    @property
    def right_sides(self) -> range:
        """The positions of the operands that a linear solve is linear in, jointly."""
        return call_operands.right_sides(self.call.eqns[0])

    @property
    def places(self) -> str:
        """The line of the call, and those where a user's rule begins."""
        lines = dict.fromkeys(locations.of_code(f.__code__) for f in self._written())
        return f"{self.where}; its rule begins at {' and '.join(lines)}" if lines else self.where

    def _written(self) -> list[types.FunctionType]:
        """Return the functions of a user's rules, as far as they are known."""
        functions = map(reflect.of_user, user_rules.written(self.call.eqns[0]))
        return [f for f in functions if f is not None]

    def written_at(self, file: str, line: int) -> str | None:
        """Return what says that this call has a rule with this line, if it has."""
        for function in self._written():
            if locations.has_line(function.__code__, file, line):
                return f"`{function.__name__}`, a rule of `{self.key.removesuffix('_forward')}`"
        return None

    @property
    def knows_operands_apart(self) -> bool:
        """True if its rules can see which operands are perturbed, and reject some of them."""
        return self.primitive not in USERS or self.sees_zeros

    @functools.cached_property
    def sees_zeros(self) -> bool:
        """True if its rules are told which tangents or cotangents are zero (symbolic zeros)."""
        return user_rules.wants_symbolic_zeros(self.call)

    @property
    def goes_forward(self) -> bool:
        """True if a call with a backward rule has a rule for forward mode, too."""
        is_high = self.primitive == "call_hi_primitive"
        return is_high and hijax.rules_of(self.call.eqns[0]) >= {"jvp", "vjp"}

    @property
    def linear_mask(self) -> str:
        """The mask of the operands that a linear call is linear in."""
        return masks.behind(self.inexact, self.num_residuals or 0)

    def symbols(self, kind: str, asked: masks.Asked) -> tuple[str, ...]:
        """Return the names of the functions of a rule."""
        key, mask = self.key, str(asked._replace(types=()))
        suffix = "" if "0" not in mask else f".{mask.replace('|', '.')}"
        if asked.types:
            types = re.sub(r"\W+", "_", ".".join(asked.types))
            names = self.symbols(kind, asked._replace(types=()))
            return tuple(f"{name}.{types}" for name in names)
        if kind == "vjp":
            return f"{key}.fwd{suffix}", f"{key}.bwd{suffix}"
        if kind == "transpose" and self.op == "pullback.linear_call" and mask == self.linear_mask:
            return (f"{key}.t",)
        if kind == "transpose":
            return (f"{key}.t.{mask}",)
        return (f"{key}.jvp{suffix}",)

    def leaking(self, error: Exception) -> LeakedValueError:
        """Return the error for a rule that uses a value of a finished trace."""
        name = self.key.removesuffix("_forward")
        made_at = (
            locations.of_tracer(error.value)
            if isinstance(error, leaked_values.LeakedError)
            else None
        )
        return LeakedValueError(
            f"the rule of `{name}` uses a value of the function around it, which is not there when "
            "the rule runs",
            where=f"{self.places}; the value is made at {made_at}" if made_at else self.places,
            do="pass the value as an argument of the function, and on to the backward rule of a "
            "custom_vjp as a residual; a cache that it comes from must keep NumPy arrays instead",
        )

    def no_transpose(self, error: Exception) -> str:
        """Say why a linear map is unknown: its transpose, a backward rule, has no transpose."""
        name = self.key.removesuffix("_forward")
        return f"its backward rule `{name}` cannot be transposed: {headline(error)}"

    def missing(self, kind: str, chosen: list[int], error: Exception) -> MissingRuleError:
        """Return the error for a rule that JAX does not have."""
        positions = ", ".join(map(str, chosen))
        return MissingRuleError(
            f"JAX has no {kind} rule for `{self.key}` with respect to operand {positions}: "
            f"{headline(error)}",
            where=self.where,
            do="wrap this step in jax.custom_vjp or jax.custom_jvp",
        )
