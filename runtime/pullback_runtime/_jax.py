"""The one gate of the runtime to jaxlib and to private JAX names.

Checked with jax 0.10.2 and 0.12.0. Nothing else in `pullback_runtime` imports `jax._src`,
`jax.interpreters` or `jaxlib`, so a JAX upgrade is a change to this file.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jaxlib
import numpy as np
from jax._src import (
    checkify as _checkify,
    core as _core,
    traceback_util as _traceback_util,
    tree_util as _tree_util,
    util as _util,
)
from jax._src.callback import _IOEffect as IO_EFFECT
from jax._src.debugging import debug_effect as DEBUG_EFFECT
from jax._src.export import shape_poly as _shape_poly
from jax._src.interpreters import mlir as _private_mlir, partial_eval as _pe
from jax._src.lib import xla_client as _xla_client
from jax._src.mesh import get_concrete_mesh as get_concrete_mesh
from jax.extend import backend as _backend
from jax.extend.core import Var
from jax.interpreters import ad as _ad, mlir as _mlir
from jax.interpreters.ad import (
    primitive_jvps as primitive_jvps,
    primitive_transposes as primitive_transposes,
)
from jax.interpreters.batching import primitive_batchers as primitive_batchers
from jax.interpreters.mlir import (
    ir_constant as ir_constant,
    make_ir_context as make_ir_context,
    register_lowering as register_lowering,
)
from jax.sharding import NamedSharding, PartitionSpec, get_abstract_mesh, reshard
from jaxlib import lapack as _lapack
from jaxlib.mlir._mlir_libs._mlir import rewrite as _rewrite
from jaxlib.mlir.dialects import (
    builtin as builtin,  # JAX imports it when a module is first looked into, which takes 1 ms
)

from pullback_runtime import _mlir as _of_jaxlib
from pullback_runtime._mlir import (
    TO_STABLEHLO,
    from_any_version,
    func as func,
    ir as ir,
    passmanager as passmanager,
    run_passes as run_passes,
    sdy as sdy,
    stablehlo as stablehlo,
)
from pullback_runtime.ir._contexts import Shared, cached

__all__ = ["DEBUG_EFFECT", "IO_EFFECT", "context", "ir", "passmanager", "run_passes", "stablehlo"]

VHLO_OP = re.compile(rb"\0([a-z0-9_]+_v)(\d{1,4})(?=\0)")  # the string before it ends with NUL too

XlaRuntimeError: type[Exception] = jax.errors.JaxRuntimeError


def fresh_context() -> ir.Context:
    """Return a new MLIR context that is not shared, so that its memory can be freed."""
    return _of_jaxlib.fresh_context(_private_mlir.global_thread_pool)


context = Shared(fresh_context)
"""The MLIR context of the runtime, with JAX's dialects and StableHLO's passes."""


def text_alone(op: Any, **limits: int) -> str:
    """Print an op without its module; `limits` of `get_asm` elide large values.

    A detached copy is printed: to print the op itself, MLIR would first verify and number all ops
    of its module.
    """
    return str(op.operation.clone(ip=False).get_asm(assume_verified=True, **limits))


_ESCAPED = re.compile(r"\\(\\|[0-9A-F]{2})")


def unescaped(text: str) -> str:
    """Undo the escapes of a quoted MLIR string: bytes as two hex digits after a backslash."""
    if "\\" not in text:
        return text
    characters = _ESCAPED.sub(lambda m: m[1] if m[1] == "\\" else chr(int(m[1], 16)), text)
    return characters.encode("latin-1").decode("utf-8", "replace")


_PLACE = re.compile(r'"([^"]+)":(\d+(?::\d+)?)')


def place(op: Any) -> str:
    """Return the first file and line in an op's location, such as `model.py:7:3`."""
    found = _PLACE.search(str(op.location))
    return f"{unescaped(found[1])}:{found[2]}" if found else str(op.location)


