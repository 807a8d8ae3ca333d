"""Probes: blocks of a module as functions that return every value in them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import pullback_runtime
from pullback import _jax
from pullback._jax import ir
from pullback.as_jax.evaluate import Evaluation
from pullback.autodiff.checks import is_unknown
from pullback.ir import build, ops
from pullback.ir.build import Value
from pullback.ir.modules import clone, take_entry
from pullback.ir.regions import captured_by, operations, terminator
from pullback.ir.symbols import functions
from pullback_runtime._jax import operations_where
from pullback_runtime.ir._dtypes import element_dtype
from pullback_runtime.ir._erasure import erase

if TYPE_CHECKING:
    from pullback import Program

Array = np.ndarray[Any, Any]
PROBE = "pullback_probe"
RETURN = "func.return"


@dataclass(frozen=True)
class Place:
    """A block: that of a function, or of the region of an op, given by positions, in it."""

    function: str
    steps: tuple[tuple[int, int], ...] = ()

    def inside(self, index: int, region: int) -> Place:
        """Return the block of a region of the op at this index."""
        return Place(self.function, (*self.steps, (index, region)))

    def block_of(self, function: Any) -> Any:
        """Return the block in the function, or in a copy of it."""
        block = function.regions[0].blocks[0]
        for index, region in self.steps:
            block = operations(block)[index].regions[region].blocks[0]
        return block


@dataclass(frozen=True)
class Block:
    """A block, its ops, and the values from outside that it uses."""

    block: Any
    ops: list[Any]
    captured: list[Value]

    @property
    def inputs(self) -> list[Value]:
        """The arguments, then the captured values."""
        return [*self.block.arguments, *self.captured]


class Probes:
    """The blocks of a program's module, and what they compute from given inputs."""

    def __init__(self, program: Program) -> None:
        program = _runnable(program)
        self.module = program.module
        self._environment = program.environment
        evaluation = Evaluation(program)
        self.blocks = functools.cache(self._block)
        self._executable = functools.cache(self._compiled)
        self._single = functools.cache(lambda op: jax.jit(evaluation.function_of(op)[1]))

    def _block(self, place: Place) -> Block:
        block = place.block_of(functions(self.module)[place.function])
        return Block(block, operations(block), captured_by([block]))

    def dtypes(self) -> list[np.dtype[Any]]:
        """Return the dtypes of the program's arguments in its module."""
        arguments = self.blocks(Place("main")).block.arguments
        return [element_dtype(build.info(v.type).element, "an argument") for v in arguments]

    def outputs(self, place: Place, inputs: Sequence[Any]) -> list[Array | None]:
        """Return what the terminator of a block returns; None in place of what is not an array."""
        values = iter(self._run(place, inputs, False))
        returned = terminator(self.blocks(place).block).operands
        return [next(values) if _is_array(v) else None for v in returned]

    def values(self, place: Place, inputs: Sequence[Any]) -> dict[Value, Array]:
        """Return every array in a block by its value, inputs included."""
        block = self.blocks(place)
        found = dict(zip(block.inputs, inputs, strict=True))
        found.update(zip(_results(block.ops), self._run(place, inputs, True), strict=True))
        return {v: np.asarray(x) for v, x in found.items() if x is not None}

    def alone(self, op: Any, operands: Sequence[Any]) -> list[Array]:
        """Run an op that uses nothing but its operands, by JAX; return its results.

        If it only moves elements, they may be of another type.

        Raises:
          NoJaxCounterpartError: JAX has no primitive for it.
        """
        with jax.enable_x64(True), jax.debug_nans(False), jax.debug_infs(False):
            return [np.asarray(x) for x in self._single(op)(*operands)]

    def _run(self, place: Place, inputs: Sequence[Any], every: bool) -> list[Array]:
        with jax.enable_x64(True), jax.debug_nans(False), jax.debug_infs(False):
            return [np.asarray(x) for x in self._executable(place, every)(*inputs)]

    def _compiled(self, place: Place, every: bool) -> Callable[..., Any]:
        copy = clone(self.module)
        with _jax.working_in(copy):
            _make_entry(copy, place, every)
        environment = self._environment
        return pullback_runtime.compile(
            copy,
            host_callbacks=environment.host_callbacks,
            keepalives=environment.keepalives,
            mesh=environment.mesh,
        )


def _runnable(program: Program) -> Program:
    """Lower calls where maps are known by their transpose only, whose functions give NaN."""
    if not any(map(is_unknown, ops.walk_calls(program.module))):
        return program
    return program.run_passes("lower-custom-derivatives")


def _is_array(v: Value) -> bool:
    return isinstance(v.type, ir.RankedTensorType) and v.type.has_static_shape


def _results(block_ops: Sequence[Any]) -> list[Value]:
    """Return the arrays that ops of a block make, but for the terminator's, which has none."""
    return [v for op in block_ops for v in op.results if _is_array(v)]


def _make_entry(module: ir.Module, place: Place, every: bool) -> None:
    """Make a block the entry of a module, where it returns its results or all its values."""
    place_for_copies = ir.InsertionPoint(module.body)
    spare = functions(module)[place.function].clone(place_for_copies)
    block = place.block_of(spare)
    returned = _results(operations(block)) if every else list(terminator(block).operands)
    returned = [v for v in returned if _is_array(v)]
    location = ir.Location.unknown()
    for v in captured_by([block]):
        _replace_inside(block, v, block.add_argument(v.type, location))
    kind = ir.FunctionType.get([v.type for v in block.arguments], [v.type for v in returned])
    with place_for_copies:
        probe = _jax.func.FuncOp(PROBE, kind)
    block.append_to(probe.regions[0])
    old = terminator(block)
    ir.Operation.create(RETURN, operands=returned, loc=location, ip=ir.InsertionPoint(old))
    erase(old)
    erase(spare)
    take_entry(module, PROBE)


def _replace_inside(block: Any, old: Value, new: Value) -> None:
    """Let the ops of a block, and those nested in them, use another value."""
    for op in operations(block):
        for user in operations_where(op, lambda each: old in each.operands):
            for i, v in enumerate(user.operands):
                if v == old:
                    user.operands[i] = new
