"""Run each collective, and its derivatives, on four virtual devices; print what differs as JSON.

A process of its own, because the number of devices is fixed when JAX starts. The reference is plain
JAX on one array with the devices as its first dimension.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
)

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pullback import _jax
from pullback._jax import ir
from pullback.passes.manager import run_pipeline
from pullback_runtime import call_module, make_handle

DEVICES = 4


class Collective(NamedTuple):
    """An op, its attributes and region, the types of a device's part, and what it computes."""

    op: str
    attributes: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    reference: Callable[[Any], Any]
    adds: bool = False
    waits: bool = False  # started, and waited for


CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
GLOBAL = f"{CHANNEL}, use_global_device_ids"
ALL = "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>"
PAIRS = "replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>"
ARROWS = "source_target_pairs = dense<[[0, 1], [1, 2], [3, 0]]> : tensor<3x2xi64>"

MODULE = """
func.func public @main(%x: BEFORE) -> AFTER {
  %0 = stablehlo.sine %x : BEFORE
  %1 = "OP"(%0) REGION {ATTRIBUTES} : (BEFORE) -> AFTER
  %2 = stablehlo.multiply %1, %1 : AFTER
  return %2 : AFTER
}
"""
WAITING = """
func.func public @main(%x: BEFORE) -> AFTER {
  %0 = stablehlo.sine %x : BEFORE
  %future = "stablehlo.async_start"(%0) ({
  ^bb0(%y: BEFORE):
    %z = "OP"(%y) REGION {ATTRIBUTES} : (BEFORE) -> AFTER
    stablehlo.return %z : AFTER
  }) : (BEFORE) -> !stablehlo.future<AFTER>
  %1 = "stablehlo.async_done"(%future) : (!stablehlo.future<AFTER>) -> AFTER
  %2 = stablehlo.multiply %1, %1 : AFTER
  return %2 : AFTER
}
"""
ADD = """({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  })"""


def in_pairs(x: Any) -> Any:
    """Sums over the groups (0, 2) and (1, 3)."""
    return x + x[jnp.array([2, 3, 0, 1])]


def gathered(x: Any) -> Any:
    whole = x.reshape(-1, *x.shape[2:])
    return jnp.broadcast_to(whole, (DEVICES, *whole.shape))


def scattered(x: Any) -> Any:
    total = x.sum(0)
    return total.reshape(DEVICES, -1, *total.shape[1:])


def exchanged(x: Any) -> Any:
    """x[device, 4 rows, columns]: row r of each device goes to device r, side by side."""
    parts = x.reshape(DEVICES, DEVICES, *x.shape[2:])
    return jnp.swapaxes(parts, 0, 1).reshape(DEVICES, 1, -1)


def permuted(x: Any) -> Any:
    zero = jnp.zeros_like(x[0])
    return jnp.stack([x[3], x[0], x[1], zero])


def broadcast(x: Any) -> Any:
    return x[jnp.array([0, 1, 0, 1])]


COLLECTIVES = {
    "all_reduce": Collective(
        "stablehlo.all_reduce", f"{ALL}, {GLOBAL}", (2, 3), (2, 3),
        lambda x: jnp.broadcast_to(x.sum(0), x.shape), adds=True,
    ),
    "all_reduce_in_groups": Collective(
        "stablehlo.all_reduce", f"{PAIRS}, {GLOBAL}", (3,), (3,), in_pairs, adds=True
    ),
    "all_gather": Collective(
        "stablehlo.all_gather", f"all_gather_dim = 0 : i64, {ALL}, {GLOBAL}", (2, 3), (8, 3),
        gathered,
    ),
    "reduce_scatter": Collective(
        "stablehlo.reduce_scatter", f"scatter_dimension = 0 : i64, {ALL}, {GLOBAL}", (4, 3), (1, 3),
        scattered, adds=True,
    ),
    "all_to_all": Collective(
        "stablehlo.all_to_all",
        f"split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 4 : i64, {ALL}, "
        + CHANNEL,
        (4, 2), (1, 8), exchanged,
    ),
    "collective_permute": Collective(
        "stablehlo.collective_permute", f"{ARROWS}, {CHANNEL}", (2,), (2,), permuted
    ),
    "async_all_gather": Collective(
        "stablehlo.all_gather", f"all_gather_dim = 0 : i64, {ALL}, {GLOBAL}", (2, 3), (8, 3),
        gathered, waits=True,
    ),
    "async_all_reduce": Collective(
        "stablehlo.all_reduce", f"{PAIRS}, {GLOBAL}", (3,), (3,), in_pairs, adds=True, waits=True
    ),
}  # fmt: skip


# XLA's CPU backend cannot run the op itself, but it can run its transpose.
BROADCAST = f"""
func.func public @main(%x: tensor<2xf64>) -> tensor<2xf64> {{
  %0 = "stablehlo.collective_broadcast"(%x) {{{PAIRS}, {CHANNEL}}}
    : (tensor<2xf64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}}
"""


def broadcast_difference() -> dict[str, float]:
    module = ir.Module.parse(BROADCAST, _jax.context())
    run_pipeline(module, "builtin.module(transpose)")
    ct = np.random.default_rng(0).normal(size=(DEVICES, 2))
    expected = jax.linear_transpose(broadcast, ct)(ct)[0]
    return {"transpose": float(np.max(np.abs(run(module, ct)[0] - expected)))}


