"""Alias of `pullback.autodiff.batch_rules`, for rules that are defined outside of this package."""

from pullback.autodiff.batch_rules import *  # noqa: F403
