"""What reverse mode keeps: checkpoints recompute, loops grow linearly, unbounded ones nothing."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import pullback as pb
from pullback.autodiff.zeros import is_zero_constant
from pullback.ir.purity import is_used
from pullback_runtime._jax import operations_named

WIDTH = 16


def residual_bytes(f, *args) -> int:
    """Bytes that the forward half of the vjp hands to the backward half."""
    forward = pb.trace(f)(*args).split_vjp().forward
    results = len(jax.tree.leaves(jax.eval_shape(f, *args)))
    leaves = forward.out_avals[results:]
    return sum(int(np.prod(aval.shape)) * aval.dtype.itemsize for aval in leaves)


def temporaries(f, *args) -> int:
    return pb.trace(f)(*args).grad().compile("cpu").memory().temporaries


def layer(x, w):
    for _ in range(4):
        x = jnp.sin(x @ w)
    return x


def test_checkpoint_keeps_only_the_arguments_of_a_layer():
    def network(step):
        def f(ws, x):
            for w in ws:
                x = step(x, w)
            return x

        return f

    ws, x = [np.eye(WIDTH)] * 4, np.ones((64, WIDTH))
    plain, checkpointed = (
        residual_bytes(network(step), ws, x) for step in (layer, jax.checkpoint(layer))
    )
    inputs = sum(w.nbytes for w in ws) + 4 * x.astype(np.float32).nbytes
    assert checkpointed <= inputs + 64
    assert plain > 3 * checkpointed


def test_what_a_rule_gives_is_stored_once():
    """The rule for a sigmoid wants its result, and so does the product that it is a factor of."""

    def f(h, xs):
        return lax.scan(lambda h, x: (jax.nn.sigmoid(h + x) * x, None), h, xs)[0]

    h, xs = np.ones((64, WIDTH)), np.ones((10, 64, WIDTH))
    assert residual_bytes(f, h, xs) <= 2 * xs.astype(np.float32).nbytes + 64


POLICIES = jax.checkpoint_policies


def block(x, w):
    """Products inside of jitted functions, and a value with a name."""
    x = checkpoint_name(jnp.sin(jnp.einsum("ij,jk->ik", x, w)), "wave")
    return jnp.exp(-jnp.einsum("ij,jk->ik", x, w)) * x


def repeated(step):
    return lambda x, ws: lax.scan(lambda x, w: (step(x, w), None), x, ws)[0].sum()


def ops_of_gradient(f, *args, wrt=0) -> dict[str, int]:
    text = str(pb.trace(f)(*args).grad(wrt))
    return {name: text.count(f"stablehlo.{name} ") for name in ("dot_general", "sine")}


@pytest.mark.parametrize("loaded", [False, True], ids=["traced", "loaded"])
def test_a_policy_of_checkpoint_says_what_is_kept(loaded):
    x, ws = np.ones((4, WIDTH), np.float32), np.ones((2, WIDTH, WIDTH), np.float32) / WIDTH

    def kept(policy):
        f = repeated(jax.checkpoint(block, policy=policy))
        f = pb.load(pb.artifact.serialize(pb.trace(f)(x, ws))) if loaded else f
        expected = jax.grad(repeated(block))(x, ws)
        np.testing.assert_allclose(pb.grad(f)(x, ws), expected, rtol=1e-5)
        return residual_bytes(f, x, ws), ops_of_gradient(f, x, ws)

    nothing, all_again = kept(POLICIES.nothing_saveable)
    plain = ops_of_gradient(repeated(block), x, ws)
    assert kept(None) == (nothing, all_again)
    assert all_again["dot_general"] == plain["dot_general"] + 2
    assert all_again["sine"] > 1
    products, found = kept(POLICIES.dots_saveable)
    assert products == nothing + 2 * 2 * x.nbytes
    assert found["dot_general"] == plain["dot_general"]
    named, found = kept(POLICIES.save_only_these_names("wave"))
    assert named == nothing + 2 * x.nbytes
    assert found == {**all_again, "sine": 1}
    _, found = kept(POLICIES.everything_saveable)
    assert found == {**plain, "sine": 1}


def in_a_loop(x, ws):
    return lax.scan(lambda x, w: (block(x, w), None), x, ws)[0]


def in_a_loop_in_a_loop(x, ws):
    return lax.scan(lambda x, ws: (in_a_loop(x, ws), None), x, ws[:, None])[0]


@jax.jit
def in_a_function(x, ws):
    return block(jnp.cos(block(x, ws[0])), ws[1])


def wavy(f):
    return lambda *args: jnp.sum(jnp.sin(f(*args)))


@pytest.mark.parametrize("body", [in_a_loop, in_a_loop_in_a_loop, in_a_function])
def test_a_policy_says_what_is_kept_of_loops_and_of_functions_that_are_called(body):
    """All of it was computed again."""
    x, ws = np.ones((4, WIDTH), np.float32), np.ones((2, WIDTH, WIDTH), np.float32) / WIDTH

    def kept(policy):
        f = jax.checkpoint(body, policy=policy)
        return residual_bytes(f, x, ws), ops_of_gradient(wavy(f), x, ws, wrt=(0, 1))

    nothing, all_again = kept(None)
    products, found = kept(POLICIES.dots_saveable)
    plain = ops_of_gradient(wavy(body), x, ws, wrt=(0, 1))
    assert products == nothing + 2 * 2 * x.nbytes
    assert found["dot_general"] == plain["dot_general"] < all_again["dot_general"]
    named, found = kept(POLICIES.save_only_these_names("wave"))
    assert named == nothing + 2 * x.nbytes
    assert found["sine"] < all_again["sine"]


ACTIVATIONS = np.ones((4, WIDTH), np.float32), np.ones((2, WIDTH, WIDTH), np.float32) / WIDTH


def in_a_branch(x, ws):
    return lax.cond(ws[0, 0, 0] > 0, lambda x: block(block(x, ws[0]), ws[1]), lambda x: x, x)


def in_branches_of_a_loop(x, ws):
    def step(x, w):
        return lax.switch(
            jnp.int32(w[0, 0] > 0), [lambda x: jnp.cos(block(x, w)), lambda x: block(x, w)], x
        ), None

    return lax.scan(step, x, ws)[0]


def in_a_loop_in_a_branch(x, ws):
    return lax.cond(ws[0, 0, 0] > 0, in_a_loop, lambda x, _: x, x, ws)


def in_a_loop_that_counts(x, ws):
    def step(c):
        return c[0] + 1, block(c[1], jnp.asarray(ws)[c[0]])

    return lax.while_loop(lambda c: c[0] < 2, step, (0, x))[1]


@pytest.mark.parametrize(
    "body", [in_a_branch, in_branches_of_a_loop, in_a_loop_in_a_branch, in_a_loop_that_counts]
)
def test_a_policy_reaches_into_branches_and_loops_that_count(body):
    """Branches share the place of what is kept."""
    x, ws = ACTIVATIONS

    def kept(policy):
        f = jax.checkpoint(body, policy=policy)
        slope = jax.jvp(lambda x: wavy(body)(x, ws), (x,), (x,))[1]
        np.testing.assert_allclose(np.vdot(pb.grad(wavy(f))(x, ws), x), slope, rtol=1e-4)
        return residual_bytes(f, x, ws), ops_of_gradient(wavy(f), x, ws, wrt=(0, 1))

    nothing, all_again = kept(None)
    plain = ops_of_gradient(wavy(body), x, ws, wrt=(0, 1))
    products, found = kept(POLICIES.dots_saveable)
    assert products == nothing + 2 * 2 * x.nbytes
    assert found["dot_general"] == plain["dot_general"] < all_again["dot_general"]
    named, found = kept(POLICIES.save_only_these_names("wave"))
    assert named == nothing + 2 * x.nbytes
    assert found["sine"] < all_again["sine"]
    everything, found = kept(POLICIES.everything_saveable)
    assert everything > products
    assert found["sine"] <= plain["sine"]


def test_a_loop_that_counts_is_one_when_all_it_computes_is_to_be_kept():
    """It was reversed by checkpoints of its state: the count was a marked value."""
    f = jax.checkpoint(in_a_loop_that_counts, policy=POLICIES.everything_saveable)
    assert "tensor<33x" not in str(pb.trace(f)(*ACTIVATIONS).jvp().vjp())


@jax.custom_vjp
def attention(x, w):
    return jnp.cos(x @ w)


def attention_forward(x, w):
    y = checkpoint_name(jnp.sin(jnp.einsum("ij,jk->ik", x, w)), "wave")
    return jnp.cos(y) * y, (y, w)


attention.defvjp(attention_forward, lambda r, ct: ((ct * r[0]) @ r[1].T, jnp.zeros_like(r[1])))


@jax.custom_jvp
def wave(x, w):
    return jnp.sin(x @ w)


@wave.defjvp
def _(primals, tangents):
    x, w = primals
    y = checkpoint_name(jnp.sin(jnp.einsum("ij,jk->ik", x, w)), "wave")
    return jnp.cos(y), y * (tangents[0] @ w)


@pytest.mark.parametrize("rule", [attention, wave])
@pytest.mark.parametrize(
    "around",
    [
        lambda f: lambda x, ws: f(f(x, ws[0]), ws[1]),
        lambda f: lambda x, ws: lax.scan(lambda x, w: (f(x, w), None), x, ws)[0],
        lambda f: (
            lambda x, ws: lax.cond(ws[0, 0, 0] > 0, lambda x: f(f(x, ws[0]), ws[1]), lambda x: x, x)
        ),
    ],
    ids=["calls", "scan", "branch"],
)
def test_a_policy_reaches_into_what_rules_compute_forward(rule, around):
    """As in JAX, whose policies name the residuals of an attention."""
    x, ws = ACTIVATIONS
    body = around(rule)

    def kept(policy):
        f = jax.checkpoint(body, policy=policy)
        expected = jax.grad(wavy(f))(x, ws)
        np.testing.assert_allclose(pb.grad(wavy(f))(x, ws), expected, rtol=1e-4)
        return residual_bytes(f, x, ws), ops_of_gradient(wavy(f), x, ws)

    nothing, all_again = kept(None)
    plain = ops_of_gradient(wavy(body), x, ws)
    products, found = kept(POLICIES.dots_saveable)
    assert products >= nothing + 2 * x.nbytes
    assert found["dot_general"] == plain["dot_general"] < all_again["dot_general"]
    named, found = kept(POLICIES.save_only_these_names("wave"))
    assert nothing + x.nbytes <= named <= nothing + 2 * x.nbytes
    assert found["sine"] < all_again["sine"]


def test_a_rule_under_one_policy_is_another_one_than_without():
    """Of one function with a rule, in one program, what one checkpoint keeps the other does not."""
    x, ws = ACTIVATIONS
    named = POLICIES.save_only_these_names("wave")

    def sizes(*policies):
        def f(x, ws):
            for w, policy in zip(ws, policies, strict=True):
                x = jax.checkpoint(attention, policy=policy)(x, w)
            return x

        return residual_bytes(f, x, ws)

    neither, first, second, both = (
        sizes(None, None), sizes(named, None), sizes(None, named), sizes(named, named)
    )  # fmt: skip
    assert first == second == neither + x.nbytes
    assert both == neither + 2 * x.nbytes


@pytest.mark.parametrize("policy", ["everything", "dots", "names"])
def test_a_policy_changes_no_number_of_loops_and_of_functions_that_are_called(policy):
    def twice(x, ws):
        h = in_a_loop_in_a_loop(x, ws)
        h, hs = lax.scan(lambda h, w: (block(h, w), h), h, ws, reverse=True)
        h = lax.fori_loop(1, 3, lambda i, h: jnp.sin(h @ ws[i - 1]) * i + h, h)
        return in_a_function(h, ws) + hs[0]

    named = {
        "everything": POLICIES.everything_saveable,
        "dots": POLICIES.dots_saveable,
        "names": POLICIES.save_only_these_names("wave"),
    }
    ours = jax.checkpoint(twice, policy=named[policy])
    x, ws = np.cos(np.arange(4.0)).reshape(2, 2), np.sin(np.arange(8.0)).reshape(2, 2, 2)
    with jax.enable_x64(True):
        found = pb.grad(wavy(ours), (0, 1))(x, ws)
        expected = jax.grad(wavy(twice), (0, 1))(x, ws)
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)


def test_a_policy_changes_no_number():
    """Also by rules that are false on purpose, at second order, and under `jax.vmap`."""

    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (square(x), x), lambda x, ct: (3 * ct * x,))

    def f(x):
        return jnp.sum(jnp.sin(square(x)) * jnp.cumsum(x))

    x = jnp.array([0.3, -0.7, 1.1])
    for policy in (POLICIES.everything_saveable, lambda p, *_, **__: p.name in ("sin", "cos")):
        ours = jax.checkpoint(f, policy=policy)
        for derive in (lambda f, m: m.grad(f), lambda f, m: m.jacrev(m.grad(f))):
            expected = derive(f, jax)(x)
            np.testing.assert_allclose(derive(ours, pb)(x), expected, rtol=1e-5)
            mapped = jax.vmap(derive(ours, pb))(jnp.stack([x, 2 * x]))
            np.testing.assert_allclose(mapped[0], expected, rtol=1e-5)
        lowered = pb.trace(ours)(x).run_passes("builtin.module(lower-custom-derivatives)")
        assert "checkpoint.saved" not in str(lowered)


def test_checkpoint_in_a_scan_stacks_only_its_arguments():
    def network(step):
        return lambda ws, x: lax.scan(lambda x, w: (step(x, w), None), x, ws)[0]

    ws, x = np.ones((8, WIDTH, WIDTH), np.float32), np.ones((64, WIDTH), np.float32)
    plain, checkpointed = (
        residual_bytes(network(step), ws, x) for step in (layer, jax.checkpoint(layer))
    )
    assert checkpointed <= ws.nbytes + 8 * x.nbytes + 64
    assert plain > 2 * checkpointed


def scan_loss(w, xs):
    def step(h, x):
        h = jnp.tanh(w * h + x)
        return h, h

    return jnp.sum(lax.scan(step, jnp.zeros(WIDTH), xs)[1] ** 2)


def test_scans_grow_linearly_and_stack_their_outputs_once():
    w = np.ones(WIDTH, np.float32)
    small, large = (temporaries(scan_loss, w, np.ones((n, WIDTH), np.float32)) for n in (50, 500))
    assert large < 10.5 * small
    outputs = 500 * WIDTH * 4
    assert large < 3.5 * outputs  # outputs, carries, the cotangent of the outputs


@pytest.mark.parametrize("bound", [None, 64])
def test_data_dependent_loops_take_fixed_memory_or_that_of_their_bound(bound):
    def loss(w, xs, n):
        def step(c):
            return c[0] + 1.0, jnp.tanh(w * c[1] + xs[0])

        start = (0.0, jnp.zeros(WIDTH))
        if bound is None:
            return jnp.sum(lax.while_loop(lambda c: c[0] < n, step, start)[1])
        return jnp.sum(pb.bounded_while_loop(lambda c: c[0] < n, step, start, bound)[1])

    w = np.full(WIDTH, 0.5, np.float32)
    found = []
    for length in (10, 1000):
        xs = np.ones((length, WIDTH), np.float32)
        found.append(temporaries(loss, w, xs, 40.0))
    assert found[0] == found[1]
    slots = 33 if bound is None else bound
    assert found[0] < 3 * slots * WIDTH * 4 + 2048

    def unrolled(w):
        h = jnp.zeros(WIDTH)
        for _ in range(40):
            h = jnp.tanh(w * h + xs[0])
        return jnp.sum(h)

    np.testing.assert_allclose(
        pb.grad(loss)(w, xs, 40.0), jax.grad(unrolled)(w), rtol=1e-5, atol=1e-6
    )


def bounded(x, n, bound=64):
    """A loop of `n` turns, which are known at run time, and no more than the bound."""
    loop = pb.bounded_while_loop(
        lambda state: state[0] < n,
        lambda state: (state[0] + 1, jnp.sin(state[1]) * x),
        (0, x),
        bound,
    )
    return jnp.vdot(x, loop[1])


def unrolled(x, n):
    y = x
    for _ in range(n):
        y = jnp.sin(y) * x
    return jnp.vdot(x, y)


def test_second_derivatives_of_a_loop_with_a_bound_keep_its_residuals_once():
    """Reverse loops have the bound too. They kept checkpoints, and carried cotangents of stacks."""
    x = np.linspace(0.3, 0.9, WIDTH)
    with jax.enable_x64(True):
        second = pb.trace(lambda x, n: jnp.vdot(pb.grad(bounded)(x, n), x))(x, 5).grad()
        module = str(second)
        carried = re.findall(r"stablehlo\.while\(.*\) : (.*)", module)
        assert [types.count("tensor<64x") for types in carried] == [1, 1, 1, 0]
        assert "tensor<33x" not in module  # checkpoints

        for n in (0, 1, 5, 64, 70):
            expected = jax.grad(lambda x, n: jnp.vdot(jax.grad(unrolled)(x, n), x))(x, min(n, 64))
            np.testing.assert_allclose(second(x, n), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("start", [0, 60, 100])
def test_a_loop_with_a_bound_may_fill_a_part_of_a_buffer(start):
    """What is for a slot behind the last goes there, so that a slot may be written again."""

    def loss(y, stack):
        return jnp.vdot(y, y) + jnp.sum(jnp.sin(stack) * jnp.arange(64.0)[:, None])

    def f(x, given, n):
        def step(state):
            i, y, stack = state
            place = i, np.int8(0)
            stack = lax.dynamic_update_slice(stack, y[None], place, allow_negative_indices=False)
            return i + 1, jnp.sin(y) * x, stack

        first = (np.int8(start), x, given)
        return loss(*pb.bounded_while_loop(lambda s: s[0] < n, step, first, 64)[1:])

    def unrolled(x, given, n):
        y, stack = x, jnp.asarray(given)
        for i in range(start, n):
            stack, y = stack.at[min(i, 63)].set(y), jnp.sin(y) * x
        return loss(y, stack)

    x, given = np.linspace(0.3, 0.9, 4), np.cos(np.arange(256.0)).reshape(64, 4)
    with jax.enable_x64(True):
        for wrt in [(0,), (0, 1)]:
            gradient = pb.trace(f)(x, given, np.int8(5)).grad(wrt)
            for n in (start, start + 3, start + 27):
                expected = jax.grad(unrolled, wrt)(x, given, n)
                for ours, theirs in zip(gradient(x, given, np.int8(n)), expected, strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_a_linearized_loop_is_transposed_by_its_reverse_loop():
    """Transposed op by op, the loops of the linear map would keep checkpoints of checkpoints."""

    def f(x):
        step = lambda carry: (carry[0] + 1, jnp.sin(carry[1] * x))  # noqa: E731
        length = jnp.where(x[0] > 0, 3, 4)
        return lax.while_loop(lambda carry: carry[0] < length, step, (0, x))[1]

    x, ct = np.linspace(0.5, 1.0, 3), np.arange(3.0)
    with jax.enable_x64(True):
        program = pb.trace(f)(x)
        forward, linear = program.linearize()
        transposed = linear.transpose(wrt=1)
        (expected,) = program.vjp()(x, ct)[1]
        np.testing.assert_allclose(transposed(forward(x)[1], ct), expected, rtol=1e-12)
        again = transposed.transpose(wrt=1)(forward(x)[1], ct)
        np.testing.assert_allclose(again, program.jvp()(x, ct)[1], rtol=1e-12)
        reverse = program.split_vjp().linear
        sizes = [p.compile("cpu").memory().temporaries for p in (transposed, reverse)]
    assert sizes[0] <= 2 * sizes[1]


def summed_over_elements(x):
    return lax.fori_loop(0, x.size, lambda i, s: s + jnp.sin(x[i]) * x[i], 0.0)


def scanned_over_elements(x):
    return lax.scan(lambda s, a: (s + jnp.sin(a) * s, None), 0.1, x)[0]


@pytest.mark.parametrize("f", [summed_over_elements, scanned_over_elements])
def test_an_addition_in_place_hands_its_cotangent_on(f):
    """Writing zeros over a slice, and back what was there, is a pass over all in each iteration."""
    program = pb.trace(f)(jnp.linspace(0.0, 1.0, 6))
    for derivative in (program.grad().vjp(), program.grad().jvp().vjp(), program.vjp().vjp().vjp()):
        writes = operations_named(derivative.module, "stablehlo.dynamic_update_slice")
        assert writes
        zeros = [write for write in writes if is_zero_constant(write.operands[1])]
        assert not any(is_used(write.result) for write in zeros)


def fenced(w):
    return lax.optimization_barrier((jnp.exp(w), w))[0]


@jax.custom_jvp
def halved(w):
    return jnp.tanh(w @ w.T) / 2


halved.defjvp(lambda w, t: (halved(*w), jnp.cos(w[0]) * t[0]))

INVARIANTS = {
    "elementwise": jnp.exp,
    "a product": lambda w: w @ w.T,
    "a transpose": lambda w: 2 * w.T,
    "softmax": jax.nn.softmax,
    "softplus": lambda w: jnp.exp(-jax.nn.softplus(w)),
    "a mask": lambda w: jnp.where(jnp.tril(jnp.ones((5, 5))) > 0, w, 0),
    "of a jitted function": jax.jit(lambda w: jnp.sin(w @ w)),
    "of a function with a rule": halved,
    "behind a barrier": fenced,
    "of a loop": lambda w: lax.fori_loop(0, 3, lambda _, v: jnp.sin(v @ w), w),
}


def scanned_with(make):
    def f(w, x):
        return jnp.sum(lax.scan(lambda x, _: (jnp.tanh(make(w) @ x), None), x, None, length=7)[0])

    return f


@pytest.mark.parametrize("name", INVARIANTS)
@pytest.mark.usefixtures("float64")
def test_what_no_iteration_changes_is_not_stacked(name):
    f = scanned_with(INVARIANTS[name])
    w, x = 0.01 * jnp.arange(25.0).reshape(5, 5), jnp.cos(jnp.arange(10.0)).reshape(5, 2)
    program = pb.trace(f)(w, x)
    for derived in (program.grad((0, 1)), *program.split_vjp(), *program.linearize()):
        assert "tensor<7x5x5x" not in derived.asm()
    for found, expected in zip(pb.grad(f, (0, 1))(w, x), jax.grad(f, (0, 1))(w, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    second = lambda grad: lambda w: jnp.sum(jnp.sin(grad(f)(w, x)))  # noqa: E731
    expected = jax.grad(second(jax.grad))(w)
    np.testing.assert_allclose(pb.grad(second(pb.grad))(w), expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("inner", [pb.grad, lambda f: jax.jit(jax.jit(pb.grad(jax.jit(f))))])
def test_what_no_step_changes_in_a_gradient_inside_of_a_step_is_not_stacked(inner):
    """Such as which particles are neighbours, of which forces are the gradient."""

    def energy(x, neighbours):
        d = x[:, None] - x[neighbours]
        return jnp.sum(jnp.exp(-jnp.sum(d * d, axis=-1)))

    def relaxed(grad):
        force = grad(energy)

        def loss(x, neighbours):
            step = lambda x, _: (x - 0.01 * force(x, neighbours), None)  # noqa: E731
            return jnp.sum(lax.scan(step, x, None, length=7)[0] ** 2)

        return loss

    x = jnp.sin(jnp.arange(60.0)).reshape(20, 3)
    neighbours = (7 * jnp.arange(80) % 20).reshape(20, 4)
    program = pb.trace(relaxed(inner))(x, neighbours).grad()
    assert not re.search(r"tensor<7x20x\S*i32>", program.asm())
    like = jax.grad(relaxed(jax.grad))
    np.testing.assert_allclose(program(x, neighbours), like(x, neighbours), rtol=1e-5)
    used = jax.jit(like).lower(x, neighbours).compile().memory_analysis().temp_size_in_bytes
    assert program.compile().memory().temporaries < used


def test_a_loop_that_does_not_run_has_invariants():
    f = lambda w, n: lax.fori_loop(0, n, lambda _, x: x * jnp.log(w), 2 * w)  # noqa: E731
    bounded = lambda w: pb.bounded_while_loop(  # noqa: E731
        lambda c: c[0] < 0, lambda c: (c[0] + 1, c[1] * jnp.log(w)), (0, 2 * w), 4
    )[1]
    for g in (lambda w: f(w, 0), bounded):
        assert pb.grad(g)(-1.0) == 2.0


@pytest.mark.usefixtures("float64")
def test_second_derivatives_of_a_loop_over_a_checkpoint_stack_no_weights():
    def f(w, x):
        step = jax.checkpoint(lambda x: jnp.tanh(jnp.sin(w @ x)))
        return jnp.sum(lax.scan(lambda x, _: (step(x), None), x, None, length=7)[0])

    w, x = 0.01 * jnp.arange(25.0).reshape(5, 5), jnp.cos(jnp.arange(10.0)).reshape(5, 2)
    program = pb.trace(f)(w, x)
    assert "tensor<7x5x5x" not in program.grad().vjp().asm()
    second = lambda grad: lambda w: jnp.sum(jnp.sin(grad(f)(w, x)))  # noqa: E731
    expected = jax.grad(second(jax.grad))(w)
    np.testing.assert_allclose(pb.grad(second(pb.grad))(w), expected, rtol=1e-7, atol=1e-10)


def bytes_moved(function, x) -> float:
    """What XLA counts for all that the compiled function reads and writes."""
    return jax.jit(function).lower(x).compile().cost_analysis()["bytes accessed"]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True),
        lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5),
        lambda x: jnp.outer(x[0], x[1]),
        lambda x: -0.3 * jnp.log(x) - 0.7 * jnp.log1p(-x * 0.9),
        jax.nn.softmax,
        jax.nn.squareplus,
        lambda x: jax.scipy.stats.t.logpdf(x, 3.0),
    ],
    ids=["norm", "layer norm", "outer", "entropy", "softmax", "squareplus", "student"],
)
def test_derivatives_move_as_few_bytes_as_those_of_JAX(f):
    """XLA keeps a quotient that is used twice, and all that it does not fuse."""
    x = np.random.default_rng(0).uniform(0.1, 1.0, (64, 64)).astype(np.float32)
    squares = lambda f: lambda x: jnp.sum(f(x) ** 2)  # noqa: E731
    for derive in (
        lambda ad: ad.grad(squares(f)),
        lambda ad: lambda x: ad.jvp(ad.grad(squares(f)), (x,), (x,))[1],
        lambda ad: ad.grad(squares(ad.grad(squares(f)))),
    ):
        assert bytes_moved(derive(pb), x) <= 1.15 * bytes_moved(derive(jax), x)