def mesh_axes(op: Any) -> tuple[tuple[str, int], ...]:
    """Return the names and sizes of the axes of an `sdy.mesh`."""
    return tuple(
        (axis.name, axis.size) for axis in map(sdy.MeshAxisAttr, sdy.MeshAttr(op.mesh).axes)
    )


def deserialize_verified(content: bytes, context: ir.Context, strings: bytes) -> ir.Module:
    """Parse a portable artifact that was verified when it was written, and whose digest fits.

    This does what `stablehlo.deserialize_portable_artifact` does in half the time: that sets up its
    passes for each module, verifies all ops after each pass, and first upgrades all ops to their
    current versions, even if they have these already.

    Args:
      strings: the file's section of strings, where the names of its ops are.
    """
    if not _has_older_ops(strings, context):
        # No rule leads from an older version to StableHLO: what should be missed here is noticed.
        with contextlib.suppress(ir.MLIRError):
            return _passed(content, context, TO_STABLEHLO)
    return _passed(content, context, from_any_version())


def _has_older_ops(strings: bytes, context: ir.Context) -> bool:
    """Return True if the strings name an op of VHLO of which there is a newer version."""
    return any(_has_newer(op, version, context) for op, version in VHLO_OP.findall(strings))


@cached
def _has_newer(op: bytes, version: bytes, context: ir.Context) -> bool:
    return bool(context.is_registered_operation(f"vhlo.{op.decode()}{int(version) + 1}"))


def without_locations(content: bytes) -> ir.Module:
    """Parse bytecode as a module in which nothing has a location."""
    return _passed(content, context(), "strip-debuginfo")


def run_unverified(module: ir.Module, passes: str) -> None:
    """Run passes of MLIR on a module, in place, that leave a valid module valid."""
    text = f"builtin.module({passes})"
    manager = passmanager.PassManager.parse(text, context=module.context)
    manager.enable_verifier(False)
    manager.run(module.operation)


def _passed(content: bytes, context: ir.Context, pipeline: str) -> ir.Module:
    module = ir.Module.parse(content, context)
    _passes(pipeline, context).run(module.operation)
    return module


@cached
def _passes(pipeline: str, context: ir.Context) -> passmanager.PassManager:
    """Return a pass manager for a pipeline, memoized, that does not verify between passes."""
    manager = passmanager.PassManager.parse(f"builtin.module({pipeline})", context=context)
    manager.enable_verifier(False)
    return manager


def operations_named(root: ir.Module | ir.Operation, *names: str) -> list[ir.Operation]:
    """Return every op of these names below `root`, in post-order: inner ones first.

    MLIR's pattern driver calls Python for these ops alone; `walk` would call it for every op.
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
    """Return every op at or below `root` for which `wanted` is true, inner ones first."""
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
    """Return the numbers of data and of static fields of a registered dataclass.

    None for a class that is not registered by `jax.tree_util.register_dataclass`.
    """
    entry = _tree_util._registry.get(kind)
    flatten = getattr(entry, "to_iter", None)
    if flatten is None or "register_dataclass." not in getattr(flatten, "__qualname__", ""):
        return None
    data, static = flatten(_AnyField())
    return len(data), len(static)


# What the primitive needs of tracing, lowering and differentiation.


def output_avals(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[jax.core.ShapedArray]:
    """Return result types; inside shard_map they vary over every axis that an input varies over.

    Outside, a result has the sharding in its type if that is on the explicit mesh of the inputs.
    """
    varying = frozenset().union(*(aval.mat.varying for aval in inputs))
    mesh = mesh_of(inputs)
    if not varying:
        return [
            jax.core.ShapedArray(out.shape, out.dtype, sharding=sharding_on(mesh, out))
            for out in outputs
        ]
    kind = jax.sharding.ManualAxisType(varying=varying)
    return [
        jax.core.ShapedArray(
            out.shape,
            out.dtype,
            sharding=NamedSharding(mesh, PartitionSpec(*[None] * len(out.shape))),
            manual_axis_type=kind,
        )
        for out in outputs
    ]


def mesh_of(avals: Sequence[Any]) -> Any:
    """Return the abstract mesh that some of the types name, or else the one that is set.

    The types of arrays on an explicit mesh name it, where `jax.set_mesh` has not set it as well.
    """
    named = (aval.sharding.mesh.abstract_mesh for aval in avals if aval.sharding)
    return next((mesh for mesh in named if not mesh.empty), None) or get_abstract_mesh()


def sharding_on(mesh: Any, aval: Any) -> Any:
    """Return a type's sharding if it is on this mesh; otherwise None."""
    found = aval.sharding
    return found if found and found.mesh.abstract_mesh == mesh else None


