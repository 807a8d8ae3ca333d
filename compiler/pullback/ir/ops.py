"""Typed views over the three derivative ops, and builders that create them.

The ops are `stablehlo.composite` ops with our names; docs/dialect.md specifies them. A view
is a thin handle: it reads attributes when asked and holds nothing but the op.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from pullback._jax import ir
from pullback.ir import build, masks
from pullback.ir.build import inexact
from pullback.ir.symbols import CALL, callee
from pullback_runtime._jax import operations_named

COMPOSITE = "stablehlo.composite"
PREFIX = "pullback."
RULE = "rule"
REFUSED = "refused"
TRANSPOSE_ONLY = "transpose_only"
SEES_ZEROS = "sees_zeros"

BATCHING_RULES = "pullback.batching_rules"
"""Module attribute: a function in there had a rule of batching, which only JAX knows."""


def inexact_positions(values: Sequence[ir.Value]) -> list[int]:
    """Return the positions of the values that have a tangent and a cotangent slot."""
    return [position for position, value in enumerate(values) if inexact(value.type)]


class RuleName(NamedTuple):
    """The name of an attribute that names a rule function: `bwd`, `bwd.01`, `bwd[f32].01.10`.

    Attributes:
      kind: such as `bwd`.
      mask: that of the inexact operands; empty for all.
      types: the element types of the cotangents of inexact results; empty for those of the results.
      results: the mask of the inexact results that have a cotangent, after that of the operands;
        empty for all.
    """

    kind: str
    mask: str = ""
    types: tuple[str, ...] = ()
    results: str = ""

    @staticmethod
    def parse(name: str) -> RuleName:
        """Parse the name of an attribute."""
        kind, _, mask = name.partition(".")
        kind, _, types = kind.partition("[")
        mask, _, results = mask.partition(".")
        cotangents = tuple(types.removesuffix("]").split(",")) if types else ()
        return RuleName(kind, mask, cotangents, results)

    def __str__(self) -> str:
        types = f"[{','.join(self.types)}]" if self.types else ""
        return ".".join(filter(None, (f"{self.kind}{types}", self.mask, self.results)))


class DerivativeCall:
    """The base of the views of the three ops: the map that they call, and their rules."""

    NAME: ClassVar[str] = ""
    __slots__ = ("op",)

    def __init__(self, op: ir.Operation):
        self.op = op

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.op})"

    @property
    def decomposition(self) -> str:
        """Name of the function that computes the results."""
        return ir.FlatSymbolRefAttr(self.op.attributes["decomposition"]).value

    @property
    def operands(self) -> list[ir.Value]:
        """The operands, as a list."""
        return list(self.op.operands)

    @property
    def results(self) -> list[ir.Value]:
        """The results, as a list."""
        return list(self.op.results)

    @property
    def mask(self) -> str:
        """The mask in which every inexact operand is perturbed: all ones."""
        return "1" * len(inexact_positions(self.operands))

    @property
    def closed_over(self) -> int:
        """The number of leading operands that the function closes over; user rules take none."""
        attribute = self._get("closed_over")
        return 0 if attribute is None else ir.IntegerAttr(attribute).value

    @property
    def sees_zeros(self) -> bool:
        """True if the rules are told which tangents or cotangents are zero, and may use it."""
        return self._get(SEES_ZEROS) is not None

    @property
    def own_mask(self) -> str:
        """The mask of the inexact operands that the function does not close over."""
        return masks.behind(inexact_positions(self.operands), self.closed_over)

    @property
    def attributes(self) -> dict[str, ir.Attribute]:
        """A copy of `composite_attributes`."""
        attributes = self.op.attributes
        if "composite_attributes" not in attributes:
            return {}
        return {named.name: named.attr for named in ir.DictAttr(attributes["composite_attributes"])}

    @property
    def rule_key(self) -> str | None:
        """Key of the not yet staged rule in the program's rule table."""
        attribute = self._get(RULE)
        return None if attribute is None else ir.StringAttr(attribute).value

    @property
    def symbols(self) -> dict[str, str]:
        """The rule functions: attribute name to function name."""
        return {
            name: attribute.value
            for name, attribute in self.attributes.items()
            if isinstance(attribute, ir.FlatSymbolRefAttr)
        }

    @property
    def refused(self) -> dict[str, str]:
        """The messages of rules that raise instead of differentiating the call, by rule name."""
        attribute = self._get(REFUSED)
        return {} if attribute is None else _texts(attribute)

    def update(self, **changes: Any) -> None:
        """Set attributes: a function's name, an integer or an attribute; None removes one.

        Attribute names with a mask go through `update(**{"jvp.01": "f.jvp.01"})`; the value of
        `rule` stays a string, and so do those of `refused`, a dictionary.
        """
        attributes = self.attributes
        for name, value in changes.items():
            if value is None:
                attributes.pop(name, None)
            else:
                attributes[name] = _attribute(name, value, self.op.context)
        self.op.attributes["composite_attributes"] = ir.DictAttr.get(attributes, self.op.context)

    def _get(self, name: str) -> ir.Attribute | None:
        attributes = self.op.attributes
        if "composite_attributes" not in attributes:
            return None
        dictionary = ir.DictAttr(attributes["composite_attributes"])
        return dictionary[name] if name in dictionary else None  # noqa: SIM401 -- no .get in 0.10

    def _symbol(self, name: str) -> str | None:
        attribute = self._get(name)
        return None if attribute is None else ir.FlatSymbolRefAttr(attribute).value

    def covering(self, mask: str) -> tuple[str, str] | None:
        """Return the smallest mask of a jvp rule that has every '1' of this one, and its function.

        None if the rules see symbolic zeros: for more operands they may return something else.
        """
        if self.sees_zeros:
            return None
        named = [(n.partition("."), symbol) for n, symbol in self.symbols.items()]
        rules = [(m or self.own_mask, symbol) for (kind, _, m), symbol in named if kind == "jvp"]
        found = [rule for rule in rules if masks.within(mask, rule[0])]
        return min(found, key=lambda rule: rule[0].count("1"), default=None)

    def refusal(self, kind: str, mask: str) -> str | None:
        """Return the message of the rule of this kind and mask if it raises; None if none does."""
        refused = self.refused
        return refused.get(f"{kind}.{mask}", None if "0" in mask else refused.get(kind))

    def _masked(self, kind: str, mask: str, types: Sequence[str] = ()) -> str | None:
        """Return the symbol of `kind` for a mask; the plain name means all ones."""
        found = self._symbol(str(RuleName(kind, mask, tuple(types))))
        if found is None and "0" not in mask:
            return self._symbol(str(RuleName(kind, "", tuple(types))))
        return found


