"""Programs from programs: forward mode, reverse mode, linear parts and transposes.

Each function clones the module, runs one differentiating pass on the copy, and pairs the result
with the argument trees that a JAX user expects. Positions count the operands of `@main`: hidden
constants first, then the leaves of the arguments, then those of keyword arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple

import jax
import numpy as np

from pullback._jax import ir
from pullback._jax.tangent_types import is_inexact
from pullback.autodiff.checks import function_name, is_named
from pullback.errors import (
    ArgumentMismatchError,
    DerivativeTypeError,
    MemoryBudgetError,
    NotDifferentiableError,
    PullbackError,
)
from pullback.ir.dependence import dependents
from pullback.ir.modules import entry_of, result_types
from pullback.ir.ops import CustomVJPCall, walk_calls
from pullback.ir.purity import acts
from pullback.ir.regions import terminator
from pullback.ir.symbols import functions
from pullback.passes.checkpoint import Checkpoint
from pullback.passes.entry_edits import Half, ReorderOperands, SelectResults
from pullback.passes.inline_calls import InlineCalls
from pullback.passes.jet import Jet
from pullback.passes.jvp import JVP
from pullback.passes.laplacian import Laplacian
from pullback.passes.linearize import Linearize
from pullback.passes.pipelines import Stage
from pullback.passes.transpose import Transpose
from pullback.passes.vjp import VJP
from pullback.program import argument_leaves, memory_budget, record
from pullback.program.argument_leaves import (
    Positions,
    Slot,
    argnums_of,
    inexact_positions,
    is_complex,
    moving,
    one_of,
    slots,
)
from pullback.program.memo import once
from pullback.program.memory_budget import Memory, Storage
from pullback.program.provenance import Check, Fits, PlatformModule
from pullback.program.read_residuals import residual_table
from pullback.program.record import (
    AnyProgram,
    Interface,
    P,
    R,
    Record,
    result_paths,
    with_result_types,
)
from pullback.program.residual_table import ResidualTable
from pullback_runtime._jax import operations_where
from pullback_runtime.ir import _module

INLINE = InlineCalls(max_ops=8, in_loops=True)
"""Runs before differentiation: a small callee costs more as functions of its own than as ops."""

MERGE = "func.func(trivial-dce,cse)"
"""Merges equal ops, and erases unused ones, of which `cse` alone leaves some to its next run.

Without it a derivative is larger, and the same: files do not name it.
"""

PREPARE: tuple[Stage, ...] = (INLINE, MERGE)
"""Runs before differentiation. The cotangents of a value that is computed twice go separate ways,
and XLA, which merges the values, cannot merge those."""


Through = str | Mapping[Callable[..., Any] | str, str]
"""Tells what forward mode goes through: "rules", "function", or one of these for each function."""


class Split(NamedTuple, Generic[R]):
    """A derivative in two programs.

    `forward: args -> (out, residuals)`; `linear: (residuals, tangents…) -> tangents of out`, or
    `(residuals, cotangents of out) -> cotangents of the arguments`.
    """

    forward: R
    linear: R

    def residuals(self) -> ResidualTable:
        """Return a table of what is stored between the two, and of what is recomputed."""
        (first, *_), _ = jax.tree.unflatten(self.linear.in_tree, self.linear.in_avals)
        return residual_table(self.forward, self.linear, len(first))


@dataclass(frozen=True)
class Signature:
    """The trees of a program, with slots as leaves."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    @staticmethod
    def of(program: AnyProgram) -> Signature:
        """Return the signature of a program."""
        hidden = len(program.constants)
        leaves = slots(program.in_avals, program.arg_paths, hidden)
        args, kwargs = jax.tree.unflatten(program.in_tree, leaves)
        names = result_paths(program)
        return Signature(
            args, kwargs, jax.tree.unflatten(program.out_tree, slots(program.out_avals, names))
        )

    def results(self, has_aux: bool) -> tuple[Any, tuple[Any, ...]]:
        """Return the differentiated result, and a tuple with the auxiliary data if there is any."""
        if not has_aux:
            return self.out, ()
        if isinstance(self.out, (tuple, list)) and len(self.out) == 2:
            return self.out[0], (self.out[1],)
        raise DerivativeTypeError(
            "with has_aux=True the function must return a pair (value, auxiliary data), "
            f"but it returned {_described(self.out)}",
            do="return a tuple or a list of two, or leave out has_aux",
        )


