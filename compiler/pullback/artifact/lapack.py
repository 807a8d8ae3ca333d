"""Calls of LAPACK that `jax.export` writes for a CPU, with JAX's derivatives of what they compute.

What JAX knows of a Cholesky decomposition is lost in a file, where it is a call of `lapack_*potrf`.
JAX is asked again for a function of the same results, which takes the place of the call with all
its rules. It calls LAPACK as well.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.frontend import link
from pullback.frontend.trace import trace
from pullback.passes.regions import replace_op
from pullback.passes.symbols import CALL, functions
from pullback_runtime import _module
from pullback_runtime._jax import operations_named

Options = Mapping[str, str]
"""What a call is told, by a letter each: `uplo` is L or U."""

_DTYPES = {
    "f32": "float32",
    "f64": "float64",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    "i32": "int32",
}
_NAME = re.compile(r"lapack_[sdcz](\w+)_ffi")
_CONFIGURATIONS = ("mhlo.backend_config", "backend_config")


def _cholesky(options: Options, x: Any) -> list[Any] | None:
    """The lower triangle; the upper one is what it was."""
    if options.get("uplo") != "L":
        return None
    lower = lax.linalg.cholesky(x, symmetrize_input=False)
    return [jnp.tril(lower) + jnp.triu(x, 1)]


def _lu(options: Options, x: Any) -> list[Any]:
    lu, pivots, _ = lax.linalg.lu(x)
    return [lu, pivots + 1]


def _eigh(options: Options, x: Any) -> list[Any] | None:
    if options.get("mode") != "V":
        return None
    lower = options.get("uplo") == "L"
    return list(lax.linalg.eigh(x, lower=lower, symmetrize_input=False))


def _svd(options: Options, x: Any) -> list[Any] | None:
    mode = options.get("mode")
    if mode == "N":
        return [x, lax.linalg.svd(x, compute_uv=False)]
    u, s, vh = lax.linalg.svd(x, full_matrices=mode == "A")
    return [x, s, u, vh]


def _triangular_solve(options: Options, a: Any, b: Any) -> list[Any]:
    transposed = options.get("trans_x", "N")
    solution = lax.linalg.triangular_solve(
        a,
        b,
        left_side=options.get("side") == "L",
        lower=options.get("uplo") == "L",
        transpose_a=transposed != "N",
        conjugate_a=transposed == "C",
        unit_diagonal=options.get("diag") == "U",
    )
    return [solution]


def _tridiagonal_solve(options: Options, lower: Any, d: Any, upper: Any, b: Any) -> list[Any]:
    return [lower, d, upper, lax.linalg.tridiagonal_solve(lower, d, upper, b)]


def _qr(options: Options, x: Any) -> list[Any]:
    """R in the shape of x, with zeros below it, and Q with as many columns as R has rows."""
    q, r = lax.linalg.qr(x, full_matrices=False)
    rows = [(0, 0)] * (x.ndim - 2) + [(0, x.shape[-2] - r.shape[-2]), (0, 0)]
    return [jnp.pad(r, rows), q]


ROUTINES: dict[str, Callable[..., list[Any] | None]] = {
    "potrf": _cholesky,
    "getrf": _lu,
    "syevd": _eigh,
    "heevd": _eigh,
    "gesdd": _svd,
    "trsm": _triangular_solve,
    "gtsv": _tridiagonal_solve,
}
"""The first results of each; those behind, such as whether it went well, are 0 in its place.

