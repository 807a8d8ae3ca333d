"""The forms in which JAX 0.12 takes rules: logs, accumulators, general batches, rules of remat.

The rules are false on purpose, so that what is not honoured shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import hijax
from jax.test_util import check_grads

import pullback as pb

pytestmark = [
    pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="of JAX 0.12"),
    pytest.mark.usefixtures("float64"),
]

X, Y = np.array([0.3, 0.4, 0.7]), np.array([0.5, 0.9, 0.1])


def product(x, y):
    return jnp.sin(x) * y


def forward(x, y):
    return product(x, y), (x, y)


def backward(residuals, ct):
    x, y = residuals
    return 3 * ct * jnp.cos(x) * y, ct * jnp.sin(x)


def accumulating(residuals, ct, of_x, of_y):
    if isinstance(ct, jax.custom_derivatives.SymbolicZero):
        return None
    for_x, for_y = backward(residuals, ct)
    of_x.accum(for_x / 3)
    of_x.accum(2 * for_x / 3)
    of_y.accum(for_y)
    return {"cotangent": ct}


def with_logs() -> Any:
    function = jax.custom_vjp(product)
    function.defvjp_with_logs(forward, lambda *args: (backward(*args), {"cotangent": args[1]}))
    return function


def with_accumulators(symbolic_zeros: bool) -> Any:
    function = jax.custom_vjp(product)

    def fwd(x, y):
        return forward(x.value, y.value) if symbolic_zeros else forward(x, y)

    function.defvjp_with_accums(fwd, accumulating, symbolic_zeros=symbolic_zeros)
    return function


def with_general_batches() -> Any:
    function = jax.custom_vjp(product)
    function.defvjp(forward, backward, generic_batching=True)
    return function


def gradient_with_logs() -> Any:
    def function(x, y):
        return product(x, y), lambda ct: (backward((x, y), ct), {"cotangent": ct})

    return jax.custom_gradient(function, with_logs=True)


def gradient_with_accumulators() -> Any:
    def function(x, y):
        return product(x, y), lambda ct, *accums: accumulating((x, y), ct, *accums)

    return jax.custom_gradient(function, with_accums=hijax.ValAccum)


FORMS: dict[str, Callable[[], Any]] = {
    "logs": with_logs,
    "accumulators": lambda: with_accumulators(False),
    "accumulators, symbolic zeros": lambda: with_accumulators(True),
    "general batches": with_general_batches,
    "a gradient with logs": gradient_with_logs,
    "a gradient with accumulators": gradient_with_accumulators,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_rule(form: str, tmp_path: Path) -> None:
    rule = FORMS[form]()

    def f(x, y):
        return jnp.sum(rule(x, y) ** 2)

    def slope(grad):
        return lambda x: jnp.sum(jnp.sin(grad(f)(x, Y)))

    expected = jax.grad(f, (0, 1))(X, Y)
    np.testing.assert_allclose(expected[0], 3 * jax.grad(lambda x: jnp.sum(product(x, Y) ** 2))(X))
    np.testing.assert_allclose(pb.grad(f, (0, 1))(X, Y), expected, rtol=1e-12)
    # The derivative of the rule, which JAX gives in reverse mode only.
    second = jax.grad(slope(jax.grad))(X)
    np.testing.assert_allclose(pb.grad(slope(pb.grad))(X), second, rtol=1e-12)
    _, tangent = pb.jvp(slope(pb.grad), (X,), (Y,))
    np.testing.assert_allclose(tangent, second @ Y, rtol=1e-12)
    _, tangent = pb.jvp(f, (X, Y), (Y, X))
    np.testing.assert_allclose(tangent, expected[0] @ Y + expected[1] @ X, rtol=1e-12)

    def of_batch(grad):
        return grad(lambda x, y: jnp.sum(jax.vmap(f, (None, 0))(x, y)), (0, 1))

    ys = np.stack([Y, X])
    for ours, theirs in zip(of_batch(pb.grad)(X, ys), of_batch(jax.grad)(X, ys), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    pb.trace(f)(X, Y).save(tmp_path / "f.mlirbc")
    gradient = pb.load(tmp_path / "f.mlirbc").grad((0, 1))
    np.testing.assert_allclose(gradient(X, Y), expected, rtol=1e-12)
    _, (again,) = gradient.vjp((0,))(X, Y, (jnp.cos(expected[0]), jnp.zeros(3)))
    np.testing.assert_allclose(again, second, rtol=1e-12)


def test_a_rule_that_wants_to_add_to_a_mutable_array() -> None:
    """Which there is none of in a program; JAX's words say what it got."""

    def function(x, y):
        return product(x, y), lambda ct, *accums: accumulating((x, y), ct, *accums)

    rule = jax.custom_gradient(function, with_accums=hijax.RefAccum)
    with pytest.raises(TypeError, match=r"declared a RefAccum for its argument.*got a ValAccum"):
        pb.vjp(rule, X, Y)[1].with_refs(jax.new_ref(X), jax.new_ref(Y))(X)


