"""shard_map on four virtual devices, in a process of its own."""

from __future__ import annotations

import json

import pytest

from tests.rules.processes import run_python

CASES_OF_PARTS = (10, 12, 11, 9)  # and two more where JAX does not crash on an empty array
ALWAYS = {"gradient", "pull back", "second order", "loaded", "loaded, second order", "as_jax"}


@pytest.mark.slow
@pytest.mark.parametrize(("part", "count"), [*enumerate(CASES_OF_PARTS)])
def test_every_derivative_of_shard_map_is_that_of_jax(part: int, count: int) -> None:
    parts = len(CASES_OF_PARTS)
    cases = json.loads(run_python("-m", "tests.rules.shard_maps", f"{part}", f"{parts}"))
    assert len(cases) >= count
    wrong = {name: found for name, found in cases.items() if max(found.values()) > 1e-9}
    assert not wrong
    for name, found in cases.items():
        assert set(found) in (ALWAYS, ALWAYS | {"jvp", "linearize"})
        if name.startswith("p"):  # collectives alone, which have no rules
            assert {"jvp", "linearize"} < set(found)


IN_THE_BODY = """
import jax, jax.numpy as jnp, numpy as np, pullback as pb
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
x, w = jnp.arange(8.0), jnp.arange(2.0)

def total(x):
    return jax.lax.psum(jnp.sum(jnp.sin(x)), "i")

def grads(grad, loss, check=True):
    return jax.shard_map(grad(loss), mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=check)

def local(x):
    return jnp.sum(jnp.sin(x) * x)

def both(x):
    return jnp.sum(x) * total(x)

for loss, check in ((local, True), (local, False), (both, True), (both, False), (total, False)):
    ours, theirs = (grads(grad, loss, check)(x) for grad in (pb.grad, jax.grad))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
try:
    grads(pb.grad, total)(x)
except pb.NotDifferentiableError as error:
    assert "differentiate the function that calls shard_map" in str(error)
else:
    raise AssertionError("every device counts the loss that all of them have")
"""


@pytest.mark.slow
def test_reverse_mode_in_a_checked_body_is_jax_s_or_an_error() -> None:
    run_python("-c", IN_THE_BODY, devices=4)


EFFECTS = """
import collections, jax, jax.numpy as jnp, numpy as np, pullback as pb
from jax.experimental import io_callback
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
seen = []

def see(tag, x):
    jax.debug.callback(lambda x: seen.append((tag, *np.asarray(x).round(4).ravel().tolist())), x)

def drawn(x):
    def draw(x):
        seen.append(("drawn", *x.round(4).tolist()))
        return np.cos(x)
    return io_callback(draw, jax.ShapeDtypeStruct(x.shape, x.dtype), jax.lax.stop_gradient(x))

def plain(x):
    see("plain", x)
    return jnp.sin(jnp.sin(x))

def of_a_value(x):
    return jnp.sin(drawn(x) * x)

def scanned(x):
    return jax.lax.scan(lambda c, _: (plain(c), None), x, None, length=2)[0]

def branched(x):
    return jax.lax.cond(x[0] > 0.4, plain, lambda x: (see("other", x), jnp.cos(x))[1], x)

def summed(x):
    see("before", x)
    total = jax.lax.psum(jnp.sin(x).sum(), "i")
    see("after", total)
    return x * jnp.sin(total)

@jax.custom_vjp
def rule(x):
    see("primal", x)
    return jnp.sin(x)

def forward(x):
    see("forward", x)
    return jnp.sin(x), x

def backward(x, ct):
    see("backward", ct)
    return (ct * jnp.cos(x),)

rule.defvjp(forward, backward)

def told(grad, f, *args):
    seen.clear()
    found = jax.block_until_ready(jax.jit(grad(f))(*args))
    jax.effects_barrier()
    return found, collections.Counter(seen)

def second(grad):
    return lambda f: grad(lambda x: grad(f)(x).sum())

bodies = plain, of_a_value, scanned, branched, summed, lambda x: jnp.sin(rule(x))
for body in (*bodies, jax.checkpoint(plain)):
    def loss(x):
        on_devices = jax.shard_map(
            body, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False
        )
        return (on_devices(x) ** 2).sum()

    x = jnp.arange(8.0) / 10 + 0.1
    for ours, theirs in ((pb.grad, jax.grad), (second(pb.grad), second(jax.grad))):
        (found, calls), (expected, expected_calls) = told(ours, loss, x), told(theirs, loss, x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert calls == expected_calls, (body, calls, expected_calls)
        assert calls
"""


