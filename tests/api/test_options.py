"""Options of `vjp`, `linearize` and `vmap`: `in_nzs`, `saveable_args`, `sum_match`."""

from __future__ import annotations

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import SymbolicZero

import pullback as pb
from pullback.errors import ArgumentMismatchError
from tests.api.checks import assert_agrees

Pair = collections.namedtuple("Pair", "a b")
HAS_IN_NZS = jax.__version_info__ >= (0, 12)  # that are trees, and say what is wrong with one
X, Y = np.array([0.5, 1.0, 2.0]), np.array([3.0, 0.25, 0.75])
PATTERNS = [None, True, False, (True, False), (False, True)]


@jax.custom_jvp
def with_jvp(x, y):
    return jnp.sin(x) * y, jnp.cos(y)


@with_jvp.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return with_jvp(x, y), (jnp.cos(x) * y * dx + jnp.sin(x) * dy, -jnp.sin(y) * dy)


@jax.custom_vjp
def with_vjp(x, y):
    return jnp.sin(x) * y, x + y


with_vjp.defvjp(
    lambda x, y: (with_vjp(x, y), (x, y)),
    lambda r, cts: (jnp.cos(r[0]) * r[1] * cts[0] + cts[1], jnp.sin(r[0]) * cts[0] + cts[1]),
)

# Each of x and y, with results of which some depend on one of them only.
FUNCTIONS = {
    "pair": lambda x, y: (jnp.sin(x), jnp.cos(y)),
    "tree": lambda x, y: {"s": [jnp.sin(x) * y, y], "p": Pair(x, None), "k": jnp.ones(3)},
    "integers": lambda x, y: (x.astype(int), y, y.astype(int).astype(y.dtype)),
    "steps": lambda x, y: (jnp.sign(x), jnp.floor(y), jax.lax.stop_gradient(x) * y, jnp.argmax(x)),
    "same": lambda x, y: (x, y),
    "jitted": jax.jit(lambda x, y: (jnp.sin(x), jnp.cos(y))),
    "branches": lambda x, y: jax.lax.cond(
        x[0] > 0, lambda x, y: (y, x), lambda x, y: (jnp.cos(y), y), x, y
    ),
    "loop": lambda x, y: jax.lax.scan(lambda c, _: ((c[0] * c[1], 2 * c[1]), c), (x, y), None, 3),
    "checkpoint": jax.checkpoint(lambda x, y: (jnp.sin(x) * 2, jnp.cos(y) * x)),
    "jvp": with_jvp,
    "vjp": with_vjp,
    "scalar": lambda x, y: jnp.sum(x),
}
EXPECTED = {  # of JAX 0.12, for x alone
    "pair": (True, False),
    "tree": {"s": [True, False], "p": (True, None), "k": False},
    "integers": (False, False, False),
    "steps": (False, False, False, False),
    "same": (True, False),
    "jitted": (True, False),
    "branches": (False, True),
    "loop": ((True, False), (True, False)),
    "checkpoint": (True, True),
    "jvp": (True, False),
    "vjp": (True, True),
    "scalar": True,
}


def cotangents_of(out):
    def one(leaf):
        is_float = jnp.issubdtype(leaf.dtype, jnp.inexact)
        return 1.3 * leaf if is_float else np.zeros(leaf.shape, jax.dtypes.float0)

    return jax.tree.map(one, out)


