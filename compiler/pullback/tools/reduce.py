"""Run `pullback reduce`: find the smallest module for which a command still fails."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pullback._jax import ir
from pullback.errors import UsageError, VerificationError
from pullback.passes.manager import verify_module
from pullback.program.progress import Progress
from pullback.tools import module_io
from pullback.tools.diagnostics import messages_of
from pullback.tools.reduction import OutOfTime, Reduction, all_ops
from pullback.tools.show import note
from pullback_cli import preloaded

NOT_RUN = (126, 127)
"""Exit codes of a shell for a command that it cannot run."""
HOLE = "{}"


@dataclass(frozen=True)
class Failing:
    """Tell whether a command fails for a module, which it gets as a file of text.

    Attributes:
      path: of that file.
      matching: what it has to print.
      until: when the time is over, on the monotonic clock.
      environment: in which it runs.
    """

    command: str
    path: Path
    matching: str | None
    until: float | None
    environment: Mapping[str, str]

    def run(self, module: ir.Module) -> tuple[int, str]:
        """Run the command; return its exit code and what it prints.

        Raises:
          OutOfTime: the time is over.
        """
        self.path.write_text(str(module), encoding="utf-8")
        file = shlex.quote(str(self.path))
        command = (
            self.command.replace(HOLE, file) if HOLE in self.command else f"{self.command} {file}"
        )
        left = None if self.until is None else self.until - time.monotonic()
        if left is not None and left <= 0:
            raise OutOfTime
        with subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=self.environment,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=left)
            except BaseException as error:  # of an interrupt, too: what it started must end
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise OutOfTime from None
                raise
        return process.returncode, printed.decode(errors="replace")

    def __call__(self, module: ir.Module) -> bool:
        code, printed = self.run(module)
        return code != 0 and (self.matching is None or self.matching in printed)


def reduce(
    file: str,
    command: str,
    matching: str | None,
    time_limit: float | None,
    allow_unregistered_dialect: bool,
    output: str,
) -> None:
    """Find the smallest module for which a command still fails, and print it."""
    start = time.monotonic()
    until = None if time_limit is None else start + time_limit
    with (
        tempfile.TemporaryDirectory(prefix="pullback-reduce-") as folder,
        module_io.unregistered_dialects(allow_unregistered_dialect),
        preloaded.serving() as environment,
        Progress() as progress,
    ):
        path = Path(folder) / "candidate.mlir"
        fails = Failing(command, path, matching, until, environment)
        module = _read(file)
        before = len(all_ops(module))
        _check_fails(fails, module, file)

        def holds(candidate: ir.Module) -> bool:
            found = fails(candidate)
            ops = len(all_ops(candidate if found else reduction.module))
            progress.show(f"reducing {before} ops: {ops} left, {reduction.tried} modules tried")
            return found

        reduction = Reduction(module, holds)
        reduction.run()
    module_io.write_bytes(output, (str(reduction.module).rstrip() + "\n").encode())
    end = (
        "nothing more can be taken away"
        if reduction.finished
        else f"stopped after {time_limit:g} s: more time may find a smaller one"
    )
    note(
        f"{before} ops became {len(all_ops(reduction.module))}, by {reduction.tried} modules in "
        f"{time.monotonic() - start:.1f} s; {end}"
    )


def _read(file: str) -> ir.Module:
    """Read and verify a module."""
    try:
        module = module_io.parse_module(module_io.read_bytes(file))
        verify_module(module)
    except (ir.MLIRError, VerificationError) as error:
        said = messages_of(error)[0].format(file)
        raise UsageError(
            f"the module is not valid, as each that is tried has to be: {said}"
        ) from error
    return module


def _check_fails(fails: Failing, module: ir.Module, file: str) -> None:
    """Raise UsageError if the command does not fail for the whole module."""
    try:
        code, printed = fails.run(module)
    except OutOfTime:
        raise UsageError(
            f"the command has not ended for `{file}` itself when the time was over",
            do="give more time: --time-limit",
        ) from None
    if code in NOT_RUN:
        raise UsageError(
            f"the shell cannot run the command: {printed.strip()}", where=fails.command
        )
    if code == 0:
        raise UsageError(
            f"the command does not fail for `{file}`: its exit code is 0",
            where=fails.command,
            do="give one whose exit code says whether a module is of interest; `not COMMAND` or "
            "`! COMMAND` turns it around",
        )
    if fails.matching is not None and fails.matching not in printed:
        last = printed.strip().splitlines()[-1:]
        raise UsageError(
            f"the command fails for `{file}`, but does not print {fails.matching!r}",
            where=f"it prints at its end: {last[0]}" if last else "it prints nothing",
            do="give a part of what it prints: --matching",
        )
