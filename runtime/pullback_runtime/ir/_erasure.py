"""Erase IR: the one place that does.

A handle of the bindings does not know that its operation was freed. What is read through it then is
freed memory, and a table that is keyed by values takes a new value for a freed one, where the two
have the same address. So an operation that is erased leaves its block at once, uses no operands any
more, and is freed when the outermost `erasing` of the thread ends. Until then handles to it stay
valid, and no value gets the address of another one.

What still uses the results of an operation would be left with pointers to freed memory: the
operation is not erased, and the error names the two.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from pullback_runtime._errors import ErasureError
from pullback_runtime._jax import ir

_PLACEHOLDER = "builtin.unrealized_conversion_cast"
_ISOLATED = ("func.func", "builtin.module")
"""Operations whose regions use no values from outside."""


class Watch(Protocol):
    """A hook by which tests check erasures, too slowly for normal use."""

    def erased(self, operation: ir.Operation, stays_key: bool) -> None:
        """Record that an operation is erased; if `stays_key`, its results may stay keys."""

    def erase_argument(self, block: ir.Block, index: int) -> None:
        """Erase an argument of a block."""

    def freed(self, grave: ir.Operation) -> None:
        """Take a module of erased operations that would be freed now."""


watch: Watch | None = None


class _Grave:
    """The erased operations of one context, which are held until they are freed."""

    def __init__(self, context: ir.Context) -> None:
        loc = ir.Location.unknown(context)
        self._module = ir.Operation.create("builtin.module", regions=1, loc=loc, ip=False)
        self._block = self._module.regions[0].blocks.append(arg_locs=[])
        types = [ir.IntegerType.get_signless(1, context)]
        place = ir.InsertionPoint(self._block)
        first = ir.Operation.create(_PLACEHOLDER, types, loc=loc, ip=place)
        self.ip = ir.InsertionPoint(first)
        self._nothing = first.result
        self._erased: list[ir.Operation] = []

    def take(self, operation: ir.Operation) -> None:
        """Move an operation here, and drop its uses of values from elsewhere."""
        self._block.append(operation)
        if len(operation.regions):
            if operation.name not in _ISOLATED:
                operation.walk(self._drop_operands)
        else:
            self._drop_operands(operation)
        self._erased.append(operation)

    def _drop_operands(self, operation: ir.Operation) -> ir.WalkResult:
        operands = operation.operands
        for i in range(len(operands)):
            operands[i] = self._nothing
        return ir.WalkResult.ADVANCE

    def free(self) -> ErasureError | None:
        """Free the operations held here; return an error if a result of one is still used.

        Each such use gets a placeholder, so that a module left half done by a failure can be freed.
        """
        error = None
        for operation in self._erased:
            for result in operation.results:
                for use in list(result.uses):
                    error = error or _in_use(operation, use)
                    _put_placeholder(result, use)
        if watch is None:
            self._module.erase()
        else:
            watch.freed(self._module)
        return error


def _put_placeholder(result: ir.Value, use: ir.OpOperand) -> None:
    user = use.owner.operation
    place = ir.InsertionPoint(user)
    stand_in = ir.Operation.create(_PLACEHOLDER, [result.type], loc=user.location, ip=place)
    user.operands[use.operand_number] = stand_in.result


class _Here(threading.local):
    depth = 0
    graves: dict[ir.Context, _Grave] | None = None


_here = _Here()


class erasing:
    """Run the body with erased operations held back; free them when the outermost one ends.

    Each thread holds back its own.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _here.depth += 1

    def __exit__(self, kind: Any, failure: BaseException | None, traceback: Any) -> None:
        _here.depth -= 1
        if _here.depth or not _here.graves:
            return
        graves, _here.graves = _here.graves, None
        errors = [grave.free() for grave in graves.values()]
        for error in errors:
            if error is not None and failure is None:
                raise error


def erase(operation: Any) -> None:
    """Erase an operation, whose handles must not be read any more.

    Raises:
      ErasureError: something uses a result of it.
    """
    _erase(operation.operation, stays_key=False)


def retire(operation: Any) -> None:
    """Erase a replaced operation, whose results stay keys of tables until it is freed.

    Raises:
      ErasureError: something uses a result of it.
    """
    _erase(operation.operation, stays_key=True)


def refuse_use(operation: Any) -> None:
    """Raise ErasureError if something uses a result of an operation."""
    for result in operation.results:
        use = next(iter(result.uses), None)
        if use is not None:
            raise _in_use(operation, use)


def _erase(operation: ir.Operation, stays_key: bool) -> None:
    refuse_use(operation)
    if watch is not None:
        watch.erased(operation, stays_key)
    with erasing():
        _grave(operation.context).take(operation)


@contextlib.contextmanager
def refusing_uses() -> Iterator[None]:
    """Run the body, code of others, with `erase` of the bindings raising for an operation in use.

    The bindings would free it, and the process end later, by whatever reads it.
    """
    kind: Any = ir.Operation.__base__
    plain = kind.erase

    def erase_unused(operation: Any) -> None:
        refuse_use(operation)
        plain(operation)

    kind.erase = erase_unused
    try:
        yield
    finally:
        kind.erase = plain


def erase_arguments(block: Any, positions: Iterable[int]) -> None:
    """Erase arguments of a block, whose handles must not be read any more.

    Raises:
      ErasureError: something uses one of them.
    """
    for i in sorted(positions, reverse=True):
        argument = block.arguments[i]
        use = next(iter(argument.uses), None)
        if use is not None:
            raise _in_use(block.owner, use)
        if watch is None:
            block.erase_argument(i)
        else:
            watch.erase_argument(block, i)


def spare(operation: Any) -> ir.Operation:
    """Clone an operation outside of the program, to take it apart; the caller must erase it.

    The clone is placed among the erased operations. A detached one could outlive its module, while
    an error's traceback refers to it.
    """
    assert _here.depth, "a spare operation is freed with what is erased, so within `erasing`"
    return operation.clone(_grave(operation.context).ip).operation


def _grave(context: ir.Context) -> _Grave:
    if _here.graves is None:
        _here.graves = {}
    grave = _here.graves.get(context)
    if grave is None:
        grave = _here.graves[context] = _Grave(context)
    return grave


def _in_use(operation: Any, use: ir.OpOperand) -> ErasureError:
    return ErasureError(
        f"a pass erases `{operation.operation.name}`, and `{use.owner.operation.name}` uses what "
        "it gives",
        where=str(use.owner.location),
        do="report it, with what you derived: a pass, or a rule, is wrong",
    )
