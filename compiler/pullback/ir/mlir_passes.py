"""The passes that come with jaxlib, checked by MLIR's own pipeline parser."""

from __future__ import annotations

import functools

from pullback import _jax
from pullback._jax import ir
from pullback.errors import PipelineError

# Those worth a line in `--list-passes` and in did-you-mean hints; every other one that is
# registered works as well. `inline` is left out: in jaxlib it does nothing.
STOCK_PASSES: dict[str, str] = {
    "canonicalize": "Fold and simplify with the patterns of each dialect.",
    "chlo-legalize-to-stablehlo": "Rewrite chlo ops in terms of StableHLO.",
    "control-flow-sink": "Move ops into the only branch that uses them.",
    "cse": "Merge equal pure ops.",
    "loop-invariant-code-motion": "Move ops out of loops that they do not depend on.",
    "print-op-stats": "Print how many ops of each kind there are.",
    "sccp": "Propagate constants through control flow and calls.",
    "shape-legalize-to-stablehlo": "Rewrite shape ops in terms of StableHLO.",
    "snapshot-op-locations": "Make every location point into the printed module.",
    "stablehlo-canonicalize-dynamism": "Turn dynamic ops with constant shapes into static ones.",
    "stablehlo-check-shape-assertions": "Drop assertions on shapes that hold; the others fail.",
    "stablehlo-compatibility-expander": "Rewrite for older StableHLO consumers.",
    "stablehlo-complex-math-expander": "Expand complex math for precision.",
    "stablehlo-convert-to-signless": "Make all integer types signless.",
    "stablehlo-legalize-composite-to-call": "Turn every composite, whoever owns it, into a call.",
    "stablehlo-legalize-deprecated-ops": "Replace deprecated StableHLO ops.",
    "stablehlo-legalize-to-vhlo": "Convert to the versioned form that files hold.",
    "stablehlo-refine-arguments": "Give the arguments static types, as in types=tensor<3xf32>.",
    "stablehlo-refine-shapes": "Infer static shapes from the shapes of the entry's arguments.",
    "strip-debuginfo": "Drop all locations.",
    "symbol-dce": "Erase private functions that nobody refers to.",
    "symbol-privatize": "Make functions private.",
    "topological-sort": "Order ops so that definitions come before uses.",
    "trivial-dce": "Erase pure ops without uses.",
    "vhlo-legalize-to-stablehlo": "Convert from the versioned form.",
    "view-op-graph": "Print the graph of ops in Graphviz form.",
}


@functools.cache
def stock_stage(text: str) -> str:
    """Return a stock pipeline element as it runs on a module.

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
    """Run a stock stage on a module, without MLIR's verifier.

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
