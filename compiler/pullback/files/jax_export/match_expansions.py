"""Recognize functions that `jax.export` has expanded to many ops, and restore their derivatives.

The expansion of `erfc`, or of a complex exponential, has the value of the function but not its
derivative: a `select` that gives 0 for the sine of a real number has slope 0 there. JAX itself is
asked for the expansion of each function, once for each element type. Where a module has the same
ops, step by step, the last one is replaced with the single op that they stand for, or with a call
that has a rule if there is no such op. A file of another JAX may have other steps, and stays as
it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax import export, lax

from pullback import _jax
from pullback._jax import ir
from pullback.files.jax_export.compare_ops import ARGUMENT, Given, Reading, Step, size
from pullback.files.symbolic import refine_types
from pullback.ir import build, ops
from pullback.ir.build import Value
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.regions import BRANCHES, replace_op
from pullback.ir.symbols import (
    CALL,
    CALLS,
    Symbols,
    called,
    erase_unreachable,
    functions,
    names_in,
)
from pullback_runtime._jax import operations_named
from pullback_runtime.ir._erasure import erasing

Function = Callable[[Any], Any]


class WithRule(NamedTuple):
    """A function that is not a single op, and its derivative.

    Attributes:
      function: the function in JAX, whose expansion is looked for.
      slope: emits the derivative, from the argument and the function's value.
      simple: emits, from the argument, ops that have the right derivative without a rule: the body
        of a reduction cannot call functions. None: such bodies stay as they are.
    """

    function: Function
    slope: Callable[[Value, Value], Value]
    simple: Callable[[Value], Value] | None = None


def _op(name: str, x: Value) -> Value:
    return build.emit1(name, x.type, [x])


def _decay(scale: float, function: Function) -> WithRule:
    """Return the rule of log(1 + exp(-|scale x|)), by which a softplus exceeds max(x, 0).

    Both have a kink at 0, where the other one cancels it: the slope of this is 0 there, as that of
    the maximum is 1/2, and the sum is smooth. Elsewhere it is a sigmoid, less 1 above 0.
    """

    def scaled(x: Value) -> Value:
        return x if scale == 1 else build.mul(x, build.full_like(x, scale))

    def slope(x: Value, value: Value) -> Value:
        x = scaled(x)
        below, above = _op("stablehlo.logistic", x), _op("stablehlo.logistic", build.neg(x))
        beside = build.select(build.compare("GT", x, 0.0), build.neg(above), below)
        half = build.select(build.compare("EQ", x, 0.0), build.full_like(x, 0.5), None)
        return scaled(build.sub(beside, half))

    def simple(x: Value) -> Value:
        """Emit the function by x · sign(x), whose slope at 0 is 0: right to first order."""
        x = scaled(x)
        size = build.mul(x, _op("stablehlo.sign", x))
        return _op("stablehlo.log_plus_one", build.exp(build.neg(size)))

    return WithRule(function, slope, simple)


def _circular(function: Function, real: str, imaginary: str, signs: tuple[int, int]) -> WithRule:
    """Return the rule of a complex sine or cosine; its slope is made from real functions."""

    def slope(z: Value, value: Value) -> Value:
        a, b = build.real(z), build.imag(z)
        parts = [
            build.mul(_op(f"stablehlo.{real}", a), _op("chlo.cosh", b)),
            build.mul(_op(f"stablehlo.{imaginary}", a), _op("chlo.sinh", b)),
        ]
        parts = [p if sign > 0 else build.neg(p) for p, sign in zip(parts, signs, strict=True)]
        return build.emit1("stablehlo.complex", z.type, parts)

    return WithRule(function, slope)


def _slope_of_i0e(x: Value, value: Value) -> Value:
    """Emit the derivative of `bessel_i0e`, right also at 0.

    There, the expansion takes the slope of |x| as 1.
    """
    return build.sub(_op("chlo.bessel_i1e", x), build.mul(_op("stablehlo.sign", x), value))


_CHLO = (
    "acos acosh asin asinh atan atanh bessel_i1e cosh digamma erf erf_inv erfc lgamma sinh square "
    "tan"
)
_STABLEHLO = {
    "abs": lax.abs,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "logistic": lax.logistic,
    "rsqrt": lax.rsqrt,
    "sqrt": lax.sqrt,
    "tanh": lax.tanh,
}
OPS: dict[str, Function] = {
    **{f"chlo.{name}": getattr(lax, name) for name in _CHLO.split()},
    **{f"stablehlo.{name}": function for name, function in _STABLEHLO.items()},
}
"""Functions that are single ops. JAX expands some of them, for some element types only."""

RULES_OF_REAL = {
    "log_of_decay": _decay(1, lambda d: lax.log1p(lax.exp(lax.neg(lax.abs(d))))),
    "log_of_decay_as_product": _decay(1, lambda d: lax.log1p(lax.exp(-1.0 * lax.abs(d)))),
    "log_of_decay_in_base_2": _decay(
        math.log(2), lambda d: lax.log1p(lax.exp2(lax.neg(lax.abs(d))))
    ),
    "bessel_i0e": WithRule(lax.bessel_i0e, _slope_of_i0e),
}
RULES_OF_COMPLEX = {  # XLA's own sine and cosine lose the digits of a small imaginary part
    "sine": _circular(lax.sin, "cosine", "sine", (1, -1)),
    "cosine": _circular(lax.cos, "sine", "cosine", (-1, -1)),
}
RULES = {**RULES_OF_REAL, **RULES_OF_COMPLEX}
REAL = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
COMPLEX = {"complex<f32>": "complex64", "complex<f64>": "complex128"}
WIDE = ("float64", "complex128")
TO_REAL = ("stablehlo.abs",)
ROOTS = (
    "stablehlo.select",
    "stablehlo.complex",
    "stablehlo.convert",
    "stablehlo.divide",
    "stablehlo.log_plus_one",
    "stablehlo.multiply",
    "stablehlo.atan2",
    CALL,
)
INSIDE = (
    "stablehlo.bitcast_convert",
    "stablehlo.exponential",
    "stablehlo.exponential_minus_one",
    "stablehlo.is_finite",
    "stablehlo.log",
    "stablehlo.log_plus_one",
    "stablehlo.sqrt",
)
"""Each expansion has one of these ops, and most modules without expansions have none."""

MAY_CALL = {"func.func", *BRANCHES, "stablehlo.while"}
"""Ops whose bodies may contain a call with rules; that of a reduction may have simple ops only."""


def put_back(module: ir.Module) -> None:
    """Replace expansions with the functions that they stand for, in place.

    It goes backwards, as an expansion may contain others.
    """
    if operations_named(module, *INSIDE):
        _put_back(module, lambda function: operations_named(function, *ROOTS))


def put_back_lgamma(module: ir.Module) -> None:
    """Replace calls of JAX's own `lgamma`, in place: some of our files hold it without a rule.

    Derivatives of a call that is not recognized are an error: it reads the bits of its argument.
    """

    def calls(function: Any) -> list[ir.Operation]:
        return [op for op in operations_named(function, CALL) if called(op) in names]

    names = {name for name in functions(module) if name.partition("_impl")[0] == "lgamma"}
    if names:
        _put_back(module, calls)


def _put_back(module: ir.Module, roots_in: Callable[[Any], list[ir.Operation]]) -> None:
    place = _Place(module)
    given = _with_rules_beside(module)
    searched = [function for name, function in place.known.items() if name not in given]
    roots = [root for function in searched for root in roots_in(function)]
    with erasing():
        found = [place.put_back(root) for root in reversed(roots)]
        for function in place.known.values() if any(found) else ():
            for block in function.regions[0].blocks:
                erase_dead_ops(block, place.known)
    if any(found):
        erase_unreachable(module)


def _with_rules_beside(module: ir.Module) -> set[str | None]:
    """Return functions that are only called with rules, so that none is differentiated itself.

    They include functions put back here before, if a module with such is read again.
    """
    beside, others = set[str | None](), set[str | None]()
    for op in operations_named(module, *CALLS):
        has_rules = isinstance(ops.view(op), ops.CustomJVPCall | ops.CustomVJPCall)
        function, *rules = names_in(op)
        (beside if has_rules else others).add(function)
        others.update(rules)
    return beside - others


class _Place:
    """Puts functions back in one module."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.reading = Reading(module)
        self.known = self.reading.functions
        self._symbols = Symbols(module)
        self._with_rules = dict[str, tuple[str, str]]()

    def put_back(self, root: ir.Operation) -> bool:
        """Replace an op that is the last step of an expansion; return False if it is not."""
        if len(root.results) != 1 or (root.name == CALL and not self._is_of_bits(root)):
            return False
        result, alike = root.results[0], self.reading.alike(root)
        t = build.info(result.type)
        rank = len(t.shape) if root.name == CALL else min(len(t.shape), 1)
        shape = (7,) * rank  # a call looks up numbers in tables, by dimensions
        for name, last in _expansions(str(t.element), shape):
            given: Given = {}
            if last.alike == alike and self.reading.matches(last, result, given):
                with build.inserting(ir.InsertionPoint(root), root.location):
                    new = self._emit(name, last, result, given[ARGUMENT])
                if new is not None:
                    replace_op(root, [new])
                    return True
        return False

    def _is_of_bits(self, call: ir.Operation) -> bool:
        """Return True if a call is of a function of one argument that reads its bits.

        No other expansion is a call.
        """
        function = self.known.get(called(call) or "")
        if function is None or len(call.operands) != 1:
            return False
        return bool(operations_named(function, "stablehlo.bitcast_convert"))

    def _emit(self, name: str, last: Step, result: Value, x: Value) -> Value | None:
        if build.shape(x) != build.shape(result):
            return None
        if name in OPS:
            return build.emit1(name, result.type, [x])
        if x.type != result.type:
            return None
        if result.owner.operation.parent.name in MAY_CALL:
            return self._call(name, last, result, x)
        simple = RULES[name].simple
        return None if simple is None else simple(x)

    def _call(self, name: str, last: Step, result: Value, x: Value) -> Value:
        """Emit a call of a function of the steps that were found, with the rule of that name."""
        asked = f"{name}.{'x'.join(map(str, (*build.shape(x), build.info(x.type).element)))}"
        is_new = asked not in self._with_rules
        if is_new:  # a function of the module may have either name
            primal = self._symbols.unique(asked)
            self._with_rules[asked] = primal, self._symbols.unique(f"{primal}.jvp")
        primal, jvp = self._with_rules[asked]

        def call(x: Value) -> Value:
            return ops.call(ops.CustomJVPCall, primal, [x], [x.type], jvp=jvp).result

        def rule(x: Value, t: Value) -> list[Value]:
            value = call(x)
            return [value, build.mul(t, RULES[name].slope(x, value))]

        if is_new:
            self._add(primal, [x.type], lambda x: [_copy(last, result, {ARGUMENT: x})])
            self._add(jvp, [x.type] * 2, rule)
        return call(x)

    def _add(self, name: str, types: list[Any], emit: Callable[..., list[Value]]) -> None:
        """Add a private function of arguments of these types, with the body that `emit` emits.

        Its results have the same types.
        """
        with ir.InsertionPoint(self.module.body), ir.Location.unknown():
            kind = ir.FunctionType.get(types, types)
            function = _jax.func.FuncOp(name, kind, visibility="private")
            block = function.add_entry_block()
        self.known[name] = function.operation
        self._symbols.add(name, function.operation)
        with build.inserting(ir.InsertionPoint(block), ir.Location.unknown(self.module.context)):
            build.emit("func.return", (), emit(*block.arguments))


