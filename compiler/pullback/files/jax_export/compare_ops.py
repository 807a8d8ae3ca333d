"""Compare, step by step, the ops that compute two values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pullback._jax import ir
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.symbols import CALL, called, functions

ARGUMENT = "argument"
Given = dict[Any, Value]
"""The value matched with the argument, and with each step by its `id`."""

_MOST_NUMBERS = 1000
_DEFAULTS = {"compare_type", "result_accuracy"}
"""Attributes that may be absent, as each may be that is false."""
_OPAQUE = ("chlo.", "stablehlo.composite", "stablehlo.custom_call")


class Step(NamedTuple):
    """A result of an op, to be compared: the op's fingerprint, the result's number, the operands.

    An operand is another step, or ARGUMENT.
    """

    alike: Any
    number: int
    operands: tuple[Any, ...]


class Reading:
    """Reads the ops of a module, and compares functions that they call by their bodies.

    Attributes:
      module: kept as long as its ops are read.
      functions: those of the module by name.
    """

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.functions = functions(module)
        self._bodies: dict[str, Any] = {}

    def alike(self, operation: Any) -> Any:
        """Return a fingerprint of an op: equal for ops that do the same, whatever the shapes."""
        operation = operation.operation
        if len(operation.regions):
            return object()
        elements = tuple(str(build.info(r.type).element) for r in operation.results)
        if operation.name == "stablehlo.constant":
            return operation.name, elements, _number(operation, *elements)
        if operation.name == CALL:
            return operation.name, elements, self._body(called(operation) or "")
        given = ((key, str(value)) for key, value in operation.attributes.items())
        told = sorted(each for each in given if each[0] not in _DEFAULTS and each[1] != "false")
        return operation.name, elements, len(operation.operands), tuple(told)

    def _body(self, name: str) -> Any:
        """Return a fingerprint of a function: equal for functions with equal ops."""
        if name not in self._bodies:
            self._bodies[name] = object()  # it is like no other one while it is read
            blocks = self.functions[name].regions[0].blocks
            if len(blocks) == 1:
                self._bodies[name] = tuple(self._read(blocks[0]))
        return self._bodies[name]

    def _read(self, block: ir.Block) -> Iterator[Any]:
        numbers = {v: i for i, v in enumerate(block.arguments)}
        for view in block.operations:
            yield self.alike(view), tuple(numbers[v] for v in view.operands)
            numbers.update({r: len(numbers) + i for i, r in enumerate(view.results)})

    def results(self, entry: str) -> list[Any]:
        """Return the step that computes each result of a function of one argument."""
        (block,) = self.functions[entry].regions[0].blocks
        steps: dict[Value, Any] = {block.arguments[0]: ARGUMENT}
        *body, end = block.operations
        for view in body:
            alike, operands = self.alike(view), tuple(steps[v] for v in view.operands)
            steps.update({r: Step(alike, i, operands) for i, r in enumerate(view.results)})
        return [steps[v] for v in end.operands]

    def inside(self, step: Any) -> list[Any]:
        """Return the step that computes the result of the function that a step calls, in a list.

        It is empty unless the step calls a function of ARGUMENT alone, with one result.
        """
        if step is ARGUMENT or step.alike[0] != CALL or step.operands != (ARGUMENT,):
            return []
        name = next(name for name, body in self._bodies.items() if body is step.alike[-1])
        last = self.results(name)
        return last if len(last) == 1 else []

    def matches(self, step: Any, v: Value, given: Given) -> bool:
        """Return True if a value is computed as a step is; record the values matched in `given`."""
        key = step if step is ARGUMENT else id(step)
        if key in given or step is ARGUMENT:
            return self._are_same(given.setdefault(key, v), v)
        if not isinstance(v, ir.OpResult) or v.result_number != step.number:
            return False
        if self.alike(v.owner) != step.alike or len(v.owner.operands) != len(step.operands):
            return False
        pairs = zip(step.operands, v.owner.operands, strict=True)
        if not all(self.matches(s, o, given) for s, o in pairs):
            return False
        given[key] = v
        return True

    def _are_same(self, a: Value, b: Value) -> bool:
        """Return True if two values are one, or made by equal ops with at most one operand.

        Such operands must be the same values again, in this sense.
        """
        if a == b:
            return True
        if not (isinstance(a, ir.OpResult) and isinstance(b, ir.OpResult)):
            return False
        if len(a.owner.operands) > 1 or self.alike(a.owner) != self.alike(b.owner):
            return False
        return all(map(self._are_same, a.owner.operands, b.owner.operands))


def size(step: Any) -> int:
    """Return how many ops compute a step; 0 if one of them is not a plain StableHLO op."""
    seen: dict[int, int] = {}

    def visit(step: Any) -> None:
        if step is ARGUMENT or id(step) in seen:
            return
        name = step.alike[0]
        seen[id(step)] = 1 + (len(step.alike[2]) if name == CALL else 0)
        for each in step.operands:
            visit(each)
        if name.startswith(_OPAQUE):
            seen[id(step)] = -1

    visit(step)
    return 0 if -1 in seen.values() else sum(seen.values())


def _number(operation: ir.Operation, element: str) -> Any:
    """Return the number of a splat constant as text; all numbers of others, such as tables.

    Text, since fingerprints of JAX's expansions outlive the context of a module. A unique object
    for a constant that is too large to compare.
    """
    if element.startswith("complex"):  # the bindings have no view of these
        text = str(operation).partition("dense<")[2].partition(" : ")[0]
        return text if text and text[0] in "(" else object()
    value = operation.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr):
        return object()
    if value.is_splat:
        return str(value.get_splat_value())
    return str(value) if len(value) <= _MOST_NUMBERS else object()
