"""Ask a helper process to parse what this process should not trust yet.

Measured: MLIR's bytecode reader corrupts the heap on about one in 200 damaged files. The helper
imports `jaxlib.mlir` alone, which takes 0.2 seconds, and stays up between requests.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import subprocess
import sys
import threading

from pullback_runtime import _mlir
from pullback_runtime.files import _safe_parse_worker as worker
from pullback_runtime.files._container import ArtifactError

SECONDS = 10
SECONDS_PER_MEBIBYTE = 2
# With -P, for a `json.py` in the working directory would run before the path is set.
_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); \
from pullback_runtime.files import _safe_parse_worker; _safe_parse_worker.main()"

_PLACE = re.compile(r'^error: "-":(\d+):(\d+): (.*)$', re.MULTILINE)
"""Matches the first error of MLIR for a text that does not parse."""

_lock = threading.RLock()
_process: subprocess.Popen[bytes] | None = None


def parse_elsewhere(content: bytes, kind: bytes = worker.MODULE) -> bytes:
    """Parse a module, or what a `kind` says, in the helper process; return it as plain bytecode.

    Raises: ArtifactError when it is rejected there, crashes there, or takes too long.
    """
    # Some hundred times what a sound file of this size takes.
    seconds = SECONDS + SECONDS_PER_MEBIBYTE * (len(content) >> 20)
    with _lock:
        try:
            status, answer = _exchange(kind, content, seconds)
            if status == worker.CRASHED and _process is None:  # something else may have ended it
                status, answer = _exchange(kind, content, seconds)
        except (OSError, EOFError) as error:
            raise ArtifactError(
                f"the helper process that tries files of unknown origin ended: {error}",
                do="load once more; is there memory for a second process?",
            ) from error
    if status == worker.PARSED:
        return answer
    raise _refusal(status, answer.decode("utf-8", "replace"), seconds)


def _refusal(status: bytes, detail: str, seconds: int) -> ArtifactError:
    said = _mlir.without_flags(detail)
    place = _PLACE.search(said)
    if status == worker.REFUSED and place is not None:
        line, column, text = place.groups()
        return ArtifactError(
            f"the file does not parse: {text}",
            where=f"-:{line}:{column}",
            do=_mlir.remedy_of(detail) or "correct the text of the module there",
        )
    message = {
        worker.REFUSED: f"the file does not parse: {said}",
        worker.CRASHED: f"the file crashes the parser ({detail}), tried in a process of its own",
        worker.TOO_SLOW: f"the file does not parse within {seconds} seconds",
    }[status]
    do = (
        _mlir.remedy_of(detail)
        or "it must be StableHLO text, bytecode, or what jax.export serialised, undamaged"
    )
    return ArtifactError(message, do=do)


def _exchange(kind: bytes, content: bytes, seconds: int) -> tuple[bytes, bytes]:
    try:
        process = _ready()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: then there is no answer
            process.stdin.write(worker.REQUEST.pack(kind, seconds, len(content)))
            process.stdin.write(content)
            process.stdin.flush()
        head = process.stdout.read(worker.ANSWER.size)
        if len(head) < worker.ANSWER.size:
            status = process.wait()
            stop()
            return (
                worker.TOO_SLOW if status == worker.TIME_IS_UP else worker.CRASHED
            ), b"%d" % status
        status, length = worker.ANSWER.unpack(head)
        return status, process.stdout.read(length)
    except BaseException:  # also where a user interrupts it: the rest of the answer is lost
        stop()
        raise


def _ready() -> subprocess.Popen[bytes]:
    """Return a helper that waits for a request; one that has ended since the last is replaced."""
    for _ in range(2):
        process = start()
        if process.stdout is not None and process.stdout.read(1) == worker.READY:
            return process
        stop()
    raise EOFError("it did not start")


def start() -> subprocess.Popen[bytes]:
    """Start the helper process unless it runs, and return it without waiting for it."""
    global _process
    with _lock:
        if _process is not None and _process.poll() is not None:
            stop()
        if _process is None:
            _process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT},
            )
        return _process


_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
    "LD_PRELOAD": "libc_malloc_debug.so.0",  # so glibc checks its heap, and aborts on corruption
    "MALLOC_CHECK_": "3",
}


def stop() -> None:
    """End the helper process, if it runs."""
    global _process
    process, _process = _process, None
    if process is not None:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _forget() -> None:
    """Leave the helper to the process that forked this one: its pipes are one conversation."""
    global _lock, _process
    _lock, _process = threading.RLock(), None


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
