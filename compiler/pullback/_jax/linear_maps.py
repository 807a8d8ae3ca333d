"""Maps with transposes of their own, as a primitive of JAX whose body can be read.

JAX's `linear_call` is one as well, but has no batches, and no derivative by its residuals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax._src import checkify as _checkify
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad as _ad, batching as _batching, mlir as _mlir

from pullback._jax import derivatives
from pullback._jax.tangent_types import is_inexact
from pullback_runtime._jax import output_avals

NAME = "named_call"
"""The name of the primitive, by which readers of jaxprs such as asdex go on in its `jaxpr`."""

linear_map_p = Primitive(NAME)
linear_map_p.multiple_results = True


@dataclass(frozen=True, eq=False)
class Transposes:
    """The transposes of a map: `(operands, cotangents) -> cotangents of the operands`.

    An operand is None if the map is transposed with respect to it, and a cotangent if it is zero.
    """

    function: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]

    def __repr__(self) -> str:
        return self.function.__name__


class Unknown(NamedTuple):
    """Stands for the body of a map that has none: what to raise, and the types of the results."""

    error: Exception
    out_avals: tuple[Any, ...]


class Parts(NamedTuple):
    """The parameters of an equation; see `linear_map`."""

    name: str
    jaxpr: Any
    unknown: Unknown | None
    transpose: Transposes
    linear: tuple[int, ...]


def parts_of(equation: Any) -> Parts:
    """Return the parameters of a call of a linear map."""
    return Parts(**equation.params)


def linear_map(
    body: Callable[..., Sequence[Any]] | Unknown,
    transpose: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
    operands: Sequence[Any],
    linear: Sequence[int],
    name: str,
) -> list[Any]:
    """Call a map whose transposes are known, as one equation.

    Args:
      body: the map, which JAX differentiates by operands that are not linear. If it is unknown, to
        transpose the call is no error, but to compute it is.
      transpose: see `Transposes`.
      linear: positions of operands that the map is linear in, jointly.
    """
    unknown = body if isinstance(body, Unknown) else None
    jaxpr = jax.make_jaxpr(body)(*operands) if unknown is None else None
    return _bind(operands, Parts(name, jaxpr, unknown, Transposes(transpose), tuple(linear)))


def _bind(operands: Sequence[Any], parts: Parts) -> list[Any]:
    found: list[Any] = linear_map_p.bind(*operands, **parts._asdict())
    return found


@linear_map_p.def_effectful_abstract_eval
def _abstract_eval(*avals: Any, jaxpr: Any, unknown: Unknown | None, **_: Any) -> Any:
    if unknown is not None:
        return output_avals(avals, unknown.out_avals), set()
    return jaxpr.out_avals, jaxpr.effects


def _run(*args: Any, jaxpr: Any, unknown: Unknown | None, **_: Any) -> list[Any]:
    if unknown is not None:
        raise unknown.error
    found: list[Any] = jaxpr_as_fun(jaxpr)(*args)
    return found


@linear_map_p.def_impl
def _impl(*args: Any, jaxpr: Any, unknown: Unknown | None, **_: Any) -> list[Any]:
    if unknown is not None:
        raise unknown.error
    return _run_jitted(jaxpr, *args)


@functools.partial(jax.jit, static_argnums=0)
def _run_jitted(jaxpr: Any, *args: Any) -> list[Any]:
    return _run(*args, jaxpr=jaxpr, unknown=None)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    parts = Parts(**params)
    unknown, linear = parts.unknown, parts.linear
    outs = _bind(primals, parts)
    moved = [_ad.Zero(jax.typeof(out).to_tangent_aval()) for out in outs]
    moving = [i for i, t in enumerate(tangents) if not derivatives.is_zero(t)]
    rest = [i for i in moving if i not in linear]
    terms: list[Sequence[Any]] = []
    if rest and unknown is not None:
        terms.append(_unknown_by(rest, primals, tangents, unknown, parts.name))
    elif rest:
        terms.append(_by_body(rest, primals, tangents, parts.jaxpr))
    if len(rest) < len(moving):
        pairs = enumerate(zip(primals, tangents, strict=True))
        given = [_ad.instantiate_zeros(t) if i in linear else x for i, (x, t) in pairs]
        terms.append(_bind(given, parts))
    for term in terms:
        for i, t in enumerate(term):
            if is_inexact(jax.typeof(outs[i])):
                moved[i] = _ad.add_tangents(moved[i], t)
    return outs, moved


def _by_body(
    rest: Sequence[int], primals: Sequence[Any], tangents: Sequence[Any], jaxpr: Any
) -> Sequence[Any]:
    """Return the tangents of the results by some operands, where the others are fixed."""

    def restricted(*values: Any) -> list[Any]:
        full = list(primals)
        for i, value in zip(rest, values, strict=True):
            full[i] = value
        found: list[Any] = jaxpr_as_fun(jaxpr)(*full)
        return found

    given = [[x[i] for i in rest] for x in (primals, tangents)]
    moved: Sequence[Any] = jax.jvp(restricted, *given)[1]
    return moved


def _unknown_by(
    rest: Sequence[int],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    unknown: Unknown,
    name: str,
) -> list[Any]:
    """Return tangents that raise when they are computed or transposed."""

    def transpose(operands: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        raise unknown.error

    return linear_map(unknown, transpose, [*primals, *(tangents[i] for i in rest)], (), name)


def _transpose(cotangents: Sequence[Any], *args: Any, transpose: Transposes, **_: Any) -> list[Any]:
    operands = [None if _ad.is_undefined_primal(x) else x for x in args]
    given = [None if derivatives.is_zero(ct) else ct for ct in cotangents]
    found = transpose.function(operands, given)
    return [
        _ad.Zero(x.aval.to_ct_aval()) if operand is None and ct is None else ct
        for x, operand, ct in zip(args, operands, found, strict=True)
    ]


def _batch(axis: Any, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """Return the results of the batched call, and their batch axis, the first one of each."""
    parts = Parts(**params)
    if all(dim is None for dim in dims):
        outs = _bind(args, parts)
        return outs, [None] * len(outs)
    mapped = functools.partial(
        jax.vmap,
        axis_size=axis.size,
        axis_name=axis.name,
        spmd_axis_name=axis.spmd_name or axis.explicit_mesh_axis,
    )
    of_one, unknown = parts.transpose.function, parts.unknown

    def of_all(operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        known = [None if x is None else dim for x, dim in zip(operands, dims, strict=True)]
        given = [None if ct is None else 0 for ct in cotangents]
        if all(x is None for x in (*known, *given)):
            found = of_one(operands, cotangents)
        else:
            found = mapped(of_one, in_axes=(known, given))(operands, cotangents)
        cts = zip(found, operands, dims, strict=True)
        return [None if ct is None or x is not None else _unmapped(ct, dim) for ct, x, dim in cts]

    def body(*args: Any) -> list[Any]:
        found: list[Any] = mapped(jaxpr_as_fun(parts.jaxpr), in_axes=tuple(dims))(*args)
        return found

    if unknown is not None:
        avals = [jax.ShapeDtypeStruct((axis.size, *x.shape), x.dtype) for x in unknown.out_avals]
        unknown = Unknown(unknown.error, tuple(avals))
    outs = linear_map(unknown or body, of_all, args, parts.linear, parts.name)
    return outs, [0] * len(outs)


def _unmapped(ct: Any, dim: int | None) -> Any:
    """Return the cotangent of an operand with this batch axis; all items share one without."""
    return ct.sum(0) if dim is None else jax.numpy.moveaxis(ct, 0, dim)


def _check(*given: Any, jaxpr: Any, unknown: Unknown | None, **_: Any) -> Any:
    """Let checkify look into the body; jax 0.12 passes one more leading argument."""
    if unknown is not None:
        raise unknown.error
    (at,) = (i for i, each in enumerate(given) if isinstance(each, set | frozenset))
    *context, error = given[:at]
    return _checkify.checkify_jaxpr(*context, jaxpr, given[at], error, *given[at + 1 :])


_ad.primitive_jvps[linear_map_p] = _jvp
_ad.primitive_transposes[linear_map_p] = _transpose
_batching.fancy_primitive_batchers[linear_map_p] = _batch
_mlir.register_lowering(linear_map_p, _mlir.lower_fun(_run, multiple_results=True))
_checkify.error_checks[linear_map_p] = _check
