"""Save a program: rules staged, constants in the module, a digest, one file in one step."""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from pullback._jax import context_of_its_own, ir
from pullback.autodiff.reachable_calls import Meeting, have_rules, met_in, order_of
from pullback.errors import MissingRuleError, NotLinearError
from pullback.files import container, embedded_constants, platform_variants, vhlo_gaps
from pullback.files.atomic_write import write_atomically
from pullback.files.errors import ArtifactError, NotPortableError, as_ours
from pullback.files.loaded_program import LOST_RULES, ORDER
from pullback.files.symbolic import save_load
from pullback.ir import locations, ops
from pullback.passes.as_run import as_run
from pullback.program.record import positions_by_argument
from pullback.program.symbolic import SymbolicProgram
from pullback_runtime import _avals, _jax as runtime_jax, _meshes

if TYPE_CHECKING:
    from pullback.program.program import Program

# Shardy has no VHLO form: such ops are written as they are, as jax.export does.
SAVED_DIALECTS = ("stablehlo.", "func.", "builtin.", _meshes.SHARDY)


def save(
    program: Program | SymbolicProgram,
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    platforms: Sequence[str] | None = None,
    allow_refusals: bool = False,
    order: int | None = None,
) -> None:
    """Write a program to one portable file that can still be differentiated.

    Args:
      program: what to save; it is not changed.
      path: the file; it is replaced in one step.
      target: the StableHLO version to write for, at least '1.0.0'. By default the version of
        twelve weeks ago, so that a somewhat older jaxlib reads it.
      platforms: what the file must run on; the program must have been traced for these.
      allow_refusals: write a file also where a rule refuses (raises while it is traced), or a step
        has no rule in JAX. It runs, and raises what the rule said, for its derivative.
      order: how often the file can be differentiated; any number of times by default. For programs
        whose derivatives need ever more rules, and so come to no end: by default the file has nine
        orders of these, or down to three where the rules are large or many.

    A program with symbolic dimensions takes `target` only.

    Raises:
      MissingRuleError: a derivative rule is missing, or raises for a derivative up to `order`, or
        without one for a first derivative. What may raise later is a warning.
      NotPortableError: the program calls back into Python.
      ArtifactError: the program cannot be written, or the file cannot.
    """
    write_atomically(path, _pieces(program, target, platforms, allow_refusals, order))


def serialize(
    program: Program | SymbolicProgram,
    *,
    target: str | None = None,
    platforms: Sequence[str] | None = None,
    allow_refusals: bool = False,
    order: int | None = None,
) -> bytes:
    """Return the bytes that `save` writes; arguments and errors are the same."""
    return b"".join(_pieces(program, target, platforms, allow_refusals, order))


def _pieces(
    program: Program | SymbolicProgram,
    target: str | None,
    platforms: Sequence[str] | None,
    allow_refusals: bool,
    order: int | None,
) -> list[Any]:
    """Return what `save` writes, as buffers; those of large constants are views of the arrays."""
    if isinstance(program, SymbolicProgram):
        return _symbolic_pieces(program, target, platforms, allow_refusals, order)
    platforms = (platforms,) if isinstance(platforms, str) else platforms
    _check_platforms(program, platforms)
    _check_order(order)
    _refuse_tracers(program)
    chosen = list(map(program.for_platform, platforms or program.platforms))
    held = embedded_constants.Held(context_of_its_own())
    staged = [_staged(each, held, order) for each in chosen]
    module, entries = platform_variants.merged([module for module, _ in staged])
    reached = min((order for _, order in staged if order is not None), default=None)
    if not allow_refusals:
        met = met_in(module)
        _refuse_refusals(program, met, reached, order is None)
        _refuse_missing(program, met, reached)
    description = _describe(program, rule_inventory(module))
    description["platforms"] = list(platforms or program.platforms)
    around = program.rules.around(program._environment)  # of its rules as well
    if around.axes:
        description[_meshes.METADATA] = around.axes
    if reached is not None:
        description[ORDER] = reached
    if around.has_lost_rules:
        description[LOST_RULES] = True
    if len(entries) > 1:
        description[platform_variants.METADATA] = entries
    if checkpoints := vhlo_gaps.take_checkpoints(module):
        description[vhlo_gaps.CHECKPOINTS] = checkpoints
    vhlo_gaps.wrap_chlo(module)
    vhlo_gaps.drop_sharding_hints(module)
    _refuse_other_dialects(module)
    with as_ours():
        embedding = embedded_constants.Embedding.of(program.constants, module, held.arrays)
        return container.sealed(module, embedding, description, target)


def _staged(
    program: Program, held: embedded_constants.Held, order: int | None
) -> tuple[ir.Module, int | None]:
    """Copy the module, with all of its rules, into a context that is dropped when the file is made.

    Also return how often it can be differentiated; None is any number of times.

    Large constants of the rules are its resources, which share the memory of their arrays.

    Raises: what says that the module cannot run in another process, or at all.
    """
    container.refuse_callbacks(program.module)
    as_run(program.module)
    module = held.copy(program.module)
    rules = program.rules
    arguments = positions_by_argument(program.in_tree, len(program.constants))
    with rules.lowering(held.lowering_of(rules)):
        order = rules.stage_all(module, order, arguments)
    container.refuse_callbacks(module)
    return module, order