class CustomJVPCall(DerivativeCall):
    """`pullback.custom_jvp_call`: calls the primal; its forward derivative is `@f.jvp`."""

    NAME = "pullback.custom_jvp_call"
    __slots__ = ()

    def jvp(self, mask: str) -> str | None:
        """Return the name of the jvp rule for the perturbed inexact operands of `mask`."""
        return self._masked("jvp", mask)

    def transpose(self, mask: str) -> str | None:
        """Return the name of the transpose with respect to the inexact operands of `mask`."""
        return self._masked("transpose", mask)

    def transpose_for(self, mask: str, types: Sequence[str]) -> str | None:
        """Return the name of the transpose for cotangents of these element types."""
        return self._masked("transpose", mask, types)

    def transposes(self) -> list[tuple[str, str]]:
        """Return each transpose with the mask of the operands that it gives cotangents of."""
        named = [(n.partition("."), symbol) for n, symbol in self.symbols.items()]
        return [(symbol, mask) for (kind, _, mask), symbol in named if kind == "transpose"]


class CustomVJPCall(DerivativeCall):
    """`pullback.custom_vjp_call`: calls the primal; its reverse derivative is `fwd`, `bwd`."""

    NAME = "pullback.custom_vjp_call"
    __slots__ = ()

    def pairs(self) -> list[tuple[str, str, str, str]]:
        """Return each `fwd` and `bwd`, with the masks of its operands and results with cotangents.

        `fwd` returns outputs and residuals; `bwd` takes residuals and cotangents.
        """
        symbols = self.symbols
        names = [name for name in map(RuleName.parse, symbols) if name.kind == "fwd"]
        every = "1" * len(inexact_positions(self.results))
        return [
            (
                symbols[str(name)],
                symbols[str(name._replace(kind="bwd"))],
                name.mask or self.own_mask,
                name.results or every,
            )
            for name in names
        ]

    def backward_for(self, mask: str, types: Sequence[str], results: str = "") -> str | None:
        """Return the name of the `bwd` for a mask and cotangents of these element types."""
        if "0" not in results:
            results = ""
        found = self._symbol(str(RuleName("bwd", mask, tuple(types), results)))
        if found is None and mask == self.own_mask and not results:
            return self._symbol(str(RuleName("bwd", "", tuple(types))))
        return found

    def jvp(self, mask: str) -> str | None:
        """Return the name of the jvp rule, when the user gave one as well."""
        return self._masked("jvp", mask)


