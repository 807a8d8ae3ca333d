"""Rules with `symbolic_zeros` answer in a file as in memory, or say that they are not there."""

from __future__ import annotations

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import SymbolicZero

import pullback as pb
from pullback import artifact
from pullback.errors import MissingRuleError
from pullback.ir.ops import walk_calls
from pullback.ir.verify import verify


def is_zero(tangent):
    return isinstance(tangent, SymbolicZero)


@jax.custom_jvp
def seen(x, y, z):
    return x * y * z


def seen_jvp(primals, tangents):
    """The tangent says which of the operands are perturbed."""
    (x, y, z), moving = primals, [not is_zero(t) for t in tangents]
    weight = sum(10.0**i for i, moves in enumerate(moving) if moves)
    total = sum((t for t in tangents if not is_zero(t)), jnp.zeros_like(x))
    return seen(x, y, z), weight * total


seen.defjvp(seen_jvp, symbolic_zeros=True)


@jax.custom_vjp
def pulled(x, y):
    return x * y, x + y


def pulled_fwd(x, y):
    weight = 1.0 + 10.0 * x.perturbed + 100.0 * y.perturbed
    return pulled(x.value, y.value), jnp.asarray(weight)


def pulled_bwd(weight, cts):
    """The cotangents say which of the results have one."""
    seen = sum(1000.0 * 10.0**i for i, ct in enumerate(cts) if not is_zero(ct))
    total = sum((ct for ct in cts if not is_zero(ct)), jnp.zeros(()))
    return (weight + seen) * total, 2 * (weight + seen) * total


pulled.defvjp(pulled_fwd, pulled_bwd, symbolic_zeros=True)


def loaded(program):
    verify(pb.load(data := artifact.serialize(program)).module)
    return pb.load(data)


SETS = [each for n in (1, 2, 3) for each in itertools.combinations((0, 1, 2), n)]


@pytest.mark.parametrize("argnums", SETS)
def test_each_set_of_arguments_of_a_forward_rule(argnums):
    args = 2.0, 3.0, 4.0
    program = pb.trace(seen)(*args)
    expected = jax.grad(seen, argnums)(*args)
    for each in (program, loaded(program), loaded(loaded(program))):
        np.testing.assert_allclose(each.grad(argnums)(*args), expected)
        moved = each.jvp(argnums)(*args, *(1.0 for _ in argnums))[1]
        np.testing.assert_allclose(moved, sum(expected))


def test_an_operand_that_is_constant():
    """A rule that multiplies by a thousand where an operand has no tangent."""

    def f(x):
        return seen(x, jnp.float32(3.0), jnp.sin(x) * 0 + 1.0)

    expected = jax.grad(f)(2.0)
    np.testing.assert_allclose(expected, 101.0)
    np.testing.assert_allclose(loaded(pb.trace(f)(2.0)).grad()(2.0), expected)


