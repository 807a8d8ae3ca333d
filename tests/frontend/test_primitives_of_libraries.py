"""Primitives that a library registers with JAX, as lineax and equinox do.

Theirs have results that are integers, and parameters that are new objects at each call.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import compute_on, hijax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.interpreters import ad, mlir

import pullback as pb
from pullback import artifact
from pullback._jax import jaxprs

pytestmark = pytest.mark.whole


class Note:
    """A parameter without equality, that holds what the call found out."""

    __slots__ = ("found",)

    def __init__(self, found: Any) -> None:
        self.found = found


class Marker:
    """A parameter without equality or contents."""


quotient_p = jax.extend.core.Primitive("quotient")
quotient_p.multiple_results = True


def quotient(a: Any, b: Any, make: Any) -> Any:
    """b / a, and how often something was done."""
    return quotient_p.bind(a, b, note=make())


def _compute(a: Any, b: Any, *, note: Any) -> Any:
    return b / a, jnp.int32(3)


def _jvp(primals: Any, tangents: Any, *, note: Any) -> Any:
    a, b = primals
    result, count = quotient_p.bind(a, b, note=type(note)(*_contents(note)))
    parts = []
    for t, numerator in zip(tangents, (lambda da: -result * da, lambda db: db), strict=True):
        if type(t) is not ad.Zero:
            parts.append(quotient_p.bind(a, numerator(t), note=type(note)(*_contents(note)))[0])
    return [result, count], [sum(parts[1:], parts[0]), ad.Zero(NO_TANGENT)]


NO_TANGENT = jax.core.ShapedArray((), jax.dtypes.float0)


def _contents(note: Any) -> tuple[Any, ...]:
    return (note.found,) if isinstance(note, Note) else ()


def _transpose(cts: Any, a: Any, b: Any, *, note: Any) -> Any:
    """Half of the transpose: whoever takes another one gets another result."""
    assert ad.is_undefined_primal(b)
    return None, 0.5 * quotient_p.bind(a, cts[0], note=type(note)(*_contents(note)))[0]


quotient_p.def_impl(_compute)
quotient_p.def_abstract_eval(
    lambda a, b, **_: (b, jax.core.ShapedArray((), np.dtype("int32"))),
)
mlir.register_lowering(quotient_p, mlir.lower_fun(_compute, multiple_results=True))
ad.primitive_jvps[quotient_p] = _jvp
ad.primitive_transposes[quotient_p] = _transpose


def loss(a: Any, b: Any) -> Any:
    return jnp.sum(jnp.sin(quotient(a, b, lambda: Note([None, {}]))[0]))


A, B = jnp.array([1.5, -2.0]), jnp.array([0.4, 0.7])


def test_a_linear_primitive_with_an_integer_result_is_transposed() -> None:
    for found, wanted in zip(pb.grad(loss, (0, 1))(A, B), jax.grad(loss, (0, 1))(A, B)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_parameters_of_equal_contents_are_one_rule(tmp_path: Path) -> None:
    program = pb.trace(loss)(A, B)
    program.save(tmp_path / "loss.mlirbc")
    assert program.rules.traces < 20
    second = pb.load(tmp_path / "loss.mlirbc").grad().jvp()
    hessian = jax.jvp(jax.grad(loss), (A, B), (A, B))[1]
    np.testing.assert_allclose(second(A, B, A, B)[-1], hessian, rtol=1e-5)


def test_rules_that_never_end_are_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    for name, count in {"MOST_RULES": 60, "MANY_RULES": 100}.items():
        monkeypatch.setattr(f"pullback.frontend.rules.stage_all.{name}", count)
    program = pb.trace(lambda a, b: quotient(a, b, Marker)[0])(A, B)
    with pytest.raises(pb.MissingRuleError) as caught:
        program.save(tmp_path / "endless.mlirbc")
    assert "the rules of rules of `quotient` come to no end" in str(caught.value)
    assert "test_primitives_of_libraries.py" in str(caught.value)


def test_who_waits_for_rules_is_told_once_of_order(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("pullback.frontend.rules.stage_all.PATIENCE", -1.0)
    program = pb.trace(loss)(A, B)
    with pytest.warns(UserWarning, match="staging rules takes long") as told:
        program.save(tmp_path / "loss.mlirbc")
    (text,) = [str(warning.message) for warning in told]
    assert "order=1, or 2, stages those for derivatives up to that order" in text
    assert "test_primitives_of_libraries.py" in text


applied_p = jax.extend.core.Primitive("applied")
applied_p.multiple_results = True


def _applied(*args: Any, function: Any, note: Note) -> Any:
    return jax.extend.core.jaxpr_as_fun(function)(*args)


def _applied_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    return applied_p.bind(*primals, **params), applied_p.bind(*tangents, **params)


applied_p.def_impl(_applied)
applied_p.def_abstract_eval(lambda *_, function, note: function.out_avals)
mlir.register_lowering(applied_p, mlir.lower_fun(_applied, multiple_results=True))
ad.primitive_jvps[applied_p] = _applied_jvp


def _applied_transpose(cts: Any, *_: Any, function: Any, note: Note) -> Any:
    assert note.found is function, "another function than was given"
    return _applied(*cts, function=function, note=note)


ad.primitive_transposes[applied_p] = _applied_transpose


def test_a_primitive_may_hold_a_function_twice() -> None:
    """The function has a call in it whose rule closes over a value there."""

    def twice(x: Any) -> Any:
        two = 2.0 + 0.0 * jax.lax.stop_gradient(x)
        f = jax.custom_jvp(lambda x: x * two)
        f.defjvp(lambda primals, tangents: (f(*primals), 2.0 * tangents[0]))
        return f(x)

    function = jax.make_jaxpr(twice)(A)

    def f(x: Any) -> Any:
        return jnp.sum(applied_p.bind(x, function=function, note=Note(function))[0])

    np.testing.assert_allclose(pb.grad(f)(A), 2.0 * jnp.ones_like(A))


slope_p = jax.extend.core.Primitive("slope")


def _slope(da: Any, db: Any, a: Any, b: Any) -> Any:
    """Not seen to be linear in its first two operands: it is so by its transpose only."""
    finite = jnp.isfinite(da) & jnp.isfinite(db)
    return jnp.where(finite, da * b * jnp.cos(a * b) + db * a * jnp.cos(a * b), jnp.nan)


def _slope_transpose(ct: Any, da: Any, db: Any, a: Any, b: Any) -> Any:
    """Of both operands, whichever is asked for."""
    return ct * b * jnp.cos(a * b), ct * a * jnp.cos(a * b), None, None


slope_p.def_impl(_slope)
slope_p.def_abstract_eval(lambda da, *_: da)
mlir.register_lowering(slope_p, mlir.lower_fun(_slope, multiple_results=False))
ad.primitive_transposes[slope_p] = _slope_transpose


@jax.custom_jvp
def sine_of_product(a: Any, b: Any) -> Any:
    return jnp.sin(a * b)


@sine_of_product.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return sine_of_product(*primals), slope_p.bind(*tangents, *primals)


@pytest.mark.parametrize("argnums", [0, 1, (0, 1)], ids=str)
def test_a_primitive_that_is_linear_in_some_operands_together(argnums: Any, tmp_path: Path) -> None:
    """Beside residuals. It has no jvp rule, and no transpose for all of its operands."""

    def f(a: Any, b: Any) -> Any:
        return jnp.sum(sine_of_product(a, b) * B)

    pb.trace(f)(A, B).save(tmp_path / "f.mlirbc")
    loaded = pb.load(tmp_path / "f.mlirbc")
    wanted = jax.grad(f, argnums)(A, B)
    for found in (pb.grad(f, argnums)(A, B), loaded.grad(argnums)(A, B)):
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)
    many = loaded.vmap(axis_size=2).jvp()(*[jnp.stack([x, x]) for x in (A, B, A, B)])[1]
    np.testing.assert_allclose(many[0], jax.jvp(f, (A, B), (A, B))[1], rtol=1e-6)


scaled_p = jax.extend.core.Primitive("scaled")
types_found: list[int] = []


def _scaled(dx: Any, *factors: Any) -> Any:
    return dx * sum(factors)


def _scaled_type(dx: Any, *factors: Any) -> Any:
    """Takes long, as for a solver that is traced to know the types of what it finds."""
    types_found.append(len(factors))
    return dx


def _scaled_transpose(ct: Any, dx: Any, *factors: Any) -> Any:
    assert ad.is_undefined_primal(dx)
    return (_scaled(ct, *factors), *[None] * len(factors))


scaled_p.def_impl(_scaled)
scaled_p.def_abstract_eval(_scaled_type)
mlir.register_lowering(scaled_p, mlir.lower_fun(_scaled, multiple_results=False))
ad.primitive_transposes[scaled_p] = _scaled_transpose


def test_what_a_primitive_is_not_linear_in_is_seen_from_its_rule_alone(tmp_path: Path) -> None:
    """A linear solve in which a preconditioner is closed over has dozens of such operands."""

    @jax.custom_jvp
    def f(x: Any, *factors: Any) -> Any:
        return x * sum(factors)

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return f(*primals), scaled_p.bind(tangents[0], *primals[1:])

    counts = []
    for number in (2, 9):
        args = [jnp.float32(1.5 + i) for i in range(number)]
        program = pb.trace(f)(*args)
        types_found.clear()
        program.save(tmp_path / "f.mlirbc", order=1)
        counts.append(len(types_found))
        found = pb.load(tmp_path / "f.mlirbc").grad()(*args)
        np.testing.assert_allclose(found, sum(args[1:]), rtol=1e-6)
    assert counts[0] == counts[1]


at_rest_p = jax.extend.core.Primitive("at_rest")


def _at_rest_jvp(primals: Any, tangents: Any) -> Any:
    """As of a solver: the solution of a system whose right side is zero, if there is one."""
    (x,) = primals
    return at_rest_p.bind(x), jnp.where(x > -9.0, 0.0, 99.0)


at_rest_p.def_impl(jnp.ceil)
at_rest_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(at_rest_p, mlir.lower_fun(jnp.ceil, multiple_results=False))
ad.primitive_jvps[at_rest_p] = _at_rest_jvp


def test_a_slope_that_does_not_depend_on_tangents_is_zero() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(jnp.sin(x) * at_rest_p.bind(x))

    np.testing.assert_allclose(pb.grad(f)(A), jax.grad(f)(A), rtol=1e-6)
    second = jax.jvp(jax.grad(f), (A,), (B,))[1]
    np.testing.assert_allclose(pb.jvp(pb.grad(f), (A,), (B,))[1], second, rtol=1e-6)


@jax.custom_jvp
def log_trace(x: Any) -> Any:
    return jnp.log(jnp.trace(x))


@log_trace.defjvp
def _(primals: Any, tangents: Any) -> Any:
    # jnp.where is a function of its own, which receives the zeros (or NaN) as an argument.
    diagonal = jnp.where(jnp.eye(2, dtype=bool), tangents[0], jnp.zeros((2, 2)))
    poisoned = jnp.where(jnp.trace(primals[0]) > 0, diagonal, jnp.full((2, 2), jnp.nan))
    return log_trace(*primals), poisoned.sum() / jnp.trace(primals[0])


def test_a_rule_may_hand_zeros_to_a_function() -> None:
    x = jnp.array([[2.0, 0.3], [0.1, 1.5]])
    np.testing.assert_allclose(pb.grad(log_trace)(x), jax.grad(log_trace)(x), rtol=1e-6)


@jax.custom_jvp
def masked_sum(x: Any) -> Any:
    return x.sum()


@masked_sum.defjvp
def _(primals: Any, tangents: Any) -> Any:
    zeros = jnp.zeros(3)

    def step(total: Any, keep: Any) -> Any:
        return total + jnp.where(keep, tangents[0], zeros).sum(), None

    total, _ = jax.lax.scan(step, 0.0, jnp.array([True, False, True]))
    return masked_sum(*primals), total


def test_a_rule_may_hand_zeros_to_a_loop() -> None:
    x = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(pb.grad(masked_sum)(x), [2.0, 2.0, 2.0])


def test_log_determinant() -> None:
    x = jnp.array([[2.0, 0.3], [0.1, 1.5]])

    def loss(x: Any) -> Any:
        return jnp.linalg.slogdet(x)[1]

    np.testing.assert_allclose(pb.grad(loss)(x), jax.grad(loss)(x), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sin(jnp.ldexp(x * x, np.array([1, -2]))).sum(),
        lambda x: jnp.frexp(x * x)[0].sum(),
    ],
    ids=["ldexp", "frexp"],
)
def test_a_function_is_linear_by_its_own_rules(function: Any, tmp_path: Path) -> None:
    x = jnp.array([0.7, 1.5])
    np.testing.assert_allclose(pb.grad(function)(x), jax.grad(function)(x), rtol=1e-6)
    pb.trace(function)(x).save(tmp_path / "f.mlirbc", order=2)
    loaded = pb.load(tmp_path / "f.mlirbc").grad()
    np.testing.assert_allclose(loaded(x), jax.grad(function)(x), rtol=1e-6)
    second = jax.jvp(jax.grad(function), (x,), (x,))[1]
    np.testing.assert_allclose(loaded.jvp()(x, x)[1], second, rtol=1e-5)
    many = loaded.vmap(axis_size=2)(jnp.stack([x, x + 1]))
    np.testing.assert_allclose(many[1], jax.grad(function)(x + 1), rtol=1e-6)


def test_a_linear_call_may_go_through_bits() -> None:
    def double(residual: Any, x: Any) -> Any:
        bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
        return residual * jax.lax.bitcast_convert_type(bits + jnp.uint32(1 << 23), jnp.float32)

    @jax.custom_jvp
    def f(x: Any) -> Any:
        return 2.0 * x

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        moved = pb.linear_call(double, lambda r, ct: 2.0 * r * ct, 3.0, tangents[0])
        return f(*primals), moved

    assert pb.grad(f)(1.5) == 6.0


HiPrim = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive  # of JAX 0.12, and of JAX 0.10


class Sine(HiPrim):
    """A call with rules that are methods. They are false, and each is another one."""

    def __init__(self, aval: Any) -> None:
        self.in_avals, self.out_aval, self.params = (aval,), aval, {"aval": aval}
        super().__init__()

    def expand(self, x: Any) -> Any:
        return jnp.sin(x)


class Forward(Sine):
    def jvp(self, primals: Any, tangents: Any) -> Any:
        return self(*primals), 2.0 * jnp.cos(primals[0]) * tangents[0]


class Backward(Sine):
    def vjp_fwd(self, nzs_in: Any, x: Any) -> Any:
        return self(x), x

    def vjp_bwd_retval(self, x: Any, ct: Any) -> Any:
        return (3.0 * jnp.cos(x) * ct,)


class Both(Forward, Backward):
    pass


class Linear(Sine):
    def lin(self, nzs_in: Any, x: Any) -> Any:
        return self(x), x

    def linearized(self, x: Any, tangent: Any) -> Any:
        return 4.0 * jnp.cos(x) * tangent


class LinearOrBackward(Linear, Backward):
    pass


class All(Both, Linear):
    pass


def applied(kind: Any) -> Any:
    return lambda x: kind(jax.typeof(x))(x)


@pytest.mark.parametrize(
    ("kind", "forward", "backward"),
    [
        (Forward, 2, 2),
        (Backward, 3, 3),
        (Both, 2, 3),
        (Linear, 4, 4),
        (LinearOrBackward, 4, 3),
        (All, 2, 3),
    ],
)
def test_a_call_is_differentiated_by_its_methods(
    kind: Any, forward: float, backward: float, tmp_path: Path
) -> None:
    x, f = jnp.float32(0.7), applied(kind)
    program = pb.trace(f)(x)
    program.save(tmp_path / "f.mlirbc")
    loaded = pb.load(tmp_path / "f.mlirbc")
    for grad in (pb.grad(f), pb.grad(jax.jit(f)), program.grad(), loaded.grad()):
        np.testing.assert_allclose(grad(x), backward * jnp.cos(x), rtol=1e-6)
    for first in (pb.grad(f), loaded.grad()):
        np.testing.assert_allclose(pb.grad(first)(x), -backward * jnp.sin(x), rtol=1e-6)
    for jvp in (program.jvp(), loaded.jvp()):
        np.testing.assert_allclose(jvp(x, 1.0)[1], forward * jnp.cos(x), rtol=1e-6)
    batch = loaded.vmap(axis_size=2).jvp()(jnp.stack([x, 0.0]), jnp.ones(2))[1]
    np.testing.assert_allclose(batch, forward * jnp.array([jnp.cos(x), 1.0]), rtol=1e-6)
    if issubclass(kind, Backward):
        np.testing.assert_allclose(pb.grad(f)(x), jax.grad(f)(x), rtol=1e-6)
    if issubclass(kind, Forward):
        np.testing.assert_allclose(pb.jvp(f, (x,), (x,))[1], jax.jvp(f, (x,), (x,))[1], rtol=1e-6)
    elif kind is Linear:
        by_jax = jax.linearize(f, x)[1](x)
        np.testing.assert_allclose(pb.linearize(f, x)[1](x), by_jax, rtol=1e-6)


@pytest.mark.parametrize(("kind", "factor"), [(Backward, 3.0), (Linear, 4.0)])
def test_a_call_without_jvp_inside_of_one_that_says_where_it_runs(kind: Any, factor: float) -> None:
    here = getattr(compute_on, "compute_on2", compute_on.compute_on)
    where = {"compute_type": "device_host", "out_memory_spaces": jax.memory.Space.Device}
    first = pb.grad(here(lambda x: x * applied(kind)(x), **where))
    x = np.float32(0.7)
    np.testing.assert_allclose(first(x), np.sin(x) + factor * x * np.cos(x), rtol=1e-6)
    second = factor * (2 * np.cos(x) - x * np.sin(x))
    np.testing.assert_allclose(pb.jvp(first, (x,), (1.0,))[1], second, rtol=1e-6)


def test_a_function_with_a_partition_of_its_own_is_what_it_computes():
    """As on one device, which a program is made for; JAX has no derivative of it."""

    @custom_partitioning
    def partitioned(x):
        return jnp.sin(x)

    partitioned.def_partition(
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        partition=lambda mesh, args, result: (mesh, jnp.sin, result.sharding, (args[0].sharding,)),
        sharding_rule="i -> i",
    )
    f = jax.custom_vjp(partitioned)
    f.defvjp(lambda x: (partitioned(x), x), lambda x, ct: (3.0 * ct * partitioned(x),))

    x = np.linspace(0.1, 1.0, 3)
    np.testing.assert_allclose(pb.grad(lambda x: f(x).sum())(x), 3.0 * np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(pb.grad(lambda x: partitioned(x).sum())(x), np.cos(x), rtol=1e-6)


def square_with_slope(name: str, slope: float) -> Any:
    """A primitive that computes x², with this multiple of x for its derivative."""
    primitive = jax.extend.core.Primitive(name)
    primitive.def_impl(lambda x: x * x)
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * x, multiple_results=False))
    ad.defjvp(primitive, lambda dx, x: slope * dx * x)
    return primitive.bind


def test_primitives_of_one_name_have_rules_of_their_own():
    first, second = square_with_slope("squared", 2.0), square_with_slope("squared", 5.0)
    for both in (lambda x: first(x) + second(x), lambda x: jax.jit(second)(jax.jit(first)(x))):
        np.testing.assert_allclose(pb.grad(both)(1.5), jax.grad(both)(1.5), rtol=1e-6)


OF_JAX = ["sin", "name", "copy", "sort", "scan", "jit", "cond", "remat2", "custom_vmap_call"]
OF_JAX += ["stop_gradient", "psum_invariant", "reduce", "sharding_constraint", "linear_call"]
OF_JAX += ["custom_jvp_call", "custom_vjp_call", "call_hi_primitive", "call_module"]


@pytest.mark.parametrize("name", OF_JAX)
def test_a_primitive_with_the_name_of_one_of_jax_has_its_own_rule(name):
    f = square_with_slope(name, 5.0)
    for first in (pb.grad(f), pb.load(artifact.serialize(pb.trace(f)(1.5))).grad()):
        np.testing.assert_allclose(first(1.5), 5.0 * 1.5)
        np.testing.assert_allclose(pb.grad(first)(1.5), 5.0)


side_p = jax.extend.core.Primitive("side")
side_p.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(side_p, mlir.lower_fun(lambda x, **_: x, multiple_results=False))
ad.primitive_jvps[side_p] = lambda primals, tangents, *, of: (
    side_p.bind(*primals, of=of),
    (np.copysign(2.0, of) if isinstance(of, float) else 5.0) * tangents[0],
)


@pytest.mark.parametrize(
    ("of", "slope"), [((0.0, -0.0), (2.0, -2.0)), ((1.0, 1, True), (2.0, 5.0, 5.0))]
)
def test_rules_for_equal_parameters_that_differ_are_kept_apart(of: Any, slope: Any) -> None:
    functions = [partial(side_p.bind, of=each) for each in of]
    assert tuple(float(pb.grad(function)(1.0)) for function in functions) == slope
    together = pb.grad(lambda x: sum(function(x) for function in functions))
    assert float(together(1.0)) == sum(slope)


def test_many_rules_are_no_rules_of_rules(tmp_path: Path, monkeypatch: Any) -> None:
    """Each function has a rule of its own, but there is an end to them."""

    def scaled(factor: float) -> Any:
        f = jax.custom_jvp(lambda x: factor * x)
        f.defjvp(lambda p, t: (factor * p[0], 2.0 * factor * t[0]))
        return f

    def chain(x: Any) -> Any:
        for i in range(9):
            x = scaled(1.0 + i / 8)(x)
        return x

    monkeypatch.setattr("pullback.frontend.rules.stage_all.MOST_RULES", 5)
    pb.trace(chain)(1.0).save(tmp_path / "chain.mlirbc")
    found = pb.load(tmp_path / "chain.mlirbc").grad()(1.0)
    np.testing.assert_allclose(found, jax.grad(chain)(1.0), rtol=1e-6)


def test_threads_may_import_while_a_primitive_is_looked_for():
    """A collection of garbage stands for the other thread here: it may come at any allocation."""
    unknown = jax.extend.core.Primitive("unknown")
    names = [f"imported_{number}" for number in range(10_000)]
    waiting = iter(names)

    def importing(*_):
        sys.modules[next(waiting)] = sys

    threshold = gc.get_threshold()
    gc.callbacks.append(importing)
    gc.set_threshold(1)
    try:
        assert not jaxprs.is_of_jax(unknown)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(importing)
        for name in names:
            sys.modules.pop(name, None)


def test_a_parameter_that_cannot_be_hashed_is_named():
    """JAX's lowering looks up what it has lowered by the parameters."""
    primitive = jax.extend.core.Primitive("with_options")
    primitive.def_impl(lambda x, **_: jnp.sin(x))
    primitive.def_abstract_eval(lambda x, **_: x)
    mlir.register_lowering(primitive, mlir.lower_fun(primitive.impl, multiple_results=False))
    with pytest.raises(pb.PullbackError, match="`options` is not hashable") as caught:
        pb.trace(lambda x: primitive.bind(x, n=2, options={"a": 1}))(0.5)
    assert "JAX cannot lower `with_options`" in caught.value.message
    assert "test_primitives_of_libraries.py" in caught.value.where
    assert "a tuple of pairs instead of a dictionary" in caught.value.do
