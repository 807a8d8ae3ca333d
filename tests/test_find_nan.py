"""`pb.find_nan`: NaNs planted in many places of a program, each found where it is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
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


@planted("multiply", jnp.array([4.0, 0]), words=("iteration 0 of the `scan`", "of `sqrt`"))
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
