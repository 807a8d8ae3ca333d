"""`program.as_jax()`: programs as functions of JAX's own primitives."""

from __future__ import annotations

import re
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import SymbolicZero, linear_call
from jax.experimental import checkify
from jax.sharding import AxisType, PartitionSpec as P

import pullback as pb
from pullback.errors import (
    ArgumentMismatchError,
    MissingRuleError,
    NoJaxCounterpartError,
)

pytestmark = pytest.mark.whole

X = np.linspace(0.1, 1.0, 5, dtype=np.float32)
MATRIX = np.eye(3, dtype=np.float32) * 2 + np.arange(9, dtype=np.float32).reshape(3, 3) / 10


@jax.custom_jvp
def forward_rule(x, n):
    return jnp.sin(x) * n


forward_rule.defjvp(lambda p, t: (forward_rule(*p), 3 * jnp.cos(p[0]) * t[0] * p[1]))


@jax.custom_vjp
def reverse_rule(x, n):
    return jnp.sin(x) * n


reverse_rule.defvjp(
    lambda x, n: (reverse_rule(x, n), (x, n)), lambda r, ct: (2 * jnp.cos(r[0]) * ct * r[1], None)
)


def scan(x):
    return lax.scan(lambda c, a: (jnp.sin(c) * a, c * a), jnp.float32(1), x)


FUNCTIONS = {
    "forward rule": lambda x: forward_rule(x, 3),
    "reverse rule": lambda x: reverse_rule(x, 3),
    "linear call": lambda x: linear_call(lambda r, v: v / 2, lambda r, ct: ct / 3, (), x),
    "scan": scan,
    "reverse scan": lambda x: lax.scan(
        lambda c, a: (c + a[0] * a[1], c), x[0], (x, x**2), reverse=True
    ),
    "scan of a loop": lambda x: lax.scan(lambda c, a: (scan(c * a)[1], c), x, x)[1],
    "loop": lambda x: lax.fori_loop(0, 4, lambda i, c: c * jnp.cos(x[i]) + c, x),
    "cond": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "switch": lambda x: lax.switch(jnp.int32(x[0] * 20), [jnp.sin, jnp.cos, jnp.tan], x),
    "sort": lambda x: jnp.sort(jnp.sin(x * 9)),
    "order": lambda x: x[jnp.argsort(-x)],
    "scatter": lambda x: x.at[jnp.array([1, 3, 7])].add(x[:3]),
    "greatest": lambda x: (jnp.argmax(x), x[jnp.argmax(x)]),
    "softplus": jax.jit(jax.nn.softplus),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(jnp.cos(x))),
    "random": lambda x: jax.random.normal(jax.random.key(0), (3,)) * x[0],
    "windows": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), "VALID"),
    "solver": lambda x: jnp.linalg.solve(MATRIX * x[0] + jnp.diag(x[:3]), x[2:]),
    "factor": lambda x: jnp.linalg.cholesky(MATRIX @ MATRIX.T + jnp.diag(x[:3])),
}


def total(function):
    def summed(x):
        leaves = jax.tree.leaves(function(x))
        return sum(jnp.sum(leaf) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact))

    return summed


def agree(found, expected, tolerance=1e-5):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, tolerance, tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_are_those_of_the_function(name):
    function, x = FUNCTIONS[name], jnp.asarray(X)
    ours = pb.trace(function)(x).as_jax()
    agree(jax.jit(ours)(x), function(x))

    def derivatives(f):
        return jax.jit(lambda x: (jax.grad(total(f))(x), jax.jacrev(jax.grad(total(f)))(x)))(x)

    agree(derivatives(ours), derivatives(function), 1e-4)


