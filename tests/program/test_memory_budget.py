"""Derivatives within a memory budget: what XLA allocates, the numbers, and the work."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import pullback as pb
from pullback import _jax
from pullback.autodiff import checkpoints
from pullback.autodiff.state import Differentiation
from pullback.ir import costs
from pullback.ir.modules import clone, entry_of
from pullback.ir.regions import operations
from pullback.ir.symbols import callee
from pullback.passes.checkpoint import estimates
from pullback.passes.inline_calls import InlineCalls
from pullback.passes.manager import run_stages, verify_module
from pullback.program import memory_budget

W = jnp.sin(jnp.arange(256.0)).reshape(16, 16) / 4
X = jnp.cos(jnp.arange(128.0)).reshape(8, 16)
XS = jnp.sin(jnp.arange(100 * 16.0)).reshape(100, 16)


def scanned(w, x, xs):
    """Reads a row in each iteration and stacks one, forward and back."""

    def step(x, row):
        x = jnp.sin(x @ w) + jnp.tanh(x) * row
        return x, x[0]

    x, ys = lax.scan(step, x, xs)
    x, more = lax.scan(step, x, xs, reverse=True)
    return jnp.sum(x) + jnp.sum(ys * more)


def nested(w, x, xs):
    """A loop with a carry in a loop that counts down."""

    def outer(i, x):
        def inner(x, _):
            return jnp.sin(x @ w) + xs[99 - i], None

        return lax.scan(inner, x, None, length=20)[0]

    return jnp.sum(lax.fori_loop(0, 30, outer, x))


def unrolled(w, x, xs):
    for _ in range(24):
        x = jnp.sin(x @ w) + jnp.tanh(x) * xs[0]
    return jnp.sum(x * x)


@functools.cache
def program_of(f):
    return pb.trace(f)(W, X, XS)


def used(program):
    return program.compile().memory().temporaries


def flops(program):
    lowered = program.run_passes("lower-custom-derivatives")
    return sum(times * costs.flops(op) for op, times in costs.runs(lowered.module))


@pytest.mark.parametrize(
    ("f", "part", "runs"), [(scanned, 3, 1), (nested, 7, 1), (nested, 15, 2), (unrolled, 2, 1)]
)
def test_a_gradient_keeps_within_a_budget(f, part, runs):
    """It runs the function so many times more than the default does."""
    program = program_of(f)
    stored = program.grad((0, 1))
    budget = used(stored) // part
    fitting = program.grad((0, 1), memory=budget)
    assert used(fitting) <= budget
    assert flops(fitting) <= flops(stored) + (runs + 0.05) * flops(program)
    for ours, theirs in zip(fitting(W, X, XS), stored(W, X, XS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_what_runs_again_takes_a_copy_from_a_branch():
    """The XLA of jaxlib 0.10 merges it with the first run otherwise; that of 0.12 does not."""
    program = program_of(unrolled)
    fitting = program.grad((0, 1), memory=used(program.grad((0, 1))) // 2)
    calls = [op for op in operations(entry_of(fitting.module)[1]) if op.name == "func.call"]
    again = [call for call in calls if callee(call).endswith(".again")]
    assert again
    for call in again:
        assert "stablehlo.if" in {value.owner.name for value in call.operands}


def test_a_default_that_fits_is_left_alone():
    program = program_of(scanned)
    assert (
        str(program.grad(memory="1GB"))
        == str(program.grad())
        == str(program.grad(memory="min-cut"))
    )


@pytest.mark.parametrize("lengths", [(10,), (30,), (50, 10), (34, 9, 2), (99,)])
def test_a_loop_in_blocks_computes_the_same(lengths):
    """Blocks that fill the loop and blocks that leave some over, and blocks of blocks."""
    program = program_of(scanned)
    module = clone(program.module)
    with _jax.working_in(module), Differentiation(module, program.rules) as diff:
        InlineCalls().run(module, program.rules)
        for operation in operations(diff.block("main")):
            if operation.name == "stablehlo.while":
                checkpoints.split(diff, operation, lengths)
    verify_module(module)
    in_blocks = program.with_module(module)
    np.testing.assert_allclose(in_blocks(W, X, XS), program(W, X, XS), rtol=1e-6)
    pairs = zip(in_blocks.grad((0, 1, 2))(W, X, XS), program.grad((0, 1, 2))(W, X, XS), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("start", "step"),
    [(3, 1), (7, 2), (500, -3), (np.int8(100), np.int8(-128)), (np.uint8(3), np.uint8(249))],
)
def test_counters_of_a_loop_in_blocks(start, step):
    """They are computed of the number of the iteration, and final where the loop ends.

    One of few bits wraps around on the way.
    """

    def f(x):
        def body(carry):
            k, i, x = carry
            return k + 1, i + step, jnp.sin(x) * i / 100

        _, i, x = lax.while_loop(lambda carry: carry[0] < 50, body, (0, start, x))
        return x * i

    program = pb.trace(f)(1.5)
    least = program.grad(memory="recompute")
    np.testing.assert_allclose(least(1.5), program.grad()(1.5), rtol=1e-5)


def test_rows_that_a_wrapping_counter_reads_are_no_block():
    rows = jnp.sin(jnp.arange(400.0)).reshape(400, 1)

    def f(rows, x):
        def body(carry):
            k, i, x = carry
            start = lax.convert_element_type(i, jnp.int32) + 140, jnp.int32(0)
            row = lax.dynamic_slice(rows, start, (1, 1), allow_negative_indices=False)
            return k + 1, i + jnp.int8(1), jnp.sin(x) + row[0, 0]

        return lax.while_loop(lambda carry: carry[0] < 200, body, (0, jnp.int8(50), x))[2]

    program = pb.trace(f)(rows, 1.5)
    least = program.grad(memory="recompute")(rows, 1.5)
    np.testing.assert_allclose(least, program.grad()(rows, 1.5), atol=1e-6)


def _with_callback(fwd, result):
    """Return a function with a rule whose forward function runs a callback."""
    sine = jax.custom_vjp(jnp.sin)
    sine.defvjp(lambda x: (jnp.sin(x), (x, fwd(x))), lambda kept, ct: (result(ct, *kept),))

    def f(x):
        x = lax.fori_loop(0, 8, lambda _, x: sine(x), x)
        for _ in range(8):
            x = sine(x)
        return jnp.sum(x)

    return f


def test_an_effect_of_a_rule_happens_once():
    seen = []
    f = _with_callback(lambda x: jax.debug.callback(seen.append, x[0]), lambda ct, *_: 2 * ct)
    np.testing.assert_array_equal(pb.grad(f, memory="recompute")(jnp.ones(4)), 2.0**16)
    jax.effects_barrier()
    assert len(seen) == 16


def test_a_result_of_a_callback_in_a_rule_is_not_asked_for_again():
    def fwd(x):
        return jax.experimental.io_callback(np.sin, x, x)

    f = _with_callback(fwd, lambda ct, x, y: ct * y)
    with pytest.raises(pb.MissingRuleError, match="of a checkpoint of a memory budget with"):
        pb.grad(f, memory="recompute")(jnp.ones(4))


def test_an_impossible_budget_says_what_is_possible():
    with pytest.raises(pb.MemoryBudgetError, match="no schedule needs 5 bytes") as caught:
        program_of(scanned).grad(memory=5)
    assert "by default it stores" in caught.value.where
    assert "test_memory_budget.py" in caught.value.where
    least = int(caught.value.do.partition("memory=")[2].partition(" ")[0])
    assert used(program_of(scanned).grad(memory=least)) <= least


@pytest.mark.parametrize(
    "memory", ["8 apples", "", "0.1", -1, 0, True, 1.5, np.ones(2, int), "most"]
)
def test_what_is_no_budget_is_refused(memory):
    said = re.escape(f"memory={memory!r} is no number of bytes, and no schedule")
    with pytest.raises(pb.ArgumentMismatchError, match=said):
        pb.grad(unrolled, memory=memory)


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        ("8MB", 8_000_000),
        ("8 MiB", 8 << 20),
        ("1.5k", 1500),
        ("2gb", 2 * 10**9),
        (77, 77),
        (np.int32(7), 7),
    ],
)
def test_sizes_are_read(memory, size):
    assert memory_budget.read(memory) == size


def test_a_budget_needs_sizes():
    (n,) = jax.export.symbolic_shape("n")
    program = pb.trace(lambda x: jnp.sum(jnp.sin(x)))(jax.ShapeDtypeStruct((n,), jnp.float32))
    with pytest.raises(pb.MemoryBudgetError, match="memory='1MB' needs sizes"):
        program.grad(memory="1MB")


def test_schedules_by_name():
    """A minimum cut stores less than all, and to recompute stores least."""

    def f(x):
        def step(x, _):
            return jnp.sin(jnp.exp(jnp.cos(x))) * x, None

        return jnp.sum(lax.scan(step, x, None, length=64)[0])

    program = pb.trace(f)(X)
    sizes = {
        name: program.split_vjp(memory=name).residuals().bytes
        for name in (None, "store", "min-cut", "recompute")
    }
    assert sizes[None] == sizes["min-cut"] < sizes["store"]
    assert sizes["recompute"] < sizes["min-cut"] / 4


def test_checkpoints_of_the_pass_are_in_a_file_too(tmp_path):
    """With what keeps XLA from merging the two runs of a segment."""
    program = program_of(unrolled)
    program.run_passes("checkpoint{bytes=12000}").save(tmp_path / "f.mlirbc")
    loaded = pb.load(tmp_path / "f.mlirbc")
    assert used(loaded.grad((0, 1))) < 0.7 * used(program.grad((0, 1)))


def test_a_split_counts_what_it_hands_over():
    program = program_of(scanned)
    whole = program.split_vjp()
    budget = whole.residuals().bytes // 3
    fitting = program.split_vjp(memory=budget)
    assert fitting.residuals().bytes + max(map(used, fitting)) <= budget
    _, residuals = fitting.forward(W, X, XS)
    for ours, theirs in zip(
        fitting.linear(residuals, jnp.float32(1)), program.grad((0, 1, 2))(W, X, XS), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@jax.custom_vjp
def doubled(x):
    return jnp.sin(x)


doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * ct * jnp.cos(x),))


def with_a_rule(x):
    return jnp.sum(lax.scan(lambda x, _: (doubled(x) + x / 2, None), x, None, length=256)[0])


def test_rules_inside_hold_and_the_gradient_can_be_derived_and_batched_and_saved(tmp_path):
    x = X[0]
    stored = jax.grad(with_a_rule)
    least = pb.grad(with_a_rule, memory="recompute")
    np.testing.assert_allclose(least(x), stored(x), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(least)(X), jax.vmap(stored)(X), rtol=1e-5)
    hessian = pb.jacfwd(pb.grad(lambda x: jnp.sum(jnp.sin(unrolled(W, x, XS))), memory="recompute"))
    expected = jax.hessian(lambda x: jnp.sum(jnp.sin(unrolled(W, x, XS))))(X)
    np.testing.assert_allclose(hessian(X), expected, rtol=1e-3, atol=1e-3)
    pb.trace(with_a_rule)(x).save(tmp_path / "f.mlirbc")
    loaded = pb.load(tmp_path / "f.mlirbc")
    budget = int(used(loaded.grad()) / 1.5)
    assert used(loaded.grad(memory=budget)) <= budget
    np.testing.assert_allclose(loaded.grad(memory=budget)(x), stored(x), rtol=1e-5)


def test_functions_take_a_budget():
    """As `pb.grad`, `pb.value_and_grad` and `pb.vjp`, also in a jitted function."""
    expected = jax.grad(scanned)(W, X, XS)
    for f in (
        pb.grad(scanned, memory="100kB"),
        lambda *args: pb.value_and_grad(scanned, memory="100kB")(*args)[1],
        lambda *args: pb.vjp(scanned, *args, memory="100kB")[1](jnp.float32(1))[0],
    ):
        np.testing.assert_allclose(jax.jit(f)(W, X, XS), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("ordered", [False, True])
def test_loops_with_effects_stay_whole(ordered):
    """A checkpoint cannot run them again: they give another result."""

    def count():
        seen.append(1)
        return np.float32(len(seen))

    def f(x):
        def step(x, _):
            number = io_callback(count, jax.ShapeDtypeStruct((), "float32"), ordered=ordered)
            return jnp.sin(x) + 0 * lax.stop_gradient(number), None

        return lax.scan(step, x, None, length=40)[0]

    seen: list[int] = []
    pb.grad(f, memory="recompute")(1.0)
    jax.effects_barrier()
    assert len(seen) == 40


def test_the_search_takes_no_longer_for_long_loops_and_many_branches():
    """Before, it would not have ended."""

    def branch(x, k):
        for _ in range(12):
            x = jnp.sin(k * x) * jnp.exp(x)
        return x

    branches = [functools.partial(branch, k=k) for k in range(12)]

    def f(x):
        x = lax.fori_loop(0, 10**9, lambda _, x: jnp.sin(x), x)
        return lax.fori_loop(0, 30, lambda i, x: lax.switch(i % 12, branches, x), x)

    assert "@block" in str(pb.trace(f)(1.0).grad(memory="recompute"))


def _turned(x):
    return 0.9 * x + jnp.sin(x @ W) / 8


def _curved(x):
    for _ in range(3):
        x = 0.99 * x + jnp.tanh(x) * x / 64
    return x


def _shifted(x):
    return x + jnp.cos(x) / 8


def _scanned(step, x):
    return jnp.sum(lax.scan(lambda x, i: (step(x, i), None), x, jnp.arange(100))[0] ** 2)


def scan_of_a_cond(x):
    return _scanned(lambda x, i: lax.cond(i % 2 == 0, _turned, _curved, x), x)


def scan_of_where(x):
    return _scanned(lambda x, i: jnp.where(i % 2 == 0, _turned(x), _curved(x)), x)


def scan_of_a_switch(x):
    branches = [_turned, lambda x: lax.cond(x[0, 0] > 0, _turned, _curved, x), _shifted]
    return _scanned(lambda x, i: lax.switch(i % 3, branches, x), x)


def scan_of_a_loop_that_reads_the_state(x):
    """As a carry that the inner loop does not change."""

    def step(x, _):
        z = lax.fori_loop(0, 3, lambda _, z: z + jnp.sin(x @ z) @ x / 32, x[0])
        return 0.98 * x + jnp.sin(z) / 64

    return _scanned(step, x)


def conds_in_a_row(x):
    for _ in range(20):
        x = lax.cond(x[0, 0] > 0, _turned, _curved, x)
    return jnp.sum(x**2)


def wheres_in_a_row(x):
    for _ in range(20):
        x = jnp.where(x[0, 0] > 0, _turned(x), _curved(x))
    return jnp.sum(x**2)


FITTING = [
    (scan_of_a_cond, scan_of_where),
    (scan_of_a_switch, scan_of_where),
    (scan_of_a_loop_that_reads_the_state, scan_of_where),
    (conds_in_a_row, wheres_in_a_row),
]


@pytest.mark.parametrize(("f", "like"), FITTING)
def test_what_branches_and_inner_loops_read_is_computed_again(f, like):
    """It then needs about as little as the same function does with `jnp.where`."""
    program, other = pb.trace(f)(X), pb.trace(like)(X)
    stored, least, others = (
        each.split_vjp(memory=name).residuals().bytes
        for each, name in ((program, None), (program, "recompute"), (other, "recompute"))
    )
    assert least <= others < stored / 4
    budget = int(1.25 * used(other.grad(memory="recompute")))
    fitting = program.grad(memory=budget)
    assert used(fitting) <= budget < used(program.grad())
    expected = jax.grad(f)(X)
    np.testing.assert_allclose(fitting(X), expected, rtol=2e-5, atol=1e-5 * jnp.max(abs(expected)))


@pytest.mark.parametrize("f", [f for f, _ in FITTING])
def test_the_estimate_is_what_the_table_says(f):
    """Branches share what they store; that of the last op, in place, is not in the table."""
    program = pb.trace(f)(X)
    module = clone(program.module)
    run_stages(module, memory_budget.PREPARE, program.rules)
    most, *_ = estimates(module, program.rules, (len(program.constants),))
    assert 0 <= most - program.split_vjp().residuals().bytes < 2 * X.nbytes


def test_an_impossible_budget_names_the_lines_of_branches():
    with pytest.raises(pb.MemoryBudgetError, match="no schedule needs 5 bytes") as caught:
        pb.trace(scan_of_a_cond)(X).grad(memory=5)
    assert re.search(r"51.2 kB at \S*test_memory_budget.py:\d+, in _turned", caught.value.where)
    least = int(re.match(r"give memory=(\d+) or more", caught.value.do)[1])
    program = pb.trace(scan_of_a_cond)(X)
    assert used(program.grad(memory=least)) <= least < used(program.grad()) / 4
