"""Run `pullback dump`: print a function's IR at every stage between Python and the machine."""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import click
import jax

import pullback_runtime
from pullback import Program
from pullback._jax.source_info import Frame
from pullback.errors import UsageError
from pullback.frontend.rules.rule_table import RuleTable
from pullback.ir.locations import UNKNOWN, describe, of_users
from pullback.ir.modules import MOST_ELEMENTS, is_elided
from pullback.ir.printed import Printed
from pullback.ir.symbols import FUNC
from pullback.tools.derive import MODES, SPARSE, derive_program
from pullback.tools.show import note, show_ir, working, write, writing
from pullback.tools.sources import (
    SOURCE_OPTIONS,
    Source,
    check_used,
    for_platform,
    load_source,
)
from pullback.tools.stats import lines, statistics
from pullback.tools.targets import blaming

# Stage -> the file that holds it below `-o DIR`; in the order in which a program reaches them.
STAGES = {
    "jaxpr": "jaxpr.txt",
    "kept": "kept.txt",
    "program": "program.mlir",
    "stablehlo": "stablehlo.mlir",
    "hlo": "hlo.txt",
}
DERIVATIVES = {mode: f"{mode}.mlir" for mode in MODES if mode not in SPARSE}
FILES = STAGES | DERIVATIVES
MODULES = ("program", *DERIVATIVES, "stablehlo")
NEEDS_A_FUNCTION = ("jaxpr", "kept")
NEEDS_SIZES = ("stablehlo", "hlo")
_NEEDS_NO_LINE = re.compile(r" = stablehlo\.constant |^\s*(?:\w+\.)?return\b")
ELIDED = "// Constants of more than {} elements are elided: --constants all shows them"


