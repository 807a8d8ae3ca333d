"""Programs as functions of JAX: calls of them, and what JAX's transformations make of a call.

`pullback_runtime.call_module` is one JAX primitive. Its jvp, transpose and batching rules are set
here: they find the program behind a handle and derive new programs in the IR, rules kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

import pullback_runtime
from pullback._jax import hijax, partial_evaluation, prng_keys, tracing
from pullback._jax.tangent_types import high_type, is_inexact
from pullback.errors import ArgumentMismatchError, MissingRuleError, PullbackError
from pullback.frontend.trace import trace
from pullback.ir.modules import clone, element_types, result_types
from pullback.ir.symbols import functions
from pullback.passes import manager
from pullback.program import batches, derivation, platform_variants
from pullback.program.argument_leaves import spell
from pullback.program.handles import Origin, origin_of, program_of
from pullback.program.memo import once
from pullback.program.nans.report import NanReport
from pullback.program.nans.search import search
from pullback.program.program import Program
from pullback.program.provenance import Recipe
from pullback.program.record import Interface
from pullback.program.symbolic import SymbolicProgram
from pullback_runtime import ModuleHandle, SplitJVP, _module, call_module
from pullback_runtime._arguments import promoted_dtype
from pullback_runtime._load import flat_trees
from pullback_runtime._meshes import on_devices_of
from pullback_runtime._primitive import call_module_p


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
    placed = on_devices_of(program._environment.mesh, operands)
    return program.unflatten(call_module(program.handle, *placed))


def check_operands(program: Program, operands: list[Any]) -> None:
    """Raise ArgumentMismatchError for an argument of another shape or dtype, naming its path.

    For one that is no array it is a PullbackError, as where it is traced.
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


def _differentiated(handle: ModuleHandle, perturbed: tuple[int, ...]) -> SplitJVP:
    """Split reverse mode in two; the linear map of forward mode is the second's transpose."""
    return _split(program_of(handle), perturbed)


@once
def _split(flat: Program, perturbed: tuple[int, ...]) -> SplitJVP:
    forward, backward = flat.split_vjp(argnums=perturbed)
    outs = len(flat.out_avals)
    residuals = forward.handle.out_avals[outs:]
    tangents = tuple(flat.in_avals[i] for i in perturbed)
    elements = _elements(flat, perturbed)
    moved = tuple(aval for aval in flat.out_avals if is_inexact(aval))
    count = len(residuals)
    linear = Origin(
        lambda: program_of(_swapped(backward, elements).handle),
        linear=tuple(range(count, count + len(tangents))),
        transposed=_linear_in_last(backward, len(moved)),
    )
    operands = (*residuals, *tangents)
    # What a linear map calls back for is used, or nobody misses it.
    return SplitJVP(forward.handle, linear.handle(flat._environment, operands, moved, pure=True))


def _elements(program: Program, positions: Sequence[int]) -> tuple[str, ...]:
    """Return the element types of the arguments at these positions."""
    (block,) = functions(program.module)["main"].regions[0].blocks
    first = len(program.constants)
    return element_types([block.arguments[first + i].type for i in positions])


def _swapped(backward: Program, elements: tuple[str, ...]) -> Program:
    """Transpose the map of cotangents to that of tangents, typed as their primal values."""
    if element_types(result_types(backward.module)) != elements:
        backward = derivation.with_results_like(backward, elements)
    return backward.transpose(argnums=(1,))


def _transposed(
    handle: ModuleHandle, linear: tuple[int, ...], given: tuple[int, ...]
) -> tuple[ModuleHandle, tuple[int, ...], tuple[int, ...]]:
    """Return the transpose, the operands it gives cotangents of, and the results it takes them of.

    It gives those asked for, or more, and takes those given, unless it has all. A result may depend
    on what is not linear alone, as the value beside a tangent; it has none.
    JAX knows some tangents where others are linear, such as the zeros that the rule of a
    `custom_jvp` is given: the transpose in all of them has no term of those.
    """
    origin = origin_of(handle)
    if set(linear) <= set(origin.linear):
        linear = origin.linear
    if origin.transposed is not None and origin.linear == linear:
        outs = enumerate(handle.out_avals)
        return origin.transposed, linear, tuple(i for i, aval in outs if is_inexact(aval))
    transposed = derivation.transpose_of_results(origin.program, linear, given)
    return _linear_in_last(transposed, len(given)), linear, given


