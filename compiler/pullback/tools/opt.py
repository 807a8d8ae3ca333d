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
from pullback.passes.list_passes import list_passes
from pullback.passes.manager import Instrumentation, print_module, run_pipeline, verify_module
from pullback.passes.pipelines import (
    Stage,
    check_known,
    format_pipeline,
    is_known,
    known_names,
    parse_pipeline,
)
from pullback.tools import module_io
from pullback.tools.diagnostics import compare, messages_of
from pullback.tools.plugins import load_rules
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


def opt(list_passes: bool, **arguments: Any) -> None:
    """Run passes on a module, with the flags of `pullback_cli.opt`; exit with 0, 1 or 2."""
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
        sys.exit(BAD_USAGE if isinstance(error, PipelineError) else FAILED)
    if arguments["dump_pass_pipeline"]:
        click.echo(format_pipeline(stages), err=True)
    sys.exit(0 if process(content, stages, options) else FAILED)


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
    return tuple(stage for text in passes for stage in _stages_of(text))


def _stages_of(text: str) -> tuple[Stage, ...]:
    """Return the stages of a `-p`, or of a flag that `pullback_cli.opt` takes for a pass."""
    name, _, _ = text.removeprefix("--").partition("{")
    if text.startswith("--") and not is_known(name):
        context = click.get_current_context()
        options = [name for each in context.command.params for name in each.opts]
        flags = [*options, *(f"--{known}" for known in known_names())]
        close = difflib.get_close_matches(f"--{name}", flags, n=2)
        raise click.NoSuchOption(f"--{name}", possibilities=close, ctx=context)
    return parse_pipeline(text.removeprefix("--"))


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
