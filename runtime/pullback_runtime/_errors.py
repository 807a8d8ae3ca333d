"""Every exception the runtime raises: what happened, where in your program, what to do."""

from __future__ import annotations


class PullbackRuntimeError(RuntimeError):
    """Base of the runtime's errors; its text has up to three parts.

    Example:
        BackendNotFoundError: no backend 'tpu'; present: 'cpu'
          where: compile(backend='tpu')
          do:    pip install "jax[tpu]" on a machine that has one
    """

    def __init__(self, message: str, *, where: str | None = None, do: str | None = None) -> None:
        self.message = message
        self.where = where
        self.do = do
        super().__init__(self._text())

    def _text(self) -> str:
        text = self.message
        if self.where is not None:
            text += f"\n  where: {self.where}"
        if self.do is not None:
            text += f"\n  do:    {self.do}"
        return text


class BackendNotFoundError(PullbackRuntimeError):
    """The backend, device or topology asked for is not on this machine."""


class EngineNotFoundError(PullbackRuntimeError, ImportError):
    """The engine that is to run a program is not installed."""


class ModuleError(PullbackRuntimeError):
    """The module cannot be read, or is not a program this runtime can call."""


class CompileError(PullbackRuntimeError):
    """XLA refused the module."""


class ArgumentError(PullbackRuntimeError, TypeError):
    """A call's arguments do not fit the module: their count, tree, shape or dtype."""


class DimensionError(ArgumentError, ValueError):
    """A call's arguments do not fit the symbolic dimensions of a program, or a constraint."""


class MissingTransformError(PullbackRuntimeError, NotImplementedError):
    """A compiled module was differentiated or batched without a rule, or checked by `checkify`."""


class ErasureError(PullbackRuntimeError):
    """A pass has erased what something still uses: a mistake of the pass, or of a rule."""
