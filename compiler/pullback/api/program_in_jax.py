"""Programs as functions of JAX: calls of them, and what JAX's transformations make of a call.

`pullback_runtime.call_module` is one JAX primitive. Its jvp, transpose and batching rules are set
here: they find the program of a handle and derive new programs in the IR, rules kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax

import pullback_runtime
from pullback._jax import hijax, ir, prng_keys, tracing
from pullback._jax.tangent_types import high_type, is_inexact
from pullback.errors import (
    ArgumentMismatchError,
    MissingRuleError,
    NotDifferentiableError,
    NotLinearError,
    PullbackError,
)
from pullback.frontend.trace import trace
from pullback.program import batches, derivation, hooks, provenance
from pullback.program.argument_leaves import spell
from pullback.program.halves import Sources, sources_of
from pullback.program.handles import Origin, origin_of, program_of
from pullback.program.memo import once
from pullback.program.program import Program
from pullback.program.record import Interface
from pullback.program.symbolic import SymbolicProgram
from pullback_runtime import Halves, ModuleHandle, Transposed, call_module
from pullback_runtime.call._jax_arguments import promoted_dtype
from pullback_runtime.call._meshes import on_devices_of
from pullback_runtime.files._load import flat_trees
from pullback_runtime.ir import _module


def apply(program: Program | SymbolicProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a program in the trace that is going on."""
    if isinstance(program, SymbolicProgram):
        return program(*args, **kwargs)
    operands = program.flatten(args, kwargs)
    return _run(program, operands)


def apply_linear(
    program: Program | SymbolicProgram, args: tuple[Any, ...], moving: tuple[Any, ...]
) -> Any:
    """Run a program that is linear in its last arguments, `moving`, in all of them together."""
    if isinstance(program, SymbolicProgram):
        return program(*args, *moving)
    operands = program.flatten((*args, *moving), {})
    _linear_in_last(program, len(jax.tree.leaves(moving)))
    return _run(program, operands)


def _linear_in_last(program: Program, count: int) -> ModuleHandle:
    """Return the handle of a program, marked as jointly linear in so many last operands."""
    handle = program.handle
    operands = len(handle.in_avals)
    origin_of(handle).linear = tuple(range(operands - count, operands))
    return handle


def _run(program: Program, operands: list[Any]) -> Any:
    check_operands(program, operands[len(program.constants) :])
    placed = on_devices_of(program.environment.mesh, operands)
    return program.unflatten(call_module(program.handle, *placed))


def check_operands(program: Program, operands: list[Any]) -> None:
    """Raise ArgumentMismatchError for an argument of another shape or dtype, naming its path.

    For one that is not an array it is a PullbackError, as where it is traced.
    """
    for path, aval, value in zip(program.arg_paths, program.in_avals, operands, strict=True):
        found = jax.typeof(value)
        if hijax.is_type(found):
            raise high_type(found, path)
        if (found.shape, found.dtype) == (aval.shape, aval.dtype):
            continue
        taken = prng_keys.physical_type(aval)
        if found.shape != taken.shape or promoted_dtype(value, taken.dtype) != taken.dtype:
            raise ArgumentMismatchError(
                f"{path} must have type {spell(aval)}, but it is {spell(found)}",
                where=path,
                do="give tangents and cotangents the shape and dtype of their primal values",
            )


def _differentiated(handle: ModuleHandle, perturbed: tuple[int, ...]) -> ModuleHandle:
    """Return forward mode, and reverse mode for who takes it apart or transposes it."""
    return _derivative(program_of(handle), perturbed)


