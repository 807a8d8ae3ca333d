"""Compare sparse derivatives with asdex's, and with dense ones, on asdex's problems: `make sparse`.

These are the problems of its benchmarks and documentation, and those of CUTEst, by sif2jax, that
its tests are about. On each there are to be no more non-zeros and colors than asdex has, and
the values of dense derivatives. `--only TEXT` chooses problems, `--most N` bounds the variables of
those of CUTEst; 0 leaves these out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import asdex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import pullback as pb

SIZE = 200
MOST_ENTRIES = 2_000_000
"""Bound the dense derivatives that are compared."""

RUNS = 50
"""How often each compiled derivative of asdex's benchmarks is timed."""


class Problem(NamedTuple):
    """A function and a point; the Hessian of the function or its Jacobian is of interest."""

    name: str
    derivative: str
    function: Callable[[Any], Any]
    point: np.ndarray


def heat(u: Any) -> Any:
    """A heat equation that is zero at both ends."""
    padded = jnp.pad(u, 1)
    return padded[2:] - 2 * u + padded[:-2]


def network(x: Any) -> Any:
    """Three convolutions, each with a ReLU."""
    h = x.reshape(1, 1, -1)
    for kernel in KERNELS:
        h = jax.nn.relu(lax.conv(h, kernel, (1,), "SAME"))
    return h.ravel()


def rosenbrock(x: Any) -> Any:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def brusselator(state: Any) -> Any:
    """A reaction with diffusion, of two substances on a grid without ends."""
    u, v = state.reshape(2, 16, 16)

    def spread(c: Any) -> Any:
        return 0.1 * (sum(jnp.roll(c, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * c)

    reaction = u**2 * v
    return jnp.stack([1 + reaction - 4.4 * u + spread(u), 3.4 * u - reaction + spread(v)]).ravel()


RNG = np.random.default_rng(0)
KERNELS = [RNG.standard_normal(shape) / 3 for shape in ((8, 1, 5), (4, 8, 3), (2, 4, 3))]
BENCHMARKS = [
    Problem("heat equation", "jacobian", heat, RNG.standard_normal(SIZE)),
    Problem("convolutions", "jacobian", network, RNG.standard_normal(SIZE)),
    Problem("Rosenbrock", "hessian", rosenbrock, RNG.standard_normal(SIZE)),
    Problem("Brusselator", "jacobian", brusselator, RNG.standard_normal(512)),
]


def cutest(most: int) -> Iterator[Problem]:
    """Yield the problems of CUTEst of at most so many variables."""
    if most == 0:
        return
    import sif2jax  # takes half a minute

    for each in sif2jax.unconstrained_minimisation_problems:
        if np.size(each.y0) <= most:
            objective = lambda y, p=each: p.objective(y, p.args)  # noqa: E731
            yield Problem(each.name, "hessian", objective, np.asarray(each.y0, float))
    for each in sif2jax.constrained_minimisation_problems:
        if np.size(each.y0) > most:
            continue
        for i, kind in enumerate(("equalities", "inequalities")):
            constraint = lambda y, p=each, i=i: p.constraint(y)[i]  # noqa: E731
            if jax.eval_shape(constraint, each.y0) is not None:
                name = f"{each.name}, {kind}"
                yield Problem(name, "jacobian", constraint, np.asarray(each.y0, float))


def compare(problem: Problem) -> tuple[str, bool]:
    """Return a line about a problem, and whether all is as good as asdex's."""
    f, x = problem.function, problem.point
    is_hessian = problem.derivative == "hessian"
    start = time.process_time()
    traced = pb.trace(f)(x)
    program = traced.sparse_hessian() if is_hessian else traced.sparse_jacobian()
    ours = time.process_time() - start
    pattern = program.pattern
    said = f"{problem.name}: {pattern}"
    start = time.process_time()
    try:
        coloring = (asdex.hessian_coloring if is_hessian else asdex.jacobian_coloring)(f, x)
    except NotImplementedError as error:
        return f"{said}; asdex: {str(error).partition('.')[0]}", _has_dense_values(problem, program)
    theirs = time.process_time() - start
    said += f"; asdex: {coloring.sparsity.nnz:,} non-zeros, {coloring.num_colors} colors"
    said += f"; pattern in {ours:.3f} s, {theirs:.3f} s"
    is_good = pattern.nnz <= coloring.sparsity.nnz and pattern.num_colors <= coloring.num_colors
    if any(problem is each for each in BENCHMARKS):
        said += _call_times(problem, program, coloring)
    return said, is_good and _has_dense_values(problem, program)


def _has_dense_values(problem: Problem, program: pb.Program) -> bool:
    pattern, x = program.pattern, problem.point
    assert pattern is not None
    if pattern.shape[0] * pattern.shape[1] > MOST_ENTRIES:
        return True
    moved = x + 0.1 * np.random.default_rng(1).standard_normal(x.shape) * (1 + abs(x))
    derivative = jax.hessian if problem.derivative == "hessian" else jax.jacfwd
    dense = np.asarray(derivative(problem.function)(moved)).reshape(pattern.shape)
    found = np.zeros(pattern.shape)
    found[pattern.rows, pattern.cols] = program(moved)
    largest = np.max(abs(dense), initial=1e-300, where=np.isfinite(dense))
    return np.allclose(found, dense, rtol=1e-6, atol=1e-9 * largest, equal_nan=True)


def _call_times(problem: Problem, program: pb.Program, coloring: Any) -> str:
    """Return the CPU times of a call of compiled derivatives: ours, asdex's, and JAX's dense."""
    is_hessian, f = problem.derivative == "hessian", problem.function
    of_asdex = asdex.hessian_from_coloring if is_hessian else asdex.jacobian_from_coloring
    dense = jax.hessian if is_hessian else jax.jacfwd
    x = jnp.asarray(problem.point)
    calls = [jax.jit(each) for each in (program, of_asdex(f, coloring), dense(f))]
    best = [np.inf] * len(calls)
    for _ in range(RUNS):
        for i, call in enumerate(calls):
            start = time.process_time()
            for _ in range(20):
                jax.block_until_ready(call(x))
            best[i] = min(best[i], (time.process_time() - start) / 20)
    return "; a call in {:.0f} µs, {:.0f} µs, dense {:.0f} µs".format(*(1e6 * t for t in best))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="problems whose name contains this")
    parser.add_argument("--most", type=int, default=300, help="variables of a problem of CUTEst")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    count = worse = 0
    for problem in (*BENCHMARKS, *cutest(options.most)):
        if options.only in problem.name:
            said, is_good = compare(problem)
            print(said if is_good else f"WORSE {said}", flush=True)
            count, worse = count + 1, worse + (not is_good)
    print(f"{count} problems, {worse} of them worse")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
