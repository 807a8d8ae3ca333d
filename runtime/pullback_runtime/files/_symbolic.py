"""Functions with symbolic dimensions, as `jax.export.Exported`, in and out of a saved module.

JAX checks the arguments of a call against the dimensions and refines the shapes as it compiles.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import numbers
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from pullback_runtime import _jax
from pullback_runtime._errors import DimensionError
from pullback_runtime._jax import ir
from pullback_runtime.call import _arguments, _avals, _jax_arguments
from pullback_runtime.call._arguments import CallSignature, mismatch
from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError

METADATA = "symbolic"

_POWER = re.compile(r"(?<!\w)\d+\s*\^|\^\s*\d{3}")
"""A power in the text of a dimension that JAX does not write, and could compute without end."""


def is_symbolic(aval: Any) -> bool:
    """Return True if some dimension of a type is symbolic."""
    return any(not isinstance(size, numbers.Integral) for size in getattr(aval, "shape", ()))


def sizes(
    leaves: Sequence[Any], avals: Sequence[Any], tree: Any, paths: Sequence[str]
) -> dict[str, int]:
    """Solve for the size of each symbolic dimension, given arguments or their types.

    Args:
      avals: the types that the program takes, by leaf.
      tree: the structure of its arguments.
      paths: the names of the leaves for messages.

    Raises: DimensionError where the arguments do not fit.
    """
    given = [
        each if isinstance(each, jax.ShapeDtypeStruct) else jax.typeof(each) for each in leaves
    ]
    signature = CallSignature(avals, paths)
    for index, (aval, leaf, found) in enumerate(zip(avals, leaves, given, strict=True)):
        dtype = getattr(found, "dtype", None)
        if dtype != aval.dtype and leaf is not found:
            dtype = _jax_arguments.promoted_dtype(leaf, aval.dtype)
        if dtype != aval.dtype:
            raise mismatch(signature, index, "dtype", leaf, DimensionError)
        pairs = zip(aval.shape, found.shape, strict=False)
        if len(found.shape) != len(aval.shape) or any(
            isinstance(size, int) and size != other for size, other in pairs
        ):
            raise mismatch(signature, index, "shape", leaf, DimensionError)
    try:
        return _jax.sizes_of_symbols(avals, tree, [each.shape for each in given])
    except ValueError as error:
        said = str(error).partition(" Please see ")[0].strip().removesuffix(", .").removesuffix(".")
        named = zip(paths, avals, strict=True)
        shown = [f"{path}: {_arguments.spell(aval)}" for path, aval in named if is_symbolic(aval)]
        raise DimensionError(
            f"the arguments do not fit the dimensions of the program: {said}",
            where=f"arguments with symbolic dimensions: {', '.join(shown)}",
            do="pass arrays of such shapes; a dimension is at least 1",
        ) from error


def describe(exported: Any) -> dict[str, Any]:
    """Return as JSON what `restore` needs besides the module."""
    return {
        "in_avals": list(map(_describe_aval, exported.in_avals)),
        "out_avals": list(map(_describe_aval, exported.out_avals)),
        "constraints": _jax.constraints_in(exported.in_avals),
        "kept": list(exported.module_kept_var_idx),
        "calling_convention": exported.calling_convention_version,
        "dimension_arguments": bool(exported.uses_global_constants),
    }


def _describe_aval(aval: Any) -> list[str]:
    name, shape = _avals.describe(aval)
    return [name, ", ".join(map(str, shape))]


@contextlib.contextmanager
def _refusing_damage() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"the file's symbolic types are damaged: {type(error).__name__}: {error}",
            do=SAVE_AGAIN,
        ) from error


@_refusing_damage()
def signature(described: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the types of the arguments and of the results."""
    pairs = [*described["in_avals"], *described["out_avals"]]
    texts = [*described["constraints"], *(text for _, text in pairs)]
    if (power := next(filter(None, map(_POWER.search, texts)), None)) is not None:
        raise ValueError(f"the power {power.string[:40]!r} is too high")
    scope = jax.export.SymbolicScope(described["constraints"])
    shape = functools.cache(functools.partial(jax.export.symbolic_shape, scope=scope))

    def avals(pairs: Any) -> tuple[Any, ...]:
        return tuple(
            jax.core.ShapedArray(shape(text) if text else (), _avals.dtype_named(name))
            for name, text in pairs
        )

    return avals(described["in_avals"]), avals(described["out_avals"])


@_refusing_damage()
def restore(module: ir.Module, described: Any, platforms: Sequence[str], name: str) -> Any:
    """Return a `jax.export.Exported` of flat arguments whose `@main` is the module's."""
    in_avals, out_avals = signature(described)
    version = _jax.stablehlo.get_current_version()
    with module.context, ir.Location.unknown(module.context):
        serialized = _jax.stablehlo.serialize_portable_artifact(module, version)
    template = jax.export.export(jax.jit(lambda: ()))()
    inputs, outputs = (None,) * len(in_avals), (None,) * len(out_avals)
    return dataclasses.replace(
        template,
        fun_name=name,
        in_tree=jax.tree.structure(((0,) * len(in_avals), {})),
        out_tree=jax.tree.structure((0,) * len(out_avals)),
        in_avals=in_avals,
        out_avals=out_avals,
        _in_named_shardings=inputs,
        _out_named_shardings=outputs,
        in_shardings_hlo=inputs,
        out_shardings_hlo=outputs,
        platforms=tuple(platforms),
        mlir_module_serialized=serialized,
        calling_convention_version=int(described["calling_convention"]),
        module_kept_var_idx=tuple(map(int, described["kept"])),
        uses_global_constants=bool(described["dimension_arguments"]),
        _get_vjp=None,
    )
