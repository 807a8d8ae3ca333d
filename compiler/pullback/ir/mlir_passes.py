"""The passes that come with jaxlib, checked by MLIR's own pipeline parser."""

from __future__ import annotations

import functools

from pullback import _jax
from pullback._jax import ir
from pullback.errors import PipelineError


@functools.cache
def stock_stage(text: str) -> str:
    """Return an upstream pipeline element as it runs on a module.

    Passes on functions are nested in `func.func`.

    Raises:
      PipelineError: with MLIR's own words when neither form parses.
    """
    try:
        _parse(text)
        return text
    except ValueError as error:
        nested = f"func.func({text})"
        try:
            _parse(nested)
        except ValueError:
            raise PipelineError(f"MLIR refuses the pipeline element {text!r}: {error}") from error
        return nested


def run_stock(module: ir.Module, text: str) -> None:
    """Run an upstream stage on a module, without MLIR's verifier.

    Raises:
      PipelineError: it fails.
    """
    manager = _jax.PassManager.parse(f"builtin.module({text})", context=module.context)
    manager.enable_verifier(False)
    try:
        manager.run(module.operation)
    except ir.MLIRError as error:
        raise PipelineError(f"stock pass {text!r} failed: {error}") from error


def _parse(text: str) -> None:
    _jax.PassManager.parse(f"builtin.module({text})", context=_jax.context())
