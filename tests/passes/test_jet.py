"""Taylor mode: terms along a curve, by each rule, against nested forward mode and JAX's own."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.jet import jet as jet_of_jax

import pullback as pb
import pullback_runtime
from pullback.ir.modules import clone
from pullback.passes.manager import run_pipeline
from tests.rules.processes import run_python

pytestmark = pytest.mark.usefixtures("float64")

X = np.array([0.3, -0.4, 0.5])
SERIES = [np.array([0.7, 0.2, -1.1]), np.array([0.4, -0.9, 0.3]), np.array([-0.2, 0.5, 0.8])]


def nested(function, x, series):
    """The derivatives along the curve by jax.jvp of jax.jvp of …, whose cost is exponential."""

    def along(s):
        terms = (t * s**k / math.factorial(k) for k, t in enumerate(series, 1))
        return function(x + sum(terms))

    functions = []
    for _ in series:
        along = (lambda f: lambda s: jax.jvp(f, (s,), (1.0,))[1])(along)
        functions.append(along)
    return jax.jit(lambda s: [f(s) for f in functions])(0.0)


def close(found, expected, tolerance=1e-11):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def agrees(function, x=X, series=SERIES, expected=None):
    """Ours of a function equal nested forward mode of another one, or of the same."""
    out, found = pb.jet(function, (x,), (series,))
    of_each = jax.tree.leaves(nested(expected or function, x, series))
    count = len(jax.tree.leaves(out))
    by_leaf = [of_each[i::count] for i in range(count)]
    close(found, by_leaf)


STEPS = {
    "sine": jnp.sin,
    "tangent": jnp.tan,
    "tanh": jnp.tanh,
    "exponential": jnp.exp,
    "expm1": jnp.expm1,
    "logarithm": lambda x: jnp.log(2 + x),
    "log1p": jnp.log1p,
    "roots": lambda x: jnp.sqrt(2 + x) + jax.lax.rsqrt(2 + x) + jnp.cbrt(2 + x),
    "quotient": lambda x: jnp.sin(x) / (2 + x * x),
    "powers": lambda x: (2 + x) ** 2.5 + x**3 + (2 + x) ** x,
    "logistic": jax.nn.sigmoid,
    "extrema": lambda x: jnp.maximum(x, x * x) + jnp.abs(x) + jnp.clip(x, -0.3, 0.4) ** 2,
    "where": lambda x: jnp.where(x > 0, jnp.exp(x), x**2),
    "special": lambda x: jax.scipy.special.erf(x) + jax.scipy.special.gammaln(2 + x),
    "arcs": lambda x: jnp.arccos(x) + jnp.arctan2(x, 1 + x) + jnp.arcsinh(x),
    "activations": lambda x: jax.nn.softplus(x) + jax.nn.gelu(x) + jax.nn.softmax(x),
    "sort": lambda x: jnp.sort(x * x),
    "product": jnp.prod,
    "matrices": lambda x: jnp.outer(x, x) @ jnp.outer(jnp.sin(x), x),
    "cumulative": lambda x: jnp.cumsum(x * x) + jnp.cumprod(x),
    "fourier": lambda x: jnp.abs(jnp.fft.fft(x * x)),
    "linear algebra": lambda x: jnp.linalg.solve(jnp.outer(x, x) + jnp.eye(3), x),
    "factorisation": lambda x: jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(3)),
    "eigenvalues": lambda x: jnp.linalg.eigh(jnp.outer(x, x) + jnp.diag(jnp.arange(3.0))),
}


def test_an_op_of_one_value_is_not_taken_for_one_of_two():
    agrees(lambda x: jnp.arctan2(x, x) + jnp.arctan2(x, 1 + x))
    agrees(lambda x: jnp.arctan2(1 + x, 2 + x) + jnp.arctan2(x, x))


@pytest.mark.parametrize("name", STEPS)
def test_terms_are_those_of_nested_forward_mode(name):
    agrees(STEPS[name])


def test_order_ten():
    def function(x):
        return jnp.exp(jnp.sin(x) * x)

    series = [1.0] + [0.0] * 9
    found = pb.jet(function, (0.3,), (series,))[1]
    close(found, jet_of_jax(function, (0.3,), (series,))[1], 1e-9)
    assert found[-1] == pytest.approx(6146.421329495957, rel=1e-9)  # jax.jvp, ten times nested


# ---------------------------------------------------------------------------------- control


CONTROL = {
    "scan": lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c) * x, c), x, None, length=5),
    "while": lambda x: jax.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x)
    )[1],
    "cond": lambda x: jax.lax.cond(x[0] > 0, lambda y: jnp.exp(y * x), lambda y: y, x),
    "switch": lambda x: jax.lax.switch(1, [jnp.sin, lambda y: y * x, jnp.exp], x),
    "checkpoint": lambda x: jax.checkpoint(lambda y: jnp.sin(y) * jnp.exp(y))(x),
    "jit": lambda x: jax.jit(lambda y: jnp.sin(y) * jnp.exp(y) * jnp.tanh(y) + jnp.cos(y))(x * x),
    "map": lambda x: jax.lax.map(lambda y: jax.nn.softplus(y) * x, x),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name):
    agrees(CONTROL[name])


def test_a_loop_stays_one_loop():
    program = pb.trace(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, 100)[0])(X)
    assert str(program.jet(6)).count("stablehlo.while") == 1


# ------------------------------------------------------------------------------------ rules


@jax.custom_jvp
def tripled(x):
    """Its rule is wrong on purpose, and calls the function itself."""
    return jnp.sin(x)


@tripled.defjvp
def _(primals, tangents):
    return tripled(*primals), 3 * tangents[0] * jnp.cos(primals[0]) * tripled(*primals)


@jax.custom_vjp
def doubled(x):
    return jnp.exp(x)


doubled.defvjp(lambda x: (doubled(x), x), lambda x, ct: (2 * ct * doubled(x) * x,))


@jax.custom_jvp
def doubled_forward(x):
    return jnp.exp(x)


@doubled_forward.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return doubled_forward(x), 2 * dx * doubled_forward(x) * x


@jax.custom_jvp
def other_value(x):
    """Its rule gives another value as well."""
    return jnp.sin(x)


@other_value.defjvp
def _(primals, tangents):
    return 2 * jnp.sin(*primals), tangents[0]


@jax.custom_jvp
def root(x):
    """The root of y³ + y = x, by Newton's method; the rule is a loop that depends on the root."""
    return jax.lax.fori_loop(0, 40, lambda _, y: y - (y**3 + y - x) / (3 * y**2 + 1), x)


