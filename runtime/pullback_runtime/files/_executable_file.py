"""A file of machine code: what an engine has compiled, what it fits, and the program it is of.

Nothing is parsed but JSON, and no code is loaded, before all of the file has its digest and the
engine that is to run it is the one that made it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback_runtime._version import __version__
from pullback_runtime.files._container import ArtifactError

MAGIC = b"PULLBACK-EXECUTABLE\0"
HEAD = struct.Struct("<32sQQQ")
COMPILE_AGAIN = "compile it again: pullback compile FILE -o model.exe"


@dataclass(frozen=True)
class ExecutableFile:
    """The content of a file of machine code.

    `identity` has the versions and the device for which the code was made, and `entry` is the
    program of the file `program` that it runs.
    """

    identity: dict[str, str]
    entry: str
    program: bytes
    code: bytes

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file in one step: a kill at any moment leaves the old file or the new one."""
        head = {"pullback": __version__, "identity": self.identity, "entry": self.entry}
        text = json.dumps(head).encode()
        body = b"".join((text, self.program, self.code))
        sizes = len(text), len(self.program), len(self.code)
        digest = _digest(sizes, body)
        new = Path(f"{os.fspath(path)}.{os.getpid()}.new")
        try:
            new.write_bytes(MAGIC + HEAD.pack(digest, *sizes) + body)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)

    def difference(self, here: dict[str, str]) -> str | None:
        """Say in what the engine here differs from the one that made the code; None if it fits."""
        for name in {**self.identity, **here}:
            made, found = self.identity.get(name, "none"), here.get(name, "none")
            if made != found:
                return f"it was made for {name} {made}, and here is {found}"
        return None


def is_executable(content: Any) -> bool:
    """Return True if the bytes begin like a file of machine code."""
    return bytes(content[: len(MAGIC)]) == MAGIC


def read(content: Any) -> ExecutableFile:
    """Read a file of machine code; raise ArtifactError when it is damaged, or is none."""
    content = bytes(content)
    if not is_executable(content):
        raise ArtifactError(
            "this is no file of machine code that pullback compiled",
            do="pullback_runtime.load reads programs; " + COMPILE_AGAIN,
        )
    body = content[len(MAGIC) + HEAD.size :]
    try:
        digest, *sizes = HEAD.unpack_from(content, len(MAGIC))
    except struct.error as error:
        raise _damaged() from error
    if sum(sizes) != len(body) or digest != _digest(sizes, body):
        raise _damaged()
    text, program = body[: sizes[0]], body[sizes[0] : sizes[0] + sizes[1]]
    head = json.loads(text)
    return ExecutableFile(head["identity"], head["entry"], program, body[sizes[0] + sizes[1] :])


def _digest(sizes: Any, body: bytes) -> bytes:
    return hashlib.sha256(struct.pack("<QQQ", *sizes) + body).digest()


def _damaged() -> ArtifactError:
    return ArtifactError("the file of machine code is damaged", do=COMPILE_AGAIN)


def refuse_executable(content: Any) -> None:
    """Raise ArtifactError for machine code, where a program is expected."""
    if is_executable(content):
        raise ArtifactError(
            "this is machine code that `pullback compile` wrote, and no program",
            do="if you trust who made it: pullback_runtime.load_executable(file)",
        )
