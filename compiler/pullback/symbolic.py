"""Programs with symbolic dimensions: one module for arguments of every size.

JAX's own rules differentiate them, custom rules included, while dimensions are still symbols. A
file holds the function with all its rules; once arguments give the sizes, by a call or by
`with_shapes`, it is a program like any other, of any order. For what still has symbols, such as
what is to be exported, it holds the derivatives of first order.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pullback import _derivation
from pullback._errors import MissingRuleError, PullbackError
from pullback._slots import argnums_of, several
from pullback.frontend.tangents import is_inexact
from pullback_runtime import _symbolic, _trees
from pullback_runtime._callable import argument_paths

if TYPE_CHECKING:
    from pullback._program import Program

MAIN, JVP, VJP = "main", "main.jvp", "main.vjp"


@dataclass(frozen=True, eq=False)
class SymbolicProgram:
    """A function of arrays whose dimensions are symbols, as `jax.export` has them.

    Attributes:
      function: the function, on its pytrees; JAX traces it.
      example: `(args, kwargs)` with a `jax.ShapeDtypeStruct` for each leaf.
      platforms: what it is lowered for.
      stored: for a loaded program, how to get each function that its file holds.
      order: how often it can be differentiated while dimensions are symbols; None without limit.
      fixed: for a loaded program, the one that it is for arguments of given types, where its file
        holds the rules.
      kept: how its file holds them.
      is_endless: whether there is no limit where sizes are given.
      why_not: why its file holds no rules.
      result: the types of the result, where they are known without a trace.
      constants: none, for what the function closes over stays in it.
    """

    constants: ClassVar[tuple[jax.Array, ...]] = ()

    function: Callable[..., Any]
    example: tuple[tuple[Any, ...], dict[str, Any]]
    platforms: tuple[str, ...] = ("cpu",)
    stored: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    order: int | None = None
    fixed: Callable[..., Program] | None = None
    kept: Any = None
    is_endless: bool = False
    why_not: str = ""
    result: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program, on arrays of any sizes that fit the dimensions."""
        return self._jitted(*args, **kwargs)

    @functools.cached_property
    def _jitted(self) -> Callable[..., Any]:
        flat = self._with_derivative
        return jax.jit(lambda *args, **kwargs: self._unflatten(flat(*self._leaves(args, kwargs))))

    @functools.cached_property
    def in_tree(self) -> Any:
        """The structure of `(args, kwargs)`."""
        return jax.tree.structure(self.example)

    @functools.cached_property
    def in_avals(self) -> tuple[Any, ...]:
        """Shape and dtype of each leaf of the arguments."""
        return tuple(jax.tree.leaves(self.example))

    @functools.cached_property
    def _result(self) -> Any:
        if self.result is not None:
            return self.result
        args, kwargs = self.example
        return jax.eval_shape(self.function, *args, **kwargs)

    @property
    def out_tree(self) -> Any:
        """The structure of the result."""
        return jax.tree.structure(self._result)

    @property
    def out_avals(self) -> tuple[Any, ...]:
        """Shape and dtype of each leaf of the result."""
        return tuple(jax.tree.leaves(self._result))

    @property
    def arg_paths(self) -> tuple[str, ...]:
        """A name for each leaf of the arguments."""
        return argument_paths(self.example)

    def __repr__(self) -> str:
        arguments, results = (
            ", ".join(f"{aval.dtype.name}[{', '.join(map(str, aval.shape))}]" for aval in avals)
            for avals in (self.in_avals, self.out_avals)
        )
        return f"SymbolicProgram(({arguments}) -> ({results}))"

    def __str__(self) -> str:
        return self.to_exported().mlir_module()

    def with_shapes(self, *args: Any, **kwargs: Any) -> Program:
        """The program for the sizes of these arguments, with all its rules, of any order.

        Raises:
          MissingRuleError: the program comes from a file that has first derivatives only.
        """
        from pullback.frontend.trace import trace

        if self.fixed is not None:
            return self.fixed(*map(_struct, self._leaves(args, kwargs)))
        if self.order is None or self.is_endless:
            return trace(self.function, platforms=self.platforms)(*args, **kwargs)
        raise MissingRuleError(
            "the file of this program with symbolic dimensions has no rules: it cannot become one "
            f"of fixed sizes{self._because}",
            do="call with_shapes where the program is traced, and save what it returns",
        )

    def vjp(self, wrt: int | Sequence[int] | None = None) -> SymbolicProgram:
        """Reverse mode: `(args…, cotangents of out) -> (out, cotangents of wrt)`."""

        def derived(*arguments: Any, **kwargs: Any) -> Any:
            *args, cotangent = arguments
            out, backward = _pulled(self._with_rules, args, kwargs, wrt)
            return out, backward(cotangent)

        args, kwargs = self.example
        example = (*args, _moving(self._result)), kwargs
        return self._derived(derived, example, (self._result, self._cotangents(wrt)))

    def jvp(self, wrt: int | Sequence[int] | None = None) -> SymbolicProgram:
        """Forward mode: `(args…, tangents of wrt…) -> (out, tangents of out)`."""
        args, kwargs = self.example
        numbers = several(argnums_of(wrt, len(args), "wrt"))
        tangents = [_moving(args[number]) for number in numbers]

        def derived(*arguments: Any, **kwargs: Any) -> Any:
            primals, moved = arguments[: len(args)], arguments[len(args) :]
            still = [jax.tree.map(jnp.zeros_like, _moving(primal)) for primal in primals]
            return self._pushed(primals, _filled(still, numbers, moved), kwargs)

        example = (*args, *tangents), kwargs
        return self._derived(derived, example, (self._result, _moving(self._result)))

    def grad(self, argnums: int | Sequence[int] = 0) -> SymbolicProgram:
        """The gradient of a scalar result."""
        derived = self.value_and_grad(argnums)
        function = derived.function
        gradients = self._cotangents(argnums)
        return self._derived(
            lambda *args, **kwargs: function(*args, **kwargs)[1], self.example, gradients
        )

    def value_and_grad(self, argnums: int | Sequence[int] = 0) -> SymbolicProgram:
        """The result and its gradient.

        Raises:
          DerivativeTypeError: the result is not a real scalar, or an argument is not a float.
        """
        self._check_order()
        _derivation.check_gradients(_derivation.Signature.of(self), argnums)

        def derived(*args: Any, **kwargs: Any) -> Any:
            out, backward = _pulled(self._with_rules, args, kwargs, argnums)
            return out, backward(jnp.ones((), out.dtype))

        return self._derived(derived, self.example, (self._result, self._cotangents(argnums)))

    def _check_order(self) -> None:
        if self.order == 0 and not self.is_endless:
            raise MissingRuleError(
                "the file of this program with symbolic dimensions has derivatives of first order "
                f"only{self._because}",
                do="differentiate once before saving: what is saved has its own derivative; of "
                "a file of jax.export, write it with serialize(vjp_order=…)",
            )

    @property
    def _because(self) -> str:
        return f": {self.why_not}" if self.why_not else ""

    def _derived(self, function: Callable[..., Any], example: Any, result: Any) -> SymbolicProgram:
        self._check_order()
        return SymbolicProgram(
            function,
            example,
            self.platforms,
            order=None if self.order is None else self.order - 1,
            is_endless=self.is_endless,
            why_not=self.why_not,
            result=result,
        )

    def _cotangents(self, wrt: int | Sequence[int] | None) -> Any:
        """The types of the cotangents of the chosen arguments."""
        args = self.example[0]
        chosen = argnums_of(wrt, len(args), "wrt")
        trees = tuple(_moving(args[number]) for number in several(chosen))
        return trees[0] if isinstance(chosen, int) else trees

    def _with_rules(self, *args: Any, **kwargs: Any) -> Any:
        """The function, with the derivative that its file holds."""
        if not self.stored:
            return self.function(*args, **kwargs)
        return self._unflatten(self._with_derivative(*self._leaves(args, kwargs)))

    @functools.cached_property
    def _with_derivative(self) -> Callable[..., Any]:
        if (fixed := self.fixed) is None:
            return self._of_symbols

        def flat(*leaves: Any) -> Any:
            if _have_symbols(leaves):
                return self._of_symbols(*leaves)
            try:
                program = fixed(*map(_struct, leaves))
            except PullbackError:  # not all types follow from the sizes: the first order is left
                return self._of_symbols(*leaves)
            args, kwargs = jax.tree.unflatten(self.in_tree, leaves)
            return tuple(jax.tree.leaves(program(*args, **kwargs)))

        return flat

    @functools.cached_property
    def _of_symbols(self) -> Callable[..., Any]:
        if VJP in self.stored:
            return differentiable(self.stored[MAIN]().call, self.stored[VJP]().call)
        return self._flat

    def _flat(self, *leaves: Any) -> tuple[Any, ...]:
        args, kwargs = jax.tree.unflatten(self.in_tree, leaves)
        return tuple(jax.tree.leaves(self.function(*args, **kwargs)))

    def _leaves(self, args: Any, kwargs: Any) -> list[Any]:
        return _trees.flatten_call(self.in_tree, tuple(args), kwargs)

    def _unflatten(self, leaves: Sequence[Any]) -> Any:
        return jax.tree.unflatten(self.out_tree, leaves)

    def _pushed(self, primals: Any, tangents: Any, kwargs: Any) -> Any:
        leaves = self._leaves(primals, kwargs)
        forward: Callable[..., Any]
        if self.is_endless and not _have_symbols(leaves):
            forward = functools.partial(_push, self._with_derivative, len(leaves), self._moving)
        else:
            forward = self._flat_jvp
        outs = forward(*leaves, *jax.tree.leaves(tangents))
        count = len(self.out_avals)
        moved = iter(outs[count:])
        filled = [next(moved) if is_inexact(aval) else None for aval in self.out_avals]
        return self._unflatten(outs[:count]), self._unflatten(filled)

    @functools.cached_property
    def _flat_jvp(self) -> Callable[..., Any]:
        """`(leaves…, tangents of args' inexact leaves) -> (outs…, tangents of inexact outs…)`.

        Where JAX has no rule, because of a `custom_vjp`, it is the transpose of reverse mode.
        """
        if JVP in self.stored:
            return self.stored[JVP]().call
        forward = functools.partial(_push, self._flat, len(self.in_avals), self._moving)
        try:
            self._export(forward, self._positional)
        except TypeError:
            return functools.partial(_push_back_and_forth, *forward.args)
        return forward

    @property
    def _moving(self) -> list[int]:
        """The positions of the positional leaves that have tangents."""
        return [i for i, aval in enumerate(self._positional) if is_inexact(aval)]

    @property
    def _positional(self) -> list[Any]:
        return jax.tree.leaves(self.example[0])

    def _flat_vjp(self, *leaves: Any) -> tuple[Any, ...]:
        """`(leaves…, cotangents of inexact outs…) -> (cotangents of inexact leaves…)`."""
        primals, cotangents = leaves[: len(self.in_avals)], leaves[len(self.in_avals) :]
        moving = [i for i, aval in enumerate(self.in_avals) if is_inexact(aval)]
        _, backward = jax.vjp(
            lambda *moved: _inexact(self._flat(*_filled(primals, moving, moved))),
            *(primals[i] for i in moving),
        )
        return backward(list(cotangents))

    def exported(self, kind: str = MAIN) -> Any:
        """The flat function, or a derivative of it, as a `jax.export.Exported`."""
        if kind in self.stored:
            return self.stored[kind]()
        functions = {MAIN: self._flat, JVP: self._flat_jvp, VJP: self._flat_vjp}
        moving = {MAIN: (), JVP: self._positional, VJP: self.out_avals}
        return self._export(functions[kind], moving[kind])

    def _export(self, function: Callable[..., Any], moving: Sequence[Any]) -> Any:
        """A flat function of the arguments, and of tangents or cotangents."""
        inputs = *self.in_avals, *filter(is_inexact, moving)
        return jax.export.export(jax.jit(function), platforms=self.platforms)(*inputs)

    def to_exported(self, *, platforms: Sequence[str] | None = None) -> Any:
        """A `jax.export.Exported` on the program's pytrees."""
        args, kwargs = self.example
        chosen = platforms or self.platforms
        return jax.export.export(jax.jit(self._with_rules), platforms=chosen)(*args, **kwargs)

    def save(self, path: str | os.PathLike[str], *, target: str | None = None) -> None:
        """Writes one file: the function with its rules, and its derivatives of first order."""
        from pullback import artifact

        artifact.save(self, path, target=target)