def test_a_result_that_a_batch_shares() -> None:
    """Its cotangent is given to one item, where the rule says so; else JAX raises."""
    rule = jax.custom_vjp(lambda x, y: (jnp.sin(x) * y, jnp.cos(x)))
    rule.defvjp(
        lambda x, y: (rule(x, y), (x, y)),
        lambda residuals, cts: (backward(residuals, cts[0])[0] + cts[1] * residuals[1], cts[0]),
        generic_batching=True,
    )

    def f(x, ys):
        of_each, shared = jax.vmap(lambda y: rule(x, y), out_axes=(0, None))(ys)
        return jnp.sum(of_each) + jnp.sum(shared)

    ys = np.stack([Y, X])
    np.testing.assert_allclose(pb.grad(f)(X, ys), jax.grad(f)(X, ys), rtol=1e-12)
    np.testing.assert_allclose(pb.grad(f, 1)(X, ys), jax.grad(f, 1)(X, ys), rtol=1e-12)


@pytest.mark.parametrize("inline", getattr(jax, "Inline", ()))
def test_where_a_call_is_to_be_inlined(inline: Any, tmp_path: Path) -> None:
    step = jax.jit(lambda x, y: jax.nn.softplus(jnp.sin(x) * y), inline=inline)

    def f(x):
        return jnp.sum(step(step(x, Y), Y))

    np.testing.assert_allclose(pb.grad(f)(X), jax.grad(f)(X), rtol=1e-12)
    np.testing.assert_allclose(pb.hessian(f)(X), jax.hessian(f)(X), rtol=1e-12)
    pb.trace(f)(X).save(tmp_path / "f.mlirbc")
    loaded = pb.load(tmp_path / "f.mlirbc").grad().vmap(axis_size=2)
    xs = np.stack([X, Y])
    np.testing.assert_allclose(loaded(xs), jax.vmap(jax.grad(f))(xs), rtol=1e-12)


