"""Exchange with `jax.export`, both ways."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from pullback import _jax
from pullback._jax import ir
from pullback.artifact import high_level
from pullback.artifact.errors import ArtifactError, as_ours
from pullback_runtime import _artifact
from pullback_runtime import _jax as runtime_jax

if TYPE_CHECKING:
    from pullback._program import Program


def to_exported(program: Program, *, platforms: Sequence[str] | None = None) -> Any:
    """A `jax.export.Exported` of the program; its own `vjp` goes through our rules.

    Args:
      platforms: as for `jax.export.export`; by default, the platform of this process.
    """
    args, kwargs = jax.tree.unflatten(program.in_tree, program.in_avals)
    function = _for_each_platform(program) if program.variants else program
    export = jax.export.export(jax.jit(function), platforms=platforms)
    return export(*args, **kwargs)


def _for_each_platform(program: Program) -> Any:
    """A function that runs the variant of the platform that it is lowered for."""
    alone = {name: program.for_platform(name) for name in program.platforms}
    return lambda *args, **kwargs: jax.lax.platform_dependent(
        *args, **{name: functools.partial(each, **kwargs) for name, each in alone.items()}
    )


def from_exported(exported: Any) -> Program:
    """The program of a `jax.export.Exported`, to be differentiated through its StableHLO.

    Custom rules are not in there: `jax.export` drops them.
    """
    with as_ours():
        return from_opened(_artifact.open_exported(exported, _jax.context()))


def from_opened(opened: _artifact.Opened) -> Program:
    """The program of an exported function whose module is open."""
    from pullback.artifact.read import as_program

    exported = opened.exported
    _refuse_special_calls(exported)
    _add_dropped_arguments(opened.module, exported)
    high_level.restore(opened.module)
    return as_program(opened.module, opened.trees(), {"platforms": list(exported.platforms)})


def _refuse_special_calls(exported: Any) -> None:
    """Refuses modules whose `@main` takes more than the function's arguments."""
    reasons = {
        "it was exported for several platforms": len(exported.platforms) > 1,
        "it has ordered effects": bool(exported.ordered_effects),
        "it has symbolic dimensions": any(
            not isinstance(size, int) for aval in exported.in_avals for size in aval.shape
        ),
        "it is for several devices": exported.nr_devices > 1,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ArtifactError(
                f"cannot make a program of {exported.fun_name!r}: {reason}",
                do="export it for one platform and device, with static shapes and no effects",
            )


def _add_dropped_arguments(module: ir.Module, exported: Any) -> None:
    """`jax.export` drops arguments that nothing uses; a program takes them all.

    A block takes new arguments at its end only: all are made anew, and the old ones removed.
    """
    kept = list(exported.module_kept_var_idx)
    if len(kept) == len(exported.in_avals):
        return
    function = ir.SymbolTable(module.operation)["main"]
    block = function.regions[0].blocks[0]
    old = dict(zip(kept, block.arguments, strict=True))
    with ir.Location.unknown(module.context):
        for position, aval in enumerate(exported.in_avals):
            kind = ir.RankedTensorType.get(aval.shape, runtime_jax.element_type(aval.dtype))
            new = block.add_argument(kind, ir.Location.unknown())
            if position in old:
                old[position].replace_all_uses_with(new)
        for _ in kept:
            block.erase_argument(0)
        inputs = [argument.type for argument in block.arguments]
        kind = ir.FunctionType.get(inputs, function.type.results)
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        if "arg_attrs" in function.attributes:
            del function.attributes["arg_attrs"]
