"""Which custom calls a file may make, and which of them this process can run.

A custom call runs whatever is registered under the name of its target. Some targets take what only
the process has that made the module: the number of a Python function, or an address. Another
process that runs these ends.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from pullback_runtime import _jax
from pullback_runtime._errors import CompileError
from pullback_runtime._jax import ir, operations_named, place
from pullback_runtime.call._libraries import EXPANDED, OF_TPUS
from pullback_runtime.files._call_targets import (
    OTHERS_OF_PROCESS,
    call_refused,
    is_of_process as is_of_process,
    may_be_in as may_be_in,
    transfer_refused,
)
from pullback_runtime.files._container import ArtifactError
from pullback_runtime.ir import _module

CUSTOM_CALLS = "stablehlo.custom_call", "mhlo.custom_call"
FEEDS = "infeed", "outfeed"
BETWEEN_DEVICES = "stablehlo.recv", "stablehlo.send", "mhlo.recv", "mhlo.send"
TRANSFERS = *BETWEEN_DEVICES, *(f"{d}.{f}" for d in ("stablehlo", "mhlo") for f in FEEDS)
"""Ops by which a device exchanges values with the host; a callback on a TPU is made of them."""

_MARKS_OF_PROCESS = b"python", *map(str.encode, OTHERS_OF_PROCESS)

_KNOWN_TO_XLA = {
    *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint"),
    *("annotate_device_placement", "MoveToHost", "MoveToDevice"),
    *("AllocateBuffer", "CreateBuffer", "Pin", "Unpin"),
    *("TopK", "ApproxTopK", "PartialReduce", "ragged_all_to_all", "shape_assertion"),
    *("stablehlo.dynamic_top_k", "stablehlo.dynamic_approx_top_k"),
    *("stablehlo.dynamic_reduce_window", "stablehlo.dynamic_rng_bit_generator"),
    *(f"mhlo.{name}" for name in "acos acosh asin asinh atanh cosh erf sinh tan topk".split()),
}
_ALSO_KNOWN_TO_XLA = re.compile(
    r"xla\.sdy\.\w+"
    r"|(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)-(start|done)"
)
"""XLA compiles calls of these itself: nothing is registered for them."""

_OF_JAXLIB = re.compile(
    r"(lapack|cusolver|cusparse|cublas|cudnn|hipsolver|hipsparse|hipblas|miopen)_\w+_ffi"
    r"|(cu|hip)_(threefry2x32_ffi|cholesky_update_ffi|lu_pivots_to_permutation)"
    r"|(cu|hip)hybrid_(eig_real|eig_comp|geqp3)|cpu_csr_sparse_dense_ffi"
    r"|tridiagonal_solve_perturbed_ffi|dce_sink"
    r"|tpu_custom_call|__gpu\$xla\.gpu\.triton|__(cudnn|op)\$\w+"
)
"""Libraries that come with JAX, and kernels. That of `mosaic_gpu_v2` has code for the host too."""

_OF_OUR_FILES = re.compile(r"(chlo|mhlo)\.\w+")
"""Names of ops, which compute and do no more; a file with symbolic dimensions has CHLO's so."""

_FROM_ANYWHERE = _ALSO_KNOWN_TO_XLA, _OF_JAXLIB, _OF_OUR_FILES

_OURS = "pullback."
"""Prefix of calls that stand for a linear map known by its transpose only."""


def of_process(content: bytes) -> tuple[ir.Module, list[tuple[ir.Operation, str]]] | None:
    """Parse a module, and find the calls in it for which `is_of_process` holds; None without any.

    The module is returned as well because the operations do not keep it alive.
    """
    if not any(mark in content for mark in _MARKS_OF_PROCESS):
        return None
    module = _module.parse(content)
    calls = [each for each in found_in(module) if is_of_process(each[1])]
    return (module, calls) if calls else None


def found_in(module: ir.Module) -> list[tuple[ir.Operation, str]]:
    """Return the custom calls of a module, each with the name of its target."""
    calls = operations_named(module, *CUSTOM_CALLS)
    return [(call, call.attributes["call_target_name"].value) for call in calls]


def check_origin(module: ir.Module, allowed: Collection[str]) -> None:
    """Raise ArtifactError for a custom call or a transfer that a file must not make.

    Args:
      allowed: targets that the caller vouches for, besides those that any file may call.
    """
    allowed = {allowed} if isinstance(allowed, str) else allowed
    for op in filter(_is_with_host, operations_named(module, *TRANSFERS)):
        raise transfer_refused(op.name, _place(op))
    for call, target in found_in(module):
        if is_of_process(target):
            raise call_refused(target, _place(call))
        if not (target in allowed or _may_come_from_a_file(target)):
            raise ArtifactError(
                f"the file calls `{target}`, which runs whatever is registered here by that name",
                where=_place(call),
                do=f'if you trust the file, load it with allow_custom_calls=["{target}"], in a '
                f"shell with --allow-custom-calls {target}",
            )


def _is_with_host(transfer: ir.Operation) -> bool:
    """Return True if a transfer is to or from the host, as infeed and outfeed always are."""
    return transfer.name not in BETWEEN_DEVICES or flag(transfer, "is_host_transfer")


def _may_come_from_a_file(target: str) -> bool:
    return target in _KNOWN_TO_XLA | {*OF_TPUS} or any(
        each.fullmatch(target) for each in _FROM_ANYWHERE
    )


def check_registered(module: ir.Module, platform: str | None) -> None:
    """Raise CompileError for a call in a module that has no implementation on a platform.

    Only the CPU platform can list what is registered. A call without side effects whose results
    are unused is not an error, because XLA removes it.
    """
    if platform != "cpu":
        return
    for call, target in found_in(module):
        known = target in _KNOWN_TO_XLA | EXPANDED or _ALSO_KNOWN_TO_XLA.fullmatch(target)
        if known or target.startswith(_OURS) or not _is_needed(call):
            continue
        if target not in _jax.custom_call_targets("Host"):
            raise CompileError(
                f"nothing is registered on {platform} for the custom call `{target}`",
                where=_place(call),
                do="register it before the program runs: import the library that has it, or "
                f'jax.ffi.register_ffi_target("{target}", …, platform="{platform}")',
            )


def _is_needed(call: ir.Operation) -> bool:
    return flag(call, "has_side_effect") or any(True for v in call.results for _ in v.uses)


def flag(op: ir.Operation, name: str) -> bool:
    """Return True if an op has an attribute of this name that is true."""
    return name in op.attributes and bool(op.attributes[name].value)


def _place(op: Any) -> str:
    """Return the source line of an op, and the name of the function around it."""
    line = place(op)
    while op.name != "func.func" and op.parent is not None:
        op = op.parent.operation
    return f"{line}, in @{op.attributes['sym_name'].value}" if op.parent is not None else line
