"""When two objects that a rule closes over are the same."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from pullback.frontend.identity import Identities


class Layer:
    """Without equality: two of one width are two."""

    def __init__(self, width: int) -> None:
        self.width = width


class Marker:
    """Holds nothing."""


def signature(*values: Any, by_contents: bool = True) -> Any:
    identities = Identities()
    identities.begin(by_contents=by_contents)
    return identities.function(values)


def test_by_contents() -> None:
    assert signature(Layer(3)) == signature(Layer(3))
    assert signature(Layer(3)) != signature(Layer(4))
    one, other = Layer(3), Layer(3)
    assert signature((one, other), one) != signature((one, other), other)
    assert signature({"a": [1, one]}) == signature({"a": [1, other]})


def test_by_address() -> None:
    one, other = Layer(3), Layer(3)
    assert signature(one, by_contents=False) == signature(one, by_contents=False)
    assert signature(one, by_contents=False) != signature(other, by_contents=False)
    marks = [Marker(), Marker(), object(), object()]
    assert len({signature(mark) for mark in marks}) == len(marks)


def test_variables_of_a_jaxpr_are_not_their_types() -> None:
    equations = [
        jax.make_jaxpr(lambda x, y: x - y)(1.0, 2.0).eqns[0],
        jax.make_jaxpr(lambda x, y: (x - y) * 2)(1.0, 2.0).eqns[0],
        jax.make_jaxpr(lambda x: x - x)(1.0).eqns[0],
    ]
    same, also, other = map(signature, equations)
    assert same == also
    assert same != other


SCALES: dict[Any, float] = {}


def scaled(layer: Layer) -> Any:
    """The identity, whose cotangent is scaled by what a table says of the layer."""
    f = jax.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct * SCALES[layer],))
    return f


def test_objects_of_equal_contents_may_have_rules_of_their_own() -> None:
    first, second = Layer(3), Layer(3)
    SCALES.update({first: 2.0, second: 5.0})
    found = pb.grad(lambda x: jnp.sum(scaled(first)(x) + scaled(second)(x)))(jnp.ones(2))
    np.testing.assert_allclose(found, [7.0, 7.0])


def test_one_text_may_be_run_with_other_globals() -> None:
    text = """
@jax.custom_jvp
def f(x):
    return x * 1.0
f.defjvp(lambda primals, tangents: (f(*primals), SCALE * tangents[0]))
"""
    code = compile(text, "a template", "exec")
    functions = []
    for scale in (2.0, 5.0):
        names: dict[str, Any] = {"jax": jax, "SCALE": scale}
        exec(code, names)
        functions.append(names["f"])
    first, second = functions
    assert pb.grad(lambda x: first(x) + 10.0 * second(x))(1.0) == 52.0
