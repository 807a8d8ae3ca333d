"""Programs for several platforms: one file, a variant for each, rules and derivatives included."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback.ir import ops
from pullback_runtime.ir import _module
from tests.files import models

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def by_platform(x):
    y = jax.lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos, default=jnp.tanh)
    return jnp.sum(models.doubled_sine(y) * models.weights(x.size))


def program(size=6, platforms=PLATFORMS):
    return pb.trace(by_platform, platforms=platforms)(jnp.ones(size))


@pytest.fixture(scope="module")
def saved():
    return artifact.serialize(program())


def expected(function, x):
    return jnp.sum(models.doubled_sine(function(x)) * models.weights(x.size))


@pytest.fixture
def x():
    return jnp.linspace(-1.0, 1.0, 6)


@pytest.mark.parametrize(
    ("platform", "function"),
    [("cpu", jnp.sin), ("tpu", jnp.cos), ("cuda", jnp.tanh), ("rocm", jnp.tanh)],
)
def test_each_platform_has_its_own_program(saved, x, platform, function):
    """Each variant is StableHLO, and so runs here too, where nobody would run it."""
    variant = pb.load(saved).for_platform(platform)
    assert variant.platforms == (platform,)
    assert variant(x) == pytest.approx(float(expected(function, x)), rel=1e-6)
    gradient = jax.grad(expected, 1)(function, x)
    np.testing.assert_allclose(variant.grad()(x), gradient, rtol=1e-5)
    hessian = jax.hessian(expected, 1)(function, x)
    direction = jnp.arange(6.0)
    moved = variant.grad().jvp()(x, direction)[1]
    np.testing.assert_allclose(moved, hessian @ direction, rtol=1e-4, atol=1e-5)


def test_calls_choose_the_platform_they_run_on(saved, x):
    loaded = pb.load(saved)
    assert loaded.platforms == PLATFORMS
    for call in (loaded, jax.jit(loaded), pullback_runtime.load(saved), loaded.compile()):
        assert call(x) == pytest.approx(float(expected(jnp.sin, x)), rel=1e-6)
    runtime = pullback_runtime.load(artifact.serialize(program(platforms=("tpu", "cpu"))))
    assert runtime(x) == pytest.approx(float(expected(jnp.sin, x)), rel=1e-6)


DERIVATIVES = {
    "grad": lambda library, f, x: library.grad(f)(x),
    "value_and_grad": lambda library, f, x: library.value_and_grad(f)(x),
    "jvp": lambda library, f, x: library.jvp(f, (x,), (x,)),
    "vjp": lambda library, f, x: library.vjp(f, x)[1](2.0),
    "linearize": lambda library, f, x: library.linearize(f, x)[1](x),
    "jacfwd": lambda library, f, x: library.jacfwd(f)(x),
    "hessian": lambda library, f, x: library.hessian(f)(x),
    "vmap": lambda library, f, x: library.vmap(library.grad(f))(jnp.stack([x, 2 * x])),
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("platforms", [("tpu", "cpu"), ("cpu", "tpu")])
def test_derivatives_choose_the_platform_they_run_on(platforms, derivative, x):
    """Where it is not the first one, the value was taken for the gradient."""

    def cubed(x):
        return jnp.sum(jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos) ** 3)

    derive = DERIVATIVES[derivative]
    found = derive(pb, pb.trace(cubed, platforms=platforms)(x), x)
    wanted = derive(jax, lambda x: jnp.sum(jnp.sin(x) ** 3), x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)


def test_derived_programs_have_all_platforms(saved, x):
    forward, linear = pb.load(saved).linearize()
    derived = pb.load(artifact.serialize(pb.load(saved).grad()))
    assert forward.platforms == linear.platforms == derived.platforms == PLATFORMS
    gradient = jax.grad(expected, 1)(jnp.cos, x)
    np.testing.assert_allclose(derived.for_platform("tpu")(x), gradient, rtol=1e-5)


def halves_of(cpu, cuda):
    """The halves of reverse mode of a function that is another one on a GPU."""

    def function(x):
        return jnp.sum(jax.lax.platform_dependent(x, cpu=cpu, cuda=cuda))

    return pb.trace(function, platforms=("cpu", "cuda"))(jnp.ones(3)).split_vjp()


def test_halves_are_of_each_platform(x):
    x = x[:3]
    forward, linear = halves_of(jnp.sin, lambda x: 2.0 * x)
    assert len({len(each.in_avals) for each in (linear, *linear.variants)}) == 2
    for platform, slope in (("cpu", jnp.cos(x)), ("cuda", 2 * jnp.ones(3))):
        ahead, back = (each.for_platform(platform) for each in (forward, linear))
        residuals = ahead(x)[1]
        assert len(residuals) == len(back.in_avals) - 1
        np.testing.assert_allclose(back(residuals, 1.0)[0], slope, rtol=1e-6)
        twice = back.jvp(1)(residuals, 1.0, 2.0)[1][0]
        np.testing.assert_allclose(twice, 2 * slope, rtol=1e-6)


def test_what_is_derived_of_halves_has_the_same_residuals_on_all_platforms(x):
    x = x[:3]
    forward, linear = halves_of(jnp.sin, jnp.cos)
    derived = linear.jvp(1)
    for platform, slope in (("cpu", jnp.cos(x)), ("cuda", -jnp.sin(x))):
        residuals = forward.for_platform(platform)(x)[1]
        moved = derived.for_platform(platform)(residuals, 1.0, 2.0)[1][0]
        np.testing.assert_allclose(moved, 2 * slope, rtol=1e-6)
    with pytest.raises(pb.PullbackError) as caught:
        halves_of(jnp.sin, lambda x: 2.0 * x).linear.jvp(1)
    assert caught.value.message == (
        "a derivative in two parts has other residuals on another platform, of cpu, cuda: what is "
        "derived of it is for one"
    )
    assert caught.value.do == "take the program for one platform: program.for_platform(…)"


@pytest.mark.parametrize(
    "function",
    [models.doubled_sine, models.clipped, jax.lax.erf, lambda x: models.clipped(jnp.tan(x))],
    ids=["custom_vjp", "a rule that calls its function", "of JAX", "both"],
)
def test_what_lowers_to_the_same_is_stored_once(function):
    """Functions that are equal are one, `@main` and those that refer to themselves included."""
    same = artifact.serialize(pb.trace(function, platforms=PLATFORMS)(jnp.ones(6)))
    alone = artifact.serialize(pb.trace(function)(jnp.ones(6)))
    assert len(same) < len(alone) + 100
    assert pb.load(same).variants == ()


@jax.custom_jvp
def scaled(x):
    return jax.lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos, default=jnp.tanh)


scaled.defjvp(lambda x, dx: (scaled(*x), 3 * scaled(*x) * dx[0]))


def test_rules_that_differ_between_platforms_are_not_shared():
    x = jnp.linspace(-1.0, 1.0, 6)
    program = pb.trace(lambda x: jnp.sum(scaled(x)), platforms=PLATFORMS)(x)
    loaded = pb.load(artifact.serialize(program))
    functions = {"cpu": jnp.sin, "tpu": jnp.cos, "cuda": jnp.tanh, "rocm": jnp.tanh}
    for platform, function in functions.items():
        derived = loaded.for_platform(platform).grad()
        np.testing.assert_allclose(derived(x), 3 * function(x), rtol=1e-6)
        np.testing.assert_allclose(derived.jvp()(x, jnp.ones(6))[1], 9 * function(x), rtol=1e-6)
    assert len(loaded.variants) == 2, "one for both GPUs"


def test_what_platforms_share_is_stored_once(saved):
    text = str(_module.parse(saved))
    assert text.count("func.func public") == 1
    assert text.count("func.func private @doubled_sine.fwd(") <= 1


def test_chlo_ops_come_back_on_each_platform():
    """Their expansions are unreachable then; the entries of platforms are private as well."""
    x = jnp.linspace(-1.0, 1.0, 4)

    def function(x):
        return jnp.sum(jax.lax.platform_dependent(x, cpu=jax.lax.erf, default=jax.lax.erfc))

    loaded = pb.load(artifact.serialize(pb.trace(function, platforms=PLATFORMS)(x)))
    for platform, called in (("cpu", jax.lax.erf), ("tpu", jax.lax.erfc)):
        variant = loaded.for_platform(platform)
        assert f"chlo.{called.__name__} " in str(variant)
        assert "func.func private @chlo." not in str(variant)
        gradient = jax.grad(lambda x, called=called: jnp.sum(called(x)))(x)
        np.testing.assert_allclose(variant.grad()(x), gradient, rtol=1e-6)


def test_passes_on_the_program_of_one_platform_are_for_that_one():
    """Platforms that lower to the same are one program; without its rules, one would be wrong."""
    x = jnp.linspace(-1.0, 1.0, 4)
    traced = pb.trace(lambda x: jnp.sum(models.doubled_sine(x)), platforms=PLATFORMS)(x)
    loaded = pb.load(artifact.serialize(traced))
    assert loaded.platforms == PLATFORMS
    lowered = loaded.for_platform("tpu").run_passes("lower-custom-derivatives")
    assert "pullback." not in str(lowered)
    np.testing.assert_allclose(loaded.for_platform("cpu").grad()(x), 2 * jnp.cos(x), rtol=1e-6)
    np.testing.assert_allclose(loaded.grad()(x), 2 * jnp.cos(x), rtol=1e-6)


def test_large_constants_are_shared_by_the_platforms():
    table = jnp.asarray(np.linspace(0.0, 1.0, 1 << 13, dtype=np.float32))

    def lookup(i):
        scaled = jax.lax.platform_dependent(table, cpu=jnp.sin, default=jnp.cos)
        return scaled[i]

    content = artifact.serialize(pb.trace(lookup, platforms=("cpu", "tpu"))(jnp.int32(0)))
    assert content.count(np.asarray(table).tobytes()) == 1
    loaded = pb.load(content)
    assert loaded(jnp.int32(99)) == pytest.approx(float(jnp.sin(table[99])))
    assert loaded.for_platform("tpu")(jnp.int32(99)) == pytest.approx(float(jnp.cos(table[99])))
    assert len(loaded.constants) == 1


def test_a_file_can_hold_fewer_platforms_than_were_traced():
    loaded = pb.load(artifact.serialize(program(), platforms=["tpu", "cpu"]))
    assert loaded.platforms == ("tpu", "cpu")
    with pytest.raises(pb.PullbackError, match="was traced for tpu, cpu, not for rocm"):
        loaded.for_platform("rocm")
    assert pb.load(artifact.serialize(program(), platforms="tpu")).platforms == ("tpu",)


def test_jax_exports_the_variants(saved, x):
    exported = pb.load(saved).to_exported(platforms=["cpu", "tpu"])
    assert exported.platforms == ("cpu", "tpu")
    assert exported.call(x) == pytest.approx(float(expected(jnp.sin, x)), rel=1e-6)
    gradient = jax.grad(expected, 1)(jnp.sin, x)
    np.testing.assert_allclose(jax.grad(exported.call)(x), gradient, rtol=1e-5)


def test_every_variant_keeps_its_rules(saved):
    loaded = pb.load(saved)
    for platform in PLATFORMS:
        assert all(call.symbols for call in ops.walk_calls(loaded.for_platform(platform).module))


@pytest.mark.parametrize("platforms", [("cpu", "cpu"), ("gpu",), ("cpu", "metal")])
def test_unknown_platforms_are_refused(platforms):
    with pytest.raises(pb.PullbackError, match="cannot lower for the platforms") as caught:
        pb.trace(jnp.sin, platforms=platforms)
    assert caught.value.do == "name any of cpu, cuda, rocm, tpu, each once"
