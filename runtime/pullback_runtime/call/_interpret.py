"""Run a module in StableHLO's reference interpreter: no XLA, a second opinion.

The interpreter ends the process on an op or a shape it does not know, and on values its Python
binding cannot hand back; so ops are checked first, and complex and small float values cross the
border as plain floats. Its scatter overwrites its operand, so each gets a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pullback_runtime import _jax
from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir
from pullback_runtime.call._arguments import check_avals
from pullback_runtime.call._handle import make_handle
from pullback_runtime.call._jax_arguments import promoted_dtype
from pullback_runtime.ir import _module
from pullback_runtime.ir._module import Aval

UNSUPPORTED = frozenset(
    """
    all_gather all_reduce all_to_all async_done async_start batch_norm_grad
    batch_norm_inference batch_norm_training broadcast cholesky collective_broadcast
    collective_permute create_token custom_call dot einsum fft infeed outfeed partition_id
    recv reduce_scatter replica_id rng rng_bit_generator send set_dimension_size
    torch_index_select unary_einsum uniform_dequantize uniform_quantize
    """.split()
)
CONTRACTIONS = frozenset(["dot_general", "convolution"])
SUPPORTED_DIALECTS = ("stablehlo.", "func.", "builtin.")
CARRIERS = {  # packed bits of fewer than nine booleans would be read as one splat value
    "bool": np.int8,
    "int4": np.int8,
    "uint4": np.uint8,
    "complex64": np.float32,
    "complex128": np.float64,
}
INNER = "interpreted_entry"


def run_interpreted(
    module: Any, *args: Any, entry: str = "main", arg_names: Sequence[str] | None = None
) -> tuple[np.ndarray, ...]:
    """Run a module op by op in the reference interpreter; return its results as NumPy arrays.

    Raises: ArgumentError as a compiled call does; ModuleError for an op that only a backend
    can run.
    """
    handle = make_handle(module, entry=entry, arg_names=arg_names)
    arrays = [_as_array(arg, aval) for arg, aval in zip(args, handle.in_avals, strict=False)] + [
        np.asarray(arg) for arg in args[len(handle.in_avals) :]
    ]
    check_avals(handle, arrays)
    lowered = _module.parse(handle.load())
    _jax.run_passes(lowered, "builtin.module(func.func(chlo-legalize-to-stablehlo))")
    _refuse_unsupported(lowered)
    _copy_what_is_overwritten(lowered)
    _wrap_entry(lowered, entry, handle.in_avals, handle.out_avals)
    parts = [part for array in arrays for part in _split(array)]
    return _join_all(_evaluate(lowered, parts), handle.out_avals)


def _as_array(arg: Any, aval: Aval) -> np.ndarray:
    """Convert an argument to an array, promoting a Python scalar as a compiled call would."""
    if not isinstance(arg, bool | int | float | complex):
        return np.asarray(arg)
    try:
        promoted = promoted_dtype(arg, aval.dtype)
    except OverflowError:  # where JAX has 32 bits only; the interpreter has them all
        promoted = None
    same = promoted == jax.dtypes.canonicalize_dtype(aval.dtype)
    return np.asarray(arg, aval.dtype if same else promoted)


def _contracts_nothing(op: Any) -> bool:
    """Return True if an op sums over no elements, which ends the process in the interpreter."""
    if op.name.removeprefix("stablehlo.") not in CONTRACTIONS:
        return False
    return 0 not in op.results[0].type.shape and any(0 in v.type.shape for v in op.operands)


def _refuse_unsupported(module: ir.Module) -> None:
    for op in _jax.operations_where(module, _unsupported)[:1]:
        raise ModuleError(
            f"the reference interpreter does not know {_unsupported(op)}",
            where=_jax.place(op),
            do="run it on a backend: compile(module, backend='cpu')",
        )


def _unsupported(op: Any) -> str | None:
    """Return what the interpreter does not know about an op, for messages; None if it knows all."""
    name = op.name.removeprefix("stablehlo.")
    if name in UNSUPPORTED or not op.name.startswith(SUPPORTED_DIALECTS):
        return str(op.name)
    if _contracts_nothing(op):
        return f"{op.name} of empty arrays"
    dynamic = any(_is_dynamic(r.type) for r in op.results)
    return f"the dynamic shape that {op.name} has" if dynamic else None


def _is_dynamic(kind: ir.Type) -> bool:
    return isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape


def _copy_what_is_overwritten(module: ir.Module) -> None:
    """Copy the operands of each scatter, because the interpreter overwrites them."""
    for op in _jax.operations_named(module, "stablehlo.scatter"):
        with ir.InsertionPoint(op), op.location:
            for i in range(len(op.results)):
                x = op.operands[i]
                op.operands[i] = _jax.stablehlo.reshape(x.type, x)  # a new array, of the same bits


# The border: a wrapper around the entry whose types the interpreter's binding can carry.


def _is_complex(aval: Aval) -> bool:
    return np.issubdtype(aval.dtype, np.complexfloating)


def _carrier(dtype: np.dtype) -> np.dtype:
    """Return a dtype that holds every value of `dtype` and that the binding can carry."""
    if dtype.name in CARRIERS:
        return np.dtype(CARRIERS[dtype.name])
    return np.dtype(np.float32) if dtype.isbuiltin != 1 else dtype


def _split(array: np.ndarray) -> list[np.ndarray]:
    carrier = _carrier(array.dtype)
    if np.iscomplexobj(array):
        return [array.real.astype(carrier), array.imag.astype(carrier)]
    return [array.astype(carrier)]


def _join_all(parts: Sequence[np.ndarray], avals: Sequence[Aval]) -> tuple[np.ndarray, ...]:
    remaining = iter(parts)
    results = []
    for aval in avals:
        array = next(remaining)
        if _is_complex(aval):
            whole = np.empty(array.shape, aval.dtype)
            # Not a sum: 1j times infinity has no real part.
            whole.real, whole.imag = array, next(remaining)
            array = whole
        results.append(array.astype(aval.dtype))
    return tuple(results)


def _wrap_entry(
    module: ir.Module, entry: str, in_avals: Sequence[Aval], out_avals: Sequence[Aval]
) -> None:
    """Rename the entry and add a `@main` that converts arguments and results."""
    symbols = ir.SymbolTable(module.operation)
    function = symbols[entry]
    kinds = function.type
    with module.context, ir.Location.unknown():
        symbols.set_symbol_name(function, INNER)
        symbols.replace_all_symbol_uses(entry, INNER, module.operation)
        ins = [_carried_type(k, a) for k, a in zip(kinds.inputs, in_avals, strict=True)]
        outs = [_carried_type(k, a) for k, a in zip(kinds.results, out_avals, strict=True)]
        flat = ir.FunctionType.get(_flat(ins, in_avals), _flat(outs, out_avals))
        with ir.InsertionPoint(module.body):
            wrapper = _jax.func.FuncOp("main", flat)
        with ir.InsertionPoint(wrapper.add_entry_block()):
            _wrapper_body(wrapper, kinds, in_avals, outs, out_avals)


def _wrapper_body(
    wrapper: Any,
    kinds: ir.FunctionType,
    in_avals: Sequence[Aval],
    outs: Sequence[ir.Type],
    out_avals: Sequence[Aval],
) -> None:
    parts = iter(wrapper.arguments)
    args = []
    for kind, aval in zip(kinds.inputs, in_avals, strict=True):
        part = next(parts)
        args.append(
            _jax.stablehlo.complex(part, next(parts)) if _is_complex(aval) else _cast(part, kind)
        )
    call = _jax.func.CallOp(kinds.results, ir.FlatSymbolRefAttr.get(INNER), args)
    results: list[ir.Value] = []
    for value, kind, aval in zip(call.results, outs, out_avals, strict=True):
        if _is_complex(aval):
            results += [_jax.stablehlo.real(value), _jax.stablehlo.imag(value)]
        else:
            results.append(_cast(value, kind))
    _jax.func.ReturnOp(results)


def _cast(value: ir.Value, kind: ir.Type) -> ir.Value:
    return value if value.type == kind else _jax.stablehlo.convert(kind, value)


def _carried_type(kind: Any, aval: Aval) -> ir.Type:
    if _carrier(np.dtype(aval.dtype)) == aval.dtype:
        return kind
    return ir.RankedTensorType.get(kind.shape, _jax.element_type(_carrier(np.dtype(aval.dtype))))


def _flat(types: Sequence[ir.Type], avals: Sequence[Aval]) -> list[ir.Type]:
    return [t for t, a in zip(types, avals, strict=True) for _ in range(1 + _is_complex(a))]


def _evaluate(module: ir.Module, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    with module.context, ir.Location.unknown():
        results = _jax.stablehlo.eval_module(module, [_attribute(array) for array in arrays])
        return [np.array(result) for result in results]


def _attribute(array: np.ndarray) -> ir.Attribute:
    kind = _jax.element_type(array.dtype)
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=kind, shape=array.shape)