def _copy(step: Any, v: Value, known: dict[Any, Value]) -> Value:
    """Copy the ops that compute a value, which matches a step, to the insertion point."""
    key = step if step is ARGUMENT else id(step)
    if key not in known:
        pairs = zip(step.operands, v.owner.operands, strict=True)
        copy = build.clone(v.owner.operation, [_copy(s, o, known) for s, o in pairs])
        known[key] = copy.results[step.number]
    return known[key]


@functools.cache
def _expansions(element: str, shape: tuple[int, ...]) -> list[tuple[str, Step]]:
    """Return names of functions and last steps of their expansions, the longest ones first.

    Expansions for scalars have constants that are not broadcast.
    """
    found = [each for asked in _functions(element) for each in _last_steps(*asked, shape)]
    sizes = {id(last): size(last) for _, last in found}
    found = [(name, last) for name, last in found if sizes[id(last)] > 1]
    return sorted(found, key=lambda each: -sizes[id(each[1])])


def _functions(element: str) -> Iterator[tuple[str, dict[str, Function]]]:
    """Yield the functions whose results have such elements, with the dtype of their argument."""
    if element in REAL:
        yield REAL[element], {**OPS, **_with_rules(RULES_OF_REAL)}
    if element in COMPLEX:
        same = {name: OPS[name] for name in OPS if name not in TO_REAL}
        yield COMPLEX[element], {**same, **_with_rules(RULES_OF_COMPLEX)}
    if (wide := f"complex<{element}>") in COMPLEX:
        yield COMPLEX[wide], {name: OPS[name] for name in TO_REAL}