def tensor(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf64>"


def module_of(collective: Collective, pipeline: str) -> Any:
    text = WAITING if collective.waits else MODULE
    text = text.replace("REGION", ADD if collective.adds else "")
    for word, meaning in (
        ("BEFORE", tensor(collective.before)),
        ("AFTER", tensor(collective.after)),
        ("OP", collective.op),
        ("ATTRIBUTES", collective.attributes),
    ):
        text = text.replace(word, meaning)
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, f"builtin.module({pipeline})")
    assert module.operation.verify()
    return module


def run(module: Any, *xs: np.ndarray) -> list[np.ndarray]:
    """Call the module on every device; arrays have the devices in front."""
    handle = make_handle(module)
    mesh = Mesh(np.array(jax.devices()), ("device",))
    spec = PartitionSpec("device")
    mapped = jax.shard_map(
        lambda *parts: tuple(y[None] for y in call_module(handle, *(p[0] for p in parts))),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    return [np.asarray(y) for y in jax.jit(mapped)(*xs)]


def differences(collective: Collective) -> dict[str, float]:
    """The largest deviation of each derivative from the reference's."""
    rng = np.random.default_rng(0)
    x, v = (rng.normal(size=(DEVICES, *collective.before)) for _ in range(2))
    ct, dct = (rng.normal(size=(DEVICES, *collective.after)) for _ in range(2))

    def f(x: Any) -> Any:
        return collective.reference(jnp.sin(x)) ** 2

    def pulled(x: Any, ct: Any) -> Any:
        return jax.vjp(f, x)[1](ct)[0]

    y, dy = jax.jvp(f, (x,), (v,))
    ct_x, dct_x = jax.jvp(pulled, (x, ct), (v, dct))
    items = rng.normal(size=(DEVICES, 3, *collective.before))
    second = run(module_of(collective, "vjp,jvp"), x, ct, v, dct)
    again = run(module_of(collective, "vjp,vjp{outs=1}"), x, ct, v)
    pairs = {
        "primal": (second[0], y),
        "jvp": (run(module_of(collective, "jvp"), x, v)[1], dy),
        "vjp": (run(module_of(collective, "vjp"), x, ct)[1], ct_x),
        "jvp of vjp": (second[3], dct_x),
        "vjp of vjp": (again[2], jax.vjp(pulled, x, ct)[1](v)[0]),
        "vmap": (run(module_of(collective, "vmap{size=3}"), items)[0], jax.vmap(f, 1, 1)(items)),
    }
    return {what: float(np.max(np.abs(a - b))) for what, (a, b) in pairs.items()}


def over_a_mesh(x: Any, w: Any) -> Any:
    """A shard_map on two axes: parts, copies and a sum over one of the axes."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("i", "j"))

    def body(x: Any, w: Any) -> Any:
        y = jnp.sin(x) @ w
        return jax.lax.psum(jnp.tanh(y), "i"), y * (1 + jax.lax.axis_index("i"))

    rows, columns = PartitionSpec("i"), PartitionSpec(None, "j")
    results = (columns, PartitionSpec("i", "j"))
    mapped = jax.shard_map(body, mesh=mesh, in_specs=(rows, columns), out_specs=results)
    return mapped(x, w)


def over_a_mesh_by_hand(x: Any, w: Any) -> Any:
    y = jnp.sin(x) @ w
    return jnp.tanh(y[:2]) + jnp.tanh(y[2:]), y * jnp.repeat(jnp.array([1.0, 2.0]), 2)[:, None]


def call_on_all(module: Any, *xs: Any) -> list[Any]:
    """Call a module that spreads whole arrays over the devices itself."""
    handle = make_handle(module)
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("device",)), PartitionSpec())
    jitted = jax.jit(
        lambda *xs: call_module(handle, *xs), in_shardings=everywhere, out_shardings=everywhere
    )
    return list(jitted(*xs))


def shard_map_differences() -> dict[str, float]:
    rng = np.random.default_rng(0)
    xs, vs = ([rng.normal(size=s) for s in ((4, 3), (3, 4))] for _ in range(2))
    cts, dcts = ([rng.normal(size=s) for s in ((2, 4), (4, 4))] for _ in range(2))
    text = jax.jit(over_a_mesh).lower(*xs).as_text()
    assert "sdy.manual_computation" in text

    def derived(pipeline: str, *arguments: Any) -> list[Any]:
        module = ir.Module.parse(text, _jax.context())
        run_pipeline(module, f"builtin.module({pipeline})")
        assert module.operation.verify()
        return call_on_all(module, *arguments)

    def pulled(x: Any, w: Any, *cts: Any) -> Any:
        return jax.vjp(over_a_mesh_by_hand, x, w)[1](cts)

    y, dy = jax.jvp(over_a_mesh_by_hand, tuple(xs), tuple(vs))
    ct_x, dct_x = jax.jvp(pulled, (*xs, *cts), (*vs, *dcts))
    forward = derived("jvp", *xs, *vs)
    pairs = {
        "primal": (forward[:2], y),
        "jvp": (forward[2:], dy),
        "vjp": (derived("vjp", *xs, *cts)[2:], ct_x),
        "jvp of vjp": (derived("vjp,jvp", *xs, *cts, *vs, *dcts)[6:], dct_x),
        "vjp of vjp": (
            derived("vjp,vjp{outs=2,3}", *xs, *cts, *vs)[4:],
            jax.vjp(pulled, *xs, *cts)[1](tuple(vs)),
        ),
    }
    return {
        what: max(float(np.max(np.abs(a - b))) for a, b in zip(found, expected, strict=True))
        for what, (found, expected) in pairs.items()
    }


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    found = {name: differences(collective) for name, collective in COLLECTIVES.items()}
    found["collective_broadcast"] = broadcast_difference()
    found["shard_map"] = shard_map_differences()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
