"""`pb.find_nan`: NaNs planted in many places of a program, each found where it is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb
from pullback import artifact

X = jnp.float32(-1)
ZERO = jnp.float32(0)


@dataclass(frozen=True)
class Case:
    """A function, its arguments, the op that makes a NaN, and words of the report.

    The line with `# here` in its source is that of the op; without one the report has only words.
    """

    make: Callable[..., Any]
    args: tuple[Any, ...]
    op: str
    words: tuple[str, ...]

    @property
    def line(self) -> int | None:
        lines, first = inspect.getsourcelines(self.make)
        return next((first + i for i, line in enumerate(lines) if "# here" in line), None)


CASES: dict[str, Case] = {}


def planted(op: str, *args: Any, words: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Register a function that returns the function to look into."""

    def register(make: Any) -> Any:
        CASES[make.__name__] = Case(make, args, f"stablehlo.{op}", words)
        return make

    return register


# ---------------------------------------------------------------- forward


@planted("log", jnp.array([1.0, -2.0]), words=("at [1]: -2.", "(1 of 2)", "reaches:    the result"))
def a_line() -> Any:
    return lambda x: jnp.sum(jnp.log(x))  # here


@planted("subtract", jnp.zeros(3), words=("infinite by stablehlo.divide, of `div` at",))
def infinities_that_meet() -> Any:
    def f(x: Any) -> Any:
        y = 1 / x
        z = jnp.exp(y)
        return z - 2 * y  # here

    return f


@planted("multiply", ZERO, words=("operand 0:  float32[] 0.", "infinite by stablehlo.exponential"))
def zero_times_infinity() -> Any:
    return lambda x: x * jnp.exp(x + 1000)  # here


@planted(
    "subtract",
    jnp.array([1.0, -1.0]),
    words=("infinite by stablehlo.constant at tests/nans/test_find_nan",),
)
def an_infinite_number_of_the_program() -> Any:
    """JAX gives it the line that traces the program."""

    def f(x):
        y = jnp.where(x > 0, x, -jnp.inf)
        return jnp.exp(y - y[1]).sum()  # here

    return f


@planted("dot_general", jnp.array([[jnp.inf, jnp.inf]]), words=("infinite by the argument `x`",))
def a_product() -> Any:
    return lambda x: x @ jnp.array([1.0, -1.0])  # here


@planted("reduce", jnp.array([1.0, jnp.inf, -jnp.inf]), words=("at [1]: inf",))
def a_sum() -> Any:
    return lambda x: jnp.sum(x)  # here


@planted("select", jnp.ones(3), words=("operand 2:  float32[2] [nan nan], at [1]: nan", "`_take`"))
def an_index_out_of_bounds() -> Any:
    return lambda x: jnp.take(x, jnp.array([0, 7]))


@planted("select", -jnp.eye(2), words=("of `cholesky`",))
def a_factorisation() -> Any:
    return lambda x: jnp.linalg.cholesky(x)


@planted("log", X, words=("the call of `inner`",))
def a_jitted_function() -> Any:
    @jax.jit
    def inner(x: Any) -> Any:
        return jnp.log(x)  # here

    return lambda x: inner(x) + 1


@planted("divide", jnp.complex64(0), words=("complex64[]",))
def a_complex_number() -> Any:
    return lambda x: (x + 0) / x  # here


@planted("log", jnp.bfloat16(-2), words=("bfloat16[] -2.",))
def half_precision() -> Any:
    return lambda x: lax.log(x)  # here


@planted("sqrt", {"a": jnp.ones(2), "b": -jnp.ones(2)}, words=("the result['z'][1] at [0]",))
def one_of_several_results() -> Any:
    def f(tree: Any) -> Any:
        root = jnp.sqrt(tree["b"])  # here
        return {"y": tree["a"], "z": (tree["a"], root)}

    return f


# ---------------------------------------------------------------- where it does not count