@root.defjvp
def _(primals, tangents):
    y, dx = root(*primals), tangents[0]

    def step(_, z):
        return z + 0.3 * (dx - (3 * y**2 + 1) * z)

    return y, jax.lax.fori_loop(0, 120, step, dx)


@jax.custom_jvp
def branched(x):
    """Its rule has branches that depend on the function itself."""
    return jnp.exp(x)


@branched.defjvp
def _(primals, tangents):
    y, dx = branched(*primals), tangents[0]
    return y, jax.lax.cond(y[0] > 1, lambda: dx * y, lambda: 2 * dx * y * y)


def linear_in_part(x):
    return pb.linear_call(lambda r, v: r * v, lambda r, ct: r * ct, jnp.sin(x), x * x)


def test_a_custom_jvp_rule_is_taken_as_it_is():
    agrees(tripled)
    agrees(lambda x: jax.lax.scan(lambda c, _: (tripled(c) * x, c), x, None, length=3))


def test_a_backward_rule_is_taken_by_its_transpose():
    agrees(doubled, expected=doubled_forward)
    agrees(lambda x: doubled(jnp.sin(x)), expected=lambda x: doubled_forward(jnp.sin(x)))


@jax.custom_jvp
def tripled_by_formula(x):
    """Its rule is that of `tripled`, but does not call the function."""
    return jnp.sin(x)


@tripled_by_formula.defjvp
def _(primals, tangents):
    return jnp.sin(*primals), 3 * tangents[0] * jnp.cos(primals[0]) * jnp.sin(*primals)


