"""Program: a module, the argument trees of the function it came from, and its rules."""

from __future__ import annotations

import dataclasses
from typing import Any

from pullback._jax import ir


@dataclasses.dataclass(frozen=True)
class Program:
    """A traced function: an MLIR module with its derivative rules."""

    module: ir.Module
    in_tree: Any
    out_tree: Any
    rules: Any

    def __str__(self) -> str:
        return str(self.module)
