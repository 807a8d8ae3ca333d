"""The pass `order-effects`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback._jax.ordering import ORDERED
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.loop_carries import widened
from pullback.ir.regions import (
    BRANCHES,
    WHILE,
    blocks,
    operations,
    remade,
    replace_op,
    replace_terminator,
    terminator,
)
from pullback.ir.signatures import set_signature
from pullback.ir.symbols import CALL, callee, functions, is_declaration, is_public, search
from pullback.passes.base import Pass, Rules
from pullback_runtime.ir._erasure import erase, spare


def has_order(module: ir.Module) -> bool:
    """Return True if effects of the module have to happen in the order of its text."""
    return any(map(_is_marked, functions(module).values()))


def _is_marked(function: Any) -> bool:
    return ORDERED in function.attributes


@dataclass
class _Threads:
    """Threads one token through a module, from each ordered effect to the next.

    Functions that have such effects take a token after their arguments and return it after their
    results; so do loops and branches.
    """

    table: dict[str, Any]
    known: dict[str, bool] = field(default_factory=dict)

    def function(self, function: Any) -> None:
        (block,) = blocks(function)
        if is_public(function):
            self._body(block)
            return
        token = self._block(block, block.add_argument(_token(), function.location))
        replace_terminator(block, [*terminator(block).operands, token])
        set_signature(function)

    def acts(self, name: str) -> bool:
        """Return True if a function contains ordered effects, without being one itself."""
        if name not in self.known:
            self.known[name] = False  # a function in a cycle does not run
            function = self.table.get(name)
            if function is not None and not (is_declaration(function) or _is_marked(function)):
                self.known[name] = self._is_inside(function)
        return self.known[name]

    def _is_inside(self, operation: Any) -> bool:
        _, names = search(operation, lambda op: False, lambda op: op.name == CALL)
        return any(name in self.table and self._is_effect(name) for name in names)

    def _is_effect(self, name: str) -> bool:
        function = self.table[name]
        return _is_marked(function) or (self.acts(name) and not is_public(function))

    def _body(self, block: Any) -> None:
        """Thread a token of its own, made at its start, through a block."""
        with build.inserting(ir.InsertionPoint.at_block_begin(block), block.owner.location):
            token = build.emit("stablehlo.create_token", [_token()], ()).result
        self._block(block, token)

    def _block(self, block: Any, token: Value) -> Value:
        for operation in operations(block):
            if operation.name == WHILE and any(
                map(self._is_inside, operations(blocks(operation)[0]))
            ):
                _decide_in_body(operation)
        for operation in operations(block):
            if self._is_inside(operation):
                with build.inserting(ir.InsertionPoint(operation), operation.location):
                    token = self._operation(operation, token)
        return token

    def _operation(self, operation: Any, token: Value) -> Value:
        if operation.name == CALL:
            function = self.table[callee(operation)]
            return (
                _marked_call(operation, token) if _is_marked(function) else _call(operation, token)
            )
        if operation.name == WHILE:
            return self._loop(operation, token)
        if operation.name in BRANCHES:
            return self._branches(operation, token)
        for block in blocks(operation):
            self._body(block)
        return token

    def _loop(self, operation: Any, token: Value) -> Value:
        new = widened(operation, [token])
        _, body = blocks(new)
        token = self._block(body, body.arguments[-1])
        replace_terminator(body, [*terminator(body).operands, token])
        return _put(new, operation)

    def _branches(self, operation: Any, token: Value) -> Value:
        new = remade(operation, [*(r.type for r in operation.results), _token()])
        for block in blocks(new):
            end = self._block(block, token)
            replace_terminator(block, [*terminator(block).operands, end])
        return _put(new, operation)


def _token() -> Any:
    return stablehlo.TokenType.get(_jax.context())


def _decide_in_body(loop: Any) -> None:
    """Move the condition of a loop to the end of its body, for it cannot return a token."""
    with build.inserting(ir.InsertionPoint(loop), loop.location):
        aside = spare(loop)
        goes_on = _moved(blocks(aside)[0], list(loop.operands), loop)
        erase(aside)
        new = widened(loop, [goes_on])
    cond, body = blocks(new)
    end = terminator(body)
    goes_on = _moved(cond, list(end.operands), end)
    replace_terminator(body, [*end.operands, goes_on])
    replace_terminator(cond, [cond.arguments[len(cond.arguments) - 1]])
    _put(new, loop)


def _moved(block: Any, values: Sequence[Value], place: Any) -> Value:
    """Move the ops of a block before `place`, on these arguments; return its result."""
    for argument, v in zip(list(block.arguments), values, strict=False):
        argument.replace_all_uses_with(v)
    *steps, end = operations(block)
    for step in steps:
        step.move_before(place)
    return end.operands[0]


def _marked_call(operation: Any, token: Value) -> Value:
    """Give a marked call this token to take; return the one that it gives."""
    (index,) = (i for i, v in enumerate(operation.operands) if v.type == token.type)
    operation.operands[index] = token
    return next(r for r in operation.results if r.type == token.type)


def _call(operation: Any, token: Value) -> Value:
    types = [*(r.type for r in operation.results), token.type]
    operands = [*operation.operands, token]
    return _put(build.emit(CALL, types, operands, dict(operation.attributes.items())), operation)


def _put(new: Any, operation: Any) -> Value:
    """Replace an op by one that also gives a token; return the token."""
    *results, token = new.results
    replace_op(operation, results)
    return token


@dataclass(frozen=True)
class OrderEffects(Pass):
    """Hand a token from each effect in order to the next.

    Before: `call @print(%0, %x)` and `call @print(%0, %y)`, where @print is marked
    `pullback.ordered`, and %0 a `create_token`. After: the second takes the token that the first
    one gives. The order is that of the text. What composites call is not looked into:
    `lower-custom-derivatives` comes first.
    """

    name: ClassVar[str] = "order-effects"

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Thread a token through every function that contains ordered effects."""
        if not has_order(module):
            return
        with _jax.working_in(module):
            threads = _Threads(functions(module))
            for name, function in threads.table.items():
                if threads.acts(name):
                    threads.function(function)
