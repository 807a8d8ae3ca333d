"""Laplacians, by each rule, against the trace of JAX's Hessian and nested forward mode."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback.ir.modules import clone
from pullback.passes.manager import run_pipeline
from tests.passes.test_jet import (
    CONTROL,
    STEPS,
    X,
    close,
    doubled,
    doubled_forward,
    linear_in_part,
    other_value,
    root,
    tripled,
)

pytestmark = pytest.mark.usefixtures("float64")


def of_jax(function, *args, argnums=0):
    """The sum of the diagonals of nested forward mode's Hessians, by each element."""

    def of_one(i):
        def trace(second):
            count = np.size(args[i])
            matrices = second.reshape(
                *second.shape[: second.ndim - 2 * np.ndim(args[i])], count, -1
            )
            return jnp.trace(matrices, axis1=-2, axis2=-1)

        return jax.tree.map(trace, jax.jacfwd(jax.jacfwd(function, i), i)(*args))

    numbers = (argnums,) if isinstance(argnums, int) else argnums
    return jax.tree.map(lambda *terms: sum(terms), *map(of_one, numbers))


def agrees(function, expected=None):
    """Ours of a function equals that of JAX of another one, or of the same."""
    found = pb.laplacian(function)(X)
    expected = of_jax(expected or function, X)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, expected)
    close(found, expected, 1e-10)


@pytest.mark.parametrize("name", STEPS)
def test_it_is_the_trace_of_the_hessian(name):
    agrees(STEPS[name])


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name):
    agrees(CONTROL[name])


def network(x, weights):
    for w in weights:
        x = jax.nn.softplus(x @ w) + 0.1 * x @ w
    return jnp.sum(x**2)


WEIGHTS = [np.linspace(-1, 1, 12).reshape(3, 4), np.linspace(0.5, -1, 8).reshape(4, 2)]


def test_a_scalar_of_a_network():
    close(pb.laplacian(network)(X, WEIGHTS), jnp.trace(jax.hessian(network)(X, WEIGHTS)))


def test_products_of_two_values_that_move():
    agrees(lambda x: jnp.sin(x) * x + x * x * jnp.cos(x) + x * x)
    agrees(lambda x: jnp.arctan2(x, x) + jnp.arctan2(x, 1 + x * x))
    agrees(lambda x: jnp.convolve(jnp.sin(x), x * x))
    agrees(lambda x: jnp.einsum("ij,ik->jk", jnp.outer(x, x * x), jnp.outer(jnp.sin(x), x)))
    agrees(lambda x: jnp.abs((x + 1j * x * x) * jnp.exp(1j * x)) ** 3)


def test_products_of_an_argument_with_what_does_not_move():
    def function(x, y, w):
        first = jnp.sin(x @ w["xz"]) + jnp.einsum("zyx,x->zy", w["zyx"], x**2) @ y
        return first + jnp.einsum("ij,zji->z", y[:, None] * 1.0, w["zyx"][:, :1, :2]) + w["zy"] @ y

    def of_matrices(a, w):
        return jnp.einsum("ij,zji->z", a, w) ** 2

    rng = np.random.default_rng(0)
    shapes = {"xz": (3, 4), "zyx": (4, 2, 3), "zy": (4, 2)}
    w = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    y = np.array([0.2, -0.7])
    for argnums in (0, 1, (0, 1)):
        found = pb.laplacian(function, argnums)(X, y, w)
        close(found, of_jax(lambda x, y: function(x, y, w), X, y, argnums=argnums))
    a, w = rng.normal(size=(3, 2)), rng.normal(size=(4, 2, 3))
    close(pb.laplacian(of_matrices)(a, w), of_jax(lambda a: of_matrices(a, w), a))
    text = str(pb.trace(of_matrices)(a, w).laplacian())
    assert text.count("dot_general") == 1


