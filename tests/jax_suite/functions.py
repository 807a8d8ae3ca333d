"""JAX's transformations as a test file of JAX shall see them: made by pullback.

The file sees another `jax` module. JAX itself, and all that it calls, keeps its own functions.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax._src import api, api_util, core, public_test_util

import pullback as pb

DERIVATIVES = "derivatives"
MAPS = "maps"
NONE = "none"
"""A mode that replaces nothing: what fails in it is not ours."""
TRACED = "traced"
"""JAX's own derivatives of functions under `jax.jit`: what fails in it wants not to be traced."""

calls: collections.Counter[str] = collections.Counter()
"""How often ours were called, and how often JAX's in their place, since this was last cleared."""


def mapped(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, **options: Any) -> Any:
    """As `jax.vmap`; a call with arrays traces one item and batches its program in the IR.

    JAX's own runs where the batch is inside of a trace, has an axis with a name, or takes what is
    not an array.
    """
    by_jax = jax.vmap(fun, in_axes, out_axes, **options)
    named = options.get("axis_name") is not None or options.get("spmd_axis_name") is not None

    @functools.wraps(fun, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if named or kwargs or not _only_arrays(args):
            return by_jax(*args, **kwargs)
        leaves, tree = jax.tree.flatten(args)
        axes = _axes_of(tree, in_axes)
        size = _size(leaves, axes, options.get("axis_size"))
        if size is None:
            return by_jax(*args)
        items = [_item(leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)]
        calls["ours"] += 1
        program = pb.trace(fun)(*jax.tree.unflatten(tree, items))
        return program.vmap(_as_tuple(in_axes), out_axes, axis_size=size)(*args)

    return call


def _only_arrays(args: tuple[Any, ...]) -> bool:
    leaves = jax.tree.leaves(args)
    concrete = (np.ndarray, np.generic, int, float, complex)
    return core.trace_ctx.is_top_level() and all(
        isinstance(leaf, concrete)
        or (isinstance(leaf, jax.Array) and not isinstance(leaf, core.Tracer))
        for leaf in leaves
    )


def _as_tuple(axes: Any) -> Any:
    return tuple(axes) if isinstance(axes, list) else axes


def _axes_of(tree: Any, in_axes: Any) -> list[int | None]:
    return list(api_util.flatten_axes("vmap in_axes", tree, _as_tuple(in_axes), kws=False))


def _size(leaves: list[Any], axes: list[Any], given: int | None) -> int | None:
    """How many items there are; None where the axes do not fit, which JAX has words for."""
    sizes = set() if given is None else {given}
    for leaf, axis in zip(leaves, axes, strict=True):
        if axis is not None:
            count = np.ndim(leaf)
            if not isinstance(axis, int) or not -count <= axis < count:
                return None
            sizes.add(np.shape(leaf)[axis])
    return sizes.pop() if len(sizes) == 1 else None


def _item(leaf: Any, axis: int | None) -> Any:
    """The type of one item of a batch; what all items share as it is."""
    if axis is None:
        return leaf
    batch = jax.typeof(leaf)
    shape = list(batch.shape)
    del shape[axis]
    return jax.ShapeDtypeStruct(shape, batch.dtype, weak_type=batch.weak_type)


NOT_TRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
TRANSFORMS = ("grad", "hessian", "jacfwd", "jacrev", "value_and_grad")
"""Each makes a function of a function."""

AT_A_POINT = ("jvp", "linear_transpose", "linearize", "vjp")


@dataclass(frozen=True)
class Pair:
    """A derivative of ours, and that of JAX."""

    ours: Callable[..., Any]
    by_jax: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Ours; JAX's where Python wants the number of an argument.

        JAX's tests compare with functions that branch in Python.
        """
        try:
            calls["ours"] += 1
            return self.ours(*args, **kwargs)
        except NOT_TRACEABLE:
            result = self.by_jax(*args, **kwargs)
            calls["by JAX"] += 1
            return result


def _sides(fun: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function for our derivative of it, and for JAX's."""
    made, pair = getattr(fun, "made_here", (None, None))  # `functools.wraps` copies it to others
    return (pair.ours, pair.by_jax) if pair and made is fun else (fun, fun)


def _transform(name: str, fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A function made of another one; that of a function made here is derived from its program."""
    ours, by_jax = _sides(fun)
    made = getattr(jax, name)(by_jax, *args, **options)
    pair = Pair(getattr(pb, name)(ours, *args, **options), made)

    @functools.wraps(made)
    def function(*args: Any, **kwargs: Any) -> Any:
        return pair(*args, **kwargs)

    function.__dict__["made_here"] = function, pair
    return function


def _at_a_point(name: str, fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a function and its derivative give at a point."""
    ours, by_jax = _sides(fun)
    bound = (getattr(pb, name), ours), (getattr(jax, name), by_jax)
    return Pair(*(functools.partial(*both) for both in bound))(*args, **options)


def _of_traced(name: str, fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """JAX's own, of the function under `jax.jit`."""
    return getattr(jax, name)(jax.jit(fun), *args, **options)


def _named(make: Callable[..., Any], names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    return {name: functools.partial(make, name) for name in names}


OURS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    DERIVATIVES: _named(_transform, TRANSFORMS) | _named(_at_a_point, AT_A_POINT),
    MAPS: {"vmap": mapped},
    TRACED: _named(_of_traced, TRANSFORMS + AT_A_POINT),
    NONE: {},
}
"""Of each mode, the functions in the place of JAX's."""


class Replaced(types.ModuleType):
    """A module with other functions under some of its names."""

    def __init__(self, module: types.ModuleType, functions: Mapping[str, Callable[..., Any]]):
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(functions)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def put_into(module: types.ModuleType, mode: str) -> None:
    """Gives a module our functions, under all names under which it has JAX's."""
    functions = OURS[mode]
    others = {id(jax): Replaced(jax, functions), id(api): Replaced(api, functions)}
    others |= {id(getattr(jax, name)): function for name, function in functions.items()}
    for name, value in list(vars(module).items()):
        if id(value) in others:
            setattr(module, name, others[id(value)])


def put_into_checks(mode: str) -> None:
    """Gives our functions to `jax.test_util.check_grads`, which differentiates for the tests."""
    put_into(public_test_util, mode)
