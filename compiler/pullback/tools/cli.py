"""Define `pullback`: the group of subcommands, and how errors look on the command line."""

from __future__ import annotations

import errno
import importlib
from typing import Any

import click
import jax

from pullback.errors import PullbackError, UsageError
from pullback.tools.show import show_error
from pullback_runtime import PullbackRuntimeError, __version__

# Subcommand -> where its click command is; imported when asked for.
COMMANDS = {
    "check": "pullback.tools.check:check",
    "compile": "pullback.tools.compile:compile",
    "derive": "pullback.tools.derive:derive",
    "dump": "pullback.tools.dump:dump",
    "info": "pullback.tools.info:info",
    "opt": "pullback.tools.opt:opt",
    "run": "pullback.tools.run:run",
}
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


class Commands(click.Group):
    """A group that imports a subcommand on demand, and reports errors of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return getattr(importlib.import_module(module), name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (PullbackError, PullbackRuntimeError) as error:
            raise ReportedError(error) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise ReportedError(UsageError(f"cannot write the output: {error.strerror}")) from error
        except MemoryError as error:
            raise ReportedError(UsageError(f"out of memory: {error}")) from error


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message=f"pullback %(version)s, with jax {jax.__version__}")
def main() -> None:
    """JAX programs as MLIR modules that keep their derivative rules."""


if __name__ == "__main__":
    main(prog_name="pullback")