@planted("sqrt", jnp.array([-1.0, -4.0]), words=("at [1]: -4.", "(1 of 2)"))
def one_element_of_what_where_throws_away() -> Any:
    def f(x: Any) -> Any:
        y = jnp.sqrt(x)  # here
        return jnp.where(jnp.array([True, False]), 0.0, y)

    return f


@planted("log", X)
def behind_one_that_is_thrown_away() -> Any:
    def f(x: Any) -> Any:
        lost = jnp.where(x < 0, 0.0, jnp.sqrt(x))
        return lost + jnp.log(x)  # here

    return f


@planted("log", jnp.array([-1.0, -2.0, 3.0]), words=("at [1]: -2.",))
def behind_one_that_is_sliced_away() -> Any:
    def f(x: Any) -> Any:
        y = jnp.concatenate([jnp.sqrt(x[:1]), jnp.log(x)])  # here
        return y[2:].reshape(1, 2).T

    return f


@planted("subtract", jnp.array([-1, jnp.inf]), words=("(1 of 2)", "at [1]: inf", "argument `x`"))
def beside_one_that_is_thrown_away() -> Any:
    def f(x: Any) -> Any:
        y = jnp.log(x) - jnp.array([0, jnp.inf])  # here
        return y[1]

    return f


@planted("reduce_window", jnp.array([[-1, 1], [0, jnp.inf]]), words=("infinite by", "at [1, 1]"))
def in_a_window_beside_one_that_is_thrown_away() -> Any:
    return lambda x: jnp.cumsum(jnp.log(x), 1)[1, -1]  # here


# ---------------------------------------------------------------- loops and branches


@planted("sqrt", jnp.float32(3), words=("iteration 2 of the `scan`", "operand 0:  float32[] -0.1"))
def an_iteration() -> Any:
    def body(i: Any, c: Any) -> Any:
        return jnp.sqrt(c) - 1.0  # here

    return lambda x: lax.fori_loop(0, 10, body, x)


@planted("log", jnp.float32(2), words=("iteration 3 of the `while`",))
def a_while_loop() -> Any:
    def body(c: Any) -> Any:
        i, x = c
        return i + 1, jnp.log(x) + 0 * i  # here

    return lambda x: lax.while_loop(lambda c: c[0] < 20, body, (0, x + 1))[1]


@planted("sqrt", jnp.arange(5.0), words=("iteration 1 of the `scan`", "the result at [1]"))
def an_output_of_a_scan() -> Any:
    def step(c: Any, x: Any) -> Any:
        return c + x, jnp.sqrt(0.5 - x) * (x < 1.5)  # here

    return lambda x: lax.scan(step, ZERO, x)[1]


@planted("log", X, words=("branch 0 of the `cond`",))
def a_branch() -> Any:
    def negative(x: Any) -> Any:
        return jnp.log(x)  # here

    return lambda x: lax.cond(x > 0, lambda x: x, negative, x)


@planted("sqrt", jnp.float32(2.5), words=("branch 1", "iteration 3 of the `scan`"))
def a_branch_in_a_loop() -> Any:
    def step(c: Any, i: Any) -> Any:
        return lax.cond(i == 3, lax.sqrt, lambda y: y - 1, c), None  # here

    return lambda x: lax.scan(step, x, jnp.arange(5))[0]


@planted("log", jnp.float32(1), words=("iteration 1 of", "iteration 2 of"))
def a_loop_in_a_loop() -> Any:
    def inner(j: Any, c: Any) -> Any:
        return c + jnp.log(1.5 - j) * 0  # here

    def outer(i: Any, c: Any) -> Any:
        return lax.fori_loop(0, i + 2, inner, c)

    return lambda x: lax.fori_loop(0, 2, outer, x)


# ---------------------------------------------------------------- batches


@planted("divide", jnp.array([[1.0, 2], [0, 0]]), words=("at [1]: 0.", "the result at [1]"))
def an_item() -> Any:
    return pb.vmap(lambda x: x[0] / x[1])  # here


