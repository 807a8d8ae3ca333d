"""A part of a function has other settings of JAX than the rest: its rules have those, too."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import config
from jax.scipy import linalg, special, stats

import pullback as pb
from pullback import artifact

pytestmark = pytest.mark.whole

X = np.array([0.3, 0.7, 0.2], np.float32)
MATRIX = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, 0.4], [0.3, 0.2, 1.8]])


@jax.custom_vjp
def backward(x):
    return jnp.sin(x)


backward.defvjp(lambda x: (backward(x), x), lambda x, ct: (ct * jnp.cos(x) * jnp.ones(3),))


@jax.custom_jvp
def forward(x):
    return jnp.sin(x)


forward.defjvp(lambda p, t: (forward(*p), t[0] * jnp.cos(p[0]) * jnp.ones(3)))


@jax.custom_gradient
def gradient(x):
    return jnp.sum(jnp.sin(x)), lambda ct: ct * jnp.cos(x) * jnp.ones(3)


def linear(x):
    def scaled(factor, x):
        return factor * x * jnp.arange(3)

    return jax.custom_derivatives.linear_call(scaled, scaled, lax.stop_gradient(jnp.sin(x)), x)


def pushing(x):
    """Its rule pushes a tangent through a function with a backward rule."""
    f = jax.custom_jvp(lambda x: jnp.sum(x))
    f.defjvp(lambda p, t: jax.jvp(lambda x: jnp.sum(backward(x)), p, t))
    return f(x)


def root(x):
    return lax.custom_root(
        lambda y: y**3 - x,
        jnp.ones_like(x),
        lambda f, y: lax.fori_loop(0, 40, lambda _, y: y - (y**3 - x) / (3.0 * y * y), y),
        lambda g, y: y / g(jnp.ones_like(y)),
    )


def matrix(x):
    m = jnp.outer(x, x) + jnp.asarray(MATRIX, x.dtype)
    return m @ m.T + 3.0 * jnp.eye(3, dtype=x.dtype)


def mutable(x):
    ref = jax.new_ref(jnp.zeros(3))
    ref[...] = backward(x)
    return ref[...] * jax.nn.softplus(x)


def of_a_program(x):
    return pb.trace(lambda x: jnp.sum(jax.nn.softplus(backward(x))))(x)(x)


def of_a_gradient(x):
    return jax.grad(lambda x: jnp.sum(jax.nn.softplus(backward(x))))(x)


OF_JAX = {
    **{
        name: getattr(jax.nn, name)
        for name in ("softplus", "sigmoid", "relu", "silu", "gelu", "log_sigmoid", "mish", "elu")
    },
    **{
        name: getattr(special, name)
        for name in ("gammaln", "digamma", "erf", "erfinv", "i0e", "i1", "log_ndtr", "entr", "expi")
    },
    **{name: getattr(jnp, name) for name in ("arctanh", "sinc", "cumsum", "cumprod", "prod")},
    **{name: getattr(jnp, name) for name in ("sort", "median", "std", "unwrap", "cbrt", "max")},
    "logsumexp": special.logsumexp,
    "xlogy": lambda x: special.xlogy(x, 2.0 * x),
    "betaln": lambda x: special.betaln(x, 2.0 * x),
    "polygamma": lambda x: special.polygamma(1, x),
    "gammainc": lambda x: special.gammainc(2.0, x),
    "igamma": lambda x: lax.igamma(x + 1, x),
    "betainc": lambda x: special.betainc(2.0, 3.0, x),
    "erf_inv": lax.erf_inv,
    "logpdf": lambda x: stats.gamma.logpdf(x, 2.0, scale=1.5),
    "cumlogsumexp": lax.cumlogsumexp,
    "top_k": lambda x: lax.top_k(x, 2)[0] ** 2,
    "powers": lambda x: x**3 + x**-2,
    "fft": lambda x: jnp.abs(jnp.fft.fft(x)),
    "normal": lambda x: jax.random.gamma(jax.random.key(0), x + 1.0),
    "solve": lambda x: jnp.linalg.solve(matrix(x), x),
    "inv": lambda x: jnp.linalg.inv(matrix(x)),
    "cholesky": lambda x: jnp.linalg.cholesky(matrix(x)),
    "slogdet": lambda x: jnp.linalg.slogdet(matrix(x))[1],
    "eigh": lambda x: jnp.linalg.eigh(matrix(x))[0],
    "qr": lambda x: jnp.abs(jnp.linalg.qr(matrix(x))[1]),
    "svd": lambda x: jnp.linalg.svd(matrix(x), compute_uv=False),
    "expm": lambda x: linalg.expm(0.1 * matrix(x)),
    "solve_triangular": lambda x: linalg.solve_triangular(matrix(x), x, lower=True),
    "cho_solve": lambda x: linalg.cho_solve(linalg.cho_factor(matrix(x)), x),
    "pinv": lambda x: jnp.linalg.pinv(matrix(x)),
    "cg": lambda x: jax.scipy.sparse.linalg.cg(matrix(x), x)[0],
    "custom_root": root,
    "in a loop": lambda x: lax.scan(lambda c, y: (jax.nn.softplus(c * y), c * y), x[0], x)[1],
    "in a branch": lambda x: lax.cond(x[0] > 0, jax.nn.softplus, jnp.sin, x),
    "in a checkpoint": jax.checkpoint(lambda x: jax.nn.softplus(jnp.sin(x))),
    "in a batch": jax.vmap(lambda x: jax.nn.softplus(jnp.sin(x))),
}

OF_USERS = {
    "backward": backward,
    "forward": forward,
    "gradient": gradient,
    "linear": linear,
    "pushing": pushing,
    "mutable": mutable,
    "of a program": of_a_program,
    "of a gradient": of_a_gradient,
}


def part(function, bits):
    """Return the sum of a function that has so many bits, in one that has those of its caller."""

    def whole(x):
        with jax.enable_x64(bits == 64):
            total = jnp.sum(jnp.real(function(x.astype(f"float{bits}"))))
        return total.astype(x.dtype)

    return whole


def gradient_by_jax(function, bits):
    with jax.enable_x64(bits == 64):
        x = jnp.asarray(X, f"float{bits}")
        return np.asarray(jax.grad(lambda x: jnp.sum(jnp.real(function(x))))(x))


@pytest.mark.parametrize("name", OF_JAX)
def test_functions_of_jax_in_a_part_with_64_bits(name: str) -> None:
    function, expected = part(OF_JAX[name], 64), gradient_by_jax(OF_JAX[name], 64)
    found = pb.grad(function)(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    moved = pb.jvp(function, (X,), (np.ones_like(X),))[1]
    np.testing.assert_allclose(moved, np.sum(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OF_USERS)
def test_rules_of_users_in_a_part_with_64_bits(name: str) -> None:
    function = part(OF_USERS[name], 64)
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(function))(X)
        curvature = jax.jit(jax.jacfwd(jax.grad(function)))(X) if name == "forward" else None
    program, both = pb.trace(function)(X), np.stack([X, X])
    for found in (pb.grad(function)(X), jax.jit(pb.grad(function))(X), program.grad()(X)):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    batch = program.vmap(axis_size=2).vjp()(both, np.ones(2, np.float32))[1][0]
    np.testing.assert_allclose(batch, [expected] * 2, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(pb.grad(function))(both), [expected] * 2, rtol=1e-5)
    loaded = pb.load(artifact.serialize(program))
    np.testing.assert_allclose(loaded.grad()(X), expected, rtol=1e-5)
    if curvature is not None:
        np.testing.assert_allclose(pb.hessian(function)(X), curvature, rtol=1e-4)


@pytest.mark.parametrize("name", ["softplus", "gammaln", "cumprod", "cholesky", "in a loop"])
def test_a_part_without_64_bits(name: str) -> None:
    function = part(OF_JAX[name], 32)
    with jax.enable_x64(True):
        x = jnp.asarray(X, jnp.float64)
        found = pb.grad(function)(x)
        assert found.dtype == np.float64
    np.testing.assert_allclose(found, gradient_by_jax(OF_JAX[name], 32), rtol=1e-4)


def test_64_bits_that_only_the_function_has() -> None:
    """Its operands and results have 32; that there are more is seen inside of it."""

    @jax.custom_vjp
    def loss(x):
        return jnp.sum(jnp.sin(x.astype(jnp.float64))).astype(jnp.float32)

    def bwd(x, ct):
        wide = ct * jnp.cos(x.astype(jnp.float64)) * jnp.arange(3)
        seen.append(wide.dtype)
        return (wide.astype(jnp.float32),)

    loss.defvjp(lambda x: (loss(x), x), bwd)
    seen: list[np.dtype] = []

    def function(x):
        with jax.enable_x64(True):
            return loss(x)

    np.testing.assert_allclose(pb.grad(function)(X), np.cos(X) * np.arange(3), rtol=1e-5)
    assert set(seen) == {np.dtype("float64")}


def test_the_rest_of_the_function_keeps_its_settings() -> None:
    seen = []

    @jax.custom_jvp
    def loss(x):
        return jnp.sum(x)

    @loss.defjvp
    def _(primals, tangents):
        seen.append((primals[0].dtype.name, jnp.zeros(1).dtype.name))
        return loss(*primals), jnp.sum(tangents[0])

    def function(x):
        return loss(x) + part(loss, 64)(x)

    np.testing.assert_allclose(pb.grad(function)(X), [2.0, 2.0, 2.0])
    assert {("float32", "float32"), ("float64", "float64")} == set(seen)


def test_types_of_64_bits_that_jax_was_told_to_allow_say_nothing() -> None:
    seen = []

    @jax.custom_jvp
    def loss(x):
        return jnp.sum(x)

    @loss.defjvp
    def _(primals, tangents):
        seen.append(jnp.zeros(1).dtype.name)
        return loss(*primals), jnp.sum(tangents[0])

    with config.explicit_x64_dtypes("allow"):
        np.testing.assert_allclose(
            pb.grad(lambda x: loss(x.astype("float64")).astype("float32"))(X), np.ones_like(X)
        )
    assert set(seen) == {"float32"}


@pytest.mark.parametrize("of", ["jvp", "vjp"])
def test_what_jax_notes_of_a_call_holds_in_its_rules(of: str) -> None:
    """How random bits are made; JAX's own rules see it, too."""

    def noise(x):
        return jax.random.uniform(jax.random.key(0), x.shape)

    f = (jax.custom_jvp if of == "jvp" else jax.custom_vjp)(lambda x: jnp.sum(x))
    if of == "jvp":
        f.defjvp(lambda p, t: (f(*p), jnp.vdot(noise(p[0]), t[0])))
    else:
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * noise(x),))

    def function(x):
        with jax.threefry_partitionable(False):
            return f(x)

    with jax.threefry_partitionable(False):
        expected = noise(X)
    assert not np.allclose(expected, noise(X))
    np.testing.assert_allclose(jax.grad(jax.jit(function))(X), expected)
    np.testing.assert_allclose(pb.grad(function)(X), expected)


def test_what_jax_notes_nothing_of_is_as_under_jit() -> None:
    """The precision of products, for one: a rule says for itself what it needs."""
    f = jax.custom_jvp(lambda x: jnp.sum(x))
    f.defjvp(lambda p, t: (f(*p), jnp.sum(jnp.dot(jnp.ones((3, 3)), t[0]))))

    def function(x):
        with jax.default_matmul_precision("highest"):
            return f(x)

    assert "HIGHEST" in str(jax.make_jaxpr(jax.grad(function))(X))
    assert "HIGHEST" not in str(jax.make_jaxpr(jax.grad(jax.jit(function)))(X))
    assert "HIGHEST" not in str(pb.trace(function)(X).grad())