def test_the_value_of_a_rule_moves_as_the_rule_says_however_it_is_computed():
    """Nested forward mode differentiates this formula of the value by its ops, at order 2."""
    by_formula, terms = pb.jet(tripled_by_formula, (X,), (SERIES,))
    value, (first, *_) = pb.jet(tripled, (X,), (SERIES,))
    close((by_formula, terms[0]), (value, first))
    of_square = pb.jet(lambda x: tripled_by_formula(x) ** 2, (X,), (SERIES[:2],))[1]
    y, dy, ddy = by_formula, terms[0], terms[1]
    close(of_square, [2 * y * dy, 2 * dy**2 + 2 * y * ddy])


def test_the_value_is_that_of_the_rule():
    out, _ = pb.jet(other_value, (X,), (SERIES,))
    close(out, jax.jvp(other_value, (X,), (X,))[0])


def test_a_linear_call_with_residuals_that_move():
    agrees(linear_in_part, expected=lambda x: jnp.sin(x) * x * x)


def test_a_rule_whose_loop_depends_on_the_result():
    agrees(root)


def test_a_rule_whose_branches_depend_on_the_result():
    agrees(branched)
    agrees(lambda x: branched(x - 1))
    agrees(lambda x: jax.lax.scan(lambda c, _: (branched(c) / 9 + x, c), x, None, length=3))


def test_a_rule_that_is_taken_on_equal_and_on_other_operands():
    """The right-hand side is the parameter of the matrix at first, and no more in the rule."""

    def solved(x):
        return jax.scipy.sparse.linalg.cg(lambda v: (2 + x * x) * v, x, tol=1e-14)[0]

    agrees(solved, expected=lambda x: x / (2 + x * x))


def test_implicit_functions():
    def solved(x):
        def solve(matvec, b):
            return b / (2 + x * x)

        return jax.lax.custom_linear_solve(
            lambda v: (2 + x * x) * v, jnp.sin(x), solve, symmetric=True
        )

    agrees(solved, expected=lambda x: jnp.sin(x) / (2 + x * x))


def test_a_rule_that_calls_its_function_has_polynomial_cost():
    def steps(order):
        program = pb.trace(tripled)(X).jet(order).run_passes("lower-custom-derivatives,cse")
        return str(program).count(" = ")

    assert steps(12) < 8 * steps(4)


def test_an_integer_result_has_no_terms():
    out, series = pb.jet(lambda x: (x * x, jnp.argmax(x)), (X,), (SERIES,))
    assert out[1] == 2
    assert all(t.dtype == out[1].dtype and t == 0 for t in series[1])


# -------------------------------------------------------------------------------------- API


def two(x, tree):
    return {"a": x * tree["b"], "c": [jnp.exp(x) @ tree["b"], 3]}


def test_signature_and_results_of_jax():
    def function(x, y):
        return {"a": jnp.exp(x) * y, "c": (x @ y, 3)}

    series = SERIES, [t + 1 for t in SERIES]
    for scaled in (True, False):
        ours = pb.jet(function, (X, 2 * X), series, scaled)
        theirs = jet_of_jax(function, (X, 2 * X), series, scaled)
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        close(ours, theirs)


def test_a_tree_has_a_list_in_the_place_of_each_leaf():
    _, series = pb.jet(two, (X, {"b": 2 * X}), (SERIES, {"b": SERIES}))
    close(series["a"], nested(lambda x: x * (x + X), X, SERIES))
    composed = pb.jet(lambda t: t["a"], ({"a": X},), ({"a": series["a"]},))[1]
    close(composed, series["a"])


def test_by_some_arguments():
    program = pb.trace(lambda x, y: jnp.sin(x) * y)(X, X)
    close(program.jet(3, argnums=0)(X, X, SERIES)[1], nested(lambda x: jnp.sin(x) * X, X, SERIES))
    assert program.jet(3, wrt=0) is program.jet(3, argnums=0)


def test_numbers_of_python_are_terms():
    close(pb.jet(jnp.sin, (0.5,), ((1, 0),))[1], [np.cos(0.5), -np.sin(0.5)])


