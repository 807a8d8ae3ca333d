"""From a Python function and example arguments to a Program."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from pullback._jax import (
    ir,
    jaxprs,
    named_axes,
    references,
    tracing,
)
from pullback._jax.tangent_types import check_tangents, is_inexact
from pullback.errors import DEEP, NestingError, PullbackError, nested_too_deep
from pullback.frontend import callbacks, hoist_constants, symbolic_dimensions
from pullback.frontend.closures import lift
from pullback.frontend.exact_tree import may_equal_others
from pullback.frontend.keep import mutable_array, shares_values, without_mutable_arrays
from pullback.frontend.rules.rule_table import RuleTable
from pullback.ir import locations
from pullback.program import static_parts, symbolic
from pullback.program.program import Program
from pullback.program.provenance import ModuleSource, PlatformModule
from pullback.program.record import Interface
from pullback_runtime import default_backend

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def trace(
    fun: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    platforms: str | Sequence[str] | None = None,
) -> Callable[..., Program | Any]:
    """Return a function that returns the Program of a call of `fun`.

    ```python
    program = pb.trace(f)(x, y)      # arrays, scalars, jax.ShapeDtypeStruct, any pytrees
    print(program)                   # readable MLIR
    ```

    Args:
      fun: a function that JAX can trace.
      static_argnums: positions of arguments that are Python values; as in `jax.jit`.
      static_argnames: names of such arguments.
      platforms: what to lower for, by default what JAX runs on here: any of 'cpu', 'cuda', 'rocm'
        and 'tpu'. The hardware need not be there. Of several, each has a variant of its own in the
        program, to be saved; a call on yet another platform lowers the function again.

    Returns:
      A function from arguments, of which the shapes and dtypes count, to a Program. With symbolic
      dimensions (`jax.export.symbolic_shape`) among them it is a `SymbolicProgram`.

    Raises:
      PullbackError: the function is handed a mutable array, or values of types of the user's own.
      NestingError: loops, branches and calls are nested too deep.
    """
    chosen = _platforms(platforms)
    has_static = static_argnums is not None or static_argnames is not None

    def traced(*args: Any, **kwargs: Any) -> Any:
        is_apart = has_static or may_equal_others(jax.tree.structure((args, kwargs)))
        traceable = jax.jit(
            _by_identity(fun, is_apart),
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
        if symbolic.is_symbolic(args, kwargs):
            return symbolic_dimensions.traced(
                traceable, args, kwargs, chosen, static_argnums, static_argnames, of_sizes=traced
            )
        try:
            stages = traceable.trace(*args, **kwargs)
        except AssertionError as error:
            raise _mapped_numpy_array(error) or error from None
        except ValueError:
            static_parts.check(args, kwargs)  # JAX's error names no path
            raise
        try:
            return _program(stages, chosen)
        except RecursionError as error:
            depth, equation = jaxprs.nesting(stages.jaxpr)
            if isinstance(error, NestingError) or depth < DEEP:
                raise
            where = locations.of_equation(equation)
            raise nested_too_deep(depth, "pullback.trace", where) from error

    return traced


def _mapped_numpy_array(error: AssertionError) -> PullbackError | None:
    """Return an error with a remedy for JAX's assertion that no operand is a NumPy array."""
    if "non-canonical constant" not in str(error):
        return None
    return PullbackError(
        "JAX cannot trace a call of a function with a derivative rule, under jax.vmap, of an array "
        "of NumPy's that is mapped",
        where=locations.of_error(error),
        do="make it an array of JAX's first: jnp.asarray(…)",
    )


def _by_identity(fun: Callable[..., Any], is_apart: bool) -> Callable[..., Any]:
    """Return a function to key a trace by: JAX gives equal functions and arguments one trace.

    Objects of a class that says what is equal may differ, as those with 0.0 and -0.0 do; and one
    with arrays in it, such as a model, may have no hash.

    Args:
      is_apart: the trace is not to be that of equal arguments either.
    """
    kind = type(fun)
    has_identity = kind.__hash__ is not None and not isinstance(kind.__eq__, types.FunctionType)
    if has_identity and not is_apart:
        return fun

    def function(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)

    return functools.update_wrapper(function, fun, updated=())


def _program(stages: Any, platforms: tuple[str, ...]) -> Program:
    rules = RuleTable(platforms[:1])
    rules.constants.add(stages.jaxpr)
    traced, lifted = lift.close_among(stages.jaxpr, tracing.lifted_tracers(stages))
    place = "among its arguments, or what it closes over"
    if references.are_taken(traced):
        raise mutable_array(place)
    closed, arrays = hoist_constants.hoist(without_mutable_arrays(traced))
    arrays = [*map(_owned, arrays), *lifted]
    kept = rules.keeper.keep(closed)
    check_tangents([*jaxprs.inputs_of(closed), *jaxprs.outputs_of(closed)], place)
    hidden, name = len(arrays), stages.fun_name
    module = _lowered(kept, name, rules)  # what this calls is part of the environment

    def again(platform: str) -> PlatformModule:
        table = rules.for_platform(platform)
        with table.as_traced(closed):
            lowered = _lowered(table.keeper.keep(closed), name, table)
        return PlatformModule(lowered, table, table.environment)

    return Program(
        interface=Interface(
            tracing.in_tree_of(stages),
            stages.out_tree,
            *tracing.placed(stages, closed.in_avals[hidden:], closed.out_avals),
            jaxprs.argument_paths(traced)[len(lifted) :],
        ),
        constants=tuple(arrays),
        _lowered=PlatformModule(module, rules, rules.environment),
        _further=tuple(map(again, platforms[1:])),
        _source=ModuleSource(again, closed),
        _shares_values=_shares_values(stages.jaxpr),
    )


def _lowered(kept: Any, name: str, rules: RuleTable) -> ir.Module:
    module = rules.lower_entry(kept, name)
    callbacks.mark(module, kept)
    return module


def _owned(array: Any) -> jax.Array:
    """Copy a NumPy array: its owner may write to it, and a trace is of what it was."""
    if isinstance(array, jax.Array):
        return array
    with jax.ensure_compile_time_eval():
        return jax.numpy.array(array)


def _shares_values(closed: Any) -> bool:
    """Return True if JAX would count the cotangent of some argument or result only once.

    That is the case in a checked `shard_map`, for a value that is equal on all devices.
    """
    if not (axes := named_axes.axes_checked_here()):
        return False
    border = filter(is_inexact, (*closed.in_avals, *closed.out_avals))
    return any(named_axes.equal_along(aval, axes) for aval in border) and shares_values(closed)


def platform_here() -> str:
    """Return the platform that programs are lowered for by default: where JAX runs."""
    name = default_backend()
    return name if name in PLATFORMS else PLATFORMS[0]


def _platforms(platforms: str | Sequence[str] | None) -> tuple[str, ...]:
    chosen = (platforms,) if isinstance(platforms, str) else tuple(platforms or (platform_here(),))
    if len(set(chosen)) != len(chosen) or not set(chosen) <= set(PLATFORMS):
        raise PullbackError(
            f"cannot lower for the platforms {', '.join(map(repr, chosen))}",
            where="pullback.trace(platforms=…)",
            do=f"name any of {', '.join(PLATFORMS)}, each once",
        )
    return chosen
