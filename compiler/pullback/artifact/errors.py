"""What goes wrong with files, as errors of pullback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pullback._errors import PullbackError
from pullback_runtime import _container


class ArtifactError(PullbackError, _container.ArtifactError):
    """A file cannot be loaded, or a program cannot be saved.

    It is the runtime's `ArtifactError` as well: one `except` catches both.
    """


class NotPortableError(ArtifactError):
    """The program holds something that exists in this process only, such as a callback."""


@contextlib.contextmanager
def as_ours() -> Iterator[None]:
    """Raises what the runtime finds wrong with a file as an error of the compiler."""
    try:
        yield
    except _container.ArtifactError as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(error.message, where=error.where, do=error.do) from error
