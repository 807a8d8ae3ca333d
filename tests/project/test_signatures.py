"""Our signatures next to those of the installed JAX: a new argument or name of it is noticed here.

Then have it, or say what to do in one of docs/differences_*.md, and list it below.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import jax
import jax.custom_batching
import jax.custom_derivatives
import pytest

import pullback as pb

pytestmark = pytest.mark.whole

DOCS = Path(__file__).parents[2] / "docs"
DERIVATIVE = re.compile(
    "grad|jac|hess|vjp|jvp|lineari|linear_|vmap|jit$|custom_|closure_|fwd|remat"
)
SHARED = sorted(name for name in pb.__all__ if hasattr(jax, name) and DERIVATIVE.search(name))

NOT_HERE = {
    *("jacobian", "remat", "fwd_and_bwd", "custom_batching", "custom_derivatives"),
    *("disable_jit", "enable_custom_prng", "softmax_custom_jvp"),
}
"""Names of JAX without a counterpart: aliases, modules, what is made of the others; settings."""

NOT_OF_MAPS = {"jaxpr", "structured_residuals", "want_logs", "with_logs"}
"""Attributes of what JAX's `vjp` and `linearize` return and ours do not have: see the page."""

OF_FUNCTIONS_WITH_RULES = {
    "custom_jvp": "defjvp defjvps fun jvp nondiff_argnames nondiff_argnums symbolic_zeros",
    "custom_vjp": "defvjp defvjp_with_logs defvjp_with_accums defremat defremat_with_logs",
}
"""Attributes of JAX's functions with rules, each a way to give a rule that the keep step knows."""

OF_RULES = "self fwd rem bwd jvp jvps symbolic_zeros optimize_remat generic_batching"

OF_JAX = {
    jax.checkpoint: "fun prevent_cse policy static_argnums static_argnames concrete",
    jax.custom_gradient: "fun with_logs remat with_accums",
    jax.closure_convert: "fun example_args",
    jax.custom_derivatives.linear_call: "fun fun_transpose residual_args linear_args",
    jax.custom_batching.custom_vmap: "fun",
}
"""Arguments of JAX's functions that a traced function may call: the keep step has seen each."""

OF_MODULES = {
    "ad": "DidntWant DontWant GradRef GradValue",
    "custom_batching": "custom_vmap sequential_vmap",
    "custom_derivatives": """CustomVJPPrimal SymbolicZero closure_convert custom_gradient
        custom_jvp custom_jvp_call_p custom_vjp custom_vjp_call_p custom_vjp_primal_tree_values
        linear_call remat_opt_p zero_from_primal""",
}


def public(owner: Any) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def missing(ours: Any, theirs: Any) -> list[str]:
    """The parameters of JAX's function that cannot be given to ours in the same way."""
    has = inspect.signature(ours).parameters
    takes_others = any(each.kind is each.VAR_KEYWORD for each in has.values())

    def is_one(place: int, each: inspect.Parameter) -> bool:
        if each.name not in has:
            return takes_others and each.kind is each.KEYWORD_ONLY
        by_place = list(has).index(each.name) == place or each.kind is each.KEYWORD_ONLY
        kind_fits = has[each.name].kind in (each.kind, each.POSITIONAL_OR_KEYWORD)
        same = has[each.name].default == each.default or takes_others
        return by_place and kind_fits and same

    wanted = inspect.signature(theirs).parameters.values()
    return [each.name for place, each in enumerate(wanted) if not is_one(place, each)]


@pytest.mark.parametrize("name", SHARED)
def test_arguments_of_a_function(name):
    assert missing(getattr(pb, name), getattr(jax, name)) == []


def test_functions():
    assert {name for name in public(jax) if DERIVATIVE.search(name)} <= NOT_HERE | {*SHARED}
    assert {"grad", "vjp", "custom_vjp"} <= set(SHARED)


@pytest.mark.parametrize("name", ["vjp", "linearize"])
def test_what_a_function_returns(name):
    ours, theirs = (getattr(each, name)(abs, 1.0)[1] for each in (pb, jax))
    assert public(theirs) - public(ours) <= NOT_OF_MAPS


@pytest.mark.parametrize("name", sorted(NOT_OF_MAPS))
def test_what_is_not_here_is_documented(name):
    pages = "".join(page.read_text() for page in DOCS.glob("differences_*.md"))
    assert f"`{name}`" in pages


@pytest.mark.parametrize("name", OF_FUNCTIONS_WITH_RULES)
def test_ways_to_give_rules(name):
    kind = getattr(jax, name)
    known = set(OF_FUNCTIONS_WITH_RULES[name].split())
    assert public(kind) <= known
    methods = [getattr(kind, each) for each in public(kind) if each.startswith("def")]
    assert {p for each in methods for p in inspect.signature(each).parameters} <= set(
        OF_RULES.split()
    )
    assert methods


@pytest.mark.parametrize("function", OF_JAX, ids=lambda function: function.__name__)
def test_arguments_of_functions_of_jax(function):
    assert {*inspect.signature(function).parameters} <= set(OF_JAX[function].split())


@pytest.mark.parametrize("module", OF_MODULES)
def test_names_in_modules_of_jax(module):
    assert public(getattr(jax, module)) <= set(OF_MODULES[module].split())


def test_a_new_argument_is_told():
    def of_next_jax(fun, argnums=0, more=False, *, names=()):
        raise NotImplementedError

    assert missing(pb.jacrev, of_next_jax) == ["more", "names"]
    assert missing(pb.jit, of_next_jax) == ["argnums", "more"]
