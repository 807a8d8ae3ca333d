"""`pullback dump`: a function's IR at every stage between Python and the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import jax

import pullback
import pullback_runtime
from pullback import _jax
from pullback.frontend.rules import RuleTable
from pullback.passes.manager import Instrumentation, print_module, run_pipeline
from pullback.tools.show import note, show_ir, write
from pullback.tools.targets import Target, load_target

# Stage -> the file that holds it below `-o DIR`; in the order in which a program meets them.
STAGES = {
    "jaxpr": "jaxpr.txt",
    "kept": "kept.txt",
    "program": "program.mlir",
    "stablehlo": "stablehlo.mlir",
    "hlo": "hlo.txt",
}
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclass(frozen=True)
class Stager:
    """Brings a target from stage to stage; later stages change the program in place."""

    target: Target
    platform: str = "cpu"
    rules: bool = False
    locations: bool = False
    print_ir_after_all: bool = False

    def texts(self, wanted: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """The wanted stages and their text, in order."""
        makers: dict[str, Callable[[], str]] = {
            "jaxpr": self.jaxpr,
            "kept": self.kept,
            "program": self.program_text,
            "stablehlo": self.stablehlo,
            "hlo": self.hlo,
        }
        for stage in STAGES:
            if stage in wanted:
                yield stage, makers[stage]()

    @cached_property
    def _closed_jaxpr(self) -> Any:
        return self.target.call(jax.make_jaxpr(self.target.function))

    @cached_property
    def _program(self) -> Any:
        traced = pullback.trace(self.target.function, platforms=(self.platform,))
        program = self.target.call(traced)
        if self.rules:
            self._run("stage-rules", program)
        return program

    @cached_property
    def _lowered(self) -> Any:
        program = self._program
        self._run("to-stablehlo", program)
        return program

    def _run(self, pipeline: str, program: Any) -> None:
        if self.print_ir_after_all:
            _jax.context().enable_multithreading(False)  # MLIR's printer insists on it
        run_pipeline(
            program.module,
            pipeline,
            program.rules,
            verify_each=True,
            print_after_all=self.print_ir_after_all,
        )

    def _print(self, program: Any) -> str:
        return print_module(program.module, Instrumentation(print_debuginfo=self.locations))

    def jaxpr(self) -> str:
        """What JAX traces, before anything of ours."""
        return str(self._closed_jaxpr)

    def kept(self) -> str:
        """The jaxpr in which every equation with a rule of its own is one of our calls."""
        return str(RuleTable((self.platform,)).keeper.keep(self._closed_jaxpr))

    def program_text(self) -> str:
        """The module with pullback's ops; rule bodies too when asked for."""
        return self._print(self._program)

    def stablehlo(self) -> str:
        """The module without pullback's ops: what XLA is given."""
        return self._print(self._lowered)

    def hlo(self) -> str:
        """What XLA makes of it; the platform must be here."""
        module = self._lowered.module
        return pullback_runtime.compile(module, backend=self.platform).hlo()


@click.command()
@click.argument("target")
@click.option("--args", "arguments", help="Argument types, such as 'f32[8,128], i32[8]'.")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    default=("program",),
    show_default=True,
    type=click.Choice([*STAGES, "all"]),
    help="What to show; may be given several times.",
)
@click.option("--rules", is_flag=True, help="Stage the derivative rules: show their bodies.")
@click.option(
    "--platform",
    default="cpu",
    show_default=True,
    type=click.Choice(PLATFORMS),
    help="Lower for this platform; only the stage hlo needs its hardware.",
)
@click.option("--locations", is_flag=True, help="Show the line of Python behind each op.")
@click.option("--print-ir-after-all", is_flag=True, help="Show the module after each pass.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write one file per stage into this folder.",
)
def dump(
    target: str,
    arguments: str | None,
    stages: tuple[str, ...],
    folder: Path | None,
    **options: Any,
) -> None:
    """Show the IR of TARGET: `path/file.py:function` or `package.module:function`.

    Without --args, the arguments are the function's or its module's `example_args`.
    """
    stager = Stager(load_target(target, arguments), **options)
    wanted = _wanted(stages, stager.platform)
    for stage, text in stager.texts(wanted):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            write(text, folder / STAGES[stage])
            note(f"{folder / STAGES[stage]}: {len(text.splitlines())} lines")
        else:
            if len(wanted) > 1:
                show_ir(f"// ----- {stage} -----")
            show_ir(text)


def _wanted(stages: tuple[str, ...], platform: str) -> tuple[str, ...]:
    """The stages to show; `all` leaves out what this machine cannot compile for."""
    if "all" not in stages:
        return stages
    if platform in pullback_runtime.backends():
        return tuple(STAGES)
    note(f"no stage hlo: this machine has no {platform} backend")
    return tuple(stage for stage in STAGES if stage != "hlo")
