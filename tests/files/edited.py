"""Write a file again after an edit, as a damaged or foreign writer might have: sealed anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback_runtime import _jax
from pullback_runtime._jax import ir, stablehlo
from pullback_runtime.files import _container


def edited(
    content: bytes, edit: Callable[[Any], object] = lambda module: None, **metadata: Any
) -> bytes:
    """Return a file whose module was edited in place, and whose metadata has these entries."""
    layout = _container.read_layout(content)
    with _jax.fresh_context() as context, ir.Location.unknown(context):
        module = stablehlo.deserialize_portable_artifact(context, content)
        edit(module)
        attributes = module.operation.attributes
        text = _container.dump_metadata(layout.metadata | metadata)
        attributes[_container.METADATA_ATTRIBUTE] = ir.StringAttr.get(text)
        placeholder = ir.StringAttr.get(_container.DIGEST_PLACEHOLDER)
        attributes[_container.DIGEST_ATTRIBUTE] = placeholder
        version = layout.stablehlo_version
        written = stablehlo.serialize_portable_artifact(module, version, False)
    return b"".join(_container.seal_pieces([written]))
