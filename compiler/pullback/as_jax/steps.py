"""The steps of a block as a value, to recognise bodies that JAX writes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import jax

from pullback.ir import build
from pullback.ir.regions import operands_of, operations, results_of
from pullback_runtime._jax import operations_named

Steps = tuple[Any, ...]


def steps_of(block: Any) -> Steps:
    """Return what a block returns as a value, equal for blocks that compute it by the same ops.

    The order of ops, equal ops and constants outside of the block make no difference: passes make
    such changes.
    """
    terms: dict[Any, Any] = {v: i for i, v in enumerate(block.arguments)}

    def term_of(v: Any) -> Any:
        if v in terms:
            return terms[v]
        if not build.is_constant(v):
            return None
        return _digest((*step(v.owner.operation), 0, str(v.type)))

    def step(operation: Any) -> Steps:
        names = (each if isinstance(each, str) else each.name for each in operation.attributes)
        attributes = tuple(sorted((name, str(operation.attributes[name])) for name in names))
        return operation.name, attributes, tuple(map(term_of, operands_of(operation)))

    found: Steps = ()
    for operation in operations(block):
        found = step(operation)
        for i, v in enumerate(results_of(operation)):
            terms[v] = _digest((*found, i, str(v.type)))
    return found


def _digest(term: Steps) -> str:
    """Return a name of a term; a term itself has its operands once for each use."""
    return hashlib.sha256(repr(term).encode()).hexdigest()


@functools.cache
def steps_in_jax(
    make: Callable[..., Callable[..., Any]], op: str, dtypes: tuple[str, ...], *options: Any
) -> Steps:
    """Return the steps of the body that JAX writes into an op, in a function of vectors."""
    types = [jax.ShapeDtypeStruct((2,), dtype) for dtype in dtypes]
    lowered = jax.jit(make(*options)).lower(*types)
    found = operations_named(lowered.compiler_ir("stablehlo"), op)
    return steps_of(found[0].regions[0].blocks[0])
