"""The one gate of the runtime to jaxlib and to private JAX names.

Checked with jax 0.10.2 and 0.12.0. Nothing else in `pullback_runtime` imports `jax._src`,
`jax.interpreters` or `jaxlib`, so a JAX upgrade is a change to this file.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from jax._src import (
    checkify as _checkify,
    core as core,
    tree_util as _tree_util,
    util as _util,
    xla_bridge as xla_bridge,
)
from jax._src.callback import _IOEffect as IO_EFFECT
from jax._src.debugging import debug_effect as DEBUG_EFFECT
from jax._src.export import shape_poly as _shape_poly
from jax._src.interpreters import mlir as _private_mlir
from jax._src.lib import xla_client as _xla_client
from jax._src.mesh import get_concrete_mesh as get_concrete_mesh
from jax._src.stages import Compiled as Compiled
from jax.interpreters import ad as ad, batching as batching, mlir as mlir
from jax.sharding import NamedSharding, PartitionSpec, get_abstract_mesh, reshard
from jaxlib import lapack as _lapack
from jaxlib.mlir import ir as ir, passmanager as passmanager
from jaxlib.mlir._mlir_libs._mlir import rewrite as _rewrite
from jaxlib.mlir.dialects import (
    builtin as builtin,  # JAX imports it when a module is first looked into, which takes 1 ms
    func as func,
    sdy as sdy,
    stablehlo as stablehlo,
)

from pullback_runtime._contexts import Shared, cached
from pullback_runtime._lazy_values import made_once

__all__ = ["DEBUG_EFFECT", "IO_EFFECT", "context", "ir", "passmanager", "run_passes", "stablehlo"]

TO_STABLEHLO = "vhlo-legalize-to-stablehlo"
VHLO_OP = re.compile(rb"\0([a-z0-9_]+_v)(\d{1,4})(?=\0)")  # the string before it ends with NUL too

XlaRuntimeError: type[Exception] = _xla_client.XlaRuntimeError


def fresh_context() -> ir.Context:
    """A context of its own, whose memory goes when it does."""
    _register_passes()
    return getattr(_private_mlir, "_create_ir_context", mlir.make_ir_context)()


context = Shared(fresh_context)
"""The MLIR context of the runtime, with JAX's dialects and StableHLO's passes."""


def text_alone(op: Any, **limits: int) -> str:
    """A constant as it is written, with a large value left out as the limits of `get_asm` say.

    A copy is printed: printing the op itself verifies and numbers all ops of its module first.
    """
    return str(op.operation.clone(ip=False).get_asm(assume_verified=True, **limits))


_ESCAPED = re.compile(r"\\(\\|[0-9A-F]{2})")


def unescaped(text: str) -> str:
    """What MLIR wrote between quotes: all but printable ASCII as bytes, in two digits each."""
    if "\\" not in text:
        return text
    characters = _ESCAPED.sub(lambda m: m[1] if m[1] == "\\" else chr(int(m[1], 16)), text)
    return characters.encode("latin-1").decode("utf-8", "replace")


_PLACE = re.compile(r'"([^"]+)":(\d+(?::\d+)?)')


def place(op: Any) -> str:
    """Where an op stands: the first file and line that its location has, such as `model.py:7:3`."""
    found = _PLACE.search(str(op.location))
    return f"{unescaped(found[1])}:{found[2]}" if found else str(op.location)


@made_once
def _register_passes() -> None:
    stablehlo.register_stablehlo_passes()


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run a textual MLIR pipeline on `module`, in place."""
    _register_passes()
    with module.context:
        passmanager.PassManager.parse(pipeline).run(module.operation)


def mesh_axes(op: Any) -> tuple[tuple[str, int], ...]:
    """Names and sizes of the axes of an `sdy.mesh`."""
    return tuple(
        (axis.name, axis.size) for axis in map(sdy.MeshAxisAttr, sdy.MeshAttr(op.mesh).axes)
    )


def deserialize_verified(content: bytes, context: ir.Context, strings: bytes) -> ir.Module:
    """The module of a portable artifact that was verified when it was written, and is whole.

    The same as `stablehlo.deserialize_portable_artifact` in half of its time: that sets its passes
    up for each module, verifies all ops after each pass, and first brings all ops to their current
    versions, also where they have these already.

    Args:
      strings: the file's section of strings, where the names of its ops are.
    """
    if not _has_older_ops(strings, context):
        # No rule leads from an older version to StableHLO: what should be missed here is noticed.
        with contextlib.suppress(ir.MLIRError):
            return _passed(content, context, TO_STABLEHLO)
    return _passed(content, context, _from_any_version())


def _from_any_version() -> str:
    return f"vhlo-to-version{{target={stablehlo.get_current_version()}}},{TO_STABLEHLO}"


