"""Run `pullback-opt`: passes on a module, with the flags of mlir-opt."""

from __future__ import annotations

import difflib
import io
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import click

from pullback._jax import ir
from pullback.errors import PipelineError, PullbackError
from pullback.ir.mlir_passes import STOCK_PASSES
from pullback.passes import PASSES
from pullback.passes.list_passes import list_passes
from pullback.passes.manager import Instrumentation, print_module, run_pipeline, verify_module
from pullback.passes.pipelines import PIPELINES, Stage, check_known, format_pipeline, parse_pipeline
from pullback.tools import module_io
from pullback.tools.diagnostics import compare, messages_of
from pullback.tools.plugins import load_rules, load_rules_option
from pullback.tools.targets import blaming
from pullback_runtime import _container

FAILED = 1
BAD_USAGE = 2


@dataclass(frozen=True)
class Options:
    """The options of the command line besides the pipeline."""

    file: str
    output: str
    split_input_file: bool
    verify_diagnostics: bool
    emit_bytecode: bool
    instrumentation: Instrumentation


class OptCommand(click.Command):
    """A command that reads `--cse` and `--jvp="wrt=0"` as passes, in the order given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the flags named after passes to `-p`."""
        rewritten: list[str] = []
        for arg in args:
            name, _, options = arg.removeprefix("--").partition("=")
            if arg.startswith("--") and _is_pass(name):
                rewritten += ["-p", f"{name}{{{options}}}" if options else name]
            else:
                rewritten.append(arg)
        try:
            return super().parse_args(ctx, rewritten)
        except click.NoSuchOption as error:
            names = [*PASSES, *PIPELINES, *STOCK_PASSES]
            close = difflib.get_close_matches(error.option_name.removeprefix("--"), names, n=2)
            hints = [*(error.possibilities or ()), *(f"--{name}" for name in close)]
            raise click.NoSuchOption(error.option_name, possibilities=hints, ctx=ctx) from error


def _is_pass(name: str) -> bool:
    return name in PASSES or name in PIPELINES or name in STOCK_PASSES


def flag(name: str, help_text: str) -> Any:
    """Return a click option that is a plain flag."""
    return click.option(name, is_flag=True, help=help_text)


@click.command(
    cls=OptCommand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every pass is a flag as well, run in the order given: --inline-calls --cse "
    '--jvp="entry=main wrt=0". --list-passes lists them.',
)
@click.argument("file", default="-")
@click.option("-o", "output", default="-", metavar="FILE", help="Write here; '-' is stdout.")
@click.option(
    "--pass-pipeline", metavar="TEXT", help="Run builtin.module(first,second{key=value})."
)
@click.option("-p", "passes", multiple=True, metavar="TEXT", help="Run these passes; repeatable.")
@load_rules_option
@flag("--split-input-file", "Treat the parts between '// -----' lines as modules of their own.")
@flag("--verify-diagnostics", "Check errors against '// expected-error {{…}}' comments.")
@click.option("--verify-each/--no-verify-each", default=True, help="Verify after each pass.")
@click.option("--mlir-print-ir-before", metavar="PASSES", default="", help="Print before these.")
@click.option("--mlir-print-ir-after", metavar="PASSES", default="", help="Print after these.")
@flag("--mlir-print-ir-before-all", "Print before each pass.")
@flag("--mlir-print-ir-after-all", "Print after each pass.")
@flag("--mlir-print-ir-after-change", "Print after each pass that changed something.")
@flag("--mlir-print-ir-after-failure", "Print after a pass that failed.")
@click.option("--mlir-print-ir-tree-dir", metavar="DIR", help="Print after each pass, to files.")
@flag("--mlir-timing", "Print how long each pass took.")
@flag("--mlir-pass-statistics", "Print the statistics of each pass.")
@click.option(
    "--mlir-elide-elementsattrs-if-larger",
    "elide_larger_than",
    type=int,
    metavar="N",
    help="Print larger constants as '...'.",
)
@flag("--mlir-print-debuginfo", "Print locations.")
@flag("--mlir-print-op-generic", "Print ops in their generic form.")
@flag("--emit-bytecode", "Write bytecode.")
@flag("--dump-pass-pipeline", "Print the pipeline to stderr before it runs.")
@flag("--run-reproducer", "Run the pipeline that the input file holds.")
@flag("--list-passes", "List passes and their options.")
@click.pass_context
def opt(ctx: click.Context, /, list_passes: bool, **arguments: Any) -> None:
    """Run passes on FILE: MLIR text, bytecode, a StableHLO portable artifact, or a jax.export.

    '-' is stdin.
    """
    if list_passes:
        click.echo(_list_passes())
        return
    options = _options(arguments)
    try:
        load_rules(arguments["plugins"])
        content = module_io.read_bytes(options.file)
        stages = _stages(arguments, content)
        for name in options.instrumentation.print_before + options.instrumentation.print_after:
            check_known(name)
    except PullbackError as error:
        _report(error, options)
        ctx.exit(BAD_USAGE if isinstance(error, PipelineError) else FAILED)
    if arguments["dump_pass_pipeline"]:
        click.echo(format_pipeline(stages), err=True)
    ctx.exit(0 if process(content, stages, options) else FAILED)


