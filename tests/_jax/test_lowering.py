"""What is lowered once in the library of a program and its rules."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import mlir as mlir_of_jax
from jax._src.lax.control_flow import loops
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

import pullback as pb
from pullback._jax import stablehlo
from tests.rounding import FUNCTION, close

X = np.linspace(0.1, 1.0, 4, dtype=np.float32)


@pytest.fixture(autouse=True)
def cold():
    jax.clear_caches()
    yield
    jax.clear_caches()


class Counted:
    """A primitive that is its operand's sine, and counts how often it is lowered."""

    def __init__(self) -> None:
        self.lowered = 0
        self.primitive = Primitive("counted_sine")
        self.primitive.def_abstract_eval(lambda x: x)
        self.primitive.def_impl(jnp.sin)
        ad.defjvp(self.primitive, lambda t, x: t * jnp.cos(x))
        mlir.register_lowering(self.primitive, self._lower, inline=True)

    def _lower(self, context, x):
        self.lowered += 1
        return [stablehlo.sine(x)]

    def __call__(self, x):
        return self.primitive.bind(x)


def test_what_a_function_and_its_rule_share_is_lowered_once() -> None:
    sine = Counted()
    inner = jax.jit(lambda x: sine(x) + 1.0)

    @jax.custom_jvp
    def f(x):
        return 2.0 * inner(x)

    f.defjvp(lambda x, t: (f(*x), t[0] * inner(x[0])))
    gradient = pb.trace(lambda x: jnp.sum(f(x) * inner(x)))(X).grad()
    assert sine.lowered == 1
    value = np.sin(X) + 1.0  # of `inner`, which is also the slope of `f` by its rule
    np.testing.assert_allclose(gradient(X), value**2 + 2.0 * value * np.cos(X), rtol=1e-5)
    text = str(pb.trace(lambda x: f(x) * inner(x))(X).stage_rules())
    assert text.count("stablehlo.sine") == 1


def test_equal_parameters_that_differ_are_lowered_for_themselves() -> None:
    side = Primitive("side")
    side.def_abstract_eval(lambda x, **_: x)
    scaled = mlir.lower_fun(lambda x, of: np.copysign(2.0, of) * x, multiple_results=False)
    mlir.register_lowering(side, scaled)
    found = [float(pb.trace(lambda x, of=of: side.bind(x, of=of))(1.0)(1.0)) for of in (0.0, -0.0)]
    assert found == [2.0, -2.0]


def test_what_a_program_calls_dies_with_it():
    jax.clear_caches()

    class Held:
        pass

    def traced() -> weakref.ref:
        held = Held()
        function = jax.custom_batching.custom_vmap(jnp.sin)
        function.def_vmap(lambda size, batched, x: (held, jnp.sin(x), True)[1:])
        pb.trace(lambda x: function(x) + 1)(jnp.ones(3))
        return weakref.ref(held)

    held = traced()
    gc.collect()
    assert held() is None


def test_a_program_keeps_what_it_shows_while_rules_are_lowered() -> None:
    program = pb.trace(lambda x: jnp.sum(jax.nn.softplus(x)))(X)
    before = str(program.module)
    program.grad()
    program.jvp()
    assert str(program.module) == before


def test_a_lowering_that_fails_leaves_nothing_behind() -> None:
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    unknown = Primitive("without_a_lowering")
    unknown.def_abstract_eval(lambda x: x)
    f.defjvp(lambda x, t: (f(*x), t[0] * unknown.bind(jnp.cos(x[0]))))
    program = pb.trace(lambda x: jnp.sum(f(x) * jax.nn.relu(x)))(X)
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="without_a_lowering") as caught:
            program.grad()
        assert any("test_lowering.py:" in note for note in caught.value.__notes__)
    mlir.register_lowering(unknown, lambda context, x: [x])
    value = np.sin(X) + X * np.cos(X)
    np.testing.assert_allclose(program.grad()(X), value, rtol=1e-5)


# -------------------------------------------------------------------------------------- scans


def steps(h, x):
    h = jnp.sin(h * x["a"]) + x["n"]
    return h, {"value": h, "is large": h > 0.5, "as complex": h + 1j * x["a"]}


XS = {"a": np.linspace(0.1, 2.0, 20, dtype=np.float32).reshape(5, 4), "n": np.arange(5) % 3}


SCANS = {
    "forward": {},
    "reverse": {"reverse": True},
    "several steps at a time": {"unroll": 2},
    "all of them": {"unroll": True},
}


