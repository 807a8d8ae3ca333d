"""Exchange with jax.export, both ways."""

from __future__ import annotations

import dataclasses
import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback_runtime import _jax
from pullback_runtime.files import _container
from tests.files import models

pytestmark = pytest.mark.whole


def export(function, *args, **options):
    return jax.export.export(jax.jit(function), **options)(*args)


def test_what_is_no_export_is_refused():
    with pytest.raises(pb.ArtifactError, match="cannot make a program of bytes"):
        pb.from_exported(b"serialised")


def test_a_program_becomes_an_exported():
    args, kwargs = models.arguments()
    exported = models.program().to_exported()
    found = exported.call(*args, **kwargs)
    assert jnp.allclose(found["loss"], models.loss(*args, **kwargs)["loss"])
    again = jax.export.deserialize(exported.serialize())
    assert jnp.allclose(again.call(*args, **kwargs)["loss"], found["loss"])


def test_an_exported_becomes_a_program():
    exported = export(lambda p, x: {"y": jnp.sin(x) * p["a"]}, {"a": jnp.float32(2)}, jnp.ones(3))
    serialised = bytes(exported.serialize())
    for program in (pb.from_exported(exported), pb.load(serialised)):
        found = program({"a": jnp.float32(3)}, jnp.arange(3.0))
        assert jnp.allclose(found["y"], 3 * jnp.sin(jnp.arange(3.0)))
    loaded = pullback_runtime.load(serialised)
    assert jnp.allclose(loaded({"a": jnp.float32(3)}, jnp.ones(3))["y"], 3 * jnp.sin(1.0))


def test_arguments_that_export_drops_are_taken_again():
    exported = export(lambda a, b, c: b * 2, jnp.ones(2), jnp.ones(3), jnp.int32(1))
    assert exported.module_kept_var_idx == (1,)
    program = pb.from_exported(exported)
    assert [aval.shape for aval in program.in_avals] == [(2,), (3,), ()]
    assert jnp.allclose(program(jnp.ones(2), jnp.arange(3.0), jnp.int32(1)), 2 * jnp.arange(3.0))


def test_arguments_beside_those_that_export_drops_keep_what_is_said_of_them():
    """Such as where they lie on devices, which was lost."""
    x = jnp.ones(2)
    function = jax.jit(lambda unused, x: x + 1, donate_argnums=1)
    program = pb.load(jax.export.export(function)(jnp.int32(3), x).serialize())
    assert "%arg1: tensor<2xf32> {tf.aliasing_output = 0 : i32}" in str(program)


def test_exports_for_several_platforms_have_a_variant_for_each():
    def function(x, unused):
        return jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    x = jnp.linspace(0.0, 1.0, 3)
    exported = export(function, x, 1.0, platforms=["tpu", "cpu"])
    serialised = bytes(exported.serialize())
    for program in (pb.from_exported(exported), pb.load(serialised)):
        assert program.platforms == ("tpu", "cpu")
        assert jnp.allclose(program(x, 1.0), jnp.sin(x))
        tpu = program.for_platform("tpu")
        assert jnp.allclose(tpu(x, 1.0), jnp.cos(x))
        assert jnp.allclose(tpu.vjp(0)(x, 1.0, x)[1], -jnp.sin(x) * x)
    assert jnp.allclose(pullback_runtime.load(serialised)(x, 1.0), jnp.sin(x))


@pytest.mark.parametrize(
    ("order", "words"),
    [(0, "no derivatives"), (1, "of first order only"), (2, "up to order 2 only")],
)
def test_exports_with_symbolic_dimensions_have_the_derivatives_that_jax_wrote(order, words):
    (size,) = jax.export.symbolic_shape("n")
    exported = export(lambda x: jnp.sum(x**3), jax.ShapeDtypeStruct((size,), jnp.float32))
    serialised = bytes(exported.serialize(vjp_order=order))
    program = pb.load(serialised)
    assert program.order == order
    assert pb.from_exported(exported).order is None, "JAX still has the function"
    expected = [lambda x: jnp.sum(x**3), lambda x: 3 * x**2, lambda x: 6 * x]
    x = jnp.arange(4.0)
    assert jnp.allclose(pullback_runtime.load(serialised)(x), expected[0](x))
    assert jnp.allclose(program(x), expected[0](x))
    if order > 0:
        assert jnp.allclose(program.grad()(x[:2]), expected[1](x[:2]))
    if order > 1:
        (second,) = program.grad().vjp()(x, jnp.ones(4))[1]
        assert jnp.allclose(second, expected[2](x))
    for _ in range(order):
        program = program.vjp()
    with pytest.raises(pb.MissingRuleError, match=words):
        program.vjp().to_exported()


