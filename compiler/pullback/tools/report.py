"""Run the body of a command, and report the errors of this package in their form."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import click

from pullback.errors import PullbackError, UsageError
from pullback.tools.show import show_error
from pullback_runtime import PullbackRuntimeError

BAD_INPUT = 2


class ReportedError(click.ClickException):
    """An error of this package on its way to the terminal."""

    exit_code = BAD_INPUT

    def __init__(self, error: PullbackError | PullbackRuntimeError):
        super().__init__(error.message)
        self.error = error

    def show(self, file: Any = None) -> None:
        del file
        show_error(self.error)


def reporting(function: Callable[..., None], arguments: dict[str, Any]) -> None:
    """Call a function; raise its errors of this package, and of the machine, as ReportedError."""
    try:
        function(**arguments)
    except (PullbackError, PullbackRuntimeError) as error:
        raise ReportedError(error) from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise ReportedError(UsageError(f"cannot write the output: {error.strerror}")) from error
    except MemoryError as error:
        raise ReportedError(UsageError(f"out of memory: {error}")) from error