@once
def _derivative(flat: Program, perturbed: tuple[int, ...]) -> ModuleHandle:
    own, args = flat.handle, len(flat.in_avals)
    tangents = tuple(flat.in_avals[i] for i in perturbed)
    moved = [i for i, aval in enumerate(flat.out_avals) if is_inexact(aval)]
    count = len(flat.out_avals)
    places = {i: count + n for n, i in enumerate(moved)}
    origin = Origin(
        lambda: program_of(flat.jvp(argnums=perturbed).handle),
        linear=tuple(range(args, args + len(tangents))),
        transposed=lambda: _pullback(flat, perturbed),
        halves=lambda: _halves(flat, perturbed),
    )
    around = flat.environment
    if around.host_callbacks:  # a rule may write where its function only prints
        with contextlib.suppress(PullbackError):
            around = origin.program.environment
    return origin.handle(
        around,
        (*flat.in_avals, *tangents),
        (*flat.out_avals, *(flat.out_avals[i] for i in moved)),
        debugs=around.only_debugs,
        on_host=(*own.on_host, *(places[i] for i in own.on_host if i in places)),
        lost_checks=own.lost_checks,
        pure=own.pure,
    )


@once
def _halves(flat: Program, perturbed: tuple[int, ...]) -> Halves:
    """Split forward mode: into the forward half of reverse mode, and a map whose transpose is bwd.

    The map `(args…, tangents…, residuals that are not args…) -> (tangents of inexact outs…)` has
    what both modes need: its own program is forward mode, which may have other rules.
    """
    forward, backward = flat.split_vjp(argnums=perturbed)
    args, outs = len(flat.in_avals), len(flat.out_avals)
    tangents = tuple(flat.in_avals[i] for i in perturbed)
    moved = tuple(aval for aval in flat.out_avals if is_inexact(aval))
    sources, first = sources_of(forward), args + len(tangents)
    rest = [i for i, source in enumerate(sources) if source is None]
    places = tuple(_places(sources, first))
    residuals = tuple(forward.handle.out_avals[outs + i] for i in rest)
    operands = (*flat.in_avals, *tangents, *residuals)
    linear = tuple(range(args, first))

    def transposed() -> Transposed:
        handle = _linear_in_last(backward, len(moved))
        return Transposed(handle, linear, tuple(range(len(moved))), places)

    def make() -> Program:
        return _pushforward(flat, perturbed, operands, sources)

    pushed = Origin(make, linear=linear, transposed=transposed)
    # What a linear map calls back for is used, or nobody misses it.
    handle = pushed.handle(flat.environment, operands, moved, pure=True)
    late = (False,) * outs + (True,) * len(moved)
    gives = range(outs, outs + len(moved))
    return Halves(forward.handle, handle, range(args), late, gives, sources)


def _places(sources: Sources, first: int) -> Iterator[int]:
    """Yield the operand that each residual is: an argument, or one of those from `first` on."""
    others = itertools.count(first)
    return (next(others) if source is None else source for source in sources)


def _pushforward(
    flat: Program, perturbed: tuple[int, ...], operands: Sequence[Any], sources: Sources
) -> Program:
    """Return the linear map of `_halves`: the linear half of forward mode, of the same operands.

    Its residuals are those of reverse mode, or else all arguments.
    """
    forward, linear = flat.linearize(argnums=perturbed)
    args, found = len(flat.in_avals), sources_of(forward)
    assert found in (sources, tuple(range(args))), "forward mode has residuals of its own"
    first = args + len(perturbed)
    places = [*_places(found, first), *range(args, first)]

    def push(*values: Any) -> list[Any]:
        return call_module(linear.handle, *(values[i] for i in places))

    return program_of(trace(push)(*tracing.structs(operands)).handle)


def _pullback(flat: Program, perturbed: tuple[int, ...]) -> Transposed:
    """Return reverse mode as the transpose of the call of forward mode as a whole."""
    forward, backward = flat.split_vjp(argnums=perturbed)
    args, outs = len(flat.in_avals), len(flat.out_avals)
    moved = [aval for aval in flat.out_avals if is_inexact(aval)]

    def pull(*values: Any) -> list[Any]:
        residuals = call_module(forward.handle, *values[:args])[outs:]
        return call_module(backward.handle, *residuals, *values[args:])

    program = trace(pull)(*tracing.structs((*flat.in_avals, *moved)))
    linear = tuple(range(args, args + len(perturbed)))
    takes = tuple(range(outs, outs + len(moved)))
    return Transposed(_linear_in_last(program, len(moved)), linear, takes, tuple(range(args)))