@pytest.mark.parametrize("platforms", [("cpu",), ("cpu", "tpu")])
@pytest.mark.parametrize("order", [0, 1, None])
def test_exports_with_symbolic_dimensions_have_any_order_once_sizes_are_given(order, platforms):
    """JAX can neither batch them nor differentiate them further than was written."""

    def function(x):
        return jax.nn.logsumexp(jnp.concatenate([jax.nn.silu(x), x[:1] ** 3]))

    (size,) = jax.export.symbolic_shape("n")
    types = jax.ShapeDtypeStruct((size,), jnp.float32)
    exported = jax.export.export(jax.jit(function), platforms=platforms)(types)
    program = pb.from_exported(exported)
    if order is not None:
        program = pb.load(bytes(exported.serialize(vjp_order=order)))
    x = jnp.array([0.3, -0.5, 0.7])
    np.testing.assert_allclose(jax.hessian(program)(x), jax.hessian(function)(x), atol=1e-6)
    second = jax.jvp(jax.grad(function), (x,), (x,))[1]
    np.testing.assert_allclose(program.grad().jvp()(x, x)[1], second, atol=1e-6)
    xs = jnp.stack([x, 2 * x])
    np.testing.assert_allclose(jax.vmap(program)(xs), jax.vmap(function)(xs), rtol=1e-6)
    fixed = program.with_sizes(n=3)
    assert (fixed.platforms, fixed.in_avals[0].shape) == (platforms, (3,))
    with pytest.raises(ValueError, match="'n' = 0"):
        program(x[:0])


@pytest.mark.parametrize("order", [0, 2])
def test_exports_with_symbolic_dimensions_have_their_derivatives_behind_a_second_save(order):
    @jax.custom_jvp
    def root(x):
        return jnp.sqrt(x)

    root.defjvp(lambda x, dx: (root(*x), dx[0] * jnp.cos(*x)))
    (size,) = jax.export.symbolic_shape("n")
    arguments = {"x": jax.ShapeDtypeStruct((size,), jnp.float32)}, jnp.int32(2)
    exported = export(lambda d, i: jnp.sum((root if order else jnp.sin)(d["x"])) * i, *arguments)
    program = pb.load(bytes(exported.serialize(vjp_order=order)))
    for _ in range(2):
        program = pb.load(artifact.serialize(program))
    gradient = pb.load(artifact.serialize(program.grad())) if order else program.grad()
    x = jnp.array([0.3, 0.5, 0.7])
    with warnings.catch_warnings():
        warnings.simplefilter("error" if order else "ignore")
        assert jnp.allclose(program({"x": x}, 2), exported.call({"x": x}, jnp.int32(2)))
        assert jnp.allclose(gradient({"x": x}, 2)["x"], 2 * jnp.cos(x))
        second = gradient.with_sizes(n=3).jvp(0)({"x": x}, 2, {"x": x})[1]["x"]
        assert jnp.allclose(second, -2 * jnp.sin(x) * x)
        xs = jnp.stack([x, 2 * x])
        batch = jax.vmap(jax.grad(program), (0, None))({"x": xs}, 2)
        assert jnp.allclose(batch["x"], 2 * jnp.cos(xs))


