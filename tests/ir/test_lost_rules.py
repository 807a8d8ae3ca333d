"""Calls whose rules a foreign module has lost, by its locations."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb

X = np.array([-0.5, 2.0], np.float32)


@jax.custom_vjp
def straight_through(x):
    return jnp.minimum(x, 1.25)


straight_through.defvjp(lambda x: (straight_through(x), None), lambda _, ct: (ct,))


@jax.custom_jvp
def halved(x):
    return 0.375 * x


halved.defjvp(lambda primals, tangents: (halved(*primals), 0.5 * tangents[0]))


@jax.jit
def clipped(x):
    return straight_through(x)


def loss(x):
    return jnp.sum(clipped(x) * halved(x))


def line_of(text):
    source = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(source, 1) if line.strip() == text)


VJP = f"custom_vjp_call at .*test_lost_rules.py:{line_of('return straight_through(x)')}, in clipped"
JVP = f"custom_jvp_call at .*test_lost_rules.py:{line_of('return jnp.sum(clipped(x) * halved(x))')}"


def exported():
    return bytes(jax.export.export(jax.jit(loss))(X).serialize())


def lowered():
    return jax.jit(loss).lower(X).as_text(debug_info=True).encode()


FORMS = {"export": exported, "text": lowered}


def warning_of(program, *arguments):
    with pytest.warns(pb.LostRulesWarning) as warned:
        program.grad()(*arguments)
    (text,) = {str(each.message) for each in warned}
    return text


@pytest.mark.parametrize("form", FORMS)
def test_a_derivative_names_calls_that_had_a_rule(form):
    program = pb.load(FORMS[form]())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(X)
    text = warning_of(program, X)
    assert re.search(VJP, text)
    assert re.search(JVP, text)


def test_without_locations_a_text_names_none():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pb.load(jax.jit(loss).lower(X).as_text().encode()).grad()(X)


def test_a_program_that_calls_a_loaded_one_names_them():
    inner = pb.load(exported())
    assert re.search(VJP, warning_of(pb.trace(lambda x: inner(2.0 * x))(X), X))


def test_a_rule_that_was_given_is_not_lost():
    text = warning_of(pb.load(exported(), rules={"clipped": straight_through}), X)
    assert not re.search(VJP, text)
    assert re.search(JVP, text)


def test_a_module_of_ours_has_its_rules():
    module = pb.trace(loss)(X).stage_rules().module
    text = module.operation.get_asm(enable_debug_info=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(pb.load(text.encode()).grad()(X), jax.grad(loss)(X))
