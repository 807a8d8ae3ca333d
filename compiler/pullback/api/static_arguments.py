"""Arguments that are not arrays: strings, functions, and numbers that Python code branches on.

JAX's transformations pass such arguments on as they are. Ours trace, so every number becomes an
abstract value at first; only where that fails, the plain Python values among the arguments become
part of the function, and each set of values is traced for itself. Of what is differentiated, these
are integers and bools only. Floats, which may be others in every call, are the last to do so.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from pullback.errors import ArgumentMismatchError, PullbackError
from pullback.frontend.closures.same_rule import Identities
from pullback.frontend.exact_tree import ExactTree
from pullback.program import memo, static_parts
from pullback.program.memo import has_hash
from pullback_runtime._lazy_values import Recent

MOST = 1024
"""Sets of fixed arguments, for each of which there is a compiled program."""

ARRAYS = (jax.Array, jax.core.Tracer, np.ndarray, jax.ShapeDtypeStruct)
INTEGERS = (int, np.integer, np.bool_)
FLOATS = (float, complex, np.inexact)
STEERED = (TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What Python code raises where it is given an abstract value in the place of a number."""

TRACED = (
    "pullback traces functions under jax.disable_jit() as well, to derive their programs: what is "
    "differentiated is abstract there; jax.grad and the like run them with concrete values"
)

Fixed = tuple[int, ...]
"""Leaves of the arguments that are part of a function, by number."""


class _EqualParts(TypeError):
    """Raised where a tree is traced that may equal another one that is not the same."""


def check_function(given: Any) -> None:
    """Raise ArgumentMismatchError where what is to be transformed can never be called."""
    if not callable(given):
        raise ArgumentMismatchError(
            f"expected a function, got {given!r}", do="pass a function that JAX can trace"
        )


class _Call(NamedTuple):
    """The arguments of a call: as they were given, and the leaves of `(args, kwargs)`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    more: tuple[Any, ...]
    leaves: list[Any]
    tree: ExactTree


@dataclass(frozen=True)
class _Special:
    """A jitted function of the leaves that are not fixed; keeps the fixed ones alive."""

    jitted: Callable[..., Any]
    fixed: frozenset[int]
    alive: Identities | None

    def __call__(self, call: _Call) -> Any:
        left = [leaf for i, leaf in enumerate(call.leaves) if i not in self.fixed]
        return self.jitted(left, call.more)


def _attempt(function: Callable[[_Call], Any], call: _Call) -> tuple[Any, Exception | None]:
    """Return the result, or an error that may come from an abstract value in a number's place."""
    try:
        return function(call), None
    except PullbackError:
        raise
    except STEERED as error:
        return None, error


