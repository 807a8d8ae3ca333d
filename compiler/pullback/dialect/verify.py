"""Another name of `pullback.ir.verify`, which rules outside of this package use."""

from pullback.ir.verify import *  # noqa: F403
