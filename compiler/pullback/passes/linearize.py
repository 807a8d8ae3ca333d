"""The pass `linearize`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback._jax import ir
from pullback.autodiff.checks import GO_FORWARD
from pullback.autodiff.functions import split_entry, transpose, with_result_types
from pullback.autodiff.state import Differentiation
from pullback.errors import LeakedValueError, MissingRuleError, NotLinearError
from pullback.ir import build, ops
from pullback.ir.masks import masked
from pullback.ir.regions import terminator
from pullback.passes.differentiating_pass import Derivative, Through


@dataclass(frozen=True)
class Linearize(Derivative):
    """Split the jvp of `entry` into what depends on the point and a linear map.

    Before: `f(x) -> y`. After: `f(x) -> (y, residuals…)` and `@f.linear(residuals…, dx) -> dy`.

    The linear map is the transpose of the backward function of reverse mode, so that both modes
    share their residuals. Where a loop in it seeks its states among checkpoints, the map is a
    linear_call that names the backward function: its transpose, made once more from the loops,
    would keep checkpoints of checkpoints. So it is where that gives cotangents of other types than
    the tangents have, which a transpose of the map would lose.

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
    through: Through = "rules"

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Split reverse mode into forward and backward, and transpose the latter."""
        diff.through_function = self.through == "function"
        backward = split_entry(diff, self.entry, mask, ct_mask)
        cts, residuals = ct_mask.count("1"), len(diff.block(backward).arguments)
        linear = "0" * (residuals - cts) + "1" * cts
        block = diff.block(self.entry)
        tangents = [a.type for a in masked(list(block.arguments)[: len(mask)], mask)]
        outs = [v.type for v in masked(list(terminator(block).operands)[: len(ct_mask)], ct_mask)]
        rounded = with_result_types(diff, backward, tangents)
        try:
            found = transpose(diff, rounded, linear, "1" * mask.count("1"))
        except LeakedValueError:
            raise
        except (NotLinearError, MissingRuleError) as error:  # of a custom_vjp: others are linear
            error.do = GO_FORWARD
            raise
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
