"""Errors of files, as errors of pullback."""

from __future__ import annotations

from typing import Any

from pullback._jax import ir
from pullback.errors import PullbackError
from pullback_runtime._errors import ModuleError
from pullback_runtime.files import _container


class ArtifactError(PullbackError, _container.ArtifactError):
    """Raised where a file cannot be loaded, or a program cannot be saved.

    It is the runtime's `ArtifactError` as well: one `except` catches both.
    """


class NotPortableError(ArtifactError):
    """Raised where a program holds what exists in this process only, such as a callback."""


def check_valid(module: ir.Module, words: str, do: str) -> None:
    """Raise ArtifactError, with these words and MLIR's message, if a module does not verify."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise ArtifactError(f"{words}: {error}", do=do) from error


class as_ours:
    """Run the body, and raise the runtime's errors about files and modules as our ArtifactError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        theirs = (_container.ArtifactError, ModuleError)
        if isinstance(error, theirs) and not isinstance(error, ArtifactError):
            raise ArtifactError(error.message, where=error.where, do=error.do) from error
