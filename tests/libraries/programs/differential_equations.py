"""Differential equations, by diffrax; and integrals, by quadax."""

from __future__ import annotations

import diffrax
import jax
import jax.numpy as jnp
import quadax

from tests.libraries.catalogue import Catalogue, Made

CATALOGUE = Catalogue()


def _oscillator(
    solver: object, adjoint: object, controller: object = None, **options: object
) -> Made:
    """How far a driven oscillator goes, by where it starts and by its parameters."""

    def field(t, y, p):
        return jnp.stack([y[1], -p[0] * jnp.sin(y[0]) - p[1] * y[1] + jnp.cos(t)])

    def loss(y0, p):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            solver,
            t0=0.0,
            t1=1.0,
            dt0=0.1,
            y0=y0,
            args=p,
            adjoint=adjoint,
            stepsize_controller=controller or diffrax.ConstantStepSize(),
            max_steps=64,
            **options,
        )
        return jnp.sum(solution.ys**2)

    return loss, (jnp.array([0.3, -0.2]), jnp.array([1.5, 0.1]))


ADAPTIVE = diffrax.PIDController(rtol=1e-6, atol=1e-8)


@CATALOGUE.add()
def diffrax_recursive_checkpoints() -> Made:
    return _oscillator(diffrax.Tsit5(), diffrax.RecursiveCheckpointAdjoint(), ADAPTIVE)


@CATALOGUE.add()
def diffrax_recursive_checkpoints_at_times() -> Made:
    times = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 5))
    return _oscillator(
        diffrax.Dopri5(), diffrax.RecursiveCheckpointAdjoint(), ADAPTIVE, saveat=times
    )


@CATALOGUE.add()
def diffrax_direct() -> Made:
    return _oscillator(diffrax.Heun(), diffrax.DirectAdjoint())


@CATALOGUE.add()
def diffrax_backsolve() -> Made:
    return _oscillator(diffrax.Tsit5(), diffrax.BacksolveAdjoint(), ADAPTIVE)


@CATALOGUE.add()
def diffrax_forward_mode() -> Made:
    return _oscillator(diffrax.Tsit5(), diffrax.ForwardMode(), ADAPTIVE)


@CATALOGUE.add()
def diffrax_implicit_steps() -> Made:
    return _oscillator(diffrax.Kvaerno3(), diffrax.RecursiveCheckpointAdjoint(), ADAPTIVE)


@CATALOGUE.add()
def diffrax_stochastic() -> Made:
    def loss(y0, p):
        motion = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(), key=jax.random.key(0))
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, y, p: -p[0] * y),
            diffrax.ControlTerm(lambda t, y, p: p[1] * jnp.cos(y), motion),
        )
        solution = diffrax.diffeqsolve(terms, diffrax.Heun(), 0.0, 1.0, 0.1, y0, p)
        return jnp.sum(solution.ys**2)

    return loss, (jnp.array(0.7), jnp.array([0.4, 0.3]))


@CATALOGUE.add()
def diffrax_controlled() -> Made:
    def loss(path, w):
        times = jnp.linspace(0.0, 1.0, path.shape[0])
        control = diffrax.CubicInterpolation(
            times, diffrax.backward_hermite_coefficients(times, path)
        )
        term = diffrax.ControlTerm(lambda t, y, w: jnp.tanh(w @ y)[:, None], control).to_ode()
        y0 = jnp.ones(3)
        return jnp.sum(diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y0, w).ys)

    return loss, (jnp.sin(jnp.arange(6.0))[:, None], jnp.cos(jnp.arange(9.0)).reshape(3, 3))


@CATALOGUE.add()
def diffrax_until_an_event() -> Made:
    def loss(y0, p):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, p: jnp.stack([y[1], -p])),
            diffrax.Tsit5(),
            0.0,
            5.0,
            0.1,
            y0,
            p,
            event=diffrax.Event(lambda t, y, args, **_: y[0]),
        )
        return jnp.sum(solution.ys**2)

    return loss, (jnp.array([1.0, 0.5]), jnp.array(9.8))


@CATALOGUE.add()
def diffrax_batch() -> Made:
    """A batch of adaptive solves, which end after different numbers of steps."""

    def loss(starts, p):
        term = diffrax.ODETerm(lambda t, y, p: -p * y**3)
        steps = diffrax.PIDController(rtol=1e-6, atol=1e-8)

        def end(y0):
            return diffrax.diffeqsolve(
                term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y0, p, stepsize_controller=steps
            ).ys

        return jnp.sum(jax.vmap(end)(starts) ** 2)

    return loss, (jnp.array([[0.3, -0.2], [3.0, 1.0], [0.1, 8.0]]), jnp.array([1.5, 0.4]))


@CATALOGUE.add()
def diffrax_batch_at_times() -> Made:
    """A batch of solves with all defaults."""

    def loss(starts, p):
        def path(y0):
            field = diffrax.ODETerm(lambda t, y, p: jnp.stack([y[1], -p * jnp.sin(y[0])]))
            times = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 4))
            return diffrax.diffeqsolve(
                field, diffrax.Dopri5(), 0.0, 1.0, 0.1, y0, p, saveat=times
            ).ys

        return jnp.mean(jax.vmap(path)(starts) ** 2)

    return loss, (jnp.sin(jnp.arange(6.0)).reshape(3, 2), jnp.array(1.5))


@CATALOGUE.add()
def quadax_adaptive() -> Made:
    def loss(p, b):
        return quadax.quadgk(lambda x: jnp.exp(-p[0] * x) * jnp.sin(p[1] * x), [0.0, b])[0]

    return loss, (jnp.array([0.4, 2.0]), jnp.array(1.5))


@CATALOGUE.add()
def quadax_tanh_sinh() -> Made:
    def loss(p):
        return quadax.quadts(lambda x: jnp.log(x + p) / jnp.sqrt(x), [0.0, 1.0])[0]

    return loss, (jnp.array(0.4),)
