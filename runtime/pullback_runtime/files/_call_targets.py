"""Custom calls and transfers that no file may make, told from their names alone, without MLIR."""

from __future__ import annotations

import re

from pullback_runtime.files._container import ArtifactError

_MARKS = b"custom_call", b"infeed", b"outfeed", b"recv", b"send"
"""A module in bytes without one of these has no such op."""

_TRANSFER = re.compile(r"(infeed|outfeed|send|recv)_v\d+")
"""Transfers, as the strings of a file name them."""

_PYTHON = re.compile(r"xla_\w*python_\w*callback")
OTHERS_OF_PROCESS = frozenset({"CustomSPMDPartitioning", "InspectSharding", "tf.call_tf_function"})
"""They take the address of a Python object, or look a function up by its number."""


def may_be_in(names: bytes) -> bool:
    """Return False for the strings of a module that surely has no custom calls or transfers."""
    return any(mark in names for mark in _MARKS)


def is_of_process(target: str) -> bool:
    """Return True if a target refers to an object of the process that made the module."""
    return target in OTHERS_OF_PROCESS or _PYTHON.fullmatch(target) is not None


def check_names(strings: bytes) -> None:
    """Raise ArtifactError if a file may exchange values with the process that made it.

    Args:
      strings: the section of strings of the file, in which each ends with NUL.
    """
    if not may_be_in(strings):
        return
    for name in strings.decode("utf-8", "replace").split("\0"):
        if _TRANSFER.fullmatch(name):
            raise transfer_refused(name.partition("_v")[0], None)
        if is_of_process(name):
            raise call_refused(name, None)


def transfer_refused(op: str, where: str | None) -> ArtifactError:
    """Return the error for an op that exchanges values with the host."""
    return ArtifactError(
        f"the file has `{op}`, which exchanges values with the process that made it",
        where=where,
        do="make the values arguments and results of the program, and save it again",
    )


def call_refused(target: str, where: str | None) -> ArtifactError:
    """Return the error for a call of an object of the process that made the file."""
    return ArtifactError(
        f"the file calls `{target}`, which means something only in the process that made it",
        where=where,
        do="take the callback, or what else is of that process, out of the function, and "
        "save it again",
    )