def _transposed(
    handle: ModuleHandle, linear: tuple[int, ...], given: tuple[int, ...]
) -> Transposed:
    """Return the transpose, by the rules of reverse mode where the call is one of forward mode.

    It gives the cotangents asked for, or more, and takes those given, unless it has all. A result
    may depend on what is not linear alone, as the value beside a tangent; it has none.
    JAX knows some tangents where others are linear, such as the zeros that the rule of a
    `custom_jvp` is given: the transpose in all of them has no term of those.
    """
    origin = origin_of(handle)
    if set(linear) <= set(origin.linear):
        linear = origin.linear
    if origin.transposed is not None and origin.linear == linear:
        return origin.transposed()
    transposed = derivation.transpose_of_results(origin.program, linear, given)
    return Transposed(_linear_in_last(transposed, len(given)), linear, given)


def _known_and_rest(handle: ModuleHandle, unknown: tuple[int, ...]) -> Halves | None:
    """Split off what JAX can know beside a linear map, as the value beside a tangent.

    Forward mode is split as reverse mode is, if there is one. Otherwise the rest is the whole call
    again: what both compute is one computation where both are lowered together.
    """
    origin = origin_of(handle)
    if origin.halves is not None and set(unknown) <= set(origin.linear):
        with contextlib.suppress(MissingRuleError, NotDifferentiableError, NotLinearError):
            return origin.halves()
    elif origin.halves is None and origin.transposed is not None:  # a linear map,
        return None  # whose program may not be needed
    found = derivation.known_part(origin.program, unknown)
    if found is None:
        return None
    known, late = found
    takes = [i for i in range(len(handle.in_avals)) if i not in unknown]
    return Halves(known.handle, handle, takes, late, range(len(late)))


def _batched(
    handle: ModuleHandle, in_axes: tuple[int | None, ...], size: int, along: Any
) -> tuple[ModuleHandle, tuple[int | None, ...]]:
    """Batch a program by the pass; if not possible, make it again or run it once per item."""
    if not isinstance(size, int):
        raise PullbackError(
            f"a program cannot be called for a batch of {size} items, which is no number",
            do="batch first and then take the derivative, pb.grad(lambda x: jax.vmap(f)(x).sum()), "
            "map the function itself without pb.jit or pb.trace, or trace with sizes",
        )
    origin = origin_of(handle)

    def make() -> tuple[ModuleHandle, tuple[int | None, ...]]:
        return _mapped(origin, in_axes, size) or _repeated(handle, in_axes, size, along)

    batched = origin.program._once(("batch", in_axes, size, along), make)
    origin_of(batched[0]).linear = origin.linear
    return batched


def _mapped(
    origin: Origin, in_axes: tuple[int | None, ...], size: int
) -> tuple[ModuleHandle, tuple[int | None, ...]] | None:
    """Batch a program in the IR, where a result that all items share has no batch axis.

    Return None if only JAX can batch it (it has batching rules or a mesh), or an op has no rule.
    """
    around = origin.program.environment
    if around.has_batching_rules or around.mesh is not None:
        return None
    try:
        program = origin.program
        batched, flags = batches.batched(program, in_axes, size)
    except MissingRuleError:  # tokens, dynamic shapes
        return None
    return batched.handle, tuple(0 if flag else None for flag in flags)


