"""Program: a module, the argument trees of the function it came from, and its rules."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import jax
from jax.tree_util import PyTreeDef

from pullback import _jax
from pullback._errors import PullbackError
from pullback._jax import ir
from pullback.frontend.rules import RuleTable
from pullback_runtime import _trees


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A function as an MLIR module that keeps its derivative rules.

    Calling it runs it, with the arguments of the function it was traced from.

    Attributes:
      module: the MLIR module; its entry is `@main`.
      in_tree: the structure of `(args, kwargs)`, without static arguments.
      out_tree: the structure of the result.
      in_avals: shape and dtype of each leaf of the arguments.
      out_avals: shape and dtype of each leaf of the result.
      arg_paths: the name of each leaf of the arguments, such as `params['w']`.
      constants: large arrays that the function closed over: hidden leading arguments of `@main`.
      rules: the derivative rules that are not in the module yet.
    """

    module: ir.Module
    in_tree: PyTreeDef
    out_tree: PyTreeDef
    in_avals: tuple[jax.ShapeDtypeStruct, ...]
    out_avals: tuple[jax.ShapeDtypeStruct, ...]
    arg_paths: tuple[str, ...]
    constants: tuple[jax.Array, ...]
    rules: RuleTable

    def __str__(self) -> str:
        return self.asm()

    def __repr__(self) -> str:
        arguments = ", ".join(
            f"{path}: {_type(aval)}"
            for path, aval in zip(self.arg_paths, self.in_avals, strict=True)
        )
        results = ", ".join(map(_type, self.out_avals))
        return f"Program(({arguments}) -> ({results}))"

    def asm(self, debug_info: bool = False) -> str:
        """The module as readable MLIR, with source locations if `debug_info`."""
        return self.module.operation.get_asm(enable_debug_info=debug_info, assume_verified=True)

    def stage_rules(self) -> Program:
        """Writes every rule that a derivative of any order can need into the module, now."""
        self.rules.stage_all(self.module)
        return self

    def run_passes(self, pipeline: str, **instrumentation: Any) -> Program:
        """Runs a textual pipeline such as `cse,lower-custom-derivatives` on the module, in place.

        The pipeline must not change the types of `@main`.
        """
        from pullback.passes import manager

        manager.run_pipeline(self.module, pipeline, self.rules, **instrumentation)
        return self

    def compile(self, backend: str | None = None, **options: Any) -> CompiledProgram:
        """Compiles the program for 'cpu', 'cuda', 'rocm' or 'tpu'.

        Args:
          backend: by default, JAX's default backend.
          options: further options of `pullback_runtime.compile`: `device`, `topology`.
        """
        import pullback_runtime

        hidden = tuple(f"constant {number}" for number in range(len(self.constants)))
        executable = pullback_runtime.compile(
            self.module,
            backend=backend,
            arg_names=(*hidden, *self.arg_paths),
            host_callbacks=self.rules.host_callbacks,
            keepalives=self.rules.keepalives,
            **options,
        )
        return CompiledProgram(self, executable)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        platforms: Sequence[str] | None = None,
    ) -> None:
        """Writes one portable file that `pullback.load` reads; see `pullback.artifact.save`."""
        from pullback import artifact

        artifact.save(self, path, target=target, platforms=platforms)

    def to_exported(self, *, platforms: Sequence[str] | None = None) -> Any:
        """A `jax.export.Exported` whose own `vjp` goes through the program's rules."""
        from pullback import artifact

        return artifact.to_exported(self, platforms=platforms)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    @functools.cached_property
    def _compiled(self) -> CompiledProgram:
        return self.compile()

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments of `@main`: hidden constants, then the leaves of the call's arguments."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.in_tree and _trees.has_fields(self.in_tree):
            leaves = _trees.flatten_arguments(self.in_tree, (args, kwargs))
        elif tree != self.in_tree:
            raise PullbackError(
                f"the arguments do not have the structure that the program was traced with\n"
                f"    expected: {self.in_tree}\n    got:      {tree}",
                where=f"leaves expected: {', '.join(self.arg_paths)}",
                do="leave out static arguments, and pass the same containers and keywords",
            )
        return [*self.constants, *map(_jax.physical, leaves)]

    def unflatten(self, results: Sequence[Any]) -> Any:
        """The result of the function from the results of `@main`."""
        leaves = map(_jax.logical, results, self.out_avals)
        return jax.tree.unflatten(self.out_tree, leaves)


@dataclasses.dataclass(frozen=True)
class CompiledProgram:
    """A Program compiled for one backend; call it with the program's arguments."""

    program: Program
    executable: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.program.unflatten(self.executable(*self.program.flatten(args, kwargs)))

    def __getattr__(self, name: str) -> Any:
        """`cost`, `memory`, `hlo` and all else that `pullback_runtime.Executable` has."""
        return getattr(self.executable, name)


def _type(aval: jax.ShapeDtypeStruct) -> str:
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"
