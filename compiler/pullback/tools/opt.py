"""Run `pullback-opt`: passes on a module, with the flags of mlir-opt."""

from __future__ import annotations

import difflib
import faulthandler
import io
import json
import sys
import traceback
from dataclasses import dataclass, fields
from typing import Any

import click

from pullback import _jax
from pullback._jax import ir
from pullback.errors import (
    PipelineError,
    PluginError,
    PullbackError,
    UsageError,
)
from pullback.ir import lost_rules
from pullback.ir.warn import warn_of_lost_rules
from pullback.passes.differentiating_pass import Derivative
from pullback.passes.list_passes import list_passes, passes_as_json
from pullback.passes.manager import Instrumentation, run_pipeline, verify_module, write_reproducer
from pullback.passes.pipelines import (
    Stage,
    check_known,
    format_pipeline,
    is_known,
    known_names,
    parse_pipeline,
)
from pullback.passes.printing import Printing, print_module
from pullback.tools import module_io
from pullback.tools.diagnostics import compare, messages_of
from pullback.tools.plugins import load_passes, load_rules
from pullback.tools.show import versions
from pullback.tools.sources import check_used
from pullback.tools.targets import blaming
from pullback_runtime.files import _container

FAILED = 1
BAD_USAGE = 2

HINT = " --list-passes lists all passes; of a pass of your own, name its file: --load-pass-plugin"
HINTS = {"grad": " A gradient is made by `pullback derive --grad`, and --vjp is the pass."}
"""Says what to do about flags that are near to none, by name."""


@dataclass(frozen=True)
class Options:
    """The options of the command line besides the pipeline."""

    file: str
    output: str
    split_input_file: bool
    verify_diagnostics: bool
    verify_roundtrip: bool
    allow_unregistered_dialect: bool
    emit_bytecode: bool
    generate_reproducer: str | None
    instrumentation: Instrumentation

    @property
    def name(self) -> str:
        """The name of the input, as diagnostics show it."""
        return "<stdin>" if self.file == "-" else self.file


def opt(**arguments: Any) -> None:
    """Run passes on a module, with the flags of `pullback_cli.opt`; exit with 0, 1 or 2."""
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)  # a pass of a plug-in can end the process
    options = _options(arguments)
    try:
        _refuse(arguments)
        load_rules(arguments["plugins"])
        load_passes(arguments["pass_plugins"])
        if _shown(arguments):
            return
        content = module_io.read_bytes(options.file)
        stages = _stages(arguments, content)
        for name in options.instrumentation.print_before + options.instrumentation.print_after:
            check_known(name)
    except PullbackError as error:
        _report(error, options)
        is_usage = isinstance(error, (PipelineError, PluginError, UsageError))
        sys.exit(BAD_USAGE if is_usage else FAILED)
    if arguments["dump_pass_pipeline"]:
        click.echo(format_pipeline(stages), err=True)
    sys.exit(0 if process(content, stages, options) else FAILED)


def _refuse(arguments: dict[str, Any]) -> None:
    """Raise UsageError for what jaxlib does not have, and for options without effect."""
    if arguments["debug_only"] is not None:
        raise UsageError(
            "--debug-only has nothing to print: jaxlib is built without LLVM's debug messages",
            do="leave it out; --mlir-print-ir-after-change shows what each pass does",
        )
    if arguments["log_actions_to"] is not None:
        raise UsageError(
            "--log-actions-to has nothing to write: the bindings of MLIR in jaxlib log no actions",
            do="leave it out; --mlir-print-ir-tree-dir writes the module after each pass",
        )
    if not arguments["list_passes"]:
        check_used("--list-passes", {"--json": arguments["as_json"]})


def _shown(arguments: dict[str, Any]) -> bool:
    """Print what an option asks for that reads no file; return False if there is none."""
    if arguments["version"]:
        click.echo(f"{versions()}; StableHLO {_jax.stablehlo.get_current_version()}")
    elif arguments["show_dialects"]:
        click.echo("\n".join(["Available dialects:", *module_io.dialects()]))
    elif arguments["list_passes"]:
        as_json = arguments["as_json"]
        click.echo(json.dumps(passes_as_json(), indent=2) if as_json else list_passes())
    else:
        return False
    return True


def _options(arguments: dict[str, Any]) -> Options:
    """Return the options; the parameters of the command are named as the fields of classes."""
    given = dict(arguments)
    for name in ("print_before", "print_after"):
        given[name] = tuple(filter(None, given[name].split(",")))
    loaded = {"--load-rules": given["plugins"], "--load-pass-plugin": given["pass_plugins"]}
    given["options"] = (
        *(f"{option}={each}" for option, places in loaded.items() for each in places),
        *["--allow-unregistered-dialect"] * given["allow_unregistered_dialect"],
    )

    def of(kind: Any) -> Any:
        return kind(**{each.name: given[each.name] for each in fields(kind)})

    given["printing"] = of(Printing)
    given["instrumentation"] = of(Instrumentation)
    options: Options = of(Options)
    return options


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
        close = difflib.get_close_matches(f"--{name}", flags, n=2, cutoff=0.7)
        hint = "" if close else HINTS.get(name, HINT)
        said = f"No such option '--{name}'.{hint}"
        raise click.NoSuchOption(f"--{name}", said, possibilities=close, ctx=context)
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
    with module_io.unregistered_dialects(options.allow_unregistered_dialect):
        try:
            result = _result(part, stages, options)
        except Exception as error:
            if options.verify_diagnostics:
                return _check_diagnostics(part, error, options)
            _report(error, options, part)
            return None
    return _check_diagnostics(part, None, options) if options.verify_diagnostics else result


def _result(part: bytes | str, stages: tuple[Stage, ...], options: Options) -> bytes:
    """Return the text or bytecode of one module after the pipeline."""
    module = module_io.parse_module(part, options.name)
    if any(isinstance(s, Derivative) for s in stages):
        lost = lost_rules.found_in(module, lost_rules.functions_of_others(module))
        if lost or module_io.is_export(part):
            warn_of_lost_rules(lost)
    module.context.enable_multithreading(False)
    if options.instrumentation.verify_each:
        verify_module(module)
    if options.verify_roundtrip:
        module_io.check_roundtrip(module)
    if options.generate_reproducer is not None:
        write_reproducer(options.generate_reproducer, module, format_pipeline(stages))
    with blaming(options.file):
        run_pipeline(module, stages, **vars(options.instrumentation))
    return _render(module, options)


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
        return print_module(module, options.instrumentation.printing).encode()
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


def _report(error: BaseException, options: Options, part: bytes | str = "") -> None:
    """Print an error and its notes; an error that is a bug of this package with its traceback.

    Args:
      part: the input, of which a line is shown.
    """
    if not isinstance(error, (PullbackError, ir.MLIRError)):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        return
    source = part if isinstance(part, str) else ""
    for message in messages_of(error):
        click.echo(message.format(options.name, source), err=True)
    notes = [note for each in (error.__cause__, error) for note in getattr(each, "__notes__", ())]
    for note in dict.fromkeys(notes):  # an error that stands for another one has its notes as well
        click.echo(note, err=True)