def jvp(
    program: P,
    argnums: Positions = None,
    has_aux: bool = False,
    through: Through = "rules",
    *,
    wrt: Positions = None,
) -> P:
    """Return forward mode as a program: `(args…, tangents…) -> (out, tangents of out)`.

    Tangents have the shapes and dtypes of their primal values.

    Args:
      program: of a function `f(args…) -> out`.
      argnums: positions of the arguments that have tangents; all of them if not given. Integer
        leaves have no tangent: None stands in their place, in arguments and results.
      has_aux: the function returns a pair, of which only the first item is differentiated;
        the second comes last in the result. Other methods have the same option.
      through: `{f: "function"}` differentiates the code of a `custom_vjp` function, or of all with
        a name, instead of its backward rule transposed; "function", that of all functions whose
        rule is not linear.
      wrt: another name for `argnums`, also of other methods.

    Raises:
      NotLinearError: a backward rule that forward mode has to transpose is not linear.
      MissingRuleError: an op on the way has no derivative rule. Other methods raise it, too.
    """
    through = read_through(through)
    _check_names(program, through)
    argnums = argument_leaves.several(_positions(program, argnums, wrt))
    return _jvp(program, argnums, has_aux, through)


@once
def _jvp(program: P, argnums: tuple[int, ...], has_aux: bool, through: str) -> P:
    old = Signature.of(program)
    out, aux = old.results(has_aux)
    primals = argument_leaves.chosen(old.args, argnums)
    derivative = JVP(wrt=inexact_positions(primals), through=through)
    new = Signature(
        (*old.args, *moving(primals, "tangent")), old.kwargs, (out, moving(out, "tangent"), *aux)
    )
    return _derived(program, derivative, new, len(program.out_avals))


def jet(
    program: P,
    order: int,
    argnums: Positions = None,
    factorial_scaled: bool = True,
    *,
    wrt: Positions = None,
) -> P:
    """Return Taylor mode as a program: `(args…, series…) -> (out, series of out)`.

    Along a curve, arguments and results have derivatives by its parameter. A series has, in the
    structure of an argument or result, a list of `order` terms for each leaf, of its shape and
    dtype: the k-th derivatives, from the first on. Integer leaves have None.

    Args:
      program: of a function.
      order: of the last derivative.
      argnums: positions of the arguments that have series; all of them if not given.
      factorial_scaled: if False, the k-th term is the k-th derivative over k!, in all series.
      wrt: another name for `argnums`.

    Raises:
      ArgumentMismatchError: the order is not a positive integer, or `argnums` are out of range.
      MissingRuleError: an op on the way has no derivative rule.
      NotLinearError: a backward rule that forward mode has to transpose is not linear.
    """
    check_order(order)
    argnums = argument_leaves.several(_positions(program, argnums, wrt))
    return _jet(program, int(order), argnums, bool(factorial_scaled))


def check_order(order: Any) -> None:
    """Raise ArgumentMismatchError for what is not the order of a Taylor series."""
    if not isinstance(order, int | np.integer) or isinstance(order, bool) or order < 1:
        raise ArgumentMismatchError(
            f"a Taylor series of order {order!r}",
            do="give the number of its terms, an integer of 1 or more",
        )