def _repeated(
    handle: ModuleHandle, in_axes: tuple[int | None, ...], size: int, along: Any
) -> tuple[ModuleHandle, tuple[int, ...]]:
    """Make a program again for a batch, or where that cannot be, run it once per item.

    Only JAX knows how a `custom_vmap` is batched, and shardings over devices.
    """
    operands = list(zip(handle.in_avals, in_axes, strict=True))
    program = program_of(handle)
    function = _together(program, in_axes, size, along)
    if function is not None:
        types = [tracing.batch_type_along(*operand, size, along) for operand in operands]
    else:  # nothing is said of where the batch lies: no loop is along a mesh
        batches.check_batching_rules(program)
        function = _one_by_one(handle, in_axes)
        types = [tracing.batch_type(*operand, size) for operand in operands]
    return trace(function)(*types).handle, (0,) * len(handle.out_avals)


def _together(program: Program, in_axes: tuple[int | None, ...], size: int, along: Any) -> Any:
    """Return a function that runs the program made again for a batch; None if it cannot be.

    The batch lies along the mesh axis that `along` names, and leads all results.
    """
    closed, stages = program._source.closed, program._stages
    if closed is None or not provenance.is_remade(stages):
        return None
    flags, moved = provenance.to_batch(len(closed.in_avals), stages, in_axes)
    axes = tuple(0 if i in moved else None for i in range(len(closed.in_avals)))
    function = jax.vmap(tracing.equations_to_function(closed), axes, 0, axis_size=size)
    items = zip(tracing.structs(closed.in_avals), axes, strict=True)
    types = [tracing.batch_type_along(*item, size, along) for item in items]
    try:
        with program.rules.settings():
            traced = trace(function)(*types)
            if traced.constants:
                return None
            again = traced._remade(lambda each: each.after(stages), stages)
    except NotImplementedError:  # a primitive that JAX cannot batch
        return None
    handle = dataclasses.replace(again, interface=_flat_interface).handle

    def batched(*operands: Any) -> list[Any]:
        leading = [_leading(*each, size) for each in zip(operands, in_axes, flags, strict=True)]
        return call_module(handle, *leading)

    return batched


def _flat_interface(module: ir.Module) -> Interface:
    """Return the interface of a module whose operands and results are in no trees."""
    ins, outs = _module.signature(_module.find_entry(module, "main"), "main")
    in_tree, out_tree = flat_trees(len(ins), len(outs))
    return Interface(in_tree, out_tree, ins, outs, tuple(f"operand {i}" for i in range(len(ins))))


def _leading(operand: Any, axis: int | None, flag: bool, size: int) -> Any:
    """Return the operand with a leading batch axis, repeated where it lacks one and needs it."""
    if axis is not None:
        return jax.numpy.moveaxis(operand, axis, 0)
    return jax.numpy.broadcast_to(operand, (size, *operand.shape)) if flag else operand


def _one_by_one(handle: ModuleHandle, in_axes: tuple[int | None, ...]) -> Any:
    """Return a function that runs the program for one item of the batch after the other."""

    def sequential(*operands: Any) -> list[Any]:
        moved = [
            jax.numpy.moveaxis(operand, axis, 0)
            for operand, axis in zip(operands, in_axes, strict=True)
            if axis is not None
        ]

        def one(items: Any) -> list[Any]:
            rest = iter(items)
            chosen = [
                operand if axis is None else next(rest)
                for operand, axis in zip(operands, in_axes, strict=True)
            ]
            return call_module(handle, *chosen)

        return jax.lax.map(one, moved)

    return sequential


def _explained(handle: ModuleHandle, args: Sequence[Any], infs: bool) -> Any:
    """Return which op makes what `jax_debug_nans` or `jax_debug_infs` has found in a result."""
    try:
        return hooks.nans().search(program_of(handle), args, infs)
    except PullbackError:
        return None


pullback_runtime.set_rules(
    jvp=_differentiated,
    transpose=_transposed,
    batching=_batched,
    partial_evaluation=_known_and_rest,
    explain_nan=_explained,
)
