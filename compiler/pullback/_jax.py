"""The one gate to `jaxlib.mlir` and to private names of JAX.

A move of JAX's version touches this file and its twin in the runtime, nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import os
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import (
    config as _config,
    core as _core,
    custom_derivatives as _custom_derivatives,
    effects as _effects,
    lax as _lax,
    linear_util as _linear_util,
    sharding_impls as _sharding_impls,
    source_info_util as _source_info,
    util as _util,
)
from jax._src.interpreters import (
    ad as _ad,
    batching as _batching,
    mlir as _mlir,
    partial_eval as _pe,
)
from jax._src.state import AbstractRef, RefEffect
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

try:
    from jax._src import flattree as _flat_trees
except ImportError:  # JAX 0.10 counts the operands of a scan instead
    _flat_trees = None

from pullback._errors import UnsupportedJaxVersion

__all__ = [
    "PassManager",
    "chlo",
    "context",
    "func",
    "ir",
    "sdy",
    "stablehlo",
]

OLDEST_JAX = (0, 10, 2)
NEXT_UNTRIED_JAX = (0, 13)


def check_version(version: str = jax.__version__) -> None:
    """Raises UnsupportedJaxVersion outside the range that the tests run on."""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if OLDEST_JAX <= numbers < NEXT_UNTRIED_JAX:
        return
    raise UnsupportedJaxVersion(
        f"pullback works with jax 0.10.2 to 0.12.x, and this is jax {version}",
        do="pip install 'jax>=0.10.2,<0.13'",
    )


check_version()

_NUMPY = os.path.dirname(np.__file__) + os.sep

# The lines of a program are the user's: ours are as internal to it as JAX's own.
_source_info.register_exclusion(os.path.dirname(os.path.abspath(__file__)))
_source_info.register_exclusion(os.path.dirname(__file__))


@functools.cache
def context() -> ir.Context:
    """The one MLIR context of this process: all dialects that JAX's lowering uses.

    JAX hands out a fresh context per lowering (0.10) or a shared one per thread (0.12);
    values of different contexts must not meet, so we keep one of our own.
    """
    create = getattr(_mlir, "_create_ir_context", _mlir.make_ir_context)
    created = create()
    stablehlo.register_stablehlo_passes()
    return created


# --- jaxprs: JAX 0.10 has a Jaxpr and a ClosedJaxpr around it, JAX 0.12 has one class ---------

# `jax.extend.core` has these names too, and imports Pallas with them.
_ClosedJaxpr = getattr(_core, "ClosedJaxpr", _core.Jaxpr)
_CLOSED_AND_OPEN_DIFFER = _ClosedJaxpr is not _core.Jaxpr


def is_variable(value: object) -> bool:
    """Whether a value stands for another: a variable of a jaxpr, or a tracer."""
    return isinstance(value, (_core.Var, _core.Tracer))


def is_dead_tracer(value: object) -> bool:
    """Whether a value stands for one of a trace that has ended, as all have where none goes on."""
    return isinstance(value, _core.Tracer) and _core.trace_ctx.trace is _core.eval_trace


def is_tracer(value: object) -> bool:
    """Whether a value stands for one of a trace, that goes on or has ended."""
    return isinstance(value, _core.Tracer)


def is_going_on(tracer: Any) -> bool:
    """Whether a value is one of a trace that goes on."""
    return tracer._trace in _core.unsafe_get_trace_stack(_core.trace_ctx.trace)


def name_of(tracer: Any) -> Any:
    """What tells a value of a trace: the variable of a jaxpr that it became, if it became one."""
    variable = getattr(tracer, "val", None)
    return variable if isinstance(variable, _core.Var) else id(tracer)


def is_equation(value: object) -> bool:
    """Whether a value is an equation of a jaxpr."""
    return isinstance(value, _core.JaxprEqn)


def is_jaxpr(value: object) -> bool:
    """Whether a parameter of an equation is a jaxpr, open or closed."""
    return isinstance(value, (_ClosedJaxpr, _core.Jaxpr))


def with_equations(jaxpr: Any, equations: list[Any]) -> Any:
    """The same jaxpr, open or closed, with other equations; none of them of JAX's high kind."""
    return _changed(jaxpr, eqns=equations, is_high=False)


def with_like_equations(jaxpr: Any, equations: list[Any]) -> Any:
    """The same jaxpr, open or closed, with others of the same kinds in the place of some."""
    return _changed(jaxpr, eqns=equations)


def _changed(jaxpr: Any, **changes: Any) -> Any:
    if _CLOSED_AND_OPEN_DIFFER and isinstance(jaxpr, _ClosedJaxpr):
        return jaxpr.replace(jaxpr=jaxpr.jaxpr.replace(**changes))
    return jaxpr.replace(**changes)


def close(jaxpr: Any) -> Any:
    """A closed jaxpr without constants, of an open jaxpr or of a closed one."""
    if isinstance(jaxpr, _ClosedJaxpr):
        return jaxpr
    return _ClosedJaxpr(jaxpr, ())


def closed_with(jaxpr: Any, constants: Sequence[Any]) -> Any:
    """A closed jaxpr, of an open one and the values of its constants."""
    return _ClosedJaxpr(jaxpr, list(constants))


def opened(closed: Any) -> Any:
    """The jaxpr in a closed one."""
    return getattr(closed, "jaxpr", closed)


def equation_alone(equation: Any, debug_info: Any) -> Any:
    """A closed jaxpr that holds one equation; its inputs are the operands, literals included."""
    invars = [_core.Var(atom.aval) for atom in equation.invars]
    outvars = [_core.Var(var.aval) for var in equation.outvars]
    alone = equation.replace(invars=invars, outvars=outvars)
    info = debug_info._replace(arg_names=None, result_paths=None)
    effects = equation.effects
    return close(_core.Jaxpr((), invars, outvars, [alone], effects, info))


def jaxprs_in(values: Iterable[Any]) -> Iterator[Any]:
    """The jaxprs among parameters of an equation, also inside tuples and lists."""
    for value in values:
        if is_jaxpr(value):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from jaxprs_in(value)


