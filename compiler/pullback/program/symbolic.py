"""Programs with symbolic dimensions: one for arguments of every size.

Arguments give the sizes: then there is a program like any other, and what is asked of this one is
asked of that. What has symbols still, such as what is to be exported, is traced by JAX, whose own
rules differentiate it, custom rules included.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NoReturn, Self, TypeVar

import jax

from pullback import _jax
from pullback._jax import dimensions
from pullback.errors import MissingRuleError
from pullback.ir.modules import text_of
from pullback.passes.pipelines import Stage
from pullback.program import derivation, hooks, symbolic_in_jax
from pullback.program.record import AnyProgram, Interface, no_variant, spell_types
from pullback_runtime._errors import ArgumentError, DimensionError
from pullback_runtime._jax import symbols_in
from pullback_runtime.call import _jax_trees
from pullback_runtime.call._arguments import CallSignature
from pullback_runtime.call._jax_arguments import refit
from pullback_runtime.files import _symbolic
from pullback_runtime.files._container import ArtifactError
from pullback_runtime.ir import _module

OF_FIXED_SIZES = frozenset(
    "as_jax compile environment flatten handle linearize module pattern rules run_passes "
    "sparse_hessian sparse_jacobian split_vjp stage_rules transpose unflatten vmap "
    "with_module".split()
)
"""What a `Program` has, and a `SymbolicProgram` has not."""

Method = TypeVar("Method", bound=Callable[..., Any])


def _of_each_size(method: Method) -> Method:
    """Make a method derive programs with symbols, and from the program of each set of sizes."""

    @functools.wraps(method)
    def derived(program: SymbolicProgram, *args: Any, **kwargs: Any) -> Any:
        def member(values: Mapping[str, int]) -> Any:
            return method(program.at(values), *args, **kwargs)

        made = method(program, *args, **kwargs)  # the same for equal options
        if program.member is None:
            return made
        return made._once("of each size", lambda: replace(made, member=member))

    return derived  # type: ignore[return-value]


@dataclass(frozen=True)
class StoredForms:
    """What a file holds of a program.

    Attributes:
      exported: how to get each function that JAX has exported.
      kept: the function with its rules, a `files.symbolic.with_rules.Kept`.
      exports: in the place of these, the export of JAX that the program is of, an
        `Exports` of `files.jax_export.exchange`.
      why_not: why there are no rules.
    """

    exported: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    kept: Any = None
    exports: Any = None
    why_not: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class SymbolicProgram(AnyProgram):
    """A function of arrays whose dimensions are symbols, as `jax.export` has them.

    Attributes:
      interface: the structures of the arguments and of the result, and what their leaves are.
      flat: the function of leaves that JAX traces while dimensions are symbols.
      platforms: what it is lowered for.
      member: the `Program` for sizes of the symbols; None where a file has no rules.
      order: how often `flat` can be differentiated; None without limit.
      stored: what its file holds.
      origin: the program that it is derived from, if it is, by the passes in `stages`.
      settings: what enters the settings of JAX that it was traced under.
    """

    interface: Interface
    flat: symbolic_in_jax.Flat
    platforms: tuple[str, ...] = ("cpu",)
    member: Callable[[Mapping[str, int]], Any] | None = None
    order: int | None = None
    stored: StoredForms = StoredForms()
    origin: SymbolicProgram | None = None
    stages: tuple[Stage, ...] = ()
    settings: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    constants = ()
    variants = ()
    _shares_values = False
    entries = MappingProxyType[str, Any]({})

    @property
    def _interface(self) -> Interface:
        return self.interface

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on arrays of any sizes that fit the dimensions."""
        try:
            return self._jitted(*args, **kwargs)
        except ArgumentError as error:
            signature = CallSignature(self.in_avals, self.arg_paths)
            args, kwargs = refit(error, signature, self.in_tree, args, kwargs)
        return self._jitted(*args, **kwargs)

    @functools.cached_property
    def _jitted(self) -> Callable[..., Any]:
        """The jitted call, which finds the program for its arguments' types when it is traced."""

        def program(*args: Any, **kwargs: Any) -> Any:
            leaves = self._leaves(args, kwargs)
            has_symbols = any(_symbolic.is_symbolic(jax.typeof(leaf)) for leaf in leaves)
            found = None if has_symbols else self._at(self._sizes(leaves))
            if found is None:  # or a file from which not all types follow
                with self.settings():
                    return self._unflatten(self.flat(*leaves))
            return found(*args, **kwargs)

        return jax.jit(program)

    def with_shapes(self, *args: Any, **kwargs: Any) -> Any:
        """Return the program for the sizes of these arguments, with all its rules, of any order.

        Raises:
          DimensionError: the arguments do not fit the dimensions, or have other dtypes.
          MissingRuleError: the program comes from a file that has no rules.
        """
        return self.at(self._sizes(self._leaves(args, kwargs)))

    def with_sizes(self, **sizes: int) -> Any:
        """Return the program for these sizes of the symbols, such as `b=4`; as `with_shapes`.

        Raises:
          DimensionError: a symbol has no size, or sizes break a constraint.
        """
        if sizes.keys() != {*self.symbols}:
            raise DimensionError(
                f"sizes of {', '.join(sizes) or 'no symbol'} are given, and the program has the "
                f"symbols {', '.join(self.symbols)}",
                where=spell_types(self),
                do=f"give a number for each: {', '.join(f'{each}=…' for each in self.symbols)}",
            )
        if others := [size for size in sizes.values() if not hasattr(size, "__index__")]:
            raise DimensionError(
                f"{others[0]!r} is no size", where=spell_types(self), do="give integers"
            )
        sized = [dimensions.sized(sizes, aval) for aval in self.in_avals]
        return self.at(self._sizes(sized))

    def at(self, values: Mapping[str, int]) -> Any:
        """Return the program for these sizes of the symbols, without a check of constraints."""
        if self.member is None:
            raise MissingRuleError(
                "the file of this program with symbolic dimensions has no rules: it cannot become "
                f"one of fixed sizes{self._because}",
                do="call with_shapes where the program is traced, and save what it returns",
            )
        return self._at(values) or self.member(values)

    def _at(self, values: Mapping[str, int]) -> Any:
        """Return the program for sizes; None without one, or if not all types follow from them."""

        def make() -> Any:
            try:
                return self.member and self.member(values)
            except ArtifactError:
                return None

        return self._once(("sizes", *values.items()), make)

    def _sizes(self, leaves: Sequence[Any]) -> dict[str, int]:
        return _symbolic.sizes(leaves, self.in_avals, self.in_tree, self.arg_paths)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols."""
        return symbols_in(self.in_avals)

    def asm(self, debug_info: bool = False, most_elements: int | None = None) -> str:
        """Return the module that JAX exports as readable MLIR: with symbols, without rules."""
        serialized = bytes(self.to_exported().mlir_module_serialized)
        module = _module.parse(serialized, _jax.context())
        return text_of(module, debug_info, most_elements)

    def for_platform(self, platform: str) -> Self:
        """Return the program for one of its platforms."""
        if platform not in self.platforms:
            raise no_variant(self.platforms, platform)
        stored, at = replace(self.stored, exported={}), self.at
        member = None if self.member is None else lambda values: at(values).for_platform(platform)
        return replace(self, platforms=(platform,), stored=stored, member=member)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"'SymbolicProgram' object has no attribute {name!r}"
        if name in OF_FIXED_SIZES:
            message += f"; a program of fixed sizes has: program.with_shapes(…).{name}"
        raise AttributeError(message)

    jet = _of_each_size(derivation.jet)
    jvp = _of_each_size(derivation.jvp)
    laplacian = _of_each_size(derivation.laplacian)
    vjp = _of_each_size(derivation.vjp)
    grad = _of_each_size(derivation.grad)
    value_and_grad = _of_each_size(derivation.value_and_grad)

    def _after(self, stages: Sequence[Any], interface: Interface) -> Self:
        """Return the program after `stages`, while dimensions are symbols."""
        flat = symbolic_in_jax.behind(self.flat, stages)
        if self.order == 0:
            refused = self._no_order()
            if self.member is None:
                raise refused

            def flat(*_: Any) -> NoReturn:
                raise refused

        return replace(
            self,
            interface=interface,
            flat=flat,
            member=None,
            order=self.order and self.order - 1,
            stored=StoredForms(),
            origin=self.origin or self,
            stages=(*self.stages, *(each for each in stages if each != derivation.MERGE)),
        )

    def _no_order(self) -> MissingRuleError:
        return MissingRuleError(
            f"the file of this program with symbolic dimensions has {self._orders}"
            f"{', while dimensions are symbols' if self.member else self._because}",
            do="differentiate once before saving: what is saved has its own derivative; of a file "
            "of jax.export, write it with serialize(vjp_order=…)"
            if self.member is None
            else "save program.with_shapes(…) (--sizes in a shell), or differentiate before the "
            "first save",
        )

    @property
    def _orders(self) -> str:
        order = (self.origin or self).order
        known = {0: "no derivatives", 1: "derivatives of first order only"}
        return known.get(order or 0, f"derivatives up to order {order} only")

    @property
    def _because(self) -> str:
        why_not = (self.origin or self).stored.why_not
        return f": {why_not}" if why_not else ""

    def _leaves(self, args: Any, kwargs: Any) -> list[Any]:
        return _jax_trees.flatten_call(self.in_tree, tuple(args), kwargs)

    def _unflatten(self, leaves: Sequence[Any]) -> Any:
        return jax.tree.unflatten(self.out_tree, leaves)

    def to_exported(self, *, platforms: Sequence[str] | None = None) -> Any:
        """Return a `jax.export.Exported` on the program's pytrees."""
        args, kwargs = jax.tree.unflatten(self.in_tree, self.in_avals)
        chosen = platforms or self.platforms

        def main(*args: Any, **kwargs: Any) -> Any:
            return self._unflatten(self.flat(*self._leaves(args, kwargs)))

        with self.settings():
            return jax.export.export(jax.jit(main), platforms=chosen)(*args, **kwargs)

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write one file that `pullback.load` reads; see `pullback.artifact.save`."""
        hooks.files().save(self, path, **options)


def is_symbolic(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if some argument has a symbolic dimension."""
    return any(map(_symbolic.is_symbolic, jax.tree.leaves((args, kwargs))))
