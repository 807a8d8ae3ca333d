"""The names of passes and pipelines; a pass is imported when asked for.

`pullback_cli` reads these tables without importing the package: nothing else stands here.
"""

from __future__ import annotations

# Pass name -> "module:Class".
PASSES: dict[str, str] = {
    "checkpoint": "pullback.passes.checkpoint:Checkpoint",
    "erase-dead": "pullback.passes.erase_dead:EraseDead",
    "inline-calls": "pullback.passes.inline_calls:InlineCalls",
    "jet": "pullback.passes.jet:Jet",
    "jvp": "pullback.passes.jvp:JVP",
    "laplacian": "pullback.passes.laplacian:Laplacian",
    "linearize": "pullback.passes.linearize:Linearize",
    "lower-custom-derivatives": "pullback.passes.lower_custom_derivatives:LowerCustomDerivatives",
    "order-effects": "pullback.passes.order_effects:OrderEffects",
    "simplify": "pullback.passes.simplify:Simplify",
    "stage-rules": "pullback.passes.stage_rules:StageRules",
    "transpose": "pullback.passes.transpose:Transpose",
    "verify-custom-derivatives": (
        "pullback.passes.verify_custom_derivatives:VerifyCustomDerivatives"
    ),
    "vjp": "pullback.passes.vjp:VJP",
    "vmap": "pullback.passes.vmap:VMap",
}

# Pipeline name -> its passes.
PIPELINES: dict[str, str] = {
    "to-stablehlo": (
        "lower-custom-derivatives,order-effects,simplify,symbol-dce,"
        "func.func(chlo-legalize-to-stablehlo)"
    ),
}

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