@pytest.mark.slow
def test_an_effect_on_devices_happens_as_often_as_in_jax() -> None:
    """The backward body ran the forward one again, with its effects, and refused their values."""
    run_python("-c", EFFECTS, devices=4)


IN_A_SOLVE = """
import jax, jax.numpy as jnp, numpy as np, pullback as pb
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
third = jax.shard_map(lambda b: b / 3, mesh=mesh, in_specs=P("i"), out_specs=P("i"))

def loss(b):
    x = jax.lax.custom_linear_solve(lambda x: 3 * x, b, lambda _, b: third(b), symmetric=True)
    return jnp.sum(x**2)

b = jnp.arange(8.0)
np.testing.assert_allclose(pb.grad(loss)(b), 2 * b / 9, rtol=1e-6)
"""


@pytest.mark.slow
def test_a_mesh_is_known_that_only_the_body_of_a_primitive_uses() -> None:
    run_python("-c", IN_A_SOLVE, devices=4)


TERMS_OF_A_SUM = """
import jax, jax.numpy as jnp, numpy as np, pullback as pb
from jax.sharding import PartitionSpec as P, reshard
mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
WHOLE, PARTS = P("x", None), P("x", None, unreduced={"y"})
COPIES = P(None, None, reduced={"x", "y"})

@jax.custom_vjp
def rule(x):
    return x + x

rule.defvjp(lambda x: (rule(x), None), lambda _, ct: (ct + ct + ct,))

def mapped(f, before, after):
    return jax.shard_map(f, mesh=mesh, in_specs=before, out_specs=after)

def terms(a, w):
    def product(a, w):
        return jax.lax.pcast(jnp.sin(a) @ w, "y", to="unreduced")
    return mapped(product, (P("x", "y"), P("y", None)), PARTS)(a, w)

def result(a, w):
    return reshard(terms(a, w), WHOLE)

def operand(a, w):
    return reshard(mapped(lambda s: s + s, PARTS, PARTS)(terms(a, w)), WHOLE)

def summed(a, w):
    return mapped(lambda s: jnp.sin(jax.lax.psum(s, "y")), PARTS, WHOLE)(terms(a, w))

def scattered(a, w):
    def body(s):
        return jnp.sin(jax.lax.psum_scatter(s, "y", scatter_dimension=1, tiled=True))
    return reshard(mapped(body, PARTS, P("x", "y"))(terms(a, w)), WHOLE)

def with_a_rule(a, w):
    return mapped(lambda s: jax.lax.psum(rule(s), "y"), PARTS, WHOLE)(terms(a, w))

def reduced(a, w):
    def body(a, w):
        return jax.lax.psum(jnp.sin(a) @ jax.lax.pcast(rule(w), ("x", "y"), to="varying"), "y")
    of_two = reshard(reshard(w, P(None, None))[:2], COPIES)
    return mapped(body, (P("x", "y"), COPIES), WHOLE)(a, of_two)

def reduced_along_one(a, w):
    def body(a, w):
        return jax.lax.psum(jnp.sin(a) @ jax.lax.pcast(rule(w), "y", to="varying"), "y")
    copies = P(None, None, reduced={"y"})
    of_two = reshard(reshard(w, P(None, None))[:2], copies)
    return mapped(body, (P(None, "y"), copies), P(None, None))(reshard(a, P(None, "y")), of_two)

def terms_along_one(a, w):
    def body(a, w):
        return jax.lax.pcast(jnp.sin(a) @ w, "y", to="unreduced")
    parts = P(None, None, unreduced={"y"})
    s = mapped(body, (P(None, "y"), P("y", None)), parts)(reshard(a, P(None, "y")), w)
    return mapped(lambda s: jax.lax.psum(rule(s), "y"), parts, P(None, None))(s)

def product(a, w):
    return reshard(jnp.einsum("ij,jk->ik", jnp.sin(a), w, out_sharding=PARTS), WHOLE)

with jax.set_mesh(mesh):
    a = jax.device_put(jnp.arange(16.0).reshape(4, 4) / 7, P("x", "y"))
    w = jax.device_put(jnp.cos(jnp.arange(16.0)).reshape(4, 4), P("y", None))
    rules = with_a_rule, reduced, reduced_along_one, terms_along_one
    for body in (result, operand, summed, scattered, *rules, product):
        def loss(a, w):
            return jnp.sum(jnp.sin(body(a, w)) * jnp.arange(1.0, 5.0))
        theirs = jax.jit(jax.grad(loss, (0, 1)))(a, w)
        for mine, found in zip(pb.grad(loss, (0, 1))(a, w), theirs, strict=True):
            np.testing.assert_allclose(mine, found, rtol=1e-5, atol=1e-5, err_msg=body.__name__)
        if body not in rules:
            moves = a + 1, w - 1
            np.testing.assert_allclose(
                pb.jvp(loss, (a, w), moves)[1], jax.jvp(loss, (a, w), moves)[1], rtol=1e-4
            )
"""


