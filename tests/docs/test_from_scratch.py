"""The core on one page: its program, beside pullback and JAX."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.passes.manager import run_pipeline
from pullback_runtime.ir._module import parse

PAGE = (Path(__file__).parents[2] / "docs" / "from_scratch.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("float64")]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The names that the program of the page defines."""
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        for code in BLOCKS:
            exec(compile(code, "from_scratch.md", "exec"), names)
    return SimpleNamespace(**names)


def test_the_program_has_at_most_500_lines():
    lines = [line for code in BLOCKS for line in code.splitlines() if line.strip()]
    assert len(lines) <= 500
    assert max(map(len, lines)) <= 100


@jax.custom_vjp
def scaled(x, y):
    """Has a rule that is false on purpose, and a cotangent that is None."""
    return x * jnp.sin(y)


scaled.defvjp(lambda x, y: (scaled(x, y), (x, y)), lambda r, ct: (3.0 * ct * jnp.exp(r[1]), None))


@jax.custom_vjp
def pair(x, y):
    return jnp.sqrt(x), scaled(x, y) * y


pair.defvjp(
    lambda x, y: ((jnp.sqrt(x), scaled(x, y) * y), x + y),
    lambda total, cts: (cts[0] * total + cts[1], -cts[1] / total),
)


def attention(q, k, v):
    logits = jnp.exp(jnp.tanh(q @ k.T))
    return (logits / jnp.sum(logits, axis=1, keepdims=True)) @ v


FUNCTIONS = {
    "elementwise": lambda a, b, c: jnp.sum(
        jnp.cos(a) * a / jnp.exp(b) - jnp.log(a) * jnp.sqrt(a) + jnp.tanh(-b)
    ),
    "shapes": lambda a, b, c: jnp.sum(
        jnp.sin(a.T.reshape(2, 3) * jnp.square(b)) + jnp.sum(a, axis=1, keepdims=True) * b
    ),
    "products": lambda a, b, c: b @ (a.T @ jnp.sin(a @ b)) + jnp.sum(attention(a, a * b, a)),
    "batched products": lambda a, b, c: jnp.sum(
        jnp.sin(jnp.einsum("bij,bkj->bik", c, jnp.einsum("bij,jk->bik", c, a.T @ a)))
    ),
    "rule": lambda a, b, c: jnp.sum(scaled(a, jnp.sin(a))) * scaled(jnp.sum(b), b @ b),
    "rule of two results": lambda a, b, c: (
        jax.jit(lambda x: jnp.sum(pair(x, x)[0] * b))(a * a) + jnp.sum(pair(a, a + b)[1])
    ),
}


@pytest.fixture(params=FUNCTIONS)
def function(request):
    return FUNCTIONS[request.param]


A = np.array([[0.3, 0.5, 1.2], [0.7, 0.2, 0.9]])
B = np.array([0.4, -0.8, 1.1])
C = np.arange(1.0, 13.0).reshape(2, 2, 3) / 10
ARGS = A, B, C
TANGENTS = np.cos(A), np.sin(B), C * C
ALL = 0, 1, 2


CLOSE = 1e-12


def close(found, expected):
    for each, value in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(each, value, rtol=CLOSE, atol=CLOSE)


def test_values_and_both_modes(page, function):
    module = page.trace(function, *ARGS)
    close(page.compiled(module, "main")(*ARGS), [function(*ARGS)])
    found = page.compiled(module, page.grad(module, "main"))(*ARGS)
    close(found, pb.grad(function, ALL)(*ARGS))
    close(found, jax.grad(function, ALL)(*ARGS))
    found = page.compiled(module, page.jvp(module, "main"))(*ARGS, *TANGENTS)
    close(found, pb.jvp(function, ARGS, TANGENTS))
    found = page.compiled(module, page.vjp(module, "main"))(*ARGS, 2.0)
    close(found, [function(*ARGS), *pb.vjp(function, *ARGS)[1](jnp.float64(2.0))])


