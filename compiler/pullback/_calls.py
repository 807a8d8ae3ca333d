"""Programs as functions of JAX: the handle that is called, and its transformations.

`pullback_runtime.call_module` is one JAX primitive. Its jvp, transpose and batching rules are set
here: they find the program behind a handle and derive new programs in the IR, rules kept.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

import pullback_runtime
from pullback import _derivation, _jax
from pullback._errors import ArgumentMismatchError, MissingRuleError
from pullback._interface import Interface
from pullback._jax import boundary, high, tracing
from pullback._slots import spell
from pullback.frontend.tangents import high_type, is_inexact
from pullback.passes.purity import acts
from pullback_runtime import ModuleHandle, SplitJVP, _module, call_module
from pullback_runtime._arguments import promoted_dtype
from pullback_runtime._jax import operations_where
from pullback_runtime._meshes import on_devices_of

if TYPE_CHECKING:
    from pullback._program import Program


@dataclass(eq=False)
class Origin:
    """What a handle is known by: the program behind it, made when it is first needed.

    JAX keeps handles in what it has traced, for as long as the traced function lives. So the
    program here is not the one that is called: it would hold that function, and neither would die.

    Attributes:
      make: gives the program, of which every operand of the handle is an argument, and every
        result an item of a tuple.
      transposed: the handle of the transpose in `linear` operands, where one is known.
    """

    make: Callable[[], Program]
    linear: tuple[int, ...] = ()
    transposed: ModuleHandle | None = None

    @functools.cached_property
    def program(self) -> Program:
        """The program, with the operands and results of the handle."""
        return self.make()

    @functools.cached_property
    def derivatives(self) -> dict[Any, Any]:
        """Handles of programs derived before, so that equal questions get equal answers."""
        return {}


def handle_of(program: Program) -> ModuleHandle:
    """The handle of a program: hidden constants are its leading operands."""
    hidden = tuple(jax.typeof(constant) for constant in program.constants)
    operands = tuple(map(boundary.physical_type, (*hidden, *program.in_avals)))
    results = tuple(map(boundary.physical_type, program.out_avals))
    names = (*(f"constant {i}" for i in range(len(hidden))), *program.arg_paths)
    flat = _flat(program, operands, results, names)
    return _handle(
        Origin(lambda: flat),
        program.rules,
        operands,
        results,
        arg_names=names,
        pure=not (program.rules.host_callbacks and operations_where(program.module, acts)),
    )


def _handle(origin: Origin, rules: Any, in_avals: Any, out_avals: Any, **more: Any) -> ModuleHandle:
    """A handle that loads the program when it is lowered.

    A program shares its rules with what it is derived from: making it may add callbacks to them.
    """

    def load() -> bytes:
        return _module.prepare(_module.read(origin.program.module)).bytecode

    return ModuleHandle(
        origin,
        functools.cache(load),
        in_avals,
        out_avals,
        host_callbacks=rules.host_callbacks,
        keepalives=rules.keepalives,
        **more,
    )


def program_of(handle: ModuleHandle) -> Program:
    """The program behind a handle, its rules included."""
    return _origin(handle).program


def apply(program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a program in the trace that is going on."""
    operands = program.flatten(args, kwargs)
    check_operands(program, operands[len(program.constants) :])
    placed = on_devices_of(program.rules.mesh, operands)
    return program.unflatten(call_module(program.handle, *placed))


def check_operands(program: Program, operands: list[Any]) -> None:
    """Raises ArgumentMismatchError for an argument of another shape or dtype, naming its path.

    One that is no array is a PullbackError, as where it is traced.
    """
    for path, aval, value in zip(program.arg_paths, program.in_avals, operands, strict=True):
        found = jax.typeof(value)
        if high.is_type(found):
            raise high_type(found, path)
        taken = boundary.physical_type(aval)
        if found.shape != taken.shape or promoted_dtype(value, taken.dtype) != taken.dtype:
            raise ArgumentMismatchError(
                f"{path} must have type {spell(aval)}, but it is {spell(found)}",
                where=path,
                do="give tangents and cotangents the shape and dtype of their primal values",
            )


# ------------------------------------------------------------------------------ transforms


def _flat(
    program: Program, operands: tuple[Any, ...], results: tuple[Any, ...], names: tuple[str, ...]
) -> Program:
    """The program without its constants, which are arguments, and without what it has cached."""

    def interface() -> Interface:
        in_tree = jax.tree.structure((tuple(range(len(operands))), {}))
        out_tree = jax.tree.structure(tuple(range(len(results))))
        return Interface(in_tree, out_tree, operands, results, names)

    return dataclasses.replace(
        program, interface=interface, constants=(), variants=(), shares_values=False
    )


def _origin(handle: ModuleHandle) -> Origin:
    if isinstance(handle.key, Origin):
        return handle.key
    return _adopted(handle)


_ORIGINS: weakref.WeakValueDictionary[Any, Origin] = weakref.WeakValueDictionary()


def _adopted(handle: ModuleHandle) -> Origin:
    """The origin of a handle that the runtime made of a module without a program.

    It goes with the handles of the module, which hold it.
    """
    origin = _ORIGINS.get(handle.key)
    if origin is None:
        origin = _ORIGINS[handle.key] = Origin(lambda: program_of(_read(handle).handle))
    vars(handle)["origin"] = origin
    return origin