DERIVATIVES = {
    "grad": lambda f: pb.grad(f)(X),
    "jax.grad": lambda f: jax.grad(f)(X),
    "jvp": lambda f: pb.jvp(f, (X,), (X,)),
    "vjp": lambda f: pb.vjp(f, X),
    "inside another function": lambda f: pb.grad(lambda x: f(2 * x))(X),
    "of a derivative inside": lambda f: pb.grad(lambda x: jnp.sum(pb.grad(f)(x)))(X),
    "hessian": lambda f: pb.hessian(f)(X),
    "batch": lambda f: pb.vmap(pb.grad(f))(X[None]),
}
X = np.linspace(0.1, 1.0, 3, dtype=np.float32)


def exported_with(order, shape=None):
    """What is read of an export with so many derivatives."""
    export = jax.export.export(jax.jit(lambda x: jnp.sum(jax.lax.stop_gradient(x) * x)))
    return pb.load(export(X if shape is None else shape).serialize(vjp_order=order))


@pytest.mark.parametrize("derive", DERIVATIVES)
def test_derivatives_through_what_may_have_lost_rules_are_a_warning(derive):
    program = exported_with(0)
    program(X)  # to run it is none
    with pytest.warns(pb.LostRulesWarning, match=r"no custom_jvp, custom_vjp or\s+stop_gradient"):
        DERIVATIVES[derive](program)


def test_they_are_a_warning_from_a_file_of_ours_too():
    content = artifact.serialize(pb.trace(lambda x: exported_with(0)(x) + 1.0)(X))
    with pytest.warns(pb.LostRulesWarning):
        pb.load(content).grad()(X)


def test_derivatives_of_symbolic_exports_are_a_warning_too():
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    with pytest.warns(pb.LostRulesWarning, match="serialize.vjp_order="):
        exported_with(0, shape).grad()(X)


@pytest.mark.parametrize("derive", ["grad", "jax.grad", "vjp", "inside another function"])
def test_derivatives_that_an_export_has_are_no_warning(derive):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DERIVATIVES[derive](exported_with(1))
        pb.jvp(pb.grad(exported_with(2)), (X,), (X,))
        pb.trace(lambda x: exported_with(0)(x) + 1.0)(X)(X)
        pb.load(artifact.serialize(pb.trace(jnp.sum)(X))).grad()(X)
        saved_again(of_a_number(1)).grad()(SCALAR)


SCALAR = np.float32(0.5)


def of_a_number(order):
    return exported_with(order, SCALAR)


def saved_again(program):
    return pb.load(artifact.serialize(program))


BEYOND = {
    "pb.grad": lambda: pb.grad(pb.grad(of_a_number(1))),
    "program.grad": lambda: of_a_number(1).grad().grad(),
    "jax.grad": lambda: jax.grad(jax.grad(of_a_number(1))),
    "third": lambda: of_a_number(2).grad().grad().grad(),
    "in memory": lambda: pb.from_exported(export(jnp.sin, SCALAR)).grad().grad(),
    "inside another function": lambda: pb.grad(pb.grad(lambda x: of_a_number(1)(x) + 1.0)),
    "in a file": lambda: saved_again(of_a_number(1)).grad().grad(),
    "of a gradient in a file": lambda: saved_again(of_a_number(1).grad()).grad(),
    "as_jax": lambda: of_a_number(1).as_jax(),
}


@pytest.mark.parametrize("how", BEYOND)
def test_derivatives_beyond_those_that_an_export_has_are_a_warning(how):
    """They were those of its ops, without a word; the warning is at the user's line."""
    with pytest.warns(pb.LostRulesWarning) as warned:
        BEYOND[how]()(SCALAR)
    assert {each.filename for each in warned} == {__file__}


def test_a_static_export_that_calls_one_with_symbolic_dimensions():
    """XLA refused its ops, which JAX refines before it compiles."""
    (size,) = jax.export.symbolic_shape("n")
    types = jax.ShapeDtypeStruct((size,), jnp.float32)
    inner = export(lambda x: jnp.sum(jnp.concatenate([x, x[:1]]) ** 3), types)
    outer = export(lambda x: inner.call(jnp.sin(x)), jnp.ones(3))
    x = jnp.array([0.3, -0.5, 0.7])
    program = pb.from_exported(outer)
    np.testing.assert_allclose(program(x), outer.call(x), rtol=1e-6)
    np.testing.assert_allclose(program.grad()(x), jax.grad(outer.call)(x), rtol=1e-6)
    assert "?" not in str(program)


