"""The names of passes, for the completion of a shell."""

from __future__ import annotations

import importlib.util
import os
import runpy
from importlib import metadata

PLUGINS = "pullback.passes"


def described_passes() -> dict[str, str]:
    """Return what each pass and pipeline does, by its name, without importing pullback."""
    spec = importlib.util.find_spec("pullback")
    assert spec is not None
    assert spec.origin is not None
    tables = runpy.run_path(os.path.join(os.path.dirname(spec.origin), "passes", "__init__.py"))
    plugins = {each.name: each.value for each in metadata.entry_points(group=PLUGINS)}
    return {**tables["PASSES"], **tables["PIPELINES"], **tables["STOCK_PASSES"], **plugins}