def test_of_several_arguments_and_of_trees():
    def function(x, tree, n):
        return {"a": jnp.sin(x) * tree["b"] ** 3, "c": [(x @ tree["b"]) ** 2 * n]}

    def flat(x, y, n):
        return function(x, {"b": y}, n)

    args = X, {"b": 2 * X}, 3
    close(pb.laplacian(function)(*args), of_jax(flat, X, 2 * X, 3))
    close(pb.laplacian(function, 1)(*args), of_jax(flat, X, 2 * X, 3, argnums=1))
    both = of_jax(flat, X, 2 * X, 3, argnums=(0, 1))
    close(pb.laplacian(function, (1, 0))(*args), both)
    close(pb.laplacian(lambda pair: function(*pair, 3))(args[:2]), both)
    program = pb.trace(function)(*args)
    close(program.laplacian(wrt=(0, 1))(*args), both)
    assert program.laplacian(1) is program.laplacian(argnums=1)
    assert jax.tree.structure(both) == jax.tree.structure(program.laplacian((0, 1))(*args))


def test_an_integer_result_has_none():
    found = pb.laplacian(lambda x: (x * x, jnp.argmax(x)))(X)
    close(found[0], np.full(3, 2.0))
    assert found[1] is None


def test_the_dtype_is_that_of_the_result():
    found = pb.laplacian(lambda x: (x**2, x.astype(np.float16) ** 3))(np.float32(0.5))
    assert [v.dtype for v in found] == [np.float32, np.float16]
    close(found, (2.0, 3.0), 1e-3)


def test_what_does_not_move_has_zeros():
    close(pb.laplacian(lambda x: (3 * x, jnp.ones(2)))(X), (np.zeros(3), np.zeros(2)))
    assert pb.laplacian(jnp.sin)(np.zeros((0, 2))).shape == (0, 2)
    assert pb.laplacian(lambda x: jnp.sum(x**2))(np.zeros(0)) == 0


# ------------------------------------------------------------------------------------ rules


def test_a_custom_jvp_rule_is_taken_as_it_is():
    agrees(tripled)
    agrees(lambda x: tripled(jnp.outer(x, x)).sum(0))
    agrees(lambda x: jax.lax.scan(lambda c, _: (tripled(c) * x, c), x, None, length=3))


def test_a_backward_rule_is_taken_by_its_transpose():
    agrees(doubled, expected=doubled_forward)
    agrees(lambda x: doubled(jnp.sin(x)), expected=lambda x: doubled_forward(jnp.sin(x)))


