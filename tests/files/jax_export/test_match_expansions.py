"""Ops that JAX exports as many others are found again, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import pullback as pb
from pullback import artifact
from pullback.errors import MissingRuleError
from pullback.files.jax_export import match_expansions
from pullback_runtime.ir import _contexts
from tests.files.models import of_export
from tests.rounding import FUNCTION, close
from tests.work import layers_of

REALS = np.array([0.0, 0.5, -0.3, 1.0, 2.0])
NUMBERS = np.array([1 + 0j, -2 + 0j, 1j, 1 + 1j, 0.5 - 2j, -0.5 - 0.5j, 3 + 0j])
AWAY = {"stablehlo.log_plus_one": -1 + 0j, "chlo.atan": 1j}  # where they have poles
OF_REAL = [
    *("chlo." + name for name in "bessel_i1e digamma erf_inv erfc lgamma".split()),
    "stablehlo.logistic",
]
OF_COMPLEX = [
    *("stablehlo." + name for name in "exponential log log_plus_one sqrt".split()),
    *("chlo.atan", "chlo.square"),
]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", OF_REAL)
def test_functions_of_real_numbers(name: str, dtype: str) -> None:
    f = match_expansions.OPS[name]
    x = jnp.asarray(REALS if name != "chlo.erf_inv" else REALS / 3, dtype)
    program = of_export(f, x)
    assert name in program.asm()
    assert "stablehlo.select" not in program.asm()
    wide = x.astype(jnp.float64)
    rtol = 20 * float(jnp.finfo(dtype).eps)
    for each in (program, pb.load(artifact.serialize(program))):
        np.testing.assert_allclose(each(x).astype(float), f(wide), rtol=rtol, atol=rtol)
        _, (ct,) = each.vjp()(x, jnp.ones_like(x))
        _, tangents = each.jvp()(x, jnp.ones_like(x))
        expected = jax.jvp(f, (wide,), (jnp.ones_like(wide),))[1]
        if name in ("chlo.lgamma", "chlo.digamma"):  # they have poles at 0
            ct, tangents, expected = ct[1:], tangents[1:], expected[1:]
        np.testing.assert_allclose(ct.astype(float), expected, rtol=3 * rtol, atol=rtol)
        np.testing.assert_allclose(tangents.astype(float), expected, rtol=3 * rtol, atol=rtol)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", OF_COMPLEX)
def test_functions_of_complex_numbers(name: str, dtype: str) -> None:
    """On the real axis the exported sine of the imaginary part is a constant, 0."""
    f = match_expansions.OPS[name]
    z = jnp.asarray(NUMBERS[AWAY.get(name, 0) != NUMBERS], dtype)
    program = of_export(f, z)
    assert name in program.asm()
    rtol = 50 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(program(z), f(z), rtol=rtol)
    for t in (jnp.ones_like(z), jnp.full_like(z, 1j)):
        np.testing.assert_allclose(program.jvp()(z, t)[1], jax.jvp(f, (z,), (t,))[1], rtol=rtol)
        np.testing.assert_allclose(program.vjp()(z, t)[1][0], jax.vjp(f, z)[1](t)[0], rtol=rtol)


ELEMENTWISE = """abs acos asin asinh atan atanh bessel_i0e bessel_i1e cbrt cos cosh digamma erf
erf_inv erfc exp exp2 expm1 lgamma log log1p logistic neg reciprocal rsqrt sin sinh sqrt square tan
tanh""".split()
POINTS = {
    "float64": np.array([0, -0.0, 0.25, -0.25, 0.5, 1, -1, 2, -2, 3, -3, 1e-8, 1e-3, 8, -8, 30]),
    "complex128": np.array(
        [0, 1, -1, 1j, -1j, 0.5, 2, -2, 2j, 1 + 1j, -1 - 1j, 1 - 1j, 3 - 2j, -3 + 2j, 9 + 3j, 1e-3]
    ),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("dtype", POINTS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_function_of_one_number(name: str, dtype: str) -> None:
    """First and second derivatives of what JAX exports, where JAX has finite ones."""
    f, x = getattr(lax, name), POINTS[dtype].astype(dtype)
    try:
        jax.eval_shape(f, x)
    except TypeError:
        pytest.skip("not for these numbers")

    def derivatives(jvp, vjp, f, t, ct):
        yield jvp(f, (x,), (t,))[1]
        yield vjp(f, x)[1](ct)[0]
        yield jvp(lambda x: vjp(f, x)[1](ct)[0], (x,), (t,))[1]

    program = of_export(f, x)
    for t in (np.ones_like(x), 1j * x) if dtype == "complex128" else (np.ones_like(x),):
        ct = t if jnp.iscomplexobj(f(x)) else t.real
        found = derivatives(pb.jvp, pb.vjp, program, t, ct)
        for ours, theirs in zip(found, derivatives(jax.jvp, jax.vjp, f, t, ct), strict=True):
            known = np.isfinite(theirs)
            np.testing.assert_allclose(ours[known], theirs[known], rtol=1e-6, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_circular_function_of_complex_numbers_keeps_its_digits(name: str) -> None:
    """XLA's own are made of exponentials, whose difference has lost half of them here."""
    f, z = getattr(lax, name), np.array([1e-8j, 0.5 + 1e-8j, 2 - 3j])
    program = of_export(f, z)
    assert f"{'sine' if name == 'sin' else 'cosine'}.3xcomplex<f64>.jvp" in program.asm()
    for each in (program, pb.load(artifact.serialize(program))):
        value, found = each.jvp()(z, np.ones_like(z))
        expected = jax.jvp(f, (z,), (np.ones_like(z),))[1]
        for part in (np.real, np.imag):
            close(part(each(z)), part(f(z)), ops=2 * FUNCTION + 1)
            close(part(value), part(f(z)), ops=2 * FUNCTION + 1)
            np.testing.assert_allclose(part(found), part(expected), rtol=1e-14)


