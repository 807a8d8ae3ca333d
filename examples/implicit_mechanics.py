"""Four derivative levels: a mechanical system from its energy to the gradient of a fit.

1. The Lagrangian L(q, v) is differentiated into momenta and forces.
2. The Euler-Lagrange equations differentiate those again: the mass matrix and the accelerations.
3. An implicit midpoint step solves them by Newton's method, whose Jacobian is one derivative more.
4. A trajectory of steps, inside a scan, is differentiated with respect to the parameters.

The solver carries a rule of its own, over closures two levels deep: its derivative is that of the
implicit function theorem, not of the Newton iterations. The rule is a `custom_vjp`, so JAX refuses
forward mode through it; pullback transposes the rule instead, and both modes agree.

    python examples/implicit_mechanics.py
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb

jax.config.update("jax_enable_x64", True)


def lagrangian(params, q, v):
    """Kinetic minus potential energy of a double pendulum with a spring between its bobs."""
    mass, stiffness = params["mass"], params["stiffness"]
    inertia = mass[0] * v[0] ** 2 + mass[1] * (
        v[0] ** 2 + v[1] ** 2 + 2 * v[0] * v[1] * jnp.cos(q[0] - q[1])
    )
    height = -(mass[0] + mass[1]) * jnp.cos(q[0]) - mass[1] * jnp.cos(q[1])
    return 0.5 * inertia - 9.81 * height - 0.5 * stiffness * (q[1] - q[0]) ** 2


def acceleration(params, q, v):
    """Euler-Lagrange: d/dt dL/dv = dL/dq, solved for the second derivative of q."""
    momentum = jax.grad(lagrangian, argnums=2)
    force = jax.grad(lagrangian, argnums=1)(params, q, v)
    mass_matrix = jax.jacfwd(momentum, argnums=2)(params, q, v)
    transport = jax.jvp(lambda q: momentum(params, q, v), (q,), (v,))[1]
    return jnp.linalg.solve(mass_matrix, force - transport)


def root(residual, guess):
    """x with residual(x) = 0. Its derivative is that of the implicit function theorem."""
    converted, constants = jax.closure_convert(residual, guess)
    return _root(converted, guess, *constants)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _root(residual, guess, *constants):
    def newton(x, _):
        jacobian = jax.jacfwd(residual)(x, *constants)
        return x - jnp.linalg.solve(jacobian, residual(x, *constants)), None

    return jax.lax.scan(newton, guess, length=6)[0]


def _root_fwd(residual, guess, *constants):
    x = _root(residual, guess, *constants)
    return x, (x, constants)


def _root_bwd(residual, kept, ct):
    x, constants = kept
    jacobian = jax.jacfwd(residual)(x, *constants)
    adjoint = jnp.linalg.solve(jacobian.T, ct)
    _, pull = jax.vjp(lambda *constants: residual(x, *constants), *constants)
    return jnp.zeros_like(x), *pull(-adjoint)


_root.defvjp(_root_fwd, _root_bwd)


def step(params, state, dt):
    """One implicit midpoint step; the residual closes over the state and the parameters."""

    def rate(state):
        q, v = state
        return jnp.concatenate([v, acceleration(params, q, v)])

    start = jnp.concatenate(state)

    def residual(end):
        middle = (start + end) / 2
        return end - start - dt * rate((middle[:2], middle[2:]))

    end = root(residual, start + dt * rate(state))
    return end[:2], end[2:]


def loss(params, q0, steps=20, dt=0.02):
    """Distance of the last position from a target."""

    def body(state, _):
        return step(params, state, dt), state[0]

    (q, _), _ = jax.lax.scan(body, (q0, jnp.zeros(2)), length=steps)
    return jnp.sum((q - jnp.array([0.1, -0.2])) ** 2)


params = {"mass": jnp.array([1.0, 0.7]), "stiffness": jnp.array(2.0)}
example_args = (params, jnp.array([0.6, 0.9]))


def finite_difference(f, params, direction, epsilon=1e-5):
    """Central difference of f along `direction`."""

    def moved(sign):
        return jax.tree.map(lambda p, d: p + sign * epsilon * d, params, direction)

    return (f(moved(1)) - f(moved(-1))) / (2 * epsilon)


def main() -> None:
    _, q0 = example_args
    direction = jax.tree.map(lambda p: jnp.ones_like(p) * 0.3, params)

    def dot(a, b):
        return sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))

    gradient = pb.grad(loss)(params, q0)
    theirs = jax.grad(loss)(params, q0)
    _, forward = pb.jvp(lambda p: loss(p, q0), (params,), (direction,))
    numeric = finite_difference(lambda p: loss(p, q0), params, direction)
    print("reverse mode, ours :", gradient)
    print("reverse mode, jax  :", theirs)
    print("along a direction: reverse", dot(gradient, direction))
    print("                   forward", forward, "(JAX refuses: custom_vjp)")
    print("         finite difference", numeric)

    hvp = pb.jvp(pb.grad(lambda p: loss(p, q0)), (params,), (direction,))[1]
    slope = lambda p: dot(pb.grad(loss)(p, q0), direction)  # noqa: E731
    hvp_numeric = finite_difference(slope, params, direction)
    print("Hessian along it : ours", dot(hvp, direction))
    print("         finite difference", hvp_numeric)

    np.testing.assert_allclose(dot(gradient, direction), dot(theirs, direction), rtol=1e-9)
    np.testing.assert_allclose(forward, dot(gradient, direction), rtol=1e-9)
    np.testing.assert_allclose(forward, numeric, rtol=1e-6)
    np.testing.assert_allclose(dot(hvp, direction), hvp_numeric, rtol=1e-5)
    print("all agree")


if __name__ == "__main__":
    main()
