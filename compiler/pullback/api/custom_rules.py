"""`custom_jvp` and `custom_vjp` for functions that take functions.

A function passed as an argument may close over values that are being differentiated. JAX's rules
do not see them: they get no gradient, or an error. With `closure_convert_argnums` such an argument
becomes a pytree, a `jax.tree_util.Partial`, whose leaves are the values closed over; the rules
treat it as any other argument.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.tree_util import Partial

from pullback._jax import tracing
from pullback._jax.both_rules import BothRules
from pullback.errors import ArgumentMismatchError, LeakedValueError
from pullback.frontend.closures.reflect import Nothing, contents
from pullback.ir import locations
from pullback.program.argument_leaves import positions, several


def custom_jvp(
    fun: Callable[..., Any],
    nondiff_argnums: Sequence[int] = (),
    nondiff_argnames: Sequence[str] = (),
    *,
    closure_convert_argnums: int | Sequence[int] = (),
) -> Any:
    """Make a function to which `defjvp` gives a rule for its derivative; as `jax.custom_jvp`.

    Args:
      fun, nondiff_argnums, nondiff_argnames: as for `jax.custom_jvp`.
      closure_convert_argnums: positions of arguments that are functions; what is traced
        among the values they close over becomes part of the argument. In the rule, the tangent of
        such an argument has its structure: `jax.jvp(lambda f, x: f(x), (f, x), (df, dx))` works.
    """
    rule = jax.custom_jvp(fun, nondiff_argnums, nondiff_argnames)
    numbers = several(positions(closure_convert_argnums))
    return _Converting(rule, numbers) if numbers else rule


def custom_vjp(
    fun: Callable[..., Any],
    nondiff_argnums: Sequence[int] = (),
    nondiff_argnames: Sequence[str] = (),
    *,
    closure_convert_argnums: int | Sequence[int] = (),
) -> Any:
    """Make a function to which `defvjp` gives a rule for reverse mode; as `jax.custom_vjp`.

    Its `defjvp` gives it a rule for forward mode as well, as of `jax.custom_jvp`.

    Args:
      fun, nondiff_argnums, nondiff_argnames: as for `jax.custom_vjp`.
      closure_convert_argnums: positions of arguments that are functions; what is traced
        among the values they close over becomes part of the argument. In the rules such an
        argument is a pytree that can be called: it may stand among the residuals, and its
        cotangent has its structure, as `jax.vjp(lambda f, x: f(x), f, x)` gives it.

    Raises:
      LeakedValueError: a function with rules for both modes closes over a traced value.
    """
    rule = CustomVJP(fun, nondiff_argnums, nondiff_argnames)
    numbers = several(positions(closure_convert_argnums))
    return _Converting(rule, numbers) if numbers else rule


class CustomVJP:
    """A function with a rule for reverse mode, as of `jax.custom_vjp`, and maybe a `jvp` rule.

    Without that, a call is one of JAX's `custom_vjp` function, which this has the attributes of.
    """

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: Sequence[int], names: Sequence[str]
    ) -> None:
        self.backward = jax.custom_vjp(fun, nondiff_argnums, names)
        self.forward: Any = None
        functools.update_wrapper(self, fun)

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Give the function a rule for forward mode; as `jax.custom_jvp.defjvp`."""
        self.forward = jax.custom_jvp(self.backward.fun, self.backward.nondiff_argnums)
        return self.forward.defjvp(jvp, symbolic_zeros)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.forward is None or not self.backward.fwd:
            return self.backward(*args, **kwargs)
        bound = inspect.signature(self.backward.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise ArgumentMismatchError(
                f"`{self.backward.fun.__name__}` takes {', '.join(bound.kwargs)} by name only",
                do="let a function with derivative rules take all arguments by position",
            )
        numbers = self.backward.nondiff_argnums
        moving = [arg for i, arg in enumerate(bound.args) if i not in numbers]
        fixed = tuple((i, bound.args[i]) for i in numbers)
        leaves, tree = jax.tree.flatten(moving)
        functions = self.backward.fun, self.forward, self.backward
        function, forward, backward = (_OnLeaves(each, tree, fixed) for each in functions)
        closed, shape = jax.make_jaxpr(function.in_tree, return_shape=True)(*leaves)
        if any(map(tracing.is_tracer, closed.consts)):
            raise _closes_over(self.backward.fun)
        call = BothRules(
            function,
            forward,
            backward,
            leaves,
            closed.out_avals,
            name=self.backward.fun.__name__,
            rules=(self.forward.jvp, self.backward.fwd, self.backward.bwd),
            symbolic_zeros=bool(self.forward.symbolic_zeros or self.backward.symbolic_zeros),
        )
        return jax.tree.unflatten(jax.tree.structure(shape), call(*leaves))

    def __getattr__(self, name: str) -> Any:
        """Return `defvjp` and all else that the function of JAX has."""
        if name == "backward":
            raise AttributeError(name)
        return getattr(self.backward, name)


def _closes_over(fun: Any) -> LeakedValueError:
    code = getattr(fun, "__code__", None)
    return LeakedValueError(
        f"`{fun.__name__}`, which has rules for both modes, closes over a value of the function "
        "around it",
        where=None if code is None else locations.of_code(code),
        do="pass the value as an argument of the function, and of its rules",
    )


@dataclass(frozen=True)
class _OnLeaves:
    """A function on the leaves of its arguments, of which some are fixed."""

    function: Callable[..., Any]
    tree: Any
    fixed: tuple[tuple[int, Any], ...]

    def in_tree(self, *leaves: Any) -> Any:
        args = list(jax.tree.unflatten(self.tree, leaves))
        for i, arg in self.fixed:
            args.insert(i, arg)
        return self.function(*args)

    def __call__(self, *leaves: Any) -> tuple[Any, ...]:
        return tuple(jax.tree.leaves(self.in_tree(*leaves)))

    def __hash__(self) -> int:
        return hash((self.function, self.tree, len(self.fixed)))


class _Converting:
    """A function with a custom rule, called with functions among its arguments as pytrees."""

    def __init__(self, rule: Any, argnums: tuple[int, ...]):
        functools.update_wrapper(self, rule.fun)
        self.rule = rule
        self.argnums = argnums

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.rule(*_converted(args, self.argnums), **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return `defjvp`, `defjvps`, `defvjp` and all else that the function of JAX has."""
        return getattr(self.rule, name)


def _converted(args: tuple[Any, ...], argnums: tuple[int, ...]) -> list[Any]:
    """Return the arguments with the functions among them as pytrees."""
    new = list(args)
    for number in argnums:
        if number < len(new):
            new[number] = _as_pytree(new[number])
    return new


def _as_pytree(function: Any) -> Any:
    """Return a function as a `Partial` whose leaves are the traced values that it closes over."""
    if not callable(function) or isinstance(function, Partial):
        return function
    found: dict[int, Any] = {}
    for value in _reachable(function, set()):
        if isinstance(value, jax.core.Tracer):  # an integer as well, which would leak
            found[id(value)] = value
    return Partial(_Rebuilt(function, tuple(found)), *found.values())


class _Rebuilt:
    """A function whose closed-over values at some addresses are given as arguments instead."""

    def __init__(self, function: Any, addresses: tuple[int, ...]):
        self.function = function
        self.addresses = addresses

    def __call__(self, *values_and_args: Any) -> Any:
        count = len(self.addresses)
        values, args = values_and_args[:count], values_and_args[count:]
        return _Copies(dict(zip(self.addresses, values, strict=True))).of(self.function)(*args)


def _reachable(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a value and what it holds, through functions, partials and containers."""
    if id(value) in seen:
        return
    seen.add(id(value))
    for part in _parts(value):
        yield from _reachable(part, seen)
    yield value


def _parts(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        keywords = (value.__kwdefaults__ or {}).values()
        return [*map(contents, value.__closure__ or ()), *(value.__defaults__ or ()), *keywords]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    leaves = jax.tree.leaves(value)
    return [] if len(leaves) == 1 and leaves[0] is value else leaves


class _Copies:
    """Copies of functions that have other values in the place of those at some addresses.

    A function, or a variable that several share, is copied once: a function may close over itself.
    """

    def __init__(self, new: dict[int, Any]):
        self.new = new
        self.made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return a copy of a value with the new values in it, at any depth."""
        if id(value) in self.new:
            return self.new[id(value)]
        if id(value) in self.made:
            return self.made[id(value)]
        if not any(id(part) in self.new for part in _reachable(value, set())):
            return value
        if isinstance(value, types.FunctionType):
            return self._of_function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, functools.partial):
            keywords = {name: self.of(item) for name, item in value.keywords.items()}
            return type(value)(self.of(value.func), *map(self.of, value.args), **keywords)
        return jax.tree.map(self.of, value)

    def _of_function(self, function: types.FunctionType) -> Any:
        cells = function.__closure__ or ()
        found = {id(cell): contents(cell) for cell in cells if id(cell) not in self.made}
        filled = {at: value for at, value in found.items() if value is not Nothing}
        self.made |= {at: types.CellType() for at in filled}
        copy = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            closure=tuple(self.made.get(id(cell), cell) for cell in cells),
        )
        self.made[id(function)] = copy
        for at, value in filled.items():
            self.made[at].cell_contents = self.of(value)
        copy.__defaults__ = tuple(map(self.of, function.__defaults__ or ())) or None
        keywords = (function.__kwdefaults__ or {}).items()
        copy.__kwdefaults__ = {name: self.of(item) for name, item in keywords} or None
        copy.__dict__.update(function.__dict__)
        return copy
