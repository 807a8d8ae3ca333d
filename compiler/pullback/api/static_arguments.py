"""Arguments that are not arrays: strings, functions, and numbers that Python code branches on.

JAX's transformations pass such arguments on as they are. Ours trace: leaves that JAX cannot trace
become part of the function, and each set of their values is traced for itself. Numbers become
abstract values at first, for they may be others in every call, as a counter of steps is. Only where
tracing fails with these, integers and bools become part of the function as well, and in the end
floats; of what is differentiated, these stay abstract.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from pullback.errors import ArgumentMismatchError, PullbackError
from pullback.frontend.closures.same_rule import Identities
from pullback.frontend.exact_tree import ExactTree, may_equal_others
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


class Specializing:
    """A function that is specialized to the Python values among its arguments where it has to be.

    It is specialized to what JAX cannot trace. It is specialized to numbers where tracing fails
    with abstract values, as Python code does that branches on a number. And to the static parts of
    trees, where they may equal others that are not the same, for JAX does not tell these apart.

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
        self._known = Recent(MOST)  # specialized functions, by what is fixed
        self._has_special = False
        self._trees: dict[ExactTree, ExactTree] = {}
        # By tree and types of leaves, what to fix, the least first; without what has failed.
        self._choices: dict[Hashable, list[Fixed]] = {}
        function = make(get)

        def general(args: tuple[Any, ...], kwargs: dict[str, Any], more: tuple[Any, ...]) -> Any:
            if may_equal_others(jax.tree.structure((args, kwargs))):
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
        """Return the result of the function with the fewest fixed leaves that does not fail.

        Args:
          error: how the general function has failed, if it has been called.
        """
        types = call.tree, tuple(map(type, call.leaves))
        choices = self._choices.get(types) or self._choices_of(call)
        for number, fixed in enumerate(choices):
            if not fixed and error is not None and not isinstance(error, _EqualParts):
                continue  # the general function has failed
            try:
                result = self._special(call, fixed)
            except PullbackError:
                raise
            except STEERED as failure:
                error = failure
                continue
            if len(self._choices) > MOST:
                self._choices.clear()
            self._choices[types] = choices[number:]
            self._has_special = True
            return result
        assert error is not None
        raise error

    def _choices_of(self, call: _Call) -> list[Fixed]:
        """Return sets of leaves to fix, the smallest first: at least what JAX cannot trace.

        Then come integers and bools, then floats. Of what is differentiated, there are no others
        than integers and bools.
        """
        wrt, count = self._differentiated, len(call.args)
        numbers = range(count) if wrt is None else {number % count for number in wrt if count}
        sizes = [jax.tree.structure(arg).num_leaves for arg in call.args]
        inside = [i in numbers for i, size in enumerate(sizes) for _ in range(size)]
        inside += [False] * (len(call.leaves) - len(inside))
        of_kind: tuple[list[int], ...] = [], [], []
        for i, (leaf, is_differentiated) in enumerate(zip(call.leaves, inside, strict=True)):
            if isinstance(leaf, INTEGERS):
                of_kind[1].append(i)
            elif not is_differentiated and not isinstance(leaf, ARRAYS):
                is_float = isinstance(leaf, FLOATS)
                of_kind[2 if is_float else 1 if _is_traceable(leaf) else 0].append(i)
        growing = itertools.accumulate(of_kind)
        choices = dict.fromkeys(tuple(sorted(each)) for each in growing)
        return [f for f in choices if has_hash(tuple(call.leaves[i] for i in f))] or [()]

    def _special(self, call: _Call, fixed: Fixed) -> Any:
        """Return the result of the function with these leaves fixed."""
        if not fixed and not may_equal_others(call.tree.tree):
            return self._general(call.args, call.kwargs, call.more)
        values = {i: call.leaves[i] for i in fixed}
        identities = Identities(of_arguments=True)
        identities.begin(by_contents=False)
        signature = identities.rules(None, tuple(values.values()))
        # Functions made anew that look alike may have found other global variables.
        others = tuple(values.values()) if identities.reads_globals else ()
        key = call.tree, fixed, signature, others
        # Objects that are told by address stay alive with the function.
        found = self._known.get(key) or (self._fixing(call.tree.tree, values), identities)
        left = [leaf for i, leaf in enumerate(call.leaves) if i not in values]
        result = found[0](left, call.more)
        if not identities.may_change:
            self._known.keep(key, found)
        return result

    def _fixing(self, tree: Any, values: Mapping[int, Any]) -> Callable[..., Any]:
        """Return a jitted function of the leaves that are not fixed."""
        user_function = fix(self._get, tree, values)
        function = self._make(lambda: user_function)

        def special(left: list[Any], more: tuple[Any, ...]) -> Any:
            rest = iter(left)
            numbers = range(tree.num_leaves)
            leaves = [placeholder(values[i]) if i in values else next(rest) for i in numbers]
            args, kwargs = jax.tree.unflatten(tree, leaves)
            return function(args, kwargs, *more)

        return self._jitted(special, self._name, self._get)


def _is_traceable(leaf: Any) -> bool:
    """Return True if JAX may take a leaf for an array."""
    try:
        jax.typeof(leaf)
    except TypeError:
        return hasattr(leaf, "__jax_array__")
    return True


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
