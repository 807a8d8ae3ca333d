"""Programs with symbolic dimensions: traced, differentiated, saved, loaded, of every size."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_args_specs, symbolic_shape

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback.errors import DerivativeTypeError
from pullback.files.symbolic import refine_types, save_load as files, with_rules
from pullback.program.symbolic import OF_FIXED_SIZES, SymbolicProgram
from tests.files import models


@jax.custom_jvp
def clipped_slope(x):
    return jnp.maximum(x, 0.0)


clipped_slope.defjvp(lambda x, dx: (clipped_slope(*x), 3.0 * dx[0] * (x[0] > 0)))


def loss(params, x, *, scale):
    """Two custom rules: the gradient of the first is twice, of the second three times JAX's."""
    hidden = models.doubled_sine(jnp.tanh(x @ params["w"])) + clipped_slope(params["b"])
    return scale * jnp.mean(jax.nn.logsumexp(hidden, axis=1)) * x.shape[0]


def arguments(size):
    rng = np.random.default_rng(size)
    params = {"w": rng.normal(size=(4, 3)), "b": rng.normal(size=3)}
    cast = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, "float32"), tree)  # noqa: E731
    return cast((params, rng.normal(size=(size, 4)))), {"scale": jnp.float32(0.5)}


@functools.cache
def traced(platforms=("cpu",)):
    args, kwargs = arguments(1)
    shapes = (jax.tree.map(lambda _: "...", args[0]), "batch, 4")
    return pb.trace(loss, platforms=platforms)(*symbolic_args_specs(args, shapes), **kwargs)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("symbolic") / "loss.mlirbc"
    traced().save(path)
    return path


def close(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, expected
    )


@pytest.mark.parametrize("origin", ["traced", "loaded"])
@pytest.mark.parametrize("size", [1, 6])
def test_values_and_gradients_of_every_size(saved, size, origin):
    args, kwargs = arguments(size)
    value, gradients = jax.value_and_grad(loss, (0, 1))(*args, **kwargs)
    program = traced() if origin == "traced" else pb.load(saved)
    close(program(*args, **kwargs), value)
    close(program.value_and_grad((0, 1))(*args, **kwargs), (value, gradients))
    close(program.grad()(*args, **kwargs), gradients[0])
    close(program.vjp(wrt=1)(*args, jnp.float32(2.0), **kwargs), (value, 2.0 * gradients[1]))
    pushed = program.jvp(wrt=1)(*args, jnp.ones_like(args[1]), **kwargs)
    close(pushed, (value, jnp.sum(gradients[1])))
    close(jax.grad(program)(*args, **kwargs), gradients[0])
    close(pullback_runtime.load(saved)(*args, **kwargs), value)


def test_the_file_of_an_older_jax_still_gives_its_gradients():
    """Written by jax 0.10.2, like the other golden files."""
    program = pb.load(Path(__file__).parent / "golden" / "symbolic-1" / "loss.mlirbc")
    args, kwargs = arguments(3)
    assert program.platforms == ("cpu", "tpu")
    tangent = program.jvp(1)(*args, args[1], **kwargs)[1]
    close(tangent, jnp.sum(jax.grad(loss, 1)(*args, **kwargs) * args[1]))
    with pytest.raises(pb.MissingRuleError, match="no derivatives by keyword arguments"):
        jax.grad(lambda scale: program(*args, scale=scale))(jnp.float32(1.0))
    close(program.value_and_grad()(*args, **kwargs), jax.value_and_grad(loss)(*args, **kwargs))


def test_forward_mode_goes_through_a_custom_vjp(saved):
    args, kwargs = arguments(5)
    gradients = jax.grad(loss, (0, 1))(*args, **kwargs)
    products = jax.tree.map(lambda g, a: jnp.sum(g * a), gradients, args)
    expected = sum(jax.tree.leaves(products))
    for program in (traced(), pb.load(saved)):
        value, tangent = program.jvp()(*args, *args, **kwargs)
        close((value, tangent), (loss(*args, **kwargs), expected))


