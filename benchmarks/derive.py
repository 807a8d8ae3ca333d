"""Time to trace, derive and lower gradients, beside `jax.jit(jax.grad(f)).lower`.

    python benchmarks/derive.py [--runs 5] [--only transformer]

Each row takes a fresh function. *Cold* clears JAX's caches before every run; *warm* keeps them,
but the function is new each time. The pass `vjp` alone stands beside `jvp`, on straight-line code.
The last functions are full of JAX's own derivative rules (linear algebra, special functions,
solvers), each of which is staged for itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
from programs import CASES, KEPT, MANY_RULES, Case, Function
from rows import Row, Wanted, anew_in_turn, benchmark

import pullback as pb
from pullback._jax import ir
from pullback.ir.modules import clone
from pullback.passes.base import Pass
from pullback.passes.jvp import JVP
from pullback.passes.manager import run_stages
from pullback.passes.pipelines import parse_pipeline
from pullback.passes.vjp import VJP


def derive_ours(f: Function, args: tuple[Any, ...], order: int) -> Any:
    """A module of the gradient; of order 2: of the gradient's vjp."""
    gradient = pb.trace(f)(*args).grad()
    return gradient if order == 1 else gradient.vjp(wrt=0)


def derive_jax(f: Function, args: tuple[Any, ...], order: int) -> Any:
    """The same, lowered by JAX."""
    gradient = jax.grad(f)
    if order == 1:
        return jax.jit(gradient).lower(*args)

    def second(x, rest, ct):
        return jax.vjp(lambda x: gradient(x, *rest), x)[1](ct)

    return jax.jit(second).lower(args[0], args[1:], args[0])


def derived(case: Case, derive: Callable[..., Any], order: int) -> Callable[[], Any]:
    f, args = case.make()
    return lambda: derive(f, args, order)


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for group, cases in (("", [*CASES, *MANY_RULES]), ("JAX's own rules, ", KEPT)):
        for case in cases:
            for order in case.orders:
                for state in ("cold", "warm"):
                    family = f"{group}order {order}, {state}"
                    if wanted(name := f"{case.name}: {family}"):
                        both = (
                            lambda side=side: derived(case, side, order)  # noqa: B023
                            for side in (derive_ours, derive_jax)
                        )
                        yield Row(name, *anew_in_turn(*both, runs, state == "cold"), family=family)
        for case in cases:
            if case.straight and wanted(name := f"{case.name}: a pass alone"):
                yield Row(name, *pass_alone(case, runs), "us", peer="`jvp` alone, per op")


def pass_alone(case: Case, runs: int) -> list[list[float]]:
    """Return microseconds per op of `vjp` and `jvp` on the inlined forward function.

    A run is so short that Python still adapts to the code in the first few.
    """
    f, args = case.make()
    program = pb.trace(f)(*args)
    run_stages(program.module, parse_pipeline("inline-calls"), program.rules)
    ops = count_ops(program.module)
    times: dict[type[Pass], list[float]] = {VJP: [], JVP: []}
    for _ in range(10 * runs + 1):
        for mode, found in times.items():
            module = clone(program.module)
            start = time.perf_counter()
            mode().run(module, program.rules)
            found.append((time.perf_counter() - start) * 1e6 / ops)
    return [found[1:] for found in times.values()]


def count_ops(module: Any) -> int:
    """All ops of a module, with those in regions, and itself."""
    count = 0

    def visit(_: Any) -> ir.WalkResult:
        nonlocal count
        count += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return count


if __name__ == "__main__":
    benchmark(rows, runs=5)()