@once
def _jet(program: P, order: int, argnums: tuple[int, ...], factorial_scaled: bool) -> P:
    old = Signature.of(program)
    primals = argument_leaves.chosen(old.args, argnums)
    wrt = inexact_positions(primals)
    derivative = Jet(order=order, wrt=wrt, factorial_scaled=factorial_scaled)
    args = (*old.args, *argument_leaves.series(primals, order))
    new = Signature(args, old.kwargs, (old.out, argument_leaves.series(old.out, order)))
    return _derived(program, derivative, new, len(program.out_avals))


def laplacian(
    program: P,
    argnums: int | Sequence[int] = 0,
    *,
    wrt: Positions = None,
    block: int | None = None,
) -> P:
    """Return the Laplacian as a program: the sum of second derivatives by each element.

    It has the arguments of the program, and the structure, shapes and dtypes of its result, with
    None for an integer. It is computed in one forward sweep, by each rule.

    Args:
      program: of a function.
      argnums: positions of the arguments whose elements are meant, of all of which the sum is
        taken; they are real.
      wrt: another name for `argnums`.
      block: the number of elements whose derivatives are computed at a time, as for `pb.laplacian`.

    Raises:
      DerivativeTypeError: an argument is not a real float.
      ArgumentMismatchError: `argnums` are out of range, or `block` is not a positive integer.
      MissingRuleError: an op on the way has no derivative rule, or its tangents no batch.
      NotLinearError: a backward rule that forward mode has to transpose is not linear.
    """
    return _laplacian(program, _positions(program, argnums, wrt, default=0), block)


@once
def _laplacian(program: P, argnums: Any, block: int | None) -> P:
    old = Signature.of(program)
    primals = argument_leaves.chosen(old.args, argnums)
    do = "convert it to a float, or leave it out of argnums"
    argument_leaves.check_inexact(primals, "laplacian", do)
    for slot in jax.tree.leaves(primals):
        if is_complex(slot.aval):
            raise DerivativeTypeError(
                f"laplacian is by real numbers, but {slot.path} is {slot.aval.dtype.name}",
                where=slot.path,
                do="give the function the real and the imaginary part, as arguments of their own",
            )
    derivative = Laplacian(wrt=inexact_positions(primals), block=block)
    new = Signature(old.args, old.kwargs, moving(old.out, "Laplacian"))
    return _derived(program, derivative, new, len(program.out_avals))


def _positions(
    program: AnyProgram, argnums: Positions, wrt: Positions = None, default: Positions = None
) -> Any:
    """Return the position, or the tuple of positions, that two names and defaults stand for."""
    count = len(program.in_tree.children()[0].children())
    return argnums_of(one_of(argnums, wrt, default), count)


def read_through(through: Through) -> str:
    """Return what forward mode differentiates through, as the passes take it: names by commas."""
    if isinstance(through, str):
        return through
    names = [key if isinstance(key, str) else _name_of(key) for key in through]
    for name, how in zip(names, through.values(), strict=True):
        if how not in ("rules", "function"):
            raise _nothing_through(f"{{{name!r}: {how!r}}}")
    pairs = zip(names, through.values(), strict=True)
    return ",".join(sorted(name for name, how in pairs if how == "function")) or "rules"


def _name_of(function: Any) -> str:
    """Return the name that a module has for a function."""
    name = getattr(function, "__name__", None)
    if name is None:
        raise _nothing_through(f"{{{function!r}: …}}")
    return re.sub(r"\W", "", name)


def _nothing_through(through: str, do: str = "") -> ArgumentMismatchError:
    return ArgumentMismatchError(
        f"through={through} is nothing to differentiate through",
        do=do
        or 'give "rules", or {f: "function"} for the code of a function f with a backward rule; '
        'its name will do: {"f": "function"}',
    )


def _check_names(program: AnyProgram, through: str) -> None:
    """Raise ArgumentMismatchError for a name of no function with a backward rule."""
    if through in ("rules", "function") or not isinstance(program, Record):
        return
    views = [c for c in walk_calls(program.module) if isinstance(c, CustomVJPCall)]
    for name in through.split(","):
        if not any(is_named(view, name) for view in views):
            known = ", ".join(sorted({function_name(view) for view in views}))
            raise _nothing_through(
                repr(name),
                f"functions with a backward rule are called by these names: {known}" * bool(known),
            )


