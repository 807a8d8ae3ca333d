"""How a program was made, so that it can be made again, for a batch or for another platform.

A derivative of a batched function is the batch of its derivatives, once every argument that is
differentiated has a batch axis of its own. So a derived program is batched by batching the
function it was traced from, and by running the same passes on the result. That is for what only
JAX knows how to batch: functions with a `custom_vmap`, and shardings over devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.passes.differentiating_pass import Derivative
from pullback.passes.entry_edits import ReorderOperands
from pullback.passes.pipelines import Stage
from pullback.passes.transpose import Transpose


@dataclass(frozen=True)
class Recipe:
    """A traced function, and the passes that ran on its module.

    Attributes:
      closed: the function as a jaxpr, before any rule was kept.
      stages: the passes.
    """

    closed: Any
    stages: tuple[Stage, ...] = ()

    def then(self, stages: Sequence[Stage]) -> Recipe:
        """Return the recipe after more passes."""
        return Recipe(self.closed, (*self.stages, *stages))

    def batched(self, in_axes: Sequence[int | None]) -> tuple[list[bool], set[int]]:
        """Return which operands need a batch axis, and which of the jaxpr's then have one.

        `in_axes` says which operands of the program have one.
        """
        origins, differentiated = self._origins()
        flags = [
            axis is not None or origin is None or origin in differentiated
            for axis, origin in zip(in_axes, origins, strict=True)
        ]
        given = {each for each, flag in zip(origins, flags, strict=True) if flag}
        return flags, (given | differentiated) - {None}  # type: ignore[return-value]

    def _origins(self) -> tuple[list[int | None], set[int | None]]:
        """Return each operand's position in the jaxpr, and those that are differentiated by.

        A tangent or cotangent has the position None.
        """
        origins: list[int | None] = list(range(len(self.closed.in_avals)))
        differentiated = set[int | None]()
        for stage in self.stages:
            if isinstance(stage, Derivative):
                by = set(stage.wrt or ())
                differentiated |= {origins[i] for i in by}
                if isinstance(stage, Transpose):
                    origins = [origin for i, origin in enumerate(origins) if i not in by]
            elif isinstance(stage, ReorderOperands):  # new operands come after the old ones
                origins = [origins[i] if i < len(origins) else None for i in stage.order]
        return origins, differentiated


@dataclass(frozen=True)
class Retarget:
    """A recipe that makes a program for another platform.

    Attributes:
      traced: gives the program of the traced function, without its large constants.
      steps: what was derived from that, one from the other.
    """

    traced: Callable[[str], Any]
    steps: tuple[Callable[[Any], Any], ...] = ()

    def then(self, step: Callable[[Any], Any]) -> Retarget:
        """Return how to make what `step` derives from such a program."""
        return Retarget(self.traced, (*self.steps, step))

    def __call__(self, platform: str) -> Any:
        program = self.traced(platform)
        for step in self.steps:
            program = step(program)
        return program
