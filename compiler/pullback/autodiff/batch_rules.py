"""The table of batching rules: what each op does to a batch of operands at once.

The batch axis of a batched value is its first dimension; a value that all items share has none.
A rule is a function of one `MappedOp`, emits ops, and returns the results. A result with the type
that it had before is one that all items share.

    @batch("stablehlo.transpose")
    def _transpose(op: MappedOp) -> Value:
        permutation = build.integers(op.attributes["permutation"])
        return op.again(permutation=build.i64s((0, *shifted(permutation))))

An op without a rule runs for one item after the other, in a loop: see autodiff/batching.py. A rule
that returns None requests that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pullback import _jax
from pullback.errors import DuplicateRuleError
from pullback.ir import build
from pullback.ir.build import Value


class MappedOp:
    """An op as a batching rule sees it.

    Attributes:
      name: of the op.
      operation: the op, whose operands and results are those of one item.
      values: its operands; those that are batched have a leading batch axis.
      batched: one flag per operand.
      results: the types of its results, of one item.
      size: of the batch axis.
      frame: the driver; see autodiff/batching.py.
    """

    __slots__ = ("batched", "frame", "name", "operation", "results", "size", "values")

    def __init__(
        self,
        name: str,
        operation: Any,
        values: list[Value],
        batched: list[bool],
        results: list[Any],
        frame: Any,
    ) -> None:
        self.name = name
        self.operation = operation
        self.values = values
        self.batched = batched
        self.results = results
        self.frame = frame
        self.size: int = frame.size

    @property
    def attributes(self) -> Any:
        return self.operation.attributes

    def operand(self, index: int) -> Value:
        """Return an operand with the batch axis, repeated along it if all items share it."""
        v = self.values[index]
        return v if self.batched[index] else repeated(v, self.size)

    def operands(self) -> list[Value]:
        """Return all operands with the batch axis."""
        if False not in self.batched:
            return list(self.values)
        return [self.operand(i) for i in range(len(self.values))]

    def leading(self, count: int) -> list[Value] | None:
        """Return the operands, with the batch axis in the first `count` and in no other.

        None if one of the others is batched.
        """
        if True in self.batched[count:]:
            return None
        return [*map(self.operand, range(count)), *self.values[count:]]

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an operand of one item."""
        dims = build.shape(self.values[index])
        return dims[1:] if self.batched[index] else dims

    def type(self, index: int = 0) -> Any:
        """Return the type of a result with the batch axis."""
        return batch_type(self.results[index], self.size)

    def types(self) -> list[Any]:
        """Return the types of all results with the batch axis."""
        return [batch_type(type, self.size) for type in self.results]

    def again(
        self,
        operands: Sequence[Value] | None = None,
        types: Sequence[Any] | None = None,
        **attributes: Any,
    ) -> list[Value]:
        """Emit a copy of the op, regions included, on batched operands; return its results.

        Args:
          operands: all operands with the batch axis if not given.
          types: of the results; those of one item with a leading batch axis if not given.
          attributes: those that change.
        """
        copy = build.clone(self.operation, self.operands() if operands is None else operands)
        for name, attribute in attributes.items():
            copy.attributes[name] = attribute
        results = list(copy.results)
        for result, type in zip(results, self.types() if types is None else types, strict=True):
            result.set_type(type)
        return results


Batch = Callable[[MappedOp], Value | Sequence[Value] | None]
BATCHES: dict[str, Batch] = {}
CAPTURING: set[str] = set()  # ops whose rules know what their regions capture


def batch(*names: str, captures: bool = False) -> Callable[[Batch], Batch]:
    """Register the decorated rule for ops of these names.

    `captures` says that the rule itself deals with batched values that regions capture.
    """

    def enter(rule: Batch) -> Batch:
        for name in names:
            if name in BATCHES:
                where = f"{BATCHES[name].__module__} and {rule.__module__}"
                raise DuplicateRuleError(
                    f"two batching rules for `{name}`", where=where, do="remove one of them"
                )
            BATCHES[name] = rule
            CAPTURING.update([name] * captures)
        return rule

    return enter


def batch_alike(*names: str) -> None:
    """Register ops that are the same on arrays with one more leading dimension."""
    batch(*names)(MappedOp.again)


# ------------------------------------------------------------------------- types and values


@_jax.cached
def batch_type(type: Any, size: int) -> Any:
    """Return the type of a batch of values of this type."""
    info = build.info(type)
    return build.tensor((size, *info.shape), info.element)


def repeated(v: Value, size: int) -> Value:
    """Repeat a value along a new batch axis; of a broadcast, its operand, in one broadcast."""
    dims = build.shape(v)
    places: Sequence[int] = range(len(dims))
    if build.is_result_of(v, "stablehlo.broadcast_in_dim"):
        places = build.integers(v.owner.operation.attributes["broadcast_dimensions"])
        v = v.owner.operands[0]
    return build.broadcast_in_dim(v, (size, *dims), shifted(places))


def along(v: Value, shape: Sequence[int]) -> Value:
    """Broadcast one number for each item, of shape (size,), to an array (size, *shape)."""
    return build.broadcast_in_dim(v, (*build.shape(v), *shape), (0,))


def shifted(dims: Iterable[int]) -> tuple[int, ...]:
    """Return dimensions of one item as those of the batch: each one more."""
    return tuple(d + 1 for d in dims)


def to_front(v: Value, axis: int) -> Value:
    """Move a dimension of a value to the front."""
    return build.permute(v, (axis, *(d for d in range(build.rank(v)) if d != axis)))


def merged(v: Value, dim: int, groups: int = 1) -> Value:
    """Merge the batch axis into a dimension of the items, as (groups, items, rest of it)."""
    size, *dims = build.shape(v)
    parts = [dims[dim]] if groups == 1 else [groups, dims[dim] // groups]
    grouped = build.reshape(v, (size, *dims[:dim], *parts, *dims[dim + 1 :]))
    before = range(1, dim + len(parts))
    moved = build.permute(grouped, (*before, 0, *range(len(before) + 1, build.rank(grouped))))
    return build.reshape(moved, (*dims[:dim], size * dims[dim], *dims[dim + 1 :]))


def merged_type(type: Any, dim: int) -> Any:
    """Return the type of a batch after `merged`."""
    size, *dims = build.shape_of(type)
    dims[dim] *= size
    return build.with_shape(type, tuple(dims))


def split(v: Value, type: Any, dim: int, groups: int = 1) -> Value:
    """Split the batch axis off again, as the inverse of `merged`; the result has this type."""
    size, *dims = build.shape_of(type)
    parts = [size, dims[dim]] if groups == 1 else [groups, size, dims[dim] // groups]
    v = build.reshape(v, (*dims[:dim], *parts, *dims[dim + 1 :]))
    return build.reshape(to_front(v, dim + len(parts) - 2), (size, *dims))
