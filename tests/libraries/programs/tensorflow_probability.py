"""Densities, samples and filters: TensorFlow Probability, and what uses it: distrax, dynamax."""

from __future__ import annotations

import distrax
import dynamax.hidden_markov_model as hmm
import dynamax.linear_gaussian_ssm as lgssm
import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from tests.libraries.catalogue import Catalogue, Made

CATALOGUE = Catalogue()
tfd, tfb = tfp.distributions, tfp.bijectors


@CATALOGUE.add()
def tfp_densities() -> Made:
    def loss(a, b):
        return (
            tfd.StudentT(3 + a, b, 1 + a**2).log_prob(0.7)
            + tfd.VonMises(b, 1 + a**2).log_prob(0.3)
            + tfd.Beta(1 + a**2, 2 + b**2).log_prob(0.4)
            + tfd.NegativeBinomial(3.0, logits=b).log_prob(2.0)
            + tfd.Dirichlet(jnp.stack([1 + a**2, 1 + b**2, a**2 * b**2 + 1])).log_prob(
                jnp.array([0.2, 0.3, 0.5])
            )
        )

    return loss, (jnp.array(0.4), jnp.array(-0.6))


@CATALOGUE.add()
def tfp_samples() -> Made:
    def loss(a, b):
        keys = jax.random.split(jax.random.PRNGKey(0), 4)
        return (
            jnp.sum(tfd.Gamma(1 + a**2, 2.0).sample(3, seed=keys[0]))
            + jnp.sum(tfd.Beta(1 + a**2, 1 + b**2).sample(3, seed=keys[1]))
            + jnp.sum(tfd.StudentT(4 + a, b, 1.0).sample(3, seed=keys[2]))
            + jnp.sum(tfd.VonMises(b, 1 + a**2).sample(3, seed=keys[3]))
        )

    return loss, (jnp.array(0.4), jnp.array(-0.6))


@CATALOGUE.add()
def tfp_bijectors() -> Made:
    def loss(x, bins):
        chain = tfb.Chain([tfb.Softplus(), tfb.SinhArcsinh(bins[0], 1 + bins[1] ** 2)])
        return jnp.sum(chain.forward(x)) + jnp.sum(chain.inverse_log_det_jacobian(jnp.exp(x)))

    return loss, (jnp.array([0.1, -0.4]), jnp.array([0.2, 0.5, -0.3]))


@CATALOGUE.add()
def tfp_hidden_markov_model() -> Made:
    def loss(logits, means):
        model = tfd.HiddenMarkovModel(
            tfd.Categorical(logits=logits[0]),
            tfd.Categorical(logits=logits),
            tfd.Normal(means, 0.5),
            num_steps=5,
        )
        return model.log_prob(jnp.sin(jnp.arange(5.0)))

    return loss, (jnp.array([[0.3, -0.2], [0.1, 0.5]]), jnp.array([-0.5, 0.5]))


@CATALOGUE.add()
def distrax_flow() -> Made:
    def loss(params, x):
        def conditioner(y):
            return jnp.tanh(y @ params["w"]).reshape(-1, 2) @ params["v"]

        coupling = distrax.MaskedCoupling(
            jnp.array([True, False, True]),
            conditioner,
            lambda p: distrax.ScalarAffine(shift=p[..., 0], log_scale=p[..., 1]),
        )
        base = distrax.Independent(distrax.Normal(jnp.zeros(3), jnp.ones(3)), 1)
        return distrax.Transformed(base, coupling).log_prob(x)

    wide, narrow = jnp.sin(jnp.arange(18.0)).reshape(3, 6), jnp.eye(2)
    return loss, ({"w": wide, "v": narrow}, jnp.array([0.2, -0.5, 0.9]))


@CATALOGUE.add()
def dynamax_kalman_filter() -> Made:
    model = lgssm.LinearGaussianSSM(2, 1)
    params, _ = model.initialize(jax.random.PRNGKey(0))
    observed = jnp.sin(jnp.arange(6.0))[:, None]

    def loss(dynamics, emissions):
        moved = params._replace(
            dynamics=params.dynamics._replace(weights=dynamics),
            emissions=params.emissions._replace(weights=emissions),
        )
        return model.marginal_log_prob(moved, observed)

    return loss, (params.dynamics.weights, params.emissions.weights)


@CATALOGUE.add()
def dynamax_hidden_markov_model() -> Made:
    def loss(initial, transitions, likelihoods):
        return hmm.hmm_filter(
            jax.nn.softmax(initial), jax.nn.softmax(transitions, -1), likelihoods
        ).marginal_loglik

    likelihoods = jnp.sin(jnp.arange(15.0)).reshape(5, 3)
    return loss, (jnp.arange(3.0), jnp.cos(jnp.arange(9.0)).reshape(3, 3), likelihoods)