def _with_rules(rules: dict[str, WithRule]) -> dict[str, Function]:
    return {name: rule.function for name, rule in rules.items()}


def _last_steps(
    dtype: str, functions: dict[str, Function], shape: tuple[int, ...]
) -> Iterator[tuple[str, Step]]:
    """Yield name and last step of each function that JAX has for such an argument.

    All functions are exported together.
    """
    with jax.enable_x64(True):
        argument = jax.ShapeDtypeStruct(shape, dtype)
        functions = {name: f for name, f in functions.items() if _takes(f, argument)}
    for text in _texts(list(functions.values()), argument):
        for reading in _readings(text):
            for name, last in zip(functions, reading.results("main"), strict=True):
                yield name, last
                yield from ((name, each) for each in reading.inside(last))


def _takes(function: Function, argument: Any) -> bool:
    try:
        jax.eval_shape(function, argument)
    except TypeError:
        return False
    return True


def _texts(functions: list[Function], argument: Any) -> Iterator[str]:
    """Yield the modules that JAX exports and lowers functions to, with and without 64 bits."""
    for x64 in (True, False)[: 1 if argument.dtype.name in WIDE else 2]:
        with jax.enable_x64(x64):
            jitted = jax.jit(lambda x: [function(x) for function in functions])
            yield export.export(jitted, platforms=("cpu",))(argument).mlir_module()
            yield jitted.trace(argument).lower(lowering_platforms=("cpu",)).as_text()


def _readings(text: str) -> Iterator[Reading]:
    """Yield a reading of a module as it is, and of one with refined types if these differ."""
    module = ir.Module.parse(text, context=_jax.context())
    yield Reading(module)
    before = str(module)
    refine_types.refine(module)
    if str(module) != before:
        yield Reading(module)