@planted("log", jnp.array([[1.0, 2], [3, -4]]), words=("at [1, 1]: -4.", "the result at [1]"))
def an_item_of_jax() -> Any:
    return jax.vmap(lambda x: jnp.sum(jnp.log(x)))  # here


# ---------------------------------------------------------------- rules


@planted("divide", jnp.zeros(2), words=("rule:       `bwd`, a rule of `root`",))
def a_backward_rule() -> Any:
    @jax.custom_vjp
    def root(x: Any) -> Any:
        return jnp.sqrt(x)

    def bwd(x: Any, ct: Any) -> Any:
        return (ct * x / jnp.sqrt(x),)  # here

    root.defvjp(lambda x: (root(x), x), bwd)
    return pb.grad(lambda x: jnp.sum(root(x)))


@planted("log", X, words=("rule:       `fwd`, a rule of `f`",))
def a_forward_rule() -> Any:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return x

    def fwd(x: Any) -> Any:
        return x, jnp.log(x)  # here

    f.defvjp(fwd, lambda residual, ct: (ct * residual,))
    return pb.grad(f)


@planted("log", X, X, words=("rule:       `rule`, a rule of `f`", "the result[1]"))
def a_jvp_rule() -> Any:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return x

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return primals[0], tangents[0] * jnp.log(primals[0])  # here

    return pb.trace(f)(X).jvp()


@planted("sqrt", X, words=("the call of `f` (it has a rule)",))
def a_function_with_a_rule() -> Any:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return jnp.sqrt(x)  # here

    f.defjvps(lambda t, y, x: t)
    return f


# ---------------------------------------------------------------- derivatives


@planted("multiply", jnp.zeros(2), words=("infinite by stablehlo.divide, of `sqrt`",))
def a_gradient() -> Any:
    def norm(x: Any) -> Any:
        squares = x * x  # here
        return jnp.sqrt(jnp.sum(squares))

    return pb.grad(norm)


@planted("multiply", ZERO, words=("of `sqrt`", "infinite by stablehlo.divide"))
def a_second_derivative() -> Any:
    return pb.grad(pb.grad(lambda x: jnp.sqrt(x * x)))  # here


@planted("multiply", jnp.zeros(2), words=("the result at [0, 0]",))
def a_hessian() -> Any:
    return pb.hessian(lambda x: jnp.sqrt(jnp.sum(x**4)))


@planted(
    "multiply", jnp.array([4.0, 0]), words=("iteration 0 (index 1) of the `scan`", "of `sqrt`")
)
def a_backward_loop() -> Any:
    def step(c: Any, x: Any) -> Any:
        return c + jnp.sqrt(0 * x), None  # here

    return pb.grad(lambda x: lax.scan(step, ZERO, x)[0])


@planted("multiply", jnp.array([[1.0, 2], [0, 0]]), words=("the result at [1, 0]",))
def a_gradient_of_an_item() -> Any:
    return pb.vmap(pb.grad(lambda x: jnp.sqrt(jnp.sum(x * x))))  # here


@planted("log", X)
def a_loaded_file() -> Any:
    return pb.load(artifact.serialize(pb.trace(lambda x: jnp.log(x) * 2)(X)))  # here


@planted("divide", ZERO, words=("a_rule_in_a_loaded_file.bwd",))
def a_rule_in_a_loaded_file() -> Any:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return x

    def bwd(x: Any, ct: Any) -> Any:
        return (ct * x / x,)  # here

    f.defvjp(lambda x: (x, x), bwd)
    return pb.grad(pb.load(artifact.serialize(pb.trace(lambda x: f(x) * 1)(X))))


def test_there_are_thirty_places() -> None:
    assert len(CASES) >= 30


@pytest.mark.parametrize("name", CASES)
def test_a_nan_is_found_where_it_is_made(name: str) -> None:
    case = CASES[name]
    report = pb.find_nan(case.make())(*case.args)
    assert report is not None
    text = str(report)
    assert isinstance(report.origin, pb.NanPlace), text
    assert report.origin.op == case.op, text
    for words in case.words:
        assert words in text
    if case.line is not None:
        assert f"test_find_nan.py:{case.line}, in" in str(report.origin), text


