"""Passes use no handle to what they have erased: derivations of many kinds, all handles checked."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import pullback as pb
from pullback import _jax
from pullback._jax import ir
from pullback_runtime.ir._erasure import erase, erase_arguments, erasing, retire
from tests import erased
from tests.passes.programs import WS, XS, nested

POLICIES = jax.checkpoint_policies


def network(ws, x):
    layer = jax.jit(lambda w, x: jnp.tanh(x @ w))
    return jnp.sum(jax.nn.softplus(layer(ws, layer(ws, x))))


def recurrent(ws, x):
    def step(h, row):
        return jnp.tanh(h @ ws + row), h

    return jnp.sum(lax.scan(step, x, jnp.stack([x] * 3))[1])


def unbounded(ws, x):
    grow = lax.while_loop(lambda y: jnp.sum(y) < 30, lambda y: y * 2 + jnp.sin(y), x)
    return jnp.sum(grow @ ws)


def bounded(ws, x):
    def step(carry):
        i, y = carry
        return i + 1, jnp.cos(y @ ws)

    return jnp.sum(lax.while_loop(lambda carry: carry[0] < 3, step, (0, x))[1])


def branches(ws, x):
    index = jnp.int32(jnp.sum(x))
    return jnp.sum(lax.switch(index, [jnp.sin, lambda y: y @ ws, lambda y: y * 2], x))


def structured(ws, x):
    largest = jnp.sort(x * ws[0])[-2:]
    return jnp.prod(largest) + jnp.cumsum(x)[x.astype(int)].at[0].add(x[1]).sum()


def solved(ws, x):
    matrix = ws @ ws.T + 5 * jnp.eye(4)
    return jnp.linalg.solve(matrix, x) @ jnp.linalg.cholesky(matrix) @ x


@jax.custom_jvp
def scaled(x):
    return x * 2


scaled.defjvp(lambda primals, tangents: (scaled(*primals), 3 * scaled(*tangents)))


@jax.custom_vjp
def halved(x):
    return jnp.sin(x)


halved.defvjp(lambda x: (halved(x), x), lambda x, ct: (jnp.cos(x) * ct / 2,))


def rules(ws, x):
    return jnp.sum(scaled(halved(x @ ws)) + lax.scan(lambda c, w: (halved(c * w), None), x, ws)[0])


def printed(ws, x):
    def step(c, w):
        jax.debug.print("{}", c)
        return jnp.sin(c * w), None

    return jnp.sum(lax.scan(step, x, ws)[0])


def convolved(ws, x):
    image = ws[None, :, :, None] * x
    kernel = jnp.ones((2, 2, 4, 3)) * ws[0, 0]
    dims = ("NHWC", "HWIO", "NHWC")
    found = lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=dims)
    return jnp.sum(lax.reduce_window(found, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME"))


def sampled(ws, x):
    return jnp.sum(
        lax.scan(lambda c, w: (c + jax.random.gamma(jax.random.key(0), x), None), x, ws)[0]
    )


def checkpointed(f, policy=None):
    return lambda *args: (
        f(*(jax.checkpoint(lambda x: x * 1.5)(x) for x in args))
        + jnp.sum(jax.checkpoint(f, policy=policy)(*args))
    )


FUNCTIONS = {
    f.__name__: f
    for f in (network, recurrent, unbounded, bounded, nested, branches, structured)
    + (solved, rules, printed, convolved, sampled)
} | {
    "checkpointed": checkpointed(network),
    "kept products": checkpointed(recurrent, POLICIES.dots_saveable),
    "kept in loops": checkpointed(nested, POLICIES.everything_saveable),
    "kept around loops": checkpointed(sampled, POLICIES.everything_saveable),
    "unbounded again": checkpointed(unbounded),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivations_use_nothing_that_was_erased(name, watch):
    program = pb.trace(FUNCTIONS[name])(WS, XS)
    gradient = program.grad((0, 1))
    program.split_vjp()
    program.linearize()
    tangents = program.jvp()
    batch = program.vmap((None, 0), axis_size=3)
    if name in ("network", "nested", "rules"):
        tangents.vjp()
        batch.vjp()
        gradient.vmap((None, 0), axis_size=3)
    assert watch.erasures > 5


def factored(ws, x):
    q, r = jnp.linalg.qr(ws + 5 * jnp.eye(4))
    return jnp.sum(q @ x) + jnp.sum(r @ x) + solved(ws, x)


def test_files_use_nothing_that_was_erased(watch):
    content = pb.artifact.serialize(pb.trace(rules)(WS, XS))
    pb.load(content).grad((0, 1))
    exported = jax.export.export(jax.jit(factored))(WS, XS)
    pb.load(bytes(exported.serialize())).grad()
    of_sizes = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(lambda x: jnp.sum(x[jnp.argsort(x)] * 2)))(
        jax.ShapeDtypeStruct(of_sizes, jnp.float32)
    )
    pb.load(bytes(exported.serialize())).with_shapes(XS).grad()
    assert watch.erasures > 5


# ----------------------------------------------------------------------- that it is noticed


@pytest.fixture
def module():
    text = """func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.sine %x : tensor<f32>
      return %x : tensor<f32>
    }"""
    return ir.Module.parse(text, _jax.context())


@pytest.fixture
def block(module):
    return module.body.operations[0].regions[0].blocks[0]


def used(watch, use):
    with pytest.raises(erased.UsedAfterErasure):
        use()
    (found,) = watch.found
    return found


USES = {
    "an attribute": lambda op, result: op.attributes,
    "an operand": lambda op, result: op.operands,
    "its place": lambda op, result: ir.InsertionPoint.at_block_begin(op.block),
    "a result": lambda op, result: result.owner,
    "the type of a result": lambda op, result: result.type,
    "a key": lambda op, result: {result: 1},
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_use_of_what_was_erased_is_noticed(use, block):
    op, result = block.operations[0].operation, block.operations[0].operation.result
    with erased.watching() as watch:
        erase(op)
        assert "`stablehlo.sine` was erased at " in used(watch, lambda: use(op, result))


def test_a_table_that_has_an_erased_key_is_noticed(block):
    op, x = block.operations[0].operation, block.arguments[0]
    with erased.watching() as watch:
        table = {op.result: 1}
        erase(op)
        assert "`__eq__` is asked of it" in used(watch, lambda: x in table)


def test_an_erased_argument_is_noticed(block):
    _, y = block.arguments
    with erased.watching() as watch:
        table = {y}
        erase_arguments(block, [1])
        assert "an argument of `" in used(watch, lambda: block.arguments[0] in table)


def test_what_replaced_ops_gave_stays_a_key(block):
    op, x = block.operations[0].operation, block.arguments[0]
    with erased.watching() as watch, erasing():
        table = {op.result: x}
        retire(op)
        assert table[op.result] == x
        assert "`operands` is asked of it" in used(watch, lambda: op.operands)


def test_a_second_erasure_is_noticed(block):
    op = block.operations[0].operation
    with erased.watching() as watch, erasing():
        erase(op)
        assert "`stablehlo.sine` is erased twice" in used(watch, lambda: erase(op))


def test_a_use_of_what_an_erased_region_holds_is_noticed(module, block):
    """An op that is moved out of a function still uses the function's arguments."""
    function, op = block.owner.operation, block.operations[0].operation
    place = ir.Module.create(ir.Location.unknown(module.context))
    with erased.watching() as watch:
        place.body.append(op)
        assert "uses a value of a region" in used(watch, lambda: erase(function))
