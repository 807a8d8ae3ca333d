"""Another name of `pullback.autodiff.registry`, which rules outside of this package use."""

from pullback.autodiff.registry import *  # noqa: F403
