"""The helper process in which a module of unknown origin is parsed first.

It reads requests from standard input and forks once per request, so neither a crash nor a damaged
heap outlives the module that caused it; where there is no fork, it ends after its first answer. A
module that parses is written out anew: the asking process never parses the bytes it was given, only
what MLIR's own writer made of them.

Frames: the process writes READY for each request. A request is `kind (1 byte), seconds (4), length
(8), content`; an answer is `status (1), length (8), content`, little-endian.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import signal
import struct
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from pullback_runtime import _mlir
from pullback_runtime._mlir import ir
from pullback_runtime.files._container import is_portable, read_layout

REQUEST = struct.Struct("<cIQ")
ANSWER = struct.Struct("<cQ")
MODULE, EXPORTED, PORTABLE = b"m", b"e", b"p"
READY, PARSED, REFUSED, CRASHED, TOO_SLOW = b"y", b"p", b"r", b"c", b"t"
TIME_IS_UP = 1
"""The exit status that `faulthandler` gives."""

QUANTIZED = b"\0quant\0"  # as bytecode spells the name of a dialect, or of anything else

# An op takes some 20 times the room in memory that it takes in the file.
MEMORY_PER_BYTE = 32
MEMORY_FLOOR = 256 << 20


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    context = _mlir.fresh_context()  # without threads, because threads do not survive a fork
    can_fork = hasattr(os, "fork")
    while True:
        answers.write(READY)
        answers.flush()
        if not (request := sys.stdin.buffer.read(REQUEST.size)):
            break
        kind, seconds, length = REQUEST.unpack(request)
        content = sys.stdin.buffer.read(length)
        if kind == EXPORTED:
            importlib.import_module("jax.export")
        answer = _answer_of_child if can_fork else _answer
        status, found = answer(kind, content, seconds, context)
        answers.write(ANSWER.pack(status, len(found)) + found)
        answers.flush()
        if not can_fork:
            break


def _answer_of_child(
    kind: bytes, content: bytes, seconds: int, context: ir.Context
) -> tuple[bytes, bytes]:
    with tempfile.TemporaryFile() as result:
        child = os.fork()
        if child == 0:
            _limit_memory(len(content))
            result.write(b"".join(_answer(kind, content, seconds, context)))
            result.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        result.seek(0)
        if os.WIFSIGNALED(status):
            return CRASHED, signal.Signals(os.WTERMSIG(status)).name.encode()
        if os.WEXITSTATUS(status) == TIME_IS_UP:
            return TOO_SLOW, b""
        return result.read(1), result.read()


def _limit_memory(size: int) -> None:
    """Limit the memory of this process, where Linux counts it."""
    with contextlib.suppress(ImportError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        limit = used + MEMORY_FLOOR + MEMORY_PER_BYTE * size
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _answer(kind: bytes, content: bytes, seconds: int, context: ir.Context) -> tuple[bytes, bytes]:
    """Parse within the time; return the status and the new bytes, or why it does not parse."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return PARSED, _written(kind, content, context)
    except BaseException as error:
        return REFUSED, f"{type(error).__name__}: {error}"[:2000].encode()
    finally:
        faulthandler.cancel_dump_traceback_later()


def _written(kind: bytes, content: bytes, context: ir.Context) -> bytes:
    """Parse text, bytecode, a portable artifact or an export; return plain bytecode.

    PORTABLE asks for a portable artifact of the same version instead.
    """
    if kind == EXPORTED:
        exported = importlib.import_module("jax.export").deserialize(bytearray(content))
        content = bytes(exported.mlir_module_serialized)
    module = _mlir.parse(content, is_portable(content), context)
    module.operation.verify()
    module.operation.walk(_read_names)
    written = _mlir.to_bytecode(module)
    if kind == PORTABLE:
        version = read_layout(content).stablehlo_version or _mlir.stablehlo.get_current_version()
        with context, ir.Location.unknown():
            return bytes(_mlir.stablehlo.serialize_portable_artifact(module, version))
    if QUANTIZED in written and "!quant." in _spelt(module):
        # For portable artifacts, the parser has loaded that dialect.
        raise ValueError("it has types of an unregistered dialect, quant")
    return written


def _spelt(module: ir.Module) -> str:
    """Print a module without large constants."""
    return str(module.operation.get_asm(large_elements_limit=8, large_resource_limit=8))


def _read_names(op: ir.Operation) -> ir.WalkResult:
    """Read every attribute's name: the bindings end the process on one that is not UTF-8."""
    attributes = op.attributes
    _read_entries(attributes, map(attributes.__getitem__, range(len(attributes))))
    return ir.WalkResult.ADVANCE


def _read_entries(entries: Any, named: Iterable[ir.NamedAttribute]) -> None:
    for name in [entry.name for entry in named]:
        with contextlib.suppress(TypeError):  # the bindings have no class for complex arrays
            _read_nested_names(entries[name])


def _read_nested_names(attribute: ir.Attribute) -> None:
    if isinstance(attribute, ir.DictAttr):
        _read_entries(attribute, attribute)
    elif isinstance(attribute, ir.ArrayAttr):
        for item in attribute:
            _read_nested_names(item)