def primitives(jaxpr):
    """The primitives of a jaxpr, those of its inner ones included."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            found |= primitives(inner) if hasattr(inner, "eqns") else set()
    return found


def test_a_jaxpr_has_the_primitives_of_jax():
    program = pb.trace(lambda x: scan(x)[0] + jnp.sum(jax.nn.softplus(forward_rule(x, 3))))(X)
    found = primitives(jax.make_jaxpr(program.as_jax())(X).jaxpr)
    assert {"scan", "custom_jvp_call", "jit", "sin", "mul", "reduce_sum"} <= found
    assert not found & {"call_module", "dynamic_slice", "dynamic_update_slice"}


def test_a_loaded_file_has_the_trees_and_the_rules(tmp_path):
    def loss(params, x, *, scale):
        return {"loss": scale * jnp.sum(reverse_rule(x * params["w"], 2)), "x": x}

    params, scale = {"w": jnp.asarray(X)}, jnp.float32(0.5)
    pb.trace(loss)(params, X, scale=scale).save(tmp_path / "loss.mlirbc")
    ours = pb.load(tmp_path / "loss.mlirbc").as_jax()
    agree(ours(params, X, scale=scale), loss(params, X, scale=scale))

    def derivatives(f):
        def of(w):
            return jax.grad(lambda w: f({"w": w}, X, scale=scale)["loss"])(w)

        return of(params["w"]), jax.jacrev(of)(params["w"])

    agree(derivatives(ours), derivatives(loss))
    batch = jax.vmap(lambda x: ours(params, x, scale=scale)["loss"])(jnp.stack([X, 2 * X]))
    agree(batch[1], loss(params, 2 * X, scale=scale)["loss"])


def test_a_program_comes_back_from_jax():
    program = pb.trace(FUNCTIONS["forward rule"])(X)
    again = pb.trace(program.as_jax())(X)
    assert "pullback.custom_jvp_call" in str(again)
    agree(pb.grad(total(again))(X), 9 * jnp.cos(X))


def test_a_module_of_64_bits_keeps_them():
    with jax.enable_x64(True):
        program = pb.trace(lambda x: (x.astype("float64") + 1e-12 - x).astype("float32"))(X)
    assert not jax.config.jax_enable_x64
    agree(program.as_jax()(X), np.full(5, 1e-12, np.float32), 1e-4)


# ---------------------------------------------------------------------- what ops of modules say


def module(body, *types):
    """A program of these argument types; %0, %1, … are its arguments, and %r its result."""
    arguments = ", ".join(f"%{i}: tensor<{t}>" for i, t in enumerate(types[:-1]))
    text = f"""func.func public @main({arguments}) -> tensor<{types[-1]}> {{
      {body}
      return %r : tensor<{types[-1]}> }}"""
    return pb.load(text.encode())


PAIR = "(%a: tensor<f32>, %b: tensor<f32>)"
SUM = "%s = stablehlo.add %a, %b : tensor<f32> stablehlo.return %s : tensor<f32>"
ADD = "{ ^bb0" + PAIR + ": " + SUM + " }"
MODULES = {
    "total order": (
        "%r = stablehlo.compare LT, %0, %1, TOTALORDER : (tensor<4xf32>, tensor<4xf32>)"
        " -> tensor<4xi1>",
        ("4xf32", "4xf32", "4xi1"),
        [np.float32([-0.0, np.nan, 1, 2]), np.float32([0.0, np.inf, 1, np.nan])],
    ),
    "descending": (
        '%r = "stablehlo.sort"(%0) <{dimension = 0 : i64, is_stable = true}> ({ ^bb0' + PAIR + ":"
        " %s = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>"
        " stablehlo.return %s : tensor<i1> }) : (tensor<5xf32>) -> tensor<5xf32>",
        ("5xf32", "5xf32"),
        [np.float32([3, 1, 2, 5, 4])],
    ),
    "branch beyond the last": (
        '%r = "stablehlo.case"(%0) ({ stablehlo.return %1 : tensor<f32> }, {'
        " %m = stablehlo.negate %1 : tensor<f32> stablehlo.return %m : tensor<f32> })"
        " : (tensor<i32>) -> tensor<f32>",
        ("i32", "f32", "f32"),
        [np.int32(-3), np.float32(2)],
    ),
    "negative index": (
        "%r = stablehlo.dynamic_slice %0, %1, sizes = [2] : (tensor<5xf32>, tensor<i32>)"
        " -> tensor<2xf32>",
        ("5xf32", "i32", "2xf32"),
        [X, np.int32(-1)],
    ),
    "permuting broadcast": (
        "%r = stablehlo.broadcast_in_dim %0, dims = [2, 0] : (tensor<2x3xf32>)"
        " -> tensor<3x4x2xf32>",
        ("2x3xf32", "3x4x2xf32"),
        [np.arange(6, dtype=np.float32).reshape(2, 3)],
    ),
    "reduce from a value": (
        '%r = "stablehlo.reduce"(%0, %1) <{dimensions = array<i64: 0>}> (' + ADD + ")"
        " : (tensor<5xf32>, tensor<f32>) -> tensor<f32>",
        ("5xf32", "f32", "f32"),
        [X, np.float32(7)],
    ),
    "reversed window": (
        "%r = stablehlo.convolution(%0, %1) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],"
        " window = {stride = [2], pad = [[1, 0]], lhs_dilate = [2], rhs_dilate = [1],"
        " reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        " : (tensor<1x1x5xf32>, tensor<1x1x2xf32>) -> tensor<1x1x5xf32>",
        ("1x1x5xf32", "1x1x2xf32", "1x1x5xf32"),
        [X.reshape(1, 1, 5), np.float32([[[2, 3]]])],
    ),
    "indices in front": (
        '%r = "stablehlo.gather"(%0, %1) <{dimension_numbers = #stablehlo.gather<offset_dims ='
        " [1], collapsed_slice_dims = [0], start_index_map = [0, 1], index_vector_dim = 0>,"
        " slice_sizes = array<i64: 1, 2>}> : (tensor<4x3xf32>, tensor<2x3xi32>)"
        " -> tensor<3x2xf32>",
        ("4x3xf32", "2x3xi32", "3x2xf32"),
        [np.arange(12, dtype=np.float32).reshape(4, 3), np.int32([[0, 9, 2], [0, 1, -5]])],
    ),
    "precision": (
        "%r = stablehlo.dot_general %0, %1, contracting_dims = [0] x [0], precision ="
        " [HIGHEST, DEFAULT] : (tensor<5xf32>, tensor<5xf32>) -> tensor<f32>",
        ("5xf32", "5xf32", "f32"),
        [X, X],
    ),
    "attributes of other dialects, as Reactant and XLA write them": (
        "%r = stablehlo.transpose %0, dims = [1, 0] {enzymexla.bounds = [[0, 4]], result_layout ="
        " dense<[0, 1]> : tensor<2xindex>, operand_layout = dense<[1, 0]> : tensor<2xindex>,"
        ' enzyme.disable_mincut, acme.rounding = "up"} : (tensor<2x3xf32>) -> tensor<3x2xf32>',
        ("2x3xf32", "3x2xf32"),
        [np.arange(6, dtype=np.float32).reshape(2, 3)],
    ),
    "accuracy": (
        "%r = stablehlo.exponential %0 {result_accuracy = #stablehlo.result_accuracy<mode ="
        " #stablehlo.result_accuracy_mode<HIGHEST>>} : tensor<5xf32>",
        ("5xf32", "5xf32"),
        [X],
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_what_an_op_says_is_done(name):
    body, types, arguments = MODULES[name]
    program = module(body, *types)
    agree(program.as_jax()(*arguments), program(*arguments), 1e-6)


def test_precision_and_accuracy_are_those_of_the_module():
    def printed(name):
        body, types, arguments = MODULES[name]
        return str(jax.make_jaxpr(module(body, *types).as_jax())(*arguments))

    assert "(Precision.HIGHEST, Precision.DEFAULT)" in printed("precision")
    assert "accuracy=1" in printed("accuracy") or "HIGHEST" in printed("accuracy")


def test_a_reduction_keeps_the_order_of_its_elements():
    """Of a body that does not commute, in all derivatives: here the last element."""
    body = (
        '%r = "stablehlo.reduce"(%0, %1) <{dimensions = array<i64: 0>}> ({ ^bb0' + PAIR + ":"
        " %z = stablehlo.subtract %a, %a : tensor<f32> %s = stablehlo.add %z, %b : tensor<f32>"
        " stablehlo.return %s : tensor<f32> }) : (tensor<5xf32>, tensor<f32>) -> tensor<f32>"
    )
    ours = module(body, "5xf32", "f32", "f32").as_jax()
    agree(jax.grad(ours)(X, np.float32(0)), np.float32([0, 0, 0, 0, 1]))
    agree(jax.jacfwd(ours)(X, np.float32(0)), np.float32([0, 0, 0, 0, 1]))


# ------------------------------------------------------------------------------------- refusals


def test_an_op_without_counterpart_is_refused_with_its_line():
    def function(x):
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(
        NoJaxCounterpartError, match=r"JAX has no primitive for .*callback"
    ) as caught:
        pb.trace(function)(X).as_jax()
    assert "test_function.py" in str(caught.value)
    assert "call the program itself" in caught.value.do


@pytest.mark.parametrize(
    ("body", "types", "words"),
    [
        (
            '%r = "stablehlo.negate"(%0) {chlo.rounding = "up"} : (tensor<f32>) -> tensor<f32>',
            ("f32", "f32"),
            "stablehlo.negate with the attribute chlo.rounding",
        ),
        (
            '%r = "stablehlo.negate"(%0) {rounding = "up"} : (tensor<f32>) -> tensor<f32>',
            ("f32", "f32"),
            "stablehlo.negate with the attribute rounding",
        ),
        (
            "%s = stablehlo.constant dense<2.0> : tensor<f32>"
            ' %r = "stablehlo.rng"(%0, %s, %1) <{rng_distribution = #stablehlo<rng_distribution'
            " NORMAL>}> : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>",
            ("f32", "1xi64", "4xf32"),
            "stablehlo.rng of the distribution NORMAL",
        ),
    ],
)
def test_what_jax_cannot_say_is_refused(body, types, words):
    with pytest.raises(NoJaxCounterpartError, match=words):
        module(body, *types).as_jax()


def test_a_derivative_without_a_rule_is_an_error():
    @jax.custom_jvp
    def f(x):
        return x

    def refuse(primals, tangents):
        raise ValueError("nothing here")

    f.defjvp(refuse)
    ours = pb.trace(f)(X).as_jax()
    agree(ours(X), X)
    with pytest.raises(MissingRuleError, match="nothing here"):
        jax.grad(total(ours))(X)


def test_an_argument_of_another_type_is_named():
    ours = pb.trace(lambda x: {"y": x["a"]})({"a": X}).as_jax()
    with pytest.raises(ArgumentMismatchError, match=r"x\['a'\] must have type float32\[5\]"):
        ours({"a": X[:2]})


FACTORS = {
    "cholesky": lambda a: lax.linalg.cholesky(a @ a.T),
    "lu": lambda a: lax.linalg.lu(a)[0],
    "svd": lambda a: lax.linalg.svd(a),
    "eigh": lambda a: lax.linalg.eigh(a)[1],
}


@pytest.mark.parametrize("name", FACTORS)
def test_a_routine_of_lapack_is_the_primitive_of_jax(name):
    """Whose batches JAX hands to the library as one call."""
    function, a = FACTORS[name], jnp.asarray(MATRIX)
    ours = pb.trace(function)(a).as_jax()
    found = primitives(jax.make_jaxpr(jax.vmap(ours))(jnp.stack([a, 2 * a])).jaxpr)
    assert name in found
    assert "ffi_call" not in found
    agree(jax.jacobian(ours)(a), jax.jacobian(function)(a), 1e-4)


def energy(x):
    return jnp.sum(forward_rule(x, 3) ** 2)


ENERGY = energy.__code__.co_firstlineno + 1


def test_equations_have_the_lines_of_the_program(tmp_path):
    pb.trace(energy)(X).save(tmp_path / "energy.mlirbc")
    ours = pb.load(tmp_path / "energy.mlirbc").as_jax()
    printed = jax.make_jaxpr(ours)(X).pretty_print(source_info=True)
    assert re.search(rf"reduce_sum.*{re.escape(__file__)}:{ENERGY} \(energy\)", printed)
    assert re.search(r"sin.*\(forward_rule\)", printed)


def test_an_error_of_checkify_comes_from_the_line_of_the_program():
    ours = pb.trace(energy)(X).as_jax()
    error, _ = checkify.checkify(ours, errors=checkify.nan_checks)(X * np.inf)
    with pytest.raises(Exception, match="nan generated by primitive: sin") as raised:
        error.throw()
    frames = traceback.extract_tb(raised.value.__cause__.__traceback__)
    line = forward_rule.__wrapped__.__code__.co_firstlineno + 2
    assert (__file__, "forward_rule", line) in {(f.filename, f.name, f.lineno) for f in frames}


def test_a_mesh_of_more_devices_than_there_are_is_refused():
    text = """
    sdy.mesh @mesh = <["i"=2]>
    func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"i"}]>]
          out_shardings=[<@mesh, [{"i"}]>] manual_axes={"i"} (%a: tensor<2xf32>) {
        %1 = stablehlo.sine %a : tensor<2xf32>
        sdy.return %1 : tensor<2xf32>
      } : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    with pytest.raises(NoJaxCounterpartError, match="on 2 devices: there are 1 here"):
        pb.load(text.encode()).as_jax()


