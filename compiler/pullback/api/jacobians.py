"""Jacobians and Hessians: the derivative in every direction of a basis, as one batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback._jax.tangent_types import is_inexact
from pullback.api import program_in_jax, static_arguments
from pullback.api.transforms import Parameters, program_of
from pullback.errors import DerivativeTypeError
from pullback.frontend.rules.trace_rule import converted
from pullback.program import argument_leaves, derivation
from pullback.program.argument_leaves import argnums_of, is_complex, positions, spell
from pullback.program.derivation import Through, read_through
from pullback.program.memo import derived_once


def jacfwd(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    through: Through = "rules",
) -> Callable[Parameters, Any]:
    """Return a function that computes the Jacobian of `fun` in forward mode; as `jax.jacfwd`.

    For an argument of shape `(n…)` and a result of shape `(m…)` it has the shape `(m…, n…)`: one
    tangent for each element of the argument, as one batch. `argnums`, `has_aux`, `holomorphic` and
    errors are as for `grad`, `through` as for `jvp`.
    """
    return _jacobian(fun, _forward, _options(argnums, has_aux, holomorphic, read_through(through)))


def jacrev(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Parameters, Any]:
    """Return a function that computes the Jacobian of `fun` in reverse mode; as `jax.jacrev`.

    For an argument of shape `(n…)` and a result of shape `(m…)` it has the shape `(m…, n…)`: one
    cotangent for each element of the result, as one batch. Arguments and errors are as for `grad`;
    the Jacobian by an integer, with `allow_int`, is zeros of the integer's dtype.
    """
    return _jacobian(fun, _reverse, _options(argnums, has_aux, holomorphic, allow_int))


def hessian(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[Parameters, Any]:
    """Return a function that computes the Hessian of `fun`, forward over reverse; as `jax.hessian`.

    For an argument of shape `(n…)` and a result of shape `(m…)` it has the shape `(m…, n…, n…)`.
    Arguments and errors are as for `grad`, but that the result need not be a scalar.
    """
    inner = jacrev(fun, argnums, has_aux, holomorphic)
    return jacfwd(inner, argnums, has_aux, holomorphic)


def _options(argnums: Any, *others: Any) -> tuple[Any, ...]:
    return (positions(argnums), *others)


def _jacobian(fun: Callable[..., Any], mode: Any, options: tuple[Any, ...]) -> Callable[..., Any]:
    static_arguments.check_function(fun)
    make = functools.partial(_derived, mode, options)
    call = derived_once(fun, (mode.__name__, options), make).call

    @functools.wraps(fun, updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    return function


def _derived(mode: Any, options: tuple[Any, ...], get: Callable[[], Any]) -> Any:
    def make(get: Callable[[], Any]) -> Callable[..., Any]:
        def function(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            argnums = argnums_of(options[0], len(args))
            program = program_of(get(), args, kwargs)
            jacobian, aux = mode(program, args, kwargs, argnums, *options[1:])
            return (jacobian, aux[0]) if options[1] else jacobian

        return function

    name = f"jacobian{mode.__name__}"
    return static_arguments.Specializing(make, name, argument_leaves.several(options[0]), get)


def _forward(
    program: Any,
    args: Any,
    kwargs: Any,
    argnums: Any,
    has_aux: bool,
    holomorphic: bool,
    through: str,
) -> tuple[Any, list[Any]]:
    chosen = argument_leaves.chosen(args, argnums)
    _check("jacfwd", chosen, "inputs", holomorphic, complex_too=False)
    derived = derivation.jvp(program, argnums, has_aux, through)
    if not jax.tree.leaves(chosen):
        out, aux = _value(program, args, kwargs, has_aux)
        return jax.tree.map(lambda _: chosen, out), aux

    def push(tangent: Any) -> Any:
        tangents = (tangent,) if isinstance(argnums, int) else tangent
        return program_in_jax.apply(derived, (*args, *tangents), kwargs)

    out, columns, *aux = jax.vmap(push)(standard_basis(chosen))
    out, aux = _first((out, aux), chosen, functools.partial(_value, program, args, kwargs, has_aux))
    moving = out if holomorphic else jax.tree.map(lambda x: None if _is_integer(x) else x, out)
    _check("jacfwd", moving, "outputs", holomorphic)

    def block(value: Any, column: Any) -> Any:
        if column is None:  # of an integer, whose Jacobian JAX makes of zeros of its own type
            return jax.tree.map(
                lambda leaf: jnp.zeros((*value.shape, *jnp.shape(leaf)), value.dtype), chosen
            )
        parts = _split(jnp.moveaxis(column, 0, -1), chosen, -1)
        return _shaped(parts, chosen, lambda leaf: (*value.shape, *jnp.shape(leaf)))

    return jax.tree.map(block, out, columns), aux


def _reverse(
    program: Any,
    args: Any,
    kwargs: Any,
    argnums: Any,
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool,
) -> tuple[Any, list[Any]]:
    chosen = argument_leaves.chosen(args, argnums)
    _check("jacrev", chosen, "inputs", holomorphic, allow_int=allow_int)
    value = functools.partial(_value, program, args, kwargs, has_aux)
    out = jax.tree.map(lambda aval: jnp.zeros(aval.shape, aval.dtype), jax.eval_shape(value)[0])
    if not jax.tree.leaves(out):
        return value()
    _check("jacrev", out, "outputs", holomorphic, complex_too=False)
    derived = derivation.vjp(program, argnums, has_aux)

    def pull(cotangent: Any) -> Any:
        return program_in_jax.apply(derived, (*args, cotangent), kwargs)

    # One run, whose effects happen once, gives the auxiliary data as well.
    _, rows, *aux = jax.vmap(pull)(standard_basis(out))
    aux = _first(aux, out, lambda: value()[1])

    def blocks(leaf: Any, row: Any) -> list[Any]:
        if row is None:  # of an integer, whose Jacobian JAX makes of zeros of its own type
            return [jnp.zeros((*jnp.shape(v), *jnp.shape(leaf)), leaf.dtype) for v in outs]
        parts = _split(converted(row, jnp.result_type(leaf)), out, 0)  # to the argument's, as JAX
        shapes = [(*jnp.shape(v), *jnp.shape(leaf)) for v in outs]
        return [jnp.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]

    outs, out_tree = jax.tree.flatten(out)
    leaves, tree = jax.tree.flatten(chosen)
    found = [blocks(*pair) for pair in zip(leaves, tree.flatten_up_to(rows), strict=True)]
    of_outs = [tree.unflatten([each[i] for each in found]) for i in range(len(outs))]
    return out_tree.unflatten(of_outs), aux


def _value(program: Any, args: Any, kwargs: Any, has_aux: bool) -> tuple[Any, list[Any]]:
    """Return the differentiated result, and a list with the auxiliary data if there is any."""
    derivation.Signature.of(program).results(has_aux)  # raises where there is no such pair
    out = program_in_jax.apply(program, args, kwargs)
    return (out[0], list(out[1:])) if has_aux else (out, [])


def _first(batch: Any, basis_of: Any, value: Callable[[], Any]) -> Any:
    """Return the value at the point, of which a batch holds one equal copy per direction."""
    if sum(jnp.size(leaf) for leaf in jax.tree.leaves(basis_of)) == 0:
        return value()
    return jax.tree.map(lambda copies: copies[0], batch)


def standard_basis(tree: Any) -> Any:
    """Return all unit vectors of a tree of arrays, along a new leading axis of each leaf."""
    leaves, structure = jax.tree.flatten(tree)
    sizes = [jnp.size(leaf) for leaf in leaves]
    total, first, basis = sum(sizes), 0, []
    for leaf, size in zip(leaves, sizes, strict=True):
        block = jnp.eye(total, size, k=-first, dtype=jnp.result_type(leaf))
        basis.append(jnp.reshape(block, (total, *jnp.shape(leaf))))
        first += size
    return structure.unflatten(basis)


def _split(array: Any, tree: Any, axis: int) -> list[Any]:
    """Split an axis into the parts that belong to each leaf of a tree."""
    sizes = [jnp.size(leaf) for leaf in jax.tree.leaves(tree)]
    return jnp.split(array, np.cumsum(sizes)[:-1], axis) if sizes else []


def _shaped(parts: list[Any], tree: Any, shape: Callable[[Any], Any]) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(
        [jnp.reshape(part, shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    )


def _is_integer(value: Any) -> bool:
    return jax.dtypes.issubdtype(value.dtype, np.integer)


def _check(
    name: str,
    tree: Any,
    what: str,
    holomorphic: bool,
    complex_too: bool = True,
    allow_int: bool = False,
) -> None:
    """Raise DerivativeTypeError, in JAX's words, for leaves that have no such derivative."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        aval = jax.typeof(leaf)
        where = f"{what}{jax.tree_util.keystr(path)}"
        if holomorphic and not is_complex(aval):
            raise DerivativeTypeError(
                f"{name} with holomorphic=True requires {what} with complex dtype, "
                f"but got {spell(aval)}",
                where=where,
                do="convert it to a complex dtype, or leave out holomorphic",
            )
        real = not is_complex(aval) or complex_too
        if not holomorphic and not ((is_inexact(aval) and real) or allow_int):
            raise DerivativeTypeError(
                f"{name} requires real-valued {what} (a float dtype), but got {spell(aval)}",
                where=where,
                do="pass holomorphic=True for holomorphic functions; for others use pb.jvp, pb.vjp",
            )
