"""Cotangents of other types than their primal values, which rules of the user return.

JAX hands them on, through what moves or adds elements and into the next rule. Where they meet
arithmetic JAX raises, and they are converted to the type of the primal value.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback import artifact
from pullback.ir.verify import verify
from tests.rounding import FUNCTION, close

Function = Callable[[Any], Any]
HALF = jnp.float16
X = jnp.arange(1.0, 7.0)
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("a",))
PARTS = jax.sharding.PartitionSpec("a")


def with_rule(function: Function, backward: Function) -> Any:
    """A function of one argument, whose rule gives `backward(cotangent)`."""
    ruled = jax.custom_vjp(function)
    ruled.defvjp(lambda x: (ruled(x), None), lambda _, ct: (backward(ct),))
    return ruled


def loss_of(wide: Any = jnp.float32, by: float = 1e-6) -> Function:
    """A loss whose cotangents of its argument are of a type of their own, and about 1e-9."""
    up = with_rule(lambda y: y.astype(jnp.float32), lambda ct: (ct * by).astype(wide))
    return lambda y: jnp.sum(up(y) * 1e-3)


loss = loss_of()
BY = 1.0001
"""For a loss whose cotangents are of normal size in half precision, and not exact there."""
times3 = with_rule(lambda y: y * 1, lambda ct: ct.astype(jnp.float32) * 3)
complex_ct = with_rule(lambda y: y * 1, lambda ct: ct * (1 + 2j))
imaginary_part = with_rule(lambda y: y * 1, jnp.imag)


def layer(w: float) -> Function:
    """From f16 to f16 by f32, whose rule gives cotangents of f32."""
    down = lambda x: (x.astype(jnp.float32) * w).astype(HALF)  # noqa: E731
    return with_rule(down, lambda ct: ct.astype(jnp.float32) * w)


def linear_call(x: Any) -> Any:
    """A map whose transpose gives cotangents of f32."""
    return jax.custom_derivatives.linear_call(
        lambda r, y: y * r, lambda r, ct: ct.astype(jnp.float32) * 1e-3, HALF(2), x
    )


@jax.custom_gradient
def by_custom_gradient(y: Any) -> Any:
    return y * 1, lambda ct: ct.astype(jnp.float32) * 1e-9


@jax.custom_jvp
def rolled(y: Any) -> Any:
    return y * HALF(2)


rolled.defjvps(lambda t, ans, y: -jnp.concatenate([t[3:], t[:3]]))


def sees_zeros() -> Any:
    ruled = jax.custom_vjp(lambda y: y * 1)
    ruled.defvjp(
        lambda y: (ruled(y.value), None),
        lambda _, ct: (ct.astype(jnp.float32) * 1e-3,),
        symbolic_zeros=True,
    )
    return ruled


sees = sees_zeros()
two = jax.custom_vjp(lambda y: (y * 1, y * 2))
two.defvjp(
    lambda y: (two(y), None),
    lambda _, cts: (cts[0].astype(jnp.float32) * 1e-3 + cts[1].astype(jnp.float32),),
)


def scanned(step: Function, y: Any) -> Any:
    """The sum of a function of the elements."""
    return jax.lax.scan(lambda c, z: (c + step(z), None), 0.0, y)[0]


MOVES: dict[str, Function] = {
    "negate": lambda y: -y,
    "add": lambda y: y + y[::-1],
    "subtract": lambda y: HALF(1) - y,
    "reshape": lambda y: y.reshape(2, 3),
    "transpose": lambda y: y.reshape(2, 3).T,
    "broadcast": lambda y: jnp.broadcast_to(y, (3, 6)),
    "sum": lambda y: jax.lax.reduce_sum_p.bind(y, axes=(0,), out_sharding=None)[None],
    "windows": lambda y: jnp.cumsum(y),
    "slice": lambda y: y[1:4],
    "steps": lambda y: y[::2],
    "pad": lambda y: jnp.pad(y, 1),
    "concatenate": lambda y: jnp.concatenate([y, y[::-1], jnp.ones(2, HALF)]),
    "split": lambda y: jnp.concatenate(jnp.split(y, 2)[::-1]),
    "roll": lambda y: jnp.roll(y, 2),
    "reverse": lambda y: jnp.flip(y),
    "gather": lambda y: y[jnp.array([0, 0, 3])],
    "scatter": lambda y: y.at[jnp.array([1, 3])].set(y[:2]),
    "scatter_unique": lambda y: y.at[jnp.array([1, 3])].set(y[:2], unique_indices=True),
    "scatter_add": lambda y: y.at[jnp.array([1, 1])].add(y[:2]),
    "update_slice": lambda y: jax.lax.dynamic_update_slice(y, y[:2], (jnp.int32(1),)),
    "select": lambda y: jnp.where(y > 2, y, -y) + jnp.where(y > 4, y, 0),
    "relu": lambda y: jax.nn.relu(y - HALF(2)),
    "abs": lambda y: jnp.abs(y - HALF(2)),
    "sort": lambda y: jnp.sort(-y),
    "top_k": lambda y: jax.lax.top_k(y, 2)[0],
    "barrier": jax.lax.optimization_barrier,
    "sharding": lambda y: jax.lax.with_sharding_constraint(
        y, jax.sharding.NamedSharding(MESH, PARTS)
    ),
    "shard_map": lambda y: jax.shard_map(
        lambda z: jax.lax.ppermute(z[::-1], "a", [(0, 0)]),
        mesh=MESH,
        in_specs=PARTS,
        out_specs=PARTS,
    )(y),
    "jit": jax.jit(lambda y: y[::-1]),
    "cond": lambda y: jax.lax.cond(y[0] > 0, lambda z: z, lambda z: -z, y),
    "scan": lambda y: jax.lax.scan(lambda c, _: (c[::-1], None), y, None, 3)[0],
    "scan_of_slices": lambda y: jax.lax.scan(lambda c, z: (c, -z), 0, y)[1],
    "custom_jvp": rolled,
    "custom_vjp": times3,
    "custom_vjp_in_scan": lambda y: jax.lax.scan(lambda c, _: (times3(c), None), y, None, 3)[0],
    "linear_call": linear_call,
    "symbolic_zeros": lambda y: sees(sees(y)),
    "one_of_two_results": lambda y: two(y)[0],
}
"""Functions of f16 that hand cotangents on."""

PLACES: dict[str, Function] = {
    "jit": jax.jit(loss),
    "checkpoint": jax.checkpoint(loss),
    "checkpoint_with_policy": jax.checkpoint(
        lambda y: loss(y[::-1]), policy=jax.checkpoint_policies.everything_saveable
    ),
    "cond": lambda y: jax.lax.cond(y[0] > 0, loss, lambda z: loss(-z), y),
    "switch": lambda y: jax.lax.switch(1, [loss, lambda z: loss(-z), lambda z: loss(z[1:])], y),
    "scan": lambda y: scanned(loss, y),
    "cond_in_scan": lambda y: scanned(
        lambda z: jax.lax.cond(z > 2, loss, lambda z: loss(-z), z), y
    ),
    "scan_in_scan": lambda y: scanned(lambda z: scanned(loss, z), y.reshape(2, 3)),
    "checkpoint_in_scan": lambda y: scanned(jax.checkpoint(loss), y),
    "vmap": lambda y: jnp.sum(jax.vmap(loss)(y)),
    "vmap_of_scan": lambda y: jnp.sum(jax.vmap(lambda z: scanned(loss, z))(y.reshape(2, 3))),
    "shard_map": lambda y: jnp.sum(
        jax.shard_map(lambda z: loss(z)[None], mesh=MESH, in_specs=PARTS, out_specs=PARTS)(y)
    ),
    "used_twice": lambda y: loss(y) + loss(y[::-1]),
    "parts": lambda y: loss(y[:3]) + loss(-y[3:]),
    "parts_that_meet": lambda y: loss(y[:4]) + loss(-y[2:]),
    "two_results": lambda y: loss(two(y)[0]) + jnp.sum(two(y)[1].astype(jnp.float32)) * 1e-5,
    "custom_gradient": lambda y: jnp.sum(by_custom_gradient(y).astype(jnp.float32)),
    "layers": lambda y: jnp.sum(layer(300.0)(layer(1e-2)(y)).astype(jnp.float32)) * 1e3,
    "linear_calls": lambda y: jnp.sum(linear_call(linear_call(y)).astype(jnp.float32)),
}
"""Losses of f16 whose cotangents are of f32."""


def same(found: Any, expected: Any) -> None:
    """Equal types, and numbers that no rounding to 16 bits would leave."""
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.any(np.asarray(expected) != 0)


def checked_gradient(function: Function, x: Any = X) -> Any:
    """The gradient by a program whose IR is verified."""
    program = pb.trace(function)(x).grad()
    assert program.module.operation.verify()
    verify(program.module)
    return program(x)


def from_half(function: Function) -> Function:
    """The same function of f32, whose gradient shows more than f16 holds."""
    return lambda x: function(x.astype(HALF))


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_elements_hands_them_on(name: str) -> None:
    function = from_half(lambda y: loss(MOVES[name](y)))
    same(checked_gradient(function), jax.grad(function)(X))


@pytest.mark.parametrize("name", PLACES)
def test_they_are_handed_on_where_a_rule_makes_them(name: str) -> None:
    function = from_half(PLACES[name])
    same(checked_gradient(function), jax.grad(function)(X))


@pytest.mark.parametrize(
    ("mine", "wide"),
    [
        ("bfloat16", "float32"),
        ("float8_e4m3fn", "float32"),
        ("float8_e5m2", "bfloat16"),
        ("float16", "bfloat16"),
        ("bfloat16", "float16"),
    ],
)
def test_types_that_do_not_hold_each_other(mine: str, wide: str) -> None:
    by = 1.001 if wide == "float16" else 1e-6
    of_type = loss_of(getattr(jnp, wide), by)

    def function(x: Any) -> Any:
        y = x.astype(getattr(jnp, mine))
        return of_type(y[::-1]) + scanned(of_type, y)

    same(checked_gradient(function), jax.grad(function)(X))


def test_double_precision() -> None:
    with jax.enable_x64(True):
        small = with_rule(lambda y: y * 1, lambda ct: ct.astype(jnp.float64) * 1e-30)
        whole = with_rule(lambda z: z * 1, lambda ct: ct.astype(jnp.complex128) * 1e-30)

        def function(x: Any) -> Any:
            y = small(small(x.astype(jnp.float32)))
            z = whole(whole(jax.lax.complex(y, y)[::-1]))
            return jnp.sum(small(z.real).astype(jnp.float64))

        x = jnp.arange(3.0)
        same(checked_gradient(function, x), jax.grad(function)(x))


@pytest.mark.parametrize(
    "between", [lambda y: y, lambda y: -y[::-1], jax.jit(lambda y: y.reshape(2, 3))]
)
def test_the_imaginary_part_of_a_cotangent_of_a_real_value(between: Function) -> None:
    def function(x: Any) -> Any:
        return jnp.sum(complex_ct(between(imaginary_part(x))))

    same(checked_gradient(function), jax.grad(function)(X))


ARITHMETIC: dict[str, Function] = {
    "times_a_constant": lambda y: y * HALF(2),
    "square": lambda y: y * y,
    "sine": jnp.sin,
    "maximum": lambda y: jnp.maximum(y, 2),
    "softplus": jax.nn.softplus,
    "product": lambda y: jnp.dot(y.reshape(2, 3), y.reshape(3, 2)),
    "also_in_its_own_type": lambda y: jnp.concatenate([y, y * HALF(3)]),
    "in_a_scan": lambda y: jax.lax.scan(lambda c, _: (c * HALF(2), None), y, None, 3)[0],
    "rule_for_half": with_rule(
        lambda y: y * 1, lambda ct: jax.lax.mul(ct, jnp.full(ct.shape, 2, HALF))
    ),
    "linear_call_for_half": lambda y: jax.custom_derivatives.linear_call(
        lambda r, z: z * r, lambda r, ct: jnp.where(ct > 0, ct, ct), HALF(2), y
    ),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_they_are_converted_where_jax_raises(name: str) -> None:
    """So they are what a rule that converts them would give: zero for those of `loss`."""
    found = checked_gradient(from_half(lambda y: loss_of(by=BY)(ARITHMETIC[name](y))))
    expected = jax.grad(from_half(lambda y: loss_of(HALF, BY)(ARITHMETIC[name](y))))(X)
    close(found, expected, ops=3 * FUNCTION + 4, dtype=HALF)
    assert not np.any(checked_gradient(from_half(lambda y: loss(ARITHMETIC[name](y)))))


def test_sums_of_two_types_are_converted() -> None:
    """JAX raises for those."""

    def of(loss: Function) -> Function:
        return from_half(lambda y: loss(y) + jnp.sum((y * y).astype(jnp.float32)) * 1e-3)

    found, expected = checked_gradient(of(loss_of(by=BY))), jax.grad(of(loss_of(HALF, BY)))(X)
    close(found, expected, ops=4, dtype=HALF)


def test_a_branch_without_a_cotangent_gives_zeros_of_the_same_type() -> None:
    """JAX raises where another branch gives a wide one."""
    function = from_half(lambda y: jax.lax.cond(y[0] > 0, loss, lambda z: 0.0, y))
    same(checked_gradient(function), jax.grad(from_half(loss))(X))


def test_what_a_loop_does_not_change_has_the_type_of_its_first_cotangent() -> None:
    """JAX raises, for it begins with zeros of the type of the value."""

    def function(x: Any) -> Any:
        y = x.astype(HALF)
        return jax.lax.fori_loop(0, 3, lambda i, c: c + loss(y) * (i + 1), 0.0)

    same(checked_gradient(function), jax.grad(from_half(lambda y: 6 * loss(y)))(X))


def test_a_loop_without_a_bound_hands_them_on() -> None:
    """JAX has no derivative of it."""

    def function(x: Any) -> Any:
        def step(state: Any) -> Any:
            count, y = state
            return count - 1, times3(y[::-1])

        count = x[2].astype(int)
        return loss(
            jax.lax.while_loop(lambda state: state[0] > 0, step, (count, x.astype(HALF)))[1]
        )

    same(checked_gradient(function), jax.grad(from_half(lambda y: 27 * loss(y)))(X))


@pytest.mark.parametrize("narrow", ["float16", "bfloat16", "int32"])
def test_narrower_ones_are_converted_at_once(narrow: str) -> None:
    """That loses nothing; JAX computes on in the narrower type, where 1e6 is infinite."""
    to_narrow = with_rule(lambda y: y * 1, lambda ct: ct.astype(narrow))
    large = with_rule(lambda y: y * 1, lambda ct: ct * 1e6)
    found = checked_gradient(lambda x: jnp.sum(to_narrow(large(x))))
    np.testing.assert_array_equal(found, np.full(6, 1e6, np.float32))


@pytest.mark.parametrize("name", ["layers", "linear_calls", "two_results", "scan", "vmap_of_scan"])
def test_a_file_has_the_rules_for_their_types(name: str) -> None:
    function = from_half(PLACES[name])
    loaded = pb.load(artifact.serialize(pb.trace(function)(X)))
    verify(loaded.module)
    same(loaded.grad()(X), jax.grad(function)(X))


@pytest.mark.parametrize(
    "name", ["windows", "sort", "custom_vjp_in_scan", "symbolic_zeros", "relu"]
)
def test_a_file_has_the_rules_for_their_types_behind_what_moves(name: str) -> None:
    function = from_half(lambda y: loss(MOVES[name](y)))
    loaded = pb.load(artifact.serialize(pb.trace(function)(X)))
    verify(loaded.module)
    same(loaded.grad()(X), jax.grad(function)(X))


def test_a_file_has_the_rules_for_each_result_alone() -> None:
    """By one result the cotangent of `y` is of f32; by the other, of f16; by both, the sum is."""

    def function(x: Any) -> Any:
        y = times3(x.astype(HALF))
        return loss_of(by=1.0001e-2)(y), jnp.sum((y * y).astype(jnp.float32))

    program = pb.trace(function)(X)
    loaded = pb.load(artifact.serialize(program))
    for cts in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        same(loaded.vjp()(X, cts)[1][0], program.vjp()(X, cts)[1][0])
    for i in range(2):
        alone = pb.trace(lambda x: loaded(x)[i])(X).grad()  # noqa: B023
        same(alone(X), jax.grad(lambda x: function(x)[i])(X))  # noqa: B023


@pytest.mark.parametrize("source", ["memory", "file"])
def test_a_batch_by_the_pass(source: str) -> None:
    function = from_half(PLACES["layers"])
    program = pb.trace(function)(X)
    if source == "file":
        program = pb.load(artifact.serialize(program))
    batch = jnp.stack([X, 2 * X])
    found = program.vmap(axis_size=2).vjp()(batch, jnp.ones(2))[1][0]
    same(found, jax.vmap(jax.grad(function))(batch))


@pytest.mark.parametrize("name", ["layers", "scan", "cond", "used_twice"])
def test_second_derivatives(name: str) -> None:
    place = PLACES[name]

    def second(grad: Any) -> Any:
        scaled = lambda x: place((x * x[::-1]).astype(HALF)) ** 2  # noqa: E731
        return grad(lambda x: jnp.sum(grad(scaled)(x)))

    same(second(pb.grad)(X), second(jax.grad)(X))


def test_forward_mode_keeps_the_types_of_tangents() -> None:
    """The tangents of values of f16 are of f16; transposed again, cotangents are handed on."""
    function = from_half(PLACES["layers"])
    program = pb.trace(function)(X)
    _, tangent = program.jvp()(X, X)
    same(tangent, jnp.vdot(jax.grad(function)(X), X))
    linear = program.linearize().linear
    verify(linear.module)
    assert linear.module.operation.verify()
    pushed = pb.linearize(function, X)[1]
    same(pb.linear_transpose(pushed, X)(jnp.float32(1))[0], jnp.full(6, 3000.0))


def test_a_rule_that_has_none_for_the_type_takes_converted_ones(tmp_path: Path) -> None:
    """As in a module by hand, without a table of rules."""
    text = """
    func.func public @main(%x: tensor<f16>) -> tensor<f16> {
      %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
        composite_attributes = {fwd = @f, bwd = @b}, decomposition = @f
      } : (tensor<f16>) -> tensor<f16>
      %1 = stablehlo.composite "pullback.custom_vjp_call" %0 {
        composite_attributes = {fwd = @f, bwd = @b}, decomposition = @f
      } : (tensor<f16>) -> tensor<f16>
      return %1 : tensor<f16>
    }
    func.func private @f(%x: tensor<f16>) -> tensor<f16> {
      return %x : tensor<f16>
    }
    func.func private @b(%ct: tensor<f16>) -> tensor<f32> {
      %0 = stablehlo.convert %ct : (tensor<f16>) -> tensor<f32>
      %1 = stablehlo.constant dense<1.0e+05> : tensor<f32>
      %2 = stablehlo.multiply %0, %1 : tensor<f32>
      return %2 : tensor<f32>
    }
    """
    (tmp_path / "by_hand.mlir").write_text(text)
    program = pb.load(tmp_path / "by_hand.mlir")
    assert np.isinf(program.vjp()(HALF(0), HALF(1))[1][0])


Y = X.astype(HALF)


@pytest.mark.parametrize(
    "derivative",
    [
        lambda lib, f: lib.grad(f)(Y),
        lambda lib, f: jax.jit(lib.grad(f))(Y),
        lambda lib, f: lib.value_and_grad(f)(Y)[1],
        lambda lib, f: lib.vjp(f, Y)[1](jnp.float32(1))[0],
        lambda lib, f: lib.vmap(lib.grad(f))(Y[:, None]),
        lambda lib, f: lib.grad(jax.checkpoint(f))(Y),
        lambda lib, f: lib.jacrev(lambda y: jnp.stack([f(y), f(-y)]) * 1e3)(Y),
        lambda lib, f: lib.linear_transpose(linear_call, Y)(Y)[0],
        lambda lib, f: lib.grad(lambda y: lib.grad(lambda z: (f(z) * 1e3) ** 2)(y).sum())(Y),
        lambda lib, f: jax.grad(lib.jit(f))(Y),
        lambda lib, f: jax.grad(lambda y: lib.jit(f)(-y))(Y),
    ],
)
def test_the_gradient_of_an_argument_has_the_type_that_jax_gives(derivative: Any) -> None:
    """That of the last cotangent; a Jacobian has the argument's."""
    same(derivative(pb, loss), derivative(jax, loss))


