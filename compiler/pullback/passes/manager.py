"""Run pipelines: directly in the product, through MLIR's PassManager in tests and tools."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.errors import DEEP, NestingError, PipelineError, nested_too_deep
from pullback.ir.locations import user_line
from pullback.ir.mlir_passes import run_stock
from pullback.ir.verify import verify
from pullback.passes.base import NO_RULES, Pass, Rules
from pullback.passes.options import check_choices
from pullback.passes.pipelines import Stage, format_pipeline, parse_pipeline
from pullback.passes.printing import PLAIN, Printing, print_module
from pullback.passes.statistics import Statistics
from pullback_runtime._errors import ErasureError
from pullback_runtime.ir._erasure import refusing_uses
from pullback_runtime.ir._nesting import nesting


@dataclass(frozen=True)
class Instrumentation:
    """What to check and show while a pipeline runs; the defaults do nothing.

    Attributes:
      verify_each: run MLIR's verifier and the one of our ops between passes.
      print_before, print_after: names of passes around which to print the module.
      printing: how to print it.
      statistics: print how many ops each pass adds and takes away.
      reproducer: on failure, write the module and the pipeline to this file.
      options: of the command that reproduces the failure, besides the pipeline.
      The other fields are the flags of mlir-opt with the same names.
    """

    verify_each: bool = False
    print_before: tuple[str, ...] = ()
    print_after: tuple[str, ...] = ()
    print_before_all: bool = False
    print_after_all: bool = False
    print_after_change: bool = False
    print_after_failure: bool = False
    print_tree_dir: str | None = None
    printing: Printing = PLAIN
    timing: bool = False
    statistics: bool = False
    reproducer: str | None = None
    options: tuple[str, ...] = ()

    @property
    def prints_ir(self) -> bool:
        """True if MLIR's own IR printing is on."""
        return bool(
            self.print_before_all
            or self.print_after_all
            or self.print_after_change
            or self.print_after_failure
            or self.print_tree_dir
        )


QUIET = Instrumentation()


def run_pipeline(
    module: ir.Module,
    pipeline: str | Sequence[Stage],
    rules: Rules = NO_RULES,
    **instrumentation: Any,
) -> None:
    """Run a pipeline on `module`, in place.

    Args:
      pipeline: textual, such as `jvp{entry=main wrt=0},cse`, or a sequence of passes and texts.
      rules: where passes find rules that are not in the module.
      instrumentation: fields of `Instrumentation`; none of them means the fast path.

    Raises:
      PipelineError: when the pipeline is misspelt or an upstream pass fails.
      Whatever one of our passes raises, unchanged.
    """
    stages = _stages(pipeline)
    wanted = Instrumentation(**instrumentation)
    if wanted == QUIET:
        run_stages(module, stages, rules)
    else:
        _run_instrumented(module, stages, rules, wanted)


def _stages(pipeline: str | Sequence[Stage]) -> tuple[Stage, ...]:
    if isinstance(pipeline, str):
        return parse_pipeline(pipeline)
    if not isinstance(pipeline, Sequence):
        raise _no_stage(pipeline)
    return tuple(stage for part in pipeline for stage in _stages_of(part))


def _stages_of(part: Any) -> tuple[Stage, ...]:
    """Return the stages that an object or a text is."""
    if isinstance(part, str):
        return parse_pipeline(part)
    if not isinstance(part, Pass):
        raise _no_stage(part)
    check_choices(part)
    return (part,)


def _no_stage(given: Any) -> PipelineError:
    is_class = isinstance(given, type)
    kind = given if is_class else type(given)
    shown = kind.__name__ if issubclass(kind, Pass) else "MyPass"
    return PipelineError(
        "a pipeline is a text, or a list of texts and of passes with their options, and this is "
        f"{'the class' if is_class else 'an object of the class'} {kind.__name__}",
        do=f"write [{shown}(), 'cse'], a list with an object for each pass",
    )