def test_second_derivatives(page, function):
    module = page.trace(function, *ARGS)
    gradient = pb.grad(function, ALL)
    found = page.compiled(module, page.jvp(module, page.grad(module, "main")))
    close(found(*ARGS, *TANGENTS), pb.jvp(gradient, ARGS, TANGENTS))
    found = page.compiled(module, page.vjp(module, "main.grad"))
    close(found(*ARGS, *TANGENTS)[3:], pb.vjp(gradient, *ARGS)[1](TANGENTS))

    def pushed(*values):
        return pb.jvp(function, values[:3], values[3:])

    cts = jnp.float64(1.0), jnp.float64(2.0)
    found = page.compiled(module, page.vjp(module, page.jvp(module, "main")))
    close(found(*ARGS, *TANGENTS, *cts)[2:], pb.vjp(pushed, *ARGS, *TANGENTS)[1](cts))


@pytest.mark.parametrize("mask", ["101", "010"])
def test_batches(page, function, mask):
    module = page.trace(function, *ARGS)
    axes = [0 if each == "1" else None for each in mask]
    pairs = zip(ARGS, mask)
    args = [np.stack([a, 0.9 * a, 1.1 * a]) if each == "1" else a for a, each in pairs]
    expected = jax.vmap(function, axes)
    close(page.compiled(module, page.vmap(module, "main", mask, 3))(*args), [expected(*args)])
    found = page.compiled(module, page.vmap(module, page.grad(module, "main"), mask, 3))
    close(found(*args), jax.vmap(jax.grad(function, ALL), axes)(*args))
    ct = np.array([1.0, -2.0, 3.0])
    found = page.compiled(module, page.vjp(module, f"main.vmap.{mask}.3"))
    close(found(*args, ct)[1:], jax.vjp(expected, *args)[1](ct))


def test_derivatives_without_a_rule_are_slopes(page):
    function = FUNCTIONS["products"]
    module = page.trace(function, *ARGS)
    _, tangent = page.compiled(module, page.jvp(module, "main"))(*ARGS, *TANGENTS)
    step = 1e-6
    ahead, behind = (function(*[a + h * t for a, t in zip(ARGS, TANGENTS)]) for h in (step, -step))
    np.testing.assert_allclose(tangent, (ahead - behind) / (2 * step), rtol=1e-8)


def test_a_transpose(page):
    def linear(y, x):
        return jnp.sum(y @ x.T / jnp.exp(jnp.sum(y)) - jnp.square(y) @ x.T, axis=0)

    module, x = page.trace(linear, C[0], A), np.sin(A)
    found = page.compiled(module, page.transpose(module, "main", "01"))(C[0], B[:2])
    close(found, jax.linear_transpose(lambda x: linear(C[0], x), x)(B[:2]))
    close(np.sum(found[0] * x), B[:2] @ linear(C[0], x))


def twice(factor):
    function = jax.custom_vjp(lambda x: 2.0 * x)
    function.defvjp(lambda x: (function(x), None), lambda _, ct: (factor * ct,))
    return function


def twice_by(inner):
    """Reads the same for all inner functions, whose rules matter for the second derivative."""
    function = jax.custom_vjp(lambda x: inner(x))
    function.defvjp(lambda x: (inner(x), x), lambda x, ct: (ct * inner(x),))
    return function


def test_rules_of_one_name_are_told_apart(page):
    def function(x):
        product = twice(3.0)(x) * twice(5.0)(x)
        return product + twice_by(twice(7.0))(x) + twice_by(twice(9.0))(x)

    module = page.trace(function, 1.5)
    gradient = jax.grad(function)
    close(page.compiled(module, page.grad(module, "main"))(1.5), [gradient(1.5)])
    found = page.compiled(module, page.grad(module, "main.grad"))
    close(found(1.5), [jax.grad(gradient)(1.5)])
    close(page.compiled(module, page.jvp(module, "main.grad"))(1.5, 1.0)[1:], found(1.5))


