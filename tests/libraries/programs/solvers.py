"""Linear and nonlinear solves: lineax, optimistix, jaxopt, klujax, matfree; and jax-finufft."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxopt
import klujax
import lineax as lx
import optimistix as optx
from jax_finufft import nufft1
from matfree import decomp

from tests.libraries.catalogue import Catalogue, Made

CATALOGUE = Catalogue()


def _matrix(n: int = 4, m: int = 4) -> jax.Array:
    return jnp.sin(jnp.arange(1.0, n * m + 1)).reshape(n, m) + 3 * jnp.eye(n, m)


def _linear(solver: lx.AbstractLinearSolver, definite: bool = False, m: int = 4) -> Made:
    def loss(a, b):
        if definite:
            operator = lx.MatrixLinearOperator(a @ a.T, lx.positive_semidefinite_tag)
        else:
            operator = lx.MatrixLinearOperator(a)
        return jnp.sum(lx.linear_solve(operator, b, solver).value ** 2)

    return loss, (_matrix(4, m), jnp.cos(jnp.arange(4.0)))


@CATALOGUE.add()
def lineax_lu() -> Made:
    return _linear(lx.LU())


@CATALOGUE.add()
def lineax_least_squares_by_qr() -> Made:
    return _linear(lx.QR(), m=3)


@CATALOGUE.add()
def lineax_least_squares_by_svd() -> Made:
    return _linear(lx.SVD(), m=3)


@CATALOGUE.add()
def lineax_cholesky() -> Made:
    return _linear(lx.Cholesky(), definite=True)


@CATALOGUE.add(tolerance=1e-5)
def lineax_conjugate_gradients() -> Made:
    return _linear(lx.CG(rtol=1e-12, atol=1e-12), definite=True)


@CATALOGUE.add(tolerance=1e-5)
def lineax_gmres() -> Made:
    return _linear(lx.GMRES(rtol=1e-12, atol=1e-12))


@CATALOGUE.add()
def lineax_tridiagonal() -> Made:
    def loss(diagonal, lower, upper, b):
        operator = lx.TridiagonalLinearOperator(diagonal, lower, upper)
        return jnp.sum(lx.linear_solve(operator, b).value ** 2)

    side = jnp.cos(jnp.arange(3.0))
    return loss, (4 + jnp.sin(jnp.arange(4.0)), side, side**2, jnp.arange(4.0))


@CATALOGUE.add()
def lineax_jacobian_of_a_function() -> Made:
    def loss(x, w, b):
        operator = lx.JacobianLinearOperator(lambda x, _: jnp.tanh(w @ x) + 3 * x, x)
        return jnp.sum(lx.linear_solve(operator, b).value ** 2)

    return loss, (0.1 * jnp.arange(4.0), 0.3 * _matrix(), jnp.cos(jnp.arange(4.0)))


def _equation(y, p):
    return y + 0.3 * jnp.sin(p @ y) - jnp.arange(1.0, 5.0)


@CATALOGUE.add()
def optimistix_newton() -> Made:
    def loss(p):
        solver = optx.Newton(rtol=1e-10, atol=1e-10)
        return jnp.sum(optx.root_find(_equation, solver, jnp.zeros(4), p).value ** 2)

    return loss, (0.3 * _matrix(),)


@CATALOGUE.add()
def optimistix_newton_differentiated_step_by_step() -> Made:
    def loss(p):
        solver = optx.Newton(rtol=1e-10, atol=1e-10)
        adjoint = optx.RecursiveCheckpointAdjoint()
        found = optx.root_find(_equation, solver, jnp.zeros(4), p, adjoint=adjoint, max_steps=8)
        return jnp.sum(found.value**2)

    return loss, (0.3 * _matrix(),)


@CATALOGUE.add()
def optimistix_bisection() -> Made:
    def loss(p):
        solver = optx.Bisection(rtol=1e-12, atol=1e-12)
        options = {"lower": 0.0, "upper": 3.0}
        return optx.root_find(lambda y, p: y**3 - p, solver, 1.0, p, options=options).value ** 2

    return loss, (jnp.array(2.0),)


@CATALOGUE.add()
def optimistix_fixed_point() -> Made:
    def loss(p):
        solver = optx.FixedPointIteration(rtol=1e-12, atol=1e-12)
        return jnp.sum(
            optx.fixed_point(lambda y, p: 0.3 * jnp.cos(p @ y), solver, jnp.ones(4), p).value
        )

    return loss, (0.3 * _matrix(),)


@CATALOGUE.add(tolerance=1e-5)
def optimistix_levenberg_marquardt() -> Made:
    def loss(p):
        solver = optx.LevenbergMarquardt(rtol=1e-10, atol=1e-10)

        def residuals(y, p):
            return y[0] * jnp.exp(-y[1] * jnp.arange(5.0)) - p

        return jnp.sum(optx.least_squares(residuals, solver, jnp.array([1.0, 0.3]), p).value ** 2)

    return loss, (jnp.array([2.0, 1.3, 0.8, 0.5, 0.35]),)


@CATALOGUE.add(tolerance=1e-5)
def optimistix_bfgs() -> Made:
    def loss(p):
        def height(y, p):
            return jnp.sum((y - p) ** 2) + 0.1 * jnp.sum(jnp.cosh(y))

        solver = optx.BFGS(rtol=1e-9, atol=1e-9)
        return jnp.sum(optx.minimise(height, solver, jnp.zeros(3), p).value ** 3)

    return loss, (jnp.array([0.3, -0.5, 0.8]),)


def _height(y, p):
    return jnp.sum((y - p) ** 2) + 0.1 * jnp.sum(jnp.cosh(y))


@CATALOGUE.add(tolerance=1e-5)
def jaxopt_lbfgs() -> Made:
    def loss(p):
        solver = jaxopt.LBFGS(_height, maxiter=50, tol=1e-10, implicit_diff=True)
        return jnp.sum(solver.run(jnp.zeros(3), p).params ** 3)

    return loss, (jnp.array([0.3, -0.5, 0.8]),)


@CATALOGUE.add(tolerance=1e-5)
def jaxopt_projected_gradient() -> Made:
    def loss(p):
        projection = jaxopt.projection.projection_simplex
        solver = jaxopt.ProjectedGradient(_height, projection, maxiter=200, tol=1e-10)
        return jnp.sum(solver.run(jnp.ones(3) / 3, 1.0, p).params ** 3)

    return loss, (jnp.array([0.3, 0.2, 0.4]),)


@CATALOGUE.add(tolerance=1e-5)
def jaxopt_proximal_gradient_unrolled() -> Made:
    def loss(p):
        solver = jaxopt.ProximalGradient(
            _height, jaxopt.prox.prox_lasso, maxiter=20, implicit_diff=False, unroll=True
        )
        return jnp.sum(solver.run(jnp.zeros(3), 0.05, p).params ** 3)

    return loss, (jnp.array([0.3, -0.5, 0.8]),)


@CATALOGUE.add()
def jaxopt_projection_on_a_ball() -> Made:
    def loss(p):
        return jnp.sum(jaxopt.projection.projection_l1_ball(p, 1.0) ** 3)

    return loss, (jnp.array([0.3, 0.5, 0.1, 0.8, 0.2]),)


@CATALOGUE.add(custom_calls=("solve_f64", "dot_f64"))
def klujax_sparse_solve() -> Made:
    """A primitive that is foreign code, with rules of JAX's interpreters."""
    rows, columns = jnp.array([0, 1, 2, 3, 0, 1]), jnp.array([0, 1, 2, 3, 1, 2])

    def loss(entries, b):
        return jnp.sum(klujax.solve(rows, columns, entries, b) ** 3)

    return loss, (jnp.array([2.0, 3.0, 4.0, 5.0, 0.5, 0.3]), jnp.arange(1.0, 5.0))


@CATALOGUE.add(tolerance=1e-6, custom_calls=("nufft1d1", "nufft1d2"))
def finufft_of_points() -> Made:
    """Another such primitive, whose rules call it again at other types."""

    def loss(points, values):
        return jnp.sum(jnp.abs(nufft1(7, values + 0.3j, points, eps=1e-9)) ** 2)

    return loss, (3 * jnp.sin(jnp.arange(9.0)), jnp.cos(jnp.arange(9.0)))


@CATALOGUE.add()
def matfree_hessenberg() -> Made:
    """Rules for a function of matrix-vector products that closes over what is differentiated."""

    def loss(matrix, start):
        decomposed = decomp.hessenberg(3, reortho="full")(lambda v: matrix @ v, start)
        return jnp.sum(decomposed.J_small**2) + jnp.sum(decomposed.Q_tall**3)

    return loss, (_matrix(), jnp.ones(4))
