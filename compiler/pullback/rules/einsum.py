"""Expand Einstein summations into diagonals, sums and one product, and differentiate those.

The spec leaves the two ops out, so XLA's reading of them counts. Labels are letters; `...` stands
for any number of dimensions, counted from the last; a label that repeats within an operand takes
its diagonal, within the result fills a diagonal; a dimension of size 1 goes with any size of the
same label; without an arrow, the result has the labels that occur once, in alphabetical order.
Source: xla/hlo/builder/lib/matrix.cc, `ParseEinsumString` and `Einsum`.

What contradicts itself (a label with two sizes, neither of them 1) is an error here, though not
always there.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import NamedTuple

from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch
from pullback.autodiff.registry import Op, jointly, separately, unsupported
from pullback.errors import MissingRuleError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.rules.derived import by_expansion

Labels = tuple[str, ...]


class Term(NamedTuple):
    """An array with a label for each of its dimensions."""

    value: Value
    labels: Labels

    def size(self, label: str) -> int:
        return build.shape(self.value)[self.labels.index(label)]

    def positions(self, labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.labels.index(label) for label in labels)


def einsum(op: Op, operands: Sequence[Value]) -> Value:
    """Emit the einsum of one operand or two by other ops."""
    labels, result = parse(op, [build.rank(v) for v in operands])
    terms = [_diagonal(op, Term(v, names)) for v, names in zip(operands, labels, strict=True)]
    unique = tuple(dict.fromkeys(result))
    if not set(unique).issubset(label for term in terms for label in term.labels):
        raise _refusal(op, "its result has a label that no operand has")
    if len(terms) == 1:
        total = _summed(terms[0], unique)
    else:
        x, y = terms
        if x.value.type.element_type != y.value.type.element_type:
            raise _refusal(op, "its operands have different element types")
        total = _product(_squeezed(op, x, y), _squeezed(op, y, x), unique)
    return _onto_diagonal(Term(build.permute(total.value, total.positions(unique)), unique), result)


# ------------------------------------------------------------------------------- the config

_TERM = re.compile(r"[a-zA-Z]*(\.\.\.)?[a-zA-Z]*")


def parse(op: Op, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand, and those of the result."""
    left, arrow, right = _config(op).partition("->")
    terms = left.split(",")
    right = right if arrow else _implied(left)
    if len(terms) != len(ranks) or not all(_TERM.fullmatch(term) for term in (*terms, right)):
        raise _refusal(op, f"it must name {len(ranks)} operand(s) and the result, by letters")
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    for term, rank, count in zip(terms, ranks, hidden, strict=True):
        if count < 0 or (count and "..." not in term):
            raise _refusal(op, f"`{term}` does not fit an operand of rank {rank}")
    operands = [_labels(term, count) for term, count in zip(terms, hidden, strict=True)]
    return operands, _labels(right, max(hidden))


def _config(op: Op | MappedOp) -> str:
    return str(ir.StringAttr(op.attributes["einsum_config"]).value)


def _implied(left: str) -> str:
    """Return the result's labels if the config has no arrow."""
    once = sorted(c for c in set(left) - {",", "."} if left.count(c) == 1)
    return ("..." if "..." in left else "") + "".join(once)


def _labels(term: str, hidden: int) -> Labels:
    """Return the labels of a term in a tuple; dimensions of `...` are numbered from the last."""
    head, dots, tail = term.partition("...")
    return (*head, *(f".{i}" for i in range(hidden if dots else 0, 0, -1)), *tail)


def _refusal(op: Op, why: str) -> MissingRuleError:
    return unsupported(op, f'with config "{_config(op)}": {why}', "write it with dot_general")


# --------------------------------------------------------------------------------- the steps


def _diagonal(op: Op, term: Term) -> Term:
    """Take the diagonal of two dimensions that have one label; the first of them remains."""
    v, labels = term
    for i, label in enumerate(labels):
        first = labels.index(label)
        if first < i:
            if build.shape(v)[first] != build.shape(v)[i]:
                raise _refusal(op, f"`{label}` has two sizes")
            v = build.reduce_sum(_where_equal(v, first, i), [i])
            return _diagonal(op, Term(v, labels[:i] + labels[i + 1 :]))
    return term


def _onto_diagonal(term: Term, labels: Labels) -> Value:
    """Transpose `_diagonal`: return an array with these labels, which may repeat."""
    shape = [term.size(label) for label in labels]
    v = build.broadcast_in_dim(term.value, shape, [labels.index(label) for label in term.labels])
    for i, label in enumerate(labels):
        first = labels.index(label)
        v = _where_equal(v, first, i) if first < i else v
    return v


def _where_equal(v: Value, i: int, j: int) -> Value:
    """Set elements to zero where their indices along two dimensions differ."""
    type = build.with_element(v.type, build.element_type("i32"))
    return build.select(build.compare("EQ", build.iota(type, i), build.iota(type, j)), v, None)


def _squeezed(op: Op, term: Term, other: Term) -> Term:
    """Drop the dimensions of size 1 for which the other operand has another size."""
    differing = {x for x in term.labels if x in other.labels and term.size(x) != other.size(x)}
    if any(1 not in (term.size(label), other.size(label)) for label in differing):
        raise _refusal(op, f"`{min(differing)}` has two sizes")
    dropped = {label for label in differing if term.size(label) == 1}
    labels = tuple(label for label in term.labels if label not in dropped)
    return Term(build.reshape(term.value, [term.size(label) for label in labels]), labels)


def _summed(term: Term, kept: Sequence[str]) -> Term:
    """Sum over all dimensions but those labelled `kept`."""
    summed = [i for i, label in enumerate(term.labels) if label not in kept]
    labels = tuple(label for label in term.labels if label in kept)
    return Term(build.reduce_sum(term.value, summed), labels)


def _product(x: Term, y: Term, result: Labels) -> Term:
    """Multiply along labels of both operands; contract those that the result does not have."""
    x, y = _summed(x, (*y.labels, *result)), _summed(y, (*x.labels, *result))
    both = [label for label in x.labels if label in y.labels]
    batch = [label for label in both if label in result]
    contract = [label for label in both if label not in result]
    v = build.dot_general(
        x.value,
        y.value,
        batch=(x.positions(batch), y.positions(batch)),
        contract=(x.positions(contract), y.positions(contract)),
    )
    free = [label for term in (x, y) for label in term.labels if label not in both]
    return Term(v, (*batch, *free))


by_expansion("stablehlo.einsum", einsum, linear=separately, family="einsum")
by_expansion("stablehlo.unary_einsum", einsum, linear=jointly, family="einsum")


# --------------------------------------------------------------------------------- batches


@batch("stablehlo.einsum", "stablehlo.unary_einsum")
def _batch(op: MappedOp) -> list[Value] | None:
    """Prepend a new label to each batched operand and to the result."""
    config = _config(op)
    left, arrow, right = config.partition("->")
    unused = sorted({*string.ascii_letters} - {*config})
    if not unused:
        return None
    label = unused[0]
    terms = zip(left.split(","), op.batched, strict=True)
    operands = ",".join(label + term if moves else term for term, moves in terms)
    result = label + (right if arrow else _implied(left))
    return op.again(op.values, einsum_config=build.string(f"{operands}->{result}"))