def vjp(
    program: P,
    argnums: Positions = None,
    has_aux: bool = False,
    *,
    wrt: Positions = None,
    memory: Memory = None,
) -> P:
    """Return reverse mode as a program: `(args…, cotangents of out) -> (out, cotangents)`.

    Cotangents have the structure and shapes of what they are cotangents of. One position gives one
    tree; several, or None for all, give a tuple. Integer leaves have None.

    Args:
      program: of a function.
      argnums: the positional arguments to give cotangents for, all by default.
      has_aux: the result is a pair, of which only the first item is differentiated; the second
        comes last in the result of the derivative.
      wrt: another name for `argnums`.
      memory: the temporaries that the derivative may need on this device: bytes, or a text such as
        "8MB" or "8MiB". Of the schedules that fit, it takes that which recomputes least; none
        if the default fits. Or a schedule by its name: "store" stores all that the backward sweep
        reads; "min-cut", the default, recomputes cheap ops where that stores less;
        "recompute" stores as little as it can. Other methods have the same option.

    Raises:
      MissingRuleError: an op on the way has no derivative rule.
      ArgumentMismatchError: `argnums` are out of range, or `memory` is not a budget.
      MemoryBudgetError: no schedule fits.
    """
    return _stored(_vjp, program, memory, _positions(program, argnums, wrt), has_aux)


def _stored(
    derive: Callable[..., Any], program: Any, memory: Memory | Storage, argnums: Any, *more: Any
) -> Any:
    """Return `derive(program, argnums, *more, storage)`, where a budget decides on the storage."""
    storage = memory_budget.read(memory)
    of_sizes = isinstance(storage, int) or storage.checkpoint is not None
    if of_sizes and not isinstance(program, Record):
        raise MemoryBudgetError(
            f"memory={memory!r} needs sizes, and dimensions of the program are symbols",
            do='give the function sizes, or leave memory out; "store" needs none',
        )
    if isinstance(storage, int):
        storage = _fitting(program, derive, storage, argnums, more)
    return derive(program, argnums, *more, storage)


@once
def _fitting(
    program: Any, derive: Callable[..., Any], budget: int, argnums: Any, more: tuple[Any, ...]
) -> Storage:
    """Return the storage with which a derivative fits a budget on this device."""
    here = record.here(program)
    has_aux = bool(more[0])
    flags = more[1] if derive is _split_vjp else None
    chosen = argument_leaves.chosen(Signature.of(here).args, argnums)
    wrt = inexact_positions(argument_leaves.only(flags, chosen, chosen))
    return memory_budget.fit(
        here,
        budget,
        wrt,
        lambda storage: derive(here, argnums, *more, storage),
        lambda: _split_vjp(here, argnums, has_aux, flags, memory_budget.DEFAULT).residuals(),
    )


def _before(storage: Storage, derivative: Any) -> tuple[Stage, ...]:
    """Return the passes that run before a derivative."""
    if storage.checkpoint is None:
        return PREPARE
    checkpoint = Checkpoint(bytes=storage.checkpoint, wrt=derivative.wrt)
    return *memory_budget.PREPARE, checkpoint


@once
def _vjp(program: P, argnums: int | tuple[int, ...], has_aux: bool, storage: Storage) -> P:
    old = Signature.of(program)
    out, aux = old.results(has_aux)
    primals = argument_leaves.chosen(old.args, argnums)
    _check_not_shared(program)
    wanted = inexact_positions(primals), inexact_positions(out)
    derivative = VJP(wrt=wanted[0], outs=wanted[1], store=storage.store)
    cts = moving(primals, "cotangent")
    new = Signature((*old.args, moving(out, "cotangent")), old.kwargs, (out, cts, *aux))
    return _derived(program, derivative, new, len(program.out_avals), storage)


