"""Every entry of the native list: nothing is kept, and both modes agree with JAX everywhere."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard

import pullback as pb
from pullback.frontend.native import ALSO_COMPLEX, NATIVE, Native
from pullback.frontend.trace import PLATFORMS
from tests.work import traces

TIES = jnp.array([-1.5, 0.0, 0.5, 2.0])
OTHER = jnp.array([-1.5, 0.3, -2.0, 1.0])
POSITIVE = jnp.array([0.25, 0.5, 1.0, 3.0])
EXTREMES = jnp.array([-jnp.inf, -1.0, -0.7, -0.0, 0.0, 0.7, 1.0, 30.0, jnp.inf, jnp.nan])
MATRIX = jnp.arange(12.0).reshape(3, 4) / 7
INDICES = jnp.array([[0], [2], [9], [-9]])


def _gather(mode):
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    return lambda x: lax.gather(x, INDICES, numbers, (1, 4), mode=mode, fill_value=7.0)


def _scatter(scatter, mode):
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    return lambda x, u: scatter(x, INDICES, u, numbers, mode=mode)


UPDATES = jnp.ones((4, 4)) * jnp.arange(4.0)[:, None]
PLANE = jnp.array([[0.5 - 1.0j, 2.0 + 0.3j, -1.0 + 0.7j], [-0.2 - 0.4j, 1.5j, -3.0]])
INTEGERS = jnp.array([[1.0, 2.0, 2.0, 0.0], [2.0, 2.0, 1.0, 0.0], [0.0, -1.0, -1.0, 0.0]])


def _windows(combine, init, **settings):
    return lambda x: lax.reduce_window(x, init, combine, (2, 3), (1, 2), "SAME", **settings)


def _greater(a, b):
    first = a[0] >= b[0]
    return tuple(jnp.where(first, *pair) for pair in zip(a, b, strict=True))


def _greatest(x, also, init):
    """What stands beside the greatest element of each window, and that element."""
    inits = np.float32(-np.inf), init
    return lax.reduce_window((x, also), inits, _greater, (2, 2), (1, 1), "SAME")


def _convolution(**settings):
    return lambda x, k: lax.conv_general_dilated(x, k, (2, 1), ((1, 0), (-1, 2)), **settings)


IMAGES = jnp.sin(jnp.arange(2.0 * 4 * 5 * 4)).reshape(2, 4, 5, 4)
KERNELS = jnp.cos(jnp.arange(4.0 * 2 * 3 * 2)).reshape(4, 2, 3, 2)

ONE_DEVICE = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Explicit,))


def _by_a_copy(x: Any) -> Any:
    """A copy on each device, whose cotangents are terms of a sum."""
    spread = reshard(x, NamedSharding(ONE_DEVICE, P(*[None] * x.ndim, reduced={"i"})))
    return 2 * reshard(spread, NamedSharding(ONE_DEVICE, P(*[None] * x.ndim)))


CASES = [
    ("add", lax.add, (TIES, OTHER)),
    ("sub", lax.sub, (TIES, OTHER)),
    ("mul", lax.mul, (TIES, OTHER)),
    ("div", lax.div, (TIES, OTHER)),
    ("neg", lax.neg, (TIES,)),
    ("exp", lax.exp, (TIES,)),
    ("log", lax.log, (POSITIVE,)),
    ("log1p", lax.log1p, (POSITIVE,)),
    ("expm1", lax.expm1, (TIES,)),
    ("sqrt", lax.sqrt, (POSITIVE,)),
    ("rsqrt", lax.rsqrt, (jnp.array([-0.0, 0.0, 0.25, 3.0, jnp.inf]),)),
    ("cbrt", lax.cbrt, (POSITIVE,)),
    ("sin", lax.sin, (TIES,)),
    ("cos", lax.cos, (TIES,)),
    ("tan", lax.tan, (TIES,)),
    ("tanh", lax.tanh, (TIES * 20,)),
    ("atan2", lax.atan2, (TIES, OTHER)),
    ("abs", lax.abs, (TIES,)),
    ("rem", lax.rem, (TIES, OTHER)),
    ("pow", lax.pow, (POSITIVE, OTHER)),
    ("pow", lax.pow, (jnp.zeros(3), jnp.array([1.0, 2.0, 3.0]))),
    ("square", lax.square, (TIES,)),
    *((f.__name__, f, (EXTREMES,)) for f in (lax.erf, lax.erfc, lax.erf_inv, lax.lgamma)),
    ("integer_pow", lambda x: lax.integer_pow(x, 1), (TIES,)),
    ("integer_pow", lambda x: lax.integer_pow(x, 2), (TIES,)),
    ("integer_pow", lambda x: lax.integer_pow(x, 7), (TIES,)),
    ("max", lax.max, (TIES, OTHER)),
    ("min", lax.min, (TIES, OTHER)),
    ("floor", lax.floor, (TIES,)),
    ("ceil", lax.ceil, (TIES,)),
    ("round", lax.round, (TIES,)),
    ("sign", lax.sign, (TIES,)),
    ("reshape", lambda x: lax.reshape(x, (2, 6)), (MATRIX,)),
    ("transpose", lambda x: lax.transpose(x, (1, 0)), (MATRIX,)),
    ("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (1,)), (TIES,)),
    ("squeeze", lambda x: lax.squeeze(x, (0,)), (TIES[None],)),
    ("rev", lambda x: lax.rev(x, (1,)), (MATRIX,)),
    ("slice", lambda x: lax.slice(x, (0, 1), (3, 4), (2, 1)), (MATRIX,)),
    ("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 2)), (MATRIX, 9)),
    (
        "dynamic_update_slice",
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1)),
        (MATRIX, MATRIX[:2, :2] * 3, 9),
    ),
    ("concatenate", lambda x, y: lax.concatenate([x, y, x], 0), (TIES, OTHER)),
    ("pad", lambda x, v: lax.pad(x, v, [(1, -1, 1), (-1, 0, 0)]), (MATRIX, 3.0)),
    ("split", lambda x: lax.split(x, (1, 3), axis=1), (MATRIX,)),
    ("select_n", lambda c, x, y: lax.select_n(c > 0, x, y), (TIES, OTHER, POSITIVE)),
    ("gather", _gather("clip"), (MATRIX,)),
    ("gather", _gather("fill"), (MATRIX,)),
    ("scatter-add", _scatter(lax.scatter_add, "clip"), (MATRIX, UPDATES)),
    ("scatter-add", _scatter(lax.scatter_add, "drop"), (MATRIX, UPDATES)),
    ("scatter-max", _scatter(lax.scatter_max, "drop"), (MATRIX, MATRIX[jnp.array([0, 2, 1, 0])])),
    ("scatter-min", _scatter(lax.scatter_min, "drop"), (MATRIX, MATRIX[jnp.array([0, 2, 1, 0])])),
    ("sort", lax.sort, (jnp.array([1.0, jnp.nan, -0.0, jnp.inf, 0.0, 1.0, -jnp.inf]),)),
    ("sort", lambda x: lax.sort(x, dimension=0, is_stable=False), (-MATRIX,)),
    ("sort", lambda x, y: lax.sort((x, jnp.arange(4), y), num_keys=1)[::2], (TIES[::-1], OTHER)),
    ("sort", lambda x, y: lax.sort((jnp.ones(4), x, y), num_keys=2), (TIES[::-1], OTHER)),
    ("sort", lambda x: lax.sort((jnp.array([2, 0, 2, 1]), x), num_keys=1)[1], (OTHER,)),
    ("reduce_sum", lambda x: jnp.sum(x, axis=0), (MATRIX,)),
    ("sinh", lax.sinh, (TIES,)),
    ("cosh", lax.cosh, (TIES,)),
    ("atan", lax.atan, (TIES * 1e8,)),
    ("exp2", lax.exp2, (TIES * 100,)),
    ("reduce_precision", lambda x: lax.reduce_precision(x, 5, 4), (MATRIX,)),
    ("real", lax.real, (PLANE,)),
    ("imag", lax.imag, (PLANE,)),
    ("complex", lax.complex, (TIES, OTHER)),
    ("conj", lax.conj, (TIES,)),
    ("fft", jnp.fft.fft, (MATRIX,)),
    ("fft", lambda x: jnp.fft.rfft(x, 5), (MATRIX,)),
    ("fft", jnp.fft.fft2, (PLANE,)),
    ("fft", lambda z: jnp.fft.irfft(z, 5), (PLANE,)),
    ("fft", lambda z: jnp.fft.irfft(z, 4), (PLANE,)),
    ("conv_general_dilated", _convolution(feature_group_count=2), (IMAGES, KERNELS)),
    ("conv_general_dilated", _convolution(batch_group_count=2), (IMAGES[:, :2], KERNELS)),
    (
        "conv_general_dilated",
        _convolution(lhs_dilation=(2, 3), rhs_dilation=(1, 2)),
        (IMAGES[:, :2], KERNELS),
    ),
    ("conv_general_dilated", _convolution(), (IMAGES[:0, :2], KERNELS)),
    ("scatter", _scatter(lax.scatter, "clip"), (MATRIX, UPDATES)),
    ("scatter", _scatter(lax.scatter, "drop"), (MATRIX, UPDATES)),
    ("scatter-sub", _scatter(lax.scatter_sub, "drop"), (MATRIX, UPDATES)),
    ("reduce_max", lambda x: jnp.max(x, axis=1), (INTEGERS,)),
    ("reduce_min", lambda x: jnp.min(x, axis=(0, 1)), (INTEGERS,)),
    ("reduce_window", _windows(lax.mul, 1.0), (TIES[:, None] * OTHER,)),
    ("reduce_window", _windows(lax.mul, 2.0, window_dilation=(2, 1)), (MATRIX,)),
    ("reduce_window", _windows(lax.max, np.float32(0.3)), (MATRIX,)),
    ("reduce_window", _windows(lax.max, np.float32(0.3), base_dilation=(2, 1)), (MATRIX,)),
    ("reduce_window", lambda x: _greatest(x, x**3, np.float32(0))[1], (MATRIX,)),
    ("reduce_window_sum", _windows(lax.add, 0.0), (MATRIX,)),
    ("reduce_window_sum", _windows(lax.add, 0.0, base_dilation=(2, 1)), (MATRIX,)),
    ("reduce_window_sum", _windows(lax.add, 0.0, window_dilation=(2, 1)), (MATRIX,)),
    ("reduce_window_max", _windows(lax.max, -jnp.inf), (MATRIX,)),
    ("reduce_window_min", _windows(lax.min, jnp.inf, base_dilation=(2, 1)), (MATRIX,)),
    ("dot_general", lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ()))), (MATRIX, MATRIX)),
    (
        "dot_general",
        lambda x, y: lax.dot_general(
            x, y, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        ),
        (MATRIX.astype(jnp.bfloat16), MATRIX.astype(jnp.bfloat16)),
    ),
    ("convert_element_type", lambda x: x.astype(jnp.bfloat16) * 2, (TIES,)),
    ("name", lambda x: checkpoint_name(x, "kept"), (TIES,)),
    ("device_put", lambda x: jax.device_put(x, jax.memory.Space.Device), (TIES,)),
    ("reshard", _by_a_copy, (TIES,)),
    ("optimization_barrier", lambda x, y: lax.optimization_barrier([x, y])[0] * y, (TIES, OTHER)),
]
CASES += [
    (name, getattr(lax, name), (PLANE,))
    for name in "exp expm1 log log1p rsqrt tan sinh cosh atan square conj".split()
]
CASES += [
    ("integer_pow", lambda z: lax.integer_pow(z, 3), (PLANE,)),
    ("fft", jnp.fft.ifft, (PLANE,)),
    ("convert_element_type", lambda x: x.astype(jnp.complex64), (MATRIX,)),
    ("scatter", lambda z, u: z.at[0, jnp.array([2, 2])].set(u), (PLANE, PLANE[0, :2])),
    ("scatter-add", lambda z, u: z.at[0, jnp.array([2, 2])].add(u), (PLANE, PLANE[0, :2])),
    ("scatter-sub", lambda z, u: z.at[0, jnp.array([2, 2])].subtract(u), (PLANE, PLANE[0, :2])),
    ("reduce_window", _windows(lax.mul, 1.0 + 0j), (PLANE,)),
    ("reduce_window_sum", _windows(lax.add, 0.0j), (PLANE,)),
]
if hasattr(lax, "stack"):
    CASES += [("stack", lambda x, y: lax.stack([x, y]), (TIES, OTHER))]
if hasattr(lax, "unstack"):
    CASES += [("unstack", lambda x: list(lax.unstack(x)), (MATRIX,))]

WITHOUT_PUBLIC_FUNCTION = {"add_any", "copy", "stack", "unstack"}
"""Primitives that JAX binds by itself: in sums of cotangents, and in copies."""


def test_every_entry_has_a_reason_and_a_case() -> None:
    assert {name for name, _, _ in CASES} | WITHOUT_PUBLIC_FUNCTION == set(NATIVE)
    assert all(len(entry.reason) > 5 for entry in NATIVE.values())
    assert set(NATIVE) > ALSO_COMPLEX


each_case = pytest.mark.parametrize(
    ("name", "f", "args"), CASES, ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(CASES)]
)


@each_case
def test_lowering_is_the_same_on_every_platform(name, f, args) -> None:
    """What is compared with JAX here, on one platform, holds for the others then."""
    traced = jax.jit(f).trace(*args)
    texts = {traced.lower(lowering_platforms=(each,)).as_text() for each in PLATFORMS}
    assert len(texts) == 1


def _assert_same(found, wanted) -> None:
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if theirs.dtype == jax.dtypes.float0:
            continue
        wide = np.complex128 if np.iscomplexobj(theirs) else np.float64
        np.testing.assert_allclose(
            np.asarray(ours, wide), np.asarray(theirs, wide), rtol=3e-6, atol=1e-7
        )


def _random(like, seed: int):
    random = np.random.RandomState(seed)
    found = random.randn(*like.shape)
    if jnp.iscomplexobj(like):
        found = found + 1j * random.randn(*like.shape)
    return jnp.asarray(found, like.dtype)


def _differentiable(args) -> list[int]:
    return [i for i, arg in enumerate(args) if not isinstance(arg, int)]


@each_case
def test_derivatives_agree_with_jax(name, f, args) -> None:
    program = pb.trace(f)(*args)
    text = jax.jit(f).lower(*args).as_text()
    is_expanded = name == "lgamma" and "chlo.lgamma" not in text  # by jax 0.12, in 32 bits
    assert list(program.rules) == [name] * is_expanded
    wrt = _differentiable(args)

    def restricted(*chosen):
        full = list(args)
        for i, value in zip(wrt, chosen, strict=True):
            full[i] = value
        return f(*full)

    primals = [jnp.asarray(args[i]) for i in wrt]
    directions = [_random(p, i) for i, p in enumerate(primals)]
    value, tangent = jax.jvp(restricted, primals, directions)
    _assert_same(program(*args), value)
    _assert_same(program.jvp(wrt)(*args, *directions), (value, tangent))

    cotangent = jax.tree.map(lambda v: _random(v, 7), value)
    pull = _pull_by_directions if name == "reduce_window" else _pull
    wanted = pull(restricted, primals, cotangent)
    _assert_same(program.vjp(wrt)(*args, cotangent), (value, wanted))


@pytest.mark.parametrize(
    ("name", "f"),
    [("sin", jnp.sin), ("cumsum", jnp.cumsum), ("scatter-add", lambda x: x.at[1].add(x[0] ** 3))],
)
def test_a_primitive_that_lowers_to_other_ops_keeps_the_rule_of_jax(monkeypatch, name, f) -> None:
    """As a new version of JAX may lower it."""
    x = jnp.array([0.3, -2.0, 0.7])
    wanted = jax.grad(lambda x: f(x).sum())(x)
    listed = NATIVE.get(name, Native(frozenset(), ""))
    monkeypatch.setitem(NATIVE, name, listed._replace(ops=frozenset({"stablehlo.bit_tricks"})))
    assert list(pb.trace(f)(x).rules) == [name.replace("-", "_")]
    _assert_same(pb.grad(lambda x: f(x).sum())(x), wanted)


@pytest.mark.parametrize(
    "f",
    [
        jax.scipy.special.gammaln,
        jax.scipy.special.gamma,
        lambda x: jax.scipy.special.betaln(x, 2 * x),
        jax.scipy.special.factorial,
        lambda x: jax.scipy.stats.t.logpdf(x, 2 * x),
    ],
)
def test_functions_of_the_logarithm_of_gamma_have_the_derivatives_of_jax(f, tmp_path) -> None:
    """Jax 0.12 lowers it to operations on bits."""
    x = jnp.array([0.3, 1.5, 4.0, 7.6])

    def loss(x):
        return jnp.sum(f(x) ** 2)

    pb.trace(loss)(x).save(tmp_path / "loss")
    loaded = pb.load(tmp_path / "loss")
    wanted = jax.grad(loss)(x)
    for found in (pb.grad(loss)(x), loaded.grad()(x), jax.grad(pb.trace(loss)(x).as_jax())(x)):
        np.testing.assert_allclose(found, wanted, rtol=2e-5)
    direction = jnp.ones_like(x)
    second = jax.jvp(jax.grad(loss), (x,), (direction,))[1]
    found = pb.jvp(pb.grad(loss), (x,), (direction,))[1]
    np.testing.assert_allclose(found, second, rtol=1e-4)
    np.testing.assert_allclose(loaded.grad().jvp()(x, direction)[1], second, rtol=1e-4)


def _pull(f, primals, cotangent):
    return jax.vjp(f, *primals)[1](cotangent)


def _pull_by_directions(f, primals, cotangent):
    """What JAX has no reverse mode for: a product with the tangent of each direction."""
    (x,) = primals
    directions = jnp.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    tangents = [jax.jvp(f, (x,), (direction,))[1] for direction in directions]
    return (jnp.stack([jnp.sum(cotangent * t) for t in tangents]).reshape(x.shape),)


def test_integers_beside_the_elements_of_windows_have_no_tangent() -> None:
    """JAX has no derivative here, in either mode."""

    def pooled(x):
        places = lax.broadcasted_iota(np.int32, x.shape, 1)
        value, place = _greatest(x, places, np.int32(-1))
        return jnp.sum(value**3 * place)

    def expected(x):
        windows = lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME")
        return jnp.sum(windows**3 * jnp.array([1, 2, 3, 3]))

    _assert_same(pb.value_and_grad(pooled)(MATRIX), jax.value_and_grad(expected)(MATRIX))
    _assert_same(pb.hessian(pooled)(MATRIX), jax.hessian(expected)(MATRIX))


def test_the_second_derivative_of_a_cube_root_is_infinite_at_zero_and_zero_at_infinity() -> None:
    x = jnp.array([0.0, -0.0, 1.0, jnp.inf, -jnp.inf])
    wanted = jax.vmap(jax.grad(jax.grad(lax.cbrt)))(x)
    _assert_same(jax.vmap(pb.grad(pb.grad(lax.cbrt)))(x), wanted)
    _assert_same(pb.jvp(jax.vmap(pb.grad(lax.cbrt)), (x,), (jnp.ones(5),))[1], wanted)


EDGES = jnp.array([-jnp.inf, -1e30, -100, -1, -0.0, 0, 0.5, 1, 3, 100, 1e30, jnp.inf, jnp.nan])
UNARY = (
    "exp log log1p expm1 sqrt rsqrt cbrt sin cos tan tanh abs square erf erfc erf_inv sinh "
    "cosh atan exp2 floor ceil round sign neg"
).split()


@pytest.mark.parametrize("f", [*(getattr(lax, name) for name in UNARY), jax.scipy.special.ndtr])
def test_second_derivatives_at_edges_are_those_of_jax(f) -> None:
    """In both modes."""
    ones = jnp.ones_like(EDGES)

    def by_reverse(grad):
        slope = grad(lambda x: f(x).sum())
        return grad(lambda x: slope(x).sum())(EDGES)

    def by_forward(jvp):
        return jvp(lambda x: jvp(f, (x,), (ones,))[1], (EDGES,), (ones,))[1]

    wanted = by_forward(jax.jvp)
    if f in (lax.erf, lax.erfc, jax.scipy.special.ndtr):  # NaN at infinity up to jax 0.11
        wanted = jnp.where(jnp.isinf(EDGES), 0, wanted)
    for found in (by_reverse(pb.grad), by_forward(pb.jvp)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize("name", ["sin", "cos", "tanh", "sqrt", "exp2", "sign", "abs", "pow"])
def test_complex_functions_are_kept_unless_their_lowering_is_the_same(name: str) -> None:
    z = jnp.array([1.0 + 2.0j, -0.5j])
    f = getattr(lax, name)
    args = (z, z) if name == "pow" else (z,)
    program = pb.trace(f)(*args)
    assert list(program.rules) == [name]
    _assert_same(np.abs(program(*args)), np.abs(f(*args)))


@pytest.mark.parametrize("f", [lax.asinh, lambda x: lax.tanh(x, accuracy=lax.AccuracyMode.HIGHEST)])
def test_derivatives_of_large_numbers_are_those_of_the_version_of_jax(f) -> None:
    """From 0.12 they do not underflow before they have to, as those of the lowering do."""
    x = jnp.array([-3e30, -30.0, -12.0, -0.5, 0.0, 12.0, 40.0, 1e20, 3e30])
    wanted = jax.vmap(jax.grad(f))(x)
    found = pb.grad(lambda v: f(v).sum())(x), pb.jvp(f, (x,), (jnp.ones_like(x),))[1]
    for each in found:
        np.testing.assert_allclose(each, wanted, rtol=3e-6)


def test_power_with_an_integer_exponent_is_kept() -> None:
    program = pb.trace(lax.pow)(jnp.zeros(2), jnp.array([0, 2]))
    assert list(program.rules) == ["pow"]


@pytest.mark.parametrize("f", [jnp.fft.rfft2, jnp.fft.irfft2, jnp.fft.rfftn])
def test_transforms_of_several_real_dimensions_are_kept(f) -> None:
    program = pb.trace(f)(PLANE.real if f is not jnp.fft.irfft2 else PLANE)
    assert list(program.rules) == ["fft"]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_a_reciprocal_power_has_one_rule_for_all_orders(n: int) -> None:
    """JAX's rule has another power in it, whose rule has another one."""
    x = jnp.array([-2.0, 0.5, 3.0])
    program = pb.trace(lambda v: v**-n)(x)
    assert list(program.rules) == ["reciprocal_power"]
    np.testing.assert_array_equal(program(x), x**-n)
    staged = str(program.stage_rules())  # to the end, which is near
    assert "jvp = @reciprocal_power.jvp" in staged
    assert 'rule = "' not in staged