def test_a_rule_that_gives_zero_ends_the_flow_of_derivatives():
    """As in the program, which has rules for the operands alone that are perturbed."""

    @jax.custom_jvp
    def constant(x):
        return jnp.cos(x)

    constant.defjvp(lambda p, t: (constant(*p), jnp.zeros_like(t[0])))

    @jax.custom_jvp
    def product(x, y):
        return x * y

    def moved(primals, tangents):
        assert type(tangents[1]) is SymbolicZero
        return product(*primals), 7 * tangents[0]

    product.defjvp(moved, symbolic_zeros=True)
    program = pb.trace(lambda x: jnp.sum(product(x, constant(x))))(X)
    agree(jax.jvp(program.as_jax(), (X,), (X,))[1], 7 * jnp.sum(X))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (X[:3], r"pass an array of shape \(5,\), or trace the program for \(3,\)"),
        (X.astype(np.int32), "convert it: jax.numpy.asarray"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_what_differs(given, what):
    with pytest.raises(ArgumentMismatchError, match=what):
        pb.trace(energy)(X).as_jax()(given)


def test_a_sum_over_the_one_device_of_a_mesh_is_its_operand():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Auto,))
    mapped = jax.shard_map(
        lambda x: lax.psum(jnp.sin(x), "i"), mesh=mesh, in_specs=P("i"), out_specs=P()
    )
    agree(pb.trace(mapped)(X).as_jax()(X), jnp.sin(X))