@pytest.mark.usefixtures("float64")
def test_a_phase_at_zero() -> None:
    """d/dφ of the imaginary part of exp(iφ) is 1 there, and was 0."""

    def phase(angle):
        return jnp.imag(jnp.exp(1j * angle))

    assert float(of_export(phase, jnp.float64(0.0)).grad()(0.0)) == 1.0


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_arrays_of_all_shapes(shape: tuple[int, ...]) -> None:
    def f(x):
        return jax.nn.gelu(jnp.sin(x), approximate=False) * lax.digamma(2 + jax.nn.sigmoid(x))

    x = jnp.full(shape, 0.3)
    program = of_export(f, x)
    text = program.asm()
    assert all(name in text for name in ("chlo.erfc", "chlo.digamma", "stablehlo.logistic"))
    found = program.vjp()(x, jnp.ones_like(x))
    np.testing.assert_allclose(found[1][0], jax.vjp(f, x)[1](jnp.ones_like(x))[0], rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16])
def test_a_sigmoid_far_below_zero(dtype: Any) -> None:
    """Its exponential is infinite. The text that JAX lowers to says the same as an export."""
    x = jnp.asarray([-100.0, -20.0, 0.0, 5.0], dtype)
    lowered = jax.jit(jax.nn.silu).lower(x).as_text()
    for program in (of_export(jax.nn.silu, x), pb.load(lowered.encode())):
        _, (ct,) = program.vjp()(x, jnp.ones_like(x))
        (expected,) = jax.vjp(jax.nn.silu, x)[1](jnp.ones_like(x))
        close(ct, expected, ops=FUNCTION + 5, scale=5.0)  # up to five times (1 - sigmoid)


