"""The pass `verify-custom-derivatives`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback._jax import ir
from pullback.ir.verify import verify
from pullback.passes.base import Pass, Rules


@dataclass(frozen=True)
class VerifyCustomDerivatives(Pass):
    """Check every derivative op against the numbered constraints of docs/dialect.md.

    The module stays as it is. A broken constraint raises VerificationError with its label.
    """

    name: ClassVar[str] = "verify-custom-derivatives"

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Verify all derivative ops of the module."""
        verify(module)