def test_the_report_has_the_values_as_arrays() -> None:
    report = pb.find_nan(lambda x: jnp.log(x) + 1)(jnp.array([2.0, -2.0, -3.0]))
    assert report is not None
    assert (report.what, report.element, report.count) == ("NaN", (1,), 2)
    assert [x.value.tolist() for x in report.operands] == [[2, -2, -3]]
    assert report.operands[0].element == (1,)
    assert len(report.through) == 1
    assert "stablehlo.add at tests/nans/test_find_nan.py" in report.through[0]


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (jnp.log, jnp.ones(2)),
        (jnp.log, ZERO),  # an infinity is no NaN
        (lambda x: jnp.where(x > 0, jnp.log(x), 0), -jnp.ones(2)),
        (pb.grad(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0)), ZERO),
        (lambda x: jnp.concatenate([jnp.log(x), jnp.ones(2)])[1:], X[None]),
        (lambda x: jnp.log(x) > 0, X),
    ],
)
def test_nothing_is_reported_where_no_result_has_a_nan(f: Any, x: Any) -> None:
    assert pb.find_nan(f)(x) is None


def test_the_program_runs_once_if_there_is_nothing_to_find() -> None:
    runs = []

    def logarithm(x: Any) -> Any:
        jax.debug.callback(lambda: runs.append(1))
        return jnp.log(x)

    assert pb.find_nan(logarithm)(jnp.ones(2)) is None
    assert len(runs) == 1
    assert pb.find_nan(logarithm)(-jnp.ones(2)) is not None
    assert len(runs) > 2


def test_infinities() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(1 / x) * 0 + jnp.max(x)

    report = pb.find_nan(f, infs=True)(jnp.array([1.0, 0]))
    assert report is not None
    assert str(report).startswith("inf or NaN made by stablehlo.divide, of `div` at")
    assert report.value[report.element] == jnp.inf
    assert pb.find_nan(f, infs=True)(jnp.ones(2)) is None


def test_infinities_that_are_written_and_do_not_come_through() -> None:
    mask = jnp.tri(3, dtype=bool)
    assert pb.find_nan(lambda x: jax.nn.softmax(jnp.where(mask, x, -jnp.inf)), infs=True)(X) is None


def test_a_nan_of_an_argument() -> None:
    f = lambda p: p["w"][0] * p["b"]  # noqa: E731
    report = pb.find_nan(f)({"w": jnp.array([1, jnp.nan]), "b": jnp.array([2.0, jnp.nan])})
    assert report is not None
    assert report.origin == "the argument `p['b']`"
    assert (report.element, report.count) == ((1,), 1)
    assert str(report).startswith("NaN in the argument `p['b']`\n")
    assert str(report).endswith("the result at [1]")


def test_a_nan_that_the_function_closes_over() -> None:
    table = jnp.where(jnp.arange(100_000) == 5, jnp.nan, 1)
    report = pb.find_nan(lambda x: x * table[3:10])(ZERO)
    assert report is not None
    assert report.origin == "array 0 that the function closes over"
    assert report.element == (5,)


@pytest.mark.parametrize("first", [0, 1])
def test_the_way_is_that_of_one_element(first: int) -> None:
    """The way and the result are not mixed of those of several elements."""

    def f(x: Any) -> Any:
        y = jnp.concatenate([jnp.sqrt(x[:1]), jnp.log(x[1:])])
        return jnp.sin(y[first]), jnp.cos(y[1 - first])

    report = pb.find_nan(f)(-jnp.ones(2))
    assert report is not None
    assert isinstance(report.origin, pb.NanPlace)
    assert report.origin.op == "stablehlo.sqrt"
    assert report.result == f"the result[{first}]"
    assert f"stablehlo.{('sine', 'cosine')[first]} at" in report.through[-1]


