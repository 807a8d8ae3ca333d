"""Define a rewrite of one op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullback.ir.build import Value


@dataclass(frozen=True)
class Rewrite:
    """Replace an op with one result by a cheaper form.

    Attributes:
      op: the name of the op.
      applies: tells by the op and the ops that make its operands whether `emit` may find the form;
        changes nothing.
      emit: emits the form where the op is, and returns its result, or None for an op that has no
        such form. It takes the op and the functions of the module by name.
    """

    op: str
    applies: Callable[[Any], bool]
    emit: Callable[[Any, dict[str, Any]], Value | None]