def split_vjp(
    program: R,
    argnums: Positions = None,
    has_aux: bool = False,
    perturbed: Sequence[bool] | None = None,
    memory: Memory | Storage = None,
) -> Split[R]:
    """Derive reverse mode as two programs, the second of which is the map of cotangents.

    `perturbed` has a flag for each leaf of the arguments at `argnums`: the others are constants.
    A budget is for what is stored between the two, and the temporaries of either.
    """
    argnums = _positions(program, argnums)
    split: Split[R] = _stored(_split_vjp, program, memory, argnums, has_aux, _some(perturbed))
    return split


def _some(flags: Sequence[bool] | None) -> tuple[bool, ...] | None:
    """Return None for flags that are all set."""
    return None if flags is None or all(flags) else tuple(flags)


@once
def _split_vjp(
    program: R,
    argnums: int | tuple[int, ...],
    has_aux: bool,
    perturbed: tuple[bool, ...] | None,
    storage: Storage,
) -> Split[R]:
    old = Signature.of(program)
    out, _ = old.results(has_aux)
    chosen = argument_leaves.chosen(old.args, argnums)
    primals = argument_leaves.only(perturbed, chosen, chosen)
    _check_not_shared(program)
    wanted = inexact_positions(primals), inexact_positions(out)
    cts = (moving(out, "cotangent"),)
    derivative = VJP(wrt=wanted[0], outs=wanted[1], split=True, store=storage.store)
    return _split(program, derivative, cts, moving(primals, "cotangent"), storage)


def linearize(
    program: R,
    argnums: Positions = None,
    has_aux: bool = False,
    perturbed: Sequence[bool] | None = None,
    through: Through = "rules",
) -> Split[R]:
    """Derive forward mode as two programs, the second of which is the map of tangents.

    `perturbed` is as for `split_vjp`, and `through` as for `jvp`.
    """
    through = read_through(through)
    _check_names(program, through)
    argnums = argument_leaves.several(_positions(program, argnums))
    return _linearize(program, argnums, has_aux, _some(perturbed), through)


@once
def _linearize(
    program: R,
    argnums: tuple[int, ...],
    has_aux: bool,
    perturbed: tuple[bool, ...] | None,
    through: str,
) -> Split[R]:
    old = Signature.of(program)
    out, _ = old.results(has_aux)
    chosen = argument_leaves.chosen(old.args, argnums)
    primals = argument_leaves.only(perturbed, chosen, chosen)
    derivative = Linearize(
        wrt=inexact_positions(primals), outs=inexact_positions(out), through=through
    )
    tangents = moving(primals, "tangent")
    return _split(program, derivative, tangents, moving(out, "tangent"))


def transpose(program: R, argnums: Positions = None, *, wrt: Positions = None) -> R:
    """Return the transpose: `(other args…, cotangents of out) -> cotangents of the arguments`.

    Raises:
      NotLinearError: the program is not linear in the arguments at `argnums`.
    """
    return _transposed(program, _positions(program, argnums, wrt), None)


def transpose_of_results(program: R, argnums: Sequence[int], outs: tuple[int, ...]) -> R:
    """Return the transpose of the results at `outs`, which alone are linear.

    Its cotangents are leaves, in no tree.
    """
    return _transposed(program, tuple(argnums), outs)


@once
def known_part(program: R, unknown: tuple[int, ...]) -> tuple[R, tuple[bool, ...]] | None:
    """Return the program of the results that do not depend on the arguments at `unknown`.

    It takes the other arguments. The flags tell which results depend on those at `unknown`.
    Arguments and results are not in trees. Return None if all results depend on them, or if the
    program has a side effect, which would come twice.
    """
    if operations_where(program.module, acts):
        return None
    late = dependent(program.module, unknown)
    if all(late):
        return None
    args = [i for i in range(len(program.in_avals)) if i not in unknown]
    return _part(program, args, late), late