def test_calls_of_one_rule_share_its_functions(page):
    rule = twice(3.0)
    module = page.trace(lambda x: rule(rule(x)) * rule(x), 1.5)
    assert str(module).count("func.func private") == 3


def test_a_file_is_a_module_of_the_dialect(page, tmp_path):
    function = FUNCTIONS["rule"]
    module = page.trace(function, *ARGS)
    page.vmap(module, page.grad(module, "main"), "111", 3)
    page.save(module, tmp_path / "rule.mlirbc")
    content = (tmp_path / "rule.mlirbc").read_bytes()
    run_pipeline(parse(content), "builtin.module(verify-custom-derivatives)")
    loaded = page.load(tmp_path / "rule.mlirbc")
    expected = pb.grad(function, ALL)(*ARGS)
    close(page.compiled(loaded, page.grad(loaded, "main"))(*ARGS), expected)
    close(pb.load(content).grad(ALL)(*ARGS), expected)
    close(pb.load(content).jvp()(*ARGS, *TANGENTS), pb.jvp(function, ARGS, TANGENTS))


def linear_in(bwd):
    function = jax.custom_vjp(lambda x: 2.0 * x)
    function.defvjp(lambda x: (function(x), x), lambda x, ct: (bwd(x, ct),))
    return function


ADDED = "cannot transpose: a term does not depend on the linear arguments"


@pytest.mark.parametrize(
    ("bwd", "words"),
    [
        (lambda x, ct: ct * ct, "cannot transpose: `stablehlo.multiply` is not linear"),
        (lambda x, ct: x / ct, "cannot transpose: `stablehlo.divide` is not linear"),
        (lambda x, ct: jnp.sin(ct), "cannot transpose: `stablehlo.sine` is not linear"),
        (lambda x, ct: scaled(ct, x), "`pullback.custom_vjp_call` is not linear"),
        (lambda x, ct: ct + x, ADDED),
        (lambda x, ct: 1.0 - ct, ADDED),
        (lambda x, ct: x, ADDED),
    ],
)
def test_forward_mode_of_a_rule_that_is_not_linear_is_an_error(page, bwd, words):
    module = page.trace(linear_in(bwd), 1.5)
    close(page.compiled(module, page.grad(module, "main"))(1.5), [jax.grad(linear_in(bwd))(1.5)])
    for _ in range(2):
        with pytest.raises(ValueError, match=re.escape(words)):
            page.jvp(module, "main")
    module.operation.verify()


TRANSFORMS = ("jvp", ()), ("grad", ()), ("vmap", ("1", 3))


def test_what_has_no_entry_is_an_error(page):
    with pytest.raises(NotImplementedError, match="no lowering of `sort`: add one to LOWERINGS"):
        page.trace(jnp.sort, B)
    with pytest.raises(NotImplementedError, match="closes over an array: pass it as an argument"):
        page.trace(lambda x: x * jnp.asarray(B), B)
    with pytest.raises(NotImplementedError, match="of type int64: write the function with floats"):
        page.trace(lambda x: x, 1)
    module = page.trace(lambda x: x, 1.0)
    text = str(module).replace("return %arg0", "%0 = stablehlo.abs %arg0 : tensor<f64> return %0")
    module = type(module).parse(text, module.context)
    for transform, options in TRANSFORMS:
        with pytest.raises(NotImplementedError, match=r"no rule for `stablehlo\.abs`"):
            getattr(page, transform)(module, "main", *options)


@pytest.mark.parametrize(("old", "new"), [("add", "maximum"), ("0.000000e+00", "1.000000e+00")])
def test_a_reduction_that_is_not_a_sum_is_an_error(page, old, new):
    module = page.trace(jnp.sum, B)
    text = str(module).replace(old, new)
    assert text != str(module)
    module = type(module).parse(text, module.context)
    for transform, options in TRANSFORMS:
        with pytest.raises(NotImplementedError, match=r"a `stablehlo\.reduce` that is not a sum"):
            getattr(page, transform)(module, "main", *options)