SMOOTH: dict[str, Callable[[Any], Any]] = {
    "softplus": jax.nn.softplus,
    "log_sigmoid": jax.nn.log_sigmoid,
    "of two": lambda x: jnp.logaddexp(jnp.sin(x), -x),
    "of one twice": lambda x: jnp.logaddexp(x, x),
    "as in PyTorch": lambda x: jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x))),
    "with a product, as in PyTorch": lambda x: (
        jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-1.0 * jnp.abs(x)))
    ),
    "in base 2": lambda x: jnp.logaddexp2(x, 1 - x) + jnp.logaddexp2(x, jnp.zeros_like(x)),
    "of a matrix": lambda x: jnp.logaddexp(x[:, None], x[None])[0],
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", SMOOTH)
def test_a_logarithm_of_a_sum_has_no_kink(name: str) -> None:
    """Literally, softplus has slope 0 at 0: that of max(x, 0) is 1/2 there, and that of |x| 1."""
    f, x = SMOOTH[name], jnp.array([0.0, 0.5, -2.0, 30.0, 1000.0])
    program = of_export(f, x)
    f = jax.nn.log_sigmoid if "PyTorch" in name else f  # it is, and has no kinks in JAX
    ct = jnp.array([1.0, 0.5, -1.0, 2.0, 3.0])
    for each in (program, pb.load(artifact.serialize(program))):
        np.testing.assert_allclose(each(x), f(x), rtol=1e-14)
        np.testing.assert_allclose(each.vjp()(x, ct)[1][0], jax.vjp(f, x)[1](ct)[0], rtol=1e-12)
        np.testing.assert_allclose(each.jvp()(x, ct)[1], jax.jvp(f, (x,), (ct,))[1], rtol=1e-12)
    _, (_, (found,)) = program.vjp().jvp(0)(x, ct, jnp.ones_like(x))
    expected = jax.jvp(lambda x: jax.vjp(f, x)[1](ct)[0], (x,), (jnp.ones_like(x),))[1]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    rows = program.vmap(axis_size=2)(jnp.stack([x, -x]))
    np.testing.assert_allclose(rows[1], f(-x), rtol=1e-14)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "f", [lax.cumlogsumexp, lambda x: lax.reduce(x, -jnp.inf, jnp.logaddexp, (0,))[None]]
)
def test_a_logarithm_of_a_sum_in_a_reduction(f: Callable[[Any], Any]) -> None:
    x = jnp.array([1.0, 1.0, 1.0, 0.3])
    program, ct = of_export(f, x), jnp.arange(1.0, 1.0 + len(f(x)))
    for each in (program, pb.load(artifact.serialize(program))):
        np.testing.assert_allclose(each(x), f(x), rtol=1e-14)
        np.testing.assert_allclose(each.vjp()(x, ct)[1][0], jax.vjp(f, x)[1](ct)[0], rtol=1e-12)


def test_a_logarithm_of_a_sum_of_infinities() -> None:
    x = jnp.array([jnp.inf, -jnp.inf, jnp.inf, 0.0])
    y = jnp.array([jnp.inf, -jnp.inf, 0.0, -jnp.inf])
    program = of_export(jnp.logaddexp, x, y)
    ones = jnp.ones(4)
    found = program.jvp()(x, y, ones, 2 * ones)
    assert found[0].tolist() == jnp.logaddexp(x, y).tolist()
    assert found[1].tolist() == [3.0, 3.0, 1.0, 1.0]


