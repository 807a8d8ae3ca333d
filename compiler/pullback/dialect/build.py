"""Another name of `pullback.ir.build`, which rules outside of this package use."""

from pullback.ir.build import *  # noqa: F403
