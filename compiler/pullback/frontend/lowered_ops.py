"""Look at what an equation lowers to: a version of JAX may lower a primitive in another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pullback import _jax
from pullback._jax import ir, jaxprs, lowering
from pullback.ir.build import Value, inexact
from pullback.ir.purity import ANNOTATIONS, target_of
from pullback.ir.regions import blocks, captures, operations, terminator
from pullback.ir.symbols import called, functions
from pullback.program.memo import has_hash
from pullback_runtime._lazy_values import Recent

MOST = 4096
_FOUND = Recent(MOST)
"""The ops of equations, by primitive, parameters, types and surroundings."""

_ANNOTATION = "sdy.sharding_constraint"


Surroundings = tuple[tuple[str, ...], tuple[str, ...]]
"""The platforms that a program is lowered for, and its symbolic dimensions."""


def ops_of(equation: Any, debug_info: Any, surroundings: Surroundings) -> frozenset[str]:
    """Return the ops with inexact results that depend on inexact operands, also by integers.

    Calls and regions are looked into; annotations of layouts are left out. An equation is lowered
    once in a process, for these parameters, types and surroundings.
    """
    types = tuple(atom.aval for atom in (*equation.invars, *equation.outvars))
    key = equation.primitive, tuple(equation.params.items()), types, surroundings
    is_key = has_hash(key)
    if is_key and (found := _FOUND.get(key)) is not None:
        return found
    ops = _looked_at(jaxprs.equation_alone(equation, debug_info), *surroundings)
    return _FOUND.keep(key, ops) if is_key else ops


def _looked_at(
    call: Any, platforms: tuple[str, ...], dimensions: tuple[str, ...]
) -> frozenset[str]:
    context = _jax.context()
    with context, ir.Location.unknown(context):
        module = ir.Module.create()
    into = lowering.Lowering(
        module, platforms=platforms, keepalives=[], host_callbacks=[], dimensions=dimensions
    )
    name = into.lower("equation", call)
    known = functions(module)
    (block,) = blocks(known[name])
    arguments = {v for v in block.arguments if inexact(v.type)}
    return frozenset(_ops_from(block, arguments, known))


def _ops_from(block: Any, active: set[Value], known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ops of a block that depend on `active` values, and those in their regions."""
    for op in operations(block):
        if active.isdisjoint([*op.operands, *captures(op)]) or op == terminator(block):
            continue
        active.update(op.results)
        callee = known.get(called(op) or "")
        is_annotation = op.name == _ANNOTATION or target_of(op) in ANNOTATIONS
        if callee is None and not is_annotation and any(inexact(v.type) for v in op.results):
            yield op.name
        for inner in blocks(op if callee is None else callee):
            if any(inexact(v.type) for v in terminator(inner).operands):
                yield from _ops_from(inner, active | set(inner.arguments), known)
