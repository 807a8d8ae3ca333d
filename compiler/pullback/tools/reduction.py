"""Make a module smaller while something still holds of it: delta debugging.

A step removes parts of one kind: functions, ops, results, arguments, attributes, elements. It
tries many parts at once, then fewer, down to single ones. Steps go on until none finds a part that
can go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.errors import PullbackError
from pullback.ir import build, symbols
from pullback.ir.modules import clone
from pullback.ir.regions import TERMINATORS, block_of, replace_op, terminator
from pullback.ir.signatures import keep_arguments, keep_results
from pullback.passes.manager import run_stages, verify_module
from pullback.passes.pipelines import parse_pipeline
from pullback_runtime import PullbackRuntimeError
from pullback_runtime.ir._erasure import erase

Edit = Callable[[ir.Module], None]
CONSTANT = "stablehlo.constant"


class OutOfTime(Exception):
    """Raised by the test of a candidate when the time is over."""


@dataclass
class Reduction:
    """The smallest module so far, and how it is made smaller.

    Attributes:
      module: of which the test holds.
      holds: the test of a candidate; it raises OutOfTime when the time is over.
      tried: how many candidates have been tested.
      finished: True if no step found anything more to take away.
    """

    module: ir.Module
    holds: Callable[[ir.Module], bool]
    tried: int = 0
    finished: bool = False
    _seen: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Take away whatever can go, until nothing can, or the time is over."""
        try:
            while not self.finished:
                self.finished = True
                for step in STEPS:
                    if step(self):
                        self.finished = False
        except OutOfTime:
            self.finished = False

    def attempt(self, edit: Edit) -> bool:
        """Edit a copy; keep it if it is a smaller module, is valid, and the test holds of it."""
        candidate = clone(self.module)
        try:
            with _jax.working_in(candidate):
                edit(candidate)
            verify_module(candidate)
        except (PullbackError, PullbackRuntimeError, ir.MLIRError, ValueError):
            return False  # the part was needed
        return self.offer(candidate)

    def offer(self, candidate: ir.Module) -> bool:
        """Keep a valid candidate if it is smaller and the test holds of it."""
        text = str(candidate)
        if text in self._seen or size(candidate) >= size(self.module):
            return False
        self._seen.add(text)
        self.tried += 1
        if not self.holds(candidate):
            return False
        self.module = candidate
        return True

    def without(self, count: Callable[[ir.Module], int], edit: Callable[[set[int]], Edit]) -> bool:
        """Take away parts that are numbered: halves of them, then less, then one after the other.

        Args:
          count: how many parts a module has.
          edit: removes the parts of these numbers.
        """
        found, width = False, count(self.module)
        while width:
            start = 0
            while start < (total := count(self.module)):
                if self.attempt(edit(set(range(start, min(start + width, total))))):
                    found = True  # those after it have moved here
                else:
                    start += width
            width //= 2
        return found


def size(module: ir.Module) -> tuple[int, ...]:
    """Return what is to become smaller, the first before the others.

    Ops without constants, constants, arguments and results of functions, the dimensions of all
    types, the length of the text.
    """
    ops = all_ops(module)
    constants = sum(op.name == CONSTANT for op in ops)
    values = sum(len(f.regions[0].blocks[0].arguments) for f in defined(module))
    values += sum(len(returned(f)) for f in defined(module))
    text = str(module)
    dimensions = sum(map(int, _DIMENSION.findall(text)))
    return len(ops) - constants, constants, values, dimensions, len(text)


def all_ops(module: ir.Module) -> list[Any]:
    """Return the ops that can go: all but functions and terminators, outer ones first."""
    found: list[Any] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name not in TERMINATORS and op.name not in ("builtin.module", "func.func"):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def defined(module: ir.Module) -> list[Any]:
    """Return the functions that have a body."""
    known = symbols.functions(module).values()
    return [each for each in known if not symbols.is_declaration(each)]


def returned(function: Any) -> list[Any]:
    return list(terminator(function.regions[0].blocks[0]).operands)


# ---------------------------------------------------------------------------------- functions


def only_one_function(reduction: Reduction) -> bool:
    """Keep one function and those that it refers to, the first one for which the test holds."""

    def keep(name: str) -> Edit:
        def edit(module: ir.Module) -> None:
            for other, function in symbols.functions(module).items():
                if other == name:
                    symbols.make_public(function)
                elif symbols.is_public(function):
                    symbols.make_private(function)
            run_stages(module, parse_pipeline("symbol-dce"))

        return edit

    names = reversed(symbols.functions(reduction.module))  # inner ones come last, most often
    return any(reduction.attempt(keep(name)) for name in list(names))


def _passes(pipeline: str) -> Callable[[Reduction], bool]:
    """Return the step that runs a pipeline."""
    stages = parse_pipeline(pipeline)
    return lambda reduction: reduction.attempt(lambda module: run_stages(module, stages))


# ---------------------------------------------------------------------------------------- ops


def ops(reduction: Reduction) -> bool:
    """Erase ops; their results become operands of theirs, arguments, or zeros."""
    found = reduction.without(lambda module: len(all_ops(module)), _without_ops)
    number = 0
    while number < len(every := all_ops(reduction.module)):
        choices = range(1, len(every[number].operands) + 2)
        if any(reduction.attempt(_without_ops({number}, choice)) for choice in choices):
            found = True
        else:
            number += 1
    return found


def _without_ops(numbers: set[int], choice: int = 0) -> Edit:
    def edit(module: ir.Module) -> None:
        every = all_ops(module)
        chosen = [every[number] for number in sorted(numbers)]
        inner = {each for op in chosen for each in _below(op)}
        for op in reversed([op for op in chosen if op not in inner]):
            _erase(op, choice)

    return edit