PRIMITIVES: dict[str, Callable[[Any], Any]] = {
    "log2": lambda x: jax.lax.log2(x),
    "one_minus_square": lambda x: jax.lax.one_minus_square(x),
    "polynomial": lambda x: jax.lax.polynomial(x, [x[0], 2.0, x[1], jnp.sum(x)]),
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_new_primitive(name: str) -> None:
    f = PRIMITIVES[name]
    np.testing.assert_allclose(pb.jacrev(f)(X), jax.jacrev(f)(X), rtol=1e-12)
    check_grads(pb.jit(f), (X,), 2, eps=1e-4)


# ---------------------------------------------------------------------------- rules of remat


@pytest.fixture
def remat_rules() -> Iterator[None]:
    """JAX's encoding of rules in which a function may have rules of its own in a checkpoint."""
    options = "jax_custom_vjp3", "jax_remat3"
    before = {option: getattr(jax.config, option) for option in options}
    for option in options:
        jax.config.update(option, True)
    jax.clear_caches()
    yield
    for option, value in before.items():
        jax.config.update(option, value)
    jax.clear_caches()


def with_both(factor: float) -> Any:
    """A function whose rules in a checkpoint give so many times as much, by its first argument."""
    function = jax.custom_vjp(product)
    function.defvjp(forward, backward)
    function.defremat(
        lambda x, y: (product(x, y), jnp.cos(x)),
        lambda cosine, x, y: (product(x, y), (cosine * y, jnp.sin(x))),
        lambda residuals, ct: (factor * ct * residuals[0], ct * residuals[1]),
    )
    return function


AROUND: dict[str, Callable[[Any], Any]] = {
    "at its top": lambda f: f,
    "in jit": jax.jit,
    "in a loop": lambda f: lambda x, y: jax.lax.scan(lambda c, y: (f(c, y), None), x, y[None])[0],
    "in a checkpoint": jax.checkpoint,
    "in a batch": lambda f: lambda x, y: jax.vmap(f, (0, None))(x[None], y)[0],
}


@pytest.mark.parametrize("around", AROUND)
def test_a_checkpoint_takes_the_rules_that_a_function_has_for_it(
    around: str, remat_rules: None
) -> None:
    false = AROUND[around](with_both(7.0))

    def f(x, y):
        return jnp.sum(jnp.cos(false(jnp.exp(x), y)))

    np.testing.assert_allclose(pb.grad(f)(X, Y), jax.grad(f)(X, Y), rtol=1e-12)
    in_checkpoint = jax.checkpoint(f)
    expected = jax.grad(in_checkpoint)(X, Y)
    if around != "in a checkpoint":
        np.testing.assert_allclose(expected, jax.grad(f)(X, Y) * 7 / 3, rtol=1e-12)
    np.testing.assert_allclose(pb.grad(in_checkpoint)(X, Y), expected, rtol=1e-12)


def test_derivatives_of_rules_in_a_checkpoint(remat_rules: None, tmp_path: Path) -> None:
    function = jax.custom_vjp(product)
    function.defremat(
        lambda x, y: (product(x, y), jnp.cos(x)),
        lambda cosine, x, y: (product(x, y), (cosine * y, jnp.sin(x))),
        lambda residuals, ct: (ct * residuals[0], ct * residuals[1]),
    )

    def f(x, y):
        return jnp.sum(jax.checkpoint(lambda x, y: jnp.cos(function(jnp.exp(x), y)))(x, y))

    def plain(x, y):
        return jnp.sum(jnp.cos(product(jnp.exp(x), y)))

    np.testing.assert_allclose(pb.hessian(f)(X, Y), jax.hessian(plain)(X, Y), rtol=1e-12)
    pb.trace(f)(X, Y).save(tmp_path / "f.mlirbc")
    gradient = pb.load(tmp_path / "f.mlirbc").grad((0, 1))
    np.testing.assert_allclose(gradient(X, Y), jax.grad(plain, (0, 1))(X, Y), rtol=1e-12)


def test_a_checkpoint_that_keeps_everything_is_none(remat_rules: None) -> None:
    """So there a function has the rules that it has elsewhere: those of the checkpoint around."""
    policy = jax.checkpoint_policies.everything_saveable
    f = jax.checkpoint(lambda x, y: jnp.sum(jnp.cos(with_both(7.0)(x, y))), policy=policy)
    around = jax.checkpoint(lambda x, y: f(x, y) ** 2)
    np.testing.assert_allclose(pb.grad(f)(X, Y), jax.grad(f)(X, Y), rtol=1e-12)
    np.testing.assert_allclose(pb.grad(around)(X, Y), jax.grad(around)(X, Y), rtol=1e-12)


# ---------------------------------------------------------------------------- derived rules


def test_reverse_mode_that_is_derived_from_jvp_leaves_the_call() -> None:
    """The value that is differentiated again is the call's, with its rules; not what `jvp` made."""

    class Sine(hijax.HiPrim):
        def __init__(self, aval: Any) -> None:
            self.in_avals, self.out_aval, self.params = (aval,), aval, {}
            super().__init__()

        def expand(self, x: Any) -> Any:
            return jnp.sin(x)

        def jvp(self, primals: Any, tangents: Any) -> Any:
            return jnp.sin(*primals), 2.0 * jnp.cos(primals[0]) * tangents[0]

        vjp_fwd, vjp_bwd_retval = hijax.vjp_from_jvp

    def f(x):
        call = Sine(jax.typeof(x))
        return call(call(x))

    x = X[0]
    np.testing.assert_allclose(pb.grad(f)(x), jax.grad(f)(x), rtol=1e-12)
    second = jax.grad(jax.grad(f))(x)
    np.testing.assert_allclose(pb.grad(pb.grad(f))(x), second, rtol=1e-12)
    np.testing.assert_allclose(pb.jvp(pb.grad(f), (x,), (1.0,))[1], second, rtol=1e-12)


def test_a_product_of_blocks_with_scales() -> None:
    """JAX lowers it for a device that it asks for, as it does the attention of cuDNN."""
    config = jax.nn.get_scaled_dot_general_config("mxfp8")
    random = np.random.default_rng(0)
    a, b = (random.normal(size=(1, rows, 64)).astype(np.float32) for rows in (32, 64))

    def loss(a, b):
        dims = ((2,), (2,)), ((0,), (0,))
        product = jax.nn.scaled_dot_general(
            a, b, dims, preferred_element_type=jnp.float32, configs=[config] * 3
        )
        return jnp.sum(product**2)

    for ours, theirs in zip(pb.grad(loss, (0, 1))(a, b), jax.grad(loss, (0, 1))(a, b), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
