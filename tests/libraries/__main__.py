"""`python -m tests.libraries`: programs of other libraries, differentiated in memory and as files.

    python -m tests.libraries [ONLY] [--processes 2]

Each must give JAX's numbers, or what the catalogue says of it. Where JAX refuses to differentiate,
tangents are held against finite differences.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax

from pullback.program.progress import Progress
from tests.conftest import FAST_COMPILATION
from tests.libraries import catalogue
from tests.libraries.comparison import compare

SETTINGS = {
    "JAX_ENABLE_X64": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": " ".join(FAST_COMPILATION),
    "EQX_ON_ERROR": "nan",  # a check of equinox calls Python otherwise, and could not be saved
}

GOOD, BAD, NOTHING = 0, 1, 5


def check(topic: str, only: str) -> int:
    """Whether all programs of a topic, or those with such a name, are as the catalogue says."""
    programs = [each for each in catalogue.of_topic(topic) if only == topic or only in each.name]
    good = True
    for program in programs:
        start, known = time.monotonic(), dict(program.known)
        for line in compare(program):
            reason = known.pop(line.check, None)
            good &= line.good != (reason is not None)
            note = f" [known: {reason}]" if reason else ""
            print(f"  {program.name}: {line.check}: {line.status} {line.detail}{note}", flush=True)
        good &= not known
        for name in known:
            print(f"  {program.name}: {name}: known, and not met")
        print(f"{program.name}: {time.monotonic() - start:.1f} s", flush=True)
        jax.clear_caches()
    return NOTHING if not programs else GOOD if good else BAD


def _in_process(topic: str, only: str) -> int:
    command = [sys.executable, "-m", "tests.libraries", only, "--topic", topic]
    environment = {**os.environ, **SETTINGS}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
    return process.returncode


def main() -> int:
    """Checks all programs, or those of a topic, or those whose name contains what is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="a topic, or a part of names")
    parser.add_argument("--processes", type=int, default=2, help="topics at a time")
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.topic:
        return check(options.topic, options.only)
    ends, topics = [], catalogue.topics()
    with ThreadPoolExecutor(options.processes) as pool, Progress() as progress:
        for end in pool.map(lambda topic: _in_process(topic, options.only), topics):
            ends.append(end)
            progress.show("topics", len(ends), len(topics))
    return BAD if {*ends} - {GOOD, NOTHING} or GOOD not in ends else GOOD


if __name__ == "__main__":
    sys.exit(main())
