"""Values in the memory of the host: the custom call by which XLA moves a value there and back.

JAX lowers `jax.device_put(x, jax.memory.Space.Host)` to the same, for every platform but the CPU.
"""

from __future__ import annotations

from typing import Any

from pullback._jax import ir, remat
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.purity import PLACEMENT, target_of

DEVICE, HOST = "device", "pinned_host"
"""Kinds of memory, as JAX names them."""

_CALL = "stablehlo.custom_call"
_OPTIONS = "composite_attributes"  # a file leaves them out where there are none
_FRONTEND, _BUFFER = "mhlo.frontend_attributes", "_xla_buffer_placement"


def placed(v: Value, memory: str) -> Value:
    """Emit the placement of a value in a kind of memory, and return the value there."""
    attributes = {
        "call_target_name": build.string(PLACEMENT),
        "has_side_effect": ir.BoolAttr.get(True),
        _FRONTEND: ir.DictAttr.get({_BUFFER: build.string(memory)}),
    }
    return build.emit1(_CALL, v.type, [v], attributes)


def is_placed(v: Value) -> bool:
    """Return True if a value is the result of a placement."""
    return build.is_result_of(v, _CALL) and target_of(v.owner.operation) == PLACEMENT


def memory_of(mark: Any) -> str | None:
    """Return the memory that a `checkpoint.saved` moves its value to; None if it stays."""
    attributes = mark.attributes
    named = ir.DictAttr(attributes[_OPTIONS]) if _OPTIONS in attributes else {}
    return ir.StringAttr(named[remat.MEMORY]).value if remat.MEMORY in named else None
