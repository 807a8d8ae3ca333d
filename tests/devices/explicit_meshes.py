"""On a mesh with explicit axes, results have the types that JAX gives them: how they lie on it.

    python -m tests.devices.explicit_meshes

prints the names of the cases in which values and types agree. It is a process of its own, because
the number of devices is fixed when JAX starts.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
)

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec as P

import pullback as pb

jax.config.update("jax_enable_x64", True)

EXPLICIT = (AxisType.Explicit,) * 2
MESH = jax.make_mesh((2, 2), ("rows", "columns"), axis_types=EXPLICIT)
CASES: dict[str, Any] = {}


def case(function):
    """A case: a function of the library, jax or pullback, that gives a tree of results."""
    CASES[function.__name__] = function
    return function


@jax.custom_vjp
def squashed(x):
    return jnp.tanh(x)


squashed.defvjp(lambda x: (squashed(x), x), lambda x, ct: (7 * ct * jnp.cos(x),))  # false


@jax.custom_jvp
def product(w, x):
    return jnp.einsum("bi,io->bo", x, w, out_sharding=P("columns", None))


@product.defjvp
def _(primals, tangents):
    (w, x), (dw, dx) = primals, tangents
    return product(w, x), 3 * product(dw, x) + product(w, dx)  # false


def loss(w, x):
    return jnp.sum(squashed(product(w, x)) ** 2)


def arrays():
    w, x, v = np.linspace(-1, 1, 32), np.linspace(0.5, 1, 32), np.linspace(0.1, 1, 8)
    return (
        jax.device_put(w.reshape(8, 4), P("rows", None)),
        jax.device_put(x.reshape(4, 8), P("columns", None)),
        jax.device_put(v, P("rows")),
    )


@case
def gradients(m):
    w, x, _ = arrays()
    return m.grad(loss)(w, x), m.grad(loss, argnums=(0, 1))(w, x), m.value_and_grad(loss)(w, x)


@case
def under_jit(m):
    w, x, _ = arrays()
    return jax.jit(lambda w, x: w - 0.1 * m.grad(loss)(w, x))(w, x)


@case
def types(m):
    w, x, _ = arrays()
    gradients = jax.make_jaxpr(m.value_and_grad(loss, argnums=(0, 1)))(w, x)
    tangents = jax.make_jaxpr(lambda w: m.jvp(lambda w: product(w, x), (w,), (w,)))(w)
    return gradients.out_avals, tangents.out_avals


@case
def in_a_loop(m):
    w, x, _ = arrays()

    def step(w, _):
        return w - 0.1 * m.grad(loss)(w, x), None

    return jax.jit(lambda w: jax.lax.scan(step, w, length=3)[0])(w)


@case
def of_gradients(m):
    w, x, _ = arrays()

    def norm(w):
        return jnp.sum(m.grad(loss)(w, x) ** 2)

    return m.grad(norm)(w), jax.grad(norm)(w), jax.jit(jax.value_and_grad(norm))(w)


@case
def forward_mode(m):
    w, _, v = arrays()
    return m.jvp(jnp.sin, (w,), (w,)), jax.jit(lambda v: m.jvp(jnp.sin, (v,), (v,)))(v)


@case
def pullbacks(m):
    w, x, _ = arrays()
    out, back = m.vjp(product, w, x)
    return out, back(out)


@case
def linear_maps(m):
    w, x, v = arrays()
    out, tangent = m.linearize(lambda w: product(w, x), w)
    return out, tangent(w), m.linear_transpose(lambda v: 2 * v, v)(v)


@case
def jacobians(m):
    v = arrays()[2]
    return m.jacrev(jnp.sin)(v), m.jacfwd(jnp.sin)(v), m.hessian(lambda v: jnp.sum(v**3))(v)


@case
def batches(m):
    w, _, v = arrays()
    row = m.grad(lambda row: jnp.sum(jnp.sin(row) ** 2))
    shared = m.grad(lambda v, s: jnp.sum(squashed(v) * s))
    return (
        jax.vmap(row)(w),
        m.vmap(row)(w),
        jax.jit(jax.vmap(row, in_axes=1, out_axes=1))(w),
        jax.vmap(shared, in_axes=(None, 0))(v, jnp.arange(3.0)),
        jax.vmap(lambda row: m.vjp(lambda r: r @ jnp.ones((4, 2)), row)[1](jnp.ones(2)))(w),
    )


@case
def functions(m):
    w, x, v = arrays()
    total = jax.checkpoint(lambda w: jnp.sum(squashed(product(w, x))))
    return m.jit(loss)(w, x), m.jit(jnp.sin)(v), m.grad(total)(w)


@case
def sums_left_to_do(m):
    """The cotangent of what is copied to all devices, whose type here is that of the sum."""
    v = arrays()[2]
    copied = jax.device_put(np.asarray(v), P(None, reduced={"rows"}))
    gradient = m.grad(lambda c, v: jnp.sum(jnp.sin(v) * jax.reshard(c, P("rows")) ** 2))(copied, v)
    return jax.reshard(gradient, P(None))


def described(tree: Any) -> list[tuple[str, Any]]:
    """The types of a tree of results, as JAX writes them, and their values."""
    leaves = jax.tree.leaves(tree)
    arrays = [leaf if isinstance(leaf, jax.Array) else np.zeros(()) for leaf in leaves]
    types = [jax.typeof(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    return [(str(type), np.asarray(array)) for type, array in zip(types, arrays, strict=True)]


def compare(name: str, ours: Any, expected: Any) -> None:
    for (ours_type, value), (type, array) in zip(described(ours), described(expected), strict=True):
        assert ours_type == type, (name, ours_type, type)
        np.testing.assert_allclose(value, array, rtol=1e-9, err_msg=name)


def elsewhere() -> None:
    """What was traced on the mesh also runs where it is not set, and from a file."""
    with jax.set_mesh(MESH):
        w, x, _ = arrays()
        program = pb.trace(loss)(w, x).grad()
        expected = program(w, x)
        compare("compiled", program.compile()(w, x), expected)
    plain = [np.asarray(each) for each in (w, x)]
    np.testing.assert_allclose(program(*plain), expected, rtol=1e-9)
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder, "gradient.pullback"))
        loaded = pb.load(Path(folder, "gradient.pullback"))
    np.testing.assert_allclose(loaded(*plain), expected, rtol=1e-9)


def main() -> None:
    for name, function in CASES.items():
        with jax.set_mesh(MESH):
            expected = function(jax)
            compare(name, function(pb), expected)
        print(name)
    elsewhere()
    print("elsewhere")


if __name__ == "__main__":
    sys.exit(main())
