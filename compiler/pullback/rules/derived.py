"""Derive rules from others: a vjp by transposing a jvp, or both by expanding an op.

The ops of a rule are written into a scratch function first, whose arguments stand for tangents or
operands; then the sweeps of the passes run over them, and what remains moves to where the driver
emits.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pullback._jax import ir
from pullback.autodiff.forward import Forward
from pullback.autodiff.registry import (
    RULES,
    Expand,
    Jvp,
    Mask,
    Op,
    Rule,
    Tangents,
    Vjp,
    load_all,
    register,
    unsupported,
)
from pullback.autodiff.reverse import Reverse, identity
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.purity import Purity, is_used
from pullback.ir.regions import operations, replace_op
from pullback_runtime.ir._erasure import erase


def transposed(jvp: Jvp) -> Vjp:
    """Return the vjp of an op, derived as the transpose of its jvp."""

    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        types = [v.type for v, a in zip(op.operands, op.active, strict=True) if a]
        with _scratch(op, types) as block:
            arguments = iter(block.arguments)
            tangents = [next(arguments) if a else None for a in op.active]
            with _inside(block):
                outs = jvp(op, tangents)
            reverse = Reverse(op.frame.diff, identity, linear=True)
            reverse.analyze(block, block.arguments)
            _move_here(block)
            for out, ct in zip(outs, cts, strict=True):
                if out is not None:
                    reverse.accumulate(out, ct)
            linear = [op.operation for op in reverse.records if isinstance(op, Op)]
            reverse.run()
            found = [None if t is None else reverse.cotangent(t) for t in tangents]
            for operation in reversed(linear):
                erase(operation)
            return found

    vjp.__module__ = jvp.__module__
    return vjp


def expanded(expand: Expand) -> tuple[Jvp, Vjp]:
    """Return jvp and vjp of an op that `expand(op, operands)` computes by other ops."""

    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        with _expansion(op, expand) as (block, outs):
            pairs = zip(block.arguments, tangents, strict=True)
            forward = Forward(op.frame.diff, {a: t for a, t in pairs if t is not None})
            forward.run(block)
            _move_here(block)
            return list(map(forward.tangent, outs))

    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        with _expansion(op, expand) as (block, outs):
            active = [v for v, a in zip(block.arguments, op.active, strict=True) if a]
            reverse = Reverse(op.frame.diff, identity, op.frame.linear)
            reverse.analyze(block, active)
            steps = _move_here(block)
            for out, ct in zip(outs, cts, strict=True):
                reverse.accumulate(out, ct)
            reverse.run()
            found = [reverse.cotangent(v) for v in block.arguments]
            _erase_unused(op, steps, {*found, *reverse.replaced})
            return found

    jvp.__module__ = vjp.__module__ = expand.__module__
    return jvp, vjp


def by_expansion(
    name: str,
    expand: Callable[[Op, Sequence[Value]], Value],
    *,
    linear: Callable[[Mask], bool],
    family: str,
    elementwise: bool = False,
) -> Rule:
    """Register a rule that differentiates the expansion of an op with static shapes, one result."""

    def checked(op: Op, operands: Sequence[Value]) -> list[Value]:
        if any(-1 in build.shape_of(t) for t in (op.result_type, *(v.type for v in operands))):
            raise unsupported(op, "with a dynamic shape", build.REFINE_SHAPES)
        found = expand(op, operands)
        if found.type != op.result_type:
            raise unsupported(
                op, f"that gives {op.result_type}", f"correct the type of its result: {found.type}"
            )
        return [found]

    checked.__module__ = expand.__module__
    jvp, vjp = expanded(checked)
    return register(
        Rule(
            name,
            jvp,
            vjp,
            linear,
            expand.__module__,
            family,
            keeps_type=True,
            elementwise=elementwise,
            expand=checked,
        )
    )


def has_expansion(operation: Any) -> bool:
    """Return True if other ops are known that compute what an op does."""
    load_all()
    rule = RULES.get(operation.name)
    return rule is not None and rule.expand is not None


def expand_op(operation: Any) -> None:
    """Replace an op of a module by others that compute the same.

    Raises:
      MissingRuleError: the form of the op is unknown, or a shape is dynamic.
    """
    load_all()
    operands, results = list(operation.operands), list(operation.results)
    rule = RULES[operation.name]
    assert rule.expand is not None
    op = Op(operation, operands, results, [False] * len(operands), rule, None)
    with build.inserting(ir.InsertionPoint(operation), operation.location):
        found = rule.expand(op, operands)
    replace_op(operation, found)


@contextmanager
def _expansion(op: Op, expand: Expand) -> Iterator[tuple[Any, list[Value]]]:
    """Run the body with a scratch block that holds an expansion of the op; and its results."""
    with _scratch(op, [v.type for v in op.operands]) as block:
        with _inside(block):
            outs = list(expand(op, list(block.arguments)))
            build.return_(())
        _put_operands(op, block, False)  # now: one that is zero makes more of it linear
        yield block, outs
        _put_operands(op, block, True)


def _put_operands(op: Op, block: Any, active: bool) -> None:
    """Replace arguments by operands: by those that are active, or by those that are not."""
    for i, argument in enumerate(block.arguments):
        if op.active[i] == active and is_used(argument):
            argument.replace_all_uses_with(op.operand(i))


@contextmanager
def _scratch(op: Op, types: Sequence[Any]) -> Iterator[Any]:
    """Run the body with the empty block of a scratch function, which is dropped afterwards.

    It stays if a rule raises: ops that were moved out of it still use its arguments, and would be
    left with dangling pointers.
    """
    diff = op.frame.diff
    name, block = diff.add_function("scratch", types, [], build.here.loc)
    yield block
    diff.drop_function(name)


def _inside(block: Any) -> Any:
    return build.inserting(ir.InsertionPoint(block))


def _move_here(block: Any) -> list[Any]:
    """Move a block's ops except its terminator to the insertion point; return them."""
    place = build.here.ip
    following = place.ref_operation
    moved = [each for each in operations(block) if each.name != "stablehlo.return"]
    for operation in moved:
        if following is None:
            place.block.append(operation)
        else:
            operation.move_before(following)
    return moved


def _erase_unused(op: Op, steps: Sequence[Any], kept: Container[Value]) -> None:
    """Erase the steps of an expansion that its cotangents do not need.

    Otherwise they would read primal values of linear operands, which do not exist.
    """
    purity = Purity(op.frame.diff.functions)
    for step in reversed(steps):
        if not any(r in kept or is_used(r) for r in step.results) and purity.is_pure(step):
            erase(step)
