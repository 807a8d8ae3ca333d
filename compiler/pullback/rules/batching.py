"""Another name of `pullback.autodiff.batch_rules`, which rules outside of this package use."""

from pullback.autodiff.batch_rules import *  # noqa: F403
