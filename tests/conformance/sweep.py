"""The whole corpus: shared out to worker processes, resumed where it stopped, and reported.

    python -m tests.conformance.sweep [--only TEXT] [--fresh | --again] [--report FILE]

A case that kills its worker, or that takes too long, is a finding: the worker is started again
behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from pullback.program.progress import Progress
from tests.conformance import report
from tests.conformance.comparison import FAILS, Verdict
from tests.conformance.exceptions import EXCEPTIONS, OF_WAYS, Known
from tests.conformance.harnesses import all_cases, sample
from tests.conformance.through_jax import WAYS

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "out" / "conformance"
LONGEST_CASE = 400
"""Seconds without a line in its log after which a worker is taken to hang."""

THREADS = "8"
"""Of XLA's CPU client, which may wait for ever where it has two, as in tests/conftest.py."""

CASES_PER_WORKER = 400
"""A worker process ends after so many cases, and its memory with it."""


class Worker:
    """One process at a time, and the log of all it has done."""

    def __init__(self, names: list[str], log: Path, way: str = ""):
        self.names = names
        self.log = log
        self.way = way
        self.process: subprocess.Popen[str] | None = None

    def poll(self) -> bool:
        """Starts, watches and restarts the process; False when all cases are done."""
        if self.process is None:
            return self._start()
        if self.process.poll() is not None:
            self._settle(f"the process ended with {self.process.returncode}")
        elif time.time() - self.log.stat().st_mtime > LONGEST_CASE:
            self.process.kill()
            self.process.wait()
            self._settle(f"took more than {LONGEST_CASE} s")
        return True

    def _start(self) -> bool:
        done = verdicts_in([self.log])
        left = [name for name in self.names if name not in done]
        if not left:
            return False
        self.log.touch()
        command = [sys.executable, "-m", "tests.conformance.worker", str(self.log)]
        command += ["--through", self.way]
        settings = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0", "NPROC": THREADS}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **settings}
        )
        assert self.process.stdin
        self.process.stdin.write("\n".join(left[:CASES_PER_WORKER]))
        self.process.stdin.close()
        return True

    def _settle(self, how: str) -> None:
        """Blames the case that a process was at when it ended."""
        self.process = None
        lines = list(_records(self.log))
        if lines and "begin" in lines[-1]:
            verdicts = dict.fromkeys(WAYS[self.way][1], Verdict(FAILS, how))
            with self.log.open("a") as log:
                log.write(json.dumps({"case": lines[-1]["begin"], "verdicts": verdicts}) + "\n")


def _records(log: Path) -> Iterator[dict[str, Any]]:
    if log.exists():
        text = log.read_text()
        # The last line may still be on its way.
        yield from map(json.loads, text[: text.rfind("\n") + 1].splitlines())


def verdicts_in(logs: list[Path]) -> dict[str, dict[str, Verdict]]:
    """The verdicts of every case that these logs are about; later ones count."""
    return {name: verdicts_of(record) for log in logs for name, record in _cases_in(log).items()}


def verdicts_of(record: dict[str, Any]) -> dict[str, Verdict]:
    """The verdicts in a line of a log."""
    return {stage: Verdict(*pair) for stage, pair in record["verdicts"].items()}


def _cases_in(log: Path) -> dict[str, dict[str, Any]]:
    return {record["case"]: record for record in _records(log) if "case" in record}


def sweep(
    names: list[str], folder: Path, processes: int, way: str = ""
) -> dict[str, dict[str, Verdict]]:
    """Compares these cases, those with a verdict in the folder excepted."""
    folder.mkdir(parents=True, exist_ok=True)
    done = verdicts_in(sorted(folder.glob("*.jsonl")))
    left = [name for name in names if name not in done]
    # Named by time: the shares differ from run to run.
    stamp = f"{time.time():.0f}"
    workers = [
        Worker(left[i::processes], folder / f"{stamp}-{i}.jsonl", way) for i in range(processes)
    ]
    with Progress() as progress:
        while workers:
            workers = [worker for worker in workers if worker.poll()]
            found = verdicts_in(sorted(folder.glob("*.jsonl")))
            progress.show("comparing cases", len(found), len(names))
            time.sleep(1 if len(workers) < 2 else 2)
    found = verdicts_in(sorted(folder.glob("*.jsonl")))
    return {name: found[name] for name in names}


def forget_unexplained(folder: Path, exceptions: tuple[Known, ...]) -> None:
    """Drops the verdicts that nothing explains from the logs."""
    for log in folder.glob("*.jsonl"):
        kept = [
            record
            for name, record in _cases_in(log).items()
            if not report.unexplained({name: verdicts_of(record)}, exceptions)
        ]
        log.write_text("".join(json.dumps(record) + "\n" for record in kept))


def main() -> int:
    """Sweeps, writes the report, and fails if a case is neither equal nor explained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--fresh", action="store_true", help="forget the verdicts of earlier runs")
    parser.add_argument("--again", action="store_true", help="run what was unexplained once more")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--through", choices=WAYS, default="", help="what to compare")
    parser.add_argument("--sample", type=int, help="so many cases of each primitive")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    folder = LOGS / "-".join(filter(None, (f"jax-{jax.__version__}", options.through)))
    exceptions = OF_WAYS.get(options.through, EXCEPTIONS)
    if options.fresh:
        for log in folder.glob("*.jsonl"):
            log.unlink()
    if options.again:
        forget_unexplained(folder, exceptions)
    cases = sample(options.sample, 0) if options.sample else all_cases()
    names = [name for name in cases if options.only in name]
    verdicts = sweep(names, folder, options.processes, options.through)
    if options.report:
        section = options.report.read_text().partition(report.EACH_JAX)[2]
        page = report.render(verdicts, all_cases())
        options.report.write_text(report.with_each_jax(page, section))
    print(report.counts(verdicts))
    unexplained = report.unexplained(verdicts, exceptions)
    print("\n".join(unexplained) or f"{len(names)} cases: equal, or different for a known reason")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