@pytest.mark.parametrize("in_nzs", PATTERNS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_without_tangents(name, in_nzs):
    fun = FUNCTIONS[name]
    of_x, of_y = jnp.broadcast_to(True if in_nzs is None else jnp.array(in_nzs), 2)
    out, pull = pb.vjp(fun, X, Y, in_nzs=in_nzs)
    wanted_out, wanted_pull = jax.vjp(fun, X, Y)
    cts = cotangents_of(out)
    wanted = wanted_pull(cts)
    wanted = tuple(ct * flag for ct, flag in zip(wanted, (of_x, of_y), strict=True))
    assert_agrees((out, pull(cts)), (wanted_out, wanted))
    _, push = pb.linearize(fun, X, Y, in_nzs=in_nzs)
    if name != "vjp":  # JAX has no forward mode of it
        assert_agrees(push(Y, X), jax.linearize(fun, X, Y)[1](Y * of_x, X * of_y))
    if in_nzs == (True, False):
        assert pull.out_nzs == push.out_nzs == EXPECTED[name]
    if in_nzs is False:
        assert not any(jax.tree.leaves((pull.out_nzs, push.out_nzs)))
    if HAS_IN_NZS:
        theirs = [each(fun, X, Y, in_nzs=in_nzs)[1] for each in (jax.vjp, jax.linearize)]
        assert [pull.out_nzs, push.out_nzs] == [each.out_nzs for each in theirs]
        assert_agrees(pull(cts), theirs[0](cts))


def test_a_false_means_that_a_tangent_is_zero():
    """JAX takes the word of the rule for it that there is one."""

    @jax.custom_vjp
    def constant(x):
        return 2 * x

    constant.defvjp(lambda x: (constant(x), None), lambda _, ct: (jnp.zeros_like(ct),))
    assert pb.vjp(constant, X)[1].out_nzs is False


def test_leaves_of_an_argument_have_flags_of_their_own():
    tree = {"a": X, "b": [Y, 3]}

    def fun(tree, z):
        return {"out": tree["a"] * tree["b"][0] * z, "b": tree["b"][0] * tree["b"][1]}

    for flags in (((False, (True, True)), True), ({"a": False, "b": [True, False]}, True)):
        out, pull = pb.vjp(fun, tree, 2.0, in_nzs=flags)
        cts = cotangents_of(out)
        wanted = jax.vjp(fun, tree, 2.0)[1](cts)
        wanted[0]["a"] = np.zeros(3)
        assert_agrees(pull(cts), wanted)
        assert pull.out_nzs == {"out": True, "b": True}
    _, push = pb.linearize(fun, tree, 2.0, in_nzs=((True, False), False))
    assert push.out_nzs == {"out": True, "b": False}
    assert_agrees(
        push({"a": Y, "b": [X, np.zeros((), jax.dtypes.float0)]}, 1.0),
        {"out": Y * Y * 2.0, "b": np.zeros(3)},
    )


def test_rules_are_told_of_tangents_that_are_zero():
    seen = []

    @jax.custom_jvp
    def forward(x, y):
        return x * y, 2 * y

    def jvp(primals, tangents):
        seen.append([isinstance(tangent, SymbolicZero) for tangent in tangents])
        (x, y), (dx, dy) = primals, (0.0 if isinstance(t, SymbolicZero) else t for t in tangents)
        return forward(x, y), (dx * y + x * dy, 2 * dy + 0 * y)

    forward.defjvp(jvp, symbolic_zeros=True)

    @jax.custom_vjp
    def backward(x, y):
        return x * y

    def fwd(x, y):
        seen.append([not each.perturbed for each in (x, y)])
        return backward(x.value, y.value), (x.value, y.value)

    backward.defvjp(fwd, lambda r, ct: (ct * r[1], ct * r[0]), symbolic_zeros=True)
    for fun, cts in ((forward, (X, Y)), (backward, X)):
        for flags in ((True, False), (False, True), (True, True)):
            seen.clear()
            _, pull = pb.vjp(fun, X, Y, in_nzs=flags)
            assert [not flag for flag in flags] in seen
            assert all(told == [not flag for flag in flags] for told in seen)
            zeros = [not np.any(ct) for ct in pull(cts)]
            assert zeros == [not flag for flag in flags]


def test_a_program_takes_the_options_as_well():
    fun = FUNCTIONS["tree"]
    program = pb.trace(fun)(X, Y)
    out, pull = pb.vjp(program, X, Y, in_nzs=(False, True))
    assert pull.out_nzs == {"s": [True, True], "p": (False, None), "k": False}
    _, again = pb.vjp(fun, X, Y, in_nzs=(False, True))
    assert_agrees(pull(cotangents_of(out)), again(cotangents_of(out)))


def test_constants_of_a_map_stay_so_where_it_is_traced_further():
    def fun(x, y):
        return jnp.sin(x) * y * y

    def second(x, y):
        return pb.vjp(fun, x, y, in_nzs=(False, True))[1](1.0)

    assert_agrees(jax.jit(second)(0.5, 2.0), (jnp.zeros(()), jnp.sin(0.5) * 4.0))
    for library in (jax, pb):
        found = library.grad(lambda x, y: sum(second(x, y)), (0, 1))(0.5, 2.0)
        np.testing.assert_allclose(found, (np.cos(0.5) * 4.0, np.sin(0.5) * 2.0), rtol=1e-6)
    mapped = jax.vmap(second, (0, None))(X, 2.0)
    np.testing.assert_allclose(mapped, (np.zeros(3), np.sin(X) * 4.0), rtol=1e-6)


TREE = {"a": 1.0, "b": (2.0, 3.0)}
MALFORMED = {
    "too few": ((True,), r"but {} has 1 children while the corresponding container has 2"),
    "in a leaf": ((True, (True, True)), r"but {}\[1\] is a container.* leaf"),
    "no bool": ((1, True), r"tuple-tree .*bools and tuples only.* but {}\[0\] is 1 of type int"),
    "other keys": (({"a": True, "c": True}, True), r"{}\[0\] is a dict with keys \['a', 'c'\]"),
    "none": ((None, True), r"but {}\[0\] has 0 children while the corresponding container has 2"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize(
    ("name", "option"), [("vjp", "in_nzs"), ("vjp", "saveable_args"), ("linearize", "in_nzs")]
)
def test_trees_of_flags_that_do_not_fit(case, name, option):
    given, words = MALFORMED[case]
    words = rf"the {option} argument to {{}}\.{name} must .*{words.format(option)}"

    def call(library):
        getattr(library, name)(lambda tree, x: x, TREE, 1.0, **{option: given})

    with pytest.raises(ArgumentMismatchError, match=words.format("pb")) as caught:
        call(pb)
    assert isinstance(caught.value, ValueError)
    if HAS_IN_NZS:
        with pytest.raises(ValueError, match=words.format("jax")):
            call(jax)


def product(x, w):
    return 2.0 * (jnp.sin(x) @ w)


XS, W = np.arange(12.0).reshape(3, 4), np.arange(16.0).reshape(4, 4) / 7
CT = np.arange(12.0).reshape(3, 4) / 3


def test_arguments_that_are_not_saved():
    _, pull = pb.vjp(product, XS, W, saveable_args=(True, False))
    assert isinstance(pull.args_res, list)
    assert isinstance(pull.args_res[1], pb.NotSaveable)
    assert all(leaf.shape != W.shape for leaf in jax.tree.leaves(pull))
    words = r"before restoring its not-saveable residuals(.|\n)*where: args\[1\]\n(.|\n)*args_res"
    with pytest.raises(ArgumentMismatchError, match=words):
        pull(CT)
    with pytest.raises(ArgumentMismatchError, match=words):
        jax.jit(lambda pull: pull(CT))(pull)
    wanted = jax.vjp(product, XS, W)[1](CT)
    assert_agrees(pull.replace(args_res=[pull.args_res[0], W])(CT), wanted)
    pull.args_res[1] = W
    assert_agrees(pull(CT), wanted)


def test_what_is_not_needed_has_not_to_be_restored():
    _, pull = pb.vjp(lambda x, y: x + y, X, Y, saveable_args=False)
    assert all(isinstance(each, pb.NotNeeded) for each in pull.args_res)
    assert jax.tree.leaves(pull) == []
    assert_agrees(pull(X), (X, X))


def test_saved_arguments_are_the_arguments_themselves():
    w = jnp.asarray(W)
    _, pull = pb.vjp(lambda x, w: x @ w, XS, w)
    assert pull.args_res[1] is w
    mine = XS.copy()
    _, pull = pb.vjp(lambda x, w: x @ w, mine, w)
    mine[:] = np.nan  # NumPy's arrays can be written to
    assert_agrees(pull(CT), (CT @ W.T, XS.T @ CT))


def test_not_saved_leaves_in_trees_of_any_kind():
    tree = Pair({"u": XS, "n": 3}, [W])

    def fun(tree):
        return tree.a["u"] @ tree.b[0] * tree.a["n"]

    _, pull = pb.vjp(fun, tree, saveable_args=((True, False),))
    of_a, of_b = pull.args_res[0]  # a tuple
    assert of_a["u"].shape == XS.shape
    assert isinstance(of_b[0], pb.NotSaveable)
    with pytest.raises(ArgumentMismatchError, match=r"where: args\[0\]\[1\]\[0\]"):
        pull(CT)
    wanted = jax.vjp(fun, tree)[1](CT)
    pull.args_res = [tree]  # in the structure of the arguments
    assert_agrees(pull(CT), wanted)
    pull.args_res = [(of_a, [W])]
    assert_agrees(pull(CT), wanted)


def test_what_is_restored_has_to_fit():
    _, pull = pb.vjp(product, XS, W, saveable_args=False)
    pull.args_res = [None, W]
    with pytest.raises(ArgumentMismatchError, match=r"must have 2 leaves.* but it has 1"):
        pull(CT)
    pull.args_res = [XS, W[:2]]
    words = r"the residual w must have type float\d+\[4,4\], but it is float\d+\[2,4\]"
    with pytest.raises(ArgumentMismatchError, match=words):
        pull(CT)


def test_a_map_without_its_arguments_crosses_the_border_of_a_jitted_function():
    @jax.jit
    def ahead(x, w):
        return pb.vjp(product, x, w, saveable_args=(True, False))

    @jax.jit
    def back(pull, w, ct):
        pull.args_res[1] = w
        return pull(ct)

    _, pull = ahead(XS, W)
    assert isinstance(pull.args_res[1], pb.NotSaveable)
    assert_agrees(back(pull, W, CT), jax.vjp(product, XS, W)[1](CT))


def test_what_a_map_was_given_again_is_differentiated():
    def fun(w):
        _, pull = pb.vjp(product, XS, w, saveable_args=(True, False))
        pull.args_res[1] = w
        return jnp.sum(jnp.sin(pull(CT)[0]))

    wanted = jax.grad(lambda w: jnp.sum(jnp.sin(jax.vjp(product, XS, w)[1](CT)[0])))(W)
    for library in (jax, pb):
        np.testing.assert_allclose(library.grad(fun)(W), wanted, rtol=1e-5)


def test_maps_of_a_loop_do_without_its_weights():
    weights = jnp.stack([W + i for i in range(3)]) / 9

    def ahead(x, w):
        return pb.vjp(product, x, w, saveable_args=(True, False))

    def back(ct, ahead):
        pull, w = ahead
        pull.args_res[1] = w
        return pull(ct)

    def loss(x, weights):
        return jnp.vdot(CT, jax.lax.scan(lambda x, w: (product(x, w), None), x, weights)[0])

    _, pulls = jax.lax.scan(ahead, jnp.asarray(XS), weights)
    assert isinstance(pulls.args_res[1], pb.NotSaveable)
    assert repr(pulls.args_res[1]) == "NotSaveable()"
    found = jax.lax.scan(back, jnp.asarray(CT), (pulls, weights), reverse=True)
    wanted = jax.grad(loss, (0, 1))(jnp.asarray(XS), weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, wanted)


@pytest.mark.parametrize("checked", [True, False])
def test_zeros_in_a_shard_map(checked):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")

    def body(x, y):
        out, pull = pb.vjp(lambda x, y: x * jnp.sin(y), x, y, in_nzs=(False, True))
        return pull(out)

    mapped = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=checked)
    found = mapped(jnp.asarray(X), jnp.asarray(Y))
    np.testing.assert_allclose(found, (0 * X, X * X * np.sin(Y) * np.cos(Y)), rtol=1e-5)


def test_all_arguments_are_saved_for_totals():
    def of_item(x):
        return pb.vjp(jnp.sin, x, reduce_axes=("items",), saveable_args=False)[1](1.0)

    with pytest.raises(ArgumentMismatchError, match="not for a VJP function with reduce_axes"):
        jax.vmap(of_item, axis_name="items")(X)


def test_totals_have_a_pattern_too():
    def of_item(w, x):
        _, pull = pb.vjp(lambda w, x: (w * x, x), w, x, reduce_axes="i", in_nzs=(True, False))
        assert pull.out_nzs == (True, False)
        return pull((1.0, 1.0))

    found = jax.vmap(of_item, (None, 0), (None, 0), axis_name="i")(2.0, X)
    assert_agrees(found, (jnp.sum(jnp.asarray(X)), jnp.zeros(3)), 1e-6)


@pytest.mark.parametrize("made_of", ["function", "program", "derivative"])
def test_a_batch_is_summed_where_its_axis_is_left_out(made_of):
    def fun(x, w):
        return jnp.sin(x) * w, w

    axes = {"in_axes": (0, None), "out_axes": None}
    ours, theirs = {
        "function": (fun, fun),
        "program": (pb.trace(fun)(1.0, 2.0), fun),
        "derivative": (pb.grad(lambda x, w: fun(x, w)[0], (0, 1)),)
        + (jax.grad(lambda x, w: fun(x, w)[0], (0, 1)),),
    }[made_of]
    found = pb.vmap(ours, **axes, sum_match=True)(X, 2.0)
    assert_agrees(found, jax.vmap(theirs, **axes, sum_match=True)(X, 2.0))
    with pytest.raises(ValueError, match="None"):
        pb.vmap(ours, **axes)(X, 2.0)
