"""Differentiate factorizations, triangular solves and Fourier transforms.

Matrices are the two last dimensions; everything before them is batch. As everywhere, cotangents
take no conjugate: the transpose of `t -> B t C` is `ct -> Bᵀ ct Cᵀ`.
"""

from __future__ import annotations

import math
import re
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch, batch_alike, merged, shifted, split
from pullback.autodiff.registry import Op, Tangents, linear, only_in, rule
from pullback.ir import build
from pullback.ir.build import Value, add, conj, mul, neg, select

HIGHEST = "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"


def matrix_transpose(x: Value | None) -> Value | None:
    """Swap the two last dimensions."""
    if x is None:
        return None
    rank = build.rank(x)
    return build.permute(x, [*range(rank - 2), rank - 1, rank - 2])


def matmul(x: Value | None, y: Value | None) -> Value | None:
    """Multiply matrices, for each entry of the batch."""
    if x is None or y is None:
        return None
    rank = build.rank(x)
    batch = list(range(rank - 2))
    return build.dot_general(
        x,
        y,
        batch=(batch, batch),
        contract=([rank - 1], [rank - 2]),
        precision=build.attr(HIGHEST),
    )


def triangle(x: Value | None, lower: bool, diagonal: bool = True) -> Value | None:
    """Set elements outside of a triangle to zero, and the diagonal too if not `diagonal`."""
    if x is None:
        return None
    shape = build.shape(x)
    rank = len(shape)
    kind = build.tensor(shape, build.element_type("i32"))
    row, column = build.iota(kind, rank - 2), build.iota(kind, rank - 1)
    direction = ("G" if lower else "L") + ("E" if diagonal else "T")
    return select(build.compare(direction, row, column), x, None)


def solve(
    a: Value, b: Value | None, *, left: bool, lower: bool, unit: bool, transpose: str
) -> Value | None:
    """Emit the x of op(a) x = b, or of x op(a) = b; `transpose` names op."""
    if b is None:
        return None
    attributes = {
        "left_side": build.truth(left),
        "lower": build.truth(lower),
        "unit_diagonal": build.truth(unit),
        "transpose_a": build.attr(f"#stablehlo<transpose {transpose}>"),
    }
    return build.emit1("stablehlo.triangular_solve", b.type, [a, b], attributes)


# -------------------------------------------------------------------------------- cholesky


def _halve_diagonal(x: Value) -> Value:
    """Emit Phi(x): the lower triangle, with half of the diagonal."""
    strict = triangle(x, lower=True, diagonal=False)
    return mul(add(triangle(x, lower=True), strict), 0.5)


@rule("stablehlo.cholesky", keeps_type=True, reads=("lower",))
class Cholesky:
    """dL = L Phi(L⁻¹ dA L⁻ᴴ); for the upper factor, all of it transposed.

    Source: Murray, "Differentiation of the Cholesky decomposition" (arXiv 1602.07527);
    jax/_src/lax/linalg.py, `_cholesky_jvp_rule`. It takes dA to be Hermitian, like A.
    """

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        factor, turn = _lower_factor(op)
        right = solve(
            factor, turn(tangents[0]), left=False, lower=True, unit=False, transpose="ADJOINT"
        )
        both = solve(factor, right, left=True, lower=True, unit=False, transpose="NO_TRANSPOSE")
        return [turn(matmul(factor, _halve_diagonal(both)))]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        factor, turn = _lower_factor(op)
        ct = _halve_diagonal(matmul(matrix_transpose(factor), turn(cts[0])))
        left = solve(factor, ct, left=True, lower=True, unit=False, transpose="TRANSPOSE")
        both = solve(
            conj(factor), left, left=False, lower=True, unit=False, transpose="NO_TRANSPOSE"
        )
        return [turn(both)]


