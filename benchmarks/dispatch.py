"""Per-call cost of a compiled module beside `jax.jit` of the same function.

Run it with `python benchmarks/dispatch.py`. Both sides are called in turn, many times, on tiny
arrays, so that dispatch is all there is to measure; the medians and their ratio are printed.
The target is a ratio of at most 1.05. Rounds are short and taken in turn, so that what else the
machine does hits both sides; the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import pullback
from pullback_runtime import compile, make_callable

TARGET = 1.05


def one_argument(x: jax.Array) -> jax.Array:
    """One array in, one out."""
    return x * 2.0


def fifty_arguments(state: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """Two nested dictionaries of 25 arrays each in, one of 25 out."""
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, step)


def parameters() -> dict[str, Any]:
    """A tree of 25 small arrays, as a model's parameters are one."""
    layer = {name: jnp.ones(8) for name in ("weight", "bias", "scale", "mean", "variance")}
    return {f"layer{i}": {k: v + i for k, v in layer.items()} for i in range(5)}


def as_callable(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The function's StableHLO module as a callable of pytrees."""
    module = jax.jit(function).lower(*args).compiler_ir()
    out_tree = jax.tree.structure(jax.eval_shape(function, *args))
    handle = compile(module).handle
    return make_callable(handle, jax.tree.structure((args, {})), out_tree)


def as_executable(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The function's module as an Executable of flat arguments."""
    return compile(jax.jit(function).lower(*args).compiler_ir())


def as_program(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The function traced to a Program and compiled."""
    return pullback.trace(function)(*args).compile()


def time_calls(call: Callable[..., Any], args: tuple[Any, ...], count: int) -> float:
    """Microseconds per call over `count` calls."""
    start = time.perf_counter_ns()
    for _ in range(count):
        result = call(*args)
    elapsed = time.perf_counter_ns() - start
    jax.block_until_ready(result)
    return elapsed / count / 1000


def compare(
    ours: tuple[Any, tuple[Any, ...]], theirs: tuple[Any, tuple[Any, ...]], rounds: int, count: int
) -> tuple[float, float, float]:
    """Medians of both, and the median of their ratios round by round, called in turn."""
    for call, args in (ours, theirs):
        time_calls(call, args, count)
    gc.disable()
    pairs = []
    for index in range(rounds):
        first, second = (ours, theirs) if index % 2 else (theirs, ours)
        times = (time_calls(*first, count), time_calls(*second, count))
        pairs.append(times if index % 2 else times[::-1])
    gc.enable()
    mine, other = zip(*pairs, strict=True)
    ratio = statistics.median(m / o for m, o in pairs)
    return statistics.median(mine), statistics.median(other), ratio


def cases() -> list[tuple[str, tuple[Any, tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]]:
    """Rows of the table: a name, our call and JAX's, each with its arguments."""
    rows = []
    problems: tuple[tuple[str, Callable[..., Any], tuple[Any, ...]], ...] = (
        ("1 argument", one_argument, (jnp.ones(8),)),
        ("50 arguments in pytrees", fifty_arguments, (parameters(), parameters())),
    )
    for name, function, args in problems:
        flat = tuple(jax.tree.leaves(args))
        theirs = jax.jit(function), args
        rows.append((f"{name}, callable", (as_callable(function, args), args), theirs))
        rows.append((f"{name}, flat Executable", (as_executable(function, args), flat), theirs))
        rows.append((f"{name}, Program", (as_program(function, args), args), theirs))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--count", type=int, default=100, help="calls per round")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].platform}, us per call, target {TARGET}x")
    print(f"{'':42}{'pullback':>10}{'jax.jit':>10}{'ratio':>8}")
    for name, ours, theirs in cases():
        mine, other, ratio = compare(ours, theirs, options.rounds, options.count)
        print(f"{name:42}{mine:10.2f}{other:10.2f}{ratio:8.3f}")


if __name__ == "__main__":
    main()
