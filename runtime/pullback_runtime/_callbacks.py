"""Python callbacks in a module: custom calls numbered into a list that the executable holds."""

from __future__ import annotations

from typing import Any

from pullback_runtime import _module
from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir, operations_named, place


def check_callbacks(content: bytes, given: int) -> None:
    """Raise ModuleError when the module's callback ops number more functions than were given."""
    if b"python" not in content:
        return
    module = _module.parse(content)
    calls = _callback_ops(module)
    needed = 1 + max((_index(op).value for op in calls), default=-1)
    if needed > given:
        raise ModuleError(
            f"the module calls back into Python ({needed} callbacks), "
            f"and {given} functions were given",
            where=f"{calls[0].attributes['call_target_name'].value} at {place(calls[0])}",
            do="pass host_callbacks=, in the process that traced it; a saved module has none",
        )


def has_side_effects(content: bytes) -> bool:
    """Whether a callback of the module does more than compute: prints, logs, writes."""
    if b"python" not in content:
        return False
    module = _module.parse(content)  # ops do not keep it alive
    calls = _callback_ops(module)
    flags = (op.attributes["has_side_effect"] for op in calls if "has_side_effect" in op.attributes)
    return any(flag.value for flag in flags)


def shift_callbacks(module: ir.Module, offset: int) -> None:
    """Renumber the callbacks of a module, to stand after `offset` others."""
    if offset == 0:
        return
    for op in _callback_ops(module):
        entries = {named.name: named.attr for named in op.attributes["mhlo.backend_config"]}
        index = entries["index"]
        entries["index"] = ir.IntegerAttr.get(index.type, index.value + offset)
        op.attributes["mhlo.backend_config"] = ir.DictAttr.get(entries, module.context)


def _callback_ops(module: ir.Module) -> list[Any]:
    return [op for op in operations_named(module, "stablehlo.custom_call") if _is_callback(op)]


def _is_callback(op: Any) -> bool:
    target = op.attributes["call_target_name"].value
    if "python" not in target or "mhlo.backend_config" not in op.attributes:
        return False
    return "index" in op.attributes["mhlo.backend_config"]


def _index(op: Any) -> Any:
    return op.attributes["mhlo.backend_config"]["index"]