@pytest.mark.slow
def test_what_is_a_sum_over_devices_not_yet_done_has_its_derivative() -> None:
    run_python("-c", TERMS_OF_A_SUM, devices=4)


IN_ANOTHER_ORDER = """
from tests.rules.on_four_devices import call_on_all, ir, jnp, np, run_pipeline
from pullback import _jax

TEXT = '''
sdy.mesh @mesh = <["i"=2, "j"=2], device_ids=[3, 1, 2, 0]>
func.func public @main(%x: tensor<4xf32>, %y: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = sdy.manual_computation(%x, %y)
      in_shardings=[<@mesh, [{"i"}]>, <@mesh, [{"i"}, {"j"}]>]
      out_shardings=[<@mesh, [{"i"}, {"j"}]>] manual_axes={"i", "j"}
      (%a: tensor<2xf32>, %b: tensor<2x2xf32>) {
    %1 = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<2xf32>) -> tensor<2x2xf32>
    %2 = stablehlo.multiply %1, %b : tensor<2x2xf32>
    sdy.return %2 : tensor<2x2xf32>
  } : (tensor<4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
'''
x, y = jnp.arange(4.0) + 1, jnp.arange(16.0).reshape(4, 4)
ct = jnp.cos(y)
module = ir.Module.parse(TEXT, _jax.context())
run_pipeline(module, "builtin.module(vjp)")
found = call_on_all(module, x, y, ct)
for ours, expected in zip(found, (x[:, None] * y, (ct * y).sum(1), ct * x[:, None]), strict=True):
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
"""


@pytest.mark.slow
def test_cotangents_are_summed_over_the_devices_that_a_mesh_names() -> None:
    run_python("-c", IN_ANOTHER_ORDER)


UNMOVED = """
import jax, jax.numpy as jnp, numpy as np, pullback as pb
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))

@jax.custom_jvp
def mean(x, n):
    return jax.lax.pmean(jnp.sum(x**2), "i")

@mean.defjvp
def _(primals, tangents):
    return mean(*primals), jnp.sum(2 * primals[0] * tangents[0])

x = jnp.arange(8.0)
for n in (np.array([1, 2]), jnp.array([1.0, 2.0]), jnp.array([1, 2], jnp.uint32)):
    of = lambda derive: lambda x: derive(lambda x: mean(x, n))(x)
    over = lambda f: jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)
    expected = jax.jit(over(of(jax.grad)))(x)
    np.testing.assert_allclose(jax.jit(over(of(pb.grad)))(x), expected)
    np.testing.assert_allclose(pb.jit(over(of(pb.grad)))(x), expected)
"""


def test_a_rule_with_a_collective_and_an_argument_that_does_not_move() -> None:
    """JAX makes the zero for its tangent outside of the mesh: the first equation of the rule."""
    run_python("-c", UNMOVED, devices=4)


IN_A_MESH = """
import jax, jax.numpy as jnp, numpy as np, pullback as pb
from jax.sharding import AxisType, PartitionSpec as P
from pullback.errors import NoJaxCounterpartError

mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))

def total(x):
    summed = lambda x: jax.lax.psum(jnp.sin(x).sum(), "i")
    return jax.shard_map(summed, mesh=mesh, in_specs=P("i"), out_specs=P())(x)

x = jnp.arange(8.0)
ours = pb.trace(total)(x).as_jax()
with jax.set_mesh(mesh):
    np.testing.assert_allclose(jax.jit(jax.grad(ours))(x), jnp.cos(x), rtol=1e-6)
with jax.set_mesh(jax.make_mesh((4,), ("i",), axis_types=(AxisType.Explicit,))):
    np.testing.assert_allclose(ours(x), jnp.sin(x).sum(), rtol=1e-6)
what = "on axes {'i': 4} inside of jax.set_mesh with others"
with jax.set_mesh(jax.make_mesh((4,), ("j",), axis_types=(AxisType.Auto,))):
    try:
        ours(x)
    except NoJaxCounterpartError as error:
        assert what in error.message
    else:
        raise AssertionError(what)
"""


@pytest.mark.slow
def test_as_jax_runs_on_the_mesh_of_set_mesh_or_says_why_not() -> None:
    run_python("-c", IN_A_MESH, devices=4)