def test_the_gradient_of_a_real_argument_may_be_complex() -> None:
    function = lambda x: jnp.sum(complex_ct(x))  # noqa: E731
    same(pb.grad(function)(X), jax.grad(function)(X))


def test_programs_say_the_types_of_their_gradients() -> None:
    program = pb.trace(loss)(Y)
    for derived in (program.grad(), program.vjp(), program.split_vjp().linear):
        assert derived.out_avals[-1].dtype == jnp.float32
    linear = program.linearize().linear
    assert [aval.dtype for aval in (*linear.in_avals, *linear.out_avals)] == [HALF, jnp.float32]
    same(linear.transpose(argnums=1)([], jnp.float32(1)), jax.grad(loss)(Y))
    loaded = pb.load(artifact.serialize(program.grad()))
    assert loaded.out_avals[0].dtype == jnp.float32
    same(loaded(Y), jax.grad(loss)(Y))
    same(program.grad().compile()(Y), jax.grad(loss)(Y))


def test_a_function_of_any_size_gives_the_types_of_jax() -> None:
    (size,) = jax.export.symbolic_shape("n")
    program = pb.trace(loss)(jax.ShapeDtypeStruct((size,), HALF))
    same(program.grad()(Y), jax.grad(loss)(Y))


def test_a_program_takes_cotangents_of_the_types_of_its_results() -> None:
    """What JAX hands it is converted."""
    reverse = pb.jit(lambda y: y[::-1])
    found = jax.grad(lambda y: loss_of(by=BY)(reverse(y)))(Y)
    close(found, jax.grad(loss_of(HALF, BY))(Y), ops=3)


def test_a_mutable_array_keeps_its_type() -> None:
    place = jax.new_ref(jnp.zeros(6, HALF))
    pb.vjp(lambda y: loss_of(by=BY)(y), Y)[1].with_refs(place)(jnp.float32(1))
    close(place[...], jax.grad(loss_of(HALF, BY))(Y), ops=3)