def test_exports_for_several_devices_without_a_mesh_are_refused():
    exported = dataclasses.replace(export(jnp.sin, jnp.ones(2)), nr_devices=2)
    with pytest.raises(
        pb.ArtifactError, match="it is for several devices and names no mesh"
    ) as caught:
        pb.from_exported(exported)
    assert "export it for one device" in caught.value.do


def test_the_vjp_of_an_exported_goes_through_our_rules():
    """`doubled_sine` has a rule that is twice the true derivative."""
    x = jnp.linspace(0.0, 1.0, 3)
    exported = pb.trace(models.doubled_sine)(x).to_exported()
    again = jax.export.deserialize(exported.serialize(vjp_order=1))
    for each in (exported, again):
        (found,) = each.vjp().call(x, jnp.ones(3))
        assert jnp.allclose(found, 2 * jnp.cos(x))
        assert jnp.allclose(jax.grad(lambda x, e=each: e.call(x).sum())(x), 2 * jnp.cos(x))


def test_what_jax_exported_can_be_differentiated_both_ways():
    x = jnp.linspace(0.1, 1.0, 3)
    exported = export(lambda x: jnp.tanh(x) * x, x)
    program = pb.load(bytes(exported.serialize()))
    derivative = jax.vmap(jax.grad(lambda x: jnp.tanh(x) * x))(x)
    _, tangent = program.jvp()(x, jnp.ones(3))
    _, (cotangent,) = program.vjp()(x, jnp.ones(3))
    assert jnp.allclose(tangent, derivative)
    assert jnp.allclose(cotangent, derivative)


@pytest.mark.parametrize("load", [pb.load, lambda it: pb.from_exported(jax.export.deserialize(it))])
def test_an_export_of_a_newer_stablehlo_names_both_versions(load):
    """It has an operation that is not known here."""
    content = bytes(export(jnp.sin, jnp.ones(3)).serialize())
    version = _container.PORTABLE_PRODUCER.encode() + b"1."
    position = content.index(version) + len(version)
    newer = content[:position] + b"9" + content[position + 1 :]
    with pytest.raises(pb.ArtifactError) as caught:
        load(bytearray(newer.replace(b"sine_v", b"sinx_v")))
    current = _jax.stablehlo.get_current_version()
    assert "the file needs StableHLO 1.9" in caught.value.message
    assert f"this jaxlib reads up to {current}" in caught.value.message
    assert caught.value.do.startswith("pip install --upgrade jax")


def test_a_file_of_something_else_is_no_export():
    content = bytes(export(jnp.sin, jnp.ones(3)).serialize())
    with pytest.raises(pb.ArtifactError, match=r"nor what jax\.export serialised"):
        pb.load(content.replace(b"sine_v", b"sinx_v"))


@jax.custom_vjp
def cubed(x):
    """Its rule has a rule: so the second derivative tells whether that one is honoured."""
    return x**3


cubed.defvjp(lambda x: (x**3, x), lambda x, ct: (models.doubled_sine(x) * ct,))


def with_integers(params, count, x):
    return {"y": cubed(x) * params["a"], "n": count + 1, "positive": x > 0}


@pytest.mark.parametrize("platforms", [None, ("tpu", "cpu")])
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_that_an_export_has_are_rules(order, platforms):
    """Differentiated through its StableHLO alone, it would have none of the custom ones."""
    x, factor = jnp.linspace(0.1, 1.0, 3), jnp.float32(2)
    args = ({"a": factor}, jnp.int32(3), x)
    exported = export(with_integers, *args, platforms=platforms)
    files = [pb.load(bytes(exported.serialize(vjp_order=order)))]
    files.append(pb.load(artifact.serialize(files[0])))
    for program in files if order == 2 else (*files, pb.from_exported(exported)):
        _, cotangents = program.vjp()(*args, {"y": jnp.ones(3), "n": None, "positive": None})
        assert jnp.allclose(cotangents[0]["a"], jnp.sum(x**3))
        assert jnp.allclose(cotangents[2], factor * jnp.sin(x), atol=1e-6)
        forward = program.jvp()(*args, {"a": 0 * factor}, None, jnp.ones(3))[1]
        assert jnp.allclose(forward["y"], factor * jnp.sin(x), atol=1e-6)
        second = jax.grad(lambda x, p=program: jnp.sum(gradient(p, args, x)))(x)
        assert jnp.allclose(second, order * factor * jnp.cos(x), atol=1e-5)


