"""Python callbacks in a module: custom calls numbered into a list that the executable holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir, place
from pullback_runtime.files import _custom_calls

CONFIGURATIONS = "mhlo.backend_config", "backend_config"


def check_callbacks(content: bytes, given: int, keepalives: Sequence[Any]) -> None:
    """Raise ModuleError if a module lacks host callbacks or keepalives that its calls need.

    A callback op has an index into the host callbacks. Other such calls hold the address of an
    object, which the keepalives keep alive.
    """
    found = _custom_calls.of_process(content)
    if found is None:
        return
    calls = [(call, target, _index(call)) for call, target in found[1]]
    needed = 1 + max((index.value for _, _, index in calls if index is not None), default=-1)
    for call, target, index in calls:
        if index is None and not keepalives:
            raise ModuleError(
                f"the module calls `{target}`, which needs an object of the process that made it",
                where=place(call),
                do="pass keepalives=, in the process that traced it; a saved module has none",
            )
        if index is not None and needed > given:
            raise ModuleError(
                f"the module calls back into Python ({needed} callbacks), "
                f"and {given} functions were given",
                where=f"{target} at {place(call)}",
                do="pass host_callbacks=, in the process that traced it; a saved module has none",
            )


def has_side_effects(content: bytes) -> bool:
    """Return True if a callback has side effects, such as printing, logging or writing."""
    found = _custom_calls.of_process(content)
    calls = [] if found is None else [call for call, _ in found[1] if _index(call) is not None]
    return any(_custom_calls.flag(call, "has_side_effect") for call in calls)


def shift_callbacks(module: ir.Module, offset: int) -> None:
    """Add `offset` to the callback indices of a module."""
    if offset == 0:
        return
    for call, target in _custom_calls.found_in(module):
        index = _index(call) if _custom_calls.is_of_process(target) else None
        if index is not None:
            name = _configuration(call)
            entries = {named.name: named.attr for named in call.attributes[name]}
            entries["index"] = ir.IntegerAttr.get(index.type, index.value + offset)
            call.attributes[name] = ir.DictAttr.get(entries, module.context)


def _index(call: ir.Operation) -> Any:
    """Return the index of the host callback that a call names, or None if it names none."""
    name = _configuration(call)
    return None if name is None else call.attributes[name]["index"]


def _configuration(call: ir.Operation) -> str | None:
    """Return the name of the attribute that holds the callback index; None if none does."""
    for name in CONFIGURATIONS:
        found = call.attributes.get(name, None)
        if isinstance(found, ir.DictAttr) and "index" in found:
            return name if isinstance(found["index"], ir.IntegerAttr) else None
    return None