class Specializing:
    """A function that is specialized to Python values where a call needs it.

    A call needs it where tracing fails with abstract values, as Python code does that branches on a
    number: then plain Python values among the arguments are fixed. And it needs it where the static
    parts of its trees may equal others that are not the same, for JAX does not tell these apart.

    Args:
      make: takes a getter of the user's function, and returns a function of
        `(args, kwargs, *more)`, which traces it.
      name: the name of that function in messages.
      differentiated: positions of arguments whose floats are always traced; None for all.
      get: the getter of the user's function.
      jit: compile what `make` returns as a whole, for each user's function.
    """

    def __init__(
        self,
        make: Callable[[Callable[[], Any]], Callable[..., Any]],
        name: str,
        differentiated: Collection[int] | None,
        get: Callable[[], Any],
        jit: bool = True,
    ):
        self._make, self._name, self._get = make, name, get
        self._jitted = memo.jitted if jit else lambda function, *_: function
        self._differentiated = differentiated
        # By key, a specialized function; or, where it fails, the leaves that have to be fixed.
        self._known = Recent(MOST)
        self._has_special = False
        self._trees: dict[ExactTree, ExactTree] = {}
        function = make(get)

        def general(args: tuple[Any, ...], kwargs: dict[str, Any], more: tuple[Any, ...]) -> Any:
            if ExactTree(jax.tree.structure((args, kwargs))).may_equal_others():
                raise _EqualParts
            return function(args, kwargs, *more)

        self._general = self._jitted(general, name, get)

    def call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], more: tuple[Any, ...] = ()
    ) -> Any:
        """Call the general function; where that fails, one that is specialized to these values."""
        error = None
        if not self._has_special:
            try:
                return self._general(args, kwargs, more)
            except PullbackError:
                raise
            except STEERED as failure:
                error = failure
        leaves, tree = jax.tree.flatten((args, kwargs))
        try:
            return self._result(_Call(args, kwargs, more, leaves, self._exact(tree)), error)
        except STEERED as failure:
            static_parts.check(args, kwargs)  # JAX's error names no path
            if jax.config.jax_disable_jit and not isinstance(failure, PullbackError):
                failure.add_note(TRACED)
            raise

    def _exact(self, tree: Any) -> ExactTree:
        """Return one object for all equal trees, so that keys are compared by identity."""
        found = ExactTree(tree)
        if len(self._trees) > MOST:
            self._trees.clear()
        return self._trees.setdefault(found, found)

    def _result(self, call: _Call, error: Exception | None) -> Any:
        """Return the result of the general function, or of the one with the fewest fixed leaves.

        Args:
          error: how the general function has failed, if it has been called.
        """
        fixed: Fixed | None = None
        learnt: list[tuple[Hashable, Identities | None, Any]] = []
        while True:
            key, alive = self._key(call, fixed)
            known = self._known.get(key)
            if isinstance(known, tuple):
                fixed = known
                continue
            if error is None:
                function = known or self._function(call, fixed, alive)
                result, error = _attempt(function, call)
                if error is None:
                    break
            fixed, error = self._more(call, fixed, error), None
            learnt.append((key, alive, fixed))
        if known is None and fixed is not None:
            learnt.append((key, alive, function))
        for each, keeper, what in learnt:
            if keeper is None or not keeper.may_change:
                self._known.keep(each, what)
                self._has_special = True
        return result

    def _key(self, call: _Call, fixed: Fixed | None) -> tuple[Hashable, Identities | None]:
        """Return the key of a function, and what keeps objects alive that are told by address."""
        if fixed is None:
            return (call.tree, tuple(map(type, call.leaves))), None
        if not fixed:
            return (call.tree, fixed), None
        values = tuple(call.leaves[i] for i in fixed)
        identities = Identities(of_arguments=True)
        identities.begin(by_contents=False)
        signature = identities.rules(None, values)
        # Functions made anew that look alike may have found other global variables.
        others = values if identities.reads_globals else ()
        return (call.tree, fixed, signature, others), identities

    def _function(
        self, call: _Call, fixed: Fixed | None, alive: Identities | None
    ) -> Callable[[_Call], Any]:
        if fixed is None:
            return lambda call: self._general(call.args, call.kwargs, call.more)
        tree, values = call.tree.tree, {i: call.leaves[i] for i in fixed}
        user_function = fix(self._get, tree, values)
        function = self._make(lambda: user_function)

        def special(left: list[Any], more: tuple[Any, ...]) -> Any:
            rest = iter(left)
            numbers = range(tree.num_leaves)
            leaves = [placeholder(values[i]) if i in values else next(rest) for i in numbers]
            args, kwargs = jax.tree.unflatten(tree, leaves)
            return function(args, kwargs, *more)

        jitted = self._jitted(special, self._name, self._get)
        return _Special(jitted, frozenset(fixed), alive)

    def _more(self, call: _Call, fixed: Fixed | None, error: Exception) -> Fixed:
        """Return leaves to fix where these do not suffice; raise the error if there are no more."""
        if fixed is None and isinstance(error, _EqualParts):
            return ()
        every = tuple(self._fixable(call))
        first = tuple(i for i in every if not isinstance(call.leaves[i], FLOATS))
        for choice in (first, every):
            has_more = len(choice) > len(fixed or ())
            if has_more and has_hash(tuple(call.leaves[i] for i in choice)):
                return choice
        raise error

    def _fixable(self, call: _Call) -> Iterator[int]:
        """Yield the leaves that are not arrays; of what is differentiated, the integers only."""
        wrt, count = self._differentiated, len(call.args)
        numbers = range(count) if wrt is None else {number % count for number in wrt if count}
        sizes = [jax.tree.structure(arg).num_leaves for arg in call.args]
        inside = [i in numbers for i, size in enumerate(sizes) for _ in range(size)]
        inside += [False] * (len(call.leaves) - len(inside))
        for i, (leaf, is_differentiated) in enumerate(zip(call.leaves, inside, strict=True)):
            if isinstance(leaf, INTEGERS) or not (is_differentiated or isinstance(leaf, ARRAYS)):
                yield i


def fix(get: Callable[[], Any], tree: Any, values: Mapping[int, Any]) -> Callable[..., Any]:
    """Return the function that `get` gives, with these leaves of its arguments fixed.

    It takes other values in their places, and does not keep the function alive.
    """

    @functools.wraps(get(), updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        leaves = [values.get(i, leaf) for i, leaf in enumerate(jax.tree.leaves((args, kwargs)))]
        args, kwargs = jax.tree.unflatten(tree, leaves)
        return get()(*args, **kwargs)

    del function.__wrapped__
    with contextlib.suppress(TypeError, ValueError):  # some builtins have no signature
        function.__signature__ = inspect.signature(get())  # type: ignore[attr-defined]
    return function


def placeholder(value: Any) -> jax.Array:
    """Return what stands for a value that is fixed: a zero, of its type if it is an integer."""
    dtype = value.dtype if isinstance(value, np.generic) else type(value)
    is_integer = isinstance(value, (bool, np.integer, np.bool_))
    return jax.numpy.zeros((), jax.dtypes.canonicalize_dtype(dtype if is_integer else int))
