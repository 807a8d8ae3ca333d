"""Unused results of loops and branches: rebuild the op without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback._jax import ir

WHILE = "stablehlo.while"


def drop_dead_results(op: ir.Operation, is_pure: Callable[[ir.Operation], bool]) -> bool:
    """Rebuilds a `while`, `case` or `if` without its dead results; False when all are needed.

    A carry of a loop is dead when its result is unused, the condition does not read it, and in
    the body it reaches only its own next value.
    """
    unused = [number for number, result in enumerate(op.results) if _is_unused(result)]
    if op.name == WHILE:
        dead = [number for number in unused if _drop_carry_uses(op, number, is_pure)]
    else:
        dead = unused
    if not dead:
        return False
    for region in list(op.regions)[1 if op.name == WHILE else 0 :]:
        _drop_returned(region.blocks[0], dead)
    _rebuild(op, dead)
    return True


def _is_unused(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is None


def _drop_carry_uses(
    op: ir.Operation, number: int, is_pure: Callable[[ir.Operation], bool]
) -> bool:
    """Erases what a dead carry feeds in the body; False, and no change, when it is not dead."""
    condition, body = (region.blocks[0] for region in op.regions)
    if not _is_unused(condition.arguments[number]):
        return False
    users = _users_up_to_return(body, number, is_pure)
    if users is None:
        return False
    terminator = _last(body)
    terminator.operands[number] = body.arguments[number]
    order = {user: position for position, user in enumerate(_operations(body))}
    for user in sorted(users, key=order.__getitem__, reverse=True):
        user.erase()
    return True


def _users_up_to_return(
    body: ir.Block, number: int, is_pure: Callable[[ir.Operation], bool]
) -> set[ir.Operation] | None:
    """The ops of the body that depend on a carry; None when they reach more than its next value."""
    terminator = _last(body)
    users: set[ir.Operation] = set()
    pending: list[ir.Value] = [body.arguments[number]]
    while pending:
        for use in pending.pop().uses:
            user = _ancestor_in(body, use.owner.operation)
            if user == terminator:
                if use.owner.operation != terminator or use.operand_number != number:
                    return None
            elif user not in users:
                if not is_pure(user):
                    return None
                users.add(user)
                pending.extend(user.results)
    return users


def _ancestor_in(block: ir.Block, op: ir.Operation) -> ir.Operation:
    while op.block != block:
        op = op.parent.operation
    return op


def _operations(block: ir.Block) -> list[ir.Operation]:
    return [opview.operation for opview in block.operations]


def _last(block: ir.Block) -> ir.Operation:
    return _operations(block)[-1]


def _drop_returned(block: ir.Block, dead: Sequence[int]) -> None:
    """Removes operands of the terminator; the arguments of the block are left to `_rebuild`."""
    terminator = _last(block)
    kept = [value for number, value in enumerate(terminator.operands) if number not in dead]
    ir.Operation.create(
        "stablehlo.return", operands=kept, loc=terminator.location, ip=ir.InsertionPoint(terminator)
    )
    terminator.erase()


def _rebuild(op: ir.Operation, dead: Sequence[int]) -> None:
    """Moves the regions to a new op with fewer results, and for a loop fewer operands."""
    is_loop = op.name == WHILE
    kept = [number for number in range(len(op.results)) if number not in dead]
    operands = list(op.operands)
    results = list(op.results)
    new = ir.Operation.create(
        op.name,
        results=[results[number].type for number in kept],
        operands=[operands[number] for number in kept] if is_loop else operands,
        attributes={name: op.attributes[name] for name in op.attributes},
        regions=len(op.regions),
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    for old_region, new_region in zip(op.regions, new.regions, strict=True):
        block = old_region.blocks[0]
        if is_loop:
            for number in sorted(dead, reverse=True):
                block.erase_argument(number)
        block.append_to(new_region)
    for number, result in zip(kept, new.results, strict=True):
        results[number].replace_all_uses_with(result)
    op.erase()
