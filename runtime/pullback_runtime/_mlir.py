"""The gate to `jaxlib.mlir` alone: it parses modules without JAX, whose import takes 0.5 seconds.

The helper process of `_safe_parse` needs no more, and `_jax` takes from here what both need.
"""

from __future__ import annotations

import io
import re
from typing import Any

from jaxlib.mlir import ir as ir, passmanager as passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext, _mlirHlo as _mhlo  # not its 400 op classes
from jaxlib.mlir.dialects import (
    chlo as chlo,
    func as func,
    mpmd as mpmd,
    sdy as sdy,
    stablehlo as stablehlo,
)

TO_STABLEHLO = "vhlo-legalize-to-stablehlo"


class _Context(ir.Context):  # type: ignore[misc]
    """A context without the dialects that jaxlib's own loads: all that are linked into it."""

    def __init__(self) -> None:
        super(ir.Context, self).__init__()


_dialects = ir.DialectRegistry()
_jax_mlir_ext.register_dialects(_dialects)
stablehlo.register_stablehlo_passes()


def fresh_context(threads: Any = None) -> ir.Context:
    """Return a new MLIR context with the dialects of JAX, not shared.

    It reads quantized types: JAX registers no dialect of that name, but the pass that legalizes
    VHLO, which may make some, loads it.

    Args:
      threads: the pool of threads that it uses; None for no threads.
    """
    context = _Context()
    context.append_dialect_registry(_dialects)
    context.load_all_available_dialects()
    if threads is None:
        context.enable_multithreading(False)
    else:
        context.set_thread_pool(threads)
    for dialect in sdy, mpmd, chlo, stablehlo:
        dialect.register_dialect(context)
    _mhlo.register_mhlo_dialect(context)
    run_passes(ir.Module.parse("", context), f"builtin.module({TO_STABLEHLO})")
    return context


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run a textual MLIR pipeline on `module`, in place."""
    with module.context:
        passmanager.PassManager.parse(pipeline).run(module.operation)


def from_any_version() -> str:
    """Return the passes that legalize VHLO of any version to StableHLO."""
    return f"vhlo-to-version{{target={stablehlo.get_current_version()}}},{TO_STABLEHLO}"


def parse(content: bytes, portable: bool, context: ir.Context) -> ir.Module:
    """Parse a module of text, bytecode or a portable artifact, and legalize VHLO in it.

    Old portable artifacts are bytecode: those of StableHLO 0.9 name MLIR as their producer.

    Raises: ir.MLIRError, ValueError.
    """
    with context, ir.Location.unknown(context):
        if portable:
            return stablehlo.deserialize_portable_artifact(context, content)
        module = ir.Module.parse(content)
    if b"vhlo" in content and any(
        op.operation.name.startswith("vhlo.") for op in module.body.operations
    ):
        run_passes(module, f"builtin.module({from_any_version()})")
    return module


def to_bytecode(module: ir.Module) -> bytes:
    """Write `module` as MLIR bytecode."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


_FLAG = re.compile(r"\.? If this is intended, please .*")


def without_flags(said: str) -> str:
    """Remove from a message of MLIR the advice to set a flag, which jaxlib does not have."""
    return _FLAG.sub("", said)


def remedy_of(said: str) -> str | None:
    """Return what to do if a message of MLIR is about a dialect jaxlib lacks; otherwise None."""
    if "unregistered" not in said:
        return None
    if re.search(r'!"quant"<|dialect, quant', said):
        return (
            "write it without quantized types, which JAX does not run: "
            "`pullback opt --stablehlo-legalize-quant-to-math` takes them away"
        )
    return "lower it to StableHLO and CHLO: jaxlib has few other dialects of MLIR"
