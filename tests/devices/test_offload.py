"""Values in the memory of the host: the placements that JAX writes, and the same numbers."""

from __future__ import annotations

import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import pullback as pb
import pullback_runtime as runtime
from pullback._jax import remat

POLICIES = jax.checkpoint_policies
HOST, DEVICE = jax.memory.Space.Host, jax.memory.Space.Device
X = jnp.sin(jnp.arange(9.0)).reshape(3, 3) + 0.1
TYPE = jax.ShapeDtypeStruct(X.shape, X.dtype)
DOTS = POLICIES.offload_dot_with_no_batch_dims("device", "pinned_host")


def offloading(name: str, destination: str = "pinned_host") -> object:
    return POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=["kept"],
        names_which_can_be_offloaded=[name],
        offload_src="device",
        offload_dst=destination,
    )


def named(x):
    return jnp.sum(checkpoint_name(jnp.sin(x @ x), "y") ** 2)


def step(c, x):
    return jnp.cos(checkpoint_name(jnp.sin(c), "y")) * x, None


def scanned(step):
    return lambda x: jnp.sum(lax.scan(lambda c, _: step(c, x), x, None, length=5)[0])


def two_products(x):
    return jnp.sum(jnp.sin(jnp.cos(x @ x) @ x))


def scanned_with_an_invariant(x):
    def step(c, _):
        return jnp.sin(c) * checkpoint_name(x, "y"), None

    return jnp.sum(lax.scan(step, x, None, length=3)[0])


def in_branches(x):
    return lax.cond(x[0, 0] > 0, named, lambda x: jnp.sum(x * checkpoint_name(jnp.cos(x), "y")), x)


@jax.custom_jvp
def with_a_product_in_its_rule(x):
    return jnp.sum(x)


with_a_product_in_its_rule.defjvp(lambda p, t: (jnp.sum(p[0]), jnp.sum((p[0] @ p[0]) * t[0])))


def of_mine(primitive, *types, **params):
    return offloading("y")(primitive, *types, **params)


CASES = {
    "names": (named, offloading("y")),
    "a policy of the user's, in jit": (jax.jit(named), of_mine),
    "products": (two_products, DOTS),
    "branches": (in_branches, offloading("y")),
    "a loop": (scanned(step), offloading("y")),
    "what a loop does not change": (scanned_with_an_invariant, offloading("y")),
    "a rule": (with_a_product_in_its_rule, DOTS),
    "nothing": (named, offloading("of nothing")),
}
FUNCTIONS = {name: jax.checkpoint(f, policy=policy) for name, (f, policy) in CASES.items()}
FUNCTIONS["each step of a loop"] = scanned(jax.checkpoint(step, policy=offloading("y")))


def gradient(f, m):
    return m.grad(f)


def forward_over_reverse(f, m):
    return lambda x: m.jvp(m.grad(f), (x,), (x,))


def batched(f, m):
    return lambda x: m.vmap(m.grad(f))(jnp.stack([x, 2 * x]))


def placements(text: str) -> Counter[str]:
    return Counter(re.findall(r'_xla_buffer_placement = "(\w+)"', text))


def written_by_jax(f, platform: str) -> Counter[str]:
    return placements(jax.export.export(jax.jit(f), platforms=[platform])(TYPE).mlir_module())


