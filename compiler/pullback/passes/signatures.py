"""The arguments and results of functions: masks of positions, types, attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pullback import _jax
from pullback._errors import NotDifferentiableError
from pullback._jax import ir
from pullback.dialect.build import hides_inexact, inexact
from pullback.dialect.masks import mask_of
from pullback.frontend.locations import user_line
from pullback.passes.regions import terminator
from pullback.passes.symbols import symbol

if TYPE_CHECKING:
    from pullback.passes.differentiation import Differentiation


def wrt_mask(diff: Differentiation, entry: str, wrt: Sequence[int] | None) -> str:
    """The mask of the arguments at positions `wrt`; of all inexact ones if None."""
    return _position_mask(diff, entry, diff.block(entry).arguments.types, wrt, "argument")


def ct_mask_of(diff: Differentiation, entry: str, outs: Sequence[int] | None) -> str:
    """The mask of the results at positions `outs`; of all inexact ones if None."""
    types = [v.type for v in terminator(diff.block(entry)).operands]
    return _position_mask(diff, entry, types, outs, "result")


def _position_mask(
    diff: Differentiation,
    entry: str,
    types: Sequence[Any],
    positions: Sequence[int] | None,
    what: str,
) -> str:
    def refusal(message: str, do: str) -> NotDifferentiableError:
        where = user_line(diff.function(entry).location)
        return NotDifferentiableError(message, where=where, do=do)

    if positions is None:
        flags = [inexact(t) for t in types]
        for i, type in enumerate(types):
            if not flags[i] and hides_inexact(type):
                raise refusal(
                    f"{what} of `@{entry}` at position {i} has type {type}, "
                    "in which no derivative has a place",
                    "use one argument or result of tensor type for each array in it",
                )
        return mask_of(flags)
    chosen = frozenset(positions)
    if len(chosen) < len(positions):
        raise refusal(
            f"{what} of `@{entry}` named twice: {','.join(map(str, positions))}",
            "name each position once",
        )
    if list(positions) != sorted(positions):
        raise refusal(
            f"{what}s of `@{entry}` out of order: {','.join(map(str, positions))}",
            f"name them in ascending order: derivatives come in the order of the {what}s",
        )
    for i in positions:
        if not 0 <= i < len(types):
            raise refusal(
                f"no {what} of `@{entry}` at position {i}: there are {len(types)}",
                f"name positions from 0 to {len(types) - 1}",
            )
        if not inexact(types[i]):
            raise refusal(
                f"{what} of `@{entry}` at position {i} has type {types[i]}, "
                "which has no derivative",
                "name positions of float or complex type only",
            )
    return mask_of(i in chosen for i in range(len(types)))


def function_type(arguments: Sequence[Any], results: Sequence[Any]) -> Any:
    return ir.TypeAttr.get(
        ir.FunctionType.get(list(arguments), list(results), context=_jax.context())
    )


def set_signature(
    function: Any, arguments: Sequence[Any] | None = None, results: Sequence[Any] | None = None
) -> None:
    """Make a function's type agree with its entry block and its return, of which one may know.

    What is added has no attributes. An argument of another type than the result that it names as
    its alias does not name it any more, and what the module says of layouts of @main goes.
    """
    block = function.regions[0].blocks[0]
    arguments = block.arguments.types if arguments is None else arguments
    results = [v.type for v in terminator(block).operands] if results is None else results
    old, new = function.attributes["function_type"], function_type(arguments, results)
    function.attributes["function_type"] = new
    for name, count in (("arg_attrs", len(arguments)), ("res_attrs", len(results))):
        if name in function.attributes:
            attrs = list(ir.ArrayAttr(function.attributes[name]))[:count]
            empty = ir.DictAttr.get({}, context=_jax.context())
            attrs += [empty] * (count - len(attrs))
            function.attributes[name] = ir.ArrayAttr.get(attrs, context=_jax.context())
    if old != new and symbol(function) == "main":
        module = function.parent
        for name in dict(module.attributes.items()):
            if name.startswith(OF_ENTRY):
                del module.attributes[name]
    _rename_aliases(function, lambda i, k: k if arguments[i] in results[k : k + 1] else None)


LAYOUT = "mhlo.layout_mode"
OF_ENTRY = (
    "mhlo.input_output_alias",
    "mhlo.spmd_output_sharding",
    "mhlo.spmd_parameters_sharding",
    "mhlo.xla_entry_computation_",
    "stablehlo.spmd_output_sharding",
    "stablehlo.spmd_parameters_sharding",
)
"""How attributes of a module begin that are about the arguments and results of @main."""


def forget_layouts(function: Any) -> None:
    """Takes layouts off arguments and results: they are of fewer axes than a batch has."""
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            found = map(_without_layout, ir.ArrayAttr(function.attributes[name]))
            function.attributes[name] = ir.ArrayAttr.get(list(found), context=_jax.context())


def _without_layout(attrs: Any) -> Any:
    named = {n.name: n.attr for n in ir.DictAttr(attrs)}
    if LAYOUT not in named or ir.StringAttr(named[LAYOUT]).value in ("default", "auto"):
        return attrs
    del named[LAYOUT]
    return ir.DictAttr.get(named, context=_jax.context())


ALIAS = "tf.aliasing_output"


def _rename_aliases(function: Any, rename: Callable[[int, int], int | None]) -> None:
    """Let an argument i whose alias was the result k name another one, or none."""
    context, attributes = _jax.context(), function.attributes
    if "arg_attrs" not in attributes:
        return
    found = []
    for i, of_one in enumerate(ir.ArrayAttr(attributes["arg_attrs"])):
        named = {n.name: n.attr for n in ir.DictAttr(of_one)}
        if ALIAS in named:
            old = ir.IntegerAttr(named.pop(ALIAS))
            new = rename(i, old.value)
            if new is not None:
                named[ALIAS] = ir.IntegerAttr.get(old.type, new)
        found.append(ir.DictAttr.get(named, context=context))
    attributes["arg_attrs"] = ir.ArrayAttr.get(found, context=context)


def follow_arguments(function: Any, order: Sequence[int]) -> None:
    """Let the attributes of a function's arguments follow them: the one at `order[i]` is at i."""
    _follow(function, "arg_attrs", order)


def follow_results(function: Any, order: Sequence[int]) -> None:
    """The same for its results, of which some may go; and for what names one of them."""
    _follow(function, "res_attrs", order)
    place = {old: new for new, old in reversed(list(enumerate(order)))}
    _rename_aliases(function, lambda _, k: place.get(k))


def _follow(function: Any, name: str, order: Sequence[int]) -> None:
    if name in function.attributes:
        old = list(ir.ArrayAttr(function.attributes[name]))
        found = ir.ArrayAttr.get([old[i] for i in order], context=_jax.context())
        function.attributes[name] = found


def lose_arguments(function: Any, mask: str) -> None:
    """Let the attributes of a function's arguments follow them: those in the mask go.

    Results are other ones then, so theirs go too, and what names one of them.
    """
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    follow_arguments(function, [i for i, m in enumerate(mask) if m != "1"])
    _rename_aliases(function, lambda i, k: None)