def parsed(content: bytes) -> ir.Module:
    """The module of text or bytecode; in StableHLO also where it is written in VHLO.

    Portable artifacts did not always say that they are: those of StableHLO 0.9 have MLIR's name.
    """
    module = ir.Module.parse(content)
    if b"vhlo" in content and any(
        op.operation.name.startswith("vhlo.") for op in module.body.operations
    ):
        run_passes(module, f"builtin.module({_from_any_version()})")
    return module


def _has_older_ops(strings: bytes, context: ir.Context) -> bool:
    """Whether there is a newer version of an op that the strings name."""
    return any(_has_newer(op, version, context) for op, version in VHLO_OP.findall(strings))


@cached
def _has_newer(op: bytes, version: bytes, context: ir.Context) -> bool:
    return bool(context.is_registered_operation(f"vhlo.{op.decode()}{int(version) + 1}"))


def _passed(content: bytes, context: ir.Context, pipeline: str) -> ir.Module:
    module = ir.Module.parse(content, context)
    _passes(pipeline, context).run(module.operation)
    return module


@cached
def _passes(pipeline: str, context: ir.Context) -> passmanager.PassManager:
    """Passes that do not verify what they make."""
    _register_passes()
    manager = passmanager.PassManager.parse(f"builtin.module({pipeline})", context=context)
    manager.enable_verifier(False)
    return manager


def operations_named(root: ir.Module | ir.Operation, *names: str) -> list[ir.Operation]:
    """Every op of these names below `root`, in the order of the text, inner ones first.

    MLIR's driver of patterns calls Python for these ops alone; `walk` does for each op there is.
    """
    found: list[ir.Operation] = []

    def collect(op: ir.OpView, _: Any) -> bool:
        found.append(op.operation)
        return True  # no match, as far as MLIR is concerned: nothing is rewritten

    with root.context:
        patterns = _rewrite.RewritePatternSet()
        for name in names:
            patterns.add(name, collect)
        _rewrite.walk_and_apply_patterns(root.operation, patterns.freeze())
    return found


def operations_where(
    root: ir.Module | ir.Operation, wanted: Callable[[ir.Operation], Any]
) -> list[ir.Operation]:
    """Every op at or below `root` that is wanted, inner ones first."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if wanted(op):
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit)
    return found


class _AnyField:
    def __getattr__(self, name: str) -> None:
        return None


def fields_of_dataclass(kind: type) -> tuple[int, int] | None:
    """How many fields with data and static fields a class has that JAX takes apart in C++.

    None for a class that `jax.tree_util.register_dataclass` has not registered.
    """
    entry = _tree_util._registry.get(kind)
    flatten = getattr(entry, "to_iter", None)
    if flatten is None or "register_dataclass." not in getattr(flatten, "__qualname__", ""):
        return None
    data, static = flatten(_AnyField())
    return len(data), len(static)


# What the primitive needs of tracing, lowering and differentiation.


def output_avals(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[core.ShapedArray]:
    """Result types; inside shard_map they vary over every axis that an input varies over.

    A result lies on a mesh with explicit axes as its type says, if that is the mesh that is set.
    """
    varying = frozenset().union(*(aval.mat.varying for aval in inputs))
    if not varying:
        return [_lying_as_typed(out) for out in outputs]
    kind = core.ManualAxisType(varying=varying)
    mesh = inputs[0].sharding.mesh
    return [
        core.ShapedArray(
            out.shape,
            out.dtype,
            sharding=NamedSharding(mesh, PartitionSpec(*[None] * len(out.shape))),
            manual_axis_type=kind,
        )
        for out in outputs
    ]


def _lying_as_typed(out: Any) -> core.ShapedArray:
    return core.ShapedArray(out.shape, out.dtype, sharding=_sharding_here(out))


def _sharding_here(aval: Any) -> Any:
    """How a value lies on the explicit mesh that is set; None if its type names no such mesh."""
    found = aval.sharding
    return found if found and found.mesh.abstract_mesh == get_abstract_mesh() else None


def explicit_axis(args: Sequence[Any], axes: Sequence[int | None]) -> Any:
    """The axis of a mesh, or several, along which a batch lies as its arguments' types say."""
    given = [(core.typeof(x).sharding.spec, axis) for x, axis in zip(args, axes, strict=True)]
    names = (spec[axis] for spec, axis in given if axis is not None and len(spec) > axis)
    return next((name for name in names if name is not None), None)


def lying_along(
    name: Any, outs: Sequence[Any], axes: Sequence[int | None], items: Sequence[Any]
) -> list[Any]:
    """The results of a batched call, which lie on an explicit mesh as the types of items say."""
    return [
        x if axis is None or name is sharding is None else _lying_along(name, x, axis, sharding)
        for x, axis, sharding in zip(outs, axes, map(_sharding_here, items), strict=True)
    ]


