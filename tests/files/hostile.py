"""Load saved files of which random bytes are changed, and the digest recomputed, in one process.

    python -m tests.files.hostile FIRST LAST

For each seed one to four bytes of a sound file change. It prints how many of these were read.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from click.testing import CliRunner

import pullback as pb
import pullback_cli
import pullback_runtime
from pullback import artifact
from pullback_runtime.files import _container, _portable
from tests.files import models


def with_constants() -> pb.Program:
    """A program with constants that are read without MLIR."""
    arrays = [models.weights(1 << 20) + i for i in range(4)]
    return pb.trace(lambda x: sum(jnp.sum(jnp.sin(each * x)) for each in arrays))(np.float32(1))


def with_symbols() -> pb.Program:
    (size,) = jax.export.symbolic_shape("b", constraints=["b >= 2"])
    return pb.trace(lambda x: models.doubled_sine(x) * 2)(jax.ShapeDtypeStruct((size,), "float32"))


MAKERS: dict[str, Callable[[], pb.Program]] = {
    "small": models.program,
    "constants": with_constants,
    "symbols": with_symbols,
}
KINDS = "small", "small", "small", "small", "constants", "symbols"
"""The kind of file by seed: the small one has all kinds of attributes."""
LARGE = 1 << 20
"""Bytes of a section of constants: a change within an array makes another sound file."""


WITHOUT_FOLDERS = "jax_hlo_source_file_canonicalization_regex"


@functools.cache
def sound(kind: str) -> bytes:
    """A file whose bytes are the same wherever this folder is: a seed changes the same ones."""
    before = getattr(jax.config, WITHOUT_FOLDERS)
    jax.config.update(WITHOUT_FOLDERS, ".*/")
    try:
        return bytes(artifact.serialize(MAKERS[kind]()))
    finally:
        jax.config.update(WITHOUT_FOLDERS, before)


def sealed(content: bytearray) -> bytes:
    """A content with the digest that it must have."""
    at = content.find(_container.DIGEST_PREFIX)
    if at >= 0:
        start = at + len(_container.DIGEST_PREFIX)
        content[start : start + 64] = _container.fingerprint(bytes(content), at).encode()
    return bytes(content)


def hostile(seed: int) -> bytes:
    """A sound file with one to four random bytes outside of large constants changed."""
    chance = random.Random(seed)
    content = bytearray(sound(KINDS[seed % len(KINDS)]))
    parts = [part for part in _container.sections(content) if part.end - part.start < LARGE]
    places = [range(part.head, part.end) for part in parts]
    for _ in range(chance.randint(1, 4)):
        (place,) = chance.choices(places, map(len, places))
        content[chance.choice(place)] = chance.randrange(256)
    return sealed(content)


def info(content: bytes) -> None:
    """Run `pullback info`, which prints an error of ours."""
    result = CliRunner().invoke(pullback_cli.main, ["info", "-"], input=content)
    if isinstance(result.exception, SystemExit) and result.exception.code:
        raise pb.PullbackError(result.output)
    if result.exception is not None:
        raise result.exception


READERS: dict[str, Callable[[bytes], object]] = {
    "pb.load": lambda content: str(pb.load(content)),
    "info": info,
    "runtime": lambda content: pullback_runtime.load(content).describe(),
    "without JAX": lambda content: _portable.read_whole(content).metadata,
}


def main() -> None:
    """Read the files of some seeds in each way, and print how many could be read so."""
    first, last = map(int, sys.argv[1:])
    read = dict.fromkeys(READERS, 0)
    for seed in range(first, last):
        content = hostile(seed)
        for name, reader in READERS.items():
            try:
                reader(content)
                read[name] += 1
            except (pb.PullbackError, pullback_runtime.PullbackRuntimeError):
                pass
            except BaseException as error:
                print(seed, name, type(error), flush=True)
                raise
    print(last - first, read)


if __name__ == "__main__":
    main()