def test_equal_reciprocal_powers_are_traced_once() -> None:
    """For all programs: a potential between atoms has several, and a library's series many."""
    x = jnp.array([0.5, 3.0, 2.0, 4.0, 7.0])  # as no other test has

    def potential(x: jax.Array) -> jax.Array:
        return x**-12 - x**-6 + (x + 1) ** -12 + x.astype("float16") ** -12

    expected = potential(x)
    jax.clear_caches()
    for powers in (3, 0):
        with traces() as names:
            program = pb.trace(potential)(x)
        assert len(names) == names.count("potential") + names.count("convert_element_type") + powers
        np.testing.assert_allclose(program(x), expected, rtol=1e-3)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    ("dtype", "values"),
    [("float32", [0.0, 1e-13, 1e-7, 0.3, 1e13]), ("float16", [0.0, 0.06, 0.15, 2.0, 5.0])],
)
def test_derivatives_of_a_reciprocal_power_overflow_where_those_of_jax_do(
    n: int, dtype: str, values: list[float]
) -> None:
    """1 / x ** n as a quotient has a factor x ** -2n in its derivative."""
    x = jnp.array(values, dtype)

    def f(x: jax.Array) -> jax.Array:
        return x**-n

    rtol = 4 * float(jnp.finfo(dtype).eps)
    for order in range(2):
        ours, theirs = (np.asarray(v, np.float64) for v in _derivatives(f, x, order))
        np.testing.assert_allclose(ours, theirs, rtol=rtol)


def _derivatives(f: Any, x: jax.Array, order: int) -> tuple[Any, Any]:
    ours, theirs = pb.grad(lambda x: f(x).sum()), jax.grad(lambda x: f(x).sum())
    for _ in range(order):
        ours = pb.grad(lambda x, g=ours: g(x).sum())
        theirs = jax.grad(lambda x, g=theirs: g(x).sum())
    return ours(x), theirs(x)