def _lying_along(name: Any, x: Any, axis: int, sharding: Any) -> Any:
    parts = [None] * (x.ndim - 1) if sharding is None else list(sharding.spec)
    return reshard(x, PartitionSpec(*parts[:axis], name, *parts[axis:]))


def be_one_step(function: Any, name: str) -> None:
    """Let `jax_debug_nans` blame a jitted function by name: it has no Python to look through."""
    function._apply_primitive = True
    function.__qualname__ = name


def tell_of_checks(primitive: Any, tell: Callable[..., None]) -> None:
    """Let `checkify` call `tell(errors, **params)` where it meets a primitive.

    `errors` are the names of the errors that it is asked to look for. It takes the primitive for
    one that makes none.
    """

    def rule(*given: Any, **params: Any) -> Any:  # jax 0.12 has one more argument in front
        (enabled,) = (each for each in given if isinstance(each, set | frozenset))
        tell(sorted(error.__name__ for error in enabled), **params)
        return _checkify.default_checkify_rule(primitive, *given, **params)

    _checkify.error_checks[primitive] = rule


def hold_weakly(kind: type) -> None:
    """Let JAX's cache of result types not keep alive what is of this class among parameters."""
    _util.weakref_cache_key_types.add(kind)


def unify_varying(args: Sequence[Any]) -> Sequence[Any]:
    """Inside shard_map, let every argument vary over the axes that any of them varies over."""
    return core.auto_insert_reshard(*args)


def emit_call(
    rule_context: Any, entry: str, args: Sequence[ir.Value], outputs: Sequence[Any]
) -> Sequence[ir.Value]:
    """A func.call of `entry` at the point where JAX is lowering; results lie as `outputs` say."""
    kinds = [mlir.aval_to_ir_type(rule_context.module_context, a) for a in rule_context.avals_out]
    call = func.CallOp(kinds, ir.FlatSymbolRefAttr.get(entry), list(args))
    return [
        _private_mlir.lower_with_sharding_in_types(rule_context, result, aval)
        if aval.sharding == out.sharding
        else result
        for result, aval, out in zip(call.results, rule_context.avals_out, outputs, strict=True)
    ]


def is_zero(tangent: Any) -> bool:
    """Whether JAX knows this tangent to be zero."""
    return type(tangent) is ad.Zero


def zero_tangent(primal: Any) -> Any:
    """The zero tangent of a value that cannot move."""
    return ad.Zero(core.typeof(primal).to_tangent_aval())


def instantiate(cotangent: Any) -> Any:
    """An array, also for a cotangent JAX knows to be zero."""
    return ad.instantiate_zeros(cotangent)


def is_undefined_primal(value: Any) -> bool:
    """Whether transposition is with respect to this argument."""
    return ad.is_undefined_primal(value)


def clients() -> list[Any]:
    """The PJRT clients of every backend that initialises here."""
    return list(xla_bridge.backends().values())


def symbols_in(avals: Sequence[Any]) -> tuple[str, ...]:
    """The symbolic dimensions in some types, in the order in which functions take their sizes."""
    return tuple(_shape_poly.all_dim_vars(avals))


def sizes_of_symbols(
    avals: Sequence[Any], tree: Any, shapes: Sequence[tuple[int, ...]]
) -> dict[str, int]:
    """What each symbol stands for, where arguments of these types have these shapes.

    Raises: ValueError where they do not fit, or break a constraint.
    """
    solution, constraints, given = _shape_poly.solve_dim_vars(tuple(avals), args_kwargs_tree=tree)
    evaluator = _shape_poly.ShapeEvaluator(
        {name: shapes[argument][dimension] for name, argument, dimension in given}
    )
    constraints.check_statically(evaluator)
    return {name: int(evaluator.evaluate(solution[name])) for name in symbols_in(avals)}


def element_type(dtype: Any) -> ir.Type:
    """MLIR element type of a NumPy dtype, in the current context."""
    return mlir.dtype_to_ir_type(dtype)


def callbacks_of(lowered: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Host callbacks and keepalives of a `jax.stages.Lowered`, as `compile` takes them."""
    args = lowered._lowering.compile_args
    return tuple(args["host_callbacks"]), tuple(args["keepalive"])


def custom_call_targets(platform: str) -> Collection[str]:
    """Return the names under which something is registered for a platform, as XLA calls it."""
    backends = xla_bridge.backends()  # what comes with a platform is registered when it starts
    return _xla_client.custom_call_targets(platform) if backends else ()


@functools.cache
def load_lapack() -> None:
    """Fill in the LAPACK functions that XLA's CPU backend calls.

    JAX does this when it lowers such a call; a process that only runs a loaded module would call
    a null pointer.
    """
    _lapack.prepare_lapack_call("potrf_ffi", np.float32)
