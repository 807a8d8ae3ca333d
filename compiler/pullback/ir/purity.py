"""Tell which values are used, which unused ops can be erased, and what is a callback."""

from __future__ import annotations

from dataclasses import dataclass, field

from pullback._jax import ir
from pullback.ir.build import flag
from pullback.ir.regions import MANUAL, TERMINATORS
from pullback.ir.symbols import CALL, FUNC, is_declaration, search
from pullback.ir.traits import OBSERVED
from pullback_runtime.files import _custom_calls

PLACEMENT = "annotate_device_placement"
"""The custom call that moves a value to another memory, such as that of the host."""

ANNOTATIONS = frozenset({"Sharding", "LayoutConstraint", PLACEMENT, "xla.sdy.FuncResultSharding"})
"""Custom calls that say how a value is laid out over devices or in memory, and do nothing else."""

_KEPT_APART = ANNOTATIONS | {"tpu_custom_call"}
"""Those of which JAX says so only to keep XLA from taking them away, or from merging kernels."""


_PURE = {CALL, FUNC, MANUAL, "sdy.sharding_constraint", *TERMINATORS}


def target_of(op: ir.Operation) -> str | None:
    """Return the target of a custom call; None for every other op."""
    if op.name != "stablehlo.custom_call":
        return None
    return ir.StringAttr(op.attributes["call_target_name"]).value


def callback(op: ir.Operation) -> str | None:
    """Return the target of a custom call that needs this process, such as a callback; else None."""
    target = target_of(op)
    return target if target is not None and _custom_calls.is_of_process(target) else None


def is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None


def acts(op: ir.Operation) -> bool:
    """Return True if an op has an effect: the outside notices that it runs, or it the outside."""
    target = target_of(op)
    if target is None:
        return op.name in OBSERVED
    return target not in _KEPT_APART and flag(op, "has_side_effect")


def differs_again(op: ir.Operation) -> bool:
    """Return True if another run of an op may give other results, and something uses them."""
    return acts(op) and any(map(is_used, op.results))


@dataclass
class Purity:
    """An analysis of which ops can be erased when their results are unused; memoizes functions."""

    table: dict[str, ir.Operation]
    known: dict[str, bool] = field(default_factory=dict)

    def is_pure(self, root: ir.Operation) -> bool:
        """Return True if nothing at or below `root` has an effect besides its results."""
        found, names = search(root, self._is_impure_alone)
        return found is None and all(map(self._is_pure_function, names))

    @staticmethod
    def _is_impure_alone(op: ir.Operation) -> bool:
        name = op.name
        if name == "stablehlo.custom_call":
            return acts(op)
        if name in OBSERVED:
            return True
        return not name.startswith(("stablehlo.", "chlo.")) and name not in _PURE

    def _is_pure_function(self, name: str) -> bool:
        """Return True if a function is pure; one in a cycle is not, for it may not end."""
        if name not in self.known:
            self.known[name] = False
            function = self.table.get(name)
            if function is not None and not is_declaration(function):
                self.known[name] = self.is_pure(function)
        return self.known[name]
