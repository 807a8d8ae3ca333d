"""Program: a module, the argument trees of the function it came from, and its rules."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax

import pullback_runtime
from pullback._jax import prng_keys, tracing
from pullback.errors import PullbackError
from pullback.ir.modules import clone, type_of_entry
from pullback.passes import manager
from pullback.passes.as_run import as_run
from pullback.passes.pipelines import parse_pipeline
from pullback.program import (
    batches,
    derivation,
    handles,
    hooks,
    static_parts,
)
from pullback.program.argument_leaves import Positions, one_of
from pullback.program.memory_budget import Memory
from pullback.program.provenance import PlatformModule
from pullback.program.record import Record, here, positions_by_argument
from pullback_runtime._errors import ArgumentError
from pullback_runtime.call import _backend, _jax_trees
from pullback_runtime.call._arguments import CallSignature, in_positions
from pullback_runtime.call._compile import compile_call
from pullback_runtime.call._convention import Callee
from pullback_runtime.call._jax_arguments import refit


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Program(Record):
    """A function as an MLIR module that keeps its derivative rules.

    Calling it runs it, with the arguments of the function it was traced from.

    """

    def __copy__(self) -> Program:
        return dataclasses.replace(self)

    def stage_rules(self) -> Program:
        """Return the program with every rule in its module that a derivative of any order needs."""
        arguments = positions_by_argument(self.in_tree, len(self.constants))

        def staged(each: PlatformModule) -> PlatformModule:
            module = clone(each.module)
            each.rules.stage_all(module, arguments=arguments)
            return each.with_module(module)

        return self._remade(staged)

    def run_passes(self, pipeline: str, **instrumentation: Any) -> Program:
        """Return the program after a textual pipeline such as `cse,lower-custom-derivatives`.

        Args:
          pipeline: names of passes with their options; they must not change the type of `@main`.
          instrumentation: fields of `pullback.passes.manager.Instrumentation`, such as
            `verify_each=True`.

        Raises:
          PipelineError: a pass or an option is misspelt, or a pass of MLIR fails.
          PullbackError: the type of `@main` has changed.
        """
        if not isinstance(pipeline, str):
            raise PullbackError(
                f"a pipeline is text such as 'cse,symbol-dce', and this is a "
                f"{type(pipeline).__name__}",
                do="for passes that are objects: pullback.passes.manager.run_pipeline",
            )

        def edited(each: PlatformModule) -> PlatformModule:
            module = clone(each.module)
            manager.run_pipeline(module, pipeline, each.rules, **instrumentation)
            before, after = map(type_of_entry, (each.module, module))
            if before != after:
                raise PullbackError(
                    "the pipeline changes the type of @main, which a program cannot follow\n"
                    f"  before: {before}\n  after:  {after}",
                    where=f"program.run_passes({pipeline!r})",
                    do="for derivatives and batches use its methods, such as .vjp(); to see what "
                    "any pass does, write program.asm() to a file and use `pullback opt`",
                )
            return each.with_module(module)

        return self._remade(edited, parse_pipeline(pipeline))

    jet = derivation.jet
    jvp = derivation.jvp
    laplacian = derivation.laplacian
    vjp = derivation.vjp
    transpose = derivation.transpose
    grad = derivation.grad
    value_and_grad = derivation.value_and_grad
    vmap = batches.vmap

    def split_vjp(
        self,
        argnums: Positions = None,
        has_aux: bool = False,
        *,
        wrt: Positions = None,
        memory: Memory = None,
    ) -> derivation.Split[Program]:
        """Return reverse mode as two programs, `forward` and `linear`, that share residuals.

        Args:
          argnums: as for `vjp`.
          has_aux: as for `vjp`; the auxiliary data is part of `out` in `forward`.
          wrt: another name for `argnums`.
          memory: as for `vjp`; a budget is for the residuals, and the temporaries of either.

        Returns:
          `forward: args -> (out, residuals)` and `linear: (residuals, cotangents of out) ->
          cotangents`; `.residuals()` of the pair is a table of what is stored.

        Raises:
          MissingRuleError: an op on the way has no derivative rule.
          MemoryBudgetError: no schedule fits.
        """
        return derivation.split_vjp(self, one_of(argnums, wrt), has_aux, memory=memory)

    def linearize(
        self,
        argnums: Positions = None,
        has_aux: bool = False,
        through: derivation.Through = "rules",
        *,
        wrt: Positions = None,
    ) -> derivation.Split[Program]:
        """Return forward mode as two programs, `forward` and `linear`, that share residuals.

        Args:
          argnums: as for `jvp`.
          has_aux: as for `jvp`; the auxiliary data is part of `out` in `forward`.
          through: as for `jvp`.
          wrt: another name for `argnums`.

        Returns:
          `forward: args -> (out, residuals)` and `linear: (residuals, tangents…) -> tangents of
          out`.

        Raises:
          MissingRuleError: an op on the way has no derivative rule.
          NotLinearError: a backward rule that is to be transposed is not linear.
        """
        return derivation.linearize(self, one_of(argnums, wrt), has_aux, through=through)

    def sparse_jacobian(self, argnums: Positions = 0, *, wrt: Positions = None) -> Program:
        """Return the program of the non-zeros of the Jacobian, which has a `pattern`.

        Args:
          argnums: the positions of the arguments to differentiate by.
          wrt: another name for `argnums`.

        Returns:
          A program of the same arguments, whose result is an array of shape `(pattern.nnz,)`; the
          Jacobian has the shape `pattern.shape`, the sizes of the result and of the arguments at
          `argnums`, whose trees are flattened in order. A file of the program keeps the pattern.

        Raises:
          DerivativeTypeError: an argument at `argnums` is not a real float, or a result is complex.
          MissingRuleError: an op on the way has no derivative rule.
          PullbackError: the pattern has too many non-zeros.
        """
        return hooks.sparse().jacobian_of(self, one_of(argnums, wrt, 0))

    def sparse_hessian(self, argnums: Positions = 0, *, wrt: Positions = None) -> Program:
        """Return the program of the non-zeros of the Hessian of a scalar result.

        It has both triangles of a matrix that is taken to be symmetric, as `pb.sparse_hessian`
        says. Arguments, result and errors are as for `sparse_jacobian`; a result that is not a
        scalar is a DerivativeTypeError.
        """
        return hooks.sparse().hessian_of(self, one_of(argnums, wrt, 0))

    def compile(
        self, backend: str | None = None, *, simplify: bool = True, **options: Any
    ) -> pullback_runtime.Executable:
        """Compile the program for 'cpu', 'cuda', 'rocm' or 'tpu'.

        The executable takes and returns what the function does; it has `cost`, `memory`, `hlo`.

        Args:
          backend: by default, JAX's default backend.
          simplify: run the pass `simplify` first, which may round a result in another way.
          options: further options of `pullback_runtime.compile`: `device`, `topology`.

        Raises:
          BackendNotFoundError: the backend, device or topology is not here.
          CompileError: XLA rejects the module.
        """
        if backend is None and simplify and not options:
            return compile_call(self._callee, self._convention)
        if options.get("topology"):
            platform = "tpu"
        elif backend is None and options.get("device") is None:
            platform = _backend.platform_of(None, tracing.device_of(self.in_avals))
        else:
            platform = _backend.platform_of(backend, options.get("device"))
        chosen = self._on(platform)
        hidden = tuple(f"constant {number}" for number in range(len(self.constants)))
        return pullback_runtime.compile(
            as_run(chosen.module, simplify),
            backend=backend,
            arg_names=(*hidden, *self.arg_paths),
            host_callbacks=chosen.environment.host_callbacks,
            keepalives=chosen.environment.keepalives,
            convention=self._convention,
            mesh=chosen.environment.mesh,
            **options,
        )

    @functools.cached_property
    def _convention(self) -> pullback_runtime.Convention:
        return pullback_runtime.Convention(
            example=jax.tree.unflatten(self.in_tree, self.in_avals),
            flatten=self._leaves,
            unflatten=self.unflatten,
            constants=tuple(self.constants),
        )

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        platforms: Sequence[str] | None = None,
        allow_refusals: bool = False,
        order: int | None = None,
    ) -> None:
        """Write one portable file that `pullback.load` reads; see `pullback.artifact.save`."""
        hooks.files().save(
            self,
            path,
            target=target,
            platforms=platforms,
            allow_refusals=allow_refusals,
            order=order,
        )

    def to_exported(self, *, platforms: Sequence[str] | None = None) -> Any:
        """Return a `jax.export.Exported` whose own `vjp` goes through the program's rules."""
        return hooks.files().to_exported(self, platforms=platforms)

    def as_jax(self) -> Callable[..., Any]:
        """Return a plain function of JAX that does what the program does, op by op.

        It takes and returns the same trees. What JAX traces of it has JAX's own primitives in the
        place of the ops of the module, and `custom_jvp`, `custom_vjp` and `linear_call` with the
        rules of the module; so every interpreter of jaxprs can read it. It is not jitted.

        Raises:
          NoJaxCounterpartError: JAX has no primitive for an op, or not for what the op says.
        """
        return hooks.as_jax().as_jax(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; JAX's transformations of a call derive new programs in the IR."""
        try:
            return self._jitted(*args, **kwargs)
        except (ArgumentError, PullbackError) as error:
            signature = CallSignature(self.in_avals, self.arg_paths)
            args, kwargs = refit(error, signature, self.in_tree, args, kwargs)
        except ValueError:
            static_parts.check(args, kwargs)  # JAX's error names no path
            raise
        return self._jitted(*args, **kwargs)

    @functools.cached_property
    def _jitted(self) -> Callable[..., Any]:
        return self._callee.callable(None)

    @functools.cached_property
    def _callee(self) -> Callee:
        return Callee(self.handle, (), self._convention, self.environment.mesh)

    @functools.cached_property
    def handle(self) -> pullback_runtime.ModuleHandle:
        """The program as a value that `pullback_runtime.call_module` calls."""
        return handles.handle_of(here(self))

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the arguments of `@main`: hidden constants, then the leaves of the arguments."""
        return [*map(prng_keys.physical, self.constants), *self._leaves(args, kwargs)]

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.in_tree and kwargs:
            places = len(self.in_tree.children()[0].children())
            args, kwargs = in_positions(self.arg_paths, places, args, kwargs)
            leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.in_tree and _jax_trees.has_fields(self.in_tree):
            leaves = _jax_trees.flatten_call(self.in_tree, args, kwargs)
        elif tree != self.in_tree:
            expected, given = len(self.in_tree.children()[0].children()), len(args)
            count = f": it takes {expected} positional arguments, and got {given}"
            raise PullbackError(
                "the arguments do not have the structure that the program was traced with"
                f"{count * (expected != given)}\n"
                f"    expected: {self.in_tree}\n    got:      {tree}",
                where=f"leaves expected: {', '.join(self.arg_paths)}",
                do="leave out static arguments, and pass the same containers and keywords",
            )
        return list(map(prng_keys.physical, leaves))

    def _as_taken(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments, with fields by name where a file has a class that is not here."""
        if not _jax_trees.has_fields(self.in_tree):
            return args
        return jax.tree.unflatten(self.in_tree, _jax_trees.flatten_call(self.in_tree, args, {}))[0]

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Return the result of the function, made of the results of `@main`."""
        leaves = map(prng_keys.logical, results, self.out_avals)
        return jax.tree.unflatten(self.out_tree, leaves)