_list_passes = list_passes


def _options(arguments: dict[str, Any]) -> Options:
    def names(flag_name: str) -> tuple[str, ...]:
        return tuple(name for name in arguments[flag_name].split(",") if name)

    return Options(
        file=arguments["file"],
        output=arguments["output"],
        split_input_file=arguments["split_input_file"],
        verify_diagnostics=arguments["verify_diagnostics"],
        emit_bytecode=arguments["emit_bytecode"],
        instrumentation=Instrumentation(
            verify_each=arguments["verify_each"],
            print_before=names("mlir_print_ir_before"),
            print_after=names("mlir_print_ir_after"),
            print_before_all=arguments["mlir_print_ir_before_all"],
            print_after_all=arguments["mlir_print_ir_after_all"],
            print_after_change=arguments["mlir_print_ir_after_change"],
            print_after_failure=arguments["mlir_print_ir_after_failure"],
            print_tree_dir=arguments["mlir_print_ir_tree_dir"],
            elide_larger_than=arguments["elide_larger_than"],
            print_debuginfo=arguments["mlir_print_debuginfo"],
            print_generic=arguments["mlir_print_op_generic"],
            timing=arguments["mlir_timing"],
            statistics=arguments["mlir_pass_statistics"],
            reproducer=not arguments["verify_diagnostics"],
            options=tuple(f"--load-rules={place}" for place in arguments["plugins"]),
        ),
    )


def _stages(arguments: dict[str, Any], content: bytes) -> tuple[Stage, ...]:
    """Return the pipeline from the one option that gives it."""
    pipeline, passes = arguments["pass_pipeline"], arguments["passes"]
    sources = [pipeline is not None, bool(passes), arguments["run_reproducer"]]
    if sum(sources) > 1:
        raise PipelineError(
            "the pipeline is given twice",
            do="use one of --pass-pipeline, single passes (-p, --cse …), and --run-reproducer",
        )
    if arguments["run_reproducer"]:
        return parse_pipeline(module_io.pipeline_of_reproducer(module_io.decode(content)))
    if pipeline is not None:
        return parse_pipeline(pipeline)
    return tuple(stage for text in passes for stage in parse_pipeline(text))


def process(content: bytes, stages: tuple[Stage, ...], options: Options) -> bool:
    """Run the pipeline on every part of the input and write the results; False on failure."""
    try:
        parts = _parts(content, options)
        outcomes = [_process_part(part, stages, options) for part in parts]
        if all(outcome is not None for outcome in outcomes):
            _write([outcome for outcome in outcomes if outcome is not None], options)
            return True
    except PullbackError as error:
        _report(error, options)
    return False


def _parts(content: bytes, options: Options) -> list[bytes | str]:
    if not module_io.is_text(content) or _container.is_bytecode(content):
        return [content]
    text = module_io.decode(content)
    return list(module_io.split(text)) if options.split_input_file else [text]


def _process_part(part: bytes | str, stages: tuple[Stage, ...], options: Options) -> bytes | None:
    """Return the output for one module; None after a failure, which is reported."""
    try:
        module = module_io.parse_module(part)
        module.context.enable_multithreading(False)
        if options.instrumentation.verify_each:
            verify_module(module)
        with blaming(options.file):
            run_pipeline(module, stages, **vars(options.instrumentation))
        result = _render(module, options)
    except Exception as error:
        if options.verify_diagnostics:
            return _check_diagnostics(part, error, options)
        _report(error, options)
        return None
    if options.verify_diagnostics:
        return _check_diagnostics(part, None, options)
    return result


def _check_diagnostics(
    part: bytes | str, error: Exception | None, options: Options
) -> bytes | None:
    """Compare an error with the `expected-error` comments; no output is written in this mode."""
    messages = [] if error is None else messages_of(error)
    problems = compare(part if isinstance(part, str) else "", messages)
    for problem in problems:
        click.echo(f"{options.file}: {problem}", err=True)
    return None if problems else b""


def _render(module: ir.Module, options: Options) -> bytes:
    if not options.emit_bytecode:
        return print_module(module, options.instrumentation).encode()
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def _write(outputs: list[bytes], options: Options) -> None:
    if options.verify_diagnostics:
        return
    if options.emit_bytecode and len(outputs) > 1:
        raise PullbackError(
            "bytecode holds one module, and --split-input-file found "
            f"{len(outputs)}; write text, or split the file first"
        )
    module_io.write_bytes(options.output, b"// -----\n".join(outputs))


def _report(error: BaseException, options: Options) -> None:
    """Print an error and its notes; an error that is a bug of this package with its traceback."""
    if not isinstance(error, (PullbackError, ir.MLIRError)):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        return
    name = "<stdin>" if options.file == "-" else options.file
    for message in messages_of(error):
        click.echo(message.format(name), err=True)
    for note in getattr(error, "__notes__", ()):
        click.echo(note, err=True)


main = opt

if __name__ == "__main__":
    sys.exit(main())
