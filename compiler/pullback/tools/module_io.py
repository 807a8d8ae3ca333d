"""Read and write modules: text, MLIR bytecode, and StableHLO portable artifacts."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pullback import _jax
from pullback._jax import ir
from pullback.errors import PullbackError
from pullback.files.errors import as_ours
from pullback.ir.ops import restore_symbol_refs, walk_composites
from pullback_runtime.files import _artifact, _container, _symbolic
from pullback_runtime.ir import _mhlo, _module

SPLIT_MARKER = re.compile(r"^// -----.*$", re.MULTILINE)
_PIPELINE_RESOURCE = re.compile(r'^\s*pipeline: "((?:[^"\\]|\\.)*)"', re.MULTILINE)


def standard_input() -> bytes:
    """Return all of standard input; b"" if a shell has closed it."""
    return sys.stdin.buffer.read() if sys.stdin is not None else b""


def read_bytes(path: str) -> bytes:
    """Return the content of a file, or of standard input for `-`.

    Raises:
      PullbackError: when it cannot be read.
    """
    if path == "-":
        return standard_input()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PullbackError(f"cannot read {path}: {error.strerror}") from error


def write_bytes(path: str, content: bytes) -> None:
    """Write a file, or standard output for `-`.

    Raises:
      PullbackError: when it cannot be written.
    """
    try:
        if path == "-":
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            Path(path).write_bytes(content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PullbackError(f"cannot write {path}: {error.strerror}") from error


def is_text(content: bytes) -> bool:
    """Return True if this may be text: what `jax.export` serialised has a NUL."""
    return b"\0" not in content


def is_export(content: bytes | str) -> bool:
    """Return True if this is what `jax.export` serialised."""
    return isinstance(content, bytes) and not (_container.is_bytecode(content) or is_text(content))


def parse_module(content: bytes | str, name: str = "-") -> ir.Module:
    """Parse text, bytecode, a portable artifact, or what `jax.export` serialised, to a module.

    Rule names that a portable artifact holds as strings become symbol references again.

    Args:
      name: of the file, for the locations of a text.

    Raises:
      ir.MLIRError: with MLIR's diagnostics for bad text.
      PullbackError: for content that is neither text nor whole bytecode.
    """
    context = _jax.context()
    with context:
        if isinstance(content, bytes) and _container.is_bytecode(content):
            return _parse_bytecode(content, context)
        if is_export(content):
            with as_ours():
                return _artifact.open_module(content, context).module
        text = decode(content) if isinstance(content, bytes) else content
        module = ir.Module.parse(text, context)
    if _mhlo.may_be_in(text.encode()):
        _mhlo.read(module)
    _module.end_in_func_return(module)
    _module.name_locations(module, name)
    return module


@contextlib.contextmanager
def unregistered_dialects(allowed: bool) -> Iterator[None]:
    """Let the context of new modules take ops, types and attributes of any dialect meanwhile."""
    context = _jax.context()
    before = context.allow_unregistered_dialects
    context.allow_unregistered_dialects = allowed or before
    try:
        yield
    finally:
        context.allow_unregistered_dialects = before


def dialects() -> list[str]:
    """Return the names of the dialects that can be read, as MLIR lists them in an error."""
    try:
        ir.Module.parse("nowhere.nothing", _jax.context())
    except ir.MLIRError as error:
        notes = [note.message for each in error.error_diagnostics for note in each.notes]
        listed = re.search(r"Available dialects: (.*?);", " ".join(notes))
        if listed is not None:
            return re.sub(r" \(.*?\)", "", listed[1]).split(", ")
    raise PullbackError("this jaxlib does not tell its dialects")


def check_roundtrip(module: ir.Module) -> None:
    """Check that a module is the same after its text is parsed, and after its bytecode is.

    Raises:
      PullbackError: it is not.
    """
    text = module.operation.get_asm(enable_debug_info=True)
    for form, written in (("text", text), ("bytecode", _module.to_bytecode(module))):
        again = ir.Module.parse(written, module.context).operation.get_asm(enable_debug_info=True)
        if again != text:
            changed = next(
                (pair for pair in zip(text.splitlines(), again.splitlines()) if len({*pair}) > 1),
                ("", ""),
            )
            raise PullbackError(
                f"the module is another one after a round trip through {form}",
                where="first in the line `{}`, which becomes `{}`".format(*changed),
            )


def _parse_bytecode(content: bytes, context: ir.Context) -> ir.Module:
    """Parse bytecode after checking it: MLIR's reader crashes on some damaged files."""
    with as_ours():
        checked = _artifact.checked(content)
        if _symbolic.METADATA in (_container.read_layout(content).metadata or {}):
            raise PullbackError(
                "the file is of a program with symbolic dimensions, which is a module for each "
                "set of sizes",
                do="give sizes: pullback dump FILE --sizes b=4 | pullback opt … -",
            )
        module = _module.parse(checked, context)
    _artifact.forget_file(module)
    restore_symbol_refs(walk_composites(module))
    return module


def decode(content: bytes) -> str:
    """Decode the text of a file.

    Raises:
      PullbackError: when it is not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PullbackError(
            f"the input is neither MLIR bytecode nor UTF-8 text: byte {error.start} "
            f"is 0x{content[error.start]:02x}"
        ) from error


def split(text: str) -> Iterator[str]:
    """Yield the parts between `// -----` lines, each padded so that its line numbers stay true."""
    position = 0
    for marker in SPLIT_MARKER.finditer(text):
        yield _padded(text, position, marker.start())
        position = marker.end()
    yield _padded(text, position, len(text))


def _padded(text: str, start: int, end: int) -> str:
    return "\n" * text.count("\n", 0, start) + text[start:end]


def pipeline_of_reproducer(text: str) -> str:
    """Return the pipeline that a reproducer file holds.

    Raises:
      PullbackError: when there is none.
    """
    match = _PIPELINE_RESOURCE.search(text)
    if match is None:
        raise PullbackError("the file is no reproducer: it holds no `pipeline:` resource")
    return match[1].replace('\\"', '"').replace("\\\\", "\\")
