"""Alias of `pullback.autodiff.registry`, for rules that are defined outside of this package."""

from pullback.autodiff.registry import *  # noqa: F403
