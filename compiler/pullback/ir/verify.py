"""The verifier of the derivative ops; docs/dialect.md numbers the constraints alike.

What `stablehlo.composite` checks by itself (the decomposition exists, and its type is that of
the op) is not checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from pullback._jax import ir, working_in
from pullback.errors import VerificationError
from pullback.ir.build import element_type, inexact, scalar, with_element
from pullback.ir.masks import masked
from pullback.ir.ops import (
    REFUSED,
    RULE,
    SEES_ZEROS,
    TRANSPOSE_ONLY,
    VIEWS,
    CustomJVPCall,
    CustomVJPCall,
    DerivativeCall,
    LinearCall,
    RuleName,
    composite_name,
    view,
    walk_composites,
)
from pullback_runtime._jax import place

Types = Sequence[ir.Type]


def verify(module: ir.Module) -> None:
    """Check every derivative op of the module.

    Raises:
      VerificationError: for the first broken constraint, with its label and the op's location.
    """
    functions: dict[str, ir.FunctionType] | None = None
    with working_in(module):
        for op in walk_composites(module):
            functions = _function_types(module) if functions is None else functions
            call = view(op)
            if call is None:
                name = composite_name(op)
                raise _error(op, "composite_c1", f"{name!r} is none of {', '.join(VIEWS)}")
            _VERIFIERS[type(call)](call, functions)


def _function_types(module: ir.Module) -> dict[str, ir.FunctionType]:
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: ir.FunctionType(
            ir.TypeAttr(op.attributes["function_type"]).value
        )
        for op in (opview.operation for opview in module.body.operations)
        if op.name == "func.func"
    }


def verify_custom_jvp_call(call: CustomJVPCall, functions: dict[str, ir.FunctionType]) -> None:
    """Check the constraints custom_jvp_call_c1 … c9."""
    check = _Checker(call, "custom_jvp_call", functions)
    known = {RULE, REFUSED, SEES_ZEROS, "jvp", "closed_over"}
    check.attribute_names(1, known, masked={"jvp", "transpose"}, typed={"transpose"})
    check.attribute_kinds(2)
    check.count(2, "closed_over", call.closed_over)
    check.symbols_resolve(3)
    check.masks(4)
    check.no_second_full_mask(5)
    for name, symbol in call.symbols.items():
        kind, mask, types, _ = RuleName.parse(name)
        if name == "jvp":
            check.function_type(6, symbol, *_jvp_type(call, call.mask))
        elif kind == "jvp":
            check.function_type(7, symbol, *_jvp_type(call, mask))
        else:
            cotangents = check.cotangents(8, name, types)
            inputs, results = _transpose_type(call, mask, cotangents)
            check.function_type(8, symbol, inputs, results, of_cotangents=True)
    check.refusals(9, {"jvp"}, masked={"jvp", "transpose"})


def verify_custom_vjp_call(call: CustomVJPCall, functions: dict[str, ir.FunctionType]) -> None:
    """Check the constraints custom_vjp_call_c1 … c11."""
    check = _Checker(call, "custom_vjp_call", functions)
    known = {RULE, REFUSED, SEES_ZEROS, "fwd", "bwd", "jvp", "closed_over"}
    check.attribute_names(1, known, masked={"fwd", "bwd", "jvp"}, typed={"bwd"})
    check.attribute_kinds(2)
    check.count(2, "closed_over", call.closed_over)
    check.symbols_resolve(3)
    masks = {kind: check.masks_of(kind) for kind in ("fwd", "bwd")}
    check.require(4, masks["fwd"] == masks["bwd"], "`fwd` and `bwd` come together")
    check.masks(5)
    check.no_second_full_mask(6)
    residuals: dict[tuple[str, str], Types] = {}
    every = "1" * len(_inexact_types(call.results))
    for fwd, bwd, mask, given in call.pairs():
        residuals[mask, given] = _verify_fwd(check, call, fwd)
        inputs = [*residuals[mask, given], *_inexact_types(call.results)]
        check.function_type(8, bwd, inputs, _masked_types(call, mask), of_cotangents=True)
    for name, symbol in call.symbols.items():
        kind, mask, types, given = RuleName.parse(name)
        if kind == "bwd" and types:
            mask, pair = mask or call.own_mask, (mask or call.own_mask, given or every)
            check.require(11, pair in residuals, f"{name!r} is of no pair of `fwd` and `bwd`")
            inputs = [*residuals[pair], *check.cotangents(11, name, types)]
            check.function_type(11, symbol, inputs, _masked_types(call, mask), of_cotangents=True)
        if name.startswith("jvp"):
            mask = name.partition(".")[2] or call.mask
            check.function_type(9, symbol, *_jvp_type(call, mask))
    check.refusals(10, {"vjp", "jvp"}, masked={"vjp", "jvp"})


def _verify_fwd(check: _Checker, call: CustomVJPCall, fwd: str) -> Types:
    """Check the type of `fwd` up to its residuals, and return the types of these."""
    found = check.functions[fwd]
    results = [result.type for result in call.results]
    leading = found.results[: len(results)]
    residuals = found.results[len(results) :]
    inputs = [operand.type for operand in call.operands]
    if list(leading) != results:
        check.function_type(7, fwd, inputs, results, and_more="residuals")
    check.function_type(7, fwd, inputs, [*results, *residuals])
    return residuals


def verify_linear_call(call: LinearCall, functions: dict[str, ir.FunctionType]) -> None:
    """Check the constraints linear_call_c1 … c7."""
    check = _Checker(call, "linear_call", functions)
    known = {RULE, REFUSED, TRANSPOSE_ONLY, "transpose", "num_residuals"}
    check.attribute_names(1, known, typed={"transpose"})
    check.attribute_kinds(2)
    check.require(3, "num_residuals" in call.attributes, "`num_residuals` is missing")
    check.count(3, "num_residuals", call.num_residuals)
    check.symbols_resolve(4)
    linear = [operand.type for operand in call.linear_operands]
    results = [result.type for result in call.results]
    for type_ in (*linear, *results):
        check.require(5, inexact(type_), f"linear operands and results are inexact, not {type_}")
    residuals = [operand.type for operand in call.residuals]
    for name, symbol in call.symbols.items():
        types = RuleName.parse(name).types
        inputs = [*residuals, *check.cotangents(6, name, types)]
        if not types:  # what comes in another type is converted to that which it takes
            inputs = check.with_elements_of(symbol, inputs, len(residuals))
        check.function_type(6, symbol, inputs, linear, of_cotangents=True)
    check.refusals(7, {"transpose"})


_VERIFIERS: dict[type[DerivativeCall], Callable[..., None]] = {
    CustomJVPCall: verify_custom_jvp_call,
    CustomVJPCall: verify_custom_vjp_call,
    LinearCall: verify_linear_call,
}


class _Checker:
    """The checks that ops share; each takes the number of the constraint that it enforces."""

    def __init__(self, call: DerivativeCall, op_name: str, functions: dict[str, ir.FunctionType]):
        self.call = call
        self.op_name = op_name
        self.functions = functions
        self.attributes = call.attributes

    def require(self, number: int, holds: bool, message: str) -> None:
        """Raise VerificationError unless the constraint holds."""
        if not holds:
            raise _error(self.call.op, f"{self.op_name}_c{number}", message)

    def attribute_names(
        self,
        number: int,
        plain: Set[str],
        masked: Set[str] = frozenset(),
        typed: Set[str] = frozenset(),
    ) -> None:
        """Check that attributes are known, and have masks or cotangent types only where allowed."""
        for name in self.attributes:
            kind, mask, types, results = RuleName.parse(name)
            known = kind in (masked if mask else plain) and (not types or kind in typed)
            known = known and (not results or kind in ("fwd", "bwd"))
            allowed = [*sorted(plain), *(f"{kind}.<mask>" for kind in sorted(masked))]
            allowed += [f"{kind}[<types>]" for kind in sorted(typed)]
            spelt = str(RuleName(kind, mask, types, results)) == name
            self.require(
                number, known and spelt, f"unknown attribute {name!r}; known: {', '.join(allowed)}"
            )

    def cotangents(self, number: int, name: str, types: Sequence[str]) -> Types:
        """Return the types of the cotangents that a rule of this name takes."""
        own = _inexact_types(self.call.results)
        if not types:
            return own
        self.require(
            number,
            len(types) == len(own) and all(map(_is_inexact, types)),
            f"{name!r} has no element type of floats or complex numbers for each of the {len(own)} "
            "inexact results",
        )
        return [
            with_element(type_, element_type(spell))
            for type_, spell in zip(own, types, strict=True)
        ]

    def attribute_kinds(self, number: int) -> None:
        """Check that texts are strings, `refused` a dictionary, counts i64, and others symbols."""
        for name, attribute in self.attributes.items():
            if name in (RULE, TRANSPOSE_ONLY):
                self.require(number, isinstance(attribute, ir.StringAttr), f"`{name}` is a string")
            elif name == REFUSED:
                is_dictionary = isinstance(attribute, ir.DictAttr)
                self.require(number, is_dictionary, f"`refused` is a dictionary, not {attribute}")
            elif name in ("closed_over", "num_residuals", SEES_ZEROS):
                is_count = str(attribute).endswith(": i64")
                self.require(number, is_count, f"`{name}` is an i64, not {attribute}")
            else:
                is_symbol = isinstance(attribute, ir.FlatSymbolRefAttr)
                self.require(number, is_symbol, f"`{name}` is a symbol reference, not {attribute}")

    def count(self, number: int, name: str, value: int) -> None:
        """Check that an attribute counts no more leading operands than there are."""
        operands = len(self.call.operands)
        there = 0 <= value <= operands
        self.require(number, there, f"`{name}` is {value}, and there are {operands} operands")

    def symbols_resolve(self, number: int) -> None:
        """Check that every rule function is in the module."""
        for name, symbol in self.call.symbols.items():
            there = symbol in self.functions
            self.require(number, there, f"`{name}` names @{symbol}, which the module does not have")

    def masks(self, number: int) -> None:
        """Check that masks have a 0 or 1 per inexact operand, a 1, and none for closed over ones.

        A `jvp` without a mask is for all inexact operands, so none of these is closed over.
        """
        for name in self.call.symbols:
            if "." in name:
                self.require(
                    number,
                    self._has_mask(name),
                    f"the mask of {name!r} has one 0 or 1 for each of the {len(self.call.mask)} "
                    "inexact operands, and at least one 1",
                )
            kind, mask, *_ = RuleName.parse(name)
            if mask or kind == "jvp":
                pairs = zip(mask or self.call.mask, self.call.own_mask, strict=True)
                self.require(
                    number,
                    all(own == "1" or bit == "0" for bit, own in pairs),
                    f"{name!r} is for an operand that is closed over",
                )

    def masks_of(self, kind: str) -> set[str]:
        """Return the masks of all rules of this kind; the plain name has the empty mask."""
        parts = (name.partition(".") for name in self.call.symbols)
        return {mask for found, _, mask in parts if found == kind}

    def _has_mask(self, name: str) -> bool:
        _, mask, _, results = RuleName.parse(name)
        own = self.call.mask
        fits = len(mask) == len(own) and set(mask + results) <= {"0", "1"} and "1" in mask
        return fits and len(results) in (0, len(_inexact_types(self.call.results)))

    def refusals(self, number: int, plain: Set[str], masked: Set[str] = frozenset()) -> None:
        """Check that `refused` has strings, under names of possible rules that are not there."""
        refused = self.attributes.get(REFUSED)
        for name, attribute in map(_named, () if refused is None else ir.DictAttr(refused)):
            known = name in plain or (name.partition(".")[0] in masked and self._has_mask(name))
            there = name in self.attributes or name.replace("vjp", "fwd") in self.attributes
            self.require(
                number,
                known and not there,
                f"`refused` has {name!r}, which is no rule that is missing here",
            )
            is_text = isinstance(attribute, ir.StringAttr)
            self.require(number, is_text, f"`refused` says a string, not {attribute}")

    def no_second_full_mask(self, number: int) -> None:
        """Check that no rule has both the plain name and the mask of all ones, its synonym."""
        for kind, mask in (("jvp", self.call.mask), ("fwd", self.call.own_mask)):
            full = f"{kind}.{mask}"
            twice = kind in self.attributes and full in self.attributes
            self.require(number, not twice, f"`{kind}` and {full!r} are the same rule")

    def with_elements_of(self, symbol: str, types: Types, first: int) -> list[ir.Type]:
        """Return these types, from `first` on with the inexact elements that @symbol takes."""
        found = list(self.functions[symbol].inputs)
        pairs = zip(types, [*found, *types][: len(types)], strict=True)
        return [
            theirs if i >= first and _any_element(mine) == _any_element(theirs) else mine
            for i, (mine, theirs) in enumerate(pairs)
        ]

    def function_type(
        self,
        number: int,
        symbol: str,
        inputs: Types,
        results: Types,
        and_more: str = "",
        of_cotangents: bool = False,
    ) -> None:
        """Check that a rule function has the type that the op requires.

        With `of_cotangents`, its results may have other inexact element types.
        """
        found = self.functions[symbol]
        fits = not and_more and list(found.inputs) == list(inputs)
        if fits and list(found.results) == list(results):
            return
        if (
            fits
            and of_cotangents
            and list(map(_any_element, found.results)) == list(map(_any_element, results))
        ):
            return
        rest = f", {and_more}…" if and_more else ""
        self.require(
            number,
            False,
            f"@{symbol} does not have the type that this op asks for\n"
            f"  expected: {_signature(inputs, results, rest)}\n"
            f"  found:    {_signature(found.inputs, found.results)}",
        )


def _named(entry: ir.NamedAttribute) -> tuple[str, ir.Attribute]:
    return entry.name, entry.attr


def _signature(inputs: Types, results: Types, rest: str = "") -> str:
    left, right = (", ".join(map(str, types)) for types in (inputs, results))
    return f"({left}) -> ({right}{rest})"


def _inexact_types(values: Sequence[ir.Value]) -> list[ir.Type]:
    return [value.type for value in values if inexact(value.type)]


def _jvp_type(call: DerivativeCall, mask: str) -> tuple[Types, Types]:
    """Return `(args…, tangents of perturbed args…) → (outs…, tangents of inexact outs…)`."""
    perturbed = _masked_types(call, mask)
    inputs = [operand.type for operand in call.operands]
    results = [result.type for result in call.results]
    return [*inputs, *perturbed], [*results, *_inexact_types(call.results)]


def _transpose_type(call: DerivativeCall, mask: str, cotangents: Types) -> tuple[Types, Types]:
    """Return `(unmasked args…, cotangents of inexact outs…) → (cotangents of masked args…)`."""
    bits = iter(mask)
    others = [
        operand.type for operand in call.operands if not inexact(operand.type) or next(bits) == "0"
    ]
    return [*others, *cotangents], _masked_types(call, mask)


def _is_inexact(element: str) -> bool:
    """Return True if this spells an inexact element type."""
    try:
        return inexact(scalar(element))
    except (ValueError, ir.MLIRError):
        return False


def _any_element(type_: ir.Type) -> ir.Type:
    """Return one type for all inexact types of a shape; any other type as it is."""
    return with_element(type_, element_type("f32")) if inexact(type_) else type_


def _masked_types(call: DerivativeCall, mask: str) -> list[ir.Type]:
    return masked(_inexact_types(call.operands), mask)


def _error(op: ir.Operation, label: str, message: str) -> VerificationError:
    return VerificationError(f"{label}: {message}", where=place(op))
