"""The native list: primitives whose StableHLO lowering has the same derivative as the primitive."""

from __future__ import annotations

_ARITHMETIC = "one StableHLO op with the same formula"
_SHAPE = "moves elements only"

NATIVE: dict[str, str] = {
    **dict.fromkeys(
        "add sub mul div neg sin cos tan tanh exp log log1p expm1 sqrt rsqrt".split(),
        _ARITHMETIC,
    ),
    **dict.fromkeys(
        "reshape transpose broadcast_in_dim squeeze slice concatenate pad rev select_n "
        "dynamic_slice dynamic_update_slice convert_element_type copy".split(),
        _SHAPE,
    ),
    "dot_general": "one StableHLO op with the same contraction",
    "reduce_sum": "a StableHLO reduce with add",
    "max": "one StableHLO op",
    "min": "one StableHLO op",
    "abs": "one StableHLO op",
    "sign": "one StableHLO op",
}