def test_several_dimensions_and_integers(tmp_path):
    """A result of symbolic shape, an integer argument and an integer result."""

    def function(x, index):
        return {"sum": jnp.sin(x) + x[index], "rows": jnp.int32(x.shape[0])}

    x = jax.ShapeDtypeStruct(symbolic_shape("rows, columns", constraints=["rows >= 2"]), "float32")
    path = tmp_path / "function.mlirbc"
    pb.trace(function)(x, jnp.int32(0)).save(path)
    program = pb.load(path)
    assert "x: float32[rows,columns], index: int32[]" in repr(program)
    value = jnp.linspace(0.0, 1.0, 6).reshape(3, 2)
    out, (ct, none) = program.vjp()(value, jnp.int32(1), {"sum": jnp.ones((3, 2)), "rows": None})
    close(out, function(value, 1))
    close(ct, jnp.cos(value) + jnp.asarray([0.0, 3.0, 0.0])[:, None])
    assert none is None
    with pytest.raises(ValueError, match="rows"):
        program(value[:1], jnp.int32(0))


def test_one_file_for_every_platform(tmp_path):
    path = tmp_path / "loss.mlirbc"
    traced(platforms=("cpu", "cuda", "rocm", "tpu")).save(path)
    program = pb.load(path)
    args, kwargs = arguments(4)
    assert program.platforms == program.to_exported().platforms == ("cpu", "cuda", "rocm", "tpu")
    alone = pb.load(artifact.serialize(program.for_platform("cpu").grad()))
    assert alone.platforms == alone.with_shapes(*args, **kwargs).platforms == ("cpu",)
    close(alone(*args, **kwargs), jax.grad(loss)(*args, **kwargs))
    with pytest.raises(pb.PullbackError, match="traced for cpu, cuda, rocm, tpu, not for metal"):
        program.for_platform("metal")
    close(program.grad()(*args, **kwargs), jax.grad(loss)(*args, **kwargs))


def test_fixed_sizes_give_any_order():
    args, kwargs = arguments(3)
    program = traced().with_shapes(*args, **kwargs)
    assert isinstance(program, pb.Program)
    direction = jax.tree.map(jnp.ones_like, args[1])
    close(
        program.grad(1).jvp(wrt=1)(*args, direction, **kwargs)[1],
        jax.vjp(lambda x: jax.grad(loss, 1)(args[0], x, **kwargs), args[1])[1](direction)[0],
    )


def test_what_is_differentiated_before_saving_has_its_own_derivative(tmp_path):
    path = tmp_path / "slope.mlirbc"
    cube = pb.trace(lambda x: jnp.sum(x**3))(jax.ShapeDtypeStruct(symbolic_shape("n"), "float32"))
    cube.grad().save(path)
    x = jnp.arange(4.0)
    close(pb.load(path)(x), 3 * x**2)
    close(pb.load(path).jvp()(x, jnp.ones(4))[1], 6 * x)


def test_a_file_has_derivatives_of_any_order_once_sizes_are_given(saved):
    loaded = pb.load(saved)
    args, kwargs = arguments(3)
    (params, x), moved = args, jnp.cos(args[1])
    expected = jax.vjp(lambda x: jax.grad(loss, 1)(params, x, **kwargs), x)[1](moved)[0]
    close(loaded.grad(1).jvp(wrt=1)(params, x, moved, **kwargs)[1], expected)
    close(loaded.grad(1).vjp(wrt=1)(params, x, moved, **kwargs)[1], expected)
    close(jax.jvp(lambda x: jax.grad(loaded, 1)(params, x, **kwargs), (x,), (moved,))[1], expected)
    fixed = loaded.with_shapes(*args, **kwargs)
    assert isinstance(fixed, pb.Program)
    assert fixed.arg_paths == loaded.arg_paths
    close(fixed.grad(1).jvp(wrt=1)(params, x, moved, **kwargs)[1], expected)
    again = loaded.grad(1).with_shapes(*args, **kwargs)
    close(again.jvp(wrt=1)(params, x, moved, **kwargs)[1], expected)


