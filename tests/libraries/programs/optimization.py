"""Losses and optimizers: optax, qpax, rlax; and optimal transport, by ott."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import qpax
import rlax
from ott.geometry import costs, geometry, pointcloud
from ott.initializers.linear import initializers_lr
from ott.problems.linear import linear_problem
from ott.solvers import linear
from ott.solvers.linear import sinkhorn, sinkhorn_lr
from ott.tools import sinkhorn_divergence, soft_sort

from tests.libraries.catalogue import Catalogue, Made

CATALOGUE = Catalogue()


def _points(n: int, start: float) -> jax.Array:
    return jnp.sin(start + jnp.arange(2.0 * n)).reshape(n, 2)


@CATALOGUE.add()
def optax_losses() -> Made:
    labels = jnp.array([0, 2, 1])

    def loss(logits, x):
        return (
            jnp.sum(optax.softmax_cross_entropy_with_integer_labels(logits, labels))
            + jnp.sum(optax.sigmoid_focal_loss(x, jnp.array([0.0, 1.0, 1.0])))
            + jnp.sum(optax.huber_loss(x, jnp.zeros(3)))
            + jnp.sum(optax.losses.poly_loss_cross_entropy(logits, jax.nn.one_hot(labels, 4)))
            + jnp.sum(optax.cosine_distance(logits, logits[::-1] + 0.1))
            + optax.losses.make_fenchel_young_loss(jax.nn.logsumexp)(x, jnp.array([0.2, 0.3, 0.5]))
        )

    return loss, (jnp.sin(jnp.arange(12.0)).reshape(3, 4), jnp.array([0.3, -1.5, 0.7]))


@CATALOGUE.add()
def optax_ctc() -> Made:
    def loss(logits):
        zeros, labels = jnp.zeros((2, 6)), jnp.array([[1, 2, 1], [2, 2, 0]])
        padded = jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        return jnp.sum(optax.ctc_loss(logits, zeros, labels, padded))

    return loss, (jnp.sin(jnp.arange(36.0)).reshape(2, 6, 3),)


@CATALOGUE.add()
def optax_learned_by_unrolled_adam() -> Made:
    def loss(rate, target):
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))

        def step(carry, _):
            x, state = carry
            updates, state = optimizer.update(
                jax.grad(lambda x: jnp.sum((x - target) ** 4))(x), state, x
            )
            return (optax.apply_updates(x, updates), state), None

        x = jnp.ones(3)
        return jnp.sum(jax.lax.scan(step, (x, optimizer.init(x)), None, 5)[0][0] ** 2)

    return loss, (jnp.array(0.1), jnp.array([0.2, -0.3, 0.6]))


@CATALOGUE.add()
def optax_projections() -> Made:
    def loss(x):
        return jnp.sum(optax.projections.projection_simplex(x) ** 2) + jnp.sum(
            optax.projections.projection_l2_ball(3 * x, 1.0) ** 3
        )

    return loss, (jnp.array([0.3, -0.5, 0.8]),)


NAN_IN_JAX = "JAX's reverse mode has NaN; ours has the numbers of forward mode"


@CATALOGUE.add(
    tolerance=1e-5,
    known={
        f"{place}: {check}": NAN_IN_JAX
        for place in ("memory", "file")
        for check in ("gradient", "second")
    },
)
def optax_lbfgs_with_linesearch() -> Made:
    def loss(target):
        def height(x):
            return jnp.sum((x - target) ** 2) + jnp.sum(jnp.cosh(x))

        optimizer = optax.lbfgs(memory_size=3, linesearch=optax.scale_by_backtracking_linesearch(8))
        x = jnp.zeros(3)
        state = optimizer.init(x)
        for _ in range(2):
            value, gradient = jax.value_and_grad(height)(x)
            updates, state = optimizer.update(
                gradient, state, x, value=value, grad=gradient, value_fn=height
            )
            x = optax.apply_updates(x, updates)
        return jnp.sum(x**2)

    return loss, (jnp.array([0.3, -0.5, 0.8]),)


@CATALOGUE.add(tolerance=1e-5)
def qpax_quadratic_program() -> Made:
    box = jnp.concatenate([jnp.eye(3), -jnp.eye(3)])

    def loss(costs, target):
        total = jnp.ones((1, 3))
        args = (costs @ costs.T + jnp.eye(3), target, total, jnp.ones(1), box, jnp.ones(6))
        return jnp.sum(qpax.solve_qp_primal(*args) ** 2)

    return loss, (jnp.sin(jnp.arange(9.0)).reshape(3, 3), jnp.array([0.3, -2.0, 0.8]))


@CATALOGUE.add()
def rlax_returns() -> Made:
    def loss(values, rewards, logits):
        discounts = jnp.full(4, 0.9)
        errors = rlax.td_lambda(values[:-1], rewards, discounts, values[1:], 0.8)
        targets = rlax.vtrace(values[:-1], values[1:], rewards, discounts, jnp.full(4, 0.7))
        gradient = rlax.policy_gradient_loss(logits, jnp.array([0, 1, 2, 1]), errors, jnp.ones(4))
        return jnp.sum(errors**2) + jnp.sum(targets**2) + gradient

    logits = jnp.sin(jnp.arange(12.0)).reshape(4, 3)
    return loss, (jnp.cos(jnp.arange(5.0)), jnp.arange(4.0), logits)


FROM_ZERO = {"rules": "the rule has no derivative by the potentials that it starts from"}


def _sinkhorn(**options: object) -> Made:
    def loss(x, y):
        cloud = pointcloud.PointCloud(x, y, epsilon=0.5)
        solve = sinkhorn.Sinkhorn(threshold=1e-9, max_iterations=300, **options)
        return solve(linear_problem.LinearProblem(cloud)).reg_ot_cost

    return loss, (_points(4, 0.0), _points(5, 1.0))


@CATALOGUE.add(tolerance=1e-5, known=FROM_ZERO)
def ott_sinkhorn() -> Made:
    return _sinkhorn()


@CATALOGUE.add(tolerance=1e-5)
def ott_sinkhorn_by_defaults() -> Made:
    def loss(x, y):
        return linear.solve(pointcloud.PointCloud(x, y)).reg_ot_cost

    return loss, (_points(4, 0.0), _points(5, 1.0))


@CATALOGUE.add(tolerance=1e-5)
def ott_sinkhorn_batch() -> Made:
    """A batch of solves, which end after different numbers of iterations; all defaults."""

    def loss(clouds, y):
        def cost(x):
            return linear.solve(pointcloud.PointCloud(x, y)).reg_ot_cost

        return jnp.sum(jax.vmap(cost)(clouds))

    return loss, (jnp.stack([_points(4, 0.0), 3 * _points(4, 2.0)]), _points(5, 1.0))


@CATALOGUE.add(tolerance=1e-5)
def ott_sinkhorn_unrolled() -> Made:
    return _sinkhorn(implicit_diff=None, min_iterations=20)


@CATALOGUE.add(tolerance=1e-5, known=FROM_ZERO)
def ott_coupling() -> Made:
    def loss(x, y):
        cloud = pointcloud.PointCloud(x, y, epsilon=0.5, cost_fn=costs.PNormP(1.5))
        solved = sinkhorn.Sinkhorn(threshold=1e-9)(linear_problem.LinearProblem(cloud))
        return jnp.sum(solved.matrix**2)

    return loss, (_points(4, 0.0), _points(5, 1.0))


@CATALOGUE.add(tolerance=1e-5, order=2)
def ott_divergence() -> Made:
    def loss(x, y):
        return sinkhorn_divergence.sinkhorn_divergence(
            pointcloud.PointCloud, x, y, epsilon=0.5, solve_kwargs={"threshold": 1e-9}
        )[0]

    return loss, (_points(4, 0.0), _points(5, 1.0))


@CATALOGUE.add(tolerance=1e-5)
def ott_soft_sort() -> Made:
    def loss(x):
        return jnp.sum(soft_sort.sort(x, epsilon=0.1) * jnp.arange(5.0))

    return loss, (jnp.sin(jnp.arange(5.0)),)


ENVELOPE = "it stops the gradient of its coupling, which differences of gradients do not know"
FEWER = "JAX perturbs fewer operands of a rule that sees zeros than a derivative of the program"


@CATALOGUE.add(
    tolerance=1e-5,
    known={
        "memory: second, by differences": ENVELOPE,
        "file: second, by differences": ENVELOPE,
        "as_jax: tangent": FEWER,
        "as_jax: gradient": FEWER,
    },
)
def ott_low_rank() -> Made:
    def loss(x, y):
        matrix = jnp.sum((x[:, None] - y) ** 2, -1)
        solve = sinkhorn_lr.LRSinkhorn(rank=2, initializer=initializers_lr.RandomInitializer(2))
        return solve(linear_problem.LinearProblem(geometry.Geometry(matrix))).reg_ot_cost

    return loss, (_points(4, 0.0), _points(5, 1.0))
