"""How a program was made, so that it can be made again for a batch of arguments.

A derivative of a batched function is the batch of its derivatives, once every argument that is
differentiated has a batch axis of its own. So a derived program is batched by batching the
function it was traced from, and by running the same passes on the result. That is for what only
JAX knows how to batch: functions with a `custom_vmap`, and shardings over devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from pullback._edits import clone
from pullback._interface import Interface
from pullback._jax import ir, tracing
from pullback.passes import manager
from pullback.passes.pipelines import Stage, parse_pipeline
from pullback_runtime import _module
from pullback_runtime._load import flat_trees

if TYPE_CHECKING:
    from pullback._program import Program


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
        """The recipe of a program that was just traced."""
        return Recipe(closed, tuple(range(len(closed.in_avals))))

    def then(
        self, stages: Sequence[Stage], wrt: Sequence[int], kept: Sequence[int | None]
    ) -> Recipe:
        """The recipe after more passes, which differentiate the operands `wrt`.

        Args:
          kept: for each operand afterwards, its position before, or None if it is new.
        """
        moved = {origin for i in wrt if (origin := self.origins[i]) is not None}
        origins = tuple(None if i is None else self.origins[i] for i in kept)
        return Recipe(self.closed, origins, self.moved | moved, (*self.stages, *stages))

    def and_then(self, pipeline: str) -> Recipe:
        """The recipe after a pipeline that leaves the operands as they are."""
        return self.then(parse_pipeline(pipeline), (), range(len(self.origins)))

    def must_batch(self, in_axes: Sequence[int | None]) -> list[bool]:
        """Which operands need a batch axis, given those that have one."""
        return [
            axis is not None or origin is None or origin in self.moved
            for axis, origin in zip(in_axes, self.origins, strict=True)
        ]

    def batched(self, flags: Sequence[bool], size: int, along: Any = None) -> Program | None:
        """The program for a batch: flagged operands and all results have it as leading axis.

        It lies along the axis of a mesh that is named. None where JAX cannot batch the function.
        """
        from pullback.frontend.trace import trace

        mine = {o for o, flag in zip(self.origins, flags, strict=True) if flag} | self.moved
        axes = tuple(0 if i in mine else None for i in range(len(self.closed.in_avals)))
        function = jax.vmap(tracing.equations_to_function(self.closed), axes, 0, axis_size=size)
        items = zip(tracing.structs(self.closed.in_avals), axes, strict=True)
        types = [tracing.batch_type_along(*item, size, along) for item in items]
        try:
            program = trace(function)(*types)
        except NotImplementedError:  # a primitive that JAX cannot batch
            return None
        if program.constants or program.recipe is None:
            return None
        module = clone(program.module)
        manager.run_stages(module, self.stages, program.rules)
        again = dataclasses.replace(self, closed=program.recipe.closed)
        return _of_module(program, module, again)


def _of_module(program: Program, module: ir.Module, recipe: Recipe) -> Program:
    """The program of a module whose operands and results are arguments and results as they are."""
    ins, outs = _module.signature(_module.find_entry(module, "main"), "main")
    in_tree, out_tree = flat_trees(len(ins), len(outs))
    paths = tuple(f"operand {i}" for i in range(len(ins)))
    interface = Interface(in_tree, out_tree, ins, outs, paths)
    return dataclasses.replace(program, module=module, interface=interface, recipe=recipe)
