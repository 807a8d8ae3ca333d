"""Layers of neural networks: equinox, flax, haiku, e3nn, jraph."""

from __future__ import annotations

from typing import Any

import e3nn_jax as e3nn
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import jraph
from flax import nnx

from tests.libraries.catalogue import Catalogue, Made

CATALOGUE = Catalogue()
KEY = jax.random.key(0)


def _inputs(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(1), shape)


def _of_equinox(model: Any, x: jax.Array, call: Any = lambda model, x: model(x)) -> Made:
    weights, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(weights, x):
        return jnp.sum(call(eqx.combine(weights, static), x) ** 2)

    return loss, (weights, x)


@CATALOGUE.add()
def equinox_mlp() -> Made:
    model = eqx.nn.MLP(3, 2, 8, 2, activation=jax.nn.gelu, key=KEY)
    return _of_equinox(model, _inputs(5, 3), lambda model, x: jax.vmap(model)(x))


class Scaled(eqx.Module):
    weight: jax.Array
    layer: eqx.nn.Linear
    activation: Any = eqx.field(static=True)
    dtype: Any = eqx.field(static=True, default=jnp.float64)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight * self.activation(self.layer(x).astype(self.dtype))


@CATALOGUE.add()
def equinox_static_fields() -> Made:
    model = Scaled(jnp.ones(2), eqx.nn.Linear(3, 2, key=KEY), jax.nn.softplus)
    return _of_equinox(model, _inputs(3))


@CATALOGUE.add()
def equinox_gru() -> Made:
    def run(cell, xs):
        return jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(4), xs)[0]

    return _of_equinox(eqx.nn.GRUCell(3, 4, key=KEY), _inputs(6, 3), run)


@CATALOGUE.add()
def equinox_attention() -> Made:
    model = eqx.nn.MultiheadAttention(2, 4, key=KEY)
    return _of_equinox(model, _inputs(5, 4), lambda model, x: model(x, x, x))


@CATALOGUE.add()
def equinox_convolutions() -> Made:
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(2, 3, 3, key=KEY),
            eqx.nn.Lambda(jax.nn.silu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.ConvTranspose2d(3, 2, 2, stride=2, key=KEY),
            eqx.nn.GroupNorm(1, 2),
        ]
    )
    return _of_equinox(model, _inputs(2, 8, 8))


@CATALOGUE.add()
def equinox_bounded_loop() -> Made:
    def loss(x, w):
        def body(c):
            i, y = c
            return i + 1, jnp.tanh(w @ y)

        kind = {"kind": "checkpointed", "max_steps": 16}
        end = eqx.internal.while_loop(lambda c: (c[0] < 9) & (c[1][0] < 5), body, (0, x), **kind)
        return jnp.sum(end[1])

    return loss, (_inputs(3), _inputs(3, 3))


def _double(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float64)


def _of_linen(model: nn.Module, x: jax.Array, **options: Any) -> Made:
    variables = jax.tree.map(_double, model.init(KEY, x, **options))

    def loss(variables, x):
        mutable = [name for name in variables if name != "params"]
        return jnp.sum(model.apply(variables, x, mutable=mutable, **options)[0] ** 2)

    return loss, (variables, x)


@CATALOGUE.add()
def flax_mlp_with_norms() -> Made:
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x)))
            x = nn.LayerNorm()(nn.Dropout(0.5, deterministic=True)(x))
            return nn.Dense(2)(x)

    return _of_linen(Model(), _inputs(5, 3), train=True)


@CATALOGUE.add()
def flax_attention() -> Made:
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = x + nn.remat(nn.MultiHeadDotProductAttention)(num_heads=2)(x, x)
            return nn.RMSNorm()(nn.Dense(4)(x))

    return _of_linen(Model(), _inputs(2, 5, 4))


@CATALOGUE.add()
def flax_lstm() -> Made:
    return _of_linen(nn.RNN(nn.OptimizedLSTMCell(4, param_dtype=jnp.float64)), _inputs(2, 6, 3))


@CATALOGUE.add()
def flax_scanned_layers_with_remat() -> Made:
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return x + nn.tanh(nn.Dense(4)(x)), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            scan = nn.scan(
                nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
            )
            return scan()(x, None)[0]

    return _of_linen(Model(), _inputs(2, 4))


@CATALOGUE.add()
def nnx_convolutions() -> Made:
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(2, 4, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(4, rngs=rngs)
            self.out = nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            x = nnx.avg_pool(nnx.swish(self.norm(self.conv(x))), (2, 2), (2, 2))
            return self.out(x.mean((1, 2)))

    graph, state = nnx.split(Model(nnx.Rngs(0)))
    state = jax.tree.map(_double, state)

    def loss(state, x):
        return jnp.sum(nnx.merge(graph, state)(x) ** 2)

    return loss, (state, _inputs(2, 8, 8, 2))


@CATALOGUE.add()
def haiku_lstm() -> Made:
    def run(x):
        core = hk.LSTM(4)
        outs, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return jnp.sum(hk.LayerNorm(-1, True, True)(hk.nets.MLP([5, 2])(outs)) ** 2)

    model = hk.without_apply_rng(hk.transform(run))
    x = _inputs(6, 2, 3)
    weights = model.init(jax.random.PRNGKey(0), x)
    return model.apply, (jax.tree.map(_double, weights), x)


@CATALOGUE.add()
def e3nn_tensor_product() -> Made:
    def loss(x, r):
        y = e3nn.spherical_harmonics("0e + 1o + 2e", e3nn.IrrepsArray("1o", r), normalize=True)
        product = e3nn.tensor_product(e3nn.IrrepsArray("2x0e + 1o", x), y)
        radial = e3nn.bessel(jnp.linalg.norm(r, axis=-1), 4, 3.0) @ jnp.arange(1.0, 5.0)
        even = product.filter(keep=["0e", "1o"]).array
        return jnp.sum(jax.nn.silu(even) ** 2 * radial[:, None])

    return loss, (_inputs(4, 5), _inputs(4, 3))


@CATALOGUE.add()
def jraph_message_passing() -> Made:
    senders, receivers = jnp.array([0, 1, 2, 3, 0]), jnp.array([1, 2, 3, 0, 2])

    def loss(nodes, w):
        def edge(edges, sent, received, _):
            return jnp.tanh(sent @ w + received)

        def node(nodes, sent, received, _):
            return nodes + jax.nn.softplus(received)

        network = jraph.GraphNetwork(edge, node)
        counts = {"n_node": jnp.array([4]), "n_edge": jnp.array([5])}
        graph = jraph.GraphsTuple(
            nodes, jnp.zeros((5, 3)), receivers, senders, jnp.zeros((1, 1)), **counts
        )
        pooled = jraph.segment_softmax(network(graph).nodes[:, 0], jnp.array([0, 0, 1, 1]), 2)
        return jnp.sum(pooled**2)

    return loss, (_inputs(4, 3), _inputs(3, 3))