def explicit_axis(avals: Sequence[Any], axes: Sequence[int | None]) -> Any:
    """Return the mesh axis, or axes, over which the arguments' types shard the batch dimension."""
    given = [(aval.sharding.spec, axis) for aval, axis in zip(avals, axes, strict=True)]
    names = (spec[axis] for spec, axis in given if axis is not None and len(spec) > axis)
    return next((name for name in names if name is not None), None)


def lying_along(
    mesh: Any, name: Any, outs: Sequence[Any], axes: Sequence[int | None], items: Sequence[Any]
) -> list[Any]:
    """Reshard the results of a batched call: `name` for the batch, the rest as `items` say."""
    return [
        x
        if axis is None or name is sharding is None
        else _lying_along(mesh, name, x, axis, sharding)
        for x, axis, sharding in zip(
            outs, axes, (sharding_on(mesh, item) for item in items), strict=True
        )
    ]


def _lying_along(mesh: Any, name: Any, x: Any, axis: int, sharding: Any) -> Any:
    parts = [None] * (x.ndim - 1) if sharding is None else list(sharding.spec)
    return reshard(x, NamedSharding(mesh, PartitionSpec(*parts[:axis], name, *parts[axis:])))


def be_one_step(function: Any, name: str) -> None:
    """Mark a jitted function as one primitive, which `jax_debug_nans` reports by `name`."""
    function._apply_primitive = True
    function.__qualname__ = name


def tell_of_checks(primitive: Any, tell: Callable[..., None]) -> None:
    """Register a `checkify` rule that calls `tell(errors, **params)` for a primitive.

    `errors` are the names of the errors that `checkify` is asked for. If `tell` returns, the
    primitive counts as one without errors.
    """

    def rule(*given: Any, **params: Any) -> Any:  # jax 0.12 has one more leading argument
        (enabled,) = (each for each in given if isinstance(each, set | frozenset))
        tell(sorted(error.__name__ for error in enabled), **params)
        return _checkify.default_checkify_rule(primitive, *given, **params)

    _checkify.error_checks[primitive] = rule