def run_stages(module: ir.Module, stages: Sequence[Stage], rules: Rules = NO_RULES) -> None:
    """Run stages on the hot path: no verifier, no instrumentation, our passes called directly.

    Texts among the stages are upstream passes, as `parse_pipeline` returns them.
    """
    with _jax.working_in(module):
        for stage in stages:
            if isinstance(stage, Pass):
                _run_pass(stage, module, rules)
            else:
                run_stock(module, stage)


def _is_ours(stage: Pass) -> bool:
    return type(stage).__module__.startswith(f"{__package__}.")


def _run_pass(stage: Pass, module: ir.Module, rules: Rules) -> None:
    with limited(module, f"the pass `{stage.name}`"):
        if _is_ours(stage):
            stage.run(module, rules)
            return
        try:
            with refusing_uses():
                stage.run(module, rules)
        except ErasureError as error:
            raise PipelineError(
                error.message.replace("a pass", f"the pass `{stage.name}`", 1),
                where=error.where,
                do="first give its users another value: op.results[0].replace_all_uses_with(value)",
            ) from error


@contextlib.contextmanager
def limited(module: ir.Module, what: str) -> Iterator[None]:
    """Run the body; raise NestingError if a deep module makes it exceed the recursion limit."""
    try:
        yield
    except RuntimeError as error:
        depth, operation = nesting(module) if _is_of_recursion(error) else (0, None)
        if operation is None or depth < DEEP:
            raise
        raise nested_too_deep(depth, what, user_line(operation.location)) from error


def _is_of_recursion(error: RuntimeError) -> bool:
    """Return True if an error is a RecursionError, or one as text, as an MLIR walk reports it."""
    if isinstance(error, NestingError):
        return False
    return isinstance(error, RecursionError) or "RecursionError: maximum" in str(error)


def _run_instrumented(
    module: ir.Module, stages: tuple[Stage, ...], rules: Rules, wanted: Instrumentation
) -> None:
    """Run through one PassManager, so that MLIR verifies, prints and times every pass."""
    before = module.operation.clone() if wanted.reproducer else None
    raised: list[Exception] = []
    statistics = Statistics(module) if wanted.statistics else None
    manager = _build_manager(module, stages, rules, wanted, raised, statistics)
    try:
        with _jax.working_in(module):
            manager.run(module.operation)
            if wanted.verify_each:
                verify(module)
    except Exception as caught:
        error = raised[0] if raised else caught
        failure = _readable(error, stages)
        if before is not None and wanted.reproducer is not None:
            _add_reproducer(failure, before, stages, wanted.reproducer, wanted.options)
        raise failure from (failure.__cause__ if failure is error else error)
    if statistics is not None:
        statistics.report()


def _readable(error: Exception, stages: tuple[Stage, ...]) -> Exception:
    """Convert an error of MLIR's to a PipelineError; return any other error as it is."""
    if isinstance(error, ir.MLIRError):
        said = [f"pipeline {format_pipeline(stages)} failed: {error}"]
        return PipelineError("\n".join(said + getattr(error, "__notes__", [])))
    return error


def _build_manager(
    module: ir.Module,
    stages: tuple[Stage, ...],
    rules: Rules,
    wanted: Instrumentation,
    raised: list[Exception],
    statistics: Statistics | None,
) -> Any:
    manager = _jax.PassManager("builtin.module", context=module.context)
    for stage in stages:
        name = stage.name if isinstance(stage, Pass) else stage
        if _mentions(name, wanted.print_before):
            _add_printer(manager, module, f"IR Dump Before {name}", wanted)
        if isinstance(stage, Pass):
            _add_pass(manager, module, stage, rules, wanted, raised)
        else:
            manager.add(stage)
        if _mentions(name, wanted.print_after):
            _add_printer(manager, module, f"IR Dump After {name}", wanted)
        if statistics is not None:
            _add_counter(manager, statistics, str(name))
    manager.enable_verifier(wanted.verify_each)
    _enable_printing(manager, module, wanted)
    if wanted.timing:
        manager.enable_timing()
    return manager


