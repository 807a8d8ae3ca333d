"""How a program was made, so that it can be made again for a batch of arguments.

A derivative of a batched function is the batch of its derivatives, once every argument that is
differentiated has a batch axis of its own. So a derived program is batched by batching the
function it was traced from, and by running the same passes on the result. That is for what only
JAX knows how to batch: functions with a `custom_vmap`, and shardings over devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.passes.pipelines import Stage, parse_pipeline


@dataclass(frozen=True)
class Recipe:
    """A traced function, and the passes that ran on its module.

    Attributes:
      closed: the function as a jaxpr, before any rule was kept.
      origins: for each operand of the program, its position in the jaxpr; None for tangents.
      moved: positions in the jaxpr of what was differentiated in some step.
      stages: the passes.
    """

    closed: Any
    origins: tuple[int | None, ...]
    moved: frozenset[int] = frozenset()
    stages: tuple[Stage, ...] = ()

    @staticmethod
    def of(closed: Any) -> Recipe:
        """Return the recipe of a program that was just traced."""
        return Recipe(closed, tuple(range(len(closed.in_avals))))

    def then(
        self, stages: Sequence[Stage], wrt: Sequence[int], kept: Sequence[int | None]
    ) -> Recipe:
        """Return the recipe after more passes, which differentiate the operands `wrt`.

        Args:
          kept: for each operand afterwards, its position before, or None if it is new.
        """
        moved = {origin for i in wrt if (origin := self.origins[i]) is not None}
        origins = tuple(None if i is None else self.origins[i] for i in kept)
        return Recipe(self.closed, origins, self.moved | moved, (*self.stages, *stages))

    def and_then(self, pipeline: str) -> Recipe:
        """Return the recipe after a pipeline that leaves the operands as they are."""
        return self.then(parse_pipeline(pipeline), (), range(len(self.origins)))

    def must_batch(self, in_axes: Sequence[int | None]) -> list[bool]:
        """Return which operands need a batch axis, given those that have one."""
        return [
            axis is not None or origin is None or origin in self.moved
            for axis, origin in zip(in_axes, self.origins, strict=True)
        ]


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