def differentiable(primal: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """A flat function with a derivative of first order."""

    @jax.custom_vjp
    def function(*leaves: Any) -> Any:
        return primal(*leaves)

    def bwd(leaves: Any, cotangents: Any) -> Any:
        moved = iter(backward(*leaves, *_inexact(cotangents)))
        return tuple(next(moved) if is_inexact(jax.typeof(leaf)) else None for leaf in leaves)

    function.defvjp(lambda *leaves: (primal(*leaves), leaves), bwd)
    return function


def _have_symbols(leaves: Sequence[Any]) -> bool:
    return any(_symbolic.is_symbolic(jax.typeof(leaf)) for leaf in leaves)


def _moving(tree: Any) -> Any:
    """The leaves that have tangents, and None for the others."""
    return jax.tree.map(lambda leaf: leaf if is_inexact(leaf) else None, tree)


def _inexact(values: Sequence[Any]) -> list[Any]:
    """Those that have tangents; JAX's cotangents of the others have type float0."""
    return [v for v in values if is_inexact(jax.typeof(v))]


def _filled(leaves: Sequence[Any], positions: Sequence[int], moved: Sequence[Any]) -> list[Any]:
    chosen = dict(zip(positions, moved, strict=True))
    return [chosen.get(i, leaf) for i, leaf in enumerate(leaves)]


def _push(flat: Callable[..., Any], count: int, moving: list[int], *values: Any) -> Any:
    """Forward mode of a flat function, by JAX's forward rules."""
    moved, primals, tangents = _of_moved(flat, count, moving, values)
    _, pushed, outs = jax.jvp(moved, primals, tangents, has_aux=True)
    return (*outs, *pushed)


def _push_back_and_forth(
    flat: Callable[..., Any], count: int, moving: list[int], *values: Any
) -> Any:
    """Forward mode of a flat function, as the transpose of reverse mode."""
    moved, primals, tangents = _of_moved(flat, count, moving, values)
    results, backward, outs = jax.vjp(moved, *primals, has_aux=True)
    (pushed,) = jax.linear_transpose(backward, results)(tangents)
    return (*outs, *pushed)


def _of_moved(flat: Callable[..., Any], count: int, moving: list[int], values: Any) -> Any:
    """The function of what moves, with all results as auxiliary data; its primals and tangents."""
    leaves = values[:count]

    def moved(*primals: Any) -> Any:
        outs = flat(*_filled(leaves, moving, primals))
        return _inexact(outs), outs

    return moved, tuple(leaves[i] for i in moving), tuple(values[count:])


def _pulled(function: Any, args: Sequence[Any], kwargs: Any, wrt: Any) -> tuple[Any, Any]:
    """The result, and the map from cotangents of it to those of the chosen arguments."""
    chosen = argnums_of(wrt, len(args), "wrt")
    numbers = several(chosen)
    leaves, tree = jax.tree.flatten([args[n] for n in numbers])
    moving = [i for i, leaf in enumerate(leaves) if is_inexact(jax.typeof(leaf))]

    def of_moved(*moved: Any) -> Any:
        given = dict(zip(numbers, jax.tree.unflatten(tree, _filled(leaves, moving, moved))))
        out = function(*(given.get(i, arg) for i, arg in enumerate(args)), **kwargs)
        return _inexact(jax.tree.leaves(out)), out

    _, backward, out = jax.vjp(of_moved, *(leaves[i] for i in moving), has_aux=True)

    def pull(cotangent: Any) -> Any:
        moved = backward(jax.tree.leaves(cotangent))
        filled = _filled([None] * len(leaves), moving, moved)
        trees = tuple(jax.tree.unflatten(tree, filled))
        return trees[0] if isinstance(chosen, int) else trees

    return out, pull


def is_symbolic(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether some argument has a symbolic dimension."""
    return any(map(_symbolic.is_symbolic, jax.tree.leaves((args, kwargs))))


def of(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    platforms: tuple[str, ...],
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> SymbolicProgram:
    """The program of a function of arguments with symbolic dimensions; static ones are fixed."""
    numbers, names = _statics_among(function, static_argnums, static_argnames, len(args))
    fixed = {i: arg for i, arg in enumerate(args) if i in numbers}
    named = {name: arg for name, arg in kwargs.items() if name in names}
    if fixed or named:
        function = _with_fixed(function, fixed, named)
        args = tuple(arg for i, arg in enumerate(args) if i not in fixed)
        kwargs = {name: arg for name, arg in kwargs.items() if name not in named}
    example = jax.tree.map(_struct, (args, kwargs))
    program = SymbolicProgram(function, example, platforms)
    assert program.out_avals is not None  # traces, so that mistakes show here
    return program


def _statics_among(
    function: Any, argnums: Any, argnames: Any, count: int
) -> tuple[set[int], set[str]]:
    """Positions and names of the static arguments; as for `jax.jit`, each may tell the other."""
    numbers = set() if argnums is None else {*np.atleast_1d(argnums).tolist()}
    names = {argnames} if isinstance(argnames, str) else {*(argnames or ())}
    with contextlib.suppress(TypeError, ValueError):  # a builtin has no signature
        parameters = inspect.signature(function).parameters
        if argnums is None:
            numbers = {i for i, name in enumerate(parameters) if name in names}
        if argnames is None:
            names = {
                name for i, name in enumerate(parameters) if {i, i - len(parameters)} & numbers
            }
    return {number % count for number in numbers if -count <= number < count}, names


def _with_fixed(
    function: Callable[..., Any], fixed: Mapping[int, Any], named: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function of the other arguments."""

    @functools.wraps(function, updated=())
    def of_others(*args: Any, **kwargs: Any) -> Any:
        rest, count = iter(args), len(args) + len(fixed)
        return function(
            *(fixed[i] if i in fixed else next(rest) for i in range(count)), **kwargs, **named
        )

    return of_others


def _struct(value: Any) -> Any:
    aval = value if hasattr(value, "shape") else jax.typeof(value)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
