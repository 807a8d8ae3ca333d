"""Batching: turn a function of one item into one of a batch, in place, op by op.

A value that depends on the batch gets the batch axis as its first dimension; what all items share
stays as it is. `Batching` is the state of the pass, and the frame of one block is what its rules
see. Rules of calls become functions of a batch as well: `BatchSignature` says of what type.

An op without a batching rule runs for one item after the other, in a loop.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.batch_rules import (
    BATCHES,
    CAPTURING,
    MappedOp,
    batch_type,
    repeated,
    to_front,
)
from pullback.autodiff.state import Differentiation
from pullback.autodiff.zeros import is_zero
from pullback.errors import MissingRuleError
from pullback.ir import build, loop_carries, ops
from pullback.ir.build import Value
from pullback.ir.locations import user_line
from pullback.ir.masks import Asked, mask_of, masked
from pullback.ir.regions import (
    BRANCHES,
    SHARDINGS,
    TERMINATORS,
    blocks,
    captures,
    operations,
    replace_terminator,
    terminator,
)
from pullback.ir.signatures import forget_layouts, set_signature
from pullback.ir.symbols import called
from pullback_runtime.ir._erasure import erase

Flags = Sequence[bool]
Wanted = Sequence[bool | None] | None
"""For each result: with the batch axis, summed over it, or as it comes."""


class Batching:
    """The state of one run of the pass over one module.

    Attributes:
      diff: the functions of the module.
      size: of the batch axis.
    """

    def __init__(self, diff: Differentiation, size: int) -> None:
        self.diff = diff
        self.size = size
        self._names: dict[Any, str] = {}
        self._pending: list[tuple[str, Flags, Wanted]] = []

    # ------------------------------------------------------------------------- functions

    def function(self, name: str, flags: Flags, wanted: Wanted = None) -> tuple[str, list[bool]]:
        """Return the name of @name for a batch of the flagged arguments, and its batched results.

        The body is batched later, in `finish`: a rule may call the function that it is the rule of.
        """
        if wanted is None or None in wanted:
            natural = self.result_flags(name, flags)
            given = wanted or [None] * len(natural)
            wanted = [n or None if w is None else w for n, w in zip(natural, given, strict=True)]
        key = name, mask_of(flags), tuple(wanted)
        if key not in self._names:
            self._names[key] = self.diff.clone_function(name, f"{name}.batched")
            self._pending.append((self._names[key], flags, wanted))
        return self._names[key], [w is True for w in wanted]

    def finish(self) -> None:
        """Batch the bodies of all functions that were asked for."""
        while self._pending:
            self._rewrite(*self._pending.pop())

    def _rewrite(self, name: str, flags: Flags, wanted: Wanted) -> None:
        """Batch the body of a function in place."""
        function, block = self.diff.function(name), self.diff.block(name)
        _check_unsharded(function, "arg_attrs", "res_attrs")
        frame = Frame(self)
        frame.take(block.arguments, flags)
        frame.run(block)
        frame.finish(block, wanted)
        set_signature(function)

    def entry(
        self, name: str, in_axes: Sequence[int | None], out_axes: Sequence[int | None] | None
    ) -> list[bool]:
        """Batch an entry in place, with these batch axes of arguments and results.

        Without `out_axes`, a result has a leading batch axis, or none if all items share it.
        Return which results have one.
        """
        self.diff.in_place = name
        function, block = self.diff.function(name), self.diff.block(name)
        _check_unsharded(function, "arg_attrs", "res_attrs")
        frame, steps = Frame(self), operations(block)
        with build.inserting(ir.InsertionPoint(steps[0]), function.location):
            for argument, axis in zip(block.arguments, in_axes, strict=True):
                if axis is not None:
                    _check_types(function, [argument.type])
                    frame.values[argument] = _moved_to_front(argument, axis, self.size)
        frame.visit(steps)
        if out_axes is None:
            found = frame.finish(block)
        else:
            found = frame.finish(block, [None if axis is None else True for axis in out_axes])
            end = terminator(block)
            with build.inserting(ir.InsertionPoint(end), end.location):
                pairs = zip(end.operands, out_axes, strict=True)
                results = [v if not axis else _moved_from_front(v, axis) for v, axis in pairs]
            replace_terminator(block, results)
        set_signature(function)
        forget_layouts(function)
        self.finish()
        return found

    # -------------------------------------------------------------------------- analysis

    def result_flags(self, name: str, flags: Flags) -> list[bool]:
        """Return which results of a function depend on the batch, given which arguments do."""

        def find() -> list[bool]:
            block = self.diff.block(name)
            known = {a for a, flag in zip(block.arguments, flags, strict=True) if flag}
            return self.block_flags(block, known)

        return self.diff.cached(("batched results", name, mask_of(flags)), find)

    def block_flags(self, block: Any, known: set[Value]) -> list[bool]:
        """Return which values that a block returns depend on the batch; add all such to `known`."""
        for operation in operations(block):
            values = [*operation.operands, *captures(operation)]
            if any(v in known for v in values):
                flags = self._op_flags(operation, known)
                known.update(r for r, f in zip(operation.results, flags, strict=True) if f)
        return [v in known for v in terminator(block).operands]

    def _op_flags(self, operation: Any, known: set[Value]) -> list[bool]:
        flags, name = [v in known for v in operation.operands], operation.name
        if name == "stablehlo.while":
            return self.loop_flags(operation, flags, known)
        if name in BRANCHES and not flags[0]:
            rows = [self.block_flags(block, set(known)) for block in blocks(operation)]
            return list(map(any, zip(*rows, strict=True)))
        if name == "stablehlo.optimization_barrier":
            return flags
        if (function := called(operation)) is not None and not _has_batches(operation):
            return self.result_flags(function, flags)
        return [True] * len(operation.results)

    def loop_flags(self, operation: Any, flags: Flags, known: set[Value]) -> list[bool]:
        """Return which carries of a loop depend on the batch: all that vary, if its condition does.

        Memoized, because the fixpoint of each loop analyzes the loops in it more than once:
        otherwise, time would be exponential in the depth of nesting.
        """
        captured = frozenset(known.intersection(captures(operation)))
        key = "loop flags", operation, mask_of(flags), captured
        return self.diff.while_analyzing(key, lambda: self._loop_flags(operation, flags, known))

    def _loop_flags(self, operation: Any, flags: Flags, known: set[Value]) -> list[bool]:
        cond, body = blocks(operation)
        unchanged = list(map(operator.eq, terminator(body).operands, body.arguments))
        flags, before = list(flags), None
        while flags != before:
            before = flags
            if self.ends_apart(cond, flags, known):
                flags = [f or not same for f, same in zip(flags, unchanged, strict=True)]
            found = self.block_flags(body, _with(known, body, flags))
            flags = [a or b for a, b in zip(flags, found, strict=True)]
        return flags

    def ends_apart(self, cond: Any, flags: Flags, known: set[Value]) -> bool:
        """Return True if the condition of a loop with such carries depends on the batch."""
        return any(self.block_flags(cond, _with(known, cond, flags)))


def _with(known: set[Value], block: Any, flags: Flags) -> set[Value]:
    return known | {a for a, flag in zip(block.arguments, flags, strict=True) if flag}


def _has_batches(operation: Any) -> bool:
    """Return True if a call is a composite with rules of its own, whose results are all batched."""
    name = ops.composite_name(operation)
    return name is not None and (name.startswith(ops.PREFIX) or name in BATCHES)


def _moved_to_front(argument: Value, axis: int, size: int) -> Value:
    """Give an argument a batch axis at `axis`; return it with that axis moved to the front."""
    info = build.info(argument.type)
    dims = (*info.shape[:axis], size, *info.shape[axis:])
    argument.set_type(build.tensor(dims, info.element))
    return to_front(argument, axis)


def _moved_from_front(v: Value, axis: int) -> Value:
    rank = build.rank(v)
    rest = iter(range(1, rank))
    return build.permute(v, [0 if d == axis else next(rest) for d in range(rank)])


# ----------------------------------------------------------------------------- one block


class Frame:
    """The sweep over one block; `values` maps values that depend on the batch to batched ones.

    `rows` does so for arrays that the body of a loop reads or writes slot by slot: there the slots
    come first, and the batch axis after them. See rules/loops/batched_stacks.py.
    """

    def __init__(self, batching: Batching, outer: Frame | None = None) -> None:
        self.batching = batching
        self.size = batching.size
        self.diff = batching.diff
        self.values: dict[Value, Value] = {} if outer is None else dict(outer.values)
        self.rows: dict[Value, Value] = {} if outer is None else dict(outer.rows)
        self._dead: list[Any] = []

    def inner(self) -> Frame:
        """Return a frame for a block nested in this one."""
        return Frame(self.batching, self)

    def take(self, arguments: Sequence[Value], flags: Flags) -> None:
        """Give the flagged arguments the batch axis."""
        for argument, flag in zip(arguments, flags, strict=True):
            if flag:
                argument.set_type(batch_type(argument.type, self.size))
                self.values[argument] = argument

    def flags(self, block: Any) -> list[bool]:
        """Return which values that an inner block returns depend on the batch."""
        return self.batching.block_flags(block, set(self.values))

    def loop_flags(self, op: MappedOp) -> list[bool]:
        """Return which carries of a loop depend on the batch."""
        return self.batching.loop_flags(op.operation, op.batched, set(self.values))

    def ends_apart(self, op: MappedOp, flags: Flags) -> bool:
        """Return True if items differ in how long they go on in a loop."""
        return self.batching.ends_apart(blocks(op.operation)[0], flags, set(self.values))

    def run(self, block: Any) -> None:
        """Insert a batched op before each op of the block that depends on the batch."""
        self.visit(operations(block))

    def visit(self, steps: Sequence[Any]) -> None:
        """Insert a batched op before each of these ops that depends on the batch."""
        with build.inserting(None):
            for operation in steps:
                name = operation.name
                if name not in TERMINATORS:
                    self._visit(name, operation)

    def _visit(self, name: str, operation: Any) -> None:
        values, operands = self.values, list(operation.operands)
        captured = captures(operation) if len(operation.regions) else ()
        batched = [v in values for v in operands]
        captures_batch = any(v in values for v in captured)
        if not captures_batch and True not in batched:
            return
        build.here.ip, build.here.loc = ir.InsertionPoint(operation), operation.location
        results = list(operation.results)
        types = [r.type for r in results]
        op = MappedOp(name, operation, [values.get(v, v) for v in operands], batched, types, self)
        _check(op)
        rule = BATCHES.get(name, one_by_one)
        if captures_batch and name not in CAPTURING:
            rule = one_by_one
        found = rule(op)
        if found is None:
            found = one_by_one(op)
        found = found if isinstance(found, (list, tuple)) else [found]
        for old, type, new in zip(results, types, found, strict=True):
            if new.type == type:
                old.replace_all_uses_with(new)
            else:
                values[old] = new
        self._dead.append(operation)

    def finish(self, block: Any, wanted: Wanted = None) -> list[bool]:
        """Return the batched values from the block, and erase the ops that were for one item.

        Return which values have the batch axis.
        """
        end = terminator(block)
        outs = list(end.operands)
        asked = [None] * len(outs) if wanted is None else wanted
        alike = (v for v, how in zip(outs, asked, strict=True) if how and v not in self.values)
        _check_types(end, [v.type for v in alike])
        with build.inserting(ir.InsertionPoint(end), end.location):
            results = self.wanted(outs, asked)
        found = [
            (v in self.values) if how is None else how for v, how in zip(outs, asked, strict=True)
        ]
        self.close(block, results)
        return found

    def close(self, block: Any, results: Sequence[Value]) -> None:
        """Return `results` from the block, and erase the ops that were for one item."""
        replace_terminator(block, results)
        self.erase_dead()

    def erase_dead(self) -> None:
        """Erase the ops that were for one item, and forget the values keyed by their results."""
        for operation in reversed(self._dead):
            erase(operation)
        self._dead, self.values, self.rows = [], {}, {}

    def wanted(self, values: Sequence[Value], how: Sequence[bool | None]) -> list[Value]:
        """Return values with the batch axis, summed over it, or as they come: see `Wanted`."""
        return [self._wanted(v, each) for v, each in zip(values, how, strict=True)]

    def _wanted(self, v: Value, how: bool | None) -> Value:
        """Return a value with the batch axis (True), summed over it (False), or as it is (None)."""
        known = self.values.get(v)
        if how is None:
            return v if known is None else known
        if how:
            return repeated(v, self.size) if known is None else known
        if known is None and is_zero(v, self.diff.functions):
            return v
        number = build.counting(v.type)
        total = (
            build.mul(build.convert(v, number), self.size)
            if known is None
            else build.reduce_sum(build.convert(known, number), (0,))
        )
        return build.convert(total, build.info(v.type).element)


_OF_DIMENSIONS = re.compile(r"#sdy\.sharding.*\[\{|devices=")
"""Matches a sharding of dimensions; other shardings name a device for all of a value."""
_OF_OTHER_TYPES = {
    f"stablehlo.{name}" for name in ("tuple", "get_tuple_element", "async_start", "async_done")
}


def _check(op: MappedOp) -> None:
    """Raise MissingRuleError for what has no batch: tokens, dynamic shapes, shardings."""
    for type in (*(v.type for v in op.values), *op.results):
        why = _without_batch(type)
        if why is not None and (op.name not in _OF_OTHER_TYPES or "token" in why):
            raise _refusal(op.operation, why)
    _check_unsharded(op.operation, *SHARDINGS)
    if op.name.startswith("sdy.") and op.name not in BATCHES:
        raise _refusal(op.operation, _SHARDED)


def _check_types(operation: Any, types: Sequence[Any]) -> None:
    """Raise MissingRuleError if values of one of these types have no batch."""
    for why in map(_without_batch, types):
        if why is not None:
            raise _refusal(operation, why)


def _check_unsharded(operation: Any, *names: str) -> None:
    """Raise MissingRuleError if one of these attributes says how dimensions are sharded."""
    attributes = operation.attributes
    for name in names:
        if name in attributes and _OF_DIMENSIONS.search(str(attributes[name])):
            raise _refusal(operation, _SHARDED)


_SHARDED = " that is sharded over devices"


@_jax.cached
def _without_batch(type: Any) -> str | None:
    """Return why values of the type cannot be batched; None if they can."""
    if build.info(type).kind == "?":
        return f" on a value of type {type}"
    return f" on a value of dynamic shape, {type}" if -1 in build.shape_of(type) else None


def _refusal(operation: Any, why: str) -> MissingRuleError:
    return MissingRuleError(
        f"no batching rule for `{operation.name}`{why}",
        where=user_line(operation.location),
        do="map the function before it is traced: jax.vmap(f); or take this step out of it",
    )


# ----------------------------------------------------------------------- item after item


def one_by_one(op: MappedOp) -> list[Value]:
    """Return the results of an op that runs item by item in a loop over the batch axis."""
    _check_types(op.operation, [*(v.type for v in op.values), *op.results])
    if op.size == 0:
        return [build.zeros(type) for type in op.types()]
    index = build.full(build.scalar("i32"), 0)
    loop, cond, body = build.while_([index, *(build.zeros(type) for type in op.types())])
    with build.inserting(ir.InsertionPoint(cond)):
        (i, *_) = cond.arguments
        build.return_([build.compare("LT", i, op.size)])
    with build.inserting(ir.InsertionPoint(body)):
        i, *stacks = body.arguments
        copy = _copy_for_item(op.operation, op.frame.values, i)
        ends = [build.add(i, 1)]
        for stack, result in zip(stacks, copy.results, strict=True):
            ends.append(loop_carries.write(stack, result, i))
        build.return_(ends)
    return list(loop.results)[1:]


def _copy_for_item(operation: Any, values: dict[Value, Value], index: Value) -> Any:
    """Emit a copy of the op on item `index` of each batched value, also in its regions."""
    items: dict[Value, Value] = {}
    for v in dict.fromkeys([*operation.operands, *captures(operation)]):
        if (batch := values.get(v)) is not None:
            items[v] = loop_carries.read(batch, index)
    copy = build.clone(operation, [])

    def visit(each: Any) -> Any:
        for i, v in enumerate(each.operands):
            if v in items:
                each.operands[i] = items[v]
        return ir.WalkResult.ADVANCE

    copy.walk(visit)
    return copy


# ---------------------------------------------------------------------- rules of calls


@dataclass(frozen=True)
class BatchSignature:
    """The arguments and results of the functions of a call's rules, and which are batched.

    Attributes:
      flags: which operands are batched.
      inexact: positions of the operands that have tangents.
      results: how many there are, all of them batched; and of these, with cotangents.
    """

    flags: tuple[bool, ...]
    inexact: tuple[int, ...]
    results: int
    inexact_results: int

    @staticmethod
    def of(operands: Sequence[Value], results: Sequence[Value], flags: Flags) -> BatchSignature:
        """Return the signature of a call of one item."""
        count = len(ops.inexact_positions(results))
        return BatchSignature(
            tuple(flags), tuple(ops.inexact_positions(operands)), len(results), count
        )

    def functions(
        self, batching: Batching, kind: str, asked: Asked, names: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the batched functions of one rule, of which `names` are those for one item.

        The cotangent of an operand that all items share is summed over the items.
        """
        chosen = masked(self.inexact, asked.operands)
        moved = [self.flags[i] for i in chosen]
        cts = [True] * self.inexact_results  # all of them, also of a rule that is told of zeros
        if kind == "jvp":
            count = self.results + self.inexact_results
            return (batching.function(names[0], [*self.flags, *moved], [True] * count)[0],)
        if kind == "transpose":
            others = [f for i, f in enumerate(self.flags) if i not in chosen]
            return (batching.function(names[0], [*others, *cts], moved)[0],)
        block = batching.diff.block(names[0])
        residuals = len(terminator(block).operands) - self.results
        wanted: list[bool | None] = [*[True] * self.results, *[None] * residuals]
        forward, found = batching.function(names[0], self.flags, wanted)
        taken = [*found[self.results :], *cts]
        return forward, batching.function(names[1], taken, moved)[0]