def bodies_of(equation: Any) -> Iterator[tuple[str, Any]]:
    """The jaxprs among the parameters of an equation, and where each stands."""
    for name, value in equation.params.items():
        for body in jaxprs_in([value]):
            yield name, body


def map_jaxprs(function: Callable[[Any], Any], value: Any) -> Any:
    """A parameter of an equation with others in the place of the jaxprs in it."""
    if is_jaxpr(value):
        return function(value)
    if isinstance(value, (tuple, list)) and any(is_jaxpr(item) for item in value):
        items = [map_jaxprs(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def with_bodies(equation: Any, function: Callable[[str, Any], Any]) -> Any:
    """The equation with other jaxprs: what this gives for the parameter's name and the jaxpr."""
    params, changed = equation.params, {}
    for name, value in params.items():
        new = map_jaxprs(functools.partial(function, name), value)
        if new is not value:
            changed[name] = new
    return equation.replace(params={**params, **changed}) if changed else equation


def weaken(value: Any) -> Any:
    """The array with a type that gives way to others, as a Python number's does."""
    return _lax.lax._convert_element_type(value, value.dtype, weak_type=True)


def lifted_tracers(traced: Any) -> list[Any]:
    """The values of a trace that goes on around this one: leading arguments of its jaxpr."""
    return list(traced._consts)


def constants_of(jaxpr: Any) -> list[tuple[Any, Any]]:
    """The variables of a jaxpr that stand for arrays, and these; an open jaxpr has none."""
    inner = opened(jaxpr)
    return list(zip(inner.constvars, getattr(jaxpr, "consts", ()), strict=False))


def with_arguments(
    jaxpr: Any, leading: Sequence[Any], constants: Sequence[tuple[Any, Any]], equations: list[Any]
) -> Any:
    """The jaxpr with more arguments before its own, and with other constants and equations."""
    inner = opened(jaxpr)
    names = inner.debug_info.arg_names
    if names is not None:
        names = (*[""] * len(leading), *names)
    changed = _core.Jaxpr(
        [variable for variable, _ in constants],
        [*leading, *inner.invars],
        inner.outvars,
        equations,
        inner.effects,
        inner.debug_info._replace(arg_names=names, result_paths=None),
    )
    closed = isinstance(jaxpr, _ClosedJaxpr)
    return _ClosedJaxpr(changed, [value for _, value in constants]) if closed else changed


def inputs_of(jaxpr: Any) -> list[Any]:
    """The variables of a jaxpr's arguments."""
    return list(opened(jaxpr).invars)


def outputs_of(jaxpr: Any) -> list[Any]:
    """The variables and literals that a jaxpr returns."""
    return list(opened(jaxpr).outvars)


def with_outputs(closed: Any, outputs: list[Any]) -> Any:
    """The closed jaxpr with other results, of the values that it has."""
    info = opened(closed).debug_info._replace(arg_names=None, result_paths=None)
    return _changed(closed, outvars=outputs, debug_info=info)


def with_operands(
    closed: Any, arguments: list[Any], constants: Sequence[tuple[Any, Any]], chosen: dict[Any, Any]
) -> Any:
    """The closed jaxpr with these arguments and constants, and others in the place of some."""

    def current(atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else chosen.get(atom, atom)

    jaxpr = opened(closed)
    changed = _core.Jaxpr(
        [variable for variable, _ in constants],
        arguments,
        [*map(current, outputs_of(closed))],
        [each.replace(invars=[*map(current, each.invars)]) for each in jaxpr.eqns],
        jaxpr.effects,
        jaxpr.debug_info._replace(arg_names=None, result_paths=None),
        jaxpr.is_high,
    )
    return _ClosedJaxpr(changed, [value for _, value in constants])


def apply(closed: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a closed jaxpr, in the trace that is going on."""
    return _core.eval_jaxpr(opened(closed), closed.consts, *operands)


def numbers_its_arguments(jaxpr: Any) -> bool:
    """Whether effects of a jaxpr name arguments by position, as those on mutable arrays do."""
    return any(isinstance(effect, _effects.JaxprInputEffect) for effect in jaxpr.effects)


def has_tangents_of_its_own(aval: Any) -> bool:
    """Whether a value's elements are no numbers of NumPy's, yet have tangents; keys have none."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype):
        return False
    tangent = getattr(dtype._rules, "tangent_dtype", lambda dtype: dtype)
    return bool(tangent(dtype) != jax.dtypes.float0)


def uses_mutable_arrays(equation: Any) -> bool:
    """Whether an equation makes a `jax.Ref`, or reads or writes one."""
    kinds = _core.InternalMutableArrayEffect, RefEffect
    return any(isinstance(effect, kinds) for effect in equation.effects)


def takes_mutable_arrays(closed: Any) -> bool:
    """Whether a `jax.Ref` is among the arguments of a function, or what it closes over."""
    return any(isinstance(aval, AbstractRef) for aval in closed.in_avals) or any(
        isinstance(constant, _core.Ref) for constant in closed.consts
    )


def axes_of_vmaps(equation: Any) -> list[str]:
    """The axes an equation works along that are no axes of a mesh."""
    axes = {each.name for each in equation.effects if isinstance(each, _core.NamedAxisEffect)}
    return sorted(map(str, axes - set(equation.ctx.cur_abstract_mesh.manual_axes)))


def is_axis_of_vmap(name: Any) -> bool:
    """Whether a vmap is going on that maps an axis of this name."""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return bool(_core.get_axis_env().axis_exists(name)) and name not in manual


def collective(
    name: str, batch: Callable[..., Any], outside: Callable[[tuple[Any, ...]], Exception]
) -> Any:
    """A primitive `(x, other, axes) -> x` along named axes, linear in x and its own transpose.

    `batch(axis, values, dims, axes)` is what it does where an axis, with `name` and `size`, is
    mapped; it has no other meaning, and `outside(axes)` is the error where none is.
    """
    primitive = _core.Primitive(name)

    def moved(primals: Any, tangents: Any, axes: Any) -> tuple[Any, Any]:
        tangent = tangents[0]
        still = is_zero(tangent)
        moved = tangent if still else primitive.bind(tangent, primals[1], axes=axes)
        return primitive.bind(*primals, axes=axes), moved

    def nowhere(*_: Any, axes: Any) -> Any:
        raise outside(axes)

    def effects(axes: Any) -> set[Any]:
        return {_core.NamedAxisEffect(axis) for axis in axes}

    primitive.def_effectful_abstract_eval(lambda x, _, axes: (x, effects(axes)))
    primitive.def_impl(nowhere)
    _mlir.register_lowering(primitive, nowhere)
    _batching.fancy_primitive_batchers[primitive] = batch
    _ad.primitive_jvps[primitive] = moved
    _ad.primitive_transposes[primitive] = lambda ct, _, other, axes: [
        ct if is_zero(ct) else primitive.bind(ct, other, axes=axes),
        None,
    ]
    return primitive


Var = _core.Var
"""The class of a variable; calling it with a type makes a new one."""


def with_more_constants(name: str, params: dict[str, Any], counts: Sequence[int]) -> dict[str, Any]:
    """Parameters of a call that takes so many constants more, for each of its operand lists."""
    params, count = dict(params), counts[0]
    fillers = {"donated_invars": False, "in_shardings": _sharding_impls.UNSPECIFIED}
    fillers |= {"in_layouts": None}
    for each in fillers.keys() & params.keys():
        params[each] = (fillers[each],) * count + params[each]
    if name == "while":
        params["cond_nconsts"] += count
        params["body_nconsts"] += counts[1]
    elif "num_consts" in params:
        params["num_consts"] += count
        if "out_trees" in params:
            params["out_trees"] = functools.partial(_with_forwarded, params["out_trees"], count)
    elif "ft_in" in params:
        constants, carry, inputs = params["ft_in"].unpack()
        more = (_flat_trees.nones(count), constants)
        params["ft_in"] = _flat_trees.pack((more, carry, inputs))
    return params


def lifted_arguments(equation: Any, parameter: str, body: Any) -> list[Any]:
    """The variables of a body for what it closes over: leading operands, the same in each run."""
    opened_body, params = opened(body), equation.params
    names = opened_body.debug_info.arg_names
    count = len(opened_body.invars)
    if "num_consts" in params and parameter == "jaxpr":
        count = params["num_consts"]
    elif "ft_in" in params:
        count = len(list(params["ft_in"].unpack()[0]))
    elif parameter in ("cond_jaxpr", "body_jaxpr"):
        count = params[parameter.replace("jaxpr", "nconsts")]
    elif names is not None and len(names) == count:
        count = len(list(itertools.takewhile(operator.not_, names)))
    return list(opened_body.invars[:count])


def argument_paths(closed: Any) -> tuple[str, ...]:
    """The path of each argument of a traced function, such as `params['w']`."""
    names = opened(closed).debug_info.arg_names
    count = len(closed.in_avals)
    names = (names or ()) if len(names or ()) == count else ()
    return tuple(names) or tuple(f"argument {number}" for number in range(count))


def kind_of_high(equation: Any) -> str:
    """The class of a call in the encoding of jax_custom_jvp3, jax_custom_vjp3 and jax_remat3."""
    return type(_without_vmap(equation.params["_prim"])).__name__


def _without_vmap(prim: Any) -> Any:
    """The `custom_vjp` function that JAX 0.10 wraps to map it: it has rules of the same kinds."""
    inner = _mapped(prim)
    return inner if type(inner).__name__ == "CustomVJPTraced" else prim


def _parameters(equation: Any) -> Any:
    """The parameters of a call, in either encoding."""
    high = equation.params.get("_prim")
    return equation.params if high is None else _without_vmap(high).params


def _mapped(prim: Any) -> Any:
    """What a call maps, where it does."""
    while type(prim).__name__ == "VmapOf":
        prim = prim.params["prim"]
    return prim


def expand_high(equation: Any) -> Any:
    """The computation of such a call, without its rules, as a closed jaxpr."""
    prim = equation.params["_prim"]

    def expanded(*leaves: Any) -> Any:
        return prim.expand(*jax.tree.unflatten(prim.in_tree, leaves))

    avals = [atom.aval for atom in equation.invars]
    with _core.eval_context():
        return jax.make_jaxpr(expanded)(*structs(avals))


def structs(avals: Iterable[Any]) -> list[jax.ShapeDtypeStruct]:
    """Abstract arguments for tracing with these types."""
    return [_struct(aval) for aval in avals]


def _struct(aval: Any) -> jax.ShapeDtypeStruct:
    weak_type = getattr(aval, "weak_type", False)
    if not getattr(aval, "mat", None):
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak_type)
    return jax.ShapeDtypeStruct(
        aval.shape,
        aval.dtype,
        weak_type=weak_type,
        sharding=aval.sharding,
        manual_axis_type=aval.mat,
    )


@contextlib.contextmanager
def tracing_context_of(closed: Any, checked: bool = False) -> Iterator[None]:
    """The mesh and the axis names that a jaxpr's equations were traced under, as in shard_map.

    With `checked`, or where a type says so, JAX keeps track of which values differ by device.
    """
    mesh = _manual_mesh(closed)
    if mesh is None:
        yield
        return
    names = [(name, mesh.shape[name]) for name in mesh.manual_axes]
    checked |= any(getattr(aval, "mat", None) and aval.mat.varying for aval in closed.in_avals)
    with (
        closed.eqns[0].ctx.manager,
        _core.extend_axis_env_nd(names),
        _config._check_vma(checked),
    ):
        yield


def whole_tracebacks() -> contextlib.AbstractContextManager[Any]:
    """For a while, exceptions keep the frames of JAX, and of libraries that have theirs hidden."""
    return _config.traceback_filtering("off")


def calls_functions(closed: Any) -> bool:
    """Whether its one equation calls functions of the user's, as `custom_linear_solve` does."""
    return next(jaxprs_in(closed.eqns[0].params.values()), None) is not None


def checked_axes(equation: Any) -> tuple[str, ...]:
    """The manual axes of a `shard_map` in whose body JAX knows which values differ by device."""
    params = equation.params
    return tuple(sorted(params["newly_manual_axes"])) if params["check_vma"] else ()


def axes_checked_here() -> tuple[str, ...]:
    """The manual axes of the checked `shard_map` in whose body this runs."""
    if not _config._check_vma.value:
        return ()
    return tuple(sorted(jax.sharding.get_abstract_mesh().manual_axes))


def equal_along(aval: Any, axes: Sequence[str]) -> tuple[str, ...]:
    """The axes along which a value is the same on all devices."""
    varying = aval.mat.varying if getattr(aval, "mat", None) else ()
    return tuple(axis for axis in axes if axis not in varying)


def _manual_mesh(closed: Any) -> Any:
    """The mesh of the shard_map that a jaxpr is part of the body of, or None."""
    mesh = closed.eqns[0].ctx.cur_abstract_mesh if closed.eqns else None
    return mesh if mesh is not None and mesh.manual_axes else None


def _axis_context(closed: Any) -> Any:
    mesh = _manual_mesh(closed)
    if mesh is None:
        return _sharding_impls.ShardingContext(num_devices=1)
    return _sharding_impls.SPMDAxisContext(mesh, frozenset(mesh.manual_axes))


def in_simpler_terms(jaxpr: Any) -> list[Any]:
    """The equations of a jaxpr, with those whose rules are simpler and that lower to the same."""
    return [_SIMPLER.get(each.primitive.name, _as_it_is)(each, jaxpr) for each in jaxpr.eqns]


def _as_it_is(equation: Any, jaxpr: Any) -> Any:
    return equation


def _square_as_product(equation: Any, jaxpr: Any) -> Any:
    """A real square as a product, which needs no rule."""
    if np.issubdtype(equation.invars[0].aval.dtype, np.complexfloating):
        return equation
    both = [equation.invars[0]] * 2
    return equation.replace(primitive=jax.lax.mul_p, invars=both, params={})


def _without_unused_aux(equation: Any, jaxpr: Any) -> Any:
    """A linear solve without its auxiliary results, where nothing uses them.

    JAX solves for a tangent with the same function, and leaves the auxiliary results there. They
    need not be linear in the right-hand side, and JAX's transpose rule takes no cotangents of them.
    """
    jaxprs = equation.params["jaxprs"]
    count = len(jaxprs.matvec.out_avals)
    aux = set(equation.outvars[count:])
    if not aux or not aux.isdisjoint(_used_in(jaxpr)):
        return equation
    solves = {
        name: solve and with_outputs(solve, outputs_of(solve)[:count])
        for name, solve in jaxprs._asdict().items()
        if name in ("solve", "transpose_solve")
    }
    params = {**equation.params, "jaxprs": jaxprs._replace(**solves)}
    return equation.replace(outvars=equation.outvars[:count], params=params)


def _used_in(jaxpr: Any) -> set[Any]:
    """The variables that the equations of a jaxpr read, and those that it returns."""
    atoms = [*outputs_of(jaxpr), *(atom for equation in jaxpr.eqns for atom in equation.invars)]
    return {atom for atom in atoms if is_variable(atom)}


_SIMPLER = {"square": _square_as_product, "custom_linear_solve": _without_unused_aux}


def equations_to_function(closed: Any, own_lines: bool = False) -> Callable[..., list[Any]]:
    """The function that evaluates a closed jaxpr, equation by equation.

    What is traced on the way has the line of its equation, or with `own_lines` the line of the
    Python code that runs: that of a user's rule.
    """
    if not own_lines:
        return _core.jaxpr_as_fun(closed)
    jaxpr = opened(closed)
    jaxpr = with_like_equations(jaxpr, list(map(_with_own_lines, jaxpr.eqns)))
    return functools.partial(_core.eval_jaxpr, jaxpr, closed.consts, propagate_source_info=False)


def _with_own_lines(equation: Any) -> Any:
    """A call whose backward rule has its own lines: JAX gives it that of the call."""
    if "bwd" not in equation.params:
        return equation
    bwd = equation.params["bwd"]
    wrapped = is_wrapped_function(bwd)
    run = bwd.call_wrapped if wrapped else bwd

    def with_own_lines(*args: Any) -> Any:
        with _no_line():
            return run(*args)

    if wrapped:
        rule = _linear_util.wrap_init(with_own_lines, debug_info=bwd.debug_info)
    else:
        rule = functools.wraps(bwd)(with_own_lines)
    return equation.replace(params={**equation.params, "bwd": rule})


@contextlib.contextmanager
def _no_line() -> Iterator[None]:
    """What is traced meanwhile has the line of the Python code that runs."""
    here = _source_info._source_info_context
    outer, here.context = here.context, _source_info.SourceInfo(None, here.context.name_stack)
    try:
        yield
    finally:
        here.context = outer


Literal = _core.Literal
"""The class of a constant that stands among an equation's operands."""


# --- lowering --------------------------------------------------------------------------------


def lower_into(
    module: ir.Module,
    name: str,
    closed: Any,
    *,
    platforms: Sequence[str],
    keepalives: list[Any],
    host_callbacks: list[Any],
    entry: bool = False,
) -> str:
    """Lowers a closed jaxpr to a function of `module` and returns the function's symbol."""
    module_context = _mlir.ModuleContext(
        context=module.context,
        module=module,
        platforms=tuple(platforms),
        backend=None,
        axis_context=_axis_context(closed),
        keepalives=keepalives,
        channel_iterator=_channels(),
        host_callbacks=host_callbacks,
        lowering_parameters=_mlir.LoweringParameters(hoist_constants_as_args=False),
    )
    ordered = list(_effects.ordered_effects.filter_in(closed.effects))
    types = {"in_avals": closed.in_avals}
    if not _CLOSED_AND_OPEN_DIFFER:
        types["out_avals"] = closed.out_avals
    with module.context, ir.Location.unknown(module.context):
        function = _mlir.lower_jaxpr_to_fun(
            module_context, name, closed, ordered, num_const_args=0, main_function=entry, **types
        )
        if entry and ordered:
            _make_tokens_inside(function, len(ordered))
    return function.sym_name.value


def _make_tokens_inside(function: Any, count: int) -> None:
    """The order of effects as a matter of the function's own: no token crosses its border."""
    block = function.entry_block
    for _ in range(count):
        with ir.InsertionPoint.at_block_begin(block):
            token = stablehlo.create_token()
        block.arguments[0].replace_all_uses_with(token)
        block.erase_argument(0)
    (returned,) = (op for op in block.operations if op.operation.name == "func.return")
    values = list(returned.operands)[count:]
    with ir.InsertionPoint(returned):
        func.ReturnOp(values)
    returned.operation.erase()
    kinds = [argument.type for argument in block.arguments], [value.type for value in values]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            kept = list(ir.ArrayAttr(function.attributes[name]))[count:]
            function.attributes[name] = ir.ArrayAttr.get(kept)


def _channels() -> Iterator[int]:
    return iter(range(_mlir.COLLECTIVE_CHANNEL_ID + 1, 2**16))


# --- our primitives: what the keep step writes into a jaxpr -----------------------------------


def _composite_lowering(
    ctx: Any, *operands: Any, jaxpr: Any, key: str, op: str, counts: tuple[tuple[str, int], ...]
) -> Any:
    """Emits the `stablehlo.composite` of one kept call and the function it decomposes to."""
    i64 = ir.IntegerType.get_signless(64)
    attributes = {name: ir.IntegerAttr.get(i64, count) for name, count in counts}
    attributes["rule"] = ir.StringAttr.get(key)
    return _composite_of(ctx, operands, op, _decomposition(ctx, key, jaxpr), attributes)


def _composite_of(
    ctx: Any, operands: Any, name: str, function: Any, attributes: dict[str, Any]
) -> Any:
    flat_operands, _ = _mlir.ir_tree_registry.flatten((*ctx.dim_var_values, *operands))
    return stablehlo.CompositeOp(
        function.type.results,
        flat_operands,
        name=ir.StringAttr.get(name),
        decomposition=ir.FlatSymbolRefAttr.get(function.sym_name.value),
        composite_attributes=ir.DictAttr.get(attributes),
        version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0),
    ).results


def _decomposition(ctx: Any, name: str, jaxpr: Any) -> Any:
    function, _, _ = _mlir.lower_called_computation(
        name, jaxpr, ctx.module_context, 0, ctx.avals_in, ctx.avals_out, _mlir.TokenSet()
    )
    return function


def _checkpoint_lowering(ctx: Any, *operands: Any, jaxpr: Any, name: str) -> Any:
    """Emits a call to a function that says: recompute my body in the reverse pass."""
    function = _decomposition(ctx, name, jaxpr)
    function.attributes[CHECKPOINT_ATTRIBUTE] = ir.UnitAttr.get()
    flat_operands, _ = _mlir.ir_tree_registry.flatten((*ctx.dim_var_values, *operands))
    symbol = ir.FlatSymbolRefAttr.get(function.sym_name.value)
    return func.CallOp(function.type.results, symbol, flat_operands).results


CHECKPOINT_ATTRIBUTE = "pullback.checkpoint"


def _saved_lowering(ctx: Any, operand: Any, *, jaxpr: Any) -> Any:
    """Emits a composite that is its operand, and says: keep this value for the reverse pass."""
    return _composite_of(ctx, [operand], SAVED, _decomposition(ctx, "saved", jaxpr), {})


SAVED = "checkpoint.saved"


def _primitive(name: str, lowering: Callable[..., Any]) -> Any:
    """A primitive that is a call of its `jaxpr`, and lowers as `lowering` says."""
    primitive = _core.Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(lambda *args, jaxpr, **_: equations_to_function(jaxpr)(*args))
    primitive.def_effectful_abstract_eval(lambda *_, jaxpr, **__: (jaxpr.out_avals, jaxpr.effects))
    _mlir.register_lowering(primitive, lowering)
    return primitive


COMPOSITES = ("pullback.custom_jvp_call", "pullback.custom_vjp_call", "pullback.linear_call")
_composites = {
    op: _primitive(op, functools.partial(_composite_lowering, op=op)) for op in COMPOSITES
}
_checkpoint = _primitive("pullback.checkpoint", _checkpoint_lowering)
_saved = _primitive(SAVED, _saved_lowering)


def _trip_bound_lowering(ctx: Any, predicate: Any, *, count: int) -> Any:
    """Marks the loop whose condition this is; the predicate stays as it is."""
    owner = ir.InsertionPoint.current.block.owner
    if owner.operation.name == "stablehlo.while":
        i64 = ir.IntegerType.get_signless(64)
        owner.operation.attributes[MAX_TRIP_COUNT] = ir.IntegerAttr.get(i64, count)
    return [predicate]


MAX_TRIP_COUNT = "pullback.max_trip_count"
"""The attribute of a loop that says how often it runs at most."""

_trip_bound = _core.Primitive("pullback.trip_bound")
_trip_bound.def_impl(lambda predicate, *, count: predicate)
_trip_bound.def_abstract_eval(lambda predicate, *, count: predicate)
_mlir.register_lowering(_trip_bound, _trip_bound_lowering, cacheable=False)
_batching.primitive_batchers[_trip_bound] = lambda values, axes, *, count: (
    _trip_bound.bind(*values, count=count),
    axes[0],
)


def trip_bound(predicate: Any, count: int) -> Any:
    """The predicate; the `while` loop whose condition it is computed in runs at most so often."""
    return _trip_bound.bind(predicate, count=count)


def _module_call_lowering(ctx: Any, *operands: Any, handle: Any, merge: Any, of: Any) -> Any:
    """Emits a call to a function of another module, which comes into this one with its rules."""
    context = ctx.module_context
    known, key = context.cached_primitive_lowerings, ("pullback.module_call", handle)
    if key not in known:
        known[key], added = merge(context.module)
        for function in added:
            context.symbol_table.insert(function)
    function = context.symbol_table[known[key]]
    symbol = ir.FlatSymbolRefAttr.get(known[key])
    return func.CallOp(function.type.results, symbol, list(operands)).results


_module_call = _core.Primitive("pullback.module_call")
_module_call.multiple_results = True
_module_call.def_effectful_abstract_eval(
    lambda *avals, handle, merge, of: of.abstract_eval(*avals, handle=handle)
)
_mlir.register_lowering(_module_call, _module_call_lowering)


def as_module_call(equation: Any, merge: Callable[[ir.Module], Any]) -> Any:
    """The equation, which calls a module, as a call of a function that `merge` brings along."""
    params = {**equation.params, "merge": merge, "of": equation.primitive}
    return equation.replace(primitive=_module_call, params=params)


def as_composite(
    equation: Any, op: str, *, jaxpr: Any, key: str, counts: tuple[tuple[str, int], ...]
) -> Any:
    """The equation as a call of one of our composites, at the same place in the source.

    Args:
      counts: its attributes that are integers.
    """
    params = {"jaxpr": jaxpr, "key": key, "counts": counts}
    return equation.replace(primitive=_composites[op], params=params)


def as_checkpoint(equation: Any, *, jaxpr: Any, name: str) -> Any:
    """The equation as a call whose body the reverse pass recomputes."""
    return equation.replace(primitive=_checkpoint, params={"jaxpr": jaxpr, "name": name})


def recomputed(equation: Any) -> Any:
    """The body of a `jax.checkpoint`, in either encoding, with marks on what its policy keeps."""
    params = _parameters(equation)
    jaxpr, policy = params["jaxpr"], params.get("policy")
    return close(jaxpr if policy is None else _with_saved(jaxpr, policy))


def _with_saved(jaxpr: Any, policy: Callable[..., Any]) -> Any:
    equations = []
    for equation in opened(jaxpr).eqns:
        if equation.primitive.name in ("jit", "pjit"):
            equations.append(with_bodies(equation, lambda _, body: _with_saved(body, policy)))
        elif _is_saved(equation, policy):
            equations += _with_marks(equation)
        else:
            equations.append(equation)
    return with_like_equations(jaxpr, equations)


def _is_saved(equation: Any, policy: Callable[..., Any]) -> bool:
    types = [atom.aval for atom in equation.invars]
    found = policy(equation.primitive, *types, **equation.params)
    return _pe.ensure_enum(found) is not _pe.Recompute


def _with_marks(equation: Any) -> list[Any]:
    """The equation with results of its own, and those that it had as marked copies of them."""
    own = [Var(variable.aval) for variable in equation.outvars]
    marks = [
        equation.replace(
            primitive=_saved,
            invars=[mine],
            outvars=[variable],
            params={"jaxpr": _identity(variable.aval)},
            effects=frozenset(),
        )
        for mine, variable in zip(own, equation.outvars, strict=True)
    ]
    return [equation.replace(outvars=own), *marks]


@functools.lru_cache(maxsize=256)
def _identity(aval: Any) -> Any:
    with _core.eval_context():
        return jax.make_jaxpr(lambda x: x)(*structs([aval]))


# --- names and identities of rules ------------------------------------------------------------


def function_name(jaxpr: Any) -> str:
    """The name of the Python function that a jaxpr was traced from."""
    info = opened(jaxpr).debug_info
    return str(info.func_src_info).split(" ")[0]


def user_frame(equation: Any) -> tuple[str, int, str] | None:
    """File, line and function of the user's code that an equation comes from."""
    frame = _source_info.user_frame(equation.source_info.traceback)
    return None if frame is None else (frame.file_name, frame.start_line, frame.function_name)


def is_user_file(name: str) -> bool:
    """Whether a file is the user's: not of the standard library, NumPy, JAX or pullback."""
    return _source_info.is_user_filename(name) and not name.startswith(_NUMPY)


def traceback_of(equation: Any) -> Any:
    """Where an equation was traced."""
    return equation.source_info.traceback


def frames_of(traceback: Any) -> list[tuple[Any, int]]:
    """The functions that were running, innermost first, and the instruction that each was at."""
    return [] if traceback is None else list(zip(*traceback.raw_frames(), strict=True))


def functions_of(value: Any) -> Sequence[Any]:
    """The functions inside a jitted one, or one with rules; nothing for other objects."""
    if isinstance(value, (jax.custom_jvp, jax.custom_vjp)):
        names = ("fun", "jvp", "fwd")
        return [function for name in names if (function := getattr(value, name, None)) is not None]
    is_jitted = hasattr(value, "__wrapped__") and hasattr(value, "trace")
    return [value.__wrapped__] if is_jitted else []


def is_debug_info(value: object) -> bool:
    """Whether this is what JAX notes of a function for its messages."""
    return isinstance(value, _linear_util.DebugInfo)


def is_wrapped_function(value: object) -> bool:
    """Whether this is one of JAX's functions with transformations put on it."""
    return isinstance(value, _linear_util.WrappedFun)


def is_box(value: object) -> bool:
    """Whether this is a box around an argument that JAX does not differentiate by, in `val`."""
    return isinstance(value, _util.Unhashable)


def is_store(value: object) -> bool:
    """Whether this is a box in which a transformation leaves a second result."""
    return isinstance(value, (_linear_util.Store, _linear_util.EqualStore))


def is_traced(value: object) -> bool:
    """Whether this is a function that `jax.jit(…).trace` made, with a jaxpr in it."""
    return isinstance(value, jax.stages.Traced)


def high_parameters(value: Any) -> dict[str, Any] | None:
    """The parameters of a call in JAX's newer encoding; None if it is no such call."""
    is_call = type(value).__module__ == "jax._src.hijax" and hasattr(value, "expand")
    return value.params if is_call else None


def is_type_list(value: object) -> bool:
    """Whether this is a list of array types; JAX closes over such lists and leaves them alone."""
    return isinstance(value, list) and all(isinstance(v, _core.ShapedArray) for v in value)


def rule_functions(equation: Any) -> tuple[Any, ...] | None:
    """What tells one user rule from another: the rule functions and the plain parameters.

    None for an equation of a primitive of JAX, which is told by its parameters.
    """
    name, params = equation.primitive.name, equation.params
    if name in _THUNKS:
        inside, bwd = rule_inside(equation), _without_const_handling(params.get("bwd"))
        return name, inside.rule, bwd, inside.closed_over, params["symbolic_zeros"]
    if name == "linear_call":
        return name, params["transpose_thunk"], params["num_callee_consts"], params["num_res"]
    if name == "call_hi_primitive":
        return name, params["_prim"]
    if name == "call_hi_primitive_linearized":
        return name, tuple(sorted(params.items()))
    if name == "custom_lin":
        zeros = tuple(params["in_zeros"]), params["symbolic_zeros"], params["num_res"]
        return name, _without_const_handling(params["bwd"]), zeros
    return None


_THUNKS = {
    "custom_jvp_call": ("jvp_jaxpr_fun", "jvp"),
    "custom_vjp_call": ("fwd_jaxpr_thunk", "fwd"),
}
"""The parameter that holds the forward rule of a user's call, and the rule's name inside of it."""


class RuleInside(NamedTuple):
    """The forward rule of a user's call, in whatever JAX and we have put around it.

    Attributes:
      rule: what tells it from others.
      closed_over: how many leading operands the call's function closes over: JAX has no
        derivatives by these.
      known: which of those operands each value of a trace is, by name.
      closed: whether there is a `RuleOfOperands` around it.
    """

    rule: Any
    closed_over: int = 0
    known: Mapping[Any, int] = {}
    closed: bool = False


class RuleOfOperands:
    """A rule, as JAX holds it, that finds what it closes over among the operands of its call.

    Attributes:
      rule: the rule that closes over values of a trace.
      added: types of leading operands that this has more than the rule.
      closed_over, known: as of `RuleInside`.
      made: what it has given, by its arguments.
    """

    def __init__(self, rule: Any, added: Sequence[Any], closed_over: int, known: Mapping[Any, int]):
        self.rule = rule
        self.added = added
        self.closed_over = closed_over
        self.known = known
        self.made: dict[Any, Any] = {}

    def __call__(self, *args: Any) -> Any:
        """Runs the rule."""
        raise NotImplementedError


def rule_inside(equation: Any) -> RuleInside:
    """The forward rule of a user's call; one that knows nothing for other calls."""
    name, params = equation.primitive.name, equation.params
    if name not in _THUNKS:
        return _NO_RULE
    thunk, rule = _THUNKS[name]
    inside = _memoised(params[thunk], rule, thunk)
    return _lifted(inside, params["num_consts"]) if params["num_consts"] else inside


def _memoised(thunk: Any, rule: str, lifted: str) -> RuleInside:
    """What `_unwrapped` finds, which is asked for several times of each call."""
    function = getattr(thunk, "f", thunk)
    is_function = isinstance(function, types.FunctionType)
    inside = _insides.get(function) if is_function else None
    if inside is None:
        inside = _unwrapped(thunk, rule, lifted)
        if is_function and inside.rule is not thunk:  # which would keep its own key alive
            _insides[function] = inside
    return inside


_NO_RULE = RuleInside(None)
_insides: weakref.WeakKeyDictionary[Any, RuleInside] = weakref.WeakKeyDictionary()
"""By the function that JAX has put around the rule, for as long as that is there."""


def _lifted(inside: RuleInside, count: int) -> RuleInside:
    """The rule of a call that has so many leading operands more."""
    known = {name: count + position for name, position in inside.known.items()}
    return inside._replace(closed_over=count + inside.closed_over, known=known)


def _unwrapped(thunk: Any, rule: str, lifted: str) -> RuleInside:
    """The user's rule inside the layers that JAX puts on it, and the constants they lift.

    An equation holds a memoised function around the rule, new at each call. When JAX evaluates
    the equation again (inside another rule, say), it lifts the constants and wraps that once more;
    and so when it removes dead code, which changes nothing where all results are used.
    Should JAX come to store rules in another way, the thunk's own identity decides, and the rule
    is staged once per use.
    """
    function = getattr(thunk, "f", thunk)
    if isinstance(function, RuleOfOperands):
        unwrapped = _unwrapped(function.rule, rule, lifted).rule
        return RuleInside(unwrapped, function.closed_over, function.known, closed=True)
    traced = closed_over(function, "fn")
    if (before := _before_dead_code(traced, lifted)) is not None:
        inside = _unwrapped(before, rule, lifted)
        return inside._replace(rule=_for_used(inside.rule, traced))
    inner = closed_over(traced, rule)
    if inner is None:
        return RuleInside(thunk)
    before = closed_over(getattr(inner, "f", inner), lifted)
    if before is None:
        return RuleInside(inner)
    inside = _lifted(_unwrapped(before, rule, lifted), closed_over(inner.f, "num_consts"))
    if inner.transforms:
        inside = inside._replace(rule=(inside.rule, inner.transforms, inner.params))
    return inside


def with_rules(
    equation: Any,
    forward: Callable[[Any], RuleOfOperands],
    backward: Callable[[Any], RuleOfOperands] | None,
) -> Any:
    """A user's call with other rules, made of its own, which take all its operands.

    What the forward rule closes over is given to the backward rule before the residuals.
    """
    params, thunk = equation.params, _THUNKS[equation.primitive.name][0]
    changed = {thunk: _rule(forward, params[thunk]), "num_consts": 0}
    if backward is not None:
        changed["bwd"] = _rule(backward, params["bwd"])
        count = changed["bwd"].f.closed_over
        changed["out_trees"] = functools.partial(_with_residuals, params["out_trees"], count)
    return equation.replace(params={**params, **changed})


def _rule(make: Callable[[Any], RuleOfOperands], old: Any) -> Any:
    return _linear_util.wrap_init(make(old), debug_info=old.debug_info.with_unknown_names())


def _with_forwarded(trees: Callable[[], Any], count: int) -> tuple[Any, Any, list[int | None]]:
    """The trees of results and residuals of a call that has so many leading operands more."""
    out_tree, tree, forwarded = trees()
    return out_tree, tree, [i if i is None else i + count for i in forwarded]


def _with_residuals(trees: Callable[[], Any], count: int) -> tuple[Any, Any, list[int | None]]:
    """The trees of results and residuals, and which operands are residuals: so many more."""
    out_tree, tree, forwarded = trees()
    leaves = list(range(count + tree.num_leaves))
    return out_tree, jax.tree.structure(leaves), [*range(count), *forwarded]


def _without_const_handling(bwd: Any) -> Any:
    """The parts of a backward rule, without the wrapping that evaluating an equation adds."""
    if not is_wrapped_function(bwd):
        return bwd
    layers = _custom_derivatives._handle_consts_in_bwd.args
    transforms = tuple(t for t in bwd.transforms if t[0] not in layers)
    if not transforms and isinstance(bwd.f, RuleOfOperands):
        return _without_const_handling(bwd.f.rule)
    if not transforms and (before := _before_dead_code(bwd.f, "bwd")) is not None:
        return _for_used(_without_const_handling(before), bwd.f)
    return bwd.f, transforms, bwd.params


def _before_dead_code(function: Any, name: str) -> Any:
    """The rule inside the function that JAX makes of it where it removes dead code; or None."""
    return None if closed_over(function, "used_outs") is None else closed_over(function, name)


def _for_used(rule: Any, function: Any) -> Any:
    """What tells the rule from the same one without dead code, if there was any."""
    used = tuple(closed_over(function, "used_outs"))
    return rule if all(used) else (rule, used)


def closed_over(function: Any, name: str) -> Any:
    """The value a Python function closes over under this name, or None."""
    code = getattr(function, "__code__", None)
    if code is None or name not in code.co_freevars:
        return None
    return function.__closure__[code.co_freevars.index(name)].cell_contents


def rule_name(equation: Any) -> str | None:
    """The name of the user's function that an equation with a custom rule calls."""
    for body in ("call_jaxpr", "callee"):
        if body in equation.params:
            name = function_name(equation.params[body])
            return _custom_gradient_name(equation) if name == "wrapped_fun" else name
    if equation.primitive.name == "custom_lin":
        return str(equation.params["bwd"].debug_info.func_name) + "_forward"
    if "_prim" in equation.params:
        prim = _mapped(equation.params["_prim"])
        traced = prim.params.get("traced")
        name = _snake_case(type(prim).__name__) if traced is None else str(traced.fun_name)
        name = _custom_gradient_name(equation) if name == "wrapped_fun" else name
        return name + "_forward" * (equation.primitive.name in BACKWARD_ONLY)
    return None


def _custom_gradient_name(equation: Any) -> str:
    """The name of the function under a `custom_gradient`, which JAX 0.10 hides in a closure."""
    if "_prim" in equation.params:
        forward = equation.params["_prim"].params.get("fwd")
    elif (thunk := equation.params.get("fwd_jaxpr_thunk")) is not None:
        forward = _unwrapped(thunk, "fwd", "fwd_jaxpr_thunk").rule
    else:
        return "wrapped_fun"
    function = closed_over(getattr(forward, "f", forward), "fun")
    return getattr(function, "__name__", "wrapped_fun")


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def identifier(name: str) -> str:
    """A name as MLIR prints it without quotes."""
    return re.sub(r"\W+", "_", name).strip("_") or "function"


BACKWARD_ONLY = frozenset({"custom_lin", "call_hi_primitive_linearized"})
"""Tangent maps of `custom_vjp` functions: linear calls that JAX can only transpose."""


def is_zero(value: object) -> bool:
    """Whether this stands for a tangent or cotangent that is zero."""
    return isinstance(value, (_ad.Zero, _custom_derivatives.SymbolicZero))


def with_no_cotangents(avals: Sequence[Any], returned: Any) -> Any:
    """What a backward rule returned, with zeros for so many operands more before it.

    JAX 0.12 has it return more than the cotangents.
    """
    zeros = [_ad.Zero(aval) for aval in avals]
    if isinstance(returned, tuple):
        cotangents, *more = returned
        return [*zeros, *cotangents], *more
    return [*zeros, *returned]


CustomVJPException = _ad.CustomVJPException
"""What JAX raises where a `custom_vjp` function is differentiated by what it closes over."""


def wants_symbolic_zeros(closed: Any) -> bool:
    """Whether the one call in there has rules that see which operands are perturbed."""
    return bool(_parameters(closed.eqns[0]).get("symbolic_zeros", False))


def num_residuals(equation: Any) -> int | None:
    """How many leading operands of a linear call are residuals; None for other calls."""
    name, params = equation.primitive.name, equation.params
    if name == "linear_call":
        return params["num_callee_consts"] + params["num_res"]
    if name == "custom_lin":
        return params["num_res"]
    if name == "call_hi_primitive_linearized":
        return params["residuals_tree"].num_leaves
    return None


def has_transpose(primitive: str, known: Any = _ad.primitive_transposes) -> bool:
    """Whether JAX has a transpose rule for the primitive of this name."""
    return any(each.name == primitive for each in known)


# --- values at the boundary -------------------------------------------------------------------

CALLBACKS = frozenset({"debug_callback", "debug_print", "io_callback", "pure_callback"})
"""Primitives whose lowering holds a Python function of this process."""


def physical(value: Any) -> Any:
    """An array as the module takes it: the words of a PRNG key, anything else as it is."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.key_data(value)
    return value


def logical(value: Any, aval: Any) -> Any:
    """The inverse of `physical`, for a result of this type."""
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(value, impl=aval.dtype._impl)
    return weaken(value) if getattr(aval, "weak_type", False) else value