def test_what_no_file_holds_is_refused_in_words(saved):
    loaded = pb.load(saved)
    second = loaded.grad().vjp()
    with pytest.raises(pb.MissingRuleError, match="only, while dimensions are symbols") as caught:
        artifact.serialize(second)
    assert "program.with_shapes" in caught.value.do


def test_a_file_is_batched_and_called_inside_of_other_programs(saved):
    """XLA's error spoke of an op with dynamic dimensions."""
    loaded = pb.load(saved)
    args, kwargs = arguments(2)
    function = lambda x: loss(args[0], x, **kwargs)  # noqa: E731
    _, pull = pb.vjp(lambda x: loaded(args[0], x, **kwargs), args[1])
    close(pull(jnp.float32(1.0))[0], jax.grad(function)(args[1]))
    xs = jnp.stack([args[1], 2 * args[1]])
    batch = jax.vmap(jax.grad(lambda x: loaded(args[0], x, **kwargs)))(xs)
    close(batch, jax.vmap(jax.grad(function))(xs))


def test_an_older_file_says_that_it_has_first_derivatives_only():
    program = pb.load(Path(__file__).parent / "golden" / "symbolic-1" / "loss.mlirbc")
    with pytest.raises(pb.MissingRuleError, match="derivatives of first order only") as caught:
        program.grad().vjp()
    assert "differentiate once before saving" in caught.value.do
    with pytest.raises(pb.MissingRuleError, match="cannot become one of fixed sizes"):
        program.with_shapes(*arguments(2)[0], **arguments(2)[1])


def types(*shapes, constraints=()):
    """Types of float32 with these shapes, whose symbols are of one scope."""
    scope = jax.export.SymbolicScope(constraints)
    return [jax.ShapeDtypeStruct(symbolic_shape(each, scope=scope), "float32") for each in shapes]


def recurrent(x, w):
    def step(carry, row):
        carry = jnp.tanh(carry @ w + row)
        return carry, models.doubled_sine(carry)

    return jnp.sum(jax.lax.scan(step, jnp.zeros(4), x)[1] ** 2)


def in_both(x, y):
    """Calls of equal text, of other sizes: each is a function of its own."""
    return jnp.sum(jax.nn.relu(x @ y)) + jnp.sum(jnp.clip(x, -1, 1)) * jnp.sum(jnp.clip(y, 0, 1))


def ends(x, y):
    whole = jnp.concatenate([x, y, jnp.zeros(x.shape[0] ** 2)])
    halves = jnp.sum(y[x.shape[0] :] ** 3) + jnp.sum(y[: y.shape[0] // 2] ** 2)
    return jnp.sum(models.doubled_sine(whole) * whole) + halves


def looked_up(x):
    taken = x[jnp.array([0, 0, 1])] ** 3
    return jnp.sum(taken) * jnp.sum(jnp.zeros_like(x).at[jnp.array([1, 1])].add(x[:1] ** 2)[1])


def reduced(x):
    return jnp.max(x) * jnp.prod(x[:1]) + jax.nn.logsumexp(x) + jnp.std(x) + jnp.sum(jnp.sort(x, 0))


def special(x):
    rows = jax.checkpoint(lambda x: jnp.sin(jax.scipy.special.erf(x)))(x)
    return jnp.sum(jnp.linalg.cholesky(x.T @ x + 4 * jnp.eye(3))) + jnp.sum(rows**2)


def windowed(x):
    """Of sizes that XLA wants to know, which JAX writes down as operands."""
    pooled = jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 1), (2, 1), "SAME")
    largest = jax.lax.top_k(x.T, (x.shape[0] + 1) // 2)[0]
    return jnp.sum(jnp.cumsum(x, 0) ** 3) + jnp.sum(pooled**3) * jnp.sum(largest**2)


@pytest.mark.parametrize(
    ("function", "shapes", "constraints", "sizes"),
    [
        (recurrent, ["n, 4", "4, 4"], (), [(3, 4), (4, 4)]),
        (in_both, ["a, b", "b, a"], ["a >= b"], [(3, 2), (2, 3)]),
        (ends, ["b", "2*b + 1"], (), [(2,), (5,)]),
        (looked_up, ["n, 3"], (), [(4, 3)]),
        (reduced, ["n, 3"], (), [(4, 3)]),
        (special, ["n, 3"], (), [(2, 3)]),
        (windowed, ["n, 3"], (), [(5, 3)]),
    ],
)
def test_second_derivatives_of_files(function, shapes, constraints, sizes):
    program = pb.trace(function)(*types(*shapes, constraints=constraints))
    loaded = pb.load(artifact.serialize(pb.load(artifact.serialize(program))))
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.normal(size=size), "float32") for size in sizes]
    close(loaded(*args), function(*args))
    squares = lambda f: lambda x: jnp.sum(jax.grad(f)(x, *args[1:]) ** 2)  # noqa: E731
    expected = jax.grad(squares(function))(args[0])
    scale = jnp.max(jnp.abs(expected))
    close(jax.grad(squares(loaded))(args[0]) / scale, expected / scale)