def _lower_factor(op: Op) -> tuple[Value, Any]:
    """Return L, and a function that turns matrices of the op into those of the lower form and back.

    The upper factor of A is Lᵀ for the L of Aᵀ.
    """
    if build.flag(op, "lower"):
        return triangle(op.result, lower=True), lambda x: x
    return triangle(matrix_transpose(op.result), lower=True), matrix_transpose


# ------------------------------------------------------------------------- triangular_solve

_TRANSPOSED = {"NO_TRANSPOSE": "TRANSPOSE", "TRANSPOSE": "NO_TRANSPOSE"}


class _System:
    """The attributes of a triangular_solve, and the ops of its derivatives."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.left = build.flag(op, "left_side")
        self.lower = build.flag(op, "lower")
        self.unit = build.flag(op, "unit_diagonal")
        self.kind = build.enumerator(op.attributes["transpose_a"])

    def apply(self, a: Value | None) -> Value | None:
        """Apply op to a tangent of a, of which only the triangle that is read counts."""
        a = triangle(a, self.lower, diagonal=not self.unit)
        if self.kind == "NO_TRANSPOSE":
            return a
        return conj(matrix_transpose(a)) if self.kind == "ADJOINT" else matrix_transpose(a)

    def apply_transposed(self, ct: Value) -> Value:
        """Transpose `apply`."""
        if self.kind != "NO_TRANSPOSE":
            ct = matrix_transpose(conj(ct) if self.kind == "ADJOINT" else ct)
        return triangle(ct, self.lower, diagonal=not self.unit)

    def solve(self, b: Value | None) -> Value | None:
        return self._solve(self.op.x, b, self.kind)

    def solve_transposed(self, ct: Value) -> Value:
        """Transpose `solve` with respect to b; an adjoint's transpose solves by the conjugate."""
        if self.kind == "ADJOINT":
            return self._solve(conj(self.op.x), ct, "NO_TRANSPOSE")
        return self._solve(self.op.x, ct, _TRANSPOSED[self.kind])

    def _solve(self, a: Value, b: Value | None, kind: str) -> Value | None:
        return solve(a, b, left=self.left, lower=self.lower, unit=self.unit, transpose=kind)


@rule(
    "stablehlo.triangular_solve",
    linear=only_in(1),
    keeps_type=True,
    reads=("left_side", "lower", "unit_diagonal", "transpose_a"),
)
class TriangularSolve:
    """op(a) x = b: dx solves op(a) dx = db - op(da) x, and likewise from the right.

    Source: jax/_src/lax/linalg.py, `_triangular_solve_jvp_rule_a`.
    """

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        system = _System(op)
        da, db = system.apply(tangents[0]), tangents[1]
        if da is not None:
            da = matmul(da, op.result) if system.left else matmul(op.result, da)
        return [system.solve(build.sub(db, da))]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        system = _System(op)
        ct_b = system.solve_transposed(cts[0])
        if not op.active[0]:
            return [None, ct_b]
        x = matrix_transpose(op.result)
        ct_a = matmul(ct_b, x) if system.left else matmul(x, ct_b)
        return [system.apply_transposed(neg(ct_a)), ct_b]


# ------------------------------------------------------------------------------------- fft


def fft(op: Op, cts: Tangents) -> list[Value | None]:
    """Transpose an FFT: FFT and IFFT are symmetric, real ones leave out half of the spectrum.

    Source: jax/_src/lax/fft.py, `_fft_transpose_rule`.
    """
    (ct,) = cts
    kind = build.enumerator(op.attributes["fft_type"])
    lengths = build.integers(op.attributes["fft_length"])
    total = math.prod(lengths)
    if 0 in op.shape(0):
        return [build.zeros(op.operands[0].type)]
    if kind == "RFFT":
        spectrum = mul(conj(ct), _multiplicity(ct, lengths[-1], inverse=True))
        return [mul(_transform(spectrum, "IRFFT", lengths, op.operands[0].type), float(total))]
    found = _transform(ct, "RFFT" if kind == "IRFFT" else kind, lengths, op.operands[0].type)
    if kind == "IRFFT":
        found = conj(mul(mul(found, _multiplicity(found, lengths[-1])), 1.0 / total))
    return [found]