def test_a_rule_that_mixes_elements():
    @jax.custom_jvp
    def mixed(x, y):
        return x * y

    @mixed.defjvp
    def _(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return mixed(x, y), x * jnp.sum(dx * y) + jnp.cumsum(dy) * mixed(y, x)

    agrees(lambda x: mixed(jnp.sin(x), x * x))


def test_the_value_is_that_of_the_rule():
    close(pb.laplacian(lambda x: other_value(x) * x**2)(X), 4 * np.sin(X) + 4 * X)


def test_linear_calls_and_loops_in_rules():
    agrees(linear_in_part, expected=lambda x: jnp.sin(x) * x * x)
    agrees(root)


def test_a_loop_stays_one_loop():
    def function(x):
        return jax.lax.scan(lambda c, _: (tripled(c) * x, None), x, None, 100)[0]

    assert str(pb.trace(function)(X).laplacian()).count("stablehlo.while") == 1


def test_no_value_of_second_order_has_a_direction():
    program = pb.trace(lambda x: jnp.sum(jnp.tanh(jnp.tanh(jnp.outer(x, x)))))(np.ones(50))
    text = str(program.laplacian().run_passes("lower-custom-derivatives,cse"))
    squares = text.count("applies stablehlo.add across dimensions = [0] : (tensor<50x50x50x")
    assert squares == 3
    assert "tensor<50x50x50x50x" not in text


# ----------------------------------------------------------------------------------- blocks

IN_BLOCKS = {
    "a network": lambda x, y: network(x, WEIGHTS) * y[0],
    "products with an argument": lambda x, y: jnp.sin(y @ WEIGHTS[0][:2]) * jnp.sum(x @ WEIGHTS[0]),
    "a scan": lambda x, y: jax.lax.scan(lambda c, a: (tripled(c) * a, c), x, y)[1],
    "rules": lambda x, y: other_value(x) * doubled(x) * x + root(y[1]),
    "no dependence": lambda x, y: (jnp.ones(2), jnp.argmax(x), y[:1]),
}


@pytest.mark.parametrize("function", IN_BLOCKS.values(), ids=IN_BLOCKS)
def test_blocks_give_the_same(function):
    y = np.array([0.4, -0.3])
    for argnums, size in ((0, 3), (1, 2), ((1, 0), 5)):
        whole = pb.laplacian(function, argnums)(X, y)
        for block in range(1, size + 2):
            close(pb.laplacian(function, argnums, block=block)(X, y), whole)
            program = pb.trace(function)(X, y).laplacian(argnums, block=block)
            assert ("stablehlo.while" in str(program)) >= (block < size)


def test_a_block_bounds_what_has_directions():
    program = pb.trace(lambda x: jnp.sum(jnp.tanh(jnp.tanh(jnp.outer(x, x)))))(np.ones(50))
    text = str(program.laplacian(block=8))
    assert "tensor<50x50x50x" not in text
    assert "tensor<8x50x50x" in text
    assert "tensor<2x50x50x" in text  # of the last block


def test_blocks_at_a_point_where_no_direction_has_a_finite_term():
    f = lambda x: jnp.sqrt(jnp.sum(x))  # noqa: E731
    assert pb.laplacian(f, block=2)(np.zeros(3)) == pb.laplacian(f)(np.zeros(3)) == -np.inf


def test_blocks_can_be_batched_differentiated_and_saved(tmp_path):
    blocks = pb.laplacian(network, block=2)
    xs = np.stack([X, 2 * X])
    close(
        jax.vmap(blocks, (0, None))(xs, WEIGHTS),
        jax.vmap(pb.laplacian(network), (0, None))(xs, WEIGHTS),
    )
    for grad in (pb.grad, jax.grad):
        close(grad(blocks, 1)(X, WEIGHTS), pb.grad(pb.laplacian(network), 1)(X, WEIGHTS))
    program = pb.trace(network)(X, WEIGHTS).laplacian(block=2)
    program.save(tmp_path / "f.mlirbc")
    close(pullback_runtime.load(tmp_path / "f.mlirbc")(X, WEIGHTS), program(X, WEIGHTS))
    close(
        pb.laplacian(blocks, block=1)(X, WEIGHTS), pb.laplacian(pb.laplacian(network))(X, WEIGHTS)
    )


def test_each_block_would_draw_other_numbers():
    def noisy(x):
        noise = jax.experimental.io_callback(np.random.rand, jax.ShapeDtypeStruct((), float))
        return noise * x**2

    assert np.all(pb.laplacian(noisy)(X) >= 0)
    with pytest.raises(pb.MissingRuleError, match="each block runs it again"):
        pb.laplacian(noisy, block=2)(X)


# ----------------------------------------------------------------------------- composition


def test_it_can_be_batched_differentiated_and_jitted():
    def total(laplacian):
        return lambda x: jnp.sum(laplacian(lambda y: jnp.sin(y) * tripled(y) + y**4)(x))

    ours, theirs = total(pb.laplacian), total(lambda f: lambda x: of_jax(f, x))
    xs = np.stack([X, 2 * X])
    close(pb.grad(ours)(X), jax.grad(theirs)(X))
    close(jax.grad(ours)(X), jax.grad(theirs)(X))
    close(jax.jit(jax.vmap(ours))(xs), jax.vmap(theirs)(xs))
    batch = pb.vmap(pb.laplacian(network), (0, None))(xs, WEIGHTS)
    close(batch, jnp.stack([pb.laplacian(network)(x, WEIGHTS) for x in xs]))
    gradient = pb.grad(pb.laplacian(network), 1)(X, WEIGHTS)
    expected = jax.grad(lambda w: jnp.trace(jax.hessian(network)(X, w)))(WEIGHTS)
    close(gradient, expected)
    twice = pb.laplacian(pb.laplacian(network))(X, WEIGHTS)
    close(twice, of_jax(lambda x: jnp.trace(jax.hessian(network)(x, WEIGHTS)), X))


def test_a_file_has_laplacians_with_its_rules(tmp_path):
    file, of_laplacian = tmp_path / "f.mlirbc", tmp_path / "laplacian.mlirbc"
    program = pb.trace(lambda x: tripled(x) + doubled(x))(X)
    program.save(file)
    program.laplacian().save(of_laplacian)
    expected = of_jax(lambda x: tripled(x) + doubled_forward(x), X)
    close(pb.load(file).laplacian()(X), expected)
    close(pb.laplacian(pb.load(file))(X), expected)
    close(pullback_runtime.load(of_laplacian)(X), expected)


def test_symbolic_dimensions():
    (n,) = jax.export.symbolic_shape("n")
    program = pb.trace(lambda x: jnp.sum(jnp.sin(x)))(jax.ShapeDtypeStruct((n,), jnp.float64))
    close(program.laplacian()(X), -np.sum(np.sin(X)))
    close(program.laplacian(block=2)(X), -np.sum(np.sin(X)))


# ---------------------------------------------------------------------------------- errors


BAD = {
    "but x is int64": (pb.DerivativeTypeError, lambda: pb.laplacian(jnp.sin)(np.arange(3))),
    "but x['b'] is complex128": (
        pb.DerivativeTypeError,
        lambda: pb.laplacian(lambda x: jnp.abs(x["b"]))({"a": X, "b": X + 1j}),
    ),
    "requires at least 3 positional arguments": (
        pb.ArgumentMismatchError,
        lambda: pb.laplacian(lambda x, y: x, 2)(X, X),
    ),
    "in blocks of 0": (
        pb.ArgumentMismatchError,
        lambda: pb.laplacian(jnp.sin, block=0)(X),
    ),
    "in blocks of 2.0": (
        pb.ArgumentMismatchError,
        lambda: pb.trace(jnp.sin)(X).laplacian(block=2.0),
    ),
    "names an argument twice": (
        pb.ArgumentMismatchError,
        lambda: pb.laplacian(lambda x, y: x, (0, 0))(X, X),
    ),
    "is not a position of an argument": (
        pb.ArgumentMismatchError,
        lambda: pb.laplacian(jnp.sin, "x"),
    ),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_an_error(words):
    kind, call = BAD[words]
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)


def test_a_missing_rule_is_the_error_of_forward_mode():
    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1, 1),))
    program = pb.trace(clipped)(X)
    with pytest.raises(pb.NotLinearError) as of_jvp:
        program.jvp()
    with pytest.raises(pb.NotLinearError) as of_laplacian:
        program.laplacian()
    assert of_laplacian.value.message == of_jvp.value.message
    agrees(lambda x: jax.lax.stop_gradient(clipped(x)) * x**2, lambda x: X * x**2)


