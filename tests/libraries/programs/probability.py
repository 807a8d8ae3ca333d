"""Densities, Gaussian processes, samplers and flows: numpyro, tinygp, blackjax, flowjax."""

from __future__ import annotations

import blackjax
import equinox as eqx
import flowjax.bijections
import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import tinygp
from numpyro.infer.util import log_density

from tests.libraries.catalogue import Catalogue, Made

CATALOGUE = Catalogue()


@CATALOGUE.add()
def numpyro_hierarchical_model() -> Made:
    groups, observed = jnp.array([0, 0, 1, 1, 2]), jnp.array([1.2, 0.8, -0.5, 0.1, 2.0])

    def model():
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        with numpyro.plate("groups", 3):
            mean = numpyro.sample("mean", dist.Normal(0.0, scale))
        with numpyro.plate("data", 5):
            numpyro.sample("y", dist.StudentT(4.0, mean[groups], 0.5), obs=observed)

    def loss(values):
        return log_density(model, (), {}, values)[0]

    return loss, ({"scale": jnp.array(0.7), "mean": jnp.array([0.9, -0.2, 1.5])},)


@CATALOGUE.add()
def numpyro_evidence_lower_bound() -> Made:
    def model(data):
        z = numpyro.sample("z", dist.Gamma(2.0, 1.0))
        numpyro.sample("x", dist.Normal(z, 0.5), obs=data)

    def guide(data):
        a = numpyro.param("a", 1.5)
        numpyro.sample("z", dist.Gamma(a, numpyro.param("b", 1.2)))

    elbo = numpyro.infer.Trace_ELBO(num_particles=3)

    def loss(params, data):
        return elbo.loss(jax.random.PRNGKey(0), params, model, guide, data)

    return loss, ({"a": jnp.array(1.5), "b": jnp.array(1.2)}, jnp.array([0.9, 1.4]))


@CATALOGUE.add()
def numpyro_correlations() -> Made:
    def loss(x, y):
        factor = dist.transforms.CorrCholeskyTransform()(x)
        return dist.MultivariateNormal(jnp.zeros(3), scale_tril=factor).log_prob(y)

    return loss, (jnp.array([0.3, -0.2, 0.5]), jnp.array([0.1, 0.7, -0.4]))


@CATALOGUE.add()
def flowjax_autoregressive() -> Made:
    base = flowjax.distributions.Normal(jnp.zeros(2))
    flow = flowjax.flows.masked_autoregressive_flow(
        jax.random.key(0), base_dist=base, flow_layers=2
    )
    weights, static = eqx.partition(flow, eqx.is_inexact_array)

    def loss(weights, x):
        return eqx.combine(weights, static).log_prob(x)

    return loss, (weights, jnp.array([0.3, -0.8]))


@CATALOGUE.add()
def tinygp_marginal_likelihood() -> Made:
    x = jnp.linspace(0.0, 3.0, 7)

    def loss(p, y):
        kernel = p[0] ** 2 * tinygp.kernels.Matern32(jnp.exp(p[1])) + tinygp.kernels.ExpSquared(1.5)
        gp = tinygp.GaussianProcess(kernel, x, diag=jnp.exp(p[2]))
        return gp.log_probability(y) + jnp.sum(gp.condition(y, x[:2] + 0.1).gp.loc)

    return loss, (jnp.array([0.8, 0.2, -1.0]), jnp.sin(x))


@CATALOGUE.add(known={"file: save": "debug callbacks", "as_jax": "debug callbacks"})
def tinygp_quasiseparable() -> Made:
    x = jnp.linspace(0.0, 3.0, 7)

    def loss(p, y):
        kernel = tinygp.kernels.quasisep.SHO(jnp.exp(p[0]), jnp.exp(p[1]), sigma=1.3)
        return tinygp.GaussianProcess(kernel, x, diag=0.1).log_probability(y)

    return loss, (jnp.array([0.3, 0.2]), jnp.sin(x))


@CATALOGUE.add()
def blackjax_trajectory() -> Made:
    def loss(position, scale):
        def density(q):
            return -jnp.sum(q**4) / 4 - jnp.sum(scale * q**2)

        kernel = blackjax.hmc(density, 0.1, jnp.ones(2), 5)
        state = kernel.init(position)
        for key in jax.random.split(jax.random.key(0), 2):
            state, _ = kernel.step(key, state)
        return jnp.sum(state.position**2)

    return loss, (jnp.array([0.4, -0.6]), jnp.array(0.7))