def test_terms_can_be_batched_and_differentiated():
    def total(jet):
        return lambda x: sum(map(jnp.sum, jet(lambda y: jnp.sin(y) * y, (x,), (SERIES,))[1]))

    close(pb.grad(total(pb.jet))(X), jax.grad(total(jet_of_jax))(X))
    close(jax.grad(total(pb.jet))(X), jax.grad(total(jet_of_jax))(X))
    close(
        jax.vmap(total(pb.jet))(np.stack([X, 2 * X])),
        jnp.stack([total(jet_of_jax)(X), total(jet_of_jax)(2 * X)]),
    )
    program = pb.trace(jnp.sin)(X).jet(2)
    assert program.vmap()(*jax.tree.map(lambda v: jnp.stack([v, v]), (X, SERIES[:2])))[0].shape == (
        2,
        3,
    )


def test_a_file_has_taylor_mode_with_its_rules(tmp_path):
    file, of_jet = tmp_path / "f.mlirbc", tmp_path / "jet.mlirbc"
    program = pb.trace(lambda x: tripled(x) + doubled(x))(X)
    program.save(file)
    program.jet(3).save(of_jet)
    expected = nested(lambda x: tripled(x) + doubled_forward(x), X, SERIES)
    close(pb.load(file).jet(3)(X, SERIES)[1], expected)
    close(pb.jet(pb.load(file), (X,), (SERIES,))[1], expected)
    close(pullback_runtime.load(of_jet)(X, SERIES)[1], expected)


def test_symbolic_dimensions():
    (n,) = jax.export.symbolic_shape("n")
    program = pb.trace(jnp.sin)(jax.ShapeDtypeStruct((n,), jnp.float64))
    close(program.jet(3)(X, SERIES)[1], nested(jnp.sin, X, SERIES))


BAD = {
    "a series has 2 terms, and that of series[0] has 3": lambda: pb.jet(
        jnp.add, (X, X), (SERIES, SERIES[:2])
    ),
    "a series without terms": lambda: pb.jet(jnp.sin, (X,), ([],)),
    "float64[3], as its argument, but it is float64[]": lambda: pb.jet(jnp.sin, (X,), ([1.0],)),
    "float64[3], as its argument, but it is float32[3]": lambda: pb.jet(
        jnp.sin, (X,), ([np.ones(3, np.float32)],)
    ),
    "float64[3], as its argument, but it is complex128[3]": lambda: pb.jet(
        jnp.sin, (X,), ([1j * X],)
    ),
    "float64[3], as its argument, but it is int64[3]": lambda: pb.jet(
        jnp.sin, (X,), ([np.arange(3)],)
    ),
    "float64[3], as its argument, but it is a NoneType": lambda: pb.jet(
        jnp.sin, (X,), ([X, None],)
    ),
    "pass None there, or convert the argument, int64[], to a float": lambda: pb.jet(
        jnp.multiply, (X, 3), (SERIES, SERIES)
    ),
    "2 series for 1 arguments": lambda: pb.jet(jnp.sin, (X,), (SERIES, SERIES)),
    "must be tuples or lists": lambda: pb.jet(jnp.sin, X, (SERIES,)),
    "a series is a list of terms": lambda: pb.jet(jnp.sin, (X,), (X,)),
    "another structure than its argument": lambda: pb.jet(two, (X, {"b": X}), (SERIES, SERIES)),
    "no argument of pb.jet has a series": lambda: pb.jet(jnp.sin, (3,), (None,)),
    "a Taylor series of order 0": lambda: pb.trace(jnp.sin)(X).jet(0),
    "a Taylor series of order -1": lambda: pb.trace(jnp.sin)(X).jet(-1),
    "a Taylor series of order True": lambda: pb.trace(jnp.sin)(X).jet(True),
    "a Taylor series of order 2.5": lambda: pb.trace(jnp.sin)(X).jet(2.5),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_an_error(words):
    with pytest.raises(pb.ArgumentMismatchError) as caught:
        BAD[words]()
    assert words in str(caught.value)


PATHS = {
    "series[1]['b']": [X, None, SERIES[:2], []],
    "series[1]['b'][1]": [[X, 2.0, X], [X, X[:2], X], [X, np.float32(X), X]],
}


@pytest.mark.parametrize("path", PATHS)
def test_an_error_of_a_series_has_its_path(path):
    for given in PATHS[path]:
        with pytest.raises(pb.ArgumentMismatchError) as caught:
            pb.jet(two, (X, {"b": X}), (SERIES, {"b": given}))
        assert caught.value.where == path
    with pytest.raises(pb.ArgumentMismatchError, match=r"an integer has no series") as caught:
        pb.jet(lambda x, n: x * n["b"], (X, {"b": 3}), (SERIES, {"b": SERIES}))
    assert caught.value.where == "series[1]['b']"


def test_a_program_names_the_term_that_does_not_fit():
    program = pb.trace(two)(X, {"b": X}).jet(2)
    with pytest.raises(pullback_runtime.ArgumentError) as caught:
        program(X, {"b": X}, SERIES[:2], {"b": [X, X[:2]]})
    assert "(term 2 of tree['b']) has the wrong shape: expected float64[3]" in str(caught.value)


def test_a_missing_rule_is_the_error_of_forward_mode():
    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1, 1),))
    program = pb.trace(clipped)(X)
    with pytest.raises(pb.NotLinearError) as of_jvp:
        program.jvp()
    with pytest.raises(pb.NotLinearError) as of_jet:
        program.jet(2)
    assert of_jet.value.message == of_jvp.value.message

    def stopped(x):
        return jax.lax.stop_gradient(clipped(x)) * x

    close(pb.jet(stopped, (X,), (SERIES,))[1], [X * t for t in SERIES])