def written(f, platform: str) -> Counter[str]:
    return placements(str(pb.trace(f, platforms=[platform])(TYPE)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_placements_are_those_of_jax(name: str) -> None:
    f = FUNCTIONS[name]
    for platform in ("cuda", "tpu"):
        expected = written_by_jax(gradient(f, jax), platform)
        assert written(gradient(f, pb), platform) == expected
        assert bool(expected) == (name != "nothing")
    assert written(gradient(f, pb), "cpu") == written(f, "cuda") == Counter()


@pytest.mark.parametrize("derive", [forward_over_reverse, batched])
@pytest.mark.parametrize("name", ["names", "a loop"])
def test_the_placements_of_a_derivative_of_a_derivative_and_of_a_batch(name: str, derive) -> None:
    f = FUNCTIONS[name]
    assert written(derive(f, pb), "cuda") == written_by_jax(derive(f, jax), "cuda")


@pytest.mark.parametrize("name", ["branches", "a loop", "what a loop does not change", "a rule"])
def test_the_numbers_are_those_without_placements(name: str, monkeypatch) -> None:
    """A CPU takes a placement for the identity, so it can run them all."""
    monkeypatch.setattr(remat, "_WITH_HOST_MEMORY", frozenset({"cpu"}))
    plain, policy = CASES[name]
    f = jax.checkpoint(lambda x: plain(x), policy=policy)
    for derive in (
        lambda f, m: m.value_and_grad(f)(X),
        lambda f, m: m.grad(lambda x: jnp.sum(m.grad(f)(x) ** 2))(X),
        lambda f, m: batched(f, m)(X),
        lambda f, m: m.vjp(f, X)[1](jnp.float32(2.0)),
    ):
        found, expected = jax.tree.leaves(derive(f, pb)), jax.tree.leaves(derive(plain, jax))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert written(gradient(f, pb), "cpu").total() > 0


def test_a_file_offloads(tmp_path) -> None:
    f = FUNCTIONS["a loop"]
    pb.trace(f, platforms=["cpu", "cuda"])(TYPE).save(tmp_path / "f.mlirbc")
    loaded = pb.load(tmp_path / "f.mlirbc")
    expected = written_by_jax(gradient(f, jax), "cuda")
    assert placements(str(loaded.for_platform("cuda").grad())) == expected
    assert placements(str(loaded.for_platform("cpu").grad())) == Counter()


def test_halves_hand_on_what_is_on_the_host(monkeypatch) -> None:
    monkeypatch.setattr(remat, "_WITH_HOST_MEMORY", frozenset({"cpu"}))
    f = jax.checkpoint(scanned(lambda c, x: step(c, x)), policy=offloading("y"))
    _, pull = pb.vjp(f, X)
    spaces = {each.shape: each.aval.memory_space for each in jax.tree.leaves(pull)}
    assert spaces == {(3, 3): DEVICE, (5, 3, 3): HOST}
    program, expected = pb.trace(f)(X), jax.grad(scanned(step))(X)
    np.testing.assert_allclose(jax.grad(lambda x: program(x))(X), expected, rtol=1e-5)
    forward = runtime.compile(str(program.split_vjp().forward))
    assert forward(X)[-1].aval.memory_space == HOST


def test_the_table_of_residuals_says_what_is_on_the_host() -> None:
    table = pb.trace(FUNCTIONS["a loop"], platforms=["cuda"])(TYPE).split_vjp().residuals()
    (there,) = (each for each in table.stored if each.on_host)
    assert (there.type, there.op) == ("float32[5,3,3]", "sine")
    assert "on the host" in str(table)


def test_a_program_as_a_function_of_jax_offloads(monkeypatch) -> None:
    """It is that of the program for this machine."""
    monkeypatch.setattr(remat, "_WITH_HOST_MEMORY", frozenset({"cpu"}))
    f = jax.checkpoint(lambda x: named(x), policy=offloading("y"))
    as_jax = pb.trace(f)(TYPE).as_jax()
    expected = written_by_jax(gradient(f, jax), "cuda")
    assert written_by_jax(gradient(as_jax, jax), "cuda") == expected


@pytest.mark.parametrize("f", [named, with_a_product_in_its_rule])
def test_a_memory_that_jax_has_no_space_for(f) -> None:
    def policy(primitive, *_, **__):
        is_chosen = primitive.name in ("name", "dot_general")
        return offloading("y", "unpinned_host")(name_p, name="y") if is_chosen else False

    name_p = jax.make_jaxpr(named)(X).eqns[2].primitive
    with pytest.raises(pb.PullbackError) as raised:
        pb.grad(jax.checkpoint(f, policy=policy))(X)
    message = str(raised.value)
    assert "offloads from 'device' to 'unpinned_host'; JAX moves values between" in message
    assert "test_offload.py" in message
    assert "do:    let the policy offload from 'device' to 'pinned_host'" in message


def test_moves_of_the_users() -> None:
    """JAX refuses the reverse mode of a move to the host and back."""

    def there_and_back(x):
        return jnp.sum(jax.device_put(jax.device_put(jnp.sin(x), HOST), DEVICE) ** 2)

    def plain(x):
        return jnp.sum(jnp.sin(x) ** 2)

    for m in (jax, pb):
        assert m.jvp(there_and_back, (X,), (X,))[1] == pytest.approx(m.jvp(plain, (X,), (X,))[1])
    np.testing.assert_allclose(pb.grad(there_and_back)(X), jax.grad(plain)(X), rtol=1e-6)
    for f in (there_and_back, lambda x: jax.jvp(there_and_back, (x,), (x,))):
        assert written(f, "cuda") == written_by_jax(f, "cuda")
    both = Counter(pinned_host=1, device=1)
    assert written(gradient(there_and_back, pb), "cuda") == both


@jax.custom_vjp
def with_a_residual_on_the_host(x):
    return jnp.sin(x)


with_a_residual_on_the_host.defvjp(
    lambda x: (jnp.sin(x), jax.device_put(jnp.cos(x), HOST)),
    lambda slope, ct: (ct * jax.device_put(slope, DEVICE),),
)


def test_moves_in_rules_of_the_users() -> None:
    def f(x):
        return jnp.sum(lax.fori_loop(0, 3, lambda _, x: with_a_residual_on_the_host(x), x))

    found = pb.trace(f, platforms=["cuda"])(TYPE).grad()
    assert placements(str(found)) == written_by_jax(gradient(f, jax), "cuda")
    np.testing.assert_allclose(pb.grad(f)(X), jax.grad(f)(X), rtol=1e-6)


def test_results_on_the_host() -> None:
    def there(x):
        return jax.device_put(jnp.sin(x), HOST), x

    for f in (pb.jit(there), pb.trace(there)(X).compile(), pb.vmap(there)):
        assert [each.aval.memory_space for each in f(X)] == [HOST, DEVICE]
    (found,) = pb.vjp(there, X)[1]((X, X))
    np.testing.assert_allclose(found, (jnp.cos(X) + 1) * X, rtol=1e-6)
