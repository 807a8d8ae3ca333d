"""Policies of `jax.checkpoint` around loops: what they keep of a loop-invariant value."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import pullback as pb

POLICIES = jax.checkpoint_policies


def grown(x):
    """A loop without a bound on its iterations: 2 |x| + 2 or 4 |x| + 4 where |x| is small."""
    return lax.while_loop(lambda y: y < 5, lambda y: y * 2, jnp.abs(x) + 1)


def repeated(step, count=2):
    return lambda x: lax.scan(lambda c, _: (step(c, x), None), x, None, count)[0]


def in_a_scan_in_a_scan(c, x):
    return repeated(lambda d, _: d + grown(jnp.sin(c) + x), 3)(c)


def in_a_branch(c, x):
    return lax.cond(c > 0, lambda: c + grown(x), lambda: c * 2)


def stacked(x):
    return jnp.sum(lax.scan(lambda c, _: (c + grown(x), grown(x) * c), x, None, 2)[1])


def bounded(x):
    def step(carry):
        return carry[0] + 1, carry[1] * jnp.sin(x) + grown(x)

    return lax.while_loop(lambda carry: carry[0] < 3, step, (0, x))[1]


def named(c, x):
    return c + checkpoint_name(grown(checkpoint_name(jnp.sin(x), "wave")), "loop")


def sampled(c, x):
    return c + jax.random.gamma(jax.random.key(0), x)


INVARIANT = {
    "loop": repeated(lambda c, x: c + grown(x)),
    "smooth": repeated(lambda c, x: c * jnp.sin(jnp.cos(x) * 2) + jnp.exp(jnp.sin(x))),
    "sampler": repeated(sampled),
    "loop in a loop": repeated(in_a_scan_in_a_scan),
    "branch": repeated(in_a_branch),
    "names": repeated(named),
    "one iteration": repeated(lambda c, x: c + grown(x) * jnp.sin(x), 1),
    "no iteration": repeated(lambda c, x: c + grown(x), 0),
    "stacked": stacked,
    "bounded": bounded,
}
KEEPS = {
    "everything": POLICIES.everything_saveable,
    "all but one name": POLICIES.save_anything_except_these_names("wave"),
    "one name": POLICIES.save_only_these_names("loop"),
}


def test_everything_is_kept_around_an_unbounded_loop_that_no_iteration_changes():
    """The process ended: what was computed again had no value where it was used."""
    f = jax.checkpoint(INVARIANT["loop"], policy=POLICIES.everything_saveable)
    assert pb.grad(f)(2.0) == 5.0


@pytest.mark.parametrize("policy", KEEPS.values(), ids=KEEPS)
@pytest.mark.parametrize("f", INVARIANT.values(), ids=INVARIANT)
def test_a_loop_invariant_value_is_kept(f, policy):
    expected = pb.grad(f)(2.0)
    np.testing.assert_allclose(pb.grad(jax.checkpoint(f, policy=policy))(2.0), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["loop", "smooth", "loop in a loop"])
def test_a_kept_invariant_value_has_further_derivatives_and_batches(name):
    f = INVARIANT[name]
    kept = jax.checkpoint(f, policy=POLICIES.everything_saveable)
    xs = jnp.array([2.0, 1.0])
    np.testing.assert_allclose(
        jax.vmap(pb.grad(pb.grad(kept)))(xs), jax.vmap(pb.grad(pb.grad(f)))(xs), rtol=1e-4
    )


def test_a_kept_invariant_value_is_not_computed_again():
    def ops(policy):
        f = repeated(lambda c, x: c * jnp.sin(jnp.cos(x) * 2))
        return str(pb.trace(jax.checkpoint(f, policy=policy))(2.0).grad()).count("stablehlo.sine ")

    plain = str(pb.trace(repeated(lambda c, x: c * jnp.sin(jnp.cos(x) * 2)))(2.0).grad())
    assert ops(POLICIES.everything_saveable) == plain.count("stablehlo.sine ")
    assert ops(POLICIES.nothing_saveable) > plain.count("stablehlo.sine ")
