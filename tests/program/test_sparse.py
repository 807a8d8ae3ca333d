"""Sparse Jacobians and Hessians: patterns, colors, values, programs and files."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import sparse
from jax.flatten_util import ravel_pytree

import pullback as pb
import pullback_runtime
from pullback.autodiff.coloring import color_columns, color_symmetric, readable
from pullback.ir.index_sets import IndexSets
from pullback_runtime.files import _pattern


@pytest.fixture(autouse=True)
def in_64_bits():
    with jax.enable_x64(True):
        yield


def points(size, count=3):
    return [jax.random.normal(jax.random.key(i), (size,)) for i in range(count)]


def positions(pattern):
    return set(zip(pattern.rows.tolist(), pattern.cols.tolist(), strict=True))


def dense_positions(derivative, size):
    """Where a dense derivative is not zero at random points, or not a number."""
    found = [np.asarray(derivative(x)).reshape(-1, size) for x in points(size)]
    return {(int(i), int(j)) for each in found for i, j in np.argwhere(each != 0)}


def matrix(pattern, values):
    found = np.zeros(pattern.shape)
    found[pattern.rows, pattern.cols] = values
    return found


SIZE = 8
EXACT = {
    "roll": lambda x: jnp.roll(x, 1) * x,
    "mask": lambda x: x * jnp.array([1.0, 0, 1, 0, 1, 1, 1, 0]),
    "triangle": lambda x: jnp.tril(jnp.ones((SIZE, SIZE))) @ x,
    "band": lambda x: (abs(jnp.arange(SIZE)[:, None] - jnp.arange(SIZE)) < 2) * 1.0 @ jnp.sin(x),
    "gather": lambda x: x[jnp.array([0, 5, 5, -1])] ** 2,
    "gather out of bounds": lambda x: jnp.take(x, jnp.array([0, 5, 9]), mode="fill", fill_value=0),
    "scatter": lambda x: x.at[jnp.array([0, 2])].set(x[3:5]),
    "scatter add": lambda x: x.at[jnp.array([0, 2])].add(x[3:5]),
    "segment sum": lambda x: jax.ops.segment_sum(x, jnp.arange(SIZE) // 2, 4),
    "scan": lambda x: lax.scan(lambda c, a: (jnp.sin(c) * a, c), 1.0, x)[1],
    "loop": lambda x: lax.fori_loop(0, 5, lambda i, c: c.at[i].set(c[i + 1] * c[i]), x),
    "map": lambda x: lax.map(lambda a: a * a, x),
    "cumsum": jnp.cumsum,
    "cumprod": jnp.cumprod,
    "associative scan": lambda x: lax.associative_scan(jnp.multiply, x),
    "convolution": lambda x: jnp.convolve(x, jnp.array([1.0, 2, 3]), mode="same"),
    "grouped, dilated convolution": lambda x: lax.conv_general_dilated(
        x.reshape(1, 2, 4),
        jnp.ones((4, 1, 2)),
        (2,),
        [(1, 1)],
        lhs_dilation=(2,),
        feature_group_count=2,
    ),
    "means of windows": lambda x: lax.reduce_window(x, 0.0, lax.add, (3,), (1,), "SAME"),
    "logsumexp": lambda x: jax.nn.logsumexp(x.reshape(2, 4), 1),
    "product": lambda x: jnp.prod(x.reshape(4, 2), 0),
    "matrix products": lambda x: jnp.einsum(
        "bij,bjk->bik", x.reshape(2, 2, 2), jnp.sin(x).reshape(2, 2, 2)
    ),
    "linear solves": lambda x: jax.vmap(
        lambda a: jnp.linalg.solve(jnp.eye(2) + jnp.outer(a, a), a)
    )(x.reshape(4, 2)),
    "mean": lambda x: x - jnp.mean(x),
    "norm": lambda x: x[:4] / jnp.linalg.norm(x[4:]),
    "difference": lambda x: jnp.diff(x) / x[1:],
    "outer": lambda x: jnp.outer(x[:3], x[3:]),
    "wrap": lambda x: jnp.pad(x, 1, mode="wrap"),
    "stop": lambda x: lax.stop_gradient(x) * x,
    "known triangle": lambda x: jnp.tril(x.reshape(2, 4)) @ jnp.ones(4),
    "constant": lambda x: jnp.ones(3) + 0 * x[0],
    "stencil": lambda x: (jnp.eye(SIZE, k=1) / 0.3 - jnp.sqrt(2.0) * jnp.eye(SIZE)) @ x,
    "whole numbers": lambda x: jnp.where(jnp.arange(1.0, 9.0) * 2 - 1 > 5, x, 0),
    "infinity": lambda x: jnp.where(1 / jnp.zeros(SIZE) > jnp.arange(SIZE), x, 0),
    "call": lambda x: jax.jit(lambda y: jnp.where(jnp.arange(SIZE) < 3, y, 0))(x),
}


def check_values(f, program):
    x = points(SIZE)[0]
    found, dense = matrix(program.pattern, program(x)), jax.jacfwd(f)(x).reshape(-1, SIZE)
    np.testing.assert_allclose(found, dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", EXACT.values(), ids=EXACT)
def test_the_pattern_of_a_jacobian_is_exact_and_so_are_values(f):
    program = pb.trace(f)(jnp.ones(SIZE)).sparse_jacobian()
    assert positions(program.pattern) == dense_positions(jax.jacfwd(f), SIZE)
    check_values(f, program)


MORE = {
    "sort": jnp.sort,
    "maximum": lambda x: jnp.max(x.reshape(2, 4), 1),
    "cumulative maximum": lax.cummax,
    "pooling": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID"),
    "branches": lambda x: lax.cond(x[0] > 0, lambda x: x[1:], lambda x: x[:-1], x),
    "switch": lambda x: (
        lax.switch(2, [jnp.sin, jnp.roll, jnp.cumsum], x)
        if False
        else lax.switch(jnp.argmax(x) % 2, [jnp.sin, jnp.cumsum], x)
    ),
    "while": lambda x: lax.while_loop(
        lambda c: jnp.sum(c**2) < 100, lambda c: c * 2 + jnp.roll(c, 1) * 0.1, x
    ),
    "slice at an argument": lambda x: lax.dynamic_slice(
        x.reshape(4, 2), (jnp.argmax(x) % 3, 0), (2, 2)
    ),
    "update at an argument": lambda x: lax.dynamic_update_slice(
        x.reshape(4, 2), x.reshape(4, 2)[:1], (jnp.argmax(x) % 3, 0)
    ),
    "gather at arguments": lambda x: x.reshape(4, 2)[jnp.argsort(x)[:3] // 2],
    "scatter at arguments": lambda x: jnp.zeros(SIZE).at[jnp.argsort(x)].add(x),
    "fft": lambda x: jnp.fft.fft(x.reshape(2, 4)).real,
    "triangular solve": lambda x: jax.scipy.linalg.solve_triangular(
        jnp.eye(2) + x.reshape(2, 2, 2), x.reshape(2, 2, 2)
    ),
    "cholesky": lambda x: jnp.linalg.cholesky(
        jnp.eye(2) + jax.vmap(jnp.outer)(x.reshape(4, 2), x.reshape(4, 2))
    ),
    "interpolation": lambda x: jnp.interp(jnp.linspace(0, 1, 3), jnp.linspace(0, 1, SIZE), x),
    "relu": jax.nn.relu,
}


@pytest.mark.parametrize("f", MORE.values(), ids=MORE)
def test_the_pattern_of_a_jacobian_has_all_that_depends(f):
    program = pb.trace(f)(jnp.ones(SIZE)).sparse_jacobian()
    assert positions(program.pattern) >= dense_positions(jax.jacfwd(f), SIZE)
    check_values(f, program)


COUNT = 200
ROUNDED = {
    "a fused product": lambda i: i * 0.1 - i / 10.0 == 0,
    "a reciprocal": lambda i: jnp.floor(i / 49.0 * 49.0) == i,
    "sines and cosines": lambda i: jnp.sin(i) ** 2 + jnp.cos(i) ** 2 == 1.0,
    "powers": lambda i: jnp.power(1.1, i).astype(int) % 2 == 0,
    "roots": lambda i: jnp.sqrt(i) ** 2 == i,
    "sums": lambda i: jnp.sum(jnp.outer(i, jnp.full(10, 0.1)), 1) == i,
    "fewer bits": lambda i: (i * 0.1).astype(jnp.float16).astype(float) > i * 0.1,
}


@pytest.mark.parametrize("mask", ROUNDED.values(), ids=ROUNDED)
def test_a_mask_that_rounding_decides_leaves_out_no_entry(mask):
    """XLA rounds otherwise than NumPy, and otherwise in another program."""
    f = lambda x: jnp.where(mask(jnp.arange(float(COUNT))), jnp.repeat(x, COUNT // SIZE), 0.0)  # noqa: E731
    program = pb.trace(f)(jnp.ones(SIZE)).sparse_jacobian()
    assert program.pattern.nnz == COUNT


LOSSES = {
    "chain": lambda x: jnp.sum((x[1:] - x[:-1] ** 2) ** 2),
    "squares": lambda x: jnp.sum(x**2),
    "scan": lambda x: lax.scan(lambda c, a: (a, jnp.sin(c * a)), 1.0, x)[1].sum(),
    "loop": lambda x: lax.fori_loop(0, 7, lambda i, c: c + x[i] * x[i + 1] ** 2, 0.0),
    "map": lambda x: lax.map(lambda a: a**3, x).sum(),
    "convolution": lambda x: jnp.sum(jnp.convolve(x, jnp.array([1.0, 2, 3]), mode="same") ** 2),
    "linear": lambda x: jnp.sum(3 * x),
    "gather": lambda x: jnp.sum(x[jnp.array([0, 3, 4])] * x[jnp.array([1, 2, 4])]),
    "logsumexp": lambda x: jax.nn.logsumexp(x.reshape(4, 2), 1).sum(),
    "product": jnp.prod,
    "quadratic": lambda x: x @ (jnp.eye(SIZE) + jnp.eye(SIZE, k=1)) @ x,
    "arrow": lambda x: jnp.sum(jnp.sin(x[0] * x)),
    "grid": lambda x: (
        jnp.sum(jnp.diff(x.reshape(2, 4), axis=0) ** 4)
        + jnp.sum(jnp.diff(x.reshape(2, 4), axis=1) ** 4)
    ),
}


@pytest.mark.parametrize("f", LOSSES.values(), ids=LOSSES)
def test_the_pattern_of_a_hessian_is_exact_and_so_are_values(f):
    program = pb.trace(f)(jnp.ones(SIZE)).sparse_hessian()
    assert positions(program.pattern) == dense_positions(jax.hessian(f), SIZE)
    x = points(SIZE)[0]
    dense = jax.hessian(f)(x)
    values = program(x)
    assert values.shape == (program.pattern.nnz,)
    np.testing.assert_allclose(matrix(program.pattern, values), dense, rtol=1e-12, atol=1e-12)


def test_sparse_derivatives_are_arrays_of_jax():
    f, x = LOSSES["chain"], points(SIZE)[0]
    hessian, jacobian = pb.sparse_hessian(f)(x), pb.sparse_jacobian(jnp.diff)(x)
    assert isinstance(hessian, sparse.BCOO)
    assert isinstance(jacobian, sparse.BCOO)
    assert (hessian.nse, jacobian.nse, jacobian.shape) == (22, 14, (7, 8))
    np.testing.assert_allclose(hessian.todense(), jax.hessian(f)(x), rtol=1e-12)
    np.testing.assert_allclose(jacobian.todense(), jax.jacfwd(jnp.diff)(x), rtol=1e-12)


def test_a_chain_takes_three_colors_a_grid_five_and_an_arrow_two():
    def grid(x):
        u = x.reshape(20, 20)
        return jnp.sum(jnp.diff(u, axis=0) ** 4) + jnp.sum(jnp.diff(u, axis=1) ** 4)

    cases = {LOSSES["chain"]: (100, 3), grid: (400, 5), LOSSES["arrow"]: (100, 2)}
    for f, (size, colors) in cases.items():
        pattern = pb.trace(f)(jnp.ones(size)).sparse_hessian().pattern
        assert (pattern.num_colors, pattern.compressed) == (colors, "symmetric")


def test_a_jacobian_is_compressed_along_what_takes_fewer_colors():
    x = jnp.ones(SIZE)
    wide, tall = (lambda x: jnp.sum(x)[None] ** 2), (lambda x: jnp.outer(x[:1], x[:4]).ravel())
    assert pb.trace(wide)(x).sparse_jacobian().pattern.compressed == "rows"
    assert pb.trace(lambda x: x**2)(x).sparse_jacobian().pattern.compressed == "columns"
    assert pb.trace(tall)(x).sparse_jacobian().pattern.num_colors == 2


@jax.custom_jvp
def coupled(x):
    return x**2


@coupled.defjvp
def _(primals, tangents):
    return coupled(*primals), jnp.roll(tangents[0], 1) * primals[0]


@jax.custom_vjp
def backward_only(x):
    return x**2


backward_only.defvjp(lambda x: (backward_only(x), x), lambda x, ct: (jnp.clip(ct, -1, 1) * 3 * x,))


def test_a_custom_rule_counts_and_not_its_function():
    x = points(SIZE)[0]
    found = pb.sparse_jacobian(coupled)(x)
    np.testing.assert_allclose(found.todense(), jax.jacfwd(coupled)(x), rtol=1e-12)
    assert sorted(map(tuple, found.indices.tolist())) == [(i, (i - 1) % SIZE) for i in range(SIZE)]


def test_a_rule_that_is_not_linear_is_run_backward():
    x = points(SIZE)[0]
    program = pb.trace(lambda x: backward_only(x))(x).sparse_jacobian()
    assert program.pattern.compressed == "rows"
    np.testing.assert_allclose(matrix(program.pattern, program(x)), np.diag(3 * x), rtol=1e-12)


def test_trees_are_flattened_in_order_and_integers_have_no_derivative():
    def f(x, y):
        return {"n": jnp.arange(3), "a": jnp.sum(x["u"]) * y, "b": x["v"] ** 2, "z": x["u"].sum()}

    x = points(SIZE)[0]
    args = {"u": x[:3], "v": x[3:7].reshape(2, 2)}, x[:2]
    for argnums in (0, 1, (1, 0), (0, 1)):
        numbers = (argnums,) if isinstance(argnums, int) else argnums
        flat, unravel = ravel_pytree(tuple(args[i] for i in numbers))

        def of_flat(flat, numbers=numbers, unravel=unravel):
            given = list(args)
            for i, part in zip(numbers, unravel(flat), strict=True):
                given[i] = part
            return ravel_pytree(f(*given))[0]

        found = pb.sparse_jacobian(f, argnums)(*args)
        np.testing.assert_allclose(found.todense(), jax.jacfwd(of_flat)(flat), rtol=1e-12)


def test_a_hessian_by_several_arguments_and_with_keywords():
    def f(x, y, *, scale):
        return scale * jnp.sum(x * y[0] ** 2)

    x, y = points(3)[0], points(2)[1]
    program = pb.trace(f)(x, y, scale=2.0).sparse_hessian((0, 1))
    (xx, xy), (yx, yy) = jax.hessian(lambda x, y: f(x, y, scale=2.0), (0, 1))(x, y)
    found = matrix(program.pattern, program(x, y, scale=2.0))
    np.testing.assert_allclose(found, np.block([[xx, xy], [yx, yy]]), rtol=1e-12)


def test_a_sparse_program_can_be_differentiated_and_batched_without_its_pattern():
    x = points(SIZE)[0]
    program = pb.trace(LOSSES["chain"])(x).sparse_hessian()
    assert program.run_passes("cse").pattern is program.pattern
    assert program.jvp().pattern is None
    batch = program.vmap(axis_size=2)
    assert batch.pattern is None
    np.testing.assert_allclose(batch(jnp.stack([x, x]))[1], program(x), rtol=1e-12)
    third = jax.jacfwd(jax.hessian(LOSSES["chain"]))(x)[program.pattern.rows, program.pattern.cols]
    np.testing.assert_allclose(jax.jacfwd(program)(x), third, rtol=1e-12, atol=1e-12)


def test_what_depends_on_small_seeds_alone_is_computed_ahead(monkeypatch):
    def make():
        return pb.trace(lambda x: jnp.roll(x, 1) - 3 * x)(x)

    x = points(SIZE * SIZE)[0]
    small = make().sparse_jacobian()
    monkeypatch.setattr("pullback.api.sparse.LARGEST_MASK", 2 * SIZE * SIZE - 1)
    large = make().sparse_jacobian()
    assert_same_pattern(small.pattern, large.pattern)
    np.testing.assert_array_equal(small(x), large(x))
    assert ["iota" in str(each) for each in (small, large)] == [False, True]
    assert ["subtract" in each.compile().hlo() for each in (small, large)] == [False, True]


def test_a_sparse_derivative_under_jit_and_of_an_array_that_is_closed_over():
    weights = jnp.tril(points(SIZE * SIZE)[0].reshape(SIZE, SIZE))
    f = lambda x: weights @ x**2  # noqa: E731
    x = points(SIZE)[0]
    found = jax.jit(pb.sparse_jacobian(f))(x)
    assert found.nse == SIZE * (SIZE + 1) // 2
    np.testing.assert_allclose(found.todense(), jax.jacfwd(f)(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("derive", "f", "argnums", "words"),
    [
        (pb.sparse_hessian, lambda x: x, 0, "Gradient only defined for scalar-output functions"),
        (pb.sparse_jacobian, lambda x: x + 1j, 0, "sparse_jacobian is of real numbers, but result"),
        (pb.sparse_jacobian, lambda x: x, 1, "argnums=1 requires at least 2 positional arguments"),
    ],
)
def test_what_has_no_sparse_derivative_is_an_error(derive, f, argnums, words):
    with pytest.raises(pb.PullbackError, match=words):
        derive(f, argnums)(jnp.ones(3))


def test_an_integer_argument_is_an_error():
    with pytest.raises(pb.DerivativeTypeError, match=r"sparse_jacobian requires .* x is int64"):
        pb.sparse_jacobian(lambda x: x * 2.0)(jnp.arange(3))


def test_too_dense_a_pattern_is_an_error(monkeypatch):
    monkeypatch.setattr("pullback.ir.index_sets.MOST_MEMBERS", 1000)
    with pytest.raises(pb.PullbackError, match=r"more than 1,000 non-zeros.*\n.*pb.jacfwd"):
        pb.sparse_jacobian(jnp.cumsum)(jnp.ones(100))


def test_check_pattern_compares_with_dense_derivatives():
    x = points(SIZE)[0]
    for f in (LOSSES["chain"], EXACT["scan"], coupled, backward_only):
        pb.testing.check_pattern(f, (x,))
    pb.testing.check_pattern(pb.trace(lambda x, y: x * y)(x, x), (x, x), argnums=(0, 1))
    words = r"the sparse Hessian is \S+ at \(1, 0\).*\n  where: at the arguments\n.*not symmetric"
    with pytest.raises(pb.PullbackError, match=words):
        pb.testing.check_pattern(lambda x: jnp.sum(coupled(x) ** 2), (x,))


# --------------------------------------------------------------------- colors and sets


@pytest.mark.parametrize("density", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("size", [1, 7, 40])
def test_colors_let_each_entry_be_read(size, density):
    chosen = np.random.default_rng(size).random((size, size)) < density
    rows, cols = np.nonzero(chosen)
    assert np.all(readable(rows, cols, color_columns(rows, cols, (size, size))))
    rows, cols = np.nonzero(chosen | chosen.T)
    direct = np.zeros((size, size), bool)
    direct[rows, cols] = readable(rows, cols, color_symmetric(rows, cols, size))
    assert np.all((direct | direct.T)[rows, cols])


def members(sets, number):
    return set(sets.members(np.array([number]))[0].tolist())


def test_unions_of_sets_of_indices():
    sets, rng = IndexSets(20), np.random.default_rng(0)
    ids = rng.integers(0, 21, 30)
    for _ in range(4):
        other = rng.permutation(ids)
        union = sets.union(ids, other)
        for x, y, found in zip(ids, other, union, strict=True):
            assert members(sets, found) == members(sets, x) | members(sets, y)
        ids = union
    along = sets.union_along(ids.reshape(5, 6), (1,))
    for row, found in zip(ids.reshape(5, 6), along.ravel(), strict=True):
        assert members(sets, found) == set().union(*(members(sets, i) for i in row))
    assert np.array_equal(sets.union(ids, ids), ids)
    assert np.array_equal(sets.union(along, ids.reshape(5, 6)), np.broadcast_to(along, (5, 6)))


# ------------------------------------------------------------------------------- files


@pytest.fixture
def saved(tmp_path):
    """A program of a Hessian, its file, and a point."""
    x = points(SIZE)[0]
    program = pb.trace(LOSSES["chain"])(x).sparse_hessian()
    program.save(tmp_path / "hessian.mlirbc")
    return program, tmp_path / "hessian.mlirbc", x


def assert_same_pattern(found, expected):
    for name in ("rows", "cols", "colors"):
        array = getattr(found, name)
        assert array.dtype == np.int32
        assert np.array_equal(array, getattr(expected, name))
    assert (found.shape, found.compressed) == (expected.shape, expected.compressed)


@pytest.mark.parametrize("load", [pb.load, pullback_runtime.load])
def test_a_file_keeps_the_pattern(load, saved):
    program, file, x = saved
    found = load(file)
    assert_same_pattern(found.pattern, program.pattern)
    np.testing.assert_allclose(found(x), program(x), rtol=1e-12)


def test_entries_of_a_file_have_patterns_of_their_own(tmp_path):
    x = points(SIZE)[0]
    f, h = pb.trace(LOSSES["chain"])(x), pb.trace(LOSSES["arrow"])(x).sparse_hessian()
    pb.save_all(tmp_path / "all.mlirbc", value=f, hessian=h, jacobian=f.grad().sparse_jacobian())
    entries = pb.load(tmp_path / "all.mlirbc").entries
    assert entries["value"].pattern is None
    assert_same_pattern(entries["hessian"].pattern, h.pattern)
    assert entries["jacobian"].pattern.compressed == "columns"
    assert pb.load(tmp_path / "all.mlirbc").pattern is None


def test_a_loaded_program_has_sparse_derivatives_by_its_rules(tmp_path):
    x = points(SIZE)[0]
    pb.trace(lambda x: jnp.sum(coupled(x) ** 2))(x).save(tmp_path / "f.mlirbc")
    loaded = pb.load(tmp_path / "f.mlirbc").grad().sparse_jacobian()
    dense = jax.jacfwd(jax.grad(lambda x: jnp.sum(coupled(x) ** 2)))(x)
    np.testing.assert_allclose(matrix(loaded.pattern, loaded(x)), dense, rtol=1e-12, atol=1e-12)


def test_a_file_has_its_pattern_without_jax(saved):
    program, file, _ = saved
    script = """
import sys
sys.modules["jax"] = sys.modules["jaxlib"] = None
import pullback_runtime
program = pullback_runtime.load(sys.argv[1])
print(program.pattern)
print(program.pattern.rows.tolist())
print(program.describe())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, file], capture_output=True, text=True, check=True
    )
    first, rows, *described = done.stdout.splitlines()
    assert first == "8 x 8, 22 non-zeros, 3 colors (symmetric)"
    assert rows == str(program.pattern.rows.tolist())
    assert f"pattern     {first}" in described


@pytest.mark.parametrize(
    "change", [{"rows": "eJw="}, {"cols": "%"}, {"shape": [2, 2]}, {"nnz": 3}, {"compressed": "x"}]
)
def test_a_damaged_pattern_is_an_error_of_ours(saved, change):
    described = _pattern.describe(saved[0].pattern)
    with pytest.raises(_pattern.ArtifactError, match="the file's metadata are damaged: pattern"):
        _pattern.of_metadata({"pattern": {**described, **change}})
