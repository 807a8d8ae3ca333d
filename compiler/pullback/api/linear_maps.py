"""The linear maps that `vjp` and `linearize` return, and what they take."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from pullback._jax import hijax, references
from pullback._jax.derivatives import NotNeeded, NotSaveable
from pullback._jax.tangent_types import high_type, is_inexact
from pullback.api import named_axes, program_in_jax, tree_prefix
from pullback.errors import ArgumentMismatchError
from pullback.frontend.rules.trace_rule import converted
from pullback.program import argument_leaves
from pullback.program.program import Program
from pullback_runtime import ArgumentError
from pullback_runtime.call import _jax_trees


@dataclass(frozen=True, eq=False)
class PullBack:
    """Maps residuals and cotangents of a function's result to cotangents of its arguments.

    Attributes:
      linear: the program that does it.
      primals: types of the function's arguments.
      out: types of its result.
      in_tree: the structure of the arguments as the caller has it.
      sources: of each residual, the leaf of the arguments that it is, if it is one.
      nonzero: of each leaf of the result, whether its cotangent counts.
    """

    linear: Program
    primals: Any
    out: Any
    in_tree: PyTreeDef
    sources: Sequence[int | None]
    nonzero: Sequence[bool]

    def __call__(self, residuals: Any, *cotangents: Any) -> Any:
        if len(cotangents) != 1:
            raise ArgumentMismatchError(
                f"a VJP function takes one argument, but got {len(cotangents)}",
                do="pass the cotangents of several results as one tree, structured as the result",
            )
        moving = check_tree(self.out, cotangents[0], "cotangent", "result")
        found = program_in_jax.apply_linear(self.linear, (residuals,), (moving,))
        if self._are_weak and not all(
            getattr(ct, "weak_type", True) for ct in jax.tree.leaves(moving)
        ):
            found = jax.tree.map(_strongly_typed, found)
        return argument_leaves.restore_zeros(found, self.primals)

    @functools.cached_property
    def _are_weak(self) -> bool:
        """True if an argument is weakly typed, as Python's numbers are."""
        return any(getattr(aval, "weak_type", False) for aval in jax.tree.leaves(self.primals))

    def saved(self, primals: Any, saveable: Sequence[bool]) -> list[Any]:
        """Return the arguments that are residuals, and marks for others, structured as all."""
        used = set(self.sources)

        def kept(number: int, leaf: Any, may_be: bool) -> Any:
            if number not in used:
                return NotNeeded()
            if not may_be:
                return NotSaveable()
            # A copy of NumPy's: its owner may write to it.
            return leaf if isinstance(leaf, _CONSTANT) else jax.numpy.array(leaf)

        leaves = jax.tree.leaves(primals)
        return list(
            tree_prefix.mirrored(self.in_tree, map(kept, range(len(leaves)), leaves, saveable))
        )

    def residuals(self, args_res: Any, others: Sequence[Any]) -> list[Any]:
        """Return all residuals: those among these arguments, and the others."""
        leaves = jax.tree.leaves(args_res, is_leaf=_is_mark)
        if len(leaves) != self.in_tree.num_leaves:
            raise ArgumentMismatchError(
                f"args_res of a VJP function must have {self.in_tree.num_leaves} leaves, as the "
                f"arguments have, but it has {len(leaves)}",
                where="args_res",
                do="restore the arguments in their places, and leave the others as they are",
            )
        missing = [i for i in self.sources if i is not None and _is_mark(leaves[i])]
        if missing:
            names = self.names()
            raise ArgumentMismatchError(
                "the VJP function was applied before restoring its not-saveable residuals",
                where=", ".join(names[i] for i in missing),
                do="because of saveable_args they were not saved: assign these arguments to their "
                "places in the attribute args_res of the VJP function",
            )
        rest = iter(others)
        return [next(rest) if i is None else leaves[i] for i in self.sources]

    def names(self) -> list[str]:
        """Return the name of each leaf of the arguments."""
        numbered = tree_prefix.mirrored(self.in_tree, range(self.in_tree.num_leaves))
        paths = jax.tree_util.tree_flatten_with_path(numbered)[0]
        return [f"args{jax.tree_util.keystr(path)}" for path, _ in paths]


_CONSTANT = jax.Array, int, float, complex


def _strongly_typed(x: Any) -> Any:
    """Return a value whose type takes part in promotions: Python's numbers have weak types."""
    return jax.lax.convert_element_type(x, x.dtype) if getattr(x, "weak_type", False) else x


def _is_mark(value: Any) -> bool:
    return isinstance(value, (NotNeeded, NotSaveable))