@pytest.mark.parametrize("argnums", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("results", [(0,), (1,), (0, 1)])
def test_each_set_of_results_of_a_backward_rule(argnums, results):
    def f(x, y):
        return tuple(pulled(x, y)[i] for i in results)

    program = pb.trace(f)(2.0, 3.0)
    chosen = [lambda *xs: f(*(dict(zip(argnums, xs)).get(i, v) for i, v in enumerate((2.0, 3.0))))]
    _, pull = jax.vjp(chosen[0], *((2.0, 3.0)[i] for i in argnums))
    expected = pull(tuple(1.0 for _ in results))
    for each in (program, loaded(program)):
        found = each.vjp(argnums)(2.0, 3.0, tuple(1.0 for _ in results))[1]
        np.testing.assert_allclose([ct for ct in found if ct is not None], expected)


def test_all_leaves_of_one_argument():
    def f(params, x):
        return seen(params["a"], params["b"], x) + params["c"] + params["d"]

    args = {"a": 2.0, "b": 3.0, "c": 1.0, "d": 1.0}, 4.0
    found = loaded(pb.trace(f)(*args)).grad(0)(*args)
    expected = jax.grad(f)(*args)
    jax.tree.map(np.testing.assert_allclose, found, expected)


def test_all_leaves_of_the_second_argument():
    def f(p, q):
        return seen(p["a"], q["a"], q["b"]) + p["b"]

    args = {"a": 2.0, "b": 1.0}, {"a": 3.0, "b": 4.0}
    found = loaded(pb.trace(f)(*args)).grad(1)(*args)
    jax.tree.map(np.testing.assert_allclose, found, jax.grad(f, 1)(*args))


def test_batches_and_second_derivatives():
    def f(x):
        return jnp.sin(seen(x, jnp.float32(3.0), x))

    batch = jnp.arange(3.0)
    file = loaded(pb.trace(f)(2.0))
    expected = jax.vmap(jax.grad(f))(batch)
    np.testing.assert_allclose(file.grad().vmap(axis_size=3)(batch), expected, rtol=1e-5)
    pulled = file.vmap(axis_size=3).vjp()(batch, np.ones(3, np.float32))[1][0]
    np.testing.assert_allclose(pulled, expected, rtol=1e-5)
    np.testing.assert_allclose(file.grad().grad()(2.0), jax.grad(jax.grad(f))(2.0), rtol=1e-5)


@jax.custom_vjp
def widening(x):
    return 2 * x, 3 * x


def widening_bwd(_, cts):
    """The cotangent of a float16 argument is a float32, as those of the results may be."""
    weight = 1000.0 if is_zero(cts[1]) else 1.0
    return (sum((weight * ct.astype(jnp.float32) for ct in cts if not is_zero(ct)), 0.0),)


widening.defvjp(lambda x: (widening(x.value), None), widening_bwd, symbolic_zeros=True)
up = jax.custom_vjp(lambda y: y.astype(jnp.float32))
up.defvjp(lambda y: (up(y), None), lambda _, ct: (1e-6 * ct,))


@pytest.mark.parametrize("count", [1, 2])
def test_cotangents_wider_than_some_results(count):
    """1e-6 is not a float16."""

    def f(x):
        return sum(map(up, widening(x.astype(jnp.float16))[:count]))

    expected = jax.grad(f)(1.0)
    np.testing.assert_allclose(expected, {1: 1e-3, 2: 2e-6}[count], rtol=1e-6)
    np.testing.assert_allclose(loaded(pb.trace(f)(1.0)).grad()(1.0), expected, rtol=1e-6)


def test_what_is_not_in_the_file_is_said():
    """Derivatives by two of five arguments are not tried when a file is written."""

    def f(a, b, c, d, e):
        return seen(a, b + d, c + e)

    args = 1.0, 2.0, 3.0, 4.0, 5.0
    file = loaded(pb.trace(f)(*args))
    for argnums in ((0,), (0, 1, 2, 3), (0, 1, 2, 3, 4)):
        np.testing.assert_allclose(file.grad(argnums)(*args), jax.grad(f, argnums)(*args))
    words = "the file has no jvp rule of `seen` for tangents of inexact operands 0, 1 alone"
    with pytest.raises(MissingRuleError, match=re.escape(words)) as info:
        file.grad((0, 1))
    assert "save the derivative instead of the function" in str(info.value)
    assert "program.grad(…).save(…)" in str(info.value)
    np.testing.assert_allclose(
        loaded(pb.trace(f)(*args).grad((0, 1)))(*args), jax.grad(f, (0, 1))(*args)
    )


def test_files_of_before_say_what_they_said():
    """Calls in them have no mark: a rule for all operands is taken."""
    program = pb.trace(lambda x: seen(x, jnp.float32(3.0), x))(2.0).stage_rules()
    for call in walk_calls(program.module):
        call.update(**{"sees_zeros": None, "jvp.101": None})
    np.testing.assert_allclose(pb.load(artifact.serialize(program)).grad()(2.0), 222.0)