def _transform(x: Value, kind: str, lengths: tuple[int, ...], result: Any) -> Value:
    attributes = {
        "fft_type": build.attr(f"#stablehlo<fft_type {kind}>"),
        "fft_length": build.i64s(lengths),
    }
    return build.emit1("stablehlo.fft", result, [x], attributes)


def _multiplicity(spectrum: Value, length: int, inverse: bool = False) -> Value:
    """Emit how often each entry of half a spectrum is in the whole: once at its ends, else twice.

    The last entry is an end if the length is even. With `inverse`, emit 1 over that.
    """
    shape = build.shape(spectrum)
    half = shape[-1]
    kind = build.tensor((half,), build.element_type("i32"))
    place = build.iota(kind, 0)
    once = build.compare("EQ", place, 0)
    if length % 2 == 0:
        once = build.or_(once, build.compare("EQ", place, half - 1))
    vector = build.tensor((half,), build.info(spectrum.type).element)
    often = select(once, build.full(vector, 1), build.full(vector, 0.5 if inverse else 2))
    return build.broadcast_in_dim(often, shape, (len(shape) - 1,))


linear("stablehlo.fft", fft, linear=only_in(0), reads=("fft_type", "fft_length"))


# --------------------------------------------------------------------------------- batches

batch_alike("stablehlo.cholesky", "stablehlo.fft")


@batch("stablehlo.triangular_solve")
def _batch_solve(op: MappedOp) -> list[Value]:
    """Solve with a matrix per item, or with one for the right-hand sides of all items together."""
    return op.again() if op.batched[0] else _one_matrix(op, build.flag(op, "left_side"))


def _one_matrix(op: MappedOp, left: bool) -> list[Value]:
    """Emit the op once, with the right-hand sides of all items merged into those of one item."""
    dim = len(op.shape(1)) - (1 if left else 2)
    b = merged(op.values[1], dim)
    (x,) = _unsharded(op.again([op.values[0], b], [b.type]))
    return [split(x, op.type(), dim)]


_LAPACK = re.compile(
    "lapack_[sdcz](gees|geev|gehrd|geqp3|geqrf|gesdd|gesvd|getrf|gtsv|heevd|hetrd|orgqr|ormqr|potrf"
    "|syevd|sytrd|trsm|ungqr|unmqr)_ffi"
)
"""JAX's calls of LAPACK on a CPU, which all take any number of leading dimensions."""


def batch_of_lapack(op: MappedOp) -> list[Value] | None:
    """Emit one call of LAPACK for all items; return None for other custom calls."""
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    if _LAPACK.fullmatch(target) is None or build.flag(op, "has_side_effect"):
        return None
    if "indices_of_shape_operands" in op.attributes:  # they hold the shapes of one item
        return None
    if "trsm" in target and not op.batched[0]:
        settings = ir.DictAttr(op.attributes["mhlo.backend_config"])
        return _one_matrix(op, ir.IntegerAttr(settings["side"]).value == ord("L"))
    layouts = {
        name: _batch_layouts(op.attributes[name])
        for name in ("operand_layouts", "result_layouts")
        if name in op.attributes
    }
    return _unsharded(op.again(**layouts))


def _batch_layouts(layouts: Any) -> Any:
    """Add the batch axis as the major dimension of each layout (minor to major)."""
    rows = [[*shifted(ir.DenseIntElementsAttr(each)), 0] for each in ir.ArrayAttr(layouts)]
    found = [build.attr(f"dense<{row}> : tensor<{len(row)}xindex>") for row in rows]
    return ir.ArrayAttr.get(found, context=_jax.context())


def _unsharded(results: list[Value]) -> list[Value]:
    """Remove the sharding rule: it is for many devices, and for the dimensions of one item."""
    attributes = results[0].owner.attributes
    if "sdy.sharding_rule" in attributes:
        del attributes["sdy.sharding_rule"]
    return results
