"""Convert programs to and from `jax.export`."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback import _jax
from pullback._jax import dimensions, ir, prng_keys
from pullback._jax.tangent_types import is_inexact
from pullback.files import give_rules, loaded_program, vhlo_gaps
from pullback.files.errors import ArtifactError, as_ours
from pullback.files.jax_export import match_expansions, match_library_calls
from pullback.files.symbolic import refine_types
from pullback.frontend.trace import trace
from pullback.ir import build, lost_rules
from pullback.ir.mlir_passes import run_stock
from pullback.ir.modules import clone
from pullback.ir.regions import replace_op
from pullback.ir.signatures import drop_arguments, keep_arguments
from pullback.ir.symbols import erase_unreachable
from pullback.passes.pipelines import Stage
from pullback.program.record import Interface, together
from pullback.program.symbolic import StoredForms, SymbolicProgram
from pullback.program.symbolic_in_jax import differentiable
from pullback_runtime import _jax as runtime_jax
from pullback_runtime._jax import operations_named
from pullback_runtime.call import _meshes
from pullback_runtime.call._callable import argument_paths
from pullback_runtime.files import _artifact, _symbolic

if TYPE_CHECKING:
    from pullback.program.program import Program


def to_exported(program: Program, *, platforms: Sequence[str] | None = None) -> Any:
    """Export a program as a `jax.export.Exported`, whose own `vjp` goes through our rules.

    Args:
      platforms: as for `jax.export.export`; by default, the platform of this process.
    """
    args, kwargs = jax.tree.unflatten(program.in_tree, program.in_avals)
    function = _for_each_platform(program) if program.variants else program
    export = jax.export.export(jax.jit(function), platforms=platforms)
    return export(*args, **kwargs)


def _for_each_platform(program: Program) -> Any:
    """Return a function that runs the variant of the platform that it is lowered for.

    So each variant has its own residuals.
    """
    alone = {name: program.for_platform(name) for name in program.platforms}
    return lambda *args, **kwargs: jax.lax.platform_dependent(
        *args, **{name: functools.partial(each, **kwargs) for name, each in alone.items()}
    )


def from_exported(exported: Any) -> Any:
    """Make a program of a `jax.export.Exported`, to be differentiated through its StableHLO.

    Custom rules are not in there: `jax.export` drops them. The first derivative that the export has
    itself becomes the rule of the program, so that this one honours them.

    Returns: a Program; with symbolic dimensions a SymbolicProgram.

    Raises:
      ArtifactError: it is not an export, or has ordered effects.
    """
    if not isinstance(exported, jax.export.Exported):
        raise ArtifactError(
            f"cannot make a program of {type(exported).__name__}",
            do="pass a jax.export.Exported; pb.load reads what it has serialised",
        )
    return _from(exported, None)


def _from(exported: Any, order: int | None) -> Any:
    """Make a program of an export with `order` derivatives; None if JAX can make any number."""
    with as_ours():
        opened = _artifact.open_exported(exported, _jax.context())
        if order is None:
            return _program_of(opened, order=1 if _has_vjp(exported) else 0, endless=True)
        return _program_of(opened, order)


def from_opened(opened: _artifact.Opened, rules: Mapping[str, Callable[..., Any]]) -> Any:
    """Make a program of an export from a file, with as many derivatives as the file has.

    Args:
      rules: of functions and composites of an export without derivatives, by name.
    """
    exported = opened.exported
    order = _order(exported)
    if rules and (order or any(map(_symbolic.is_symbolic, exported.in_avals))):
        what = "derivatives, which have its rules" if order else "symbolic dimensions"
        do = "leave out rules=" if order else "export it for the sizes that it is called with"
        raise ArtifactError(
            f"rules= is for exports without {what.partition(',')[0]}, and this one has {what}",
            do=do,
        )
    return _program_of(opened, order, rules=rules)


def _has_vjp(exported: Any) -> bool:
    """Return True if JAX can differentiate an export.

    It cannot if there is a `while`, say, which our passes can differentiate.
    """
    try:
        return exported.has_vjp() and exported.vjp() is not None
    except Exception:  # whatever JAX or a rule of the user's raises
        return False


def _program_of(
    opened: _artifact.Opened,
    order: int,
    endless: bool = False,
    is_rule: bool = False,
    rules: Mapping[str, Callable[..., Any]] = types.MappingProxyType({}),
) -> Any:
    """Make a program with the export's own derivatives up to `order` as rules.

    With `endless`, JAX can make derivatives of any order of the export; `rules` are given to its
    functions and composites.
    """
    exported = opened.exported
    _refuse_special_calls(opened)
    if any(map(_symbolic.is_symbolic, exported.in_avals)):
        return _with_symbols(exported, None if endless else order)
    lost_after = None if is_rule else order
    modules = {tuple(exported.platforms): opened.module}
    if len(exported.platforms) > 1:
        numbered = enumerate(exported.platforms)
        modules = {(name,): _for_platform(opened.module, number) for number, name in numbered}
    lost_at = []
    for module in modules.values():
        of_others = lost_rules.functions_of_others(module)
        _refine(module)
        if len(modules) > 1:
            _take_branches(module)
        _add_dropped_arguments(module, exported)
        vhlo_gaps.restore(module)
        if rules:
            opened = give_rules.give(opened, module, rules)
        match_expansions.put_back(module)
        match_library_calls.put_back(module)
        lost_at.append(lost_rules.found_in(module, of_others))
    variants = (
        loaded_program.variant(
            opened,
            each,
            names,
            lost_after=None if order else lost_after,
            lost_at=calls,
        )
        for (names, each), calls in zip(modules.items(), lost_at, strict=True)
    )
    program = together(list(variants))
    return _with_derivative(program, exported, order, lost_after) if order else program


def _refine(module: ir.Module) -> None:
    """Infer, in place, the types in functions that were exported with symbolic dimensions."""
    if refine_types.take_polymorphism(module):
        with _jax.working_in(module):
            run_stock(module, "canonicalize")  # sizes depend on the number of a platform
            vhlo_gaps.restore(module)  # StableHLO refines ops of CHLO, and no composites
            refine_types.refine(module)
        refine_types.check(module)


def _with_derivative(
    program: Program, exported: Any, order: int, lost_after: int | None
) -> Program:
    """Give a program the derivatives of its export as its rules for reverse mode."""
    opened = _artifact.open_exported(exported.vjp(), _jax.context())
    backward, names = _program_of(opened, order - 1, is_rule=True), exported.platforms
    if not program.variants:
        return _with_rule(program, backward, lost_after)
    alone = ((program.for_platform(n), backward.for_platform(n)) for n in names)
    return together([_with_rule(*each, lost_after) for each in alone])


def _with_rule(program: Program, backward: Program, lost_after: int | None) -> Program:
    """Return a program that calls `program`, with `backward` as the rule of the call.

    `backward` takes the leaves of the arguments, then cotangents of all results.
    """

    def primal(*leaves: Any) -> tuple[Any, ...]:
        args, kwargs = jax.tree.unflatten(program.in_tree, leaves)
        return tuple(jax.tree.leaves(program(*args, **kwargs)))

    def rule(*values: Any) -> list[Any]:
        leaves, cotangents = values[: len(program.in_avals)], iter(values[len(program.in_avals) :])
        filled = [
            next(cotangents) if is_inexact(aval) else jnp.zeros(aval.shape, bool)  # a float0
            for aval in program.out_avals
        ]
        found = zip(program.in_avals, backward(*leaves, *filled), strict=True)
        return [cotangent for aval, cotangent in found if is_inexact(aval)]

    flat = differentiable(primal, rule)

    def function(*args: Any, **kwargs: Any) -> Any:
        return jax.tree.unflatten(program.out_tree, flat(*jax.tree.leaves((args, kwargs))))

    args, kwargs = jax.tree.unflatten(program.in_tree, program.in_avals)
    traced = trace(function, platforms=program.platforms)(*args, **kwargs)
    interface = dataclasses.replace(traced._interface, arg_paths=program.arg_paths)
    environment = dataclasses.replace(traced.environment, lost_after=lost_after)
    lowered = dataclasses.replace(traced._lowered, environment=environment)
    return dataclasses.replace(traced, interface=interface, _lowered=lowered)


def _refuse_special_calls(opened: _artifact.Opened) -> None:
    """Raise ArtifactError for an export for devices without a mesh, or with ordered effects."""
    exported = opened.exported
    devices = _meshes.size(_meshes.axes_of({}, opened.module))
    reasons = {
        "it has ordered effects": bool(exported.ordered_effects),
        "it is for several devices and names no mesh": exported.nr_devices not in (1, devices),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ArtifactError(
                f"cannot make a program of {exported.fun_name!r}: {reason}",
                do="export it for one device, without effects",
            )


def _with_symbols(exported: Any, order: int | None) -> SymbolicProgram:
    ins, outs = (
        tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals)
        for avals in (exported.in_avals, exported.out_avals)
    )
    paths = argument_paths(jax.tree.unflatten(exported.in_tree, ins))
    interface = Interface(exported.in_tree, exported.out_tree, ins, outs, paths)

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
        return jax.tree.leaves(exported.call(*args, **kwargs))

    def member(values: Mapping[str, int]) -> Program:
        sized = map(functools.partial(dimensions.sized, values), ins)
        args, kwargs = jax.tree.unflatten(exported.in_tree, sized)
        export = jax.export.export(
            jax.jit(exported.call),
            platforms=exported.platforms,
            disabled_checks=exported.disabled_safety_checks,
        )
        return _from(export(*args, **kwargs), order)

    written = Exports(exported, int(_has_vjp(exported)) if order is None else order)
    return SymbolicProgram(
        interface, flat, exported.platforms, member, order, StoredForms(exports=written)
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Exports:
    """An export with symbolic dimensions, from which a program is made once these are given.

    Attributes:
      exported: the export.
      order: how many derivatives the export has itself.
      stages: the passes that derive the program from it.
    """

    exported: Any
    order: int
    stages: tuple[Stage, ...] = ()

    @property
    def chain(self) -> list[Any]:
        """The export and its derivatives, each of the one before."""
        found = [self.exported]
        for _ in range(self.order):
            found.append(found[-1].vjp())
        return found

    @staticmethod
    def of(chain: Sequence[Any], stages: tuple[Stage, ...]) -> Exports:
        """Rebuild an export from its chain of derivatives, as read from a file."""
        exported = chain[-1]
        for each in reversed(chain[:-1]):
            exported = dataclasses.replace(each, _get_vjp=lambda _, vjp=exported: vjp)
        return Exports(exported, len(chain) - 1, stages)

    def program(
        self, platforms: Sequence[str], interface: Interface, values: Mapping[str, int]
    ) -> Program:
        """Return the program for these values of the symbols."""
        found = _with_symbols(self.exported, self.order).at(values)
        program = together(map(found.for_platform, platforms))
        if self.stages:
            return program._after(self.stages, interface)
        return dataclasses.replace(program, interface=interface)


def _order(exported: Any) -> int:
    """Return how often an export can be differentiated by the derivatives in it."""
    return 1 + _order(exported.vjp()) if exported.has_vjp() else 0


def _for_platform(module: ir.Module, number: int) -> ir.Module:
    """Copy a module for one platform.

    The first argument of an export for several platforms is the number of one.
    """
    copy = clone(module)
    function = ir.SymbolTable(copy.operation)["main"]
    block = function.regions[0].blocks[0]
    with ir.Location.unknown(copy.context), ir.InsertionPoint.at_block_begin(block):
        index = runtime_jax.ir_constant(np.int32(number))
        block.arguments[0].replace_all_uses_with(index)
        drop_arguments(function, [block.arguments[0]])
    return copy


def _take_branches(module: ir.Module) -> None:
    """Replace each `case` of known index with the ops of that branch.

    A platform's number is such an index. Branches for other platforms may have no derivative.
    """
    for case in operations_named(module, "stablehlo.case"):
        number = build.one_number(case.operands[0])
        if number is None:
            continue
        taken = case.regions[number if 0 <= number < len(case.regions) else -1].blocks[0]
        *body, end = taken.operations
        for op in body:
            op.operation.move_before(case)
        replace_op(case, list(end.operands))
    erase_unreachable(module)


def _add_dropped_arguments(module: ir.Module, exported: Any) -> None:
    """Add the unused arguments that `jax.export` has dropped: a program takes them all."""
    kept = exported.module_kept_var_idx
    if len(kept) == len(exported.in_avals):
        return
    function = ir.SymbolTable(module.operation)["main"]
    block = function.regions[0].blocks[0]
    place = {position: i for i, (position, _) in enumerate(zip(kept, block.arguments, strict=True))}
    with ir.Location.unknown(module.context) as loc:
        for position, aval in enumerate(map(prng_keys.physical_type, exported.in_avals)):
            if position not in place:
                place[position] = len(place)
                kind = ir.RankedTensorType.get(aval.shape, runtime_jax.element_type(aval.dtype))
                block.add_argument(kind, loc)
    keep_arguments(function, [place[position] for position in range(len(place))])
