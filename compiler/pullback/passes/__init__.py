"""Pass name -> "module:Class", one line per pass, imported when asked for."""

from __future__ import annotations

PASSES: dict[str, str] = {
    "erase-dead": "pullback.passes.erase_dead:EraseDead",
    "inline-calls": "pullback.passes.inline_calls:InlineCalls",
    "jvp": "pullback.passes.jvp:JVP",
    "linearize": "pullback.passes.linearize:Linearize",
    "lower-custom-derivatives": "pullback.passes.lower_custom_derivatives:LowerCustomDerivatives",
    "order-effects": "pullback.passes.order_effects:OrderEffects",
    "stage-rules": "pullback.passes.stage_rules:StageRules",
    "transpose": "pullback.passes.transpose:Transpose",
    "verify-custom-derivatives": (
        "pullback.passes.verify_custom_derivatives:VerifyCustomDerivatives"
    ),
    "vjp": "pullback.passes.vjp:VJP",
    "vmap": "pullback.passes.vmap:VMap",
}
