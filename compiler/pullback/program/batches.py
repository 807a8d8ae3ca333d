"""Programs for batches: where the batch axis of each leaf is, and the pass that adds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, overload

import jax

from pullback import _jax
from pullback._jax import tracing
from pullback.autodiff.batching import Batching
from pullback.autodiff.state import Differentiation
from pullback.errors import ArgumentMismatchError, PullbackError
from pullback.ir.modules import clone
from pullback.ir.symbols import erase_unreachable
from pullback.passes import manager
from pullback.passes.vmap import VMap
from pullback.program import argument_leaves
from pullback.program.derivation import INLINE
from pullback.program.memo import once
from pullback.program.record import Interface, R, Record, result_paths
from pullback.program.symbolic import SymbolicProgram

BATCH = "batch"
"""The symbol for the number of items, where arguments give it."""


@overload
def vmap(program: R, in_axes: Any = 0, out_axes: Any = 0, *, axis_size: int) -> R: ...


@overload
def vmap(
    program: R, in_axes: Any = 0, out_axes: Any = 0, *, axis_size: None = None
) -> SymbolicProgram: ...


def vmap(
    program: R, in_axes: Any = 0, out_axes: Any = 0, *, axis_size: int | None = None
) -> R | SymbolicProgram:
    """Return the program for a batch of `axis_size` items, with its rules for that batch.

    Args:
      program: of a function of one item.
      in_axes: where the batch axis of each argument is, an integer, or None for what all items
        share; for trees, one for all leaves or a tree of them, as for `jax.vmap`. Keyword
        arguments have it first.
      out_axes: the same for the result; None only for what does not depend on the batch.
      axis_size: how many items there are. Without it, the arguments of a call tell: there is a
        program for each size, as of one with symbolic dimensions.

    Raises:
      ArgumentMismatchError: axes that do not fit, or that no argument has.
      MissingRuleError: an op that has no batch, such as one on tokens.
      PullbackError: the program has a `jax.custom_vmap` or shardings, which JAX batches.
    """
    _check_rules(program)
    if axis_size is not None and not hasattr(axis_size, "__index__"):
        raise ArgumentMismatchError(
            f"axis_size={axis_size!r} is no number of items", do="give an integer"
        )
    in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes  # as jax.vmap
    ins = _axes((in_axes, 0), "arguments", program.in_tree, program.in_avals, program.arg_paths)
    paths = result_paths(program)
    outs = _axes(out_axes, "result", program.out_tree, program.out_avals, paths)
    if axis_size is not None:
        return _vmap(program, tuple(ins), tuple(outs), int(axis_size))
    if all(axis is None for axis in ins):
        raise ArgumentMismatchError(
            "no argument has a batch axis, whose size would be that of the batch",
            do="give axis_size",
        )
    return _of_each_size(program, tuple(ins), tuple(outs))


def _check_rules(program: Record) -> None:
    check_batching_rules(program)
    around = program.environment
    if around.has_batching_rules or around.axes:  # the devices need not be here
        what = "shardings" if around.axes else "batching rules (jax.custom_vmap)"
        raise PullbackError(
            f"no vmap of a program with {what}: only JAX knows how they are batched",
            do="trace the batched function, pb.trace(jax.vmap(f)), or call jax.vmap(program)",
        )


@once
def _vmap(program: R, ins: tuple[int | None, ...], outs: tuple[int | None, ...], size: int) -> R:
    _check_rules(program)
    hidden = [None] * len(program.constants)
    batching = VMap(size, in_axes=(*hidden, *ins), out_axes=outs)
    interface = _batch_interface(program, ins, outs, size)
    return program._after((INLINE, batching, "symbol-dce"), interface)


@once
def _of_each_size(
    program: R, ins: tuple[int | None, ...], outs: tuple[int | None, ...]
) -> SymbolicProgram:
    """Return the program for a symbolic batch size, which has a program for each batch size."""
    (size,) = jax.export.symbolic_shape(BATCH)

    def flat(*_: Any) -> NoReturn:
        raise PullbackError(
            "a program for batches of any size has no module of its own",
            where="program.vmap()",
            do=f"give axis_size, or take the program for a size: .with_sizes({BATCH}=…)",
        )

    return SymbolicProgram(
        _batch_interface(program, ins, outs, size),
        flat,
        platforms=program.platforms,
        member=lambda sizes: _vmap(program, ins, outs, sizes[BATCH]),
    )


def check_batching_rules(program: Record) -> None:
    """Raise PullbackError for a program from a file that had batching rules."""
    if program.environment.lost_batching_rules:
        raise PullbackError(
            "no vmap of this program from a file: it had batching rules (jax.custom_vmap), which "
            "a file does not keep",
            do="save the batched function, pb.trace(jax.vmap(f)); or, if a batch is what each item "
            "is by itself, run one after the other: jax.lax.map(program, xs)",
        )


def _axes(
    axes: Any, what: str, tree: Any, avals: Sequence[Any], paths: Sequence[str]
) -> list[int | None]:
    """Return the batch axis of each leaf, counted from the front; `axes` may be a prefix tree."""
    marked = jax.tree.map(lambda axis: _SHARED if axis is None else axis, axes, is_leaf=_is_none)
    try:
        full = jax.tree.broadcast(marked, jax.tree.unflatten(tree, range(len(avals))))
    except ValueError as error:
        raise ArgumentMismatchError(
            f"the axes {axes} do not have the structure of the {what}, {tree}",
            do="give one axis for all, or one for each part: integers, or None for what is shared",
        ) from error
    leaves = zip(jax.tree.leaves(full), avals, paths, strict=True)
    return [None if axis is _SHARED else _axis(axis, *of) for axis, *of in leaves]


_SHARED = object()


def _is_none(x: Any) -> bool:
    return x is None


def _axis(axis: Any, aval: Any, path: str) -> int:
    count = len(aval.shape) + 1
    if not hasattr(axis, "__index__") or not -count <= axis < count:
        raise ArgumentMismatchError(
            f"no batch axis {axis!r} for {path}, of type {argument_leaves.spell(aval)}",
            where=path,
            do=f"with that axis it has {count} dimensions: give {-count} to {count - 1}, or None",
        )
    return int(axis) % count


def batched(program: R, in_axes: Sequence[int | None], size: int) -> tuple[R, list[bool]]:
    """Return a flat program for a batch, and for each result whether it is batched.

    The batch axis of a result is the leading one; a result that all items share is as it was.
    """
    module = clone(program.module)
    with (
        manager.limited(module, "a batch"),
        _jax.working_in(module),
        Differentiation(module, program.rules) as functions,
    ):
        flags = Batching(functions, size).entry("main", in_axes, None)
    erase_unreachable(module)
    out_axes = tuple(0 if flag else None for flag in flags)
    stages = VMap(size, in_axes=tuple(in_axes), out_axes=out_axes), "symbol-dce"
    return program.with_module(
        module,
        interface=_batch_interface(program, in_axes, out_axes, size),
        pattern=None,
        _source=program._source,
        _stages=(*program._stages, *stages),
    ), flags


def _batch_interface(
    program: Record,
    in_axes: Sequence[int | None],
    out_axes: Sequence[int | None],
    size: Any,
) -> Interface:
    ins, outs = (
        tuple(tracing.batch_type(*each, size) for each in zip(avals, axes, strict=True))
        for avals, axes in ((program.in_avals, in_axes), (program.out_avals, out_axes))
    )
    return Interface(program.in_tree, program.out_tree, ins, outs, program.arg_paths)
