"""Compare sparse derivatives with dense ones, at random points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from pullback import Program, trace
from pullback.errors import NotLinearError, PullbackError

POINTS = 4


def check_pattern(
    f_or_program: Callable[..., Any],
    args: Sequence[Any],
    *,
    argnums: int | Sequence[int] = 0,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> None:
    """Check that sparse derivatives are the dense ones at some points.

    The Jacobian is checked and, of a scalar result, the Hessian. The first point is `args`; at the
    others, arguments at `argnums` are drawn from a normal distribution.

    Args:
      f_or_program: a function, or a program of one.
      args: its arguments, positional ones.
      argnums: the positions of the arguments to differentiate by.
      tolerance: the largest difference, relative to the largest element of the dense derivative.
      seed: of the random points.

    Raises:
      PullbackError: an element differs. The message has its place, and both values. What the
        sparse derivatives raise is raised as well.
    """
    is_program = isinstance(f_or_program, Program)
    program: Any = f_or_program if is_program else trace(f_or_program)(*args)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    start, unravel = ravel_pytree(tuple(args[number] for number in numbers))
    rng = np.random.default_rng(seed)
    drawn = [jnp.asarray(rng.normal(size=start.shape), start.dtype) for _ in range(POINTS - 1)]

    def given(flat: Any) -> list[Any]:
        changed = dict(zip(numbers, unravel(flat), strict=True))
        return [changed.get(number, arg) for number, arg in enumerate(args)]

    def of_flat(flat: Any) -> Any:
        return ravel_pytree(program(*given(flat)))[0]

    cases = [("Jacobian", program.sparse_jacobian(argnums), _dense_jacobian(of_flat))]
    if [aval.shape for aval in program.out_avals] == [()]:
        scalar = jax.hessian(lambda flat: of_flat(flat)[0])
        cases.append(("Hessian", program.sparse_hessian(argnums), scalar))
    for number, point in enumerate([start, *drawn]):
        for name, sparse, dense in cases:
            expected, found = np.asarray(dense(point)), np.zeros(sparse.pattern.shape, start.dtype)
            found[sparse.pattern.rows, sparse.pattern.cols] = sparse(*given(point))
            _compare(name, number, found, expected, tolerance)


def _dense_jacobian(of_flat: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def dense(flat: Any) -> Any:
        try:
            return jax.jacfwd(of_flat)(flat)
        except NotLinearError:
            return jax.jacrev(of_flat)(flat)

    return dense


def _compare(name: str, number: int, found: Any, expected: Any, tolerance: float) -> None:
    bound = tolerance * np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0)
    wrong = np.argwhere(~np.isclose(found, expected, rtol=0, atol=bound, equal_nan=True))
    if not len(wrong):
        return
    row, col = map(int, wrong[0])
    at = "the arguments" if number == 0 else f"random point {number}"
    raise PullbackError(
        f"the sparse {name} is {found[row, col]:.6g} at ({row}, {col}), and the dense one is "
        f"{expected[row, col]:.6g}; {len(wrong)} of {expected.size} elements differ",
        where=f"at {at}",
        do="is a rule not the derivative of its function, so that the Hessian is not symmetric? "
        "Then take pb.sparse_jacobian of the gradient; otherwise, report it",
    )