def _below(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            for each in block.operations:
                yield each.operation
                yield from _below(each.operation)


def _erase(op: Any, choice: int) -> None:
    """Erase an op; who uses its results gets one of the values that can stand for them."""
    used = [result for result in op.results if any(True for _ in result.uses)]
    with build.inserting(ir.InsertionPoint(op), op.location):
        for result in used:
            others = _stand_ins(op, result)
            if op.name != CONSTANT:
                others.append(None)
            elif choice == 0 or not others:
                return  # nothing is simpler than a constant, but for an argument
            other = others[min(choice, len(others) - 1)]
            result.replace_all_uses_with(build.zeros(result.type) if other is None else other)
    erase(op)


def _stand_ins(op: Any, result: Any) -> list[Any]:
    """Return operands of the type of a result, that of its number first, and the next argument."""
    number = result.result_number
    near = [*op.operands[number:], *op.operands[:number]]
    found = dict.fromkeys(v for v in near if v.type == result.type)
    while op.name != "func.func":
        alike = [v for v in block_of(op).arguments if v.type == result.type]
        if alike:
            return list(found | {alike[0]: None})
        op = op.operation.parent
    return list(found)


def unwrapped(reduction: Reduction) -> bool:
    """Put the body of a loop, once, or a branch in the place of its op."""
    found = False
    for number, op in enumerate(all_ops(reduction.module)):
        for region in reversed(range(len(op.regions))):  # of a loop, the body is the last
            found = found or reduction.attempt(_unwrap(number, region))
    return found


def _unwrap(number: int, region: int) -> Edit:
    def edit(module: ir.Module) -> None:
        op = all_ops(module)[number]
        block = op.regions[region].blocks[0]
        new = dict(zip(block.arguments, op.operands, strict=len(block.arguments) > 0))
        with build.inserting(ir.InsertionPoint(op), op.location):
            for inner in list(block.operations)[:-1]:
                copy = build.clone(inner.operation, [new.get(v, v) for v in inner.operands])
                new |= dict(zip(inner.results, copy.results, strict=True))
        replace_op(op, [new.get(v, v) for v in terminator(block).operands])

    return edit


# ---------------------------------------------------------------- signatures, constants, shapes


def results(reduction: Reduction) -> bool:
    """Return less from functions that are not called."""
    return _of_functions(reduction, lambda f: len(returned(f)), keep_results)


def arguments(reduction: Reduction) -> bool:
    """Drop arguments of functions without callers; their uses get zeros."""
    return _of_functions(reduction, lambda f: len(f.regions[0].blocks[0].arguments), keep_arguments)


def _of_functions(
    reduction: Reduction,
    count: Callable[[Any], int],
    keep: Callable[[Any, Sequence[int]], None],
) -> bool:
    found = False
    for name in [symbols.symbol(function) for function in defined(reduction.module)]:

        def parts(module: ir.Module, name: str = name) -> int:
            return count(symbols.functions(module)[name])

        def edit(numbers: set[int], name: str = name) -> Edit:
            def drop(module: ir.Module) -> None:
                function = symbols.functions(module)[name]
                keep(function, [i for i in range(count(function)) if i not in numbers])

            return drop

        found = reduction.without(parts, edit) or found
    return found


def simple_constants(reduction: Reduction) -> bool:
    """Make constants zero throughout."""

    def edit(numbers: set[int]) -> Edit:
        def zero(module: ir.Module) -> None:
            constants = [op for op in all_ops(module) if op.name == CONSTANT]
            for op in (constants[number] for number in numbers):
                op.attributes["value"] = build.splat(op.result.type, 0)

        return zero

    return reduction.without(
        lambda module: sum(op.name == CONSTANT for op in all_ops(module)), edit
    )


NEEDED = frozenset({"sym_name", "function_type"})


def attributes(reduction: Reduction) -> bool:
    """Drop attributes that an op need not have."""

    def edit(numbers: set[int]) -> Edit:
        def drop(module: ir.Module) -> None:
            every = _attributes(module)
            for op, name in (every[number] for number in numbers):
                del op.attributes[name]

        return drop

    return reduction.without(lambda module: len(_attributes(module)), edit)


def _attributes(module: ir.Module) -> list[tuple[Any, str]]:
    every = [module.operation, *symbols.functions(module).values(), *all_ops(module)]
    return [
        (op, name)
        for op in every
        for name in sorted(dict(op.attributes.items()))
        if name not in NEEDED
    ]


_DIMENSION = re.compile(r"(?<=[<x])(\d+)(?=x)")


def shapes(reduction: Reduction) -> bool:
    """Make dimensions shorter, all those of one size at once, wherever the module stays valid."""
    found = False
    sizes = {int(text) for text in _DIMENSION.findall(str(reduction.module))} - {0, 1}
    for old in sorted(sizes, reverse=True):
        found = any(_resized(reduction, old, new) for new in (1, 2, 3) if new < old) or found
    return found


def _resized(reduction: Reduction, old: int, new: int) -> bool:
    def shorter(match: re.Match[str]) -> str:
        return str(new) if int(match[1]) == old else match[1]

    text = _DIMENSION.sub(shorter, reduction.module.operation.get_asm())
    try:
        candidate = ir.Module.parse(text, reduction.module.context)
        verify_module(candidate)
    except (PullbackError, ir.MLIRError):
        return False
    return reduction.offer(candidate)


STEPS: tuple[Callable[[Reduction], bool], ...] = (
    only_one_function,
    _passes("symbol-dce"),
    results,
    ops,
    unwrapped,
    _passes("inline-calls{public=true checkpoint=true}"),
    _passes("cse"),  # of constants that ops have been replaced by
    arguments,
    simple_constants,
    attributes,
    shapes,
)