Where it does not go well, the first ones are NaN. A QR decomposition has two calls.
"""


def put_back(module: ir.Module) -> bool:
    """Puts functions with rules in the place of calls of LAPACK, in place; whether there were."""
    found = [_put_back(module, call) for call in _calls(module, *ROUTINES)]
    found += [_put_back_qr(module, call) for call in _calls(module, "geqrf")]
    return any(found)


def _calls(module: ir.Module, *routines: str) -> list[ir.Operation]:
    calls = operations_named(module, "stablehlo.custom_call")
    return [call for call in calls if _routine(call) in routines]


def _routine(call: ir.Operation) -> str:
    """What a call of LAPACK calls, without the letter for the type; of others, nothing."""
    if call.name != "stablehlo.custom_call":
        return ""
    found = _NAME.fullmatch(ir.StringAttr(call.attributes["call_target_name"]).value)
    return found[1] if found else ""


def _put_back(module: ir.Module, call: ir.Operation) -> bool:
    new = _called(module, call, list(call.results))
    if new is not None:
        replace_op(call, new)
    return new is not None


def _put_back_qr(module: ir.Module, call: ir.Operation) -> bool:
    """R, and Q where it is made of the reflectors; these are not what JAX has a derivative of."""
    reflectors, scales = call.results
    makes_q = [use.owner.operation for use in scales.uses]
    if not all(_makes_q(each, reflectors) for each in makes_q) or len(makes_q) > 1:
        return False
    results = [reflectors, *(each.results[0] for each in makes_q)]
    new = _called(module, call, results)
    if new is None:
        return False
    for each, old, v in zip([*makes_q, None], results[1:], new[1:], strict=False):
        old.replace_all_uses_with(v)
        each.erase()
    replace_op(call, [new[0], scales])
    return True


def _makes_q(call: ir.Operation, reflectors: Value) -> bool:
    if _routine(call) not in ("orgqr", "ungqr"):
        return False
    v = call.operands[0]
    while isinstance(v, ir.OpResult) and v.owner.name in ("stablehlo.slice", "stablehlo.pad"):
        v = v.owner.operands[0]
    return bool(v == reflectors)


def _called(module: ir.Module, call: ir.Operation, results: Sequence[Value]) -> list[Value] | None:
    """What a function with rules gives in the place of these results, called where the call is."""
    types = [tuple(build.info(v.type) for v in each) for each in (call.operands, results)]
    if any(str(t.element) not in _DTYPES or -1 in t.shape for each in types for t in each):
        return None
    given, wanted = (tuple((t.shape, str(t.element)) for t in each) for each in types)
    source = _function(_routine(call), tuple(sorted(_options(call).items())), given, wanted)
    if source is None:
        return None
    name = link.merge(module, _module.parse(source, module.context), "main")
    private = ir.StringAttr.get("private", module.context)
    functions(module)[name].attributes["sym_visibility"] = private
    with build.inserting(ir.InsertionPoint(call), call.location):
        callee = {"callee": ir.FlatSymbolRefAttr.get(name, module.context)}
        new = build.emit(CALL, [v.type for v in results], list(call.operands), callee)
    return list(new.results)


def _options(call: ir.Operation) -> dict[str, str]:
    configurations = (call.attributes.get(name) for name in _CONFIGURATIONS)
    found = next((each for each in configurations if isinstance(each, ir.DictAttr)), ())
    letters = {each.name: each.attr for each in found}
    return {n: chr(a.value) for n, a in letters.items() if isinstance(a, ir.IntegerAttr)}


@functools.lru_cache(maxsize=256)
def _function(
    routine: str, options: tuple[tuple[str, str], ...], given: Any, wanted: Any
) -> bytes | None:
    """A module of a function with the results of a routine, and its rules; None if JAX has none."""

    def function(*operands: Any) -> list[Any]:
        first = (_qr if routine == "geqrf" else ROUTINES[routine])(dict(options), *operands) or []
        rest = [jnp.zeros(t.shape, t.dtype) for t in results[len(first) :]]
        return [*first, *rest][: len(results)] if first else []

    with jax.enable_x64(True):
        arguments, results = (list(map(_struct, each)) for each in (given, wanted))
        found = jax.eval_shape(function, *arguments)
        if [(t.shape, t.dtype) for t in found] != [(t.shape, t.dtype) for t in results]:
            return None
        program = trace(function, platforms=("cpu",))(*arguments).stage_rules()
    return _module.to_bytecode(program.module)


def _struct(described: tuple[tuple[int, ...], str]) -> Any:
    shape, element = described
    return jax.ShapeDtypeStruct(shape, _DTYPES[element])
