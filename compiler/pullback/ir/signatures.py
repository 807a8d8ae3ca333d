"""Change the arguments and results of functions, together with their types and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.purity import is_used
from pullback.ir.regions import replace_terminator, terminator
from pullback.ir.symbols import symbol
from pullback_runtime.ir._erasure import erase_arguments


def function_type(arguments: Sequence[Any], results: Sequence[Any], context: Any) -> Any:
    kind = ir.FunctionType.get(list(arguments), list(results), context=context)
    return ir.TypeAttr.get(kind, context=context)


def keep_arguments(function: Any, order: Sequence[int]) -> None:
    """Keep only the arguments at these positions, in this order, with their attributes.

    No result may depend on the others. Ops that still take one, such as calls that have other
    results too, get zeros instead.
    """
    block = function.regions[0].blocks[0]
    old = list(block.arguments)
    kept = frozenset(order)
    going = [v for i, v in enumerate(old) if i not in kept]
    if used := list(filter(is_used, going)):
        with build.inserting(ir.InsertionPoint.at_block_begin(block), function.location):
            for v in used:
                v.replace_all_uses_with(build.zeros(v.type))
    if list(order) != sorted(order):
        for v in (old[i] for i in order):
            v.replace_all_uses_with(block.add_argument(v.type, v.location))
        going = old
    erase_arguments(block, [v.arg_number for v in going])
    _follow(function, "arg_attrs", order)
    set_signature(function)


def drop_arguments(function: Any, values: Iterable[Value]) -> None:
    """Remove these arguments from a function, as `keep_arguments` does."""
    going = {v.arg_number for v in values}
    count = len(function.regions[0].blocks[0].arguments)
    keep_arguments(function, [i for i in range(count) if i not in going])


def keep_results(function: Any, order: Sequence[int]) -> None:
    """Keep only the results at these positions, in this order, with their attributes.

    An argument that is an alias of one of them stays so.
    """
    block = function.regions[0].blocks[0]
    old = list(terminator(block).operands)
    replace_terminator(block, [old[i] for i in order])
    _follow(function, "res_attrs", order)
    place = {old: new for new, old in reversed(list(enumerate(order)))}
    _rename_aliases(function, lambda _, k: place.get(k))
    set_signature(function)


def forget_results(function: Any) -> None:
    """Drop the attributes of the results of a function, which is to return other ones."""
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    _rename_aliases(function, lambda i, k: None)


def set_signature(
    function: Any, arguments: Sequence[Any] | None = None, results: Sequence[Any] | None = None
) -> None:
    """Set a function's type to that of its entry block and its return.

    Added arguments and results have no attributes. An argument ceases to alias a result of another
    type, and attributes of the module on the layouts of @main go if its type changes.

    Args:
      arguments, results: their types, if the caller knows them.
    """
    block = function.regions[0].blocks[0]
    arguments = block.arguments.types if arguments is None else arguments
    results = [v.type for v in terminator(block).operands] if results is None else results
    context, attributes = function.context, function.attributes
    old, new = attributes["function_type"], function_type(arguments, results, context)
    attributes["function_type"] = new
    for name, count in (("arg_attrs", len(arguments)), ("res_attrs", len(results))):
        if name in attributes and _says_nothing(attributes[name]):
            del attributes[name]
        elif name in attributes:
            attrs = list(attributes[name])[:count]
            attrs += [ir.DictAttr.get({}, context=context)] * (count - len(attrs))
            attributes[name] = ir.ArrayAttr.get(attrs, context=context)
    if old != new and symbol(function) == "main":
        of_module = function.parent.attributes
        for name in [name for name in of_module if name.startswith(OF_ENTRY)]:
            del of_module[name]
    _rename_aliases(function, lambda i, k: k if arguments[i] in results[k : k + 1] else None)


@_jax.cached
def _says_nothing(attrs: Any) -> bool:
    """Return True if no argument or result has an attribute."""
    return not any(len(ir.DictAttr(of_one)) for of_one in ir.ArrayAttr(attrs))


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
    """Remove layouts from arguments and results: they have fewer axes than a batch has."""
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            found = map(_without_layout, ir.ArrayAttr(function.attributes[name]))
            function.attributes[name] = ir.ArrayAttr.get(list(found), context=function.context)


def _without_layout(attrs: Any) -> Any:
    named = {n.name: n.attr for n in ir.DictAttr(attrs)}
    if LAYOUT not in named or ir.StringAttr(named[LAYOUT]).value in ("default", "auto"):
        return attrs
    del named[LAYOUT]
    return ir.DictAttr.get(named, context=attrs.context)


ALIAS = "tf.aliasing_output"


def _rename_aliases(function: Any, rename: Callable[[int, int], int | None]) -> None:
    """Renumber the aliased results by `rename(argument, result)`; drop those mapped to None."""
    context, attributes = function.context, function.attributes
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


def _follow(function: Any, name: str, order: Sequence[int]) -> None:
    if name in function.attributes:
        old = dict(enumerate(ir.ArrayAttr(function.attributes[name])))  # not of what is new
        empty = ir.DictAttr.get({}, context=function.context)
        found = [old.get(i, empty) for i in order]
        function.attributes[name] = ir.ArrayAttr.get(found, context=function.context)
