"""What is traced is traced under the settings of JAX that its program was traced under."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import config
from jax.experimental.ode import odeint
from jax.experimental.xla_metadata import set_xla_metadata

import pullback as pb

scale = jax.make_user_context(1.0)

X = np.arange(4, dtype=np.float32)


@jax.custom_vjp
def scaled(x):
    return x


scaled.defvjp(lambda x: (x, None), lambda _, ct: (scale.value * ct,))


def loss(x):
    return jnp.sum(scaled(x))


OF_ANOTHER = r"made by jax.make_user_context was 1\.0, which .* but here it is 3\.0"


def test_settings_of_users_are_those_of_the_program() -> None:
    """Its rules are traced later: never under other ones, which the numbers would not tell."""
    program = pb.trace(loss)(X)
    with scale(3.0):
        with pytest.raises(pb.LeakedValueError, match=OF_ANOTHER) as raised:
            program.grad()
        assert "trace the program again here" in str(raised.value)
        with pytest.raises(pb.LeakedValueError, match=OF_ANOTHER):
            jax.grad(program)(X)
        other = pb.trace(loss)(X)
        assert other.grad()(X)[0] == jax.grad(other)(X)[0] == pb.grad(loss)(X)[0] == 3
    assert other.grad()(X)[0] == 3  # made there
    assert program.grad()(X)[0] == jax.grad(program)(X)[0] == pb.grad(loss)(X)[0] == 1
    with scale(3.0):
        assert program.grad()(X)[0] == 1


def test_a_context_that_was_made_after_the_program() -> None:
    """As in an import: it stops nobody who has not set it."""
    program = pb.trace(loss)(X)
    jax.make_user_context(2.0)
    assert program.grad()(X)[0] == 1


def test_options_that_jax_traces_anew_for_are_those_of_the_program() -> None:
    def bits(x):
        return jax.random.normal(jax.random.key(0), x.shape)

    @jax.custom_jvp
    def noisy(x):
        return x

    noisy.defjvp(lambda p, t: (p[0], t[0] * bits(p[0])))
    with config.random_seed_offset(5):
        program, expected = pb.trace(noisy)(X), bits(X)
    np.testing.assert_allclose(program.jvp()(X, np.ones_like(X))[1], expected, rtol=1e-6)


def test_what_is_said_of_the_caller_is_not_said_of_a_rule() -> None:
    program = pb.trace(loss)(X)
    with set_xla_metadata(mark="here"):
        assert "mark" not in str(program.grad().module)


def test_a_program_in_another_one_keeps_its_settings() -> None:
    """Where its rules have been traced; else it is an error, as for the rules of rules."""
    own = pb.trace(loss)(X)
    with scale(3.0):
        inner = pb.trace(loss)(X)
    both = pb.trace(lambda x: inner(x) + own(x))(X)
    with pytest.raises(pb.LeakedValueError, match=r"was 3\.0, which .* here it is 1\.0"):
        both.grad()


def test_a_batch_is_made_again_under_the_settings_of_the_program() -> None:
    @jax.custom_batching.custom_vmap
    def mapped(x):
        return x

    mapped.def_vmap(lambda size, batched, x: (scale.value * x, True))
    program = pb.trace(lambda x: jnp.sum(mapped(x)))(X)
    with scale(3.0), pytest.raises(pb.LeakedValueError, match=OF_ANOTHER):
        jax.vmap(program)(np.stack([X, X]))
    np.testing.assert_allclose(jax.vmap(program)(np.stack([X, X])), [6, 6])


def test_each_size_of_symbols_is_traced_under_the_settings_of_the_program(tmp_path) -> None:
    """Whoever asks for it first, and where that is kept; in a file, all has been traced."""
    (n,) = jax.export.symbolic_shape("n")
    program = pb.trace(lambda x: scale.value * loss(x))(jax.ShapeDtypeStruct((n,), "float32"))
    with scale(3.0), pytest.raises(pb.LeakedValueError, match=OF_ANOTHER):
        program(X)
    with scale(3.0), pytest.raises(pb.LeakedValueError, match=OF_ANOTHER):
        program.save(tmp_path / "loss.mlir")
    assert program(X) == np.sum(X)
    assert program.grad()(X)[0] == pb.grad(program)(X)[0] == 1
    program.save(tmp_path / "loss.mlir")
    program = pb.load(tmp_path / "loss.mlir")
    with scale(3.0):
        assert program(X) == np.sum(X)
        assert program.grad()(X)[0] == pb.grad(program)(X)[0] == 1


def test_no_value_of_a_trace_outlives_it() -> None:
    """What is traced of a rule that is given what it closes over, as JAX checks for leaks."""

    def end(x):
        return jnp.sum(odeint(lambda y, t: -y * x, x, jnp.array([0.0, 1.0])))

    program = pb.trace(end)(X)
    with jax.checking_leaks():
        program.grad()


def test_a_program_is_called_in_a_trace_that_checks_keys() -> None:
    with jax.debug_key_reuse(True):
        np.testing.assert_allclose(jax.grad(pb.trace(loss)(X))(X), np.ones_like(X))


def test_a_program_is_made_while_jax_computes_constants_at_once() -> None:
    """What is put in the place of a negative power takes no operand more."""
    with jax.ensure_compile_time_eval():
        gradient = pb.trace(lambda x: jnp.sum(jax.lax.integer_pow(x, -2)))(X + 1).grad()(X + 1)
    np.testing.assert_allclose(gradient, -2 / (X + 1) ** 3, rtol=1e-6)
