"""Ask a helper process to parse what this process should not trust yet.

Measured: MLIR's bytecode reader corrupts the heap on about one in 200 damaged files. The
helper stays up between requests (its start takes about a second) and forks for each.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading

from pullback_runtime import _module, _safe_parse_worker as worker
from pullback_runtime._container import ArtifactError

SECONDS = 10
SECONDS_PER_MEBIBYTE = 2
# With -P, for a `json.py` in the working directory would run before the path is set.
_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); \
from pullback_runtime import _safe_parse_worker; _safe_parse_worker.main()"

_lock = threading.Lock()
_process: subprocess.Popen[bytes] | None = None


def parse_elsewhere(content: bytes) -> bytes:
    """Parse a module in the helper process; return it as plain bytecode.

    Raises: ArtifactError when it is refused there, crashes there, or takes too long.
    """
    return _ask(worker.MODULE, content)


def parse_exported_elsewhere(content: bytes) -> bytes:
    """Parse a `jax.export` file in the helper process; return its module as plain bytecode."""
    return _ask(worker.EXPORTED, content)


def _ask(kind: bytes, content: bytes) -> bytes:
    # Some hundred times what a sound file of this size takes.
    seconds = SECONDS + SECONDS_PER_MEBIBYTE * (len(content) >> 20)
    with _lock:
        try:
            status, answer = _exchange(kind, content, seconds)
        except (OSError, EOFError) as error:
            stop()
            raise ArtifactError(
                f"the helper process that tries files of unknown origin ended: {error}",
                do="load once more; is there memory for a second process?",
            ) from error
    if status == worker.PARSED:
        return answer
    raise _refusal(status, answer.decode("utf-8", "replace"), seconds, len(content))


def _refusal(status: bytes, detail: str, seconds: int, size: int) -> ArtifactError:
    message = {
        worker.REFUSED: f"the file does not parse: {_module.without_flags(detail)}",
        worker.CRASHED: f"the file crashes the parser ({detail}), tried in a process of its own",
        worker.TOO_SLOW: f"the file does not parse within {seconds} seconds",
    }[status]
    do = (
        _module.remedy_of(detail)
        or "it must be StableHLO text, bytecode, or what jax.export serialised, undamaged"
    )
    return ArtifactError(message, where=f"a file of {size} bytes without pullback's digest", do=do)


def _exchange(kind: bytes, content: bytes, seconds: int) -> tuple[bytes, bytes]:
    process = _running()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(worker.REQUEST.pack(kind, seconds, len(content)))
    process.stdin.write(content)
    process.stdin.flush()
    head = process.stdout.read(worker.ANSWER.size)
    if len(head) < worker.ANSWER.size:
        raise EOFError("no answer")
    status, length = worker.ANSWER.unpack(head)
    return status, process.stdout.read(length)


def _running() -> subprocess.Popen[bytes]:
    global _process
    if _process is None or _process.poll() is not None:
        _process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "JAX_PLATFORMS": "cpu", **_strict_heap()},
        )
        atexit.register(stop)
    return _process


def _strict_heap() -> dict[str, str]:
    """Return the environment in which glibc checks its heap and aborts on corruption."""
    return {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3"}


def stop() -> None:
    """End the helper process, if it runs."""
    global _process
    process, _process = _process, None
    if process is not None:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
