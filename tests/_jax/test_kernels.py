"""Pallas kernels, whose derivatives are those of the loops that they stand for.

JAX has a forward mode for simple kernels and no reverse mode. The oracle is the same function
without a kernel, and for rules in kernels, which are false on purpose, the same without one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import pullback as pb
from pullback._jax import kernels
from tests.api.checks import assert_agrees

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.uniform(0.5, 1.5, (2, 16, 16))
LIKE_X = jax.ShapeDtypeStruct(X.shape, X.dtype)
ROWS = pl.BlockSpec((8, 16), lambda i: (i, 0))

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(params=[True, False], ids=["interpreted", "compiled"])
def interpreted(request, monkeypatch):
    """Whether kernels become loops when they are traced, or where their derivatives are taken."""
    if not request.param:
        monkeypatch.setattr(kernels, "is_interpreted", lambda equation: False)


call = partial(pl.pallas_call, out_shape=LIKE_X, interpret=True)


# ------------------------------------------------------------------------ functions with rules


@jax.custom_jvp
def steep(x):
    return jnp.sin(x)


steep.defjvp(lambda primals, tangents: (steep(*primals), 10.0 * jnp.cos(primals[0]) * tangents[0]))


@jax.custom_vjp
def tall(x):
    return x**2


tall.defvjp(lambda x: (tall(x), x), lambda x, ct: (7.0 * x * ct,))


# ----------------------------------------------------------------------------------- kernels


def product(x_ref, y_ref, o_ref):
    o_ref[...] = jnp.sin(x_ref[...]) * y_ref[...]


def matmul(x_ref, y_ref, o_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)

    o_ref[...] += jnp.tanh(x_ref[...]) @ y_ref[...]


def with_the_rows_before(x_ref, w_ref, o_ref):
    before = jnp.where(pl.program_id(0) > 0, x_ref[:4, :] * w_ref[...], 0.0)
    o_ref[...] = before + x_ref[2:6, :] * w_ref[...]


def in_scratch(x_ref, o_ref, scratch):
    scratch[...] = x_ref[...] * x_ref[...]
    o_ref[...] = scratch[...] * x_ref[...]


def in_a_scope(x_ref, o_ref):
    def scope(scratch):
        scratch[...] = x_ref[...] * x_ref[...]
        o_ref[...] = scratch[...] * x_ref[...]

    pl.run_scoped(scope, pltpu.VMEM((16, 16), X.dtype))


def row_by_row(x_ref, o_ref):
    def row(i, total):
        o_ref[pl.ds(i, 1), :] = jnp.exp(x_ref[pl.ds(i, 1), :]) * total
        return total + jnp.sum(x_ref[pl.ds(i, 1), :] ** 2)

    jax.lax.fori_loop(0, 16, row, jnp.asarray(1.0))


def rows_by_row(x):
    totals = 1.0 + jnp.cumsum(jnp.sum(x**2, 1)) - jnp.sum(x**2, 1)
    return jnp.exp(x) * totals[:, None]


def powers(n_ref, x_ref, o_ref):
    o_ref[...] = jax.lax.fori_loop(0, n_ref[0], lambda i, y: y * x_ref[...], x_ref[...])


def with_rules(f, x_ref, o_ref):
    o_ref[...] = f(x_ref[...])
    o_ref[...] += jax.lax.fori_loop(0, 2, lambda i, y: f(y), o_ref[...])

    @pl.when(pl.program_id(0) == 0)
    def _():
        o_ref[...] *= jax.jit(f)(x_ref[...])


def without_a_kernel(f, x):
    y = f(x)
    return (y + f(f(y))) * jnp.concatenate([f(x[:8]), jnp.ones((8, 16))])


def by_index(n, x):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2,),
        in_specs=[pl.BlockSpec((8, 16), lambda i, n: (n[i], 0))],
        out_specs=pl.BlockSpec((8, 16), lambda i, n: (i, 0)),
    )

    def kernel(n_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] ** 3

    return call(kernel, grid_spec=spec)(n, x)


class Case(NamedTuple):
    with_kernel: Callable[..., jax.Array]
    same: Callable[..., jax.Array]
    args: tuple[np.ndarray, ...] = (X,)


blocks = [pl.BlockSpec((8, 8), f) for f in (lambda i, j, k: (i, k), lambda i, j, k: (k, j))]
CASES = {
    "two operands": Case(call(product), lambda x, y: jnp.sin(x) * y, (X, Y)),
    "a grid": Case(
        call(product, grid=(2,), in_specs=[ROWS] * 2, out_specs=ROWS),
        lambda x, y: jnp.sin(x) * y,
        (X, Y),
    ),
    "sums over a grid": Case(
        call(
            matmul,
            grid=(2, 2, 2),
            in_specs=blocks,
            out_specs=pl.BlockSpec((8, 8), lambda i, j, k: (i, j)),
        ),
        lambda x, y: jnp.tanh(x) @ y,
        (X, Y),
    ),
    "a grid that does not divide": Case(
        call(
            lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] ** 3),
            grid=(2,),
            in_specs=[pl.BlockSpec((11, 16), lambda i: (i, 0))],
            out_specs=pl.BlockSpec((11, 16), lambda i: (i, 0)),
        ),
        lambda x: x**3,
    ),
    "a weight, and a grid that does not divide": Case(
        call(
            lambda x_ref, w_ref, o_ref: o_ref.__setitem__(..., jnp.log(x_ref[...]) * w_ref[...]),
            grid=(2,),
            in_specs=[
                pl.BlockSpec((11, 16), lambda i: (i, 0)),
                pl.BlockSpec((1, 16), lambda i: (0, 0)),
            ],
            out_specs=pl.BlockSpec((11, 16), lambda i: (i, 0)),
        ),
        lambda x, w: jnp.log(x) * w,
        (X, Y[:1]),
    ),
    "a weight, and blocks that are padded": Case(
        call(
            with_the_rows_before,
            grid=(4,),
            in_specs=[
                pl.BlockSpec((pl.Element(6, (2, 0)), pl.Element(16)), lambda i: (4 * i, 0)),
                pl.BlockSpec((1, 16), lambda i: (0, 0)),
            ],
            out_specs=pl.BlockSpec((4, 16), lambda i: (i, 0)),
        ),
        lambda x, w: x * w + jnp.concatenate([jnp.zeros((4, 16)), x[2:14] * w]),
        (X, Y[:1]),
    ),
    "a padding of its own": Case(
        call(
            lambda x_ref, o_ref: o_ref.__setitem__(
                ..., jnp.pad(x_ref[4:, :], ((4, 0), (0, 0))) * x_ref[...]
            )
        ),
        lambda x: jnp.concatenate([jnp.zeros((4, 16)), x[4:] ** 2]),
    ),
    "scratch": Case(
        call(in_scratch, scratch_shapes=[pltpu.VMEM((16, 16), X.dtype)]), lambda x: x**3
    ),
    "a scope": Case(call(in_a_scope), lambda x: x**3),
    "an alias": Case(
        call(
            lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] ** 2),
            input_output_aliases={0: 0},
        ),
        lambda x: x**2,
    ),
    "a loop": Case(call(row_by_row), rows_by_row),
    "a loop of unknown length": Case(partial(call(powers), np.array([3])), lambda x: x**4),
    "blocks by an index": Case(
        partial(by_index, np.array([1, 0])), lambda x: jnp.concatenate([x[8:], x[:8]]) ** 3
    ),
    "a batch of kernels": Case(
        jax.vmap(call(product, out_shape=jax.ShapeDtypeStruct((16,), X.dtype))),
        lambda x, y: jnp.sin(x) * y,
        (X, Y),
    ),
    "a custom_jvp": Case(
        call(partial(with_rules, steep), grid=(2,), in_specs=[ROWS], out_specs=ROWS),
        partial(without_a_kernel, steep),
    ),
    "a custom_vjp": Case(
        call(partial(with_rules, tall), grid=(2,), in_specs=[ROWS], out_specs=ROWS),
        partial(without_a_kernel, tall),
    ),
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_derivatives_of_kernels(case):
    positions = tuple(range(len(case.args)))

    def kernel(*args):
        return jnp.sum(case.with_kernel(*args) ** 2)

    def same(*args):
        return jnp.sum(case.same(*args) ** 2)

    assert_agrees(case.with_kernel(*case.args), case.same(*case.args))
    for position in positions:
        found = pb.value_and_grad(kernel, position)(*case.args)
        assert_agrees(found, pb.value_and_grad(same, position)(*case.args))
    tangents = [np.cos(x) for x in case.args]
    found = pb.jvp(kernel, case.args, tuple(tangents))
    assert_agrees(found, pb.jvp(same, case.args, tuple(tangents)))
    found = pb.jvp(pb.grad(kernel, positions), case.args, tuple(tangents))
    assert_agrees(found, pb.jvp(pb.grad(same, positions), case.args, tuple(tangents)))


@pytest.mark.parametrize("case", ["a grid", "sums over a grid", "a loop", "a batch of kernels"])
def test_the_oracle_is_jax_where_no_rule_is_in_it(case):
    case = CASES[case]
    expected = jax.grad(lambda *args: jnp.sum(case.same(*args) ** 2))(*case.args)
    found = pb.grad(lambda *args: jnp.sum(case.with_kernel(*args) ** 2))(*case.args)
    assert_agrees(found, expected)


def test_what_is_outside_of_an_array_is_nan_and_so_are_its_derivatives():
    block = pl.BlockSpec((11, 16), lambda i: (i, 0))
    sums = call(
        lambda x_ref, w_ref, o_ref: o_ref.__setitem__(
            ..., jnp.sum(x_ref[...] * w_ref[...], 0, keepdims=True)
        ),
        out_shape=jax.ShapeDtypeStruct((2, 16), X.dtype),
        grid=(2,),
        in_specs=[block, pl.BlockSpec((1, 16), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((1, 16), lambda i: (i, 0)),
    )
    expected = np.stack([np.sum(X[:11], 0), np.full(16, np.nan)])
    weights = np.ones((1, 16))
    assert_agrees(pb.trace(sums)(X, weights)(X, weights), sums(X, weights))
    found = pb.jvp(lambda w: sums(X, w), (weights,), (weights,))
    assert_agrees(found, (expected, expected))
    assert np.isnan(pb.grad(lambda w: jnp.sum(sums(X, w)[1]))(weights)).all()


@pytest.mark.usefixtures("interpreted")
def test_gradients_of_a_batch():
    batch = np.stack([X, Y]), np.stack([Y, X])
    gradient = pb.grad(lambda x, y: jnp.sum(CASES["a grid"].with_kernel(x, y)))
    assert_agrees(pb.vmap(gradient)(*batch), np.cos(batch[0]) * batch[1])
    assert_agrees(jax.jit(jax.vmap(gradient))(*batch), np.cos(batch[0]) * batch[1])


# --------------------------------------------------------------------- rules made of kernels


def ours(x_ref, y_ref, ct_ref, x_ct_ref, y_ct_ref):
    x_ct_ref[...] = 3.0 * ct_ref[...] * y_ref[...]
    y_ct_ref[...] = ct_ref[...] * jnp.sin(x_ref[...])


@pytest.mark.parametrize("rows", [16, 8, 11])
def test_a_rule_made_of_kernels_is_the_derivative(rows):
    block = pl.BlockSpec((rows, 16), lambda i: (i, 0))
    blocks = {"grid": (-(-16 // rows),), "in_specs": [block] * 2, "out_specs": block}
    f = jax.custom_vjp(call(product, **blocks))
    blocks |= {"in_specs": [block] * 3, "out_specs": (block, block)}
    backward = call(ours, out_shape=(LIKE_X, LIKE_X), **blocks)
    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda xy, ct: tuple(backward(*xy, ct)))
    ct = np.cos(X)
    assert_agrees(pb.vjp(f, X, Y)[1](ct), (3.0 * ct * Y, ct * np.sin(X)))
    assert_agrees(pb.jvp(f, (X, Y), (ct, X))[1], 3.0 * Y * ct + np.sin(X) * X)


@pytest.fixture(params=["tpu", "cuda"])
def elsewhere(request):
    """A platform whose kernels JAX compiles where no such device is."""
    try:
        jax.export.export(jax.jit(on_rows()), platforms=(request.param,))(ON_ROWS, ON_ROWS)
    except RuntimeError as error:  # with jax 0.12, kernels for GPUs need one
        pytest.skip(str(error))
    return request.param


ON_ROWS = np.ones((64, 128), np.float32)
LIKE_ROWS = jax.ShapeDtypeStruct(ON_ROWS.shape, ON_ROWS.dtype)
as_jax_deprecates_it = pytest.mark.filterwarnings(
    "ignore:.*(Pallas|pallas_call):DeprecationWarning"
)


def on_rows():
    return pl.pallas_call(product, out_shape=LIKE_ROWS)


def kernels_in(program):
    """The platforms of the kernels in what XLA gets, and all of it."""
    text = str(program.run_passes("to-stablehlo").module)
    return re.findall(r"custom_call @.*?(tpu|gpu)", text), text


@as_jax_deprecates_it
def test_rules_made_of_kernels_for_other_devices(elsewhere):
    f = jax.custom_vjp(on_rows())
    backward = pl.pallas_call(ours, out_shape=(LIKE_ROWS, LIKE_ROWS))
    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda xy, ct: tuple(backward(*xy, ct)))
    program = pb.trace(lambda x, y: jnp.sum(f(x, y)), platforms=(elsewhere,))(ON_ROWS, ON_ROWS)
    found, text = kernels_in(program.grad())
    assert found == [elsewhere.replace("cuda", "gpu")]
    assert "while" not in text
    assert "sine" not in text


@as_jax_deprecates_it
def test_a_kernel_without_rules_is_loops_where_it_is_differentiated(elsewhere):
    program = pb.trace(on_rows(), platforms=(elsewhere,))(ON_ROWS, ON_ROWS)
    found, text = kernels_in(program.jvp())
    assert not found
    assert kernels_in(program)[0] == [elsewhere.replace("cuda", "gpu")]
    assert "cosine" in text


def test_a_kernel_that_is_not_interpreted_is_not_for_cpus():
    with pytest.raises(ValueError, match="Only interpret mode is supported on CPU"):
        pb.grad(lambda x: jnp.sum(on_rows()(x, x)))(ON_ROWS)


# ------------------------------------------------------------------------------------ errors


def test_a_rule_in_a_kernel_that_takes_a_reference_is_an_error():
    read = jax.custom_jvp(lambda ref: ref[...])
    read.defjvp(lambda primals, tangents: (primals[0][...], tangents[0][...]))
    f = call(lambda x_ref, o_ref: o_ref.__setitem__(..., read(x_ref)))
    with pytest.raises(pb.MissingRuleError) as caught:
        pb.grad(lambda x: jnp.sum(f(x)))(X)
    assert_says(
        caught.value,
        "no derivative of a kernel in which `custom_jvp_call` takes a reference",
        "hand its value to the function that has rules, as in f(x_ref[...])",
    )


def row_number(x):
    return x * pl.program_id(0)


def in_a_scope_of_its_own(x):
    def scope(scratch):
        scratch[...] = x
        return scratch[...]

    return pl.run_scoped(scope, pltpu.VMEM((8, 16), X.dtype))


def error_of_a_gradient_through(ruled):
    f = call(
        lambda x_ref, o_ref: o_ref.__setitem__(..., ruled(x_ref[...])),
        grid=(2,),
        in_specs=[ROWS],
        out_specs=ROWS,
    )
    with pytest.raises(pb.MissingRuleError) as caught:
        pb.grad(lambda x: jnp.sum(f(x)))(X)
    return caught.value


@pytest.mark.parametrize(
    ("function", "asked"), [(row_number, "program_id"), (in_a_scope_of_its_own, "run_scoped")]
)
def test_a_function_with_rules_that_is_for_kernels_only_is_an_error(function, asked):
    ruled = jax.custom_jvp(function)
    ruled.defjvp(lambda primals, tangents: (ruled(*primals), function(*tangents)))
    assert_says(
        error_of_a_gradient_through(ruled),
        f"no derivative of a kernel in which `custom_jvp_call` calls `{asked}`",
        f"call `{asked}` before it, and hand its value to the function that has rules",
    )


@pytest.mark.parametrize("asked", [pl.program_id, pl.num_programs])
def test_a_rule_that_asks_for_its_place_in_the_grid_is_an_error(asked):
    ruled = jax.custom_vjp(jnp.sin)
    ruled.defvjp(lambda x: (jnp.sin(x), ()), lambda _, ct: (ct * asked(0),))
    assert_says(
        error_of_a_gradient_through(ruled),
        "the vjp rule of `sin` asks where in the grid of a kernel it is",
        "call program_id or num_programs before it, and hand the number to the function",
    )


@pytest.mark.filterwarnings("ignore:.*(core_map|create_tensorcore_mesh):DeprecationWarning")
def test_a_core_map_is_an_error():
    def f(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

        @pl.core_map(pltpu.create_tensorcore_mesh("core", num_cores=1))
        def _():
            pltpu.sync_copy(x_ref, y_ref)

        return y_ref[...]

    with pytest.raises(pb.PullbackError) as caught:
        pb.trace(f, platforms=("tpu",))(X)
    assert_says(
        caught.value,
        "cannot trace a `core_map`, a kernel that is handed mutable arrays (jax.Ref)",
        "call the kernel by pl.kernel, which takes arrays and returns them",
    )


@pytest.mark.parametrize("interpret", [True, False])
def test_a_kernel_for_devices_only_is_an_error(interpret):
    def randomly(x_ref, o_ref):
        pltpu.prng_seed(np.int32(0))
        o_ref[...] = x_ref[...]

    x = X.astype(np.float32)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    f = pl.pallas_call(randomly, out_shape=like, interpret=interpret)
    with pytest.raises(pb.MissingRuleError) as caught:
        pb.trace(f, platforms=("tpu",))(x).vjp()
    assert_says(
        caught.value,
        "no derivative of a kernel with a `prng_seed`, which is for devices only",
        "wrap the kernel in jax.custom_vjp or jax.custom_jvp: its rule may be a kernel",
    )


def test_an_emulated_device_is_an_error():
    f = call(product, interpret=pltpu.InterpretParams())
    with pytest.raises(pb.PullbackError) as caught:
        pb.grad(lambda x: jnp.sum(f(x, x)))(X)
    assert_says(
        caught.value,
        "cannot trace a kernel that calls of Python emulate, in their order",
        "say interpret=True in pallas_call instead, outside of force_tpu_interpret_mode",
    )


def assert_says(error, what, do):
    first, where, last = str(error).split("\n")
    assert first == what
    assert re.fullmatch(r"  where: .*test_kernels\.py:\d+.*", where)
    assert last == f"  do:    {do}"
