"""Variants of a program, one per platform that it is traced for, derived and saved with it.

A call may be lowered for yet another platform, as that of a program for a GPU is if its arguments
are on a CPU. Then the program is made again for that, unless it comes from a file.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pullback_runtime
from pullback._jax import ir
from pullback.errors import PullbackError
from pullback.ir.modules import type_of_entry
from pullback.ir.symbols import CALL, callee, functions, text_of
from pullback.program.provenance import Retarget
from pullback.program.record import R, Record
from pullback_runtime._jax import operations_named

Method = TypeVar("Method", bound=Callable[..., Any])


def for_each(method: Method) -> Method:
    """Make a method that derives programs do so for each variant, and for other platforms later."""

    @functools.wraps(method)
    def derived(program: Record, *args: Any, **kwargs: Any) -> Any:
        def derive(each: Record) -> Any:
            made = method(each, *args, **kwargs)
            if not isinstance(made, tuple):
                return after(each, lambda it: method(it, *args, **kwargs), made)
            halves: Any = type(made)

            def step(number: int) -> Callable[[Any], Any]:
                return lambda it: _alike(made, method(it, *args, **kwargs))[number]

            return halves(*(after(each, step(i), half) for i, half in enumerate(made)))

        if not program.variants:
            return derive(program)
        made = []
        for each in [_alone(program), *program.variants]:
            try:
                made.append(derive(each))
            except PullbackError as error:
                names = ", ".join(each._environment.platforms)
                error.add_note(f"so it is for {names}: program.for_platform(…) takes one platform")
                raise
        if not isinstance(made[0], tuple):
            return together(made)
        split: Any = type(made[0])
        return split(*map(together, zip(*made, strict=True)))

    return derived  # type: ignore[return-value]


def after(before: Record, step: Callable[[Any], Any], made: R) -> R:
    """Return what `step` made of a program, with the means to repeat it on other platforms."""
    retarget = before.retarget and before.retarget.then(step)
    return made if made.retarget is retarget else dataclasses.replace(made, retarget=retarget)


def _alike(split: Any, other: Any) -> Any:
    """Check that the halves of a derivative fit those for another platform, and return these.

    The linear half is the last. Either may run where the other does not: then it has the residuals
    of the other platform.

    Raises:
      PullbackError: the linear half is another function there, of residuals that mean something
        else.
    """
    if _called(split[-1].module) == _called(other[-1].module):
        return other
    raise other_residuals(split[-1], other[-1])


def other_residuals(half: Record, other: Record) -> PullbackError:
    """Return the error for half of a derivative that would not fit the half on another platform."""
    names = [", ".join(each._environment.platforms) for each in (half, other)]
    return PullbackError(
        f"a derivative in two parts, as of jax.grad, pb.vjp and pb.linearize, was made for "
        f"{names[0]}: for {names[1]} it is another function, which needs other residuals",
        do=f"make it where JAX's default device is one of {names[1]}, under jax.default_device; or "
        "take pb.grad or pb.jvp, which are made as a whole",
    )


def _called(module: ir.Module) -> dict[str, str]:
    """Return the texts of the functions that calls reach, by name.

    Those that only composites refer to, which differ by platform, are left out.
    """
    table, found, names = functions(module), dict[str, str](), ["main"]
    while names:
        if (name := names.pop()) not in found:
            found[name] = text_of(table[name])
            names += map(callee, operations_named(table[name].operation, CALL))
    return found


def together(programs: Iterable[R]) -> R:
    """Return the first program with the others as its variants, and a way to make it each."""
    first, *others = programs
    if not others:
        return first
    program = dataclasses.replace(first, variants=tuple(others))
    return dataclasses.replace(program, retarget=choosing(program))


def choosing(program: Record) -> Retarget:
    """Return how to choose a variant, or make the first program again for another platform."""
    bare = dataclasses.replace(program, constants=(None,) * len(program.constants))
    return Retarget(functools.partial(on, bare))


def platforms_of(program: Record) -> tuple[str, ...]:
    """Return the platforms of a program and of its variants."""
    variants = [program, *program.variants]
    return tuple(name for each in variants for name in each._environment.platforms)


def for_platform(program: R, platform: str) -> R:
    """Return the variant for a platform, which it stays wherever it is called.

    Raises:
      PullbackError: there is none.
    """
    found = _variant(program, platform)
    if found is None:
        raise no_variant(platforms_of(program), platform)
    environment = dataclasses.replace(found._environment, platforms=(platform,))
    return dataclasses.replace(found, retarget=None, _environment=environment)


def no_variant(platforms: tuple[str, ...], platform: str) -> PullbackError:
    """Return the error for a platform that a program was not traced for."""
    return PullbackError(
        f"the program was traced for {', '.join(platforms)}, not for {platform}",
        do="trace it again with platforms=…",
    )


def here(program: R, backend: str | None = None) -> R:
    """Return the program for a backend, by default JAX's; as it is if it cannot be made for it."""
    return on(program, backend or pullback_runtime.default_backend())


def on(program: R, platform: str) -> R:
    """Return the variant for a platform, or the program made again; the first if that fails."""
    if not program.variants and platform in program._environment.platforms:
        return program
    found = _variant(program, platform)
    if found is not None:
        return dataclasses.replace(found, retarget=program.retarget or found.retarget)
    if program.retarget is None:
        return _alone(program)
    made = program.retarget(platform)
    same = type_of_entry(made.module) == type_of_entry(program.module)
    return dataclasses.replace(
        program,
        module=made.module,
        rules=made.rules,
        _environment=made._environment,
        interface=program.interface if same else made.interface,
        variants=(),
    )


def _variant(program: R, platform: str) -> R | None:
    """Return the variant for a platform, which may be that of others too; None without one."""
    variants: list[R] = [_alone(program), *program.variants]
    return next((each for each in variants if platform in each._environment.platforms), None)


def _alone(program: R) -> R:
    return dataclasses.replace(program, variants=()) if program.variants else program
