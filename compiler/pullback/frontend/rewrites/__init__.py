"""Rewrites of equations in terms of others that have simpler rules."""