def test_a_missing_rule_is_at_the_line_of_its_op():
    def called_back(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), np.float64), x)

    with pytest.raises(pb.MissingRuleError, match=r"no jvp rule for `pure_callback`") as caught:
        pb.jet(called_back, (X,), (SERIES,))
    assert "test_jet.py" in caught.value.where
    assert caught.value.do == "wrap this step in jax.custom_vjp or jax.custom_jvp"


def test_the_pass_leaves_no_helper_functions():
    program = pb.trace(jnp.tanh)(X)
    module = clone(program.module)
    run_pipeline(module, "jet{order=2}")
    assert str(module).count("func.func") == 1


ON_TWO_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P
from tests.passes.test_jet import agrees, tripled
jax.config.update("jax_enable_x64", True)
mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
x, series = np.linspace(-0.5, 0.5, 8), [np.linspace(k, 1, 8) for k in range(3)]

def turning(x):
    def step(carry, _):
        total, block = carry
        block = lax.ppermute(block, "i", [(0, 1), (1, 0)])
        return (total + jnp.sin(block * x), block), None
    return lax.scan(step, (x, x), None, 3)[0][0]

def gathered(x):
    return jnp.sum(lax.all_gather(jnp.exp(x), "i")) * x

def scaled(w, x):
    return w * lax.axis_index("i") * jnp.exp(x), jnp.sin(w)

PARTS, WHOLE = P("i"), P()
CASES = [
    (lambda x: jnp.tanh(lax.psum(jnp.sin(x), "i")) * x, PARTS, PARTS),
    (lambda x: lax.psum(tripled(x) * x, "i"), PARTS, WHOLE),
    (jax.checkpoint(gathered), PARTS, PARTS),
    (turning, PARTS, PARTS),
]
for check in (True, False):
    def mapped(body, of_arguments, of_results):
        specs = {"in_specs": of_arguments, "out_specs": of_results}
        return jax.shard_map(body, mesh=mesh, check_vma=check, **specs)

    for case in CASES:
        agrees(mapped(*case), x, series)
    of_both = mapped(scaled, (WHOLE, PARTS), (PARTS, WHOLE))
    agrees(lambda x: of_both(jnp.sum(x), jnp.ones(8)), x, series)
    agrees(lambda x: of_both(jnp.sum(x), x), x, series)
"""


def test_shard_map():
    run_python("-c", ON_TWO_DEVICES, devices=2)
