"""The table of primitives that hold jaxprs has those of the installed JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import compute_on, pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec as P

from pullback._jax import holders, jaxprs, tracing
from pullback._jax.linear_maps import linear_map

X = jnp.ones(4)


def by_jvp(x: Any) -> Any:
    function = jax.custom_jvp(jnp.sin)
    function.defjvp(lambda primals, tangents: (function(*primals), tangents[0]))
    return function(x)


def by_vjp(x: Any) -> Any:
    function = jax.custom_vjp(jnp.sin)
    function.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct,))
    return function(x)


def by_vmap(x: Any) -> Any:
    function = jax.custom_batching.custom_vmap(jnp.sin)
    function.def_vmap(lambda size, batched, x: (jnp.sin(x), batched[0]))
    return function(x)


def optimized(x: Any) -> Any:
    function = jax.custom_vjp(jnp.sin)
    function.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct,), optimize_remat=True)
    return jax.vjp(function, x)[0]


def solved(x: Any) -> Any:
    return lax.custom_linear_solve(lambda v: 2.0 * v, x, lambda _, b: b / 2.0)


def product(a: Any, b: Any) -> Any:
    return a * b + 0.0 * a


@custom_partitioning
def partitioned(x: Any) -> Any:
    return x * 2.0


partitioned.def_partition(None, infer_sharding_from_operands=None, sharding_rule="i -> i")


def kernel(source: Any, target: Any) -> None:
    target[...] = source[...]


def on_every_device(x: Any) -> Any:
    mesh = jax.make_mesh((1,), ("i",))
    return jax.shard_map(lambda x: x * 2.0, mesh=mesh, in_specs=P(), out_specs=P())(x)


on_the_host = getattr(compute_on, "compute_on2", compute_on.compute_on)

DEVICE = jax.memory.Space.Device

ONE_OF_EACH: list[Callable[[Any], Any]] = [
    jax.jit(jnp.sin),
    jax.checkpoint(jnp.sin),
    by_vmap,
    by_jvp,
    by_vjp,
    optimized,
    solved,
    partitioned,
    on_every_device,
    lambda x: lax.scan(lambda c, x: (c + x, x), 0.0, x),
    lambda x: lax.while_loop(lambda x: x[0] < 3.0, lambda x: x + 1.0, x),
    lambda x: lax.cond(x[0] < 1.0, jnp.sin, jnp.cos, x),
    lambda x: jax.custom_derivatives.linear_call(lambda _, x: x, lambda _, ct: ct, x, x),
    lambda x: linear_map(lambda x: [2.0 * x], lambda _, cts: cts, [x], (0,), "double"),
    lambda x: lax.composite(jnp.sin, name="a.sine")(x),
    lambda x: lax.reduce(x, 1.0, product, (0,)),
    lambda x: lax.reduce_window(x, 1.0, product, (2,), (1,), "VALID"),
    lambda x: x.at[0].add(2.0),
    lambda x: x.at[0].subtract(2.0),
    lambda x: x.at[0].multiply(2.0),
    lambda x: x.at[0].min(2.0),
    lambda x: x.at[0].max(2.0),
    lambda x: pl.pallas_call(kernel, out_shape=x)(x),
    lambda x: on_the_host(jnp.sin, compute_type="device_host", out_memory_spaces=DEVICE)(x),
]


def parameters_with_bodies(function: Callable[[Any], Any]) -> dict[str, set[str]]:
    """By primitive, the parameters with jaxprs of the equations that a function is traced to."""
    found: dict[str, set[str]] = {}
    for equation in jaxprs.equations_in(jax.make_jaxpr(function)(X)):
        if names := {name for name, _ in jaxprs.bodies_of(equation)}:
            found.setdefault(jaxprs.name_of(equation), set()).update(names)
    return found


def test_the_table_has_each_primitive_that_holds_a_jaxpr():
    seen: set[str] = set()
    for function in ONE_OF_EACH:
        found = parameters_with_bodies(function)
        assert found
        assert found.keys() <= holders.HOLDERS.keys()
        for name in found.keys() - {"composite"}:  # its parameter has another name in 0.10
            holder = holders.HOLDERS[name]
            assert holder.inlined in (None, *found[name]), name
            assert set(holder.bodies) in (set(), found[name]), name
        seen |= found.keys()
    with_bodies = {name for name, holder in holders.HOLDERS.items() if holder.bodies}
    assert with_bodies - seen == {"closed_call", "eval_jaxpr"}  # which JAX makes inside


def test_a_primitive_of_a_library_is_opaque_whatever_its_name():
    scan = Primitive("scan")
    scan.def_abstract_eval(lambda x, jaxpr: x)
    (equation,) = jax.make_jaxpr(lambda x: scan.bind(x, jaxpr=jax.make_jaxpr(jnp.sin)(x)))(X).eqns
    assert holders.holder_of(equation) == holders.Holder()
    assert holders.called_function(equation) is None


@pytest.mark.parametrize("function", [jax.jit(jnp.sin), by_jvp, by_vjp, by_vmap])
def test_an_inlined_body_computes_what_the_equation_does(function):
    (equation,) = jax.make_jaxpr(function)(X).eqns
    body = jaxprs.close(holders.called_function(equation))
    np.testing.assert_allclose(tracing.apply(body, [X])[0], jnp.sin(X))