def _read(handle: ModuleHandle) -> Program:
    """The program of a handle's module: its entry, and the callbacks that it numbers."""
    from pullback.artifact.read import of_module

    content = handle.load() if handle.source is None else handle.source
    program = of_module(_module.parse(content, _jax.context()), handle.entry)
    rules: Any = program.rules
    rules = dataclasses.replace(
        rules, host_callbacks=handle.host_callbacks, keepalives=handle.keepalives
    )
    return dataclasses.replace(program, rules=rules)


def _differentiated(handle: ModuleHandle, perturbed: tuple[int, ...]) -> SplitJVP:
    """Reverse mode in two programs; the linear map of forward mode is the second's transpose."""
    origin = _origin(handle)
    key = "jvp", perturbed
    if key not in origin.derivatives:
        origin.derivatives[key] = _split(origin.program, perturbed)
    return origin.derivatives[key]


def _split(flat: Program, perturbed: tuple[int, ...]) -> SplitJVP:
    forward, backward = flat.split_vjp(wrt=perturbed)
    outs = len(flat.out_avals)
    residuals = forward.handle.out_avals[outs:]
    tangents = tuple(flat.in_avals[i] for i in perturbed)
    count = len(residuals)
    linear = Origin(
        lambda: program_of(_swapped(backward).handle),
        linear=tuple(range(count, count + len(tangents))),
        transposed=backward.handle,
    )
    moved = tuple(aval for aval in flat.out_avals if is_inexact(aval))
    operands = (*residuals, *tangents)
    # What a linear map calls back for is used, or nobody misses it.
    return SplitJVP(forward.handle, _handle(linear, flat.rules, operands, moved, pure=True))


def _swapped(backward: Program) -> Program:
    return backward.transpose(wrt=(1,))


def _transposed(handle: ModuleHandle, linear: tuple[int, ...]) -> ModuleHandle:
    origin = _origin(handle)
    if origin.transposed is not None and origin.linear == linear:
        return origin.transposed
    key = "transpose", linear
    if key not in origin.derivatives:
        origin.derivatives[key] = origin.program.transpose(wrt=linear).handle
    return origin.derivatives[key]


def _batched(
    handle: ModuleHandle, in_axes: tuple[int | None, ...], size: int, along: Any
) -> tuple[ModuleHandle, tuple[int | None, ...]]:
    """The program batched by the pass; or made again for a batch, or run once per item."""
    origin = _origin(handle)
    key = "batch", in_axes, size, along
    if key not in origin.derivatives:
        origin.derivatives[key] = _mapped(origin, in_axes, size) or _repeated(
            handle, in_axes, size, along
        )
    return origin.derivatives[key]


def _mapped(
    origin: Origin, in_axes: tuple[int | None, ...], size: int
) -> tuple[ModuleHandle, tuple[int | None, ...]] | None:
    """The program batched in the IR, which leaves a result as it is that all items share."""
    if origin.program.rules.has_batching_rules or origin.program.rules.mesh is not None:
        return None
    try:
        batched, flags = _derivation.batched(origin.program, in_axes, size)
    except MissingRuleError:  # tokens, dynamic shapes
        return None
    return batched.handle, tuple(0 if flag else None for flag in flags)


def _repeated(
    handle: ModuleHandle, in_axes: tuple[int | None, ...], size: int, along: Any
) -> tuple[ModuleHandle, tuple[int, ...]]:
    """The program made again for a batch, or where that cannot be, run once per item.

    Only JAX knows how a `custom_vmap` is batched, and shardings over devices.
    """
    from pullback.frontend.trace import trace

    operands = list(zip(handle.in_avals, in_axes, strict=True))
    program = program_of(handle)
    function = _together(program, in_axes, size, along)
    if function is not None:
        types = [tracing.batch_type_along(*operand, size, along) for operand in operands]
    else:  # nothing is said of where the batch lies: no loop is along a mesh
        _derivation.check_batching_rules(program)
        function = _one_by_one(handle, in_axes)
        types = [tracing.batch_type(*operand, size) for operand in operands]
    return trace(function)(*types).handle, (0,) * len(handle.out_avals)


def _together(program: Program, in_axes: tuple[int | None, ...], size: int, along: Any) -> Any:
    """A function that runs the program made again for a batch; None if there is no recipe."""
    recipe = program.recipe
    if recipe is None:
        return None
    flags = recipe.must_batch(in_axes)
    again = recipe.batched(flags, size, along)
    if again is None:
        return None

    def batched(*operands: Any) -> list[Any]:
        leading = [_leading(*each, size) for each in zip(operands, in_axes, flags, strict=True)]
        return call_module(again.handle, *leading)

    return batched


def _leading(operand: Any, axis: int | None, flag: bool, size: int) -> Any:
    """The operand with its batch axis in front, repeated where it lacks one and needs it."""
    if axis is not None:
        return jax.numpy.moveaxis(operand, axis, 0)
    return jax.numpy.broadcast_to(operand, (size, *operand.shape)) if flag else operand


def _one_by_one(handle: ModuleHandle, in_axes: tuple[int | None, ...]) -> Any:
    """A function that runs the program for one item of the batch after the other."""

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


pullback_runtime.set_rules(jvp=_differentiated, transpose=_transposed, batching=_batched)
