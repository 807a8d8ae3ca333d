"""Run time of Taylor mode, beside `jax.experimental.jet` and nested `jax.jvp`.

    python benchmarks/taylor.py [--runs 20] [--only network]

`jet` has no rules for scans and custom rules: the peers are the time of the scan itself, and nested
forward mode. Ops are those of StableHLO that XLA is given; `compile` is from a fresh function on.
Laplacians are beside folx, where that is installed.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import programs
import run
from jax.experimental.jet import jet
from rows import Row, Wanted, anew_in_turn, benchmark, in_turn

import pullback as pb

WIDTH, STEPS = 64, 100
Function = Callable[..., Any]

WEIGHTS = [(programs.array(WIDTH, WIDTH) / 8, programs.array(WIDTH)) for _ in range(4)]


@jax.custom_jvp
def softplus(x: Any) -> Any:
    return jnp.log1p(jnp.exp(x))


softplus.defjvp(
    lambda primals, tangents: (softplus(*primals), tangents[0] * jax.nn.sigmoid(*primals))
)


def layers(activation: Function) -> Function:
    def network(x: Any) -> Any:
        for w, b in WEIGHTS:
            x = activation(x @ w + b)
        return x

    return network


def recurrence(x: Any) -> Any:
    w = WEIGHTS[0][0]
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w + x), None), x, None, STEPS)[0]


def nested(function: Function, x: Any, series: Sequence[Any]) -> list[Any]:
    """Return the derivatives along the curve by forward mode of forward mode of …."""

    def derivative(order: int, *terms: Any) -> Any:
        if order == 0:
            return function(*terms)
        below = functools.partial(derivative, order - 1)
        return jax.jvp(below, terms[:order], terms[1 : order + 1])[1]

    return [derivative(k, x, *series) for k in range(1, len(series) + 1)]


def taylor(function: Function, x: Any, series: Sequence[Any]) -> Any:
    return pb.jet(function, (x,), (list(series),))[1]


PEERS: dict[str, Callable[[Function, Any, Sequence[Any]], Any]] = {
    "jet": lambda function, x, series: jet(function, (x,), (list(series),))[1],
    "nested jvp": nested,
    "the function": lambda function, x, _: function(x),
}
CASES: dict[str, tuple[Function, tuple[int, ...], int, str]] = {
    "network 4x64, order 6": (layers(jnp.tanh), (64, WIDTH), 6, "jet"),
    "network 4x64, one item, order 6": (layers(jnp.tanh), (WIDTH,), 6, "jet"),
    "exp(sin(x) * x), order 10": (lambda x: jnp.exp(jnp.sin(x) * x), (4096,), 10, "jet"),
    "network 4x64, order 5": (layers(jnp.tanh), (64, WIDTH), 5, "nested jvp"),
    "network with a rule, order 5": (layers(softplus), (64, WIDTH), 5, "nested jvp"),
    "exp(sin(x) * x), order 7": (lambda x: jnp.exp(jnp.sin(x) * x), (4096,), 7, "nested jvp"),
    "scan of 100 steps, order 6": (recurrence, (WIDTH,), 6, "the function"),
}
"""Functions, the shape of their argument, the order, and the peer."""

AIMS = {"jet": 1.0, "the function": 12.0}


def ops(lowered: Any) -> int:
    return str(lowered.as_text()).count(" = stablehlo.")


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for name in filter(wanted, CASES):
        yield from measure(name, runs)
    name = "Laplacian of 64-32-32-1 in 100 dimensions"
    if wanted(name) and importlib.util.find_spec("folx") is not None:
        yield from laplacian(name, runs)


def measure(name: str, runs: int) -> Iterator[Row]:
    function, shape, order, peer = CASES[name]
    x, *series = jax.device_put([0.3 * programs.array(*shape) for _ in range(order + 1)])

    def lowered(along: Function) -> Any:
        def fresh(x: Any) -> Any:
            return function(x)

        return jax.jit(lambda x, series: along(fresh, x, series)).lower(x, series)

    both = [lowered(along) for along in (taylor, PEERS[peer])]
    ours, theirs = (each.compile() for each in both)
    times = in_turn(
        lambda: jax.block_until_ready(ours(x, series)),
        lambda: jax.block_until_ready(theirs(x, series)),
        runs,
    )
    is_apart = peer == "the function"
    yield Row(name, *times, "ms", "" if is_apart else f"beside {peer}", peer, AIMS.get(peer))
    if is_apart:
        return
    run.checked(ours(x, series), theirs(x, series))
    mine, other = ([ops(each)] for each in both)
    yield Row(f"{name}: ops", mine, other, "ops", peer=peer, aim=AIMS.get(peer))
    times = anew_in_turn(
        lambda: lambda: lowered(taylor).compile(),
        lambda: lambda: lowered(PEERS[peer]).compile(),
        min(runs, 3),
        cold=True,
    )
    yield Row(f"{name}: compile", *times, family="compile", peer=peer)


def laplacian(name: str, runs: int) -> Iterator[Row]:
    from folx import forward_laplacian

    sizes = 100, 64, 32, 32, 1
    pairs = zip(sizes, sizes[1:], strict=False)
    weights = [(programs.array(a, b) / a**0.5, programs.array(b)) for a, b in pairs]

    def network(x: Any) -> Any:
        for w, b in weights[:-1]:
            x = jax.nn.softplus(x @ w + b)
        w, b = weights[-1]
        return (x @ w + b)[0]

    x = jax.device_put(programs.array(sizes[0]))
    ours, theirs = (
        jax.jit(f).lower(x).compile()
        for f in (pb.laplacian(network), lambda x: forward_laplacian(network)(x).laplacian)
    )
    run.checked(ours(x), theirs(x))
    times = in_turn(
        lambda: jax.block_until_ready(ours(x)), lambda: jax.block_until_ready(theirs(x)), runs
    )
    yield Row(name, *times, peer="folx", aim=1.0)
    memory = [[each.memory_analysis().temp_size_in_bytes / 1e3 + 1] for each in (ours, theirs)]
    yield Row(f"{name}: temporaries", *memory, "kB", peer="folx", aim=1.0)


if __name__ == "__main__":
    benchmark(rows, runs=20)()