def _updated(x: Any) -> Any:
    return lax.dynamic_update_slice(x, 2 * x[:1, :2], (1, 1))


DEPENDENCES: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: jnp.sin(x) + 1,
    "select": lambda x: jnp.where(jnp.eye(3, 4, dtype=bool), x, 2 * x[::-1]),
    "scalar": lambda x: jnp.clip(x, x[0, 0], 5.0),
    "transpose": lambda x: x.T,
    "reshape": lambda x: x.reshape(2, 6),
    "broadcast": lambda x: jnp.broadcast_to(x[None, 0], (2, 4)),
    "reverse and slice": lambda x: x[::-1, 1::2],
    "pad": lambda x: lax.pad(x, x[1, 1], ((1, -1, 0), (0, 1, 1))),
    "concatenate": lambda x: jnp.concatenate([x, x.T[:, :3].T], 0),
    "gather": lambda x: x[jnp.array([2, 0]), jnp.array([1, 3])],
    "dynamic slice": lambda x: lax.dynamic_slice(x, (jnp.int32(7), jnp.int32(1)), (2, 2)),
    "update": _updated,
    "sum": lambda x: jnp.sum(x, 0),
    "argmax": lambda x: lax.reduce(
        (x, x), (-1.0, 0.0), lambda a, b: (lax.max(a[0], b[0]), a[1] + b[1]), (1,)
    )[1],
    "product": lambda x: x @ x.T,
    "outer product": lambda x: jnp.einsum("bi,bj->bij", x, x),
    "batched contraction": lambda x: jnp.einsum("kb,ikb->bi", x, jnp.stack([x, 2 * x])),
    "barrier": lambda x: lax.optimization_barrier((x, 2 * x))[1],
    "scatter": lambda x: jnp.zeros((3, 4)).at[jnp.array([0, 2]), jnp.array([1, 1])].add(x[0, :2]),
    "window": lambda x: jnp.cumsum(x, 1),
    "convolution": lambda x: jnp.convolve(x[0], jnp.array([1.0, 0.0, 2.0])),
    "branch": lambda x: lax.cond(True, lambda x: x[:1], lambda x: x[1:2], x),
    "loop": lambda x: lax.scan(lambda c, row: (c + row[0], c * row), 1.0, x)[1],
}
INSIDE = jnp.arange(1.0, 13).reshape(3, 4)