@jax.tree_util.register_pytree_node_class
@dataclass(eq=False)
class CotangentMap:
    """The map of cotangents that `pb.vjp` returns: a pytree, with attributes that JAX's has too.

    Attributes:
      fun: what it does.
      args_res: the arguments that it needs, in the structure of all.
      opaque_residuals: what else it needs.
      reduce_axes: axes over which its results are summed, as by `grad`.
      primals: the arguments, where there are such axes.
    """

    fun: PullBack
    args_res: Any
    opaque_residuals: Any
    reduce_axes: tuple[Any, ...] = ()
    primals: Any = ()

    @property
    def in_tree(self) -> PyTreeDef:
        """The structure of the arguments."""
        return self.fun.in_tree

    @property
    def out_tree(self) -> PyTreeDef:
        """The structure of the result."""
        return jax.tree.structure(self.fun.out)

    @property
    def out_nzs(self) -> Any:
        """Flags of the results that may have a nonzero tangent, in the structure of the result.

        Containers that are not tuples, lists or dictionaries are tuples there.
        """
        return tree_prefix.mirrored(self.out_tree, self.fun.nonzero)

    def __call__(self, *cotangents: Any) -> Any:
        """Return the cotangents of the arguments for those of the result."""
        found = self.fun(self.fun.residuals(self.args_res, self.opaque_residuals), *cotangents)
        return named_axes.totals(found, self.primals, self.reduce_axes)

    def with_refs(self, *places: Any) -> jax.tree_util.Partial:
        """Return the map that adds cotangents to mutable arrays instead of returning them.

        Args:
          *places: for each leaf of the arguments a `jax.Ref`, to which its cotangent is added;
            `jax.ad.GradValue()`, to have it returned; or `jax.ad.DontWant()`.

        Returns:
          A function of the cotangents of the result. In the place of those that it does not return
          are `jax.ad.GradRef()` and `jax.ad.DidntWant()`.

        Raises:
          ArgumentMismatchError: the places have another structure than the arguments, or are of no
            such kind, or of another type than the cotangent.
        """
        leaves, tree = jax.tree.flatten(places)
        wrong = [leaf for leaf in leaves if not _is_place(leaf)]
        if tree != self.in_tree or wrong:
            found = f"there is a {type(wrong[0]).__name__}" if wrong else f"they have {tree}"
            raise ArgumentMismatchError(
                "places of cotangents must be jax.Ref, jax.ad.GradValue() or jax.ad.DontWant(), in "
                f"the structure of the arguments, {self.in_tree}, but {found}",
                where="with_refs",
                do="name a place for each leaf of the arguments",
            )
        avals = jax.tree.leaves(self.fun.primals)
        for name, place, aval in zip(self.fun.names(), leaves, avals, strict=True):
            if references.is_one(place) and not _holds(place, aval):
                raise ArgumentMismatchError(
                    f"the cotangent of {name} is added to a jax.Ref of "
                    f"{argument_leaves.spell(aval)}, but there is one of "
                    f"{argument_leaves.spell(place)}",
                    where="with_refs",
                    do="make it with jax.new_ref(jnp.zeros_like(…)) of the argument",
                )
        return jax.tree_util.Partial(_put, self, places)

    def replace(self, **changes: Any) -> CotangentMap:
        """Return the map with other attributes, such as `args_res`."""
        return dataclasses.replace(self, **changes)

    def tree_flatten(self) -> Any:
        """Return the residuals, and all that is not an array."""
        return (self.args_res, self.opaque_residuals, self.primals), (self.fun, self.reduce_axes)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> CotangentMap:
        """Invert `tree_flatten`."""
        (fun, reduce_axes), (args_res, others, primals) = static, children
        return cls(fun, args_res, others, reduce_axes, primals)


def _is_place(leaf: Any) -> bool:
    return references.is_one(leaf) or isinstance(leaf, (jax.ad.GradValue, jax.ad.DontWant))


def _holds(place: Any, aval: Any) -> bool:
    """Return True if a mutable array is one for cotangents of this type; integers have none."""
    return not is_inexact(aval) or (place.shape, place.dtype) == (aval.shape, aval.dtype)


def _put(pull: CotangentMap, places: Any, *cotangents: Any) -> Any:
    """Put cotangents of arguments in their places; return what of them is to be returned."""

    def put(place: Any, ct: Any) -> Any:
        if isinstance(place, jax.ad.DontWant):
            return jax.ad.DidntWant()
        if isinstance(place, jax.ad.GradValue):
            return ct
        if not argument_leaves.is_float0(ct):
            place.addupdate(converted(ct, place.dtype))
        return jax.ad.GradRef()

    return jax.tree.map(put, places, pull(*cotangents))


@dataclass(frozen=True, eq=False)
class PushForward:
    """Maps residuals and tangents of a function's arguments to tangents of its result.

    Attributes:
      linear: the program that does it.
      primals: types of the function's arguments.
      out: types of its result.
      nonzero: of each leaf of the result, whether its tangent may not be zero.
      perturbed: of each leaf of the arguments, whether its tangent counts; None for all.
    """

    linear: Program
    primals: Any
    out: Any
    nonzero: Sequence[bool]
    perturbed: Sequence[bool] | None

    def __call__(self, residuals: Any, *tangents: Any) -> Any:
        moving = check_tree(self.primals, tangents, "tangent", "")
        chosen = argument_leaves.only(self.perturbed, self.primals, moving)
        found = program_in_jax.apply_linear(self.linear, (residuals,), tuple(chosen))
        return argument_leaves.restore_zeros(found, self.out)

    @property
    def out_nzs(self) -> Any:
        """Flags of the results that may have a nonzero tangent; as in `CotangentMap`."""
        return tree_prefix.mirrored(jax.tree.structure(self.out), self.nonzero)