def evaluate_partially(primitive: Any, split: Callable[..., Any]) -> None:
    """Register rules by which JAX evaluates calls of a primitive partially, to linearize them.

    By default, JAX takes all results of a call as unknown if any operand is. Then it could not
    linearize a call that returns the value and the tangent.

    Args:
      primitive: has the one parameter `handle`.
      split: `split(unknown, handle)` returns `Halves`, given a flag for each operand; or None if
        no result can be known.
    """

    def halves_of(unknown: Sequence[bool], types: Sequence[Any], handle: Any) -> Any:
        # Results vary over those axes of a `shard_map` that operands vary over. So a half without
        # operands is not split off where types vary: its results could not.
        if not any(unknown) or (all(unknown) and any(t.mat.varying for t in types)):
            return None
        return split(unknown, handle)

    def taken(halves: Any, found: Sequence[Any]) -> list[Any]:
        """Return the residuals, among the results of the first call, that the second takes."""
        residuals = found[halves.late.count(False) :]
        pairs = zip(residuals, halves.residuals, strict=True)
        return [residual for residual, source in pairs if source is None]

    def trace_rule(trace: Any, *tracers: Any, handle: Any) -> Sequence[Any]:
        unknown = [not tracer.is_known() for tracer in tracers]
        halves = halves_of(unknown, [tracer.aval for tracer in tracers], handle)
        if halves is None:
            params = {"handle": handle}
            return list(trace.default_process_primitive(primitive, tracers, params))
        known = [tracers[i].pval.get_known() for i in halves.takes]
        types, params = tuple(map(jax.typeof, known)), {"handle": halves.known}
        found = list(primitive.bind_with_trace(trace.parent_trace, known, types, params))
        operands = [*tracers, *map(trace.new_const, taken(halves, found))]
        results = trace.default_process_primitive(primitive, operands, {"handle": halves.rest})
        later, ahead = dict(zip(halves.gives, results, strict=True)), iter(found)
        return [later[i] if flag else next(ahead) for i, flag in enumerate(halves.late)]

    def equation_rule(
        saveable: Any, unknown: Sequence[bool], recomputed: Sequence[bool], eqn: Any
    ) -> tuple[Any, Any, Sequence[bool], Sequence[bool], list[Any]]:
        everything, nothing = [True] * len(eqn.outvars), [False] * len(eqn.outvars)
        needed = [v for v, again in zip(eqn.invars, recomputed, strict=True) if not again]
        types = [v.aval for v in eqn.invars]
        halves = halves_of(unknown, types, eqn.params["handle"])
        if any(unknown) and halves is None:
            return None, eqn, everything, everything, needed
        late, known, found = nothing, eqn, list(eqn.outvars)
        if halves is not None:
            late, params = halves.late, {"handle": halves.known}
            found = [v for v, flag in zip(found, late, strict=True) if not flag]
            avals, effects = primitive.abstract_eval(*(types[i] for i in halves.takes), **params)
            found += map(Var, avals[len(found) :])
            invars = [eqn.invars[i] for i in halves.takes]
            known = eqn.replace(invars=invars, outvars=found, params=params, effects=effects)
        policy = _pe.ensure_enum(saveable(eqn.primitive, *types, **eqn.params))
        if not eqn.effects and not isinstance(policy, _pe.SaveableType):
            return known, eqn, late, everything, needed
        if halves is None:
            return known, None, late, late, []
        residuals = taken(halves, found)
        outs = [eqn.outvars[i] if late[i] else Var(eqn.outvars[i].aval) for i in halves.gives]
        invars, params = [*eqn.invars, *residuals], {"handle": halves.rest}
        rest = eqn.replace(invars=invars, outvars=outs, params=params)
        return known, rest, late, late, [*needed, *residuals]

    _pe.custom_partial_eval_rules[primitive] = trace_rule
    _pe.partial_eval_jaxpr_custom_rules[primitive] = equation_rule


def hide_frames(folder: str) -> None:
    """Leave the functions of a folder out of tracebacks, where JAX leaves out its own."""
    _traceback_util.register_exclusion(folder)


hide_frames(os.path.dirname(os.path.abspath(__file__)))


def hold_weakly(kind: type) -> None:
    """Let JAX's cache of result types hold parameters of this class by weak references only."""
    _util.weakref_cache_key_types.add(kind)


def unify_varying(args: Sequence[Any]) -> Sequence[Any]:
    """Cast arguments, inside shard_map, to vary over every axis that any of them varies over."""
    return _core.auto_insert_reshard(*args)


def emit_call(
    rule_context: Any, entry: str, args: Sequence[ir.Value], outputs: Sequence[Any]
) -> Sequence[ir.Value]:
    """Emit a func.call of `entry` where JAX is lowering, with the shardings of `outputs`."""
    kinds = [_mlir.aval_to_ir_type(rule_context.module_context, a) for a in rule_context.avals_out]
    call = func.CallOp(kinds, ir.FlatSymbolRefAttr.get(entry), list(args))
    return [
        _private_mlir.lower_with_sharding_in_types(rule_context, result, aval)
        if aval.sharding == out.sharding
        else result
        for result, aval, out in zip(call.results, rule_context.avals_out, outputs, strict=True)
    ]


def is_zero(tangent: Any) -> bool:
    """Return True if a tangent is a symbolic zero."""
    return type(tangent) is _ad.Zero


def zero_tangent(primal: Any) -> Any:
    """Return the symbolic zero tangent of a primal value."""
    return _ad.Zero(jax.typeof(primal).to_tangent_aval())