def dependent(module: ir.Module, unknown: Iterable[int]) -> tuple[bool, ...]:
    """Return whether each result depends on these operands of `@main`."""
    found = _dependence(module, unknown)
    return tuple(v in found for v in terminator(entry_of(module)[1]).operands)


def dependent_operation(program: Record, names: Collection[str]) -> Any:
    """Return the first operation of these names that depends on an argument; None without one."""
    hidden = len(program.constants)
    found = _dependence(program.module, range(hidden, hidden + len(program.in_avals)))

    def wanted(operation: Any) -> bool:
        return operation.name in names and any(value in found for value in operation.operands)

    operations = operations_where(program.module, wanted)
    return operations[0] if operations else None


def _dependence(module: ir.Module, unknown: Iterable[int]) -> Set[Any]:
    """Return the values, also in nested blocks, that depend on these operands of `@main`."""
    block = entry_of(module)[1]
    return dependents((block.arguments[i] for i in unknown), block, functions(module))


@dataclass(frozen=True)
class AreKnown(Check):
    """Check that these results depend on no operand of `@main` that is unknown."""

    outs: tuple[int, ...]
    unknown: tuple[int, ...]

    def check(self, lowered: PlatformModule) -> None:
        """Raise PullbackError if one does, as it may on another platform."""
        depend = dependent(lowered.module, self.unknown)
        if any(depend[i] for i in self.outs):
            raise PullbackError(
                "what a result depends on differs by the platform: JAX, which knows some "
                "arguments, takes one for known that is not on "
                f"{', '.join(lowered.environment.platforms)}",
                do="let the result depend on the same arguments on each platform",
            )


def _part(program: R, args: Sequence[int], late: Sequence[bool]) -> R:
    """Return the program of the results that are not `late`, which takes these arguments only."""
    old = Signature.of(program)
    outs = tuple(i for i, flag in enumerate(late) if not flag)
    unknown = tuple(i for i in range(len(program.in_avals)) if i not in args)
    new = Signature(tuple(old.args[i] for i in args), {}, tuple(old.out[i] for i in outs))
    edits = SelectResults(outs), ReorderOperands(tuple(args)), "symbol-dce"
    return program._after((AreKnown(outs, unknown), *edits), _interface(new))


@once
def _transposed(program: R, argnums: int | tuple[int, ...], outs: tuple[int, ...] | None) -> R:
    old = Signature.of(program)
    primals = argument_leaves.chosen(old.args, argnums)
    argument_leaves.check_inexact(primals, "transpose", "convert it to a float")
    linear = argument_leaves.several(argnums)
    others = tuple(arg for i, arg in enumerate(old.args) if i not in linear)
    _check_not_shared(program)
    derivative = Transpose(wrt=inexact_positions(primals), outs=outs)
    cts = moving(primals, "cotangent")
    out = old.out if outs is None else tuple(old.out[i] for i in outs)
    new = Signature((*others, moving(out, "cotangent")), old.kwargs, cts)
    return _derived(program, derivative, new, 0)


def value_and_grad(
    program: P,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    wrt: Positions = None,
    memory: Memory = None,
) -> P:
    """Return a program of `(value, gradient)`, and with `has_aux` of `((value, aux), gradient)`.

    Arguments and errors are those of `grad`.
    """
    argnums = _positions(program, argnums, wrt, default=0)
    return _stored(_value_and_grad, program, memory, argnums, has_aux, holomorphic, allow_int)


@once
def _value_and_grad(program: P, argnums: Any, has_aux: bool, *more: Any) -> P:
    derivative, old, gradients = _gradients(program, argnums, has_aux, *more)
    out, aux = old.results(has_aux)
    value = (out, *aux) if has_aux else out  # a tuple also where the pair is a list
    new = Signature(old.args, old.kwargs, (value, gradients))
    return _derived(program, derivative, new, len(program.out_avals), more[-1])