def test_what_differs_in_one_step_stays() -> None:
    """A sigmoid with 2 in the place of 1, one of two variables, and one whose parts are used."""

    def others(x, y):
        total = 1 + jnp.exp(-y)
        other = jnp.log1p(jnp.exp(-jnp.square(x))) + jnp.log1p(jnp.exp(jnp.abs(x)))
        return (
            1 / (2 + jnp.exp(-x)),
            2 / (1 + jnp.exp(-x)),
            1 / (1 + jnp.exp(x)),
            1 / (x + total),
            other,
        )

    x, y = jnp.array([0.1, 0.7]), jnp.array([-0.4, 2.0])
    exported = export.export(jax.jit(others))(x, y)
    program = pb.load(exported.serialize())
    assert "logistic" not in program.asm()
    assert "log_of_decay" not in program.asm()
    for ours, theirs in zip(program(x, y), others(x, y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_steps_that_are_used_elsewhere_are_kept() -> None:
    def f(x):
        e = jnp.exp(-x)
        return 1 / (1 + e) + e * jnp.log(1 + e)

    x = jnp.array([0.1, -0.7])
    program = of_export(f, x)
    assert "stablehlo.logistic" in program.asm()
    np.testing.assert_allclose(program(x), f(x), rtol=1e-6)
    _, tangents = program.jvp()(x, jnp.ones_like(x))
    np.testing.assert_allclose(tangents, jax.jvp(f, (x,), (jnp.ones_like(x),))[1], rtol=1e-5)


def test_programs_of_pullback_are_read_as_they_are() -> None:
    x = jnp.ones(3)
    saved = artifact.serialize(pb.trace(lambda x: 1 / (1 + jnp.exp(-x)))(x))

    def matches(load: Callable[[], object]) -> bool:
        return "put_back" in {name for _, name in layers_of(load).functions}

    assert not matches(lambda: pb.load(saved))
    assert "logistic" not in pb.load(saved).asm()
    assert matches(lambda: of_export(jax.nn.sigmoid, x))


def test_steps_of_two_numbers_are_no_function_of_one() -> None:
    """Of the real part of one and the imaginary part of another."""
    z = jnp.array([0.5 + 1j, -1 + 0.3j])
    text = export.export(jax.jit(jnp.exp))(z).mlir_module()
    assert "stablehlo.imag" not in pb.load(text.encode()).asm()
    head, kind, rest = text.partition("tensor<2xcomplex<f32>>")
    rest = rest.replace("stablehlo.imag %arg0", "stablehlo.imag %arg1")
    program = pb.load(f"{head}{kind}, %arg1: {kind}{rest}".encode())
    assert "stablehlo.imag" in program.asm()
    found = program(z, z[::-1])
    np.testing.assert_allclose(found, jnp.exp(z.real + 1j * z[::-1].imag), rtol=1e-6)


@pytest.mark.usefixtures("float64")
def test_expansions_are_found_in_modules_of_other_contexts(monkeypatch) -> None:
    """They had been compared by their tables of numbers in the context of the first module."""
    for name in ("chlo.lgamma", "chlo.digamma", "chlo.erf_inv"):
        for most in (_contexts.MOST, -1):  # with which each module has a context of its own
            monkeypatch.setattr(_contexts, "MOST", most)
            x = jnp.asarray(REALS / 3, "float32")
            assert name in of_export(match_expansions.OPS[name], x).asm()


def softplus_as_text() -> str:
    return jax.jit(jax.nn.softplus).lower(jnp.ones(3)).as_text()


def test_what_was_put_back_is_not_looked_for_once_more() -> None:
    """The function of a call that has the rule is the expansion itself."""
    x = jnp.array([-1.0, 0.0, 2.0])
    program = pb.load(softplus_as_text().encode())
    again = pb.load(program.asm().encode())
    assert str(again) == str(program)
    derived = pb.load(again.vjp().asm().encode())
    np.testing.assert_allclose(derived(x, jnp.ones(3))[1], jax.nn.sigmoid(x), rtol=1e-6)


def test_a_function_of_the_name_of_one_that_is_put_back_stays() -> None:
    """Where rules were lowered away, what was put back is a function like any other."""
    x = jnp.array([-1.0, 0.0, 2.0])
    plain = pb.load(softplus_as_text().encode()).run_passes("lower-custom-derivatives")
    again = pb.load(plain.asm().encode())
    np.testing.assert_allclose(again(x), jax.nn.softplus(x), rtol=1e-6)
    np.testing.assert_allclose(again.vjp()(x, jnp.ones(3))[1][0], jax.nn.sigmoid(x), rtol=1e-6)


def test_a_file_of_ours_that_holds_an_expansion_of_lgamma() -> None:
    """Saved by pullback 0.1 with jax 0.12, which took its ops for those of `chlo.lgamma`."""
    x = jnp.array([0.5, 2.5, 7.0])
    program = pb.load(Path(__file__).parents[1] / "golden/lgamma_expanded.mlirbc")
    value, slope = jax.value_and_grad(lambda x: jnp.sum(lax.lgamma(x) * x))(x)
    np.testing.assert_allclose(program(x), value, rtol=1e-5)
    if "@lgamma_impl" in jax.jit(lax.lgamma).lower(x).as_text():
        np.testing.assert_allclose(program.grad()(x), slope, rtol=1e-5)
    else:
        with pytest.raises(MissingRuleError, match=r"no derivative rule for `stablehlo\.bitcast"):
            program.grad()
