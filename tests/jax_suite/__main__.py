"""JAX's own test files, run with derivatives and maps of pullback in the place of JAX's.

    python -m tests.jax_suite FOLDER [FILE…]

FOLDER is the folder `tests` of a checkout of JAX, at the tag of the version that is installed; or
such a folder alone, of a version near to it. Each file runs in a process of its own. What fails is
run again with JAX's own functions: what fails with these too is not ours. Any other failure that
the catalogue does not know makes it end with 1.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import jax

from tests import conftest
from tests.jax_suite import results
from tests.jax_suite.catalogue import RUNS, Run
from tests.jax_suite.functions import NONE, OURS
from tests.jax_suite.results import Findings

ROOT = Path(__file__).parents[2]
PATH = (ROOT / "compiler", ROOT / "runtime", ROOT)
ENDED = (0, 1, 5)
"""How pytest ends when it has run all there is: passed, failed, nothing to run."""


def run(planned: Run, folder: Path, log: Path, tests: Collection[str] = ()) -> str:
    """Runs a file until all its tests have run; what is wrong with that, or nothing.

    A test that ends the process has failed; the next process goes on behind it.

    Args:
      tests: the only ones to run, by their names; by default all that are planned.
    """
    until = time.monotonic() + planned.longest
    while True:
        before = len(results.read(log))
        try:
            done = subprocess.run(
                _command(planned, folder, log, tests),
                cwd=ROOT,
                env=_environment(),
                capture_output=True,
                text=True,
                timeout=max(1.0, until - time.monotonic()),
            )
        except subprocess.TimeoutExpired:
            return f"not all has run in {planned.longest} s"
        if done.returncode in ENDED:
            return "" if results.read(log) else f"no test has run\n{done.stdout}"
        if len(results.read(log)) == before:
            return f"pytest ended with {done.returncode}\n{done.stdout}\n{done.stderr}"


def _command(planned: Run, folder: Path, log: Path, tests: Collection[str]) -> list[str]:
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "tests.jax_suite.plugin"]
    apart = ["-c", os.devnull, "--rootdir", folder, "--noconftest", "-p", "no:cacheprovider"]
    options = ["--replace", planned.mode, "--results", log, "-k", planned.only]
    chosen = [folder / name for name in tests or (planned.file,)]
    return [*map(str, (*pytest, *apart, *options, *chosen))]


def _environment() -> dict[str, str]:
    """Not our settings of pytest; but our paths, and those of XLA that are for small programs."""
    here = {"PYTHONPATH": os.pathsep.join(map(str, PATH)), "JAX_PLATFORMS": "cpu"}
    numbers = {"JAX_NUM_GENERATED_CASES": os.environ.get("JAX_NUM_GENERATED_CASES", "10")}
    return {"XLA_FLAGS": " ".join(conftest.FAST_COMPILATION), **os.environ, **here, **numbers}


def report(planned: Run, found: Findings, wrong: str, seconds: float) -> None:
    """The counts of a file, and what is to be looked at."""
    print(f"{planned.file} ({planned.mode}): {found.counts()} in {seconds:.0f} s")
    if wrong:
        print(f"  STOPPED: {wrong}")
    for test, outcome in found.failed.items():
        print(f"  FAILED {test}\n    {outcome.last_line()}")
    for test, outcome in found.by_jax.items():
        print(f"  fails with JAX's own too: {test}\n    {outcome.last_line()}")
    for known in found.passing:
        print(f"  passes now: {known.tests} ({known.reason})")
    sys.stdout.flush()


def _version_of(folder: Path) -> str | None:
    """The version of a checkout, if the folder is in one."""
    file = folder.parent / "jax" / "version.py"
    found = re.search(r'^_version = "(.*)"', file.read_text(), re.M) if file.exists() else None
    return found and found[1]


def run_and_report(planned: Run, folder: Path) -> bool:
    """Whether a file has nothing but passed tests and known failures."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as logs:
        log, by_jax = Path(logs, "results.jsonl"), Path(logs, "by_jax.jsonl")
        wrong = run(planned, folder, log)
        found = results.judge(results.read(log), planned.mode)
        if found.failed and planned.mode != NONE:
            run(replace(planned, mode=NONE), folder, by_jax, found.failed)
            found = found.beside(results.read(by_jax))
    report(planned, found, wrong, time.monotonic() - start)
    return not wrong and not found.failed


def chosen_runs(options: argparse.Namespace) -> list[Run]:
    """The runs of the catalogue, or those of the files named, changed as the options say."""
    runs = [planned for planned in RUNS if not options.files or planned.file in options.files]
    met = {planned.file for planned in runs}
    runs += [Run(file) for file in options.files if file not in met]
    asked = {name: getattr(options, name) for name in ("mode", "only", "longest")}
    asked = {name: value for name, value in asked.items() if value is not None}
    return list(dict.fromkeys(replace(planned, **asked) for planned in runs))


def main() -> int:
    """Runs the files that are named, or all of the catalogue."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", help="by default all of the catalogue")
    parser.add_argument("--mode", choices=list(OURS), help="what is replaced in these files")
    parser.add_argument("--only", help="tests whose names match; as pytest's -k")
    parser.add_argument("--longest", type=float, help="seconds for a file")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if _version_of(folder) not in (None, jax.__version__):
        parser.error(f"{folder} is of jax {_version_of(folder)}, installed is {jax.__version__}")
    ended = [run_and_report(planned, folder) for planned in chosen_runs(options)]
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
