"""`python -m tests.mutants`: every wrong version must make a test fail.

Mutants go into copies of the tree, never into the tree itself. A test run that fails in another
way than by a failing test, or a place that is no longer there, is an error of the catalogue.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from pullback.program.progress import Progress
from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.places import Places, StaleError

ROOT = Path(__file__).parents[2]
COPIED = ("compiler", "runtime", "tests", "pyproject.toml")
SOURCES = Path("compiler", "pullback")
LONGEST_RUN = 300
"""Seconds of a processor, so that a busy machine decides nothing; more counts as noticed."""
LONGEST_WAIT = 4 * LONGEST_RUN
"""Seconds; a mutant whose tests wait for ever counts as noticed."""

NOTICED = "noticed"
SURVIVED = "SURVIVED"
PYTEST_PASSED, PYTEST_FAILED = 0, 1


@dataclass(frozen=True)
class Outcome:
    """How the tests of one mutant ended."""

    mutant: Mutant
    status: str
    seconds: float


def copy_tree(folder: Path) -> Path:
    """A copy of all that tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


def run_tests(
    tree: Path, tests: tuple[str, ...], longest: int | None = LONGEST_RUN, processes: int = 0
) -> int | None:
    """The exit status of pytest on these tests, in that tree; None if it took too long."""

    def limit() -> None:
        if longest is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (longest, longest))

    environment = {**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "-n", str(processes)]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            timeout=longest and LONGEST_WAIT,
            text=True,
            preexec_fn=limit,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == -signal.SIGKILL:
        return None
    if done.returncode not in (PYTEST_PASSED, PYTEST_FAILED):
        print(done.stdout, done.stderr, file=sys.stderr)
    return done.returncode


def try_out(mutant: Mutant, places: Places, trees: SimpleQueue[Path]) -> Outcome:
    """Runs the tests of a mutant in a tree that nobody else uses."""
    start = time.perf_counter()
    try:
        place = places.find(mutant)
    except StaleError as error:
        return Outcome(mutant, f"stale: {error}", 0)
    tree = trees.get()
    path = tree / SOURCES / place.path
    original = path.read_text()
    try:
        path.write_text(place.mutated(original, mutant.new))
        status = run_tests(tree, mutant.tests)
    finally:
        path.write_text(original)
        trees.put(tree)
    return Outcome(mutant, _name(status), time.perf_counter() - start)


def _name(status: int | None) -> str:
    if status in (PYTEST_FAILED, None):
        return NOTICED
    return SURVIVED if status == PYTEST_PASSED else f"pytest ended with {status}"


def report(outcome: Outcome) -> None:
    """One line of the table."""
    first = outcome.mutant.old.strip().splitlines()[0]
    line = f"{outcome.status:10} {outcome.seconds:5.1f} s  {outcome.mutant.where:40} {first[:60]}"
    print(line, flush=True)


def main() -> int:
    """Tries out all mutants, or those whose place or text contains what is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if options.only in m.where or options.only in m.old]
    if not chosen:
        parser.error(f"no mutant has {options.only!r} in its place or text")
    with tempfile.TemporaryDirectory() as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.processes):
            trees.put(copy_tree(Path(folder, str(number))))
        places = Places(Path(folder, "0") / SOURCES)
        everything = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
        tree = trees.get()
        status = run_tests(tree, everything, None, options.processes)
        if status != PYTEST_PASSED:
            print(f"without any mutant, pytest ended with {status}", file=sys.stderr)
            return 2
        trees.put(tree)
        outcomes = []
        with ThreadPoolExecutor(options.processes) as pool, Progress() as progress:
            for outcome in pool.map(lambda mutant: try_out(mutant, places, trees), chosen):
                report(outcome)
                outcomes.append(outcome)
                progress.show("trying mutants", len(outcomes), len(chosen))
    missed = [outcome for outcome in outcomes if outcome.status != NOTICED]
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} mutants noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