def gradient(program, args, x):
    return jax.grad(lambda x: jnp.sum(program(*args[:2], x)["y"]))(x)


def test_an_export_that_jax_cannot_differentiate():
    def halved(x):
        return jax.lax.while_loop(lambda x: jnp.sum(x) > 1, lambda x: x / 2, x)

    program = pb.from_exported(export(halved, jnp.ones(4)))
    assert jnp.allclose(program.vjp()(jnp.ones(4), jnp.ones(4))[1][0], 0.25)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("platforms", [None, ["cpu", "tpu"]])
def test_random_keys_of_an_export(order, platforms):
    """They were words in results, and an argument that nothing uses ended in an assertion."""

    def noisy(unused, key, x):
        return jnp.sin(x) * jax.random.normal(key), jax.random.split(key)

    keys, x = jax.random.split(jax.random.key(1)), jnp.arange(3.0)
    exported = jax.export.export(jax.jit(noisy), platforms=platforms)(*keys, x)
    content = bytes(exported.serialize(vjp_order=order))
    value, split = noisy(*keys, x)
    programs = [artifact.from_exported(exported), pb.load(content)]
    for each in (*programs, pullback_runtime.load(content, backend="cpu")):
        found, more = each(*keys, x)
        np.testing.assert_allclose(found, value, rtol=1e-6)
        assert more.dtype == split.dtype
        assert jnp.array_equal(more, split)
    for program in programs:
        _, cotangents = program.vjp()(*keys, x, (jnp.ones(3), None))
        assert cotangents[:2] == (None, None)
        expected = jnp.cos(x) * jax.random.normal(keys[1])
        np.testing.assert_allclose(cotangents[2], expected, rtol=1e-6)
    if order > 1:
        np.testing.assert_allclose(
            jax.hessian(lambda x: jnp.sum(programs[1](*keys, x)[0]))(x)[1, 1], -value[1], rtol=1e-6
        )


def test_keys_of_an_implementation_of_ones_own_are_not_saved():
    from jax.extend import random as extended

    like = extended.threefry_prng_impl
    mine = extended.define_prng_impl(
        key_shape=like.key_shape,
        seed=like.seed,
        split=like.split,
        random_bits=like.random_bits,
        fold_in=like.fold_in,
        name="mine",
        tag="mine",
    )
    key = jax.random.key(0, impl=mine)
    program = pb.trace(lambda key, x: x * jax.random.normal(key))(key, 2.0)
    assert jnp.isfinite(program(key, 2.0))
    with pytest.raises(pb.ArtifactError, match="key<mine> cannot be saved"):
        artifact.serialize(program)


def exponent(x):
    """With the sign; not by `frexp`, which may make a float of bits as well."""
    integer, digits = {"float16": ("int16", 10), "float32": ("int32", 23)}[x.dtype.name]
    return (jax.lax.bitcast_convert_type(x, integer) >> digits).astype(x.dtype)


