"""Programs for several platforms: one variant for each, derived together and saved together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pullback_runtime
from pullback._edits import clone
from pullback._errors import PullbackError

if TYPE_CHECKING:
    from pullback._program import Program

Method = TypeVar("Method", bound=Callable[..., Any])


def for_each(method: Method) -> Method:
    """A method that derives programs from one, for each variant as well."""

    @functools.wraps(method)
    def derived(program: Program, *args: Any, **kwargs: Any) -> Any:
        if not program.variants:
            return method(program, *args, **kwargs)
        alone = dataclasses.replace(program, variants=())
        made = [method(each, *args, **kwargs) for each in (alone, *program.variants)]
        if not isinstance(made[0], tuple):
            return together(made)
        split: Any = type(made[0])
        return split(*map(together, zip(*made, strict=True)))

    return derived  # type: ignore[return-value]


def together(programs: Any) -> Program:
    """The first program with the others as its variants."""
    first, *others = programs
    return dataclasses.replace(first, variants=tuple(others)) if others else first


def platforms_of(program: Program) -> tuple[str, ...]:
    """The platforms of a program and of its variants."""
    variants = (program, *program.variants)
    return tuple(name for each in variants for name in each.rules.platforms)


def for_platform(program: Program, platform: str) -> Program:
    """The variant for a platform; raises PullbackError when there is none."""
    found = _variant(program, platform)
    if found is not None and len(found.rules.platforms) > 1:  # its own, to be changed in place
        rules = dataclasses.replace(found.rules, platforms=(platform,))  # type: ignore[type-var]
        found = dataclasses.replace(found, module=clone(found.module), rules=rules)
    if found is not None:
        return found
    raise no_variant(platforms_of(program), platform)


def no_variant(platforms: tuple[str, ...], platform: str) -> PullbackError:
    """The error of a platform that a program was not traced for."""
    return PullbackError(
        f"the program was traced for {', '.join(platforms)}, not for {platform}",
        do="trace it again with platforms=…",
    )


def _variant(program: Program, platform: str) -> Program | None:
    """The variant for a platform, which may be that of others too."""
    variants = (dataclasses.replace(program, variants=()), *program.variants)
    return next((each for each in variants if platform in each.rules.platforms), None)


def here(program: Program, backend: str | None = None) -> Program:
    """The variant for a backend, by default JAX's; the first where none is for it."""
    if not program.variants:
        return program
    name = backend or pullback_runtime.backends()[0]
    return _variant(program, name) or dataclasses.replace(program, variants=())