def _mentions(stage: str, selected: tuple[str, ...]) -> bool:
    """Return True if a stage has a selected name: `cse` is in `cse{…}` and `func.func(x,cse)`."""
    names = re.split("[(),]", re.sub(r"\{[^}]*\}", "", stage))
    return not set(selected).isdisjoint(names)


def _add_pass(
    manager: Any,
    module: ir.Module,
    stage: Pass,
    rules: Rules,
    wanted: Instrumentation,
    raised: list[Exception],
) -> None:
    """Add one of our passes; keep what it raises, for MLIR only knows that a pass failed."""

    def run(op: ir.Operation, handle: Any) -> None:
        note = "" if _is_ours(stage) else f"in the pass `{stage.name}`"
        try:
            _run_pass(stage, module, rules)
            if wanted.verify_each:
                note = f"the module is invalid after the pass `{stage.name}`"
                verify_module(module)
        except Exception as error:
            if note:
                error.add_note(note)
            raised.append(error)
            handle.signal_pass_failure()

    description = (type(stage).__doc__ or "").partition("\n")[0]
    manager.add(run, type(stage).__name__, str(stage), description)


def _add_printer(manager: Any, module: ir.Module, title: str, wanted: Instrumentation) -> None:
    def show(op: ir.Operation, handle: Any) -> None:
        sys.stderr.write(
            f"// -----// {title} //----- //\n{print_module(module, wanted.printing)}\n"
        )
        sys.stderr.flush()

    manager.add(show, "PrintIR", "print-ir", title)


def _add_counter(manager: Any, statistics: Statistics, name: str) -> None:
    manager.add(lambda *_: statistics.count(name), "CountOps", "count-ops", "Count ops by name.")


def _enable_printing(manager: Any, module: ir.Module, wanted: Instrumentation) -> None:
    if not wanted.prints_ir:
        return
    module.context.enable_multithreading(False)  # MLIR ends the process where it is on
    after_each = wanted.print_after_all or wanted.print_after_change or wanted.print_after_failure
    manager.enable_ir_printing(
        print_before_all=wanted.print_before_all,
        print_after_all=after_each or bool(wanted.print_tree_dir),
        print_module_scope=True,
        print_after_change=wanted.print_after_change,
        print_after_failure=wanted.print_after_failure,
        large_elements_limit=wanted.printing.elide_larger_than,
        enable_debug_info=wanted.printing.debuginfo,
        print_generic_op_form=wanted.printing.generic,
        tree_printing_dir_path=wanted.print_tree_dir,
    )


def verify_module(module: ir.Module) -> None:
    """Run MLIR's verifier, then that of the derivative ops."""
    module.operation.verify()
    verify(module)


def _add_reproducer(
    error: BaseException,
    before: ir.Operation,
    stages: tuple[Stage, ...],
    path: str,
    options: tuple[str, ...],
) -> None:
    """Write a reproducer and add a note to the error: the command that runs it."""
    pipeline = format_pipeline(stages)
    write_reproducer(path, before, pipeline)
    command = shlex.join(["pullback-opt", path, *options, f"--pass-pipeline={pipeline}"])
    error.add_note(f"reproduce with: {command}")


_REPRODUCER = """
  external_resources: {{
    mlir_reproducer: {{
      pipeline: "{pipeline}",
      disable_threading: true,
      verify_each: true
    }}
  }}
#-}}
"""


def write_reproducer(path: str, module: ir.Module | ir.Operation, pipeline: str) -> None:
    """Write `module` and `pipeline` to a file as an MLIR reproducer.

    Raises:
      PipelineError: the file cannot be written.
    """
    text = module.operation.get_asm(enable_debug_info=True, assume_verified=True).rstrip()
    # A second section would make MLIR forget the first one, which holds the data of constants.
    start = text.removesuffix("#-}").rstrip() + "," if text.endswith("#-}") else text + "\n\n{-#"
    escaped = pipeline.replace("\\", "\\\\").replace('"', '\\"')
    try:
        Path(path).write_text(start + _REPRODUCER.format(pipeline=escaped), encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"cannot write the reproducer {path}: {error.strerror}") from error