def _known_and_rest(
    unknown: Sequence[bool], params: partial_evaluation.Params
) -> partial_evaluation.Halves | None:
    """Split off the results that JAX can know beside a linear map, as the value beside a tangent.

    The rest takes all operands again: what both compute is one computation where both are lowered
    together.
    """
    handle = params["handle"]
    origin, places = origin_of(handle), tuple(i for i, flag in enumerate(unknown) if flag)
    if origin.transposed is not None:  # a linear map, whose program nobody may need
        return None
    parts = derivation.by_dependence(origin.program, places)
    if parts is None:
        return None
    origin_of(parts.rest.handle).linear = origin.linear
    return {"handle": parts.known.handle}, {"handle": parts.rest.handle}, parts.late


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
    around = origin.program._environment
    if around.has_batching_rules or around.mesh is not None:
        return None
    try:
        program = origin.program
        batched, flags = batches.batched(program, in_axes, size)
    except MissingRuleError:  # tokens, dynamic shapes
        return None
    batched = platform_variants.after(
        program, lambda it: batches.batched(it, in_axes, size)[0], batched
    )
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
    """Return a function that runs the program made again for a batch; None without a recipe."""
    recipe = program.recipe
    if recipe is None:
        return None
    flags, moved = recipe.batched(in_axes)
    rules: Any = program.rules  # those of a trace
    with rules.settings():
        again = _made_again(recipe, moved, size, along)
    if again is None:
        return None

    def batched(*operands: Any) -> list[Any]:
        leading = [_leading(*each, size) for each in zip(operands, in_axes, flags, strict=True)]
        return call_module(again.handle, *leading)

    return batched


def _made_again(recipe: Recipe, moved: set[int], size: int, along: Any) -> Program | None:
    """Make a program again for a batch, in front of all results and of the operands in `moved`.

    These are positions in the jaxpr. The batch lies along the mesh axis that `along` names. Return
    None where JAX cannot batch the function.
    """
    axes = tuple(0 if i in moved else None for i in range(len(recipe.closed.in_avals)))
    function = jax.vmap(tracing.equations_to_function(recipe.closed), axes, 0, axis_size=size)
    items = zip(tracing.structs(recipe.closed.in_avals), axes, strict=True)
    types = [tracing.batch_type_along(*item, size, along) for item in items]
    try:
        program = trace(function)(*types)
    except NotImplementedError:  # a primitive that JAX cannot batch
        return None
    if program.constants or program.recipe is None:
        return None
    return _with_stages(program, recipe)


@platform_variants.for_each
def _with_stages(program: Program, recipe: Recipe) -> Program:
    """Return the program after the passes of another's recipe, with flat operands and results."""
    module = clone(program.module)
    manager.run_stages(module, recipe.stages, program.rules)
    made = program.recipe and dataclasses.replace(recipe, closed=program.recipe.closed)
    ins, outs = _module.signature(_module.find_entry(module, "main"), "main")
    in_tree, out_tree = flat_trees(len(ins), len(outs))
    paths = tuple(f"operand {i}" for i in range(len(ins)))
    interface = Interface(in_tree, out_tree, ins, outs, paths)
    return program._with_module(module, interface=interface, recipe=made, retarget=None)


def _leading(operand: Any, axis: int | None, flag: bool, size: int) -> Any:
    """Return the operand with its batch axis in front, repeated where it lacks one and needs it."""
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


def _explained(handle: ModuleHandle, args: Sequence[Any], infs: bool) -> NanReport | None:
    """Return which op makes what `jax_debug_nans` or `jax_debug_infs` has found in a result."""
    try:
        return search(program_of(handle), args, infs)
    except PullbackError:
        return None


partial_evaluation.install(call_module_p, _known_and_rest)
pullback_runtime.set_rules(
    jvp=_differentiated, transpose=_transposed, batching=_batched, explain_nan=_explained
)
