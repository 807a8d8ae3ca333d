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
    """XLA rejected the module."""


class ArgumentError(PullbackRuntimeError, TypeError):
    """A call's arguments do not fit the module: their count, tree, shape or dtype."""


class DimensionError(ArgumentError, ValueError):
    """A call's arguments do not fit the symbolic dimensions of a program, or a constraint."""


class MissingTransformError(PullbackRuntimeError, NotImplementedError):
    """A compiled module was differentiated or batched without a rule, or checked by `checkify`."""


class MissingMethodError(MissingTransformError, AttributeError):
    """A program of the runtime was asked for a derivative, which only the compiler derives."""


_OF_COMPILER = frozenset(
    {"grad", "jvp", "linearize", "split_vjp", "transpose", "value_and_grad", "vjp", "vmap"}
)


def missing_attribute(program: object, name: str) -> AttributeError:
    """Return the error for an attribute that a program does not have, such as `grad`."""
    kind = type(program).__name__
    if name not in _OF_COMPILER:
        return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=program)
    return MissingMethodError(
        f"a program that the runtime has loaded has no .{name}(): the runtime runs programs, and "
        "derives none",
        where=f"{kind}.{name}",
        do=f"load it with the compiler, pullback.load(file).{name}(), or save what that returns "
        f"and load it here (in a shell: pullback derive)",
    )


class ErasureError(PullbackRuntimeError):
    """A pass has erased what something still uses: a mistake of the pass, or of a rule."""