def check_tangents(primals: Any, tangents: Any) -> Any:
    """Return the tangents of what has one; raise ArgumentMismatchError if they do not fit."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentMismatchError(
            "primal and tangent arguments to pb.jvp must be tuples or lists; "
            f"found {type(primals).__name__} and {type(tangents).__name__}",
            do="pass one item per argument: pb.jvp(f, (x,), (dx,))",
        )
    return check_tree(tuple(primals), tuple(tangents), "tangent", "primals")


def check_tree(primals: Any, given: Any, what: str, root: str) -> Any:
    """Return `given` with None where there is no tangent or cotangent, as for an integer.

    Raise ArgumentMismatchError where it does not fit `primals`, naming the path. As in JAX, a
    number of another type does not fit, such as 1 for 1.0; the cotangent of an integer can be
    any leaf.
    """
    expected = jax.tree.structure(primals)
    found = jax.tree.structure(given)
    if found != expected and _jax_trees.has_fields(expected):
        with contextlib.suppress(ArgumentError):
            given = expected.unflatten(_jax_trees.flatten_arguments(expected, given))
            found = expected
    if found != expected and not _fits_with_none(primals, given):
        raise ArgumentMismatchError(
            f"the {what}s must have the same tree structure as the primal values\n"
            f"    expected: {expected}\n    got:      {found}",
            where=_first_difference(primals, given, root),
            do=f"build the {what}s with jax.tree.map over the primal values",
        )
    leaves, tree = jax.tree.flatten(primals)
    pairs = list(zip(leaves, tree.flatten_up_to(given), strict=True))
    for i, (primal, other) in enumerate(pairs):
        if not _fits(primal, other, what):
            path = jax.tree_util.tree_flatten_with_path(primals)[0][i][0]
            where = f"{what} of {root}{jax.tree_util.keystr(path)}"
            raise _misfit(primal, other, what, where)
    return tree.unflatten([other if _moves(primal) else None for primal, other in pairs])


def _fits(primal: Any, other: Any, what: str) -> bool:
    """Return True if a tangent or cotangent is of the same type as its primal value.

    The program that takes it checks all but weak types, such as those of Python's numbers.
    """
    if not _moves(primal):
        return what == "cotangent" or other is None or argument_leaves.is_float0(other)
    if getattr(other, "dtype", None) == getattr(primal, "dtype", ""):
        return True
    found = _type_of(other)
    return not found.weak_type or found.dtype == _type_of(primal).dtype


@functools.cache
def _kind(dtype: Any) -> Any:
    kinds = np.complexfloating, np.floating
    return next((kind for kind in kinds if jax.dtypes.issubdtype(dtype, kind)), None)


def _type_of(value: Any) -> Any:
    is_type = isinstance(value, (jax.core.ShapedArray, jax.ShapeDtypeStruct))
    found = value if is_type else jax.typeof(value)
    if hijax.is_type(found):
        raise high_type(found, "among the tangents or cotangents")
    return found


def _misfit(primal: Any, other: Any, what: str, where: str) -> ArgumentMismatchError:
    if not _moves(primal):
        return ArgumentMismatchError(
            f"{where} must be a float0 zero or None: an integer has no {what}",
            where=where,
            do="pass None there",
        )
    expected, found = (argument_leaves.spell(_type_of(value)) for value in (primal, other))
    return ArgumentMismatchError(
        f"{where} must have type {expected}, but it is {found}",
        where=where,
        do="give tangents and cotangents the shape and dtype of their primal values",
    )


def _fits_with_none(primals: Any, given: Any) -> bool:
    """Return True if the trees agree when None stands for the tangent of an integer."""
    leaves, tree = jax.tree.flatten(primals)
    try:
        others = tree.flatten_up_to(given)
    except ValueError:
        return False
    return all(
        jax.tree_util.all_leaves([other]) or (other is None and not _moves(primal))
        for primal, other in zip(leaves, others, strict=True)
    )


def _moves(primal: Any) -> bool:
    dtype = getattr(primal, "dtype", None)
    if dtype is None and hijax.has_type(primal):
        raise high_type(jax.typeof(primal), "among the primal values")
    return _kind(dtype or np.result_type(primal)) is not None


def _first_difference(primals: Any, given: Any, root: str) -> str:
    """Return the path of the first leaf that only one of the trees has."""
    ours, theirs = (
        [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
        for tree in (primals, given)
    )
    different = [path for path in [*ours, *theirs] if (path in ours) != (path in theirs)]
    return root + (different[0] if different else "")
