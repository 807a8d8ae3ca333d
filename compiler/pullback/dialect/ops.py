"""Another name of `pullback.ir.ops`, which rules outside of this package use."""

from pullback.ir.ops import *  # noqa: F403
