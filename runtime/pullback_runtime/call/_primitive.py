"""A StableHLO module as one JAX primitive, so that a loaded program is a citizen of JAX.

Lowering merges the module's functions into the module being lowered and calls the entry; under
`jax.jit` a call then costs what any jitted function costs, and asynchronous dispatch, donation,
shardings, several devices and the persistent compilation cache come along.

Derivatives and batching are registered with `set_rules`: they map a handle to new handles.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
from jax.extend.core import Primitive

from pullback_runtime import _jax
from pullback_runtime._errors import MissingTransformError, ModuleError
from pullback_runtime._lazy_values import Recent
from pullback_runtime.call._arguments import check_avals
from pullback_runtime.call._backend import INSTALL, default_backend
from pullback_runtime.call._handle import ModuleHandle
from pullback_runtime.call._jax_arguments import check_sixty_four_bits, convert_weak
from pullback_runtime.call._libraries import check_libraries
from pullback_runtime.call._merge_modules import merge
from pullback_runtime.ir._module import LARGE, to_bytecode

call_module_p = Primitive("call_module")
call_module_p.multiple_results = True


def call_module(handle: ModuleHandle, *args: Any) -> list[jax.Array]:
    """Call the module with flat arguments; traceable, and a list of arrays comes back."""
    return _bind(handle, _jax.unify_varying(convert_weak(handle, args)))


def _bind(handle: ModuleHandle, args: Sequence[Any]) -> list[jax.Array]:
    """Bind the primitive, and tell JAX which of the results are in the memory of the host."""
    results = call_module_p.bind(*args, handle=handle)
    for i in handle.on_host:
        results[i] = jax.device_put(results[i], jax.memory.Space.Host)
    return results


def _call(handle: ModuleHandle, *args: Any) -> list[jax.Array]:
    return _bind(handle, args)


_jax.be_one_step(_call, "a compiled module")
_call_jitted = jax.jit(_call, static_argnums=0)

SHARED = Recent(64)
"""Jitted calls of small modules that were called lately, by platform and content."""


def _shared(handle: ModuleHandle, platform: str) -> Callable[..., list[jax.Array]] | None:
    """Return the jitted call of small modules of this content; None for a module that has its own.

    So a function that is made anew for each batch of data, and derived, is compiled once.
    """
    code = handle.load()
    needs_objects = handle.host_callbacks or handle.keepalives
    if needs_objects or len(code) > LARGE or platform not in handle.platforms:
        return None
    digest = handle.digest() if handle.digest else _digest(code)
    key = platform, digest, handle.entry, handle.in_avals, handle.out_avals
    found = SHARED.get(key)
    if found is None:
        # The handle would keep what it was derived from.
        alone = dataclasses.replace(
            handle, key=key, load=lambda: code, digest=None, elsewhere=_refuse
        )
        call = functools.wraps(_call)(lambda *args: _call(alone, *args))
        found = SHARED.keep(key, jax.jit(call))
    return found


def _digest(code: bytes) -> bytes:
    return hashlib.sha256(to_bytecode(_jax.without_locations(code))).digest()


class _OtherPlatform(Exception):
    """Raised where arguments are on another platform than the default one."""


def _refuse(platform: str) -> None:
    raise _OtherPlatform


def _run(args: Sequence[Any], handle: ModuleHandle) -> list[jax.Array]:
    platform = default_backend()
    if platform not in handle.shared:
        handle.shared[platform] = _shared(handle, platform)
    shared = handle.shared[platform]
    if shared is not None:
        with contextlib.suppress(_OtherPlatform):
            return shared(*args)
    return _call_jitted(handle, *args)


@call_module_p.def_impl
def _impl(*args: Any, handle: ModuleHandle) -> list[jax.Array]:
    try:
        if jax.config.jax_disable_jit:  # a module has no Python to run instead
            with jax.disable_jit(False):
                return _run(args, handle)
        return _run(args, handle)
    except FloatingPointError as error:  # of jax_debug_nans, which knows no op in a module
        found = _RULES.get("explain_nan")
        report = found and found(handle, args, "(inf)" in str(error))
        raise FloatingPointError(f"{error}\n{report}" if report else str(error)) from None


@call_module_p.def_effectful_abstract_eval
def _abstract_eval(*avals: Any, handle: ModuleHandle) -> tuple[list[Any], set[Any]]:
    check_sixty_four_bits(handle)
    check_avals(handle, avals)
    effect = _jax.DEBUG_EFFECT if handle.debugs else _jax.IO_EFFECT
    effects = {effect} if not handle.pure and handle.host_callbacks else set()
    return _jax.output_avals(avals, handle.out_avals), effects


def _lower(
    context: Any, *args: Any, handle: ModuleHandle, platform: str | None = None
) -> Sequence[Any]:
    entry = merge(context.module_context, _for_platform(handle, platform), platform)
    return _jax.emit_call(context, entry, args, handle.out_avals)


def _for_platform(handle: ModuleHandle, platform: str | None) -> ModuleHandle:
    """Return the variant of a handle for a platform, or itself if it has none and can run there."""
    if platform is None or handle.elsewhere is None or platform in handle.platforms:
        return handle
    found = handle.elsewhere(platform)
    if found is None:
        check_libraries(handle.load(), handle.platforms, platform)
        return handle
    for what in ("in_avals", "out_avals"):
        one, other = getattr(handle, what), getattr(found, what)
        if one != other:
            raise ModuleError(
                f"the module for {platform} has other arguments or results than that for "
                f"{', '.join(handle.platforms)}: {other}, not {one}",
                where=f"in a call of @{handle.entry} ({len(handle.in_avals)} arguments)",
                do=f"make it where JAX's default device is one of {platform}: under "
                f'jax.default_device(jax.devices("{platform}")[0])',
            )
    return found


_jax.register_lowering(call_module_p, _lower)
for _platform in INSTALL:
    _lower_there = functools.partial(_lower, platform=_platform)
    _jax.register_lowering(call_module_p, _lower_there, platform=_platform)


# Transformations.


class JVPRule(Protocol):
    """`rule(handle, perturbed)`: `perturbed` are the positions of arguments with tangents.

    The module is `(args…, tangents of the perturbed args…) -> (outs…, tangents of inexact outs…)`.
    """

    def __call__(self, handle: ModuleHandle, perturbed: tuple[int, ...]) -> ModuleHandle: ...


class Transposed(NamedTuple):
    """A transposed call: the module `(known args…, cotangents of outs…) -> (cts of args…)`.

    Attributes:
      handle: the module.
      gives: positions of the args whose cotangents it returns; all that were asked for, or more.
      takes: positions of the outs whose cotangents it takes; all that were given, or more.
      known: positions of the args that it takes; all that are not in `gives` if this is None.
    """

    handle: ModuleHandle
    gives: tuple[int, ...]
    takes: tuple[int, ...]
    known: tuple[int, ...] | None = None


class TransposeRule(Protocol):
    """`rule(handle, linear, given)`: the transpose in the args at `linear` of the outs at `given`.

    The fields of `Transposed` as a tuple will do.
    """

    def __call__(
        self, handle: ModuleHandle, linear: tuple[int, ...], given: tuple[int, ...]
    ) -> Transposed: ...


class Halves(NamedTuple):
    """A call split in two, the first half of which JAX can run without the unknown operands.

    `known: (operands at takes…) -> (results not in late…, residuals…)`;
    `rest: (all operands…, residuals…) -> (results at gives…)`.

    Attributes:
      known: the module of the first call.
      rest: the module of the second.
      takes: the operands of the first call, all of them known.
      late: for each result, True if it is taken from the second call.
      gives: the results that the second call computes, those in `late` or more.
      residuals: for each residual, the operand in `takes` that it is; None for one that is not an
        operand, which alone the second call takes.
    """

    known: ModuleHandle
    rest: ModuleHandle
    takes: Sequence[int]
    late: Sequence[bool]
    gives: Sequence[int]
    residuals: Sequence[int | None] = ()


class PartialEvaluationRule(Protocol):
    """`rule(handle, unknown)`: the call in halves; `unknown` are positions of operands.

    It returns None if no result can be known.
    """

    def __call__(self, handle: ModuleHandle, unknown: tuple[int, ...]) -> Halves | None: ...


class BatchingRule(Protocol):
    """`rule(handle, in_axes, axis_size, mesh_axis)`: the batched module, and each result's axis.

    The batch lies along `mesh_axis`, which is None where no mesh with explicit axes is set.
    """

    def __call__(
        self,
        handle: ModuleHandle,
        in_axes: tuple[int | None, ...],
        axis_size: int,
        mesh_axis: Any,
        /,
    ) -> tuple[ModuleHandle, tuple[int | None, ...]]: ...


_RULES: dict[str, Any] = {}


def set_rules(
    *,
    jvp: JVPRule | None = None,
    transpose: TransposeRule | None = None,
    batching: BatchingRule | None = None,
    partial_evaluation: PartialEvaluationRule | None = None,
    explain_nan: Callable[[ModuleHandle, Sequence[Any], bool], object] | None = None,
) -> None:
    """Register how a module is differentiated, transposed, batched and split in two.

    None leaves a rule as it is.

    `explain_nan(handle, args, infs)` says which op makes a NaN, or an infinity; None if it does not
    know.

    JAX's own tracing caches results of a rule, so rules should give equal handles when asked
    the same question twice.
    """
    given = {
        "jvp": jvp,
        "transpose": transpose,
        "batching": batching,
        "partial_evaluation": partial_evaluation,
        "explain_nan": explain_nan,
    }
    _RULES.update({name: rule for name, rule in given.items() if rule is not None})


def _rule(name: str, verb: str, handle: ModuleHandle) -> Any:
    if name in _RULES:
        return _RULES[name]
    raise MissingTransformError(
        f"cannot {verb} a compiled module: no {name} rule is registered",
        where=f"in a call of @{handle.entry} ({len(handle.in_avals)} arguments)",
        do="`import pullback` registers the rules; without the compiler, call a module that was "
        "transformed before it came here",
    )


def _is_inexact(aval: Any) -> bool:
    return jax.numpy.issubdtype(aval.dtype, jax.numpy.inexact)


def _jvp(primals: Any, tangents: Any, *, handle: ModuleHandle) -> tuple[list[Any], list[Any]]:
    perturbed = tuple(i for i, t in enumerate(tangents) if not _jax.is_zero(t))
    derivative = _rule("jvp", "differentiate", handle)(handle, perturbed)
    results = call_module(derivative, *primals, *(tangents[i] for i in perturbed))
    outs = handle.out_avals
    moved = iter(results[len(outs) :])
    found = [next(moved) if _is_inexact(out) else _jax.zero_tangent(out) for out in outs]
    return results[: len(outs)], found


def _split(unknown: Sequence[bool], handle: ModuleHandle) -> Halves | None:
    rule = _RULES.get("partial_evaluation")
    return rule and rule(handle, tuple(i for i, flag in enumerate(unknown) if flag))


def _transpose(cotangents: Any, *args: Any, handle: ModuleHandle) -> list[Any]:
    linear = tuple(i for i, arg in enumerate(args) if _jax.is_undefined_primal(arg))
    results = enumerate(zip(cotangents, handle.out_avals, strict=True))
    given = tuple(i for i, (ct, v) in results if _is_inexact(v) and not _jax.is_zero(ct))
    found = Transposed(*_rule("transpose", "transpose", handle)(handle, linear, given))
    others = tuple(i for i in range(len(args)) if i not in set(found.gives))
    known = [args[i] for i in (others if found.known is None else found.known)]
    outs = handle.out_avals
    active = [_of_dtype(_jax.instantiate(cotangents[i]), outs[i].dtype) for i in found.takes]
    moved = dict(zip(found.gives, call_module(found.handle, *known, *active), strict=True))
    return [moved[i] if i in set(linear) else None for i in range(len(args))]


def _of_dtype(cotangent: Any, dtype: Any) -> Any:
    """Convert a cotangent to its primal's dtype, because rules of JAX may give another one."""
    if cotangent.dtype == dtype:
        return cotangent
    if jax.numpy.iscomplexobj(cotangent) and not jax.dtypes.issubdtype(dtype, complex):
        cotangent = jax.numpy.real(cotangent)
    return jax.lax.convert_element_type(cotangent, dtype)