def instantiate(cotangent: Any) -> Any:
    """Return a cotangent as an array, also if it is a symbolic zero."""
    return _ad.instantiate_zeros(cotangent)


def is_undefined_primal(value: Any) -> bool:
    """Return True if transposition is with respect to this argument."""
    return _ad.is_undefined_primal(value)


def clients() -> list[Any]:
    """Return the PJRT clients of every backend that initialises here."""
    return list(_backend.backends().values())


def symbols_in(avals: Sequence[Any]) -> tuple[str, ...]:
    """Return the symbolic dimensions in types, in the order in which functions take their sizes."""
    return tuple(_shape_poly.all_dim_vars(avals))


def constraints_in(avals: Sequence[Any]) -> list[str]:
    """Return the user's constraints on the symbolic dimensions in types, such as `b >= 2`."""
    sizes = (size for aval in avals for size in aval.shape)
    scope = next((size.scope for size in sizes if not isinstance(size, int)), None)
    return [] if scope is None else [each.debug_str for each in scope._explicit_constraints]


def sizes_of_symbols(
    avals: Sequence[Any], tree: Any, shapes: Sequence[tuple[int, ...]]
) -> dict[str, int]:
    """Solve for the size of each symbolic dimension, given the arguments' types and shapes.

    Raises: ValueError if the shapes do not fit the types, or break a constraint.
    """
    solution, constraints, given = _shape_poly.solve_dim_vars(tuple(avals), args_kwargs_tree=tree)
    evaluator = _shape_poly.ShapeEvaluator(
        {name: shapes[argument][dimension] for name, argument, dimension in given}
    )
    constraints.check_statically(evaluator)
    return {name: int(evaluator.evaluate(solution[name])) for name in symbols_in(avals)}


def element_type(dtype: Any) -> ir.Type:
    """Return the MLIR element type of a NumPy dtype, in the current context."""
    return _mlir.dtype_to_ir_type(dtype)


def callbacks_of(lowered: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return host callbacks and keepalives of a `jax.stages.Lowered`, as `compile` takes them."""
    args = lowered._lowering.compile_args
    return tuple(args["host_callbacks"]), tuple(args["keepalive"])


def custom_call_targets(platform: str) -> Collection[str]:
    """Return the custom-call targets registered for a platform, given by XLA's name for it."""
    backends = _backend.backends()  # what comes with a platform is registered when it starts
    return _xla_client.custom_call_targets(platform) if backends else ()


@functools.cache
def load_lapack() -> None:
    """Initialise the LAPACK functions that XLA's CPU backend calls.

    JAX does this when it lowers such a call; a process that only runs a loaded module would call
    a null pointer.
    """
    _lapack.prepare_lapack_call("potrf_ffi", np.float32)


jaxlib_version: str = jaxlib.__version__


def compile_for(device: jax.Device, program: bytes) -> Any:
    """Compile a portable artifact, as it is, for one device; return XLA's executable."""
    if b"lapack_" in program:
        load_lapack()
    return device.client.compile_and_load(program, *_placement(device))


def load_code(device: jax.Device, code: bytes) -> Any:
    """Load machine code that an executable has serialized, for one device."""
    load_lapack()
    devices, options = _placement(device)
    return device.client.deserialize_executable(code, devices, options)


def _placement(device: jax.Device) -> tuple[Any, Any]:
    options = _backend.get_compile_options(num_replicas=1, num_partitions=1)
    return _xla_client.DeviceList((device,)), options


def execute(executable: Any, arrays: Sequence[np.ndarray], device: jax.Device) -> list[np.ndarray]:
    """Run an executable on arrays, of 64 bits too, and wait for its results."""
    with jax.enable_x64(True):
        # Copies, since JAX on a CPU would share the memory of the caller's arrays.
        given = [jax.device_put(array.copy(), device) for array in arrays]
    results = executable.execute_sharded(given).disassemble_into_single_device_arrays()
    return [np.asarray(shards[0]) for shards in results]