@dataclass(frozen=True)
class Stager:
    """The stages of a program, each computed from an earlier one when it is asked for."""

    source: Source
    platform: str
    rules: bool = False
    locations: bool = False
    lines: bool = False
    most_elements: int | None = None
    print_ir_after_all: bool = False

    def texts(self, wanted: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the wanted stages and their text, in order."""
        makers: dict[str, Callable[[], str]] = {
            "jaxpr": self.jaxpr,
            "kept": self.kept,
            **{stage: partial(self._printed, stage) for stage in MODULES},
            "hlo": self.hlo,
        }
        for stage, maker in makers.items():
            if stage in wanted:
                with blaming(self.source.spec), working(f"making the stage {stage}"):
                    text = maker()
                yield stage, text

    def statistics(self, wanted: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return what is in the wanted stages, which are modules, by stage."""
        self.source.fixed("--stats")
        with blaming(self.source.spec), working("counting"):
            return {
                stage: statistics(self._program_of(stage).module)
                for stage in MODULES
                if stage in wanted
            }

    def _program_of(self, stage: str) -> Any:
        """Return the program of a stage that is a module."""
        if stage == "program":
            return self._program
        return self._lowered if stage == "stablehlo" else derive_program(self._program, stage)

    @cached_property
    def _closed_jaxpr(self) -> Any:
        target = self.source.target
        if target is None:
            raise UsageError(
                f"a module has none of the stages {', '.join(NEEDS_A_FUNCTION)}",
                do="give a target such as `file.py:function`",
            )
        return target.call(jax.make_jaxpr(target.function))

    @cached_property
    def _program(self) -> Any:
        if self.rules:
            return self._run(self.source.fixed("--rules"), "stage-rules")
        return self.source.program

    @cached_property
    def _lowered(self) -> Program:
        self.source.fixed(f"a stage of {' or '.join(NEEDS_SIZES)}")
        return self._run(self._program, "to-stablehlo")

    def _run(self, program: Program, pipeline: str) -> Program:
        return program.run_passes(
            pipeline, verify_each=True, print_after_all=self.print_ir_after_all
        )

    def _printed(self, stage: str) -> str:
        text = self._program_of(stage).asm(self.locations or self.lines, self.most_elements)
        if self.lines:
            text = _with_lines(text)
        if is_elided(text):
            text = f"{ELIDED.format(self.most_elements)}\n{text}"
        return text

    def jaxpr(self) -> str:
        """Return the jaxpr that JAX traces, before this package changes it."""
        return str(self._closed_jaxpr)

    def kept(self) -> str:
        """Return the jaxpr in which equations with rules are calls that keep their rules."""
        return str(RuleTable((self.platform,)).keeper.keep(self._closed_jaxpr))

    def hlo(self) -> str:
        """Return the HLO that XLA compiles; the machine must have the platform."""
        return self._lowered.compile(backend=self.platform).hlo()


def dump(
    source: str,
    stages: tuple[str, ...],
    folder: Path | None,
    constants: int | str | None,
    stats: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show the IR of SOURCE: a target such as `file.py:function`, an MLIR file, or `-`."""
    _check_needed(stages, options | {"constants": constants})
    _check_statistics(stages, stats, as_json, options | {"constants": constants, "output": folder})
    of_source = {name: options.pop(name) for name in SOURCE_OPTIONS}
    loaded = load_source(source, platform=options["platform"], **of_source)
    loaded = for_platform(loaded, options["platform"])
    options["platform"] = loaded.program.platforms[0]
    stager = Stager(loaded, most_elements=_most_elements(constants, folder), **options)
    wanted = _wanted(stages, stager)
    if stats:
        _show_statistics(stager.statistics(wanted), as_json)
        return
    if folder is not None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
    for stage, text in stager.texts(wanted):
        if folder is not None:
            write(text, folder / FILES[stage])
            note(f"{folder / FILES[stage]}: {len(text.splitlines())} lines")
            continue
        if len(wanted) > 1:
            show_ir(f"// ----- {stage} -----")
        show_ir(text)


def _check_statistics(
    stages: tuple[str, ...], stats: bool, as_json: bool, options: dict[str, Any]
) -> None:
    """Raise UsageError for what does not go with --stats, or needs it."""
    if not stats:
        check_used("--stats", {"--json": as_json})
        return
    texts = {f"--{name}": options[name] for name in ("locations", "lines", "constants", "output")}
    check_used("IR, which --stats does not print", texts)
    if others := [stage for stage in stages if stage not in (*MODULES, "all")]:
        raise UsageError(
            f"--stats counts what is in modules, and {others[0]} is none",
            do=f"choose from the stages {', '.join(MODULES)}",
        )


def _show_statistics(found: dict[str, dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for stage, counts in found.items():
        if len(found) > 1:
            click.echo(f"----- {stage} -----")
        click.echo("\n".join(lines(counts)))


def _most_elements(constants: int | str | None, folder: Path | None) -> int | None:
    """Return the size above which constants are elided; None where all are shown.

    What is written to files may be read back.
    """
    if constants is None:
        return MOST_ELEMENTS if folder is None else None
    return None if constants == "all" else int(constants)


def _with_lines(text: str) -> str:
    """Put above each op whose line is another one than before a comment with that line."""
    printed = Printed(text)
    rows = list(printed.rows)
    last: Any = ()
    for span in sorted(printed.spans, key=lambda span: span.start):
        row = printed.rows[span.start]
        margin = row[: len(row) - len(row.lstrip())]
        frame = next(of_users(printed.frames(span.location)), None)
        if row.lstrip().startswith(FUNC):
            last = ()
        elif frame != last and (frame or not _NEEDS_NO_LINE.search(row)):
            last = frame
            rows[span.start] = f"{margin}// {_described(frame)}\n{row}"
    return "\n".join(rows) + "\n"


def _described(frame: Frame | None) -> str:
    if frame is None:
        return UNKNOWN
    source = linecache.getline(*frame[:2]).strip()
    return f"{describe(*frame)}{': ' * bool(source)}{source}"


def _check_needed(stages: tuple[str, ...], options: dict[str, Any]) -> None:
    """Raise UsageError for an option that changes none of these stages."""
    if options["lines"] and options["locations"]:
        raise UsageError(
            "--lines and --locations are two forms of the same", do="leave out one of them"
        )
    modules = {"program", "stablehlo", "all", *DERIVATIVES}
    if modules.isdisjoint(stages):
        of_modules = {f"--{name}": options[name] for name in ("locations", "lines", "constants")}
        check_used("a stage that is a module", of_modules)
        if "hlo" not in stages:
            check_used("a stage that is a module", {"--rules": options["rules"]})
    if not options["rules"] and {"stablehlo", "hlo", "all"}.isdisjoint(stages):
        passes = {"--print-ir-after-all": options["print_ir_after_all"]}
        check_used("--rules, or the stage stablehlo or hlo: no pass runs", passes)


def _wanted(stages: tuple[str, ...], stager: Stager) -> set[str]:
    """Return the stages to show; `all` leaves out those that the source or machine has not."""
    wanted = set(stages) - {"all"}
    if "all" not in stages:
        return wanted
    wanted |= set(STAGES)
    if stager.source.target is None:
        wanted -= set(NEEDS_A_FUNCTION)
    if not isinstance(stager.source.program, Program):
        note("no stages stablehlo and hlo while dimensions are symbols: give --sizes")
        wanted -= set(NEEDS_SIZES)
    elif stager.platform not in pullback_runtime.backends():
        note(f"no stage hlo: this machine has no {stager.platform} backend")
        wanted -= {"hlo"}
    return wanted
