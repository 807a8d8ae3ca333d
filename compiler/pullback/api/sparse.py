"""Compute sparse Jacobians and Hessians: the non-zeros alone, by one product for each color."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse

from pullback.api import program_in_jax, static_arguments
from pullback.api.transforms import program_of
from pullback.autodiff.coloring import color_columns, color_symmetric, readable
from pullback.errors import (
    DerivativeTypeError,
    MissingRuleError,
    NotDifferentiableError,
    NotLinearError,
    PullbackError,
)
from pullback.frontend.hoist_constants import LARGEST_MASK
from pullback.frontend.trace import trace
from pullback.program import argument_leaves, derivation
from pullback.program.argument_leaves import Positions, argnums_of, is_complex, positions
from pullback.program.derivation import Signature
from pullback.program.memo import derived_once, once
from pullback.program.program import Program
from pullback.program.sparsity import Entries, entries
from pullback_runtime.files._pattern import Pattern


def sparse_jacobian(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0
) -> Callable[..., sparse.BCOO]:
    """Return a function that computes the Jacobian of `fun` as a sparse matrix.

    The pattern is found from the module, once for arguments of the same types. Columns, or rows,
    that share no non-zero have one color; a call takes one product of forward or reverse mode for
    each color, as a batch.

    Args:
      fun: a function of real floating arrays, or trees of them; or a program.
      argnums: the positions of the arguments to differentiate by.

    Returns:
      A function of the arguments of `fun`, which returns a `jax.experimental.sparse.BCOO` of shape
      `(m, n)`: the sizes of the result and of the arguments at `argnums`, whose trees are flattened
      in order, as by `jax.flatten_util.ravel_pytree`. Where the result is an integer, it is zero.

    Raises:
      DerivativeTypeError: an argument at `argnums` is not a real float, or a result is complex.
      MissingRuleError: an op on the way has no derivative rule.
      PullbackError: the pattern has too many non-zeros.
    """
    return _sparse(fun, jacobian_of, argnums)


def sparse_hessian(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0
) -> Callable[..., sparse.BCOO]:
    """Return a function that computes the Hessian of `fun`, a scalar, as a sparse matrix.

    The pattern is that of the Jacobian of the gradient; the matrix is taken to be symmetric, so
    that two columns may have one color where the mirror of an entry can be read instead. It is
    not, where a rule of the user's is not the derivative of its function: then take
    `sparse_jacobian` of the gradient.

    Args:
      fun: a function of real floating arrays, or trees of them; or a program.
      argnums: the positions of the arguments to differentiate by.

    Returns:
      A function of the arguments of `fun`, which returns a `jax.experimental.sparse.BCOO` of shape
      `(n, n)`, the size of the arguments at `argnums`, with both triangles. Trees are as for
      `sparse_jacobian`.

    Raises:
      DerivativeTypeError: the result is not a scalar, or it or an argument is not a real float.
      MissingRuleError: an op on the way has no derivative rule.
      PullbackError: the pattern has too many non-zeros.
    """
    return _sparse(fun, hessian_of, argnums)


def _sparse(fun: Callable[..., Any], derive: Any, argnums: Any) -> Callable[..., sparse.BCOO]:
    static_arguments.check_function(fun)
    numbers = positions(argnums)
    make = functools.partial(_derived, derive, numbers)
    call = derived_once(fun, (derive.__name__, numbers), make).call

    @functools.wraps(fun, updated=())
    def function(*args: Any, **kwargs: Any) -> sparse.BCOO:
        found: sparse.BCOO = call(args, kwargs)
        return found

    return function


def _derived(derive: Any, argnums: Any, get: Callable[[], Any]) -> Any:
    def make(get: Callable[[], Any]) -> Callable[..., Any]:
        def function(args: tuple[Any, ...], kwargs: dict[str, Any]) -> sparse.BCOO:
            program = derive(program_of(get(), args, kwargs), argnums)
            values = program_in_jax.apply(program, args, kwargs)
            found = program.pattern
            indices = np.stack([found.rows, found.cols], axis=-1)
            return sparse.BCOO(
                (values, indices), shape=found.shape, indices_sorted=True, unique_indices=True
            )

        return function

    return static_arguments.Specializing(
        make, derive.__name__, argument_leaves.several(argnums), get
    )


def jacobian_of(program: Any, argnums: Positions = 0) -> Program:
    """Return the program of the non-zeros of a Jacobian; see `Program.sparse_jacobian`."""
    return _jacobian_of(program, _checked(program, argnums, "sparse_jacobian"))


def hessian_of(program: Any, argnums: Positions = 0) -> Program:
    """Return the program of the non-zeros of a Hessian; see `Program.sparse_hessian`."""
    return _hessian_of(program, _checked(program, argnums, "sparse_hessian"))


def _checked(program: Any, argnums: Positions, name: str) -> Any:
    """Return the positions; raise for what has no derivative of real numbers."""
    if not isinstance(program, Program):
        raise PullbackError(
            f"{name} needs sizes, and dimensions of the program are symbols",
            do="take the program for sizes: program.with_sizes(…)",
        )
    numbers = argnums_of(argnums, len(program.in_tree.children()[0].children()))
    old = Signature.of(program)
    inputs = argument_leaves.chosen(old.args, numbers)
    argument_leaves.check_inexact(inputs, name, "convert it to a float, or leave it out of argnums")
    for slot in jax.tree.leaves((inputs, old.out)):
        if is_complex(slot.aval):
            raise DerivativeTypeError(
                f"{name} is of real numbers, but {slot.path} is {slot.aval.dtype.name}",
                where=slot.path,
                do="give the function real and imaginary parts, and let it return them",
            )
    return numbers


_NO_SUCH_MODE = MissingRuleError, NotDifferentiableError, NotLinearError


@once
def _jacobian_of(program: Program, argnums: Any) -> Program:
    old = Signature.of(program)
    inputs = argument_leaves.chosen(old.args, argnums)
    several = argument_leaves.chosen(old.args, argument_leaves.several(argnums))
    shape = _size(old.out), _size(inputs)
    forward = None
    try:
        forward = _Map(program, derivation.jvp(program, argnums), several, old.out)
        found = forward.entries()
    except NotLinearError:  # of a backward rule: what has it has reverse mode alone
        reverse = _Map(program, derivation.vjp(program, argnums), (old.out,), inputs)
        across = reverse.entries()
        found = Entries.of(across.cols, across.rows, shape)
    colors = color_columns(found.cols, found.rows, shape[::-1])
    by_rows = Pattern(*found, shape, colors, "rows")
    if forward is not None:
        colors = color_columns(*found, shape)
        by_columns = Pattern(*found, shape, colors, "columns")
        places = _places(colors[found.cols], shape[0], found.rows)
        if by_columns.num_colors <= by_rows.num_colors:
            return _values(program, forward, by_columns, places)
        try:
            reverse = _Map(program, derivation.vjp(program, argnums), (old.out,), inputs)
        except _NO_SUCH_MODE:
            return _values(program, forward, by_columns, places)
    places = _places(by_rows.colors[found.rows], shape[1], found.cols)
    return _values(program, reverse, by_rows, places)


@once
def _hessian_of(program: Program, argnums: Any) -> Program:
    args = Signature.of(program).args
    inputs = argument_leaves.chosen(args, argnums)
    several = argument_leaves.chosen(args, argument_leaves.several(argnums))
    gradient = derivation.grad(program, argnums)
    products = _Map(program, derivation.jvp(gradient, argnums), several, inputs)
    rows, cols = products.entries()
    size = _size(inputs)
    both = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    found = Entries.of(*both, (size, size))
    colors = color_symmetric(*found, size)
    pattern = Pattern(*found, (size, size), colors, "symmetric")
    direct, mirrored = (_places(colors[j], size, i) for i, j in (found, found[::-1]))
    places = np.where(readable(*found, colors), direct, mirrored)
    return _values(program, products, pattern, places)


def _places(colors: np.ndarray, width: int, numbers: np.ndarray) -> np.ndarray:
    """Return where entries are in the flat array of all products, each of so many elements."""
    places = colors.astype(np.int64) * width + numbers
    if len(places) and places.max() >= 2**32:
        raise PullbackError(
            f"the products of {int(colors.max()) + 1} colors have more than 2^32 elements",
            do="take the derivative by fewer arguments, or of fewer results, at a time",
        )
    return places.astype(np.uint32)  # of which JAX compares none with zero


def _size(tree: Any) -> int:
    return sum(slot.size for slot in jax.tree.leaves(tree))


class _Map:
    """Read a derived program as a linear map, at a point, of its last arguments.

    Inputs and results have numbers, element by element, also those of integers, which have none.
    """

    def __init__(self, program: Program, derived: Any, inputs: tuple[Any, ...], like: Any) -> None:
        """Read what jvp or vjp derived.

        Args:
          program: that of the function.
          derived: the program of the map, which takes the arguments and then inputs of the map.
          inputs: the values of the function, as slots, that the inputs belong to.
          like: those that the results belong to.
        """
        old, new = Signature.of(program), Signature.of(derived)
        self.program = derived
        self._tree = jax.tree.structure(new.args[len(old.args) :])
        self._like = like
        self._inputs = self._pairs(inputs, new.args[len(old.args) :])
        self._results = self._pairs(like, new.out[1])
        self.dtype = jnp.result_type(*(slot.dtype for _, slot in self._inputs if slot is not None))

    @staticmethod
    def _pairs(like: Any, tree: Any) -> list[tuple[Any, Any]]:
        """Return each slot of a value with that of its tangent or cotangent, or None."""
        leaves, structure = jax.tree.flatten(like)
        return list(zip(leaves, structure.flatten_up_to(tree), strict=True))

    def entries(self) -> Entries:
        """Return where the matrix of the map may have non-zeros, at any point."""
        sides = self._inputs, self._results
        inputs, results = ([slot for _, slot in side if slot is not None] for side in sides)
        cols, rows = (
            np.flatnonzero(np.repeat([slot is not None for _, slot in side], _sizes(side)))
            for side in sides
        )
        found = entries(self.program, inputs, results)
        return Entries(rows[found.rows].astype(np.int32), cols[found.cols].astype(np.int32))

    def products(self, args: Any, kwargs: Any, colors: np.ndarray, count: int) -> Any:
        """Return the products with the sum of the inputs of each color, one in each row."""
        own = np.split(colors, np.cumsum(_sizes(self._inputs))[:-1])
        library = np if count * colors.size <= LARGEST_MASK else jnp
        numbers: Any = library.arange(count, dtype=colors.dtype)[:, None]
        seeds = [
            jnp.asarray(numbers == color).astype(slot.dtype).reshape(count, *slot.shape)
            for color, (_, slot) in zip(own, self._inputs, strict=True)
            if slot is not None
        ]

        def product(seeds: Any) -> Any:
            found = program_in_jax.apply(self.program, (*args, *seeds), kwargs)[1]
            leaves = jax.tree.structure(self._like).flatten_up_to(found)
            pairs = zip(leaves, self._results, strict=True)
            return jnp.concatenate(
                [
                    jnp.ravel(x) if slot else jnp.zeros(like.size, self.dtype)
                    for x, (like, slot) in pairs
                ]
            )

        return jax.vmap(product)(self._tree.unflatten(seeds))


def _sizes(pairs: list[tuple[Any, Any]]) -> list[int]:
    return [like.size for like, _ in pairs]


def _values(program: Program, products: _Map, pattern: Pattern, places: np.ndarray) -> Program:
    """Return the program of the values, which stand at some places of the products.

    Args:
      program: that of the function.
      products: the map whose products with the vectors of all colors are taken.
      pattern: with the colors of its inputs.
      places: of each value in the flat array of all products.
    """

    def values(*args: Any, **kwargs: Any) -> Any:
        if not pattern.nnz:
            return jnp.zeros(0, products.dtype)
        found = products.products(args, kwargs, pattern.colors, pattern.num_colors)
        return found.ravel().at[places].get(mode="promise_in_bounds")

    args, kwargs = jax.tree.unflatten(program.in_tree, program.in_avals)
    made = trace(values, platforms=program.platforms)(*args, **kwargs)
    interface = dataclasses.replace(made._interface, arg_paths=program.arg_paths)
    return dataclasses.replace(made, interface=interface, pattern=pattern)
