"""Ops that `jax.export` writes as many others, found again in a file and put back.

What it writes of `erfc`, or of an exponential of complex numbers, computes the same but has not its
derivative: a `select` that gives 0 for the sine of a real number has slope 0 there. What an op
becomes is asked of JAX itself, once for each element type; where those ops are, step by step, the
op is put in the place of the last one. A file of another JAX may have other steps, and stays as it
is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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

LOGADDEXP = "logaddexp"
REAL: dict[str, Callable[..., Any]] = {
    "chlo.erfc": lax.erfc,
    "chlo.erf_inv": lax.erf_inv,
    "chlo.lgamma": lax.lgamma,
    "chlo.digamma": lax.digamma,
    "chlo.bessel_i1e": lax.bessel_i1e,
    "stablehlo.logistic": lax.logistic,
    LOGADDEXP: jax.numpy.logaddexp,
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
    "stablehlo.multiply",
)
INSIDE = ("stablehlo.exponential", "stablehlo.log", "stablehlo.log_plus_one", "stablehlo.sqrt")
"""Each expansion has one of these, and most modules without expansions have none."""


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
    found = [_put_back(module, root) for root in operations_named(module, *ROOTS)]
    if any(found):
        known = functions(module)
        for function in known.values():
            for block in function.regions[0].blocks:
                erase_dead_ops(block, known)
    return any(found)


def _put_back(module: ir.Module, root: ir.Operation) -> bool:
    """Puts in the place of an op what it is the last step of, if it is."""
    result = root.results[0]
    t, alike = build.info(result.type), _alike(root)
    for name, last in _expansions(str(t.element), () if t.shape == () else (7,)):
        given: dict[Any, Value] = {}
        if last.alike != alike or not _matches(last, result, given):
            continue
        operands = [given[i] for i in sorted(key for key in given if isinstance(key, int))]
        if any(v.type != result.type for v in operands):
            continue
        with build.inserting(ir.InsertionPoint(root), root.location):
            if name == LOGADDEXP:
                calls = root.parent.name in MAY_CALL
                new = _log_add_exp(module, *operands) if calls else _in_body(*operands)
            else:
                new = build.emit1(name, result.type, operands)
        replace_op(root, [new])
        return True
    return False


_DEFAULTS = {"compare_type", "result_accuracy"}


def _matches(step: Any, v: Value, given: dict[Any, Value]) -> bool:
    """Whether a value is computed as a step of an expansion is, from what is given."""
    key = step if isinstance(step, int) else str(id(step))
    if key in given or key is step:
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


def _log_add_exp(module: ir.Module, x: Value, y: Value) -> Value:
    """A call of log(eˣ + eʸ) with the rule that its slope by x is that of a sigmoid of x - y.

    Its steps have kinks where x and y are equal, which cancel each other; their slopes do not.
    """
    primal = f"{LOGADDEXP}.{'x'.join(map(str, (*build.shape(x), build.info(x.type).element)))}"
    jvp = f"{primal}.jvp"
    if jvp not in functions(module):
        _add(module, primal, [x.type] * 2, _steps_of_log_add_exp)
        _add(module, jvp, [x.type] * 4, _rule_of_log_add_exp)
    return ops.call(ops.CustomJVPCall, primal, [x, y], [x.type], jvp=jvp).result


def _add(module: ir.Module, name: str, types: list[Any], emit: Callable[..., Any]) -> None:
    """A private function of arguments of these types, which returns what `emit` makes of them."""
    with ir.InsertionPoint(module.body), ir.Location.unknown():
        kind = ir.FunctionType.get(types, [types[0]] * (len(types) // 2))
        block = _jax.func.FuncOp(name, kind, visibility="private").add_entry_block()
    with build.inserting(ir.InsertionPoint(block), ir.Location.unknown(module.context)):
        build.emit("func.return", (), emit(*block.arguments))


def _in_body(x: Value, y: Value) -> Value:
    """The same in the body of a reduction, where no rule is called: first derivatives at least.

    The slope of d · sign(d) is 0 at 0, and each of two equal numbers has half of the sum's.
    """

    def size(apart: Value) -> Value:
        return build.mul(apart, build.emit1("stablehlo.sign", apart.type, [apart]))

    return _steps_of_log_add_exp(x, y, size)[0]


def _steps_of_log_add_exp(
    x: Value, y: Value, size: Callable[[Value], Value] = build.abs
) -> list[Value]:
    apart = build.sub(x, y)
    rest = build.emit1("stablehlo.log_plus_one", x.type, [build.exp(build.neg(size(apart)))])
    total = build.add(build.maximum(x, y), rest)
    return [build.select(build.compare("NE", apart, apart), build.add(x, y), total)]


def _rule_of_log_add_exp(x: Value, y: Value, tx: Value, ty: Value) -> list[Value]:
    """Of equal infinities the difference is NaN, and JAX gives the sum of the tangents."""
    apart = build.sub(x, y)
    share = build.emit1("stablehlo.logistic", x.type, [apart])
    total = build.add(ty, build.mul(share, build.sub(tx, ty)))
    tangent = build.select(build.compare("NE", apart, apart), build.add(tx, ty), total)
    return [*_steps_of_log_add_exp(x, y), tangent]


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
        (name, *_steps(text))
        for name, f in functions.items()
        for text in _texts(f, [jax.ShapeDtypeStruct(shape, dtype)] * (1 + (name == LOGADDEXP)))
        if not any(word in text for word in (CHLO, "call @"))
    ]
    longest_first = sorted(found, key=lambda each: -each[2])
    return [(name, last) for name, last, count in longest_first if count > 1]


def _texts(function: Callable[..., Any], arguments: list[Any]) -> list[str]:
    """What JAX exports of a function, and what it lowers it to; each also with types refined."""
    jitted, cpu = jax.jit(function), ("cpu",)
    with jax.enable_x64(True):
        exported = export.export(jitted, platforms=cpu)(*arguments)
        lowered = jitted.trace(*arguments).lower(lowering_platforms=cpu)
    given = exported.mlir_module(), lowered.as_text()
    modules = [ir.Module.parse(text, context=_jax.context()) for text in given]
    texts = list(map(str, modules))
    for module in modules:
        refinement.refine(module)
    return list(dict.fromkeys([*texts, *map(str, modules)]))


def _steps(text: str) -> tuple[Any, int]:
    """The last step of the one function of a module, and how many there are."""
    module = ir.Module.parse(text, context=_jax.context())
    (main,) = (op for op in module.body.operations if op.attributes["sym_name"].value == "main")
    block = main.regions[0].blocks[0]
    steps: dict[Value, Any] = {v: i for i, v in enumerate(block.arguments)}
    *operations, end = block.operations
    for view in operations:
        operands = tuple(steps[v] for v in view.operands)
        steps[view.result] = Step(_alike(view), operands)
    return steps[end.operands[0]], len(operations)
