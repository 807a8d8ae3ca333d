"""`program.as_jax()`: the function that evaluates a program by JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from pullback._jax import hijax, prng_keys, tracing
from pullback._jax.tangent_types import high_type
from pullback.as_jax import (  # noqa: F401 -- each registers its ops in the table
    collectives,
    control_flow,
    custom_calls,
    elementwise,
    indexing,
    loops,
    products,
    reductions,
    shapes,
    sorting,
)
from pullback.as_jax.evaluate import Evaluation, in_known_ops
from pullback.as_jax.table import Array, Flat
from pullback.autodiff import registry
from pullback.errors import ArgumentMismatchError, PullbackError
from pullback.ir.warn import warn_of_lost_rules
from pullback.program import record
from pullback_runtime._jax import mesh_of, sharding_on
from pullback_runtime.call._arguments import spell
from pullback_runtime.call._jax_arguments import promoted_dtype


def as_jax(program: Any) -> Callable[..., Any]:
    """Return a plain function of JAX that does what a program does; see `Program.as_jax`."""
    if program.environment.lost_after is not None:
        warn_of_lost_rules(program.environment.lost_at)
    registry.load_all()  # of composites, also those of installed packages
    here = record.here(program).stage_rules()
    in_known_ops(here.module)
    evaluation = Evaluation(here)
    run = _off_explicit_axes(evaluation.inline("main"), here.out_avals)
    evaluation.check("main", run)
    hidden = len(here.constants)

    def function(*args: Any, **kwargs: Any) -> Any:
        operands = here.flatten(args, kwargs)
        given = zip(here.arg_paths, here.in_avals, operands[hidden:], strict=True)
        return here.unflatten(run(*operands[:hidden], *(converted(*each) for each in given)))

    return function


def _off_explicit_axes(run: Flat, types: Sequence[Any]) -> Flat:
    """Evaluate a function on axes of the type Auto, where a mesh has explicit ones.

    Ops of a module do not say how results lie on the mesh, as JAX's have to on explicit axes.

    Args:
      types: of the results, which say so.
    """

    def on_auto_axes(*operands: Array) -> list[Array]:
        mesh = mesh_of([jax.typeof(x) for x in operands])
        if not mesh.explicit_axes:
            return run(*operands)
        found = (sharding_on(mesh, each) for each in types)
        specs = [PartitionSpec() if each is None else each.spec for each in found]
        out = [NamedSharding(mesh, spec) for spec in specs]
        return jax.sharding.auto_axes(run, axes=mesh.explicit_axes, out_sharding=out)(*operands)

    return on_auto_axes


def check_values(name: str, arguments: Any) -> None:
    """Raise PullbackError for arguments of which this process has no values, or not all."""
    for leaf in jax.tree.leaves(arguments):
        if tracing.is_tracer(leaf):
            raise PullbackError(
                f"{name} needs values, and is called while JAX traces",
                where=f"in a call of pb.{name}(…)",
                do="call it outside of jax.jit and other transformations: those of the function "
                "itself go inside, as pb.grad(f) in the place of f",
            )
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            raise PullbackError(
                f"{name} needs all values of its arguments, and other processes have a part",
                where=f"in a call of pb.{name}(…): {spell(jax.typeof(leaf))}",
                do="give it arrays of this process, such as what "
                "jax.experimental.multihost_utils.process_allgather(x, tiled=True) returns",
            )


def converted(path: str, aval: Any, value: Any) -> Array:
    """Return an argument as an array of the type that the program takes.

    Raises: ArgumentMismatchError if it has another type, and is not weakly typed.
    """
    found, taken = jax.typeof(value), prng_keys.physical_type(aval)
    if hijax.is_type(found):
        raise high_type(found, path)
    if found.shape == taken.shape and promoted_dtype(value, taken.dtype) == taken.dtype:
        return lax.convert_element_type(value, taken.dtype)
    if found.shape != taken.shape:
        do = f"pass an array of shape {taken.shape}, or trace the program for {found.shape}"
    else:
        do = f"convert it: jax.numpy.asarray(x, {taken.dtype.name!r})"
    raise ArgumentMismatchError(
        f"{path} must have type {spell(aval)}, but it is {spell(found)}", where=path, do=do
    )
