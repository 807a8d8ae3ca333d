"""Make a program of a source, by stages, for each platform that is asked for.

The module for a platform is the source's, after the stages. A batch that only JAX knows is made of
the same: a derivative of a batched function is the batch of its derivatives, once every argument
that is differentiated has a batch axis of its own. So the batched function is traced, and the same
stages run on that. It is for functions with a `custom_vmap`, and for shardings over devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.errors import PullbackError
from pullback.ir.environment import Environment
from pullback.ir.modules import clone
from pullback.ir.symbols import CALL, callee, functions, text_of
from pullback.passes import manager
from pullback.passes.base import Rules
from pullback.passes.differentiating_pass import Derivative
from pullback.passes.entry_edits import Half, ReorderOperands
from pullback.passes.pipelines import Stage as PassOrText
from pullback.passes.transpose import Transpose
from pullback.passes.vmap import VMap
from pullback_runtime._jax import operations_named


class Check:
    """Check, as a stage that changes nothing, that a module for another platform fits."""

    def check(self, lowered: PlatformModule) -> None:
        """Raise PullbackError unless the stages so far have made what the next ones are for."""
        raise NotImplementedError


Stage = PassOrText | Check


@dataclass(frozen=True, eq=False)
class PlatformModule:
    """Hold a module for the platforms that share it, with its rules and surroundings.

    Attributes:
      module: the MLIR module; its entry is `@main`.
      rules: the derivative rules that are not in the module yet.
      environment: what it needs around it, such as devices and callbacks.
    """

    module: ir.Module
    rules: Rules
    environment: Environment

    def after(self, stages: Sequence[Stage]) -> PlatformModule:
        """Return a copy of the module after `stages`."""
        made = dataclasses.replace(self, module=clone(self.module))
        with _jax.working_in(made.module):
            for stage in stages:
                if isinstance(stage, Check):
                    stage.check(made)
                else:
                    manager.run_stages(made.module, (stage,), self.rules)
        rules, environment = self.rules, self.environment
        for _ in filter(_is_derivative, stages):
            rules, environment = rules.of_derivative(), environment.of_derivative()
        return PlatformModule(made.module, rules, rules.around(environment))

    def with_module(self, module: ir.Module) -> PlatformModule:
        """Return what was made of this module by the same rules."""
        return PlatformModule(module, self.rules, self.rules.around(self.environment))

    def is_for(self, platform: str) -> bool:
        """Return True if the module is that of a platform."""
        return platform in self.environment.platforms


def _is_derivative(stage: Stage) -> bool:
    return isinstance(stage, Derivative)


@dataclass(frozen=True, eq=False)
class ModuleSource:
    """Give the modules of a traced function, or of a file.

    Attributes:
      lower: gives the module for a platform, or None; None for a module that has no other form.
      closed: the function as a jaxpr, before any rule was kept.
    """

    lower: Callable[[str], PlatformModule | None] | None = None
    closed: Any = None

    @staticmethod
    def of(known: Sequence[PlatformModule], other: ModuleSource | None = None) -> ModuleSource:
        """Return the source that has these modules, and those that another one gives."""
        other = other or NO_SOURCE

        def lower(platform: str) -> PlatformModule | None:
            found = next((each for each in known if each.is_for(platform)), None)
            return other.lower(platform) if found is None and other.lower else found

        return ModuleSource(lower, other.closed)


NO_SOURCE = ModuleSource()
"""Stand for the source of a module that cannot be made again."""


def make(source: ModuleSource, stages: Sequence[Stage], platform: str) -> PlatformModule | None:
    """Return the module for a platform; None if the source has none for it."""
    lowered = source.lower and source.lower(platform)
    return lowered and lowered.after(stages)


# ------------------------------------------------------------------- halves of a derivative


@dataclass(frozen=True, eq=False)
class Fits(Check):
    """Check that the halves of a derivative fit those for other platforms.

    Either may run where the other does not: then it has the residuals of the other platform.

    Attributes:
      second: the stages that make the linear half.
      linear: this half where the derivative was made.
      platforms: where it was.
    """

    second: tuple[Stage, ...]
    linear: PlatformModule
    platforms: tuple[str, ...]

    def check(self, lowered: PlatformModule) -> None:
        """Raise PullbackError if the linear half is another function, of other residuals."""
        if {*lowered.environment.platforms} <= {*self.platforms}:
            return
        if _called(lowered.after(self.second).module) != _called(self.linear.module):
            raise other_residuals(self.linear, lowered)


def other_residuals(half: PlatformModule, other: PlatformModule) -> PullbackError:
    """Return the error for half of a derivative that would not fit the half on another platform."""
    names = [", ".join(each.environment.platforms) for each in (half, other)]
    return PullbackError(
        f"a derivative in two parts, as of jax.grad, pb.vjp and pb.linearize, was made for "
        f"{names[0]}: for {names[1]} it is another function, which needs other residuals",
        do=f"make it where JAX's default device is one of {names[1]}, under jax.default_device; or "
        "take pb.grad or pb.jvp, which are made as a whole",
    )


def _called(module: ir.Module) -> dict[str, str]:
    """Return the texts of the functions that calls reach, by name.

    Those that only composites refer to, which differ by platform, are left out.
    """
    table, found, names = functions(module), dict[str, str](), ["main"]
    while names:
        if (name := names.pop()) not in found:
            found[name] = text_of(table[name])
            names += map(callee, operations_named(table[name].operation, CALL))
    return found


# ------------------------------------------------------------------------- made for a batch


def is_remade(stages: Sequence[Stage]) -> bool:
    """Return True if `stages` make a batch of what they made, of a batched source."""
    return not any(isinstance(stage, (Half, VMap)) for stage in stages)


def to_batch(
    operands: int, stages: Sequence[Stage], in_axes: Sequence[int | None]
) -> tuple[list[bool], set[int]]:
    """Return which operands need a batch axis, and which of the source's `operands` then have one.

    `in_axes` says which operands, after the stages, have one.
    """
    origins, differentiated = _origins(operands, stages)
    flags = [
        axis is not None or origin is None or origin in differentiated
        for axis, origin in zip(in_axes, origins, strict=True)
    ]
    given = {each for each, flag in zip(origins, flags, strict=True) if flag}
    return flags, (given | differentiated) - {None}  # type: ignore[return-value]


def _origins(operands: int, stages: Sequence[Stage]) -> tuple[list[int | None], set[int | None]]:
    """Return each operand's position in the source, and those that are differentiated by.

    A tangent or cotangent has the position None.
    """
    origins: list[int | None] = list(range(operands))
    differentiated = set[int | None]()
    for stage in stages:
        if isinstance(stage, Derivative):
            by = set(stage.wrt or ())
            differentiated |= {origins[i] for i in by}
            if isinstance(stage, Transpose):
                origins = [origin for i, origin in enumerate(origins) if i not in by]
        elif isinstance(stage, ReorderOperands):  # new operands come after the old ones
            origins = [origins[i] if i < len(origins) else None for i in stage.order]
    return origins, differentiated