@pytest.mark.parametrize("name", DEPENDENCES)
def test_only_elements_that_count_are_blamed(name: str) -> None:
    """With all elements NaN, the argument's count is of those that alone make the result NaN."""
    f = DEPENDENCES[name]
    count = jax.eval_shape(f, INSIDE).size
    alone = [INSIDE.at[i].set(jnp.nan) for i in np.ndindex(INSIDE.shape)]
    ones = jnp.stack([jnp.isnan(f(x)).ravel() for x in alone])
    for index in {0, count // 2, count - 1}:
        report = pb.find_nan(lambda x, i=index: f(x).ravel()[i])(jnp.full_like(INSIDE, jnp.nan))
        expected = int(ones[:, index].sum())
        assert (0 if report is None else report.count) == expected, str(report)


def broken(x: Any) -> Any:
    return jnp.sum(jnp.log(x))


@pytest.mark.parametrize(
    "call",
    [
        pb.jit(broken),
        pb.trace(broken)(jnp.ones(2)),
        jax.jit(pb.trace(broken)(jnp.ones(2))),
        pb.trace(broken)(jnp.ones(2)).compile(),
        pb.value_and_grad(broken),
    ],
)
def test_debug_nans_of_jax_says_the_same(call: Any) -> None:
    with jax.debug_nans(True), pytest.raises(FloatingPointError) as caught:
        call(-jnp.ones(2))
    first, second, *_ = str(caught.value).splitlines()
    assert first.startswith("invalid value (nan)")
    assert second.startswith("NaN made by stablehlo.log, of `log` at tests/nans/test_find_nan.py:")
    with jax.debug_nans(True):
        jax.block_until_ready(call(jnp.ones(2)))


def test_debug_infs_of_jax_says_the_same() -> None:
    with jax.debug_infs(True), pytest.raises(FloatingPointError) as caught:
        pb.jit(lambda x: 1 / x)(ZERO)
    assert "inf or NaN made by stablehlo.divide" in str(caught.value)


def test_callbacks_in_a_loop() -> None:
    seen = []

    def body(i: Any, c: Any) -> Any:
        jax.debug.callback(seen.append, i, ordered=True)
        return jnp.sqrt(c) - 1.0

    report = pb.find_nan(lambda x: lax.fori_loop(0, 5, body, x))(jnp.float32(3))
    assert report is not None
    assert "iteration 2" in str(report)
    assert seen[:5] == list(range(5))


def test_symbolic_sizes() -> None:
    (size,) = jax.export.symbolic_shape("n")
    program = pb.trace(jnp.log)(jax.ShapeDtypeStruct((size,), jnp.float32))
    assert "stablehlo.log" in str(pb.find_nan(program)(-jnp.ones(3)))


def test_numbers_that_python_code_branches_on() -> None:
    def f(x: Any, count: int) -> Any:
        for _ in range(count):
            x = jnp.log(x)
        return x

    report = pb.find_nan(pb.grad(f))(jnp.float32(2), 4)
    assert "stablehlo.log, of `log` at tests/nans/test_find_nan.py" in str(report)
    assert pb.find_nan(f)(jnp.float32(2), 2) is None


def test_values_are_needed() -> None:
    with pytest.raises(pb.PullbackError, match="while JAX traces") as caught:
        jax.jit(lambda x: pb.find_nan(jnp.log)(x))(X)
    assert "outside of jax.jit" in str(caught.value.do)


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(pb.ArgumentMismatchError, match="must have type"):
        pb.find_nan(pb.trace(jnp.log)(X))(jnp.ones(3))


def test_an_op_that_may_mix_elements() -> None:
    def f(x: Any) -> Any:
        return jnp.cumsum(jnp.log(x))

    report = pb.find_nan(f)(jnp.array([1.0, -1, 2]))
    assert report is not None
    assert report.mixer is None  # only one element can be to blame
    assert pb.find_nan(f)(jnp.array([1.0, -1, -2])).mixer is None  # type: ignore[union-attr]
    assert pb.find_nan(f)(-jnp.ones(100)).mixer is None  # type: ignore[union-attr]
    report = pb.find_nan(lambda x: f(x)[-1])(-jnp.ones(100))
    assert report is not None
    assert str(report).splitlines()[-1].startswith("  unless:     stablehlo.reduce_window")


def test_an_op_that_mixes_elements() -> None:
    """Alone, each of the two is sorted to the end."""
    report = pb.find_nan(lambda x: jnp.sort(jnp.log(x))[1])(jnp.array([-1.0, -2, 3]))
    assert report is not None
    assert str(report).startswith("NaN made by stablehlo.log")
    assert report.mixer is not None
    assert report.mixer.startswith("stablehlo.sort")


def test_a_body_that_calls_a_function() -> None:
    def f(x: Any) -> Any:
        return lax.reduce_window(jnp.log(x), -jnp.inf, jnp.logaddexp, (2,), (1,), "VALID")

    assert str(pb.find_nan(f)(-jnp.ones(3))).startswith("NaN made by stablehlo.log, ")


def test_tuples() -> None:
    text = """
    func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.log %x : tensor<f32>
      %1 = stablehlo.tuple %x, %0 : tuple<tensor<f32>, tensor<f32>>
      %2 = stablehlo.get_tuple_element %1[1] : (tuple<tensor<f32>, tensor<f32>>) -> tensor<f32>
      return %2 : tensor<f32>
    }"""
    report = pb.find_nan(pb.load(text.encode()))(X)
    assert str(report).startswith("NaN made by stablehlo.log at -:3:")
