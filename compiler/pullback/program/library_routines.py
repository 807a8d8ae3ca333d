"""Library calls, such as LAPACK's, as functions of JAX that have derivatives and batches.

What JAX lowers a decomposition to is a custom call, whose options, layouts and results are those of
the library: on a CPU `lapack_*getrf` for LU, on a GPU `cusolver_getrf`, on a TPU `LuDecomposition`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax

from pullback._jax import ir
from pullback.ir import build
from pullback.ir.purity import target_of
from pullback_runtime.call._libraries import home_of

TEXT = "backend_config"
_CONFIGURATIONS = ("mhlo.backend_config", TEXT)
Options = Mapping[str, str | bool]
"""The options of a call: on a CPU a letter each, such as L or U for `uplo`; on a TPU one text."""
Results = dict[int, Any]
"""Results that JAX has derivatives of, by position; not those that only the library needs."""

_NAME = re.compile(r"(lapack_[sdcz]|cusolver_|cusparse_|hipsolver_|hipsparse_)(\w+)_ffi")
_EIGH = re.compile(r"([01]),1,\d+,[\d.e-]+")
_DEFAULT = chr(0)  # of algorithms


def _cholesky(options: Options, x: Any) -> Results:
    """Return the Cholesky factor as the lower triangle; the upper one stays as in the operand."""
    if not _takes_lower(options):
        return {}
    lower = lax.linalg.cholesky(x, symmetrize_input=False)
    return {0: jnp.tril(lower) + jnp.triu(x, 1)}


def _lu(options: Options, x: Any) -> Results:
    lu, pivots, _ = lax.linalg.lu(x)
    return {0: lu, 1: pivots + 1}


def _eigh(options: Options, x: Any) -> Results:
    if options.get("mode", "V") != "V" or options.get("algorithm", _DEFAULT) != _DEFAULT:
        return {}
    v, w = lax.linalg.eigh(x, lower=_takes_lower(options), symmetrize_input=False)
    return {0: v, 1: w}


def _lu_on_tpu(options: Options, x: Any) -> Results:
    return dict(enumerate(lax.linalg.lu(x)))


def _eigh_on_tpu(options: Options, x: Any) -> Results:
    """Return eigenvectors and eigenvalues, if the call sorts these; else nothing.

    Calls that do not sort are parts of the algorithm for matrices wider than 256. The text says
    which triangle is read, whether eigenvalues are sorted, and when to stop: JAX after 100 sweeps,
    TensorFlow after fewer.
    """
    found = _EIGH.fullmatch(str(options.get(TEXT)))
    if found is None:
        return {}
    jacobi, lower = lax.linalg.EighImplementation.JACOBI, found[1] == "1"
    v, w = lax.linalg.eigh(x, lower=lower, symmetrize_input=False, implementation=jacobi)
    return {0: v, 1: w}


def _takes_lower(options: Options) -> bool:
    return options["uplo"] == "L" if "uplo" in options else bool(options["lower"])


def _svd_on_gpu(options: Options, x: Any) -> Results:
    """Return the SVD by the QR algorithm, called on the transpose of a matrix wider than high."""
    if not options["compute_uv"]:
        return {1: lax.linalg.svd(x, compute_uv=False)}
    u, s, vh = lax.linalg.svd(x, full_matrices=bool(options["full_matrices"]))
    return {1: s, 2: vh, 3: u} if options["transposed"] else {1: s, 2: u, 3: vh}


def _svd_with_v(options: Options, x: Any) -> Results:
    """Return the SVD by Jacobi's or the polar method, with V itself instead of its adjoint.

    With `full_matrices`, U and V are square: columns that JAX has no derivative of are 0.
    """
    if not options["compute_uv"]:
        return {1: lax.linalg.svd(x, compute_uv=False)}
    u, s, vh = lax.linalg.svd(x, full_matrices=False)
    v = jnp.conj(jnp.swapaxes(vh, -1, -2))
    return {1: s, **{i: _widened(each, options) for i, each in ((2, u), (3, v))}}


def _widened(x: Any, options: Options) -> Any:
    more = x.shape[-2] - x.shape[-1] if options["full_matrices"] else 0
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, more)])


def _svd(options: Options, x: Any) -> Results:
    if options["mode"] == "N":
        return {1: lax.linalg.svd(x, compute_uv=False)}
    u, s, vh = lax.linalg.svd(x, full_matrices=options["mode"] == "A")
    return {1: s, 2: u, 3: vh}


def _triangular_solve(options: Options, a: Any, b: Any) -> Results:
    solution = lax.linalg.triangular_solve(
        a,
        b,
        left_side=options["side"] == "L",
        lower=options["uplo"] == "L",
        transpose_a=options["trans_x"] != "N",
        conjugate_a=options["trans_x"] == "C",
        unit_diagonal=options["diag"] == "U",
    )
    return {0: solution}


def _tridiagonal_solve(options: Options, lower: Any, d: Any, upper: Any, b: Any) -> Results:
    return {3: lax.linalg.tridiagonal_solve(lower, d, upper, b)}


def _tridiagonal_solve_on_gpu(options: Options, *operands: Any) -> Results:
    return {0: _tridiagonal_solve(options, *operands)[3]}


def _qr(options: Options, x: Any) -> Results:
    """Return R, padded with zero rows to the shape of x, and Q with a column for each row of R."""
    q, r = lax.linalg.qr(x, full_matrices=False)
    rows = [(0, 0)] * (x.ndim - 2) + [(0, x.shape[-2] - r.shape[-2]), (0, 0)]
    return {0: jnp.pad(r, rows), 1: q}


QR = "geqrf", "Qr"
MAKES_Q = "orgqr", "ungqr", "ProductOfElementaryHouseholderReflectors"
WITH_V = "gesvdj", "gesvdp"
ROUTINES: dict[str, Callable[..., Results]] = {
    "potrf": _cholesky,
    "getrf": _lu,
    "syevd": _eigh,
    "heevd": _eigh,
    "gesdd": _svd,
    "gesvd": _svd_on_gpu,
    **dict.fromkeys(WITH_V, _svd_with_v),
    "trsm": _triangular_solve,
    "gtsv": _tridiagonal_solve,
    "gtsv2": _tridiagonal_solve_on_gpu,
    **dict.fromkeys(QR, _qr),
    "LuDecomposition": _lu_on_tpu,
    "Eigh": _eigh_on_tpu,
}
"""Maps a routine to a function of (options, *operands)."""


def routine_of(call: ir.Operation) -> str:
    """Return the routine that a call calls, without the library and its letter for the type."""
    target = target_of(call) or ""
    found = _NAME.fullmatch(target)
    return found[2] if found else target


def is_laid_out(call: ir.Operation, by_columns: bool) -> bool:
    """Return True if matrices have JAX's layout: column by column for LAPACK, or row by row.

    Always on a TPU, which has layouts of its own.
    """
    if home_of(target_of(call) or "") == "tpu":
        return True
    rank = max(map(build.rank, call.operands))
    for name, values in (("operand_layouts", call.operands), ("result_layouts", call.results)):
        if name not in call.attributes:
            return False
        for v, layout in zip(values, call.attributes[name], strict=True):
            expected = list(reversed(range(build.rank(v))))
            if len(expected) == rank and by_columns:
                expected[:2] = expected[1::-1]
            if [int(i) for i in layout] != expected:
                return False
    return True


def options_of(call: ir.Operation) -> dict[str, str | bool]:
    """Return the options of a call by name; a single one for a text."""
    if isinstance(text := call.attributes.get(TEXT), ir.StringAttr) and text.value:
        return {TEXT: text.value}
    configurations = (call.attributes.get(name) for name in _CONFIGURATIONS)
    found = next((each for each in configurations if isinstance(each, ir.DictAttr)), ())
    return {each.name: option for each in found if (option := _option(each.attr)) is not None}


def _option(a: ir.Attribute) -> str | bool | None:
    if isinstance(a, ir.BoolAttr):
        return a.value
    return chr(a.value) if isinstance(a, ir.IntegerAttr) else None


def asks_for_success(use: Any) -> bool:
    """Return True if a use of a status compares it with 0: our results are NaN on failure."""
    user = use.owner.operation
    if user.name != "stablehlo.compare" or use.operand_number:
        return False
    direction = build.enumerator(user.attributes["comparison_direction"])
    return direction in ("EQ", "GE") and build.one_number(user.operands[1]) == 0
