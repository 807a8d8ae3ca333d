"""Equations whose rules are simpler in other terms."""