@pytest.mark.parametrize("options", SCANS.values(), ids=SCANS)
def test_a_scan_is_the_loop_that_jax_lowers_it_to(options) -> None:
    """Of its calls to functions that read and write a slice, there is what they do."""

    def loss(x, n):
        h, ys = jax.lax.scan(steps, jnp.ones(4), {"a": x, "n": n}, **options)
        return jnp.sum(h) + jnp.sum(jnp.abs(ys["as complex"]) ** 2) + jnp.sum(ys["is large"])

    found, expected = (module.value_and_grad(loss)(XS["a"], XS["n"]) for module in (pb, jax))
    ops = 31 * (FUNCTION + 2)  # each of 5 steps at most doubles errors
    close(found, expected, ops=ops, scale=8.0)
    text = str(pb.trace(loss)(XS["a"], XS["n"]).module)
    of_jax = jax.jit(loss).lower(XS["a"], XS["n"]).as_text()
    assert text.count("stablehlo.while") == of_jax.count("stablehlo.while")
    assert ("index_in_dim" in text) == (bool(options.get("unroll")) and "index_in_dim" in of_jax)


@pytest.mark.parametrize("x64", [False, True])
def test_a_plain_scan_takes_no_trace_of_a_loop(x64, monkeypatch) -> None:
    traces = []
    of_jax = loops._scan_impl

    def counted(*args, **params):
        traces.append(params)
        return of_jax(*args, **params)

    rule = dataclasses.replace(
        mlir_of_jax._lowerings[loops.scan_p], rule=mlir.lower_fun(counted, multiple_results=True)
    )
    monkeypatch.setitem(mlir_of_jax._lowerings, loops.scan_p, rule)
    with jax.enable_x64(x64):

        def f(xs, **options):
            return jax.lax.scan(lambda h, x: (h * x, h), xs[0], xs, **options)

        text = str(pb.trace(f)(XS["a"]).module)
        assert not traces
        assert ("tensor<i64>" in text) == x64
        pb.trace(lambda xs: f(xs, unroll=2))(XS["a"])
        assert len(traces) == 1


def of_keys(xs):
    keys = jax.random.split(jax.random.key(0), 5)
    return jax.lax.scan(lambda h, kx: (h + jax.random.uniform(kx[0], (4,)) * kx[1], h), 0.0 * xs[0],
                        (keys, xs))  # fmt: skip


def printing(xs):
    def step(h, x):
        jax.debug.print("{}", x[0], ordered=True)
        return h * x, h

    return jax.lax.scan(step, xs[0], xs)


SPECIAL = {
    "keys": of_keys,
    "ordered effects": printing,
    "no steps": lambda xs: jax.lax.scan(lambda h, x: (h * x, h), xs[0], xs[:0]),
    "no arrays": lambda xs: jax.lax.scan(lambda h, _: (h * 0.9, None), xs[0], None, length=7),
    "scalars": lambda xs: jax.lax.scan(lambda h, x: (h * x, h), 1.0, xs[:, 0]),
    "nothing carried": lambda xs: jax.lax.map(lambda x: x * x.sum(), xs),
    "half precision": lambda xs: jax.lax.scan(
        lambda h, x: (h * x, h), jnp.ones(4, jnp.bfloat16), xs.astype(jnp.bfloat16)
    ),
    "what the body closes over": lambda xs: jax.lax.scan(
        lambda h, x: (h * x + xs.sum(0) + np.arange(4.0), h), xs[0], xs
    ),
}


@pytest.mark.parametrize("f", SPECIAL.values(), ids=SPECIAL)
def test_scans_of_all_kinds_give_what_jax_gives(f, capfd) -> None:
    found = pb.jit(f)(XS["a"])
    jax.effects_barrier()
    printed = capfd.readouterr().out
    expected = jax.jit(f)(XS["a"])
    jax.effects_barrier()
    close(found, expected, ops=20)  # the most that one of them has in a row
    assert printed == capfd.readouterr().out

    def loss(f, xs):
        return sum(jnp.sum(v.astype(jnp.float32)) for v in jax.tree.leaves(f(xs)))

    slope = pb.grad(lambda xs: loss(f, xs))(XS["a"])
    np.testing.assert_allclose(slope, jax.grad(lambda xs: loss(f, xs))(XS["a"]), rtol=2e-2)


def test_a_line_of_a_body_is_that_of_the_user() -> None:
    def f(xs):
        return jax.lax.scan(lambda h, x: (h * jnp.real(jnp.linalg.eig(x)[0]), h), xs[0, 0], xs)

    with pytest.raises(pb.PullbackError, match=r"eig") as caught:
        pb.grad(lambda xs: f(xs)[0].sum())(np.ones((2, 3, 3), np.float32))
    assert "test_lowering.py" in str(caught.value)
