"""Cost of a call of a compiled program, beside `jax.jit` of the same function.

    python benchmarks/dispatch.py [--runs 200] [--only 50]

Both are called in turn, many times, on tiny arrays, so that dispatch is all there is to measure.
Rounds are short, so that what else the machine does hits both sides.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from rows import Row, Wanted, benchmark

import pullback
from pullback_runtime import compile, make_callable

TARGET = 1.05
COUNT = 100  # calls of a sample
Call = tuple[Any, tuple[Any, ...]]


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


def time_calls(call: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Microseconds per call."""
    start = time.perf_counter_ns()
    for _ in range(COUNT):
        result = call(*args)
    elapsed = time.perf_counter_ns() - start
    jax.block_until_ready(result)
    return elapsed / COUNT / 1000


def cases() -> list[tuple[str, Call, Call]]:
    """Rows of the table: a name, our call and JAX's, each with its arguments."""
    found = []
    problems: tuple[tuple[str, Callable[..., Any], tuple[Any, ...]], ...] = (
        ("1 argument", one_argument, (jnp.ones(8),)),
        ("50 arguments in pytrees", fifty_arguments, (parameters(), parameters())),
    )
    for name, function, args in problems:
        flat = tuple(jax.tree.leaves(args))
        theirs = jax.jit(function), args
        found.append((f"{name}, callable", (as_callable(function, args), args), theirs))
        found.append((f"{name}, flat Executable", (as_executable(function, args), flat), theirs))
        found.append((f"{name}, Program", (as_program(function, args), args), theirs))
    return found


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for name, ours, theirs in cases():
        if wanted(name):
            yield Row(name, *compare(ours, theirs, runs), "us", "calls", "jax.jit", TARGET)


def compare(ours: Call, theirs: Call, rounds: int) -> tuple[list[float], list[float]]:
    """Return microseconds per call of both, called in turn."""
    for call, args in (ours, theirs):
        time_calls(call, args)
    gc.disable()
    times: tuple[list[float], list[float]] = [], []
    for i in range(rounds):
        for side in (0, 1) if i % 2 else (1, 0):
            times[side].append(time_calls(*(ours, theirs)[side]))
    gc.enable()
    return times


if __name__ == "__main__":
    benchmark(rows, runs=200)()
