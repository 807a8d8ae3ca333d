"""The pass `vmap`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.batching import Batching
from pullback.autodiff.state import Differentiation
from pullback.errors import ArgumentMismatchError, PullbackError
from pullback.ir import build
from pullback.ir.locations import user_line
from pullback.ir.ops import BATCHING_RULES
from pullback.ir.regions import terminator
from pullback.ir.symbols import leave_copy
from pullback.passes.base import Pass, Rules


@dataclass(frozen=True)
class VMap(Pass):
    """Batching: `entry` for `size` items at once, its rules included.

    Before: `f(x: T[*s]) -> y: T[*r]`. After: `f(x: T[size, *s]) -> y: T[size, *r]`.

    Attributes:
      size: of the batch axis.
      entry: the function to batch, in place.
      in_axes: for each argument, the position of its batch axis, or `none` if all items share
        it; one for all arguments; 0 if not given.
      out_axes: the same of results; `none` only for results that no batched argument reaches.
    """

    name: ClassVar[str] = "vmap"
    size: int
    entry: str = "main"
    in_axes: tuple[int | None, ...] = (0,)
    out_axes: tuple[int | None, ...] = (0,)

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Batch `entry` in place; raise MissingRuleError, ArgumentMismatchError."""
        if self.size < 0:
            raise ArgumentMismatchError(
                f"a batch of {self.size} items", do="give a size that is not negative"
            )
        check_batches(module)
        leave_copy(module, self.entry)
        with _jax.working_in(module), Differentiation(module, rules) as diff:
            block = diff.block(self.entry)
            inputs = list(block.arguments.types)
            outputs = [v.type for v in terminator(block).operands]
            in_axes = _axes(self.in_axes, inputs, "argument", self.entry)
            out_axes = _axes(self.out_axes, outputs, "result", self.entry)
            batching = Batching(diff, self.size)
            flags: list[bool] = []
            if None in out_axes:
                flags = batching.result_flags(self.entry, [axis is not None for axis in in_axes])
            for i, batched in enumerate(flags):
                if out_axes[i] is None and batched:
                    raise ArgumentMismatchError(
                        f"result of `@{self.entry}` at position {i} depends on the batch, and "
                        "its axis is none",
                        where=user_line(diff.function(self.entry).location),
                        do="give it an axis, such as 0",
                    )
            batching.entry(self.entry, in_axes, out_axes)


def check_batches(
    module: ir.Module,
    what: str = "batch",
    do: str = "trace the batched function, pb.trace(jax.vmap(f))",
) -> None:
    """Raise PullbackError for a module of which no batch can be made."""
    if BATCHING_RULES in module.operation.attributes:
        raise PullbackError(
            f"no {what} of this module: it had batching rules (jax.custom_vmap), which MLIR "
            "does not keep",
            do=f"{do}; or, if a batch is what each item is by itself, take the attribute "
            f"{BATCHING_RULES} off the module",
        )


def _axes(
    given: Sequence[int | None], types: Sequence[ir.Type], what: str, entry: str
) -> list[int | None]:
    """Return one batch axis for each type, counted from the front."""
    if len(given) not in (1, len(types)):
        raise ArgumentMismatchError(
            f"{len(given)} axes for the {len(types)} {what}s of `@{entry}`",
            do=f"give one axis for each {what}, or one for all of them",
        )
    axes = list(given) if len(given) == len(types) else [*given] * len(types)
    return [_axis(*each, what, entry) for each in zip(axes, types, range(len(types)), strict=True)]


def _axis(axis: int | None, type: ir.Type, position: int, what: str, entry: str) -> int | None:
    if axis is None:
        return None
    count = len(build.shape_of(type)) + 1
    if not -count <= axis < count:
        raise ArgumentMismatchError(
            f"axis {axis} for the {what} of `@{entry}` at position {position}, of type {type}",
            do=f"with a batch axis it has {count} dimensions: give {-count} to {count - 1}",
        )
    return axis % count