def test_batching_rules_are_not_lost():
    @jax.custom_batching.custom_vmap
    def cubed(x):
        return x * x * x

    cubed.def_vmap(lambda size, batched, x: (7 * x, True))
    with pytest.raises(pb.PullbackError, match="no Laplacian of this module") as caught:
        pb.laplacian(cubed)(X)
    assert "([e, 0 * e],)" in caught.value.do
    pairs = (pb.jet(cubed, (X,), ([e, 0 * e],)) for e in np.eye(3))
    close(sum(terms[1] for _, terms in pairs), 6 * X)


ON_TWO_DEVICES = """
import jax, jax.numpy as jnp, pullback as pb
mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
spec = jax.sharding.PartitionSpec("i")
f = jax.shard_map(jnp.sin, mesh=mesh, in_specs=spec, out_specs=spec)
try:
    pb.laplacian(f)(jnp.ones(4))
except pb.MissingRuleError as error:
    print(error)
"""


def test_a_shard_map_is_refused():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", ON_TWO_DEVICES]
    printed = subprocess.run(
        command, env={**os.environ, **flags}, capture_output=True, text=True, check=True
    ).stdout
    assert "no derivative rule for `sdy.manual_computation` in a Laplacian" in printed
    assert "without jax.shard_map" in printed


def test_a_print_comes_once(capsys):
    def printing(x):
        jax.debug.print("at {}", x[0])
        return jnp.sin(x) * x

    for block in (None, 1):
        close(pb.laplacian(printing, block=block)(X), of_jax(lambda x: jnp.sin(x) * x, X))
        jax.effects_barrier()
        assert capsys.readouterr().out == "at 0.3\n"


def test_the_pass_leaves_no_helper_functions():
    program = pb.trace(lambda x: jnp.tanh(x) * x)(X)
    module = clone(program.module)
    run_pipeline(module, "laplacian")
    assert str(module).count("func.func") == 1
    module = clone(program.module)
    run_pipeline(module, "laplacian{block=2}")
    assert str(module).count("func.func") == 2