class LinearCall(DerivativeCall):
    """`pullback.linear_call`: a map that is linear in all operands after the residuals."""

    NAME = "pullback.linear_call"
    __slots__ = ()

    @property
    def num_residuals(self) -> int:
        """The number of leading operands that are residuals."""
        attribute = self._get("num_residuals")
        return 0 if attribute is None else ir.IntegerAttr(attribute).value

    @property
    def transpose(self) -> str | None:
        """Name of the transposed map."""
        return self._symbol("transpose")

    def transpose_for(self, types: Sequence[str]) -> str | None:
        """Return the name of the transposed map for cotangents of these element types."""
        return self._symbol(str(RuleName("transpose", "", tuple(types))))

    @property
    def transpose_only(self) -> str | None:
        """Why the map is known by its transpose only, if so; its function gives NaN then."""
        attribute = self._get(TRANSPOSE_ONLY)
        return None if attribute is None else ir.StringAttr(attribute).value

    @property
    def residuals(self) -> list[ir.Value]:
        """The operands in which the map need not be linear."""
        return self.operands[: self.num_residuals]

    @property
    def linear_operands(self) -> list[ir.Value]:
        """The operands in which the map is linear."""
        return self.operands[self.num_residuals :]


VIEWS: dict[str, type[CustomJVPCall] | type[CustomVJPCall] | type[LinearCall]] = {
    CustomJVPCall.NAME: CustomJVPCall,
    CustomVJPCall.NAME: CustomVJPCall,
    LinearCall.NAME: LinearCall,
}


def composite_name(op: ir.Operation) -> str | None:
    """Return the `name` of a `stablehlo.composite`; None for every other op."""
    if op.name != COMPOSITE:
        return None
    return ir.StringAttr(op.attributes["name"]).value


def view(op: ir.Operation | ir.OpView) -> Any:
    """Return the view of a derivative op, one of `VIEWS`; None for every other op."""
    op = op.operation
    name = composite_name(op)
    view_class = None if name is None else VIEWS.get(name)
    return None if view_class is None else view_class(op)


def named_composites(root: ir.Module | ir.Operation) -> list[tuple[str, ir.Operation]]:
    """Return every `stablehlo.composite` below `root`, with its name."""
    return [
        (ir.StringAttr(op.attributes["name"]).value, op) for op in operations_named(root, COMPOSITE)
    ]