@pytest.mark.parametrize(
    ("value", "words", "do"),
    [
        (jnp.ones((2, 3)), r"\(x\) has the wrong shape: .*h,4\], got float32\[2,3\]", "an array"),
        (jnp.ones((2, 4, 1)), r"wrong shape: .* got float32\[2,4,1\]", "of the expected shape"),
        (jnp.ones((2, 4), "int32"), r"wrong dtype: .* got int32\[2,4\]", "x.astype('float32')"),
        (jnp.ones((0, 4)), r"Expected value >= 1 for dimension variable 'batch'", "at least 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(saved, value, words, do):
    """Of the traced program any shape and type had run, and `with_shapes` of a file took them."""
    (params, _), kwargs = arguments(2)
    loaded, by_runtime = pb.load(saved), pullback_runtime.load(saved)
    for attempt in (
        *(traced(), traced().grad(), traced().with_shapes),
        *(loaded, loaded.grad(), loaded.with_shapes),
        by_runtime,
        lambda params, x, scale: by_runtime.flat(params["b"], params["w"], x, scale),
    ):
        with pytest.raises(pullback_runtime.DimensionError, match=words) as caught:
            attempt(params, value, **kwargs)
        assert do in caught.value.do


def test_sizes_by_name(saved):
    args, kwargs = arguments(3)
    for program in (traced(), pb.load(saved)):
        fixed = program.with_sizes(batch=3)
        assert fixed.in_avals[2].shape == (3, 4)
        close(fixed.grad()(*args, **kwargs), jax.grad(loss)(*args, **kwargs))
        for sizes in ({}, {"batch": 3, "n": 2}, {"n": 3}):
            with pytest.raises(
                pullback_runtime.DimensionError, match="has the symbols batch"
            ) as caught:
                program.with_sizes(**sizes)
            assert "batch=…" in caught.value.do
        with pytest.raises(pullback_runtime.DimensionError, match=r"2\.5 is no size"):
            program.with_sizes(batch=2.5)
        with pytest.raises(pullback_runtime.DimensionError, match="'batch' = 0"):
            program.with_sizes(batch=0)


def test_what_wants_sizes_says_so():
    assert {each for each in dir(pb.Program) if each[0] != "_"} - {
        *dir(SymbolicProgram)
    } == OF_FIXED_SIZES
    with pytest.raises(AttributeError, match=r"fixed sizes has: program\.with_shapes\(…\)\.vmap"):
        traced().vmap()
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        traced().nonsense()
    with pytest.raises(pb.PullbackError, match="cannot be pickled"):
        pickle.dumps(traced())


def test_derivatives_take_the_options_of_others():
    def with_aux(x, index):
        return jnp.sum(x**3) * 2j, {"index": index, "x": x}

    x = jnp.arange(3.0).astype("complex64")
    program = pb.trace(with_aux)(
        jax.ShapeDtypeStruct(symbolic_shape("n"), "complex64"), jnp.int32(4)
    )
    for each in (program, pb.load(artifact.serialize(program))):
        options = {"has_aux": True, "holomorphic": True}
        gradient, aux = each.grad(**options)(x, jnp.int32(5))
        close(gradient, 6j * x**2)
        close(aux, {"index": 5, "x": x})
        content = artifact.serialize(each.value_and_grad(**options))
        for again in (pb.load(content), pullback_runtime.load(content)):  # our passes, and JAX
            ((value, aux), gradient) = again(x, jnp.int32(5))
            close((value, aux, gradient), (*with_aux(x, 5), 6j * x**2))


def test_a_rule_that_jax_has_for_numbers_only_is_refused():
    """Its product over a symbolic axis has no rule, and the program is not saved without."""
    program = pb.trace(lambda x: jnp.sum(jnp.cumprod(x)))(*types("n"))
    with pytest.raises(pb.MissingRuleError, match="associative scan over axis of non-constant"):
        artifact.serialize(program)
    x = jnp.array([0.5, -2.0, 3.0])
    close(program.grad()(x), jax.grad(lambda x: jnp.sum(jnp.cumprod(x)))(x))
    loaded = pb.load(artifact.serialize(program.with_shapes(x)))
    close(loaded.grad()(x), program.grad()(x))


def test_a_constraint_holds_for_a_file_of_any_order():
    program = pb.trace(in_both)(*types("a, b", "b, a", constraints=["a >= b"]))
    loaded = pb.load(artifact.serialize(program))
    with pytest.raises(ValueError, match="a >= b"):
        loaded.with_shapes(jnp.ones((2, 3)), jnp.ones((3, 2)))


def test_the_first_order_is_left_where_a_type_does_not_follow_from_the_sizes(saved, monkeypatch):
    """Then what JAX has exported runs."""
    monkeypatch.setattr(refine_types, "REFINE", "cse")
    loaded, (args, kwargs) = pb.load(saved), arguments(2)
    close(loaded.grad()(*args, **kwargs), jax.grad(loss)(*args, **kwargs))
    with pytest.raises(pb.ArtifactError, match="does not follow from the sizes of the arguments"):
        loaded.with_shapes(*args, **kwargs)


def test_what_is_not_inferred_from_sizes_leaves_the_first_order(monkeypatch):
    monkeypatch.delitem(refine_types.FOLLOWING, "stablehlo.dynamic_top_k")

    def function(x):
        return jnp.sum(jax.lax.top_k(x, x.shape[0] // 2)[0] ** 2)

    program = pb.trace(function)(*types("n"))
    loaded = pb.load(artifact.serialize(program))
    x = jnp.arange(4.0)
    close(loaded.grad()(x), jax.grad(function)(x))
    with pytest.raises(pb.MissingRuleError, match=r"first order only: .*`top_k` gives are not"):
        loaded.grad().vjp()


def test_a_derivative_of_a_file_can_be_saved_and_has_any_order(saved):
    """It had none: its rules are those of the function, and the passes that derive it."""
    reload = lambda program: pb.load(artifact.serialize(program))  # noqa: E731
    (params, x), kwargs = arguments(2)
    gradient = lambda x: jax.grad(loss, 1)(params, x, **kwargs)  # noqa: E731
    moved = jnp.cos(x)
    for program in (traced(), pb.load(saved)):
        loaded = reload(reload(program.grad(1)))
        close(loaded(params, x, **kwargs), gradient(x))
        by_jax = pullback_runtime.load(artifact.serialize(program.grad(1)))
        close(by_jax(params, x, **kwargs), gradient(x))
        close(loaded.jvp(1)(params, x, moved, **kwargs)[1], jax.jvp(gradient, (x,), (moved,))[1])
        squares = lambda f: lambda x: jnp.sum(f(x) ** 2)  # noqa: E731
        of_loaded = jax.grad(squares(lambda x, f=loaded: f(params, x, **kwargs)))
        close(of_loaded(x), jax.grad(squares(gradient))(x))
        pushed = reload(program.jvp(1))
        found = jax.grad(lambda x, f=pushed: f(params, x, moved, **kwargs)[1])(x)
        close(found, jax.grad(lambda x: jnp.sum(gradient(x) * moved))(x))
        by_jax = pullback_runtime.load(artifact.serialize(program.jvp(1)))
        close(by_jax(params, x, moved, **kwargs), pushed(params, x, moved, **kwargs))


def test_a_program_that_calls_a_file_while_dimensions_are_symbols(saved):
    """Saving it failed, for JAX had no transpose of what the file's reverse mode is."""
    loaded, (args, kwargs) = pb.load(saved), arguments(3)
    calling = lambda params, x, scale: loaded(params, jnp.sin(x), scale=scale)  # noqa: E731
    shapes = (jax.tree.map(lambda _: "...", args[0]), "rows, 4")
    program = pb.trace(calling)(*symbolic_args_specs(args, shapes), kwargs["scale"])
    again = pb.load(artifact.serialize(program))
    given = *args, kwargs["scale"]
    expected = jax.grad(lambda params, x, scale: loss(params, jnp.sin(x), scale=scale), (0, 1, 2))
    for each in (program, again):
        close(each(*given), loss(args[0], jnp.sin(args[1]), **kwargs))
        close(each.grad((0, 1, 2))(*given), expected(*given))
        pushed = each.jvp(1)(*given, args[1])[1]
        close(pushed, jnp.sum(expected(*given)[1] * args[1]))
    assert "cannot be called inside of another one" in again.stored.why_not


def test_callbacks_are_refused():
    def of_one(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), x.dtype), x[0])

    def of_all(x):  # which JAX cannot lower: a RuntimeError had come through
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    for function in (of_one, of_all):
        program = pb.trace(function)(jax.ShapeDtypeStruct(symbolic_shape("n"), "float32"))
        with pytest.raises(pb.NotPortableError, match="calls Python in this process") as caught:
            files.pieces(program)
        line = function.__code__.co_firstlineno + 1
        assert f"pure_callback at tests/files/test_symbolic.py:{line}, in " in caught.value.where


def test_reverse_mode_of_a_loop_of_which_jax_has_none():
    """Its length is not known while dimensions are symbols."""

    def function(x):
        return jax.lax.while_loop(
            lambda s: s[0] < x.shape[0], lambda s: (s[0] + 1, s[1] * 2), (0, x)
        )

    program = pb.trace(function)(jax.ShapeDtypeStruct(symbolic_shape("n"), "float32"))
    close(program(jnp.ones(3)), (3, 8 * jnp.ones(3)))
    loaded = pb.load(artifact.serialize(program))
    close(loaded.vjp()(jnp.ones(3), (None, jnp.ones(3)))[1][0], 8 * jnp.ones(3))


def test_a_rule_that_raises_is_refused_with_its_words():
    @jax.custom_jvp
    def forward_only(x):
        return jnp.sin(x)

    @forward_only.defjvp
    def rule(primals, tangents):
        raise RuntimeError("run only")

    program = pb.trace(forward_only)(jax.ShapeDtypeStruct(symbolic_shape("n"), "float32"))
    with pytest.raises(pb.MissingRuleError, match="RuntimeError: run only") as caught:
        files.pieces(program)
    assert "test_symbolic.py:" in caught.value.message


def test_damaged_types_are_refused(saved):
    opened = pullback_runtime.load(saved)
    opened.metadata["symbolic"]["main"]["in_avals"][0] = ["float32", "b +"]
    with pytest.raises(pullback_runtime.ArtifactError, match="symbolic types are damaged"):
        opened(*arguments(2)[0], **arguments(2)[1])


def test_a_file_without_the_function_that_it_names_is_refused():
    described = {"entries": {"cpu": "elsewhere"}, "sizes": {}, "checkpoints": []}
    with pytest.raises(pb.ArtifactError, match="damaged: kept: no function elsewhere"):
        with_rules.Kept.read(pb.trace(jnp.sin)(1.0).module, {"kept": described})


@pytest.mark.parametrize("stages", [["print-ir"], ["vjp{wrt=x}"], ["vjp{no-such=1}"], [3], None])
def test_a_file_can_name_no_passes_but_those_that_derive_programs(stages):
    module = pb.trace(jnp.sin)(1.0).module
    described = {"entries": {"cpu": "main"}, "sizes": {}, "checkpoints": [], "stages": stages}
    with pytest.raises(pb.ArtifactError, match="damaged: kept_origin"):
        with_rules.Kept.read(module, {"kept_origin": described})


def test_the_runtime_does_not_differentiate(saved):
    loaded, (args, kwargs) = pullback_runtime.load(saved), arguments(2)

    def total(args):
        return sum(map(jnp.sum, jax.tree.leaves(loaded(*args, **kwargs))))

    with pytest.raises(pullback_runtime.MissingTransformError, match="symbolic dimensions"):
        jax.grad(total)(args)
    stopped = jax.grad(lambda args: jax.lax.stop_gradient(total(args)))(args)
    assert not any(map(jnp.any, jax.tree.leaves(stopped)))


def test_the_runtime_counts_flat_arguments(saved):
    with pytest.raises(pullback_runtime.ArgumentError, match="4 arrays are expected, and 1 were"):
        pullback_runtime.load(saved).flat(jnp.ones(3))


def test_the_runtime_runs_an_export_with_symbolic_dimensions_on_flat_lists():
    args, kwargs = arguments(1)
    shapes = (jax.tree.map(lambda _: "...", args[0]), "batch, 4")
    exported = jax.export.export(jax.jit(loss))(*symbolic_args_specs(args, shapes), **kwargs)
    loaded = pullback_runtime.load(bytes(exported.serialize()))
    for size in (2, 5):
        args, kwargs = arguments(size)
        close(loaded.flat(*jax.tree.leaves((args, kwargs))), [loss(*args, **kwargs)])


def test_the_functions_of_the_module_save_it_too(tmp_path):
    program, path = traced(), tmp_path / "again.mlirbc"
    artifact.save(program, path)
    args, kwargs = arguments(3)
    for source in (path, artifact.serialize(program)):
        close(pb.load(source)(*args, **kwargs), loss(*args, **kwargs))
    with pytest.raises(pb.ArtifactError, match="no option but `target`"):
        artifact.serialize(program, order=2)


@pytest.mark.parametrize(
    ("function", "argnums", "words"),
    [
        (lambda x, i: jnp.sum(x) * 2j, 0, "requires real-valued outputs.*complex"),
        (lambda x, i: jnp.sum(x).astype("int32"), 0, "requires real-valued outputs.*int32"),
        (lambda x, i: x * i, 0, r"scalar-output functions. .*shape: \(b,\)"),
        (lambda x, i: (jnp.sum(x), x), 0, r"scalar-output functions. .*float32\[b\]"),
        (lambda x, i: jnp.sum(x) * i, 1, "i is int32"),
    ],
)
def test_what_has_no_gradient_is_refused(function, argnums, words):
    """As for other programs: that of a complex result was zero."""
    x = jax.ShapeDtypeStruct(symbolic_shape("b"), "float32")
    program = pb.trace(function)(x, jnp.int32(2))
    for derive in (program.grad, program.value_and_grad):
        with pytest.raises(DerivativeTypeError, match=words):
            derive(argnums)


def scaled(x, mode, factor=2):
    """Python looks at the last two."""
    return jnp.sum(x) * factor if mode == "sum" and factor > 1 else x


@pytest.mark.parametrize(
    ("options", "args", "kwargs"),
    [
        ({"static_argnums": (1, 2)}, ("sum", 3), {}),
        ({"static_argnums": (-2, -1)}, ("sum", 3), {}),
        ({"static_argnums": (1, 2)}, ("sum",), {"factor": 3}),
        ({"static_argnames": ("mode", "factor")}, (), {"mode": "sum", "factor": 3}),
        ({"static_argnames": ["mode", "factor"]}, ("sum", 3), {}),
        ({"static_argnums": 1, "static_argnames": "factor"}, ("sum",), {"factor": 3}),
        ({"static_argnames": "mode"}, (), {"mode": "mean"}),
    ],
)
def test_static_arguments_are_part_of_the_function(options, args, kwargs):
    """They had become types of arguments that are traced."""
    x = jax.ShapeDtypeStruct(symbolic_shape("b"), "float32")
    program = pb.trace(scaled, **options)(x, *args, **kwargs)
    value = jnp.arange(3.0)
    close(program(value), scaled(value, *args, **kwargs))
    close(pb.load(artifact.serialize(program))(value), scaled(value, *args, **kwargs))
    close(program.with_shapes(value)(value), scaled(value, *args, **kwargs))


TRACED_WITH_SYMBOLS = {
    "grad": lambda x: pb.grad(norm)(x),
    "value_and_grad": lambda x: pb.value_and_grad(norm)(x)[1],
    "jvp": lambda x: pb.jvp(norm, (x,), (x,))[1] * x,
    "jit": lambda x: pb.jit(jax.grad(norm))(x),
}


def norm(x):
    return jnp.sum(jnp.tanh(x) ** 2)


@pytest.mark.parametrize("name", TRACED_WITH_SYMBOLS)
def test_functions_of_ours_in_a_trace_with_symbols(name):
    function = TRACED_WITH_SYMBOLS[name]
    (rows,) = symbolic_shape("rows")
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((rows,), jnp.float32))
    x = jnp.linspace(0.1, 1.0, 3)
    close(exported.call(x), function(x))
    close(exported.call(x), jax.grad(norm)(x) if name != "jvp" else x * (x @ jax.grad(norm)(x)))


def test_a_linear_transpose_in_a_trace_with_symbols():
    """JAX's, of a map that closes over an array: it was an internal error."""

    def function(x):
        return pb.linear_transpose(lambda y: {"scaled": weight * y[::-1]}, x)({"scaled": x})[0]

    weight, (rows,) = jnp.float32(3), symbolic_shape("rows")
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((rows,), jnp.float32))
    x = jnp.linspace(0.1, 1.0, 3)
    close(exported.call(x), 3 * x[::-1])
    close(function(x), 3 * x[::-1])


@pytest.mark.parametrize("taker", ["vjp", "linearize"])
def test_what_keeps_residuals_wants_sizes(taker):
    (rows,) = symbolic_shape("rows")
    with pytest.raises(pb.PullbackError, match=f"pb.{taker} keeps residuals, which have no sizes"):
        jax.eval_shape(
            lambda x: getattr(pb, taker)(norm, x)[0], jax.ShapeDtypeStruct((rows,), jnp.float32)
        )


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_random_keys(implementation):
    """One for all and one for each: saving took them for a program on several devices."""

    def noisy(key, keys, x):
        noise = jax.vmap(jax.random.normal)(keys) + jax.random.normal(key)
        return jnp.sum(jnp.sin(x) * noise), keys

    key = jax.random.key(0, impl=implementation)
    keys, x = jax.random.split(key, 3), jnp.arange(3.0)
    (b,) = symbolic_shape("b")
    types = (jax.ShapeDtypeStruct((b,), each.dtype) for each in (keys, x))
    program = pb.trace(noisy)(key, *types)
    content = artifact.serialize(program)
    for each in (program, pb.load(content), pullback_runtime.load(content)):
        value, again = each(key, keys, x)
        close(value, noisy(key, keys, x)[0])
        assert jnp.array_equal(again, keys)
    expected = jax.grad(lambda x: noisy(key, keys, x)[0])(x)
    for each in (program, pb.load(content)):
        close(each.vjp()(key, keys, x, (1.0, None))[1][2], expected)
