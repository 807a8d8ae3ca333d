"""Rewrites of single ops, which the pass `simplify` applies."""
