"""The helper process in which a module of unknown origin is parsed first.

Run with `python -m pullback_runtime._safe_parse_worker`. It reads requests from standard input and
forks once per request, so neither a crash nor a damaged heap outlives the module that caused
it. A module that parses is written out anew: the asking process never parses the bytes it was
given, only what MLIR's own writer made of them.

Frames: a request is `kind (1 byte), seconds (4), length (8), content`; an answer is
`status (1), length (8), content`, little-endian.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import sys
import tempfile
from collections.abc import Iterable
from typing import IO, Any

import jax.export

from pullback_runtime import _jax, _module
from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir

REQUEST = struct.Struct("<cIQ")
ANSWER = struct.Struct("<cQ")
MODULE, EXPORTED = b"m", b"e"
PARSED, REFUSED, CRASHED, TOO_SLOW = b"p", b"r", b"c", b"t"

QUANTIZED = b"\0quant\0"  # as bytecode spells the name of a dialect, or of anything else

# An op takes some 20 times the room in memory that it takes in the file.
MEMORY_PER_BYTE = 32
MEMORY_FLOOR = 256 << 20


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    context = _quiet_context()
    while request := sys.stdin.buffer.read(REQUEST.size):
        kind, seconds, length = REQUEST.unpack(request)
        content = sys.stdin.buffer.read(length)
        status, answer = _try_in_child(kind, content, seconds, context)
        answers.write(ANSWER.pack(status, len(answer)))
        answers.write(answer)
        answers.flush()


def _quiet_context() -> ir.Context:
    """Return a context without threads, because threads do not survive a fork."""
    context = _jax.make_ir_context()
    context.enable_multithreading(False)
    return context


def _try_in_child(
    kind: bytes, content: bytes, seconds: int, context: ir.Context
) -> tuple[bytes, bytes]:
    with tempfile.TemporaryFile() as result:
        child = os.fork()
        if child == 0:
            _run_child(kind, content, seconds, context, result)
        _, status = os.waitpid(child, 0)
        result.seek(0)
        if os.WIFSIGNALED(status):
            crash = os.WTERMSIG(status)
            return (TOO_SLOW if crash == signal.SIGALRM else CRASHED), signal.Signals(
                crash
            ).name.encode()
        return (PARSED if status == 0 else REFUSED), result.read()


def _run_child(
    kind: bytes, content: bytes, seconds: int, context: ir.Context, result: IO[bytes]
) -> None:
    """Parse within the limits, write the outcome, and exit without any clean-up."""
    try:
        signal.alarm(seconds)
        _limit_memory(len(content))
        parse = _exported if kind == EXPORTED else _parsed
        result.write(parse(content, context))
        code = 0
    except BaseException as error:
        reason = error.__cause__ if isinstance(error, ModuleError) else None
        result.write(f"{reason or f'{type(error).__name__}: {error}'}"[:2000].encode())
        code = 1
    result.flush()
    os._exit(code)


def _limit_memory(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    limit = used + MEMORY_FLOOR + MEMORY_PER_BYTE * size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _parsed(content: bytes, context: ir.Context) -> bytes:
    """Parse text, bytecode or a portable artifact; return plain bytecode."""
    module = _module.parse(content, context)
    module.operation.verify()
    module.operation.walk(_read_names)
    written = _module.to_bytecode(module)
    if QUANTIZED in written and "!quant." in _spelt(module):
        # For portable artifacts, the parser has loaded that dialect.
        raise ValueError("it has types of an unregistered dialect, quant")
    return written


def _spelt(module: ir.Module) -> str:
    """Print a module without large constants."""
    return module.operation.get_asm(large_elements_limit=8, large_resource_limit=8)


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


def _exported(content: bytes, context: ir.Context) -> bytes:
    """Parse a `jax.export` file; return the module inside as plain bytecode."""
    exported = jax.export.deserialize(bytearray(content))
    return _parsed(bytes(exported.mlir_module_serialized), context)


if __name__ == "__main__":
    main()
