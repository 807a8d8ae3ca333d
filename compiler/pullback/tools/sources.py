"""Load a program from a target, a file, or standard input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pullback
import pullback_runtime
from pullback import Program
from pullback.errors import UsageError
from pullback.program.symbolic import SymbolicProgram
from pullback.tools.module_io import standard_input
from pullback.tools.show import working
from pullback.tools.targets import Target, is_target, load_target, naming


@dataclass(frozen=True)
class Source:
    """A program, its origin, and the target that it was traced from, if any."""

    spec: str
    program: Program | SymbolicProgram
    target: Target | None = None

    def fixed(self, what: str, do: str = "give them: --sizes {}") -> Program:
        """Return the program if its shapes are static; raise UsageError for symbolic dimensions."""
        if isinstance(self.program, Program):
            return self.program
        symbols = self.program.symbols
        raise UsageError(
            f"{what} wants sizes, and `{self.spec}` has the symbolic dimensions "
            f"{', '.join(symbols)}",
            do=do.format(",".join(f"{symbol}=4" for symbol in symbols)),
        )


def check_used(without: str, options: dict[str, Any]) -> None:
    """Raise UsageError for an option that has no effect without another one."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise UsageError(f"{name} says nothing without {without}", do=f"leave out {name}")


SOURCE_OPTIONS = ("arguments", "entry", "sizes", "allow_custom_calls")
"""List the options of commands that `load_source` takes."""


def load_source(
    spec: str,
    arguments: str | None = None,
    platform: str | None = None,
    entry: str | None = None,
    sizes: dict[str, int] | None = None,
    allow_custom_calls: Sequence[str] = (),
) -> Source:
    """Trace a target, or load a module or a saved program from a file or from `-`."""
    if is_target(spec):
        with working(f"tracing {spec}"):
            source = _traced(spec, arguments, platform, entry, allow_custom_calls)
    else:
        with working(f"loading {spec}"):
            source = _loaded(spec, arguments, entry, allow_custom_calls)
    if sizes is None:
        return source
    if isinstance(source.program, Program):
        raise UsageError(
            f"--sizes is for symbolic dimensions, and `{spec}` has none", do="leave --sizes out"
        )
    return replace(source, program=source.program.with_sizes(**sizes))


def _traced(
    spec: str,
    arguments: str | None,
    platform: str | None,
    entry: str | None,
    allow_custom_calls: Sequence[str],
) -> Source:
    if entry is not None:
        raise UsageError(
            f"--entry is for modules, and `{spec}` names its function", do="leave --entry out"
        )
    if allow_custom_calls:
        raise UsageError(
            f"--allow-custom-calls is for files, and `{spec}` is a function",
            do="leave --allow-custom-calls out",
        )
    target = load_target(spec, arguments)
    return Source(spec, target.trace(platform), target)


def _loaded(
    spec: str, arguments: str | None, entry: str | None, allow_custom_calls: Sequence[str]
) -> Source:
    if arguments is not None:
        raise UsageError(f"--args is for targets, and `{spec}` is a module", do="leave --args out")
    content = standard_input() if spec == "-" else spec
    with naming(spec):
        program = pullback.load(
            content, entry=entry or "main", allow_custom_calls=allow_custom_calls
        )
        return Source(spec, program)


def for_platform(source: Source, platform: str | None = None) -> Source:
    """Return the variant of a file for a platform; by default the one for here, else the first."""
    program, here = source.program, pullback_runtime.default_backend()
    if source.target is not None or (platform is None and here not in program.platforms):
        return source
    return replace(source, program=program.for_platform(platform or here))