def grad(
    program: P,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    wrt: Positions = None,
    memory: Memory = None,
) -> P:
    """Return the gradient of a scalar result as a program; with `has_aux`, `(gradient, aux)`.

    It has the arguments of the program. A gradient has the structure and shapes of its argument;
    several `argnums` give a tuple.

    Raises:
      DerivativeTypeError: the result is not a scalar, or something is not a float.
    """
    argnums = _positions(program, argnums, wrt, default=0)
    return _stored(_grad, program, memory, argnums, has_aux, holomorphic, allow_int)


@once
def _grad(program: P, argnums: Any, has_aux: bool, *more: Any) -> P:
    derivative, old, gradients = _gradients(program, argnums, has_aux, *more)
    out = (gradients, old.out[1]) if has_aux else gradients
    new = Signature(old.args, old.kwargs, out)
    return _derived(program, derivative, new, len(program.out_avals), more[-1])


def _gradients(
    program: AnyProgram,
    argnums: Any,
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool,
    storage: Storage,
) -> tuple[VJP, Signature, Any]:
    """Return the pass that appends the gradients, the old signature, and the gradients' tree."""
    old = Signature.of(program)
    primals = check_gradients(old, argnums, has_aux, holomorphic, allow_int)
    _check_not_shared(program)
    wrt = inexact_positions(primals)
    derivative = VJP(wrt=wrt, outs=(0,), unit_cotangent=True, store=storage.store)
    return derivative, old, moving(primals, "gradient")


# ------------------------------------------------------------------------------- checks


