"""Ops that `jax.export` writes as many others, found again in a file and put back.

What it writes of `erfc`, or of an exponential of complex numbers, computes the same but has not its
derivative: a `select` that gives 0 for the sine of a real number has slope 0 there. What an op
becomes is asked of JAX itself, once for each element type; where those ops are, step by step, the
op is put in the place of the last one. A file of another JAX may have other steps, and stays as it
is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax import export, lax

from pullback import _jax
from pullback._jax import ir
from pullback.artifact import refinement
from pullback.artifact.high_level import CHLO
from pullback.dialect import build, ops
from pullback.dialect.build import Value
from pullback.passes.dead_ops import erase_dead_ops
from pullback.passes.regions import BRANCHES, replace_op
from pullback.passes.symbols import functions
from pullback_runtime._jax import operations_named

ARGUMENT, DECAY = "argument", "log_of_decay"
REAL: dict[str, Callable[[Any], Any]] = {
    "chlo.erfc": lax.erfc,
    "chlo.erf_inv": lax.erf_inv,
    "chlo.lgamma": lax.lgamma,
    "chlo.digamma": lax.digamma,
    "chlo.bessel_i1e": lax.bessel_i1e,
    "stablehlo.logistic": lax.logistic,
    DECAY: lambda d: lax.log1p(lax.exp(lax.neg(lax.abs(d)))),
    DECAY + ", as PyTorch has it": lambda d: lax.log1p(lax.exp(-1.0 * lax.abs(d))),
}
COMPLEX: dict[str, Callable[[Any], Any]] = {
    "stablehlo.exponential": lax.exp,
    "stablehlo.log": lax.log,
    "stablehlo.log_plus_one": lax.log1p,
    "stablehlo.sqrt": lax.sqrt,
    "chlo.atan": lax.atan,
}
ELEMENTS = {
    "f16": ("float16", REAL),
    "bf16": ("bfloat16", REAL),
    "f32": ("float32", REAL),
    "f64": ("float64", REAL),
    "complex<f32>": ("complex64", COMPLEX),
    "complex<f64>": ("complex128", COMPLEX),
}
ROOTS = (
    "stablehlo.select",
    "stablehlo.complex",
    "stablehlo.convert",
    "stablehlo.divide",
    "stablehlo.log_plus_one",
    "stablehlo.multiply",
)
INSIDE = ("stablehlo.exponential", "stablehlo.log", "stablehlo.log_plus_one", "stablehlo.sqrt")
"""Each expansion has one of these, and most modules without expansions have none."""


Functions = dict[str, ir.Operation]

MAY_CALL = {"func.func", *BRANCHES, "stablehlo.while"}
"""In the body of these a derivative op may be; in that of a reduction only simple ops."""


class Step(NamedTuple):
    """An op of an expansion: what says that another one is like it, and its operands."""

    alike: Any
    operands: tuple[Any, ...]


def put_back(module: ir.Module) -> bool:
    """Puts ops back in place of their expansions, in place; whether there was one."""
    if not operations_named(module, *INSIDE):
        return False
    known = functions(module)
    found = [_put_back(module, known, root) for root in operations_named(module, *ROOTS)]
    if any(found):
        for function in known.values():
            for block in function.regions[0].blocks:
                erase_dead_ops(block, known)
    return any(found)


def _put_back(module: ir.Module, known: Functions, root: ir.Operation) -> bool:
    """Puts in the place of an op what it is the last step of, if it is."""
    result = root.results[0]
    t, alike = build.info(result.type), _alike(root)
    for name, last in _expansions(str(t.element), () if t.shape == () else (7,)):
        given: dict[Any, Value] = {}
        if last.alike != alike or not _matches(last, result, given):
            continue
        x = given[ARGUMENT]
        if x.type != result.type:
            continue
        with build.inserting(ir.InsertionPoint(root), root.location):
            if not name.startswith(DECAY):
                new = build.emit1(name, result.type, [x])
            elif root.parent.name in MAY_CALL:
                new = _decay(module, known, x)
            else:
                new = _decay_in_body(x)
        replace_op(root, [new])
        return True
    return False


_DEFAULTS = {"compare_type", "result_accuracy"}


def _matches(step: Any, v: Value, given: dict[Any, Value]) -> bool:
    """Whether a value is computed as a step of an expansion is, from what is given."""
    key = step if step is ARGUMENT else id(step)
    if key in given or step is ARGUMENT:
        return _are_same(given.setdefault(key, v), v)
    if not isinstance(v, ir.OpResult) or _alike(v.owner) != step.alike:
        return False
    operands = v.owner.operands
    pairs = zip(step.operands, operands, strict=True)
    if len(operands) != len(step.operands) or not all(_matches(s, o, given) for s, o in pairs):
        return False
    given[key] = v
    return True


def _are_same(a: Value, b: Value) -> bool:
    """Whether two values are one, or made in the same way of one number."""
    if a == b:
        return True
    if not (isinstance(a, ir.OpResult) and isinstance(b, ir.OpResult)):
        return False
    if len(a.owner.operands) > 1 or _alike(a.owner) != _alike(b.owner):
        return False
    return all(_are_same(x, y) for x, y in zip(a.owner.operands, b.owner.operands, strict=True))


def _decay(module: ir.Module, known: Functions, d: Value) -> Value:
    """A call of log(1 + exp(-|d|)) with a rule of its own.

    This is what a softplus is above max(d, 0). Both have a kink at 0, where the other one cancels
    it: the slope of this is 0 there, as that of the maximum is 1/2, and the sum is smooth.
    """
    primal = f"{DECAY}.{'x'.join(map(str, (*build.shape(d), build.info(d.type).element)))}"
    jvp = f"{primal}.jvp"
    if jvp not in known:
        known[primal] = _added(module, primal, [d.type], lambda d: [_value_of_decay(build.abs(d))])
        known[jvp] = _added(module, jvp, [d.type] * 2, _rule_of_decay)
    return ops.call(ops.CustomJVPCall, primal, [d], [d.type], jvp=jvp).result


def _added(
    module: ir.Module, name: str, types: list[Any], emit: Callable[..., Any]
) -> ir.Operation:
    """A private function of arguments of these types, which returns what `emit` makes of them."""
    with ir.InsertionPoint(module.body), ir.Location.unknown():
        kind = ir.FunctionType.get(types, types)
        function = _jax.func.FuncOp(name, kind, visibility="private")
        block = function.add_entry_block()
    with build.inserting(ir.InsertionPoint(block), ir.Location.unknown(module.context)):
        build.emit("func.return", (), emit(*block.arguments))
    return function.operation


def _value_of_decay(size: Value) -> Value:
    return build.emit1("stablehlo.log_plus_one", size.type, [build.exp(build.neg(size))])


def _rule_of_decay(d: Value, t: Value) -> list[Value]:
    """The slope is a sigmoid of d, less 1 above 0; less a half at 0, which does not move."""

    def sigmoid(x: Value) -> Value:
        return build.emit1("stablehlo.logistic", x.type, [x])

    beside = build.select(build.compare("GT", d, 0.0), build.neg(sigmoid(build.neg(d))), sigmoid(d))
    half = build.select(build.compare("EQ", d, 0.0), build.full_like(d, 0.5), None)
    return [_value_of_decay(build.abs(d)), build.mul(t, build.sub(beside, half))]


def _decay_in_body(d: Value) -> Value:
    """The same in the body of a reduction, where no rule is called: first derivatives at least.

    The slope of d · sign(d) is 0 at 0.
    """
    return _value_of_decay(build.mul(d, build.emit1("stablehlo.sign", d.type, [d])))


def _alike(operation: Any) -> Any:
    """What two ops have in common that do the same to arrays of different shapes."""
    operation = operation.operation
    if operation.name == "stablehlo.constant":
        element = str(build.info(operation.results[0].type).element)
        return operation.name, element, _splat(operation, element)
    given = ((key, str(value)) for key, value in operation.attributes.items())
    told = sorted((key, value) for key, value in given if key not in _DEFAULTS)
    return operation.name, len(operation.operands), tuple(told)


def _splat(operation: ir.Operation, element: str) -> Any:
    """The one number of a constant; something that no other one is, if there are several."""
    if element.startswith("complex"):  # the bindings have no view of these
        text = str(operation).partition("dense<")[2].partition(" : ")[0]
        return text if text and text[0] in "(" else object()
    value = operation.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr) or not value.is_splat:
        return object()
    return str(value.get_splat_value())


@functools.cache
def _expansions(element: str, shape: tuple[int, ...]) -> list[tuple[str, Step]]:
    """The last step of the expansion of each op on such elements, longest ones first.

    Those of a scalar have constants that need not be made larger.
    """
    if element not in ELEMENTS:
        return []
    dtype, functions = ELEMENTS[element]
    found = [
        (name, *_steps(module))
        for name, f in functions.items()
        for module in _modules(f, jax.ShapeDtypeStruct(shape, dtype))
    ]
    longest_first = sorted(found, key=lambda each: -each[2])
    return [(name, last) for name, last, count in longest_first if count > 1]


def _modules(function: Callable[[Any], Any], argument: Any) -> Iterator[ir.Module]:
    """What JAX exports of a function, and what it lowers it to; each also with types refined."""
    jitted, cpu = jax.jit(function), ("cpu",)
    with jax.enable_x64(True):
        exported = export.export(jitted, platforms=cpu)(argument)
        lowered = jitted.trace(argument).lower(lowering_platforms=cpu)
    for text in (exported.mlir_module(), lowered.as_text()):
        if any(word in text for word in (CHLO, "call @")):
            continue
        module = ir.Module.parse(text, context=_jax.context())
        yield module
        before = str(module)
        refinement.refine(module)
        if str(module) != before:
            yield module


def _steps(module: ir.Module) -> tuple[Any, int]:
    """The last step of the one function of a module, and how many there are."""
    (main,) = (op for op in module.body.operations if op.attributes["sym_name"].value == "main")
    block = main.regions[0].blocks[0]
    steps: dict[Value, Any] = {block.arguments[0]: ARGUMENT}
    *operations, end = block.operations
    for view in operations:
        operands = tuple(steps[v] for v in view.operands)
        steps[view.result] = Step(_alike(view), operands)
    return steps[end.operands[0]], len(operations)
