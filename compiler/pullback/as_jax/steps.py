"""The steps of a block as a value, to recognise bodies that JAX writes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from pullback.ir.regions import operands_of, operations, results_of
from pullback_runtime._jax import operations_named

Steps = tuple[Any, ...]


def steps_of(block: Any) -> Steps:
    """Return the ops of a block as a value, equal for blocks that do the same step by step."""
    numbers: dict[Any, int] = {v: i for i, v in enumerate(block.arguments)}
    steps = []
    for operation in operations(block):
        names = (each if isinstance(each, str) else each.name for each in operation.attributes)
        attributes = tuple(sorted((name, str(operation.attributes[name])) for name in names))
        operands = tuple(numbers.get(v, -1) for v in operands_of(operation))
        results = results_of(operation)
        for v in results:
            numbers[v] = len(numbers)
        steps.append((operation.name, attributes, operands, tuple(str(v.type) for v in results)))
    return tuple(steps)


@functools.cache
def steps_in_jax(
    make: Callable[..., Callable[..., Any]], op: str, dtypes: tuple[str, ...], *options: Any
) -> Steps:
    """Return the steps of the body that JAX writes into an op, in a function of vectors."""
    types = [jax.ShapeDtypeStruct((2,), dtype) for dtype in dtypes]
    lowered = jax.jit(make(*options)).lower(*types)
    found = operations_named(lowered.compiler_ir("stablehlo"), op)
    return steps_of(found[0].regions[0].blocks[0])