def calls_by_name(root: ir.Module | ir.Operation) -> dict[str, list[ir.Operation]]:
    """Return the calls below `root` of each function, and of each composite that is not ours."""
    found: dict[str, list[ir.Operation]] = {}
    for op in operations_named(root, CALL, COMPOSITE):
        name = composite_name(op) or callee(op)
        if not name.startswith(PREFIX):
            found.setdefault(name, []).append(op)
    return found


def walk_composites(root: ir.Module | ir.Operation) -> list[ir.Operation]:
    """Return every `stablehlo.composite` below `root` that has a name of ours, known or not."""
    return [op for name, op in named_composites(root) if name.startswith(PREFIX)]


def walk_calls(root: ir.Module | ir.Operation) -> Iterator[DerivativeCall]:
    """Yield views of all derivative ops below `root`; each may be erased when it comes."""
    for op in walk_composites(root):
        found = view(op)
        if found is not None:
            yield found


def call(
    kind: type[DerivativeCall],
    function: str,
    operands: Sequence[ir.Value],
    result_types: Sequence[ir.Type],
    **attributes: Any,
) -> ir.Operation:
    """Create a derivative op at the current place; its attributes are as for `update`."""
    made = build.emit(
        COMPOSITE,
        list(result_types),
        list(operands),
        {"name": build.string(kind.NAME), "decomposition": build.symbol(function)},
    )
    kind(made).update(**attributes)
    return made


def restore_symbol_refs(composites: Iterable[ir.Operation]) -> None:
    """Turn rule names that are strings into symbol references.

    A round trip through VHLO keeps symbol references inside `composite_attributes` as strings.
    The messages of rules that raise are read once, so that damage to them shows here.

    Args:
      composites: what `walk_composites` found.
    """
    known: dict[ir.Attribute, ir.Attribute] = {}  # calls of one function have the same
    for op in composites:
        attributes = op.attributes
        given = attributes.get("composite_attributes", None)
        if given is None:
            continue
        if given not in known:
            known[given] = _with_symbol_refs(given)
        attributes["composite_attributes"] = known[given]


def _with_symbol_refs(given: ir.Attribute) -> ir.Attribute:
    """Return the dictionary with symbol references in the place of strings that name functions."""
    entries = {named.name: named.attr for named in ir.DictAttr(given)}
    symbols = {
        name: _attribute(name, ir.StringAttr(attribute).value, given.context)
        for name, attribute in entries.items()
        if name not in (RULE, REFUSED, TRANSPOSE_ONLY) and isinstance(attribute, ir.StringAttr)
    }
    if REFUSED in entries:
        _texts(entries[REFUSED])
    return ir.DictAttr.get(entries | symbols, given.context)


def _texts(dictionary: ir.Attribute) -> dict[str, str]:
    return {named.name: ir.StringAttr(named.attr).value for named in ir.DictAttr(dictionary)}


def _attribute(name: str, value: Any, context: ir.Context) -> ir.Attribute:
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, Mapping):
        texts = {key: ir.StringAttr.get(text, context) for key, text in value.items()}
        return ir.DictAttr.get(texts, context)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)
    if name in (RULE, TRANSPOSE_ONLY):
        return ir.StringAttr.get(value, context)
    return ir.FlatSymbolRefAttr.get(value, context)


def rule_inventory(module: ir.Module) -> list[dict[str, Any]]:
    """List each function with rules once: op, name, rules, and the messages of rules that raise."""
    found: dict[tuple[str, str], set[str]] = {}
    refused: dict[tuple[str, str], dict[str, str]] = {}
    for call in walk_calls(module):
        key = call.NAME, call.decomposition
        found.setdefault(key, set()).update(call.symbols)
        if said := call.refused:
            refused.setdefault(key, {}).update(said)
    return [
        {"op": key[0], "function": key[1], "rules": sorted(rules)}
        | ({REFUSED: refused[key]} if key in refused else {})
        for key, rules in sorted(found.items())
    ]
