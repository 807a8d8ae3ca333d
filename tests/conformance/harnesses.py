"""JAX's own corpus of uses of its primitives: the one place that knows where it lives.

JAX's wheel carries it as a private module for its own tests; it needs absl-py. Which cases exist
depends on the JAX version, and on whether 64-bit types are on when it is imported: they are off.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

CORPUS = "jax._src.internal_test_util.test_harnesses"


@dataclasses.dataclass(frozen=True)
class Case:
    """One use of one primitive.

    Attributes:
      name: unique in the corpus.
      primitive: the group it belongs to, nearly always the name of a primitive.
      function: what to call, with static arguments filled in.
      make: the arguments, always the same ones.
    """

    name: str
    primitive: str
    function: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]

    @property
    def seed(self) -> int:
        """A number that depends on nothing but the name."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:4], "little")


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case that JAX itself can run on a CPU, by name."""
    with jax.enable_x64(False):
        corpus = importlib.import_module(CORPUS)
    runnable = (harness for harness in corpus.all_harnesses if harness.filter("cpu"))
    return {harness.fullname: _case(harness) for harness in runnable}


def _case(harness: Any) -> Case:
    def make() -> tuple[Any, ...]:
        return tuple(harness.dyn_args_maker(np.random.RandomState(case.seed)))

    case = Case(harness.fullname, harness.group_name, harness.dyn_fun, make)
    return case


def sample(per_primitive: int, share: float) -> dict[str, Case]:
    """A fixed choice: this many of each primitive, and this share of the rest, by hash of name."""
    groups: dict[str, list[Case]] = {}
    for case in sorted(all_cases().values(), key=lambda case: (case.seed, case.name)):
        groups.setdefault(case.primitive, []).append(case)
    chosen = [
        case
        for _, cases in sorted(groups.items())
        for case in cases[: per_primitive + int(share * max(0, len(cases) - per_primitive))]
    ]
    return {case.name: case for case in chosen}