def _batch(args: Any, axes: Any, *, handle: ModuleHandle) -> tuple[list[Any], tuple[Any, ...]]:
    in_axes = tuple(axes)
    size = next(
        arg.shape[axis] for arg, axis in zip(args, in_axes, strict=True) if axis is not None
    )
    avals = [jax.typeof(arg) for arg in args]
    mesh, along = _jax.mesh_of(avals), _jax.explicit_axis(avals, in_axes)
    batched, out_axes = _rule("batching", "batch", handle)(handle, in_axes, size, along)
    outs = _jax.lying_along(mesh, along, call_module(batched, *args), out_axes, handle.out_avals)
    return outs, out_axes


def _check(errors: Sequence[str], *, handle: ModuleHandle) -> None:
    """Raise MissingTransformError if `checkify` would miss errors of these kinds in a module."""
    missed = [name for name in errors if name != _FAILED_CHECK or handle.lost_checks]
    if missed:
        raise MissingTransformError(
            "`checkify` cannot look into a module, which is what pullback traces, derives and "
            f"compiles: it would report no {' or '.join(missed)} of there",
            where=f"in a call of @{handle.entry} ({len(handle.in_avals)} arguments)",
            do="call checkify first, and derive, trace or compile what it returns, such as "
            "`pb.grad(lambda x: checkify.checkify(f, errors=...)(x)[::-1], has_aux=True)`; "
            "or leave these errors out of errors=",
        )


_FAILED_CHECK = "FailedCheckError"
"""The error of `checkify.check`, which no module contains: JAX does not lower it alone."""

_jax.tell_of_checks(call_module_p, _check)
_jax.evaluate_partially(call_module_p, _split)
_jax.primitive_jvps[call_module_p] = _jvp
_jax.primitive_transposes[call_module_p] = _transpose
_jax.primitive_batchers[call_module_p] = _batch