def check_gradients(
    old: Signature,
    argnums: Any,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Any:
    """Return the arguments to take gradients by; raise DerivativeTypeError if one has none."""
    primals = argument_leaves.chosen(old.args, argnums)
    do = "convert it to a float, leave it out of argnums, or pass allow_int=True"
    argument_leaves.check_inexact(primals, "grad", do, allow_int)
    _check_loss(old, primals, has_aux, holomorphic)
    return primals


def _check_loss(old: Signature, primals: Any, has_aux: bool, holomorphic: bool) -> None:
    """Raise DerivativeTypeError unless the result is a scalar that has a gradient."""
    loss = old.results(has_aux)[0]
    shape = loss.aval.shape if isinstance(loss, Slot) else None
    if shape != ():
        found = f"was {_described(loss)}" if shape is None else f"had shape: {shape}"
        raise DerivativeTypeError(
            f"Gradient only defined for scalar-output functions. Output {found}",
            do="return a scalar; for further results has_aux=True, for others pb.vjp or pb.jacrev "
            "(--vjp in a shell)",
        )
    _check_holomorphic(primals, loss, holomorphic)


def _check_not_shared(program: AnyProgram) -> None:
    """Raise NotDifferentiableError if JAX would count cotangents once that we have in parts."""
    if program._shares_values:
        raise NotDifferentiableError(
            "no reverse mode in the body of a checked shard_map, of a function that makes values "
            "equal on all devices (as psum does) or uses such values",
            do="differentiate the function that calls shard_map, use jax.grad in its body, "
            "or give shard_map check_vma=False, which makes psum its own transpose",
        )


def _described(tree: Any) -> str:
    return str(jax.tree.map(lambda slot: argument_leaves.spell(slot.aval), tree))


def _check_holomorphic(primals: Any, loss: Slot, holomorphic: bool) -> None:
    for slot in (*jax.tree.leaves(primals), loss) if holomorphic else ():
        if not is_complex(slot.aval):
            raise DerivativeTypeError(
                "grad with holomorphic=True requires inputs and outputs with complex dtype, "
                f"but {slot.path} is {slot.aval.dtype.name}",
                where=slot.path,
                do="convert it to a complex dtype, or leave out holomorphic",
            )
    if holomorphic:
        return
    if is_complex(loss.aval):
        raise DerivativeTypeError(
            "grad requires real-valued outputs (a float dtype), but the result is "
            f"{loss.aval.dtype.name}",
            where=loss.path,
            do="for holomorphic differentiation pass holomorphic=True; "
            "for other complex functions use pb.vjp",
        )
    if not is_inexact(loss.aval):
        raise DerivativeTypeError(
            "grad requires real-valued outputs (a float dtype), but the result is "
            f"{loss.aval.dtype.name}",
            where=loss.path,
            do="return a float: an integer has no derivative",
        )


# ------------------------------------------------------------------------------ modules


def _derived(
    program: P,
    derivative: Any,
    new: Signature,
    outs: int,
    storage: Storage = memory_budget.DEFAULT,
) -> P:
    """Return the program after a pass that keeps old operands, and `outs` old results, first."""
    hidden = len(program.constants)
    leaves = jax.tree.leaves((new.args, new.kwargs))
    kept = sorted(slot.position for slot in leaves if slot.position >= 0)
    place = {position: hidden + i for i, position in enumerate(kept)}
    operands = (*range(hidden), *_order(leaves, place, hidden + len(kept)))
    results = _order(jax.tree.leaves(new.out), range(outs), outs)
    edits = ReorderOperands(operands), SelectResults(results)
    stages = (*_before(storage, derivative), derivative, *edits, "symbol-dce")
    return program._after(stages, _interface(new))


def _order(leaves: list[Slot], place: Any, first: int) -> tuple[int, ...]:
    """Return where each leaf is: old ones at `place`, new ones from `first` on, by source."""
    sources = sorted(slot.source for slot in leaves if slot.position < 0)
    fresh = {source: first + i for i, source in enumerate(sources)}
    return tuple(
        place[slot.position] if slot.position >= 0 else fresh[slot.source] for slot in leaves
    )


def _interface(new: Signature) -> Interface:
    ins, in_tree = jax.tree.flatten((new.args, new.kwargs))
    outs, out_tree = jax.tree.flatten(new.out)
    return Interface(
        in_tree,
        out_tree,
        tuple(slot.aval for slot in ins),
        tuple(slot.aval for slot in outs),
        tuple(slot.path for slot in ins),
    )


def _split(
    program: R, derivative: Any, inputs: Any, result: Any, storage: Storage = memory_budget.DEFAULT
) -> Split[R]:
    """Return two programs, of the two functions that a splitting pass leaves in a module."""
    old, outs = Signature.of(program), len(program.out_avals)
    last = _order(jax.tree.leaves(inputs), {}, 0)

    def of_forward(module: ir.Module) -> Interface:
        residuals = _residuals(_signature(module)[1][outs:])
        return _interface(Signature(old.args, old.kwargs, (old.out, residuals)))

    def of_linear(module: ir.Module) -> Interface:
        operands = _signature(module)[0]
        residuals = _residuals(operands[: len(operands) - len(last)])
        interface = _interface(Signature((residuals, *inputs), {}, result))
        return with_result_types(interface, result_types(module))

    stages = (*_before(storage, derivative), derivative)
    both = program._remade(lambda each: each.after(stages), stages)
    second = Half(second=True, last=last), SelectResults(_order(jax.tree.leaves(result), {}, 0))
    linear = both._remade(lambda each: each.after(second))
    forward = both._remade(lambda each: each.after((Half(),)))
    fits = *both._stages, Fits(second, linear._lowered, program.platforms)
    return Split(
        replace(forward, interface=of_forward, _stages=(*fits, Half()), pattern=None),
        replace(linear, interface=of_linear, _stages=(*fits, *second), pattern=None, constants=()),
    )


def _signature(module: ir.Module) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the types of the operands and of the results of `@main`."""
    operands, results = _module.signature(_module.find_entry(module, "main"), "main")
    return operands, results


def _residuals(types: Sequence[Any]) -> list[Slot]:
    return [Slot(aval, f"residual {i}", i) for i, aval in enumerate(types)]