STEPS = {
    "signbit": lambda x: jnp.where(jnp.signbit(x), -x, x) * x,
    "copysign": lambda x: jnp.copysign(x**2, jnp.sin(3 * x)),
    "exponent": lambda x: x * exponent(x),
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", STEPS)
def test_signs_and_exponents_are_read_from_bits(name, dtype):
    """They are constant between steps, in a file as in JAX."""
    f, x = STEPS[name], jnp.asarray([0.3, -0.7, 2.5], dtype)
    program = models.of_export(f, x)
    expected = jax.vjp(f, x)[1](jnp.ones_like(x))[0]
    np.testing.assert_allclose(program.vjp()(x, jnp.ones_like(x))[1][0], expected, rtol=1e-3)
    np.testing.assert_allclose(program.jvp()(x, jnp.ones_like(x))[1], expected, rtol=1e-3)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * jnp.frexp(x)[0],
        lambda x: jax.lax.bitcast_convert_type(x, "int32").astype("float32"),
        lambda x: (jax.lax.bitcast_convert_type(x, "int32") >> 22).astype("float32") * x,
    ],
)
def test_digits_that_are_read_from_bits_are_refused(f):
    x = jnp.ones(3, "float32")
    program = models.of_export(f, x)
    for derive in (program.jvp, program.vjp):
        with pytest.raises(pb.MissingRuleError, match="bitcast_convert"):
            derive()


def test_a_variant_has_what_its_platform_does_and_no_more():
    """A TPU's eigenvalues that are not sorted have no derivative, and a CPU does not call that."""
    x = np.array([[2.0, 0.3], [0.4, 1.5]], np.float32)

    def f(x):
        return jnp.sum(jax.lax.linalg.eigh(x, sort_eigenvalues=False)[1] ** 3)

    program = models.of_export(f, x, platforms=["cpu", "cuda", "tpu"])
    found = program.for_platform("cpu")
    assert "lapack_ssyevd" in found.asm()
    assert "cusolver" not in found.asm()
    assert "stablehlo.case" not in found.asm()
    np.testing.assert_allclose(found.grad()(x), jax.grad(f)(x), rtol=1e-5)
    assert "cusolver_syevd" in program.for_platform("cuda").grad().asm()
    with pytest.raises(pb.MissingRuleError, match="@Eigh") as caught:
        program.grad()
    said = "so it is for tpu: program.for_platform(…) takes one platform"
    assert caught.value.__notes__.count(said) == 1


def decomposed(x):
    return jnp.sin(x) * x


@pytest.mark.parametrize("platforms", [("cpu",), ("cpu", "tpu")])
@pytest.mark.parametrize("shape", ["4", "n"])
@pytest.mark.filterwarnings("ignore::pullback.LostRulesWarning")
def test_composites_of_jax_and_of_the_user(platforms, shape):
    """JAX gives decompositions the values of symbols and the platform's number as arguments.

    One composite is returned as it is, one is called in another, one twice with other types. With
    symbols, JAX writes `erf` and `top_k` as composites too.
    """
    composite = jax.lax.composite if jax.__version_info__ >= (0, 12) else _called

    def function(named, x):
        inner = named(decomposed, name="test.inner")
        outer = named(lambda x: inner(x) + jax.lax.erf(x), name="test.outer")
        return outer(inner(x)), jnp.sum(inner(x[1:])), jax.lax.top_k(outer(x), 2)[0]

    x, dx = jnp.array([0.3, 0.5, 0.7, 0.9]), jnp.array([1.0, 2.0, 3.0, 4.0])
    sizes = jax.export.symbolic_shape(shape, constraints=["n >= 3"] if shape == "n" else ())
    like = jax.ShapeDtypeStruct(sizes, jnp.float32)
    exported = export(functools.partial(function, composite), like, platforms=platforms)
    expected = jax.jvp(functools.partial(function, _called), (x,), (dx,))
    cts = jax.tree.map(jnp.cos, expected[0])
    _, pullback = jax.vjp(functools.partial(function, _called), x)
    for program in (pb.from_exported(exported), pb.load(bytes(exported.serialize()))):
        known = program.with_sizes(n=4) if shape == "n" else program
        for found, wanted in zip(known.jvp()(x, dx), expected, strict=True):
            jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), found, wanted)
        _, (ct,) = known.vjp()(x, cts)
        np.testing.assert_allclose(ct, pullback(cts)[0], rtol=1e-5)
        if composite is not _called:
            assert 'composite "test.outer"' in str(known)


def _called(function, *, name):
    """Stand for a composite: JAX differentiates none, and the oldest exports none with symbols."""
    return function