def _refuse_refusals(
    program: Program,
    met: Sequence[Meeting],
    order: int | None,
    of_any_order: bool,
) -> None:
    """Raise MissingRuleError, with the rule's message, for the first needed rule that raises.

    If only derivatives of higher order need such a rule, and the file is for any order, warn.

    Static analysis overestimates which rules a derivative needs, since rules may return tangents
    that are zero. So the program is differentiated. If that succeeds, rules that raise count only
    for calls inside of other rules, and only from the second order on.
    """
    refused = [(each.order(rule), each, rule) for each in met for rule in each.call.refused]
    if refused and _is_differentiable(program):
        deep = [(each.in_rules, each, rule) for _, each, rule in refused]
        refused = [(max(order_of(rule, d), 2), each, rule) for d, each, rule in deep if d]
    refused = [each for each in refused if order is None or each[0] <= order]
    if not refused:
        return
    first = min(order for order, *_ in refused)
    sooner = f"save with order={first - 1}: derivatives up to that order do not ask for it; or "
    _, (call, *_), rule = refused[0]
    count = len({each.call.decomposition for _, each, _ in refused})
    others = f", and those of {count - 1} more" if count > 1 else ""
    said = f"the {rule} rule of `{call.decomposition}` raises{others}: {call.refused[rule]}"
    where = locations.user_line_of(call.op)
    if of_any_order and first > 1:
        warnings.warn(
            f"{said}, for the call at {where}; a derivative of order {first} or more may ask for "
            f"it, and one of the loaded program raises this then; save with order={first - 1} if "
            "nobody needs these, or with allow_refusals=True",
            stacklevel=2,
        )
        return
    do = (
        "save with allow_refusals=True (--allow-refusals in a shell): the file runs, and "
        "raises this where the derivative is asked for; or give the step a rule that does not "
        "raise"
    )
    raise MissingRuleError(said, where=where, do=sooner + do if first > 1 else do)


def _is_differentiable(program: Program) -> bool:
    """Return True if no rule raises for a first derivative with respect to all arguments.

    Forward mode through a backward rule that is not linear does not exist, saved or not.
    """
    try:
        program.vjp()
        with contextlib.suppress(NotLinearError):
            program.jvp()
    except Exception:  # of a user's rule, which may raise anything
        return False
    return True


def _refuse_missing(program: Program, met: Sequence[Meeting], order: int | None) -> None:
    """Raise MissingRuleError if a derivative of the program needs a rule of a call without any.

    Most such calls are needed by no derivative: they are for orders that JAX lacks, or behind
    `stop_gradient`. So the program is differentiated to find out.
    """
    if have_rules(met, order):
        return
    try:
        program.vjp()
    except MissingRuleError as error:
        error.do = (
            f"{error.do}; or save with allow_refusals=True (--allow-refusals in a shell): the file "
            "runs, and has no derivative through this step"
        )
        raise
    except Exception:
        return  # no derivative for another reason, such as an active bitcast, or a rule that raises


def _describe(program: Program, inventory: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **container.versions(),
        **container.described_trees(program),
        **_describe_types(program),
        "arguments": list(program.arg_paths),
        "rules": inventory,
    }


def _describe_types(program: Program) -> dict[str, Any]:
    """Describe the types of arguments and results, if PRNG keys are among them; else nothing.

    The module does not tell keys from their words.
    """
    sides = {"in_avals": program.in_avals, "out_avals": program.out_avals}
    if not any(map(_avals.is_key, itertools.chain(*sides.values()))):
        return {}
    with as_ours():
        return {side: list(map(_avals.describe, avals)) for side, avals in sides.items()}


def rule_inventory(module: ir.Module) -> list[dict[str, Any]]:
    """List each function with rules once: op, name, rules, and the messages of rules that raise."""
    found: dict[tuple[str, str], set[str]] = {}
    refused: dict[tuple[str, str], dict[str, str]] = {}
    for call in ops.walk_calls(module):
        key = call.NAME, call.decomposition
        found.setdefault(key, set()).update(call.symbols)
        if said := call.refused:
            refused.setdefault(key, {}).update(said)
    return [
        {"op": key[0], "function": key[1], "rules": sorted(rules)}
        | ({ops.REFUSED: refused[key]} if key in refused else {})
        for key, rules in sorted(found.items())
    ]


def _symbolic_pieces(program: SymbolicProgram, target: str | None, *others: Any) -> list[Any]:
    if any(others):
        raise ArtifactError(
            "a program with symbolic dimensions is saved with no option but `target`",
            do="leave out platforms, allow_refusals and order: for one platform save "
            "program.for_platform(…), and with the others program.with_shapes(…)",
        )
    with program.settings():
        return save_load.pieces(program, target)


def _check_platforms(program: Program, platforms: Sequence[str] | None) -> None:
    traced = set(program.platforms)
    if platforms is None or set(platforms) <= traced:
        return
    raise ArtifactError(
        f"the program was traced for {', '.join(sorted(traced))}, not for "
        f"{', '.join(sorted(set(platforms) - traced))}",
        do="trace it again with platforms=…",
    )


def _check_order(order: int | None) -> None:
    if order is not None and not (isinstance(order, int) and order >= 1):
        raise ArtifactError(
            f"cannot save for derivatives up to order {order!r}",
            do="leave order= out, or give a number from 1 on",
        )


def _refuse_tracers(program: Program) -> None:
    if any(isinstance(value, jax.core.Tracer) for value in program.constants):
        raise NotPortableError(
            "a program that closes over values of a trace that still goes on cannot be saved",
            where="in pb.trace, called inside of jax.jit or of another transformation",
            do="pass these values as arguments, or trace the program outside",
        )


def _refuse_other_dialects(module: ir.Module) -> None:
    others = runtime_jax.operations_where(module, lambda op: not op.name.startswith(SAVED_DIALECTS))
    if others:
        raise ArtifactError(
            f"`{others[0].name}` has no portable form",
            where=locations.user_line_of(others[0]),
            do="a saved program holds StableHLO and CHLO only; lower this op first",
        )
