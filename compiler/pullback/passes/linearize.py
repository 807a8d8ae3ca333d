"""The pass `linearize`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback._jax import ir
from pullback.autodiff.forward import jvp_in_place
from pullback.autodiff.functions import split_entry, transpose, with_result_types
from pullback.autodiff.state import Differentiation
from pullback.errors import NotLinearError, PullbackError
from pullback.ir import build, ops
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.masks import masked
from pullback.ir.modules import clone, replace_content
from pullback.ir.regions import replace_terminator, terminator
from pullback.ir.signatures import keep_results, set_signature
from pullback.passes.base import Rules
from pullback.passes.differentiating_pass import Derivative


@dataclass(frozen=True)
class Linearize(Derivative):
    """Split the jvp of `entry` into what depends on the point and a linear map.

    Before: `f(x) -> y`. After: `f(x) -> (y, residuals…)` and `@f.linear(residuals…, dx) -> dy`.

    Where both modes take the same rules, the linear map is the transpose of the backward function
    of reverse mode, and shares its residuals. Where a loop in it seeks its states among
    checkpoints, the map is a linear_call that names the backward function: its transpose, made once
    more from the loops, would keep checkpoints of checkpoints. So it is where that gives cotangents
    of other types than the tangents have, which a transpose of the map would lose.

    Otherwise the map is forward mode as a whole, and its residuals are the arguments: where a call
    has a rule for each mode, there is no reverse mode, or it cannot be transposed.

    Attributes:
      entry: the function to linearize, in place.
      wrt: positions of the arguments that have a tangent; all inexact ones if not given.
      outs: positions of the results that have a tangent; all inexact ones if not given.
      through: as for `jvp`.
    """

    name: ClassVar[str] = "linearize"
    entry: str = "main"
    wrt: tuple[int, ...] | None = None
    outs: tuple[int, ...] | None = None
    through: str = "rules"

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Linearize `entry` in place. Raises: as `jvp`."""
        options = self.entry, self.wrt, self.outs, self.through
        if self.through == "function":  # which forward mode checks, call by call
            _ByForwardMode(*options).run(module, rules)
            return
        tried = clone(module)  # an error leaves a module half done
        try:
            _ByReverseMode(*options).run(tried, rules)
        except PullbackError:
            _ByForwardMode(*options).run(module, rules)
        else:
            replace_content(module, tried)


class _ByReverseMode(Linearize):
    """Linearize by reverse mode, where that takes the rules that forward mode takes."""

    run = Derivative.run

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Split reverse mode into forward and backward, and transpose the latter."""
        diff.through = self.through
        backward = split_entry(diff, self.entry, mask, ct_mask)
        if diff.has_two_rules:
            raise NotLinearError("a call has a rule for each mode", do="take forward mode")
        cts, residuals = ct_mask.count("1"), len(diff.block(backward).arguments)
        linear = "0" * (residuals - cts) + "1" * cts
        block = diff.block(self.entry)
        tangents = [a.type for a in masked(list(block.arguments)[: len(mask)], mask)]
        outs = [v.type for v in masked(list(terminator(block).operands)[: len(ct_mask)], ct_mask)]
        rounded = with_result_types(diff, backward, tangents)
        found = transpose(diff, rounded, linear, "1" * mask.count("1"))
        name = with_result_types(diff, found, outs)
        for each, kept in ((rounded, backward), (found, name)):
            if each != kept:
                diff.drop_function(each)
        names_backward = diff.has_checkpoints or rounded != backward
        if names_backward and cts and "1" in mask:
            diff.hide(backward)
            name = _with_transpose(diff, name, backward, residuals - cts)
        else:
            diff.drop_function(backward)
        diff.expose(name, f"{self.entry}.linear")


class _ByForwardMode(Linearize):
    """Linearize by forward mode alone: the residuals are the arguments."""

    run = Derivative.run

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Return the arguments from the entry, and the tangents alone from a copy."""
        diff.through = self.through
        name = diff.clone_function(self.entry, f"{self.entry}.linear")
        block = diff.block(self.entry)
        outs = list(terminator(block).operands)
        replace_terminator(block, [*outs, *block.arguments])
        set_signature(diff.function(self.entry))
        jvp_in_place(diff, name, mask, instantiate=True)
        inexact = [i for i, v in enumerate(outs) if build.inexact(v.type)]
        wanted = [i for i, m in enumerate(ct_mask) if m == "1"]
        keep_results(diff.function(name), [len(outs) + inexact.index(i) for i in wanted])
        erase_dead_ops(diff.block(name), diff.functions)
        diff.expose(name, f"{self.entry}.linear")


def _with_transpose(diff: Differentiation, name: str, backward: str, residuals: int) -> str:
    """Add a function that calls @name as a linear_call whose transpose is @backward."""
    function, body = diff.function(name), diff.block(name)
    arguments = [a.type for a in body.arguments]
    outs = [v.type for v in terminator(body).operands]
    calling, block = diff.add_function(f"{name}.call", arguments, outs, function.location)
    with build.inserting(ir.InsertionPoint(block), function.location):
        rule = {"num_residuals": residuals, "transpose": backward}
        mapped = ops.call(ops.LinearCall, name, block.arguments, outs, **rule)
        build.emit("func.return", (), list(mapped.results))
    return calling
