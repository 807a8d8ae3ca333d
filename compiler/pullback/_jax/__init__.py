"""The one gate to `jaxlib.mlir` and to private names of JAX.

A move of JAX's version touches this package and its twin in the runtime, nothing else. Here is
what everything needs; each of the modules has one idea of JAX's:

    from pullback._jax import ir, jaxprs
"""

from __future__ import annotations

import os

import jax
from jax._src import source_info_util as _source_info
from jax._src.interpreters import mlir as _mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

from pullback._errors import UnsupportedJaxVersion
from pullback_runtime._lazy import made_once

__all__ = [
    "PassManager",
    "chlo",
    "context",
    "func",
    "ir",
    "sdy",
    "stablehlo",
]

OLDEST_JAX = (0, 10, 2)
NEXT_UNTRIED_JAX = (0, 13)


def check_version(version: str = jax.__version__) -> None:
    """Raises UnsupportedJaxVersion outside the range that the tests run on."""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if OLDEST_JAX <= numbers < NEXT_UNTRIED_JAX:
        return
    raise UnsupportedJaxVersion(
        f"pullback works with jax 0.10.2 to 0.12.x, and this is jax {version}",
        do="pip install 'jax>=0.10.2,<0.13'",
    )


check_version()

# The lines of a program are the user's: ours are as internal to it as JAX's own.
_OURS = os.path.dirname(os.path.dirname(__file__))
_source_info.register_exclusion(os.path.abspath(_OURS))
_source_info.register_exclusion(_OURS)


@made_once
def context() -> ir.Context:
    """The one MLIR context of this process: all dialects that JAX's lowering uses.

    JAX hands out a fresh context per lowering (0.10) or a shared one per thread (0.12);
    values of different contexts must not meet, so we keep one of our own.
    """
    create = getattr(_mlir, "_create_ir_context", _mlir.make_ir_context)
    created = create()
    stablehlo.register_stablehlo_passes()
    return created
